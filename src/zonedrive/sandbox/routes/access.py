"""Endpoints for logon requirements, sign-on URLs, logoff and new credentials."""

from typing import Any
from urllib.parse import urlencode

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from zonedrive.sandbox import intake
from zonedrive.sandbox.answers import json_response
from zonedrive.sandbox.deployment import Deployment
from zonedrive.sandbox.errors import (
    ApiError,
    bad_argument,
    error_response,
    must_change_password,
)
from zonedrive.sandbox.identity import COOKIE, Caller, presented_secret
from zonedrive.sandbox.settings import Named
from zonedrive.sandbox.signons import Visit, may_return_to
from zonedrive.sandbox.verification import Blocked

FORGET_COOKIE = f"{COOKIE}=; Path=/; HttpOnly; Secure; Max-Age=0"


class UserId(msgspec.Struct, eq=False):
    """Body of a request for new credentials; `name` is a user id."""

    name: str


async def requirements(request: Request) -> Response:
    """Handle GET /api/access/authorizationrequirements: describe how users log on."""
    organization = deployment(request).organization
    answer: dict[str, Any] = {
        "passwordRequired": not (organization.idp_required or organization.idp_users),
        "canSavePassword": True,
        "otpRequired": organization.otp != "None",
        "otpType": organization.otp,
        "organizationName": organization.name,
        "worldName": organization.domain,
        "idpRequired": organization.idp_required,
    }
    if organization.identity_providers:
        answer["idpName"] = organization.identity_providers[0].name
        answer["idpData"] = [
            {"name": one.name, "description": one.description}
            for one in organization.identity_providers
        ]
    answer["personalIdentificationTypes"] = [
        {"name": one.name, "description": one.description, "icon": ""}
        for one in organization.personal_id
    ]
    return json_response(answer)


async def idp_sign_on(request: Request) -> Response:
    """Handle GET /api/access/idpsignonuri: return the URL of an identity provider's page."""
    fragment = intake.boolean(request, "fragmentResponse")
    name = intake.text(request, "idpName")
    known = deployment(request).organization.identity_providers
    return _sign_on(request, Visit("idp", name, _way_back(request), fragment), known)


async def personal_id_sign_on(request: Request) -> Response:
    """Handle GET /api/access/personalid-signonuri: return the URL of an identification page."""
    name = intake.text(request, "authentication-type")
    known = deployment(request).organization.personal_id
    return _sign_on(request, Visit("personal-id", name, _way_back(request), True), known)


def _way_back(request: Request) -> str:
    redirect = intake.text(request, "redirectURI")
    if not may_return_to(redirect):
        raise bad_argument("redirectURI must be https, or http to the caller's own machine")
    return redirect


def _sign_on(request: Request, visit: Visit, known: list[Named]) -> Response:
    organization = deployment(request).organization
    if not belongs(intake.text(request, "organization"), organization.name, organization.domain):
        raise ApiError(400, "ORGANIZATION_UNKNOWN", "There is no such organization")
    if visit.name not in [one.name for one in known]:
        raise bad_argument(f"There is no {visit.kind} named {visit.name!r}")
    return json_response({"uri": sign_on_address(request, visit)})


def sign_on_address(request: Request, visit: Visit) -> str:
    """Start the sign-on `visit` at the provider's page; return the URL for this sign-on."""
    query = urlencode({"id": deployment(request).signons.begin(visit)})
    return f"{request.url.scheme}://{request.url.netloc}/api/sandbox/signon?{query}"


def belongs(given: str, name: str, domain: str) -> bool:
    """Return True if `given` is the organization's name or domain."""
    return given.lower() in (name.lower(), domain.lower())


async def logoff(request: Request) -> Response:
    """Handle GET /api/access/logoff: end the session; respond 204, or 404 if there is no session.

    Raises ApiError 403 if the caller must change the password first.
    """
    secret = presented_secret(request)
    grant = None if secret is None else deployment(request).sessions.resolve(secret)
    user = None if grant is None else deployment(request).users.find(grant.user_id)
    if user is not None and user.change_required:
        raise must_change_password()
    headers = {"Set-Cookie": FORGET_COOKIE} if COOKIE in request.cookies else {}
    if secret is None or not deployment(request).sessions.end(secret):
        return error_response(
            404, "NOT_FOUND", "There is no session to end", headers=headers or None
        )
    return Response(status_code=204, headers=headers)


async def new_credentials(request: Request) -> Response:
    """Handle POST /api/access/newcredentials: respond 200, or 400 for an unknown user.

    The response contains only a message; the sandbox does not create credentials.
    """
    wanted = await intake.json_body(request, UserId)
    user = deployment(request).users.find(wanted.name)
    if user is None:
        raise ApiError(400, "USER_UNKNOWN", "There is no such user")
    return json_response({"message": f"New credentials were requested for {user.id}"})


async def revalidate(request: Request) -> Response:
    """Handle POST /api/access/revalidate: always respond 400.

    The API documentation does not describe the bodies of this request and its response.
    """
    await intake.no_body(request)
    raise ApiError(400, "NOT_SUPPORTED", "The sandbox does not offer revalidation")


async def own_password(request: Request, caller: Caller, password: str) -> None:
    """Raise ApiError 403 if `password` is not the caller's password.

    Also raise ApiError 403 if the caller is blocked after too many recent failures.
    """
    try:
        user = await deployment(request).verification.password(caller.id, password)
    except Blocked:
        text = "Too many failures: blocked for a while"
        raise ApiError(403, "TEMPORARILY_BLOCKED", text) from None
    if user is None:
        raise ApiError(403, "WRONG_PASSWORD", "The password is wrong")


def deployment(request: Request) -> Deployment:
    """Return the deployment that serves the request."""
    found: Deployment = request.app.state.deployment
    return found
