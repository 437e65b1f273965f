"""Logon: password and one-time code, at once or in a flow of several requests.

States of a flow: PASSWORDPENDING until a password came, VERIFICATIONCODEPENDING until a code came.
INVARIANT: a failed request of a flow ends that flow for good.
"""

from typing import Literal

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from zonedrive.sandbox import intake, passwords
from zonedrive.sandbox.answers import json_response
from zonedrive.sandbox.deployment import Deployment
from zonedrive.sandbox.errors import ApiError, bad_argument
from zonedrive.sandbox.flows import Flow
from zonedrive.sandbox.identity import COOKIE
from zonedrive.sandbox.routes.access import belongs, deployment, sign_on_address
from zonedrive.sandbox.sessions import Scope
from zonedrive.sandbox.signons import Visit
from zonedrive.sandbox.users import User

SAME_SITE = {"strict": "Strict", "lax": "Lax", "none": "None"}

# Checked where the user is unknown, so that the answer takes as long.
_NOBODY = passwords.digest("")


class LogonRequest(msgspec.Struct, rename="camel"):
    """The body of a logon; fields that change nothing here are only checked for their type."""

    username: str | None = None
    password: list[str] | None = None
    password_as_string: str | None = None
    verification_code: str | None = None
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
    """POST /api/access/logon."""
    body = await intake.json_body(request, LogonRequest, code="INVALID_DATA")
    if not body.token and (provider := _provider(request, body)):
        return provider
    return await Attempt(deployment(request), body).answer()


def _provider(request: Request, body: LogonRequest) -> Response | None:
    """Where somebody has to sign on who does not log on by password."""
    organization = deployment(request).organization
    username = body.username or ""
    if not organization.idp_required and username.lower() not in map(
        str.lower, organization.idp_users
    ):
        return None
    visit = Visit("idp", organization.identity_providers[0].name, "", True, username)
    answer = {"logonOK": False, "idpURI": sign_on_address(request, visit)}
    return json_response(answer | ({"userId": {"name": username}} if username else {}))


