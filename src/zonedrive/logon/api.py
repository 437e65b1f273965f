"""The service's endpoints for logon, logoff and tokens, as typed methods.

The methods never prompt the user and store nothing. Each method sends one request. Only a request
that changes nothing is repeated after an error. The methods raise subclasses of RemoteError.

INVARIANT: passwords and one-time codes appear only in the bodies of requests.
"""

from collections.abc import AsyncIterator, Generator, Mapping
from contextlib import asynccontextmanager
from typing import Final

import httpx

from zonedrive.errors import NotFound, Rejected, ReplyLost
from zonedrive.logon import wire
from zonedrive.logon.bearer_auth import Clock
from zonedrive.logon.secrets import Secret
from zonedrive.logon.wire import Offer, Outcome, Requirements
from zonedrive.model import NewToken
from zonedrive.remote.clients import LoopClient
from zonedrive.remote.connectivity import Connectivity
from zonedrive.remote.directory import TOKENS, new_token, token_wanted
from zonedrive.remote.profiles.operations import Operation
from zonedrive.remote.requests import Requests
from zonedrive.remote.transport import tls
from zonedrive.remote.transport.transports import LoopTransport
from zonedrive.remote.urls import REQUIREMENTS, ZONES, Request
from zonedrive.remote.wire.error_mapping import checked_password, not_about_a_zone
from zonedrive.service_address import base_url

LOGON: Final = "/api/access/logon"
LOGOFF: Final = "/api/access/logoff"
NEW_CREDENTIALS: Final = "/api/access/newcredentials"
IDP: Final = "/api/access/idpsignonuri"
PERSONAL_ID: Final = "/api/access/personalid-signonuri"


class _Given(httpx.Auth):
    """Authentication of httpx requests with the bearer token `bearer`, unless `bearer` is None.

    The Date header of each response updates `clock`.
    """

    def __init__(self, clock: Clock) -> None:
        self.bearer: Secret | None = None
        self._clock = clock

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        if self.bearer is not None:
            request.headers["Authorization"] = f"Bearer {self.bearer.reveal()}"
        response = yield request
        self._clock.heard(response.headers.get("Date"))


class LogonApi:
    """Client for the logon endpoints of one deployment."""

    def __init__(self, client: LoopClient) -> None:
        self._calls = Requests(client, Connectivity(), connections=1)
        self.clock = Clock()  # the service's time
        self._given = _Given(self.clock)
        client.auth = self._given

    def carry(self, bearer: Secret | None) -> None:
        """Send `bearer` with each request from now on, or no bearer token if `bearer` is None."""
        self._given.bearer = bearer

    async def requirements(self) -> Requirements:
        """Return the service's requirements for a logon; this is the first request of a logon."""
        answer = await self._calls.read(Request("GET", REQUIREMENTS))
        return wire.requirements(answer, "")

    async def logon(
        self,
        username: str,
        *,
        password: Secret | None = None,
        code: Secret | None = None,
        flow: Secret | None = None,
    ) -> Outcome:
        """Send the given credentials as one step of a logon, and return the result.

        `flow` is the session id of the previous step.
        """
        body: dict[str, object] = {"username": username} if username else {}
        if password is not None:
            body["password"] = list(password.reveal())
        if code is not None:
            body["verificationCode"] = code.reveal()
        if flow is not None:
            body["logonSessionId"] = flow.reveal()
        return await self.logon_by(body)

    async def logon_by(self, fields: Mapping[str, object]) -> Outcome:
        """Send one step of a logon, and return the result.

        `fields` are members of the JSON body, for example those of a browser sign-on.
        """
        doing = "logging on"
        request = Request("POST", LOGON, body={**fields, "acceptSessions": True}, doing=doing)
        try:
            answer = await self._calls.change(request)
        except ReplyLost as lost:
            lost.remedy = "try again later"  # an unused session ends by itself
            raise
        return wire.outcome(answer, doing)

    async def sign_on_uri(
        self, offer: Offer, organization: str, redirect: str, *, fragment: bool
    ) -> str:
        """Return the URL at which the browser begins a sign-on with the method `offer`.

        After the sign-on, the browser is sent to `redirect`. The result arrives in the fragment of
        that URL if `fragment` is True, otherwise in a form post. If `offer` is of the kind
        personal-id, `fragment` has no effect.
        """
        query = {"organization": organization, "redirectURI": redirect}
        doing = f"asking where to sign on with {offer.name}"
        if offer.kind == "idp":
            query |= {"idpName": offer.name, "fragmentResponse": "true" if fragment else "false"}
            path = IDP
        else:
            query["authentication-type"] = offer.name
            path = PERSONAL_ID
        answer = await self._calls.read(Request("GET", path, query, doing=doing))
        return wire.sign_on_uri(answer, doing)

    async def create_token(self, name: str, seconds: int, password: Secret) -> NewToken:
        """Create and return a token, valid for `seconds` seconds, for the user who is logged on.

        `password` is the user's password.
        """
        doing = "asking for a token"
        body = token_wanted(name, seconds, password.reveal(), None)
        answer = await self._calls.change(Request("POST", TOKENS, body=body, doing=doing))
        return new_token(answer, doing, self.clock.now_ns(), seconds)

    async def new_credentials(self, username: str) -> str:
        """Ask the service to send new credentials to a user; return the service's message.

        Return "" if the response has no message.
        """
        doing, body = "asking for new credentials", {"name": username}
        try:
            answer = await self._calls.change(
                Request("POST", NEW_CREDENTIALS, body=body, doing=doing)
            )
        except Rejected as refused:
            refused.remedy = "check the user name"
            raise
        return wire.message(answer)

    async def change_password(
        self, operation: Operation, user: str, old: Secret, new: Secret
    ) -> None:
        """Change the user's password from `old` to `new` with the deployment profile's `operation`.

        Raises CredentialsRefused if `old` is wrong.
        """
        doing = "changing the password"
        values = {"username": user, "password": old.reveal(), "new_password": new.reveal()}
        with checked_password(doing):
            await self._calls.change(operation.request(values, doing, origin=""))

    async def revoke_token(self, operation: Operation, token_id: str) -> None:
        """Revoke the token `token_id` with the deployment profile's `operation`."""
        doing = "revoking the token"
        await self._calls.change(operation.request({"token": token_id}, doing, origin=""))

    async def check(self) -> None:
        """Raise NotLoggedOn if the service rejects the current bearer token."""
        with not_about_a_zone():
            await self._calls.read(Request("GET", ZONES, doing="checking the logon"))

    async def logoff(self) -> None:
        """End the current session; treat a 404 response of the service as success."""
        try:
            request = Request("GET", LOGOFF, doing="logging off", origin="published")
            await self._calls.change(request)
        except NotFound:
            return


@asynccontextmanager
async def open_access(url: str, ca_file: str | None) -> AsyncIterator[LogonApi]:
    """Yield a client of the logon endpoints at `url`.

    The client trusts the CAs in `ca_file`, or the system's CAs if `ca_file` is None. Raises
    ConfigError if `url` or `ca_file` is not usable.
    """
    transport = LoopTransport(tls.trust(ca_file))
    try:
        yield LogonApi(LoopClient(base_url(url), transport, httpx.Auth()))
    finally:
        await transport.aclose()
