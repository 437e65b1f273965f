"""The bearer in each request, for both kinds of client; renewed from the store, never by password.

Must not know how a logon goes.

INVARIANT: a request that the service refuses with 401 is repeated once at most, and only with
another bearer than the refused one (a person has logged on again meanwhile).
"""

import contextlib
from collections.abc import AsyncGenerator, Generator
from datetime import UTC, datetime
from typing import Literal

import httpx
import msgspec
import trio

from zonedrive.errors import NotLoggedOn, StoreError
from zonedrive.logon.secrets import Secret, SecretStore

NAME = "bearer"
_YEAR_9999 = 253_370_764_800 * 10**9


class Bearer(msgspec.Struct, frozen=True):
    """What proves who we are: a token or a session id."""

    secret: str
    kind: Literal["token", "session"]
    expires_ns: int = 0  # the service's time; 0: not known
    id: str = ""  # the token's id, which is no secret
    began_ns: int = 0  # when it was given, the service's time; 0: not known

    @property
    def until(self) -> str:
        """The expiry for a person, "" where it is not known."""
        if not 0 < self.expires_ns < _YEAR_9999:
            return ""
        return f"{datetime.fromtimestamp(self.expires_ns / 1e9, UTC):%Y-%m-%d %H:%M} UTC"

    def __repr__(self) -> str:
        """Kind and expiry alone."""
        return f"Bearer(kind={self.kind!r}, expires_ns={self.expires_ns})"


def load_bearer(store: SecretStore) -> Bearer | None:
    """The account's bearer, None where there is none.

    A text that is not our JSON is a token as such (a credential set up by hand).  Raises
    StoreError.
    """
    kept = store.get(NAME)
    if kept is None or not kept.reveal().strip():
        return None
    text = kept.reveal().strip()
    bearer = None
    if text.startswith("{"):
        # Without the parser's words, which could quote the secret.
        with contextlib.suppress(msgspec.MsgspecError):
            bearer = msgspec.json.decode(text, type=Bearer)
    else:
        bearer = Bearer(text, "token")
    if bearer is None or not fits_header(bearer.secret):
        raise StoreError("the stored logon is damaged", remedy="log on again")
    return bearer


def fits_header(secret: str) -> bool:
    """Whether a text can stand in an Authorization header: visible ASCII, no spaces."""
    return bool(secret) and all("!" <= char <= "~" for char in secret)


def save_bearer(store: SecretStore, bearer: Bearer) -> None:
    """Keep it as the account's bearer.  Raises StoreError."""
    store.set(NAME, Secret(msgspec.json.encode(bearer).decode()))


class BearerAuth(httpx.Auth):
    """Puts the stored bearer into requests.

    Raises NotLoggedOn where there is none, or where the keyring is locked.  A request with
    `extensions["replayable"]` false is not repeated: its body is gone.
    """

    def __init__(self, store: SecretStore) -> None:
        self._store = store
        self._known: Bearer | None = None

    def sync_auth_flow(
        self, request: httpx.Request
    ) -> Generator[httpx.Request, httpx.Response, None]:
        """For the client of worker threads."""
        bearer = self._known or self._load()
        _authorize(request, bearer)
        response = yield request
        if response.status_code == 401:
            fresh = self._load()
            if _helps(request, bearer, fresh):
                _authorize(request, fresh)
                yield request

    async def async_auth_flow(
        self, request: httpx.Request
    ) -> AsyncGenerator[httpx.Request, httpx.Response]:
        """For the client on the loop: the store is asked in a thread."""
        bearer = self._known
        if bearer is None:
            bearer = await trio.to_thread.run_sync(self._load, abandon_on_cancel=True)
        _authorize(request, bearer)
        response = yield request
        if response.status_code == 401:
            fresh = await trio.to_thread.run_sync(self._load, abandon_on_cancel=True)
            if _helps(request, bearer, fresh):
                _authorize(request, fresh)
                yield request

    def _load(self) -> Bearer:
        try:
            found = load_bearer(self._store)
        except StoreError as wrong:
            raise NotLoggedOn(wrong.message, remedy=wrong.remedy) from wrong
        if found is None:
            raise NotLoggedOn("there is no stored logon", remedy="run zonedrive logon URL")
        self._known = found
        return found


def _authorize(request: httpx.Request, bearer: Bearer) -> None:
    request.headers["Authorization"] = f"Bearer {bearer.secret}"


def _helps(request: httpx.Request, refused: Bearer, fresh: Bearer) -> bool:
    return fresh.secret != refused.secret and request.extensions.get("replayable", True) is True
