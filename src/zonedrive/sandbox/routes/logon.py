"""Logon with password and one-time code, in one request or in a flow of several requests.

A flow has the state PASSWORDPENDING until a password is received, then VERIFICATIONCODEPENDING
until a code is received. INVARIANT: a failed request ends its flow. Each request of a flow can set
properties of the session (scope, lifetime, cookie). Values for properties that an earlier request
of the flow has set are ignored.
"""

import math
from typing import Annotated, Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from zonedrive.sandbox import intake, limits
from zonedrive.sandbox.answers import json_response
from zonedrive.sandbox.deployment import Deployment
from zonedrive.sandbox.errors import ApiError, bad_argument
from zonedrive.sandbox.flows import Flow, SessionOptions, State
from zonedrive.sandbox.identity import COOKIE
from zonedrive.sandbox.routes.access import belongs, deployment, sign_on_address
from zonedrive.sandbox.sessions import Scope
from zonedrive.sandbox.signons import Visit
from zonedrive.sandbox.users import User
from zonedrive.sandbox.verification import Blocked

# Limit of user names, codes and scopes, which stay in memory before a password is checked. Without
# the limit, a client that knows no password could fill the memory.
LONGEST_KEPT = 1000
Kept = Annotated[str, msgspec.Meta(max_length=LONGEST_KEPT)]

SAME_SITE = {"strict": "Strict", "lax": "Lax", "none": "None"}


class LogonRequest(msgspec.Struct, eq=False, rename="camel"):
    """Body of a logon request; `timeout` is in milliseconds.

    Fields that the sandbox does not use are only type-checked.
    """

    username: Kept | None = None
    password: list[str] | None = None
    password_as_string: str | None = None
    verification_code: Kept | None = None
    set_cookie: bool | None = None
    same_site_policy: str | None = None
    scope: Scope | None = None
    timeout: int | None = None
    timeout_in_seconds: int | None = None
    accept_sessions: bool | None = None
    logon_session_id: str | None = None
    token: str | None = None
    save_password: bool | None = None
    organization_name: str | None = None
    auto_logon: bool | None = None


async def logon(request: Request) -> Response:
    """Handle POST /api/access/logon: log on, or continue a logon flow.

    Responds 200 with a session or with a provider's URL, or 202 with the state of the flow.
    """
    fields = await intake.json_body(request, dict[str, Any], code="INVALID_DATA")
    try:
        body = intake.fitting(fields, LogonRequest, code="INVALID_DATA")
        if not body.token and (provider := _provider(request, body)):
            return provider
        attempt = Attempt(deployment(request), body)
    except ApiError:
        deployment(request).flows.end(str(fields.get("logonSessionId")))
        raise
    try:
        answer = await attempt.answer()
    except Blocked:
        refusal = ApiError(401, "TEMPORARY_BLOCKED", "Too many failures: blocked for a while")
        attempt.keep(intake.address(request), refusal.code)
        raise refusal from None
    except ApiError as refusal:
        attempt.keep(intake.address(request), refusal.code)
        raise
    attempt.keep(intake.address(request), "OK" if answer.status_code == 200 else "PENDING")
    return answer


def _provider(request: Request, body: LogonRequest) -> Response | None:
    """Return a response with a provider's URL, or None if the user logs on without a provider."""
    organization = deployment(request).organization
    username = body.username or ""
    if not organization.signs_on_elsewhere(username):
        return None
    visit = Visit("idp", organization.identity_providers[0].name, "", True, username)
    answer = {"logonOK": False, "idpURI": sign_on_address(request, visit)}
    return json_response(answer | ({"userId": {"name": username}} if username else {}))


