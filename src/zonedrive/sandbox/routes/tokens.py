"""Endpoints that create and list tokens."""

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from zonedrive.sandbox import intake, limits
from zonedrive.sandbox.answers import json_response
from zonedrive.sandbox.errors import ApiError, bad_argument
from zonedrive.sandbox.identity import Caller
from zonedrive.sandbox.routes.access import deployment, own_password
from zonedrive.sandbox.sessions import Scope

LONGEST_SECONDS = 100 * 365 * 24 * 3600


class TokenRequest(msgspec.Struct, eq=False, rename="camel"):
    """Body of a request that creates a token; `validity` is in seconds."""

    token_name: str
    validity: int
    password: list[str]
    scope: Scope | None = None


async def create(request: Request, caller: Caller) -> Response:
    """Handle POST /api/tokens: create a token; respond 201 with its id, secret and expiry.

    The expiry is in milliseconds since the epoch.
    """
    body = await intake.json_body(request, TokenRequest)
    if not body.token_name:
        raise bad_argument("tokenName is empty")
    if not 0 < body.validity <= LONGEST_SECONDS:
        raise bad_argument(f"validity must be from 1 to {LONGEST_SECONDS} seconds")
    limits.check(body.scope)
    await own_password(request, caller, intake.characters(body.password) or "")
    scope = body.scope
    if caller.scope is not None:
        if scope not in (None, caller.scope):
            raise ApiError(403, "NOT_ALLOWED", "A limited caller makes tokens of its own scope")
        scope = caller.scope
    if scope is not None and scope.name == "SCIM" and not caller.user.administrator:
        raise ApiError(403, "NOT_ALLOWED", "The scope SCIM is for administrators")
    sessions = deployment(request).sessions
    return json_response(
        sessions.create_token(caller.id, body.token_name, body.validity, scope), 201
    )


async def listed(request: Request, caller: Caller) -> Response:
    """Handle GET /api/tokens: return the caller's tokens, including expired tokens."""
    return json_response(deployment(request).sessions.tokens(caller.id))
