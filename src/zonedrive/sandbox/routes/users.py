"""Endpoint that lists all users of the organization; every user may use it."""

from starlette.requests import Request
from starlette.responses import Response

from zonedrive.sandbox.answers import json_response
from zonedrive.sandbox.identity import Caller
from zonedrive.sandbox.routes.access import deployment


async def listed(request: Request, _caller: Caller) -> Response:
    """Handle GET /api/users: return all users, ordered by id."""
    return json_response([user.wire() for user in deployment(request).users.all()])