class Attempt:
    """Single logon request."""

    def __init__(self, service: Deployment, body: LogonRequest) -> None:
        """Check the request; raise ApiError 400 for invalid or contradictory fields."""
        self._service = service
        self._body = body
        self._options = SessionOptions(
            body.scope,
            body.set_cookie,
            body.same_site_policy,
            body.timeout,
            body.timeout_in_seconds,
        )
        self._flow_id: str | None = None
        self._user = body.username or ""
        self._life()
        limits.check(body.scope)
        self._password = intake.characters(body.password, code="INVALID_DATA")
        if body.password_as_string is not None:
            if self._password not in (None, body.password_as_string):
                raise bad_argument("password and passwordAsString differ")
            self._password = body.password_as_string
        policy = body.same_site_policy
        if policy is not None and policy.lower() not in SAME_SITE:
            raise bad_argument("sameSitePolicy must be Strict, Lax or None")

    def keep(self, address: str, outcome: str) -> None:
        """Record the outcome of the request for the control command `attempts`."""
        self._service.attempts.keep(self._user, address, outcome)

    async def answer(self) -> Response:
        """Return the response: 200 with a session, or 202 with the state of the flow.

        Raises ApiError 400, 401 or 403 if the request is invalid or its credentials are rejected,
        and Blocked if the user name is blocked.
        """
        if self._body.logon_session_id:
            return await self._go_on(self._body.logon_session_id)
        self._check_organization()
        if self._body.token:
            return self._by_sign_on(self._body.token)
        if not self._body.username:
            raise bad_argument("username is missing")
        return await self._first(self._body.username)

    async def _first(self, username: str) -> Response:
        in_steps = bool(self._body.accept_sessions)
        if self._password is None:
            if in_steps:
                return self._pending("PASSWORDPENDING", username, self._body.verification_code)
            raise ApiError(401, "AUTHORIZATION_FAILED", "Unknown user or wrong password")
        user = await self._service.verification.password(username, self._password)
        if user is None:
            raise ApiError(401, "AUTHORIZATION_FAILED", "Unknown user or wrong password")
        if not self._service.codes.required():
            return self._logged_on(user)
        if self._body.verification_code:
            if self._service.verification.code(user.id, self._body.verification_code):
                return self._logged_on(user)
            raise ApiError(401, "AUTHORIZATION_FAILED", "The one-time code is wrong")
        self._service.codes.mail(user.id)
        if in_steps:
            return self._pending("VERIFICATIONCODEPENDING", user.id)
        raise ApiError(401, "AUTHORIZATION_FAILED", "A one-time code is required")

    async def _go_on(self, flow_id: str) -> Response:
        flow = self._service.flows.find(flow_id)
        if flow is None:
            if self._service.flows.ended_well(flow_id):
                raise ApiError(403, "ALREADY_LOGGED_ON", "This logon has led to a session already")
            raise ApiError(400, "INVALID_SESSIONID", "There is no such logon under way")
        # After any failure from here on, the flow is over; only `_pending` continues it.
        self._service.flows.end(flow_id)
        self._flow_id, self._user = flow_id, flow.username
        self._check_organization()
        self._options = flow.options.or_else(self._options)
        if self._body.username and self._body.username.lower() != flow.username.lower():
            raise ApiError(401, "AUTHORIZATION_FAILED", "This logon was begun by another user")
        if flow.state == "PASSWORDPENDING":
            return await self._password_came(flow)
        user = self._service.users.find(flow.username)
        code = self._body.verification_code
        if user is None or not code or not self._service.verification.code(user.id, code):
            raise ApiError(401, "VERIFICATIONCODE_FAILURE", "The one-time code is wrong")
        return self._logged_on(user)

    async def _password_came(self, flow: Flow) -> Response:
        user = None
        if self._password is not None:
            user = await self._service.verification.password(flow.username, self._password)
        if user is None:
            raise ApiError(401, "PASSWORD_FAILURE", "Unknown user or wrong password")
        if not self._service.codes.required():
            return self._logged_on(user)
        code = self._body.verification_code or flow.code
        if code:
            if self._service.verification.code(user.id, code):
                return self._logged_on(user)
            raise ApiError(401, "VERIFICATIONCODE_FAILURE", "The one-time code is wrong")
        self._service.codes.mail(user.id)
        return self._pending("VERIFICATIONCODEPENDING", user.id)

    def _by_sign_on(self, token: str) -> Response:
        user_id = self._service.signons.redeem(token)
        user = None if user_id is None else self._service.users.find(user_id)
        if user is None:
            raise ApiError(401, "AUTHORIZATION_FAILED", "The sign-on token is not valid")
        return self._logged_on(user)

    def _check_organization(self) -> None:
        given, organization = self._body.organization_name, self._service.organization
        if given and not belongs(given, organization.name, organization.domain):
            raise ApiError(401, "AUTHORIZATION_FAILED", "This is another organization")

    def _life(self) -> int:
        """Return the shortest of the requested and the allowed lifetimes, in milliseconds.

        Raises ApiError 400 if a requested lifetime is not positive.
        """
        options, lives = self._options, [self._service.organization.session_seconds * 1000]
        if options.timeout is not None:
            lives.append(options.timeout)
        if options.timeout_in_seconds is not None:
            lives.append(options.timeout_in_seconds * 1000)
        if min(lives) <= 0:
            raise bad_argument("A session's life must be longer than nothing")
        return min(lives)

    def _logged_on(self, user: User) -> Response:
        options, life = self._options, self._life()
        self._user = user.id
        if options.scope is not None and options.scope.name == "SCIM" and not user.administrator:
            raise ApiError(403, "NOT_ALLOWED", "The scope SCIM is for administrators")
        session_id = self._service.sessions.begin(user.id, life, options.scope)
        if self._flow_id is not None:
            self._service.flows.succeed(self._flow_id)
        headers = {}
        if options.set_cookie:
            seconds = math.ceil(life / 1000)  # Max-Age=0 would delete the cookie
            headers["Set-Cookie"] = (
                f"{COOKIE}={session_id}; Path=/; HttpOnly; Secure; Max-Age={seconds}"
            )
            if options.same_site_policy is not None:
                headers["Set-Cookie"] += f"; SameSite={SAME_SITE[options.same_site_policy.lower()]}"
        answer = {
            "logonOK": True,
            "sessionId": session_id,
            "expiresInMillis": life,
            "passwordChangeIsRequired": user.change_required,
            "userId": {"name": user.id},
        }
        return json_response(answer, headers=headers)

    def _pending(self, state: State, username: str, code: str | None = None) -> Response:
        """Start or continue the flow; return a 202 response with the new `state`.

        Raises ApiError 400 if the flow's scope is too long.
        """
        if len(msgspec.json.encode(self._options.scope)) > LONGEST_KEPT:
            raise bad_argument(f"The scope of a flow has at most {LONGEST_KEPT} bytes")
        flow_id = self._service.flows.begin(username, state, self._options, code, self._flow_id)
        answer = {"state": state, "sessionId": flow_id, "userId": {"name": username}}
        return json_response(answer, 202)
