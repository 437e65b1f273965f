"""Authentication of a request by its Authorization header or its session cookie.

This module does not depend on the purpose of the request. The cookie is used only if the request
has no Authorization header.
"""

import base64
import binascii
import hashlib
from dataclasses import dataclass

from starlette.requests import Request

from zonedrive.sandbox import intake
from zonedrive.sandbox.deployment import Deployment
from zonedrive.sandbox.errors import ApiError
from zonedrive.sandbox.sessions import Scope
from zonedrive.sandbox.users import User
from zonedrive.sandbox.verification import Blocked

COOKIE = "auth_token"
MOST_REMEMBERED = 1000


@dataclass(frozen=True, slots=True)
class Caller:
    """Authenticated user, and the scope that limits the request (None: unlimited)."""

    user: User
    scope: Scope | None

    @property
    def id(self) -> str:
        """Id of the user."""
        return self.user.id


def presented_secret(request: Request) -> str | None:
    """Return the session id or token of a request, or None.

    The secret is in the Authorization header, after `Bearer` or alone. The cookie is used only if
    the header is missing. Return None for HTTP Basic, whose header contains a password instead.
    """
    header = request.headers.get("authorization")
    if header is None:
        return request.cookies.get(COOKIE)
    word, _, rest = header.strip().partition(" ")
    if word.lower() == "bearer":
        return rest.strip() or None
    if word.lower() == "basic":
        return None
    # Some callers send the bare session id.
    return header.strip() if not rest else None


class Authenticator:
    """Authenticator that identifies callers, with a cache of verified Basic credentials."""

    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment
        # SHA-256 of Basic credentials -> (user id, password version) for which they were verified.
        self._basic: dict[bytes, tuple[str, int]] = {}

    async def identify(self, request: Request) -> Caller:
        """Return the caller; raise ApiError 401 if the credentials are missing or invalid."""
        header = request.headers.get("authorization", "").strip()
        if header[:6].lower() == "basic ":
            return Caller(await self._by_password(header[6:].strip(), intake.peer(request)), None)
        secret = presented_secret(request)
        if secret is None:
            raise ApiError(401, "AUTHORIZATION_FAILED", "No credentials were provided")
        grant = self._deployment.sessions.resolve(secret)
        user = None if grant is None else self._deployment.users.find(grant.user_id)
        if grant is None or user is None:
            raise ApiError(401, "AUTHORIZATION_FAILED", "The session or token is not valid")
        return Caller(user, grant.scope)

    async def _by_password(self, encoded: str, peer: str) -> User:
        """Return the user of HTTP Basic credentials; raise ApiError 401 if they are rejected.

        If the user name is known, the password must be the password of this user. If the user name
        is unknown, the password alone identifies the user.
        """
        refusal = ApiError(401, "AUTHORIZATION_FAILED", "Unknown user or wrong password")
        if self._deployment.codes.required():
            raise ApiError(401, "AUTHORIZATION_FAILED", "A password alone does not log on here")
        key = hashlib.sha256(encoded.encode("utf-8", "surrogateescape")).digest()
        user_id, version = self._basic.get(key, ("", 0))
        known = self._deployment.users.find(user_id)
        if known is not None and known.password_version == version:
            return self._unless_blocked(known)
        try:
            text = base64.b64decode(encoded, validate=True).decode()
        except (binascii.Error, UnicodeDecodeError, ValueError):
            raise refusal from None
        user_part, colon, password = text.partition(":")
        if not colon:
            raise refusal
        user = await self._checked(user_part, password, peer)
        if user is None or self._deployment.organization.signs_on_elsewhere(user.id):
            raise refusal
        if len(self._basic) >= MOST_REMEMBERED:
            self._basic.clear()
        self._basic[key] = (user.id, user.password_version)
        return user

    async def _checked(self, user_part: str, password: str, peer: str) -> User | None:
        verification = self._deployment.verification
        try:
            if self._deployment.users.find(user_part) is not None:
                return await verification.password(user_part, password)
            return await verification.anybodys_password(password, f"from {peer}")
        except Blocked:
            raise _blocked() from None

    def _unless_blocked(self, user: User) -> User:
        if self._deployment.attempts.blocked(user.id):
            raise _blocked()
        return user


def _blocked() -> ApiError:
    return ApiError(401, "TEMPORARILY_BLOCKED", "Too many failures: blocked for a while")