class Attempt:
    """One request to log on."""

    def __init__(self, service: Deployment, body: LogonRequest) -> None:
        """Raises ApiError 400 for what cannot be meant, before anything is looked up."""
        self._service = service
        self._body = body
        self._life_ms = self._life()
        intake.known_permissions(body.scope)
        self._password = intake.characters(body.password, code="INVALID_DATA")
        if body.password_as_string is not None:
            if self._password not in (None, body.password_as_string):
                raise bad_argument("password and passwordAsString differ")
            self._password = body.password_as_string
        policy = body.same_site_policy
        if policy is not None and policy.lower() not in SAME_SITE:
            raise bad_argument("sameSitePolicy must be Strict, Lax or None")

    async def answer(self) -> Response:
        """200 with a session, 202 with a pending state; raises ApiError 400, 401 or 403."""
        self._check_organization()
        if self._body.logon_session_id:
            return await self._go_on(self._body.logon_session_id)
        if self._body.token:
            return self._by_sign_on(self._body.token)
        if not self._body.username:
            raise bad_argument("username is missing")
        return await self._first(self._body.username)

    async def _first(self, username: str) -> Response:
        in_steps = bool(self._body.accept_sessions)
        if self._password is None:
            if in_steps:
                flow_id = self._service.flows.begin(
                    username, "PASSWORDPENDING", self._body.verification_code
                )
                return _pending("PASSWORDPENDING", flow_id, username)
            raise ApiError(401, "AUTHORIZATION_FAILED", "Unknown user or wrong password")
        user = await self._check_password(username, self._password)
        if user is None:
            raise ApiError(401, "AUTHORIZATION_FAILED", "Unknown user or wrong password")
        if not self._service.codes.required():
            return self._logged_on(user)
        if self._body.verification_code:
            if self._service.codes.accept(user.id, self._body.verification_code):
                return self._logged_on(user)
            raise ApiError(401, "AUTHORIZATION_FAILED", "The one-time code is wrong")
        self._service.codes.mail(user.id)
        if in_steps:
            flow_id = self._service.flows.begin(user.id, "VERIFICATIONCODEPENDING")
            return _pending("VERIFICATIONCODEPENDING", flow_id, user.id)
        raise ApiError(401, "AUTHORIZATION_FAILED", "A one-time code is required")

    async def _go_on(self, flow_id: str) -> Response:
        flow = self._service.flows.find(flow_id)
        if flow is None:
            raise ApiError(400, "INVALID_SESSIONID", "There is no such logon under way")
        # Whatever fails from here on, the flow is over; only `begin` takes it up again.
        self._service.flows.end(flow_id)
        if self._body.username and self._body.username.lower() != flow.username.lower():
            raise ApiError(401, "AUTHORIZATION_FAILED", "This logon was begun by another user")
        if flow.state == "PASSWORDPENDING":
            return await self._password_came(flow_id, flow)
        user = self._service.users.find(flow.username)
        code = self._body.verification_code
        if user is None or not code or not self._service.codes.accept(user.id, code):
            raise ApiError(401, "VERIFICATIONCODE_FAILURE", "The one-time code is wrong")
        return self._logged_on(user)

    async def _password_came(self, flow_id: str, flow: Flow) -> Response:
        user = None
        if self._password is not None:
            user = await self._check_password(flow.username, self._password)
        if user is None:
            raise ApiError(401, "PASSWORD_FAILURE", "Unknown user or wrong password")
        if not self._service.codes.required():
            return self._logged_on(user)
        code = self._body.verification_code or flow.code
        if code:
            if self._service.codes.accept(user.id, code):
                return self._logged_on(user)
            raise ApiError(401, "VERIFICATIONCODE_FAILURE", "The one-time code is wrong")
        self._service.codes.mail(user.id)
        self._service.flows.begin(user.id, "VERIFICATIONCODEPENDING", flow_id=flow_id)
        return _pending("VERIFICATIONCODEPENDING", flow_id, user.id)

    def _by_sign_on(self, token: str) -> Response:
        user_id = self._service.signons.redeem(token)
        user = None if user_id is None else self._service.users.find(user_id)
        if user is None:
            raise ApiError(401, "AUTHORIZATION_FAILED", "The sign-on token is not valid")
        return self._logged_on(user)

    async def _check_password(self, username: str, password: str) -> User | None:
        user = self._service.users.find(username)
        stored = _NOBODY if user is None else user.password
        fits = await run_in_threadpool(passwords.matches, password, stored)
        return user if fits else None

    def _check_organization(self) -> None:
        given, organization = self._body.organization_name, self._service.organization
        if given and not belongs(given, organization.name, organization.domain):
            raise ApiError(401, "AUTHORIZATION_FAILED", "This is another organization")

    def _life(self) -> int:
        """Milliseconds: the shortest of what is asked for and what the organization allows."""
        body, lives = self._body, [self._service.organization.session_seconds * 1000]
        if body.timeout is not None:
            lives.append(body.timeout)
        if body.timeout_in_seconds is not None:
            lives.append(body.timeout_in_seconds * 1000)
        if min(lives) <= 0:
            raise bad_argument("A session's life must be longer than nothing")
        return min(lives)

    def _logged_on(self, user: User) -> Response:
        body, life = self._body, self._life_ms
        if body.scope is not None and body.scope.name == "SCIM" and not user.administrator:
            raise ApiError(403, "NOT_ALLOWED", "The scope SCIM is for administrators")
        session_id = self._service.sessions.begin(user.id, life, body.scope)
        headers = {}
        if body.set_cookie:
            headers["Set-Cookie"] = (
                f"{COOKIE}={session_id}; Path=/; HttpOnly; Secure; Max-Age=" + str(life // 1000)
            )
            if body.same_site_policy is not None:
                headers["Set-Cookie"] += f"; SameSite={SAME_SITE[body.same_site_policy.lower()]}"
        answer = {
            "logonOK": True,
            "sessionId": session_id,
            "expiresInMillis": life,
            "passwordChangeIsRequired": user.change_required,
            "userId": {"name": user.id},
        }
        return json_response(answer, headers=headers)


def _pending(
    state: Literal["PASSWORDPENDING", "VERIFICATIONCODEPENDING"], flow_id: str, username: str
) -> Response:
    answer = {"state": state, "sessionId": flow_id, "userId": {"name": username}}
    return json_response(answer, 202)
