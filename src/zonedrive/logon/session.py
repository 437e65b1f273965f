"""The bearer in each request, for both kinds of client, and another one where it is refused.

Must not know how a logon goes: whoever makes a BearerAuth may say how to renew one.

INVARIANT: a request that the service refuses with 401 is repeated once at most, and only with
another bearer than the refused one (renewed just now, or by a person who logged on meanwhile).
INVARIANT: a request with a password in it is never repeated, and a 401 to it says nothing of the
bearer.
INVARIANT: a refused bearer is shown to the service again only after a wait that grows from
AGAIN_SECONDS to LONGEST_SECONDS, for a refusal may be a moment's confusion; until then requests
end here.
"""

import contextlib
import threading
import time
from collections.abc import AsyncGenerator, Callable, Generator
from datetime import UTC, datetime
from typing import Literal, TypeVar

import httpx
import msgspec
import trio

from zonedrive.errors import NotLoggedOn, StoreError
from zonedrive.logon.clock import Clock
from zonedrive.logon.secrets import Secret, SecretStore

NAME = "bearer"
LONGEST = 16_384  # characters of a bearer; few servers take a longer header
AGAIN_SECONDS = 5.0
LONGEST_SECONDS = 900.0
THREADS = 16  # that may wait for another bearer
TURN_SECONDS = 30.0  # longer than a renewal takes
LOOK_SECONDS = 1.0  # between two looks into the store at least, while there is nothing better
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
    return 0 < len(secret) <= LONGEST and all("!" <= char <= "~" for char in secret)


def save_bearer(store: SecretStore, bearer: Bearer) -> None:
    """Keep it as the account's bearer.  Raises StoreError."""
    store.set(NAME, Secret(msgspec.json.encode(bearer).decode()))


Renew = Callable[["Bearer | None"], "Bearer | None"]
"""Gives another bearer in place of the refused one, None where that is not possible here.

Blocks, is called by several threads at once, and raises NotLoggedOn where it was refused.
"""


Command = Callable[[bool], str]
"""What a person types to log on again, for a session alone or a token."""

Found = TypeVar("Found")


class BearerAuth(httpx.Auth):
    """Puts the stored bearer into requests.  For several threads at once.

    Raises NotLoggedOn where there is none that could be accepted, or where the keyring is locked.
    A request with `extensions["replayable"]` false is not repeated: its body is gone.  One with
    `extensions["password"]` carries a password that a 401 is about.
    """

    def __init__(
        self,
        store: SecretStore,
        renew: Renew = lambda refused: None,
        monotonic: Callable[[], float] = time.monotonic,
        *,
        command: Command = lambda session_only: "",
    ) -> None:
        """`monotonic` gives seconds; `command` what to type to log on again, "" for unknown."""
        self._command = command
        self.clock = Clock()
        self._store, self._renew, self._monotonic = store, renew, monotonic
        self._turn = threading.Lock()
        self._threads = trio.CapacityLimiter(THREADS)
        self._why: NotLoggedOn | None = None  # no other could be had, as a person should hear it
        self._shown = False  # whether the refused one is being shown again
        self._known: Bearer | None = None
        self._refused: Bearer | None = None  # the last one, until another is accepted
        self._wait = 0.0  # seconds, of the last refusal
        self._again_at = self._look_at = 0.0  # on the monotonic clock

    def sync_auth_flow(
        self, request: httpx.Request
    ) -> Generator[httpx.Request, httpx.Response, None]:
        """For the client of worker threads."""
        bearer = self.usable() or self.find()
        _authorize(request, bearer)
        response = yield request
        if self._accepts(bearer, request, response):
            return
        fresh = self._instead()
        if fresh is not None and _may_repeat(request):
            _authorize(request, fresh)
            self._accepts(fresh, request, (yield request))

    async def async_auth_flow(
        self, request: httpx.Request
    ) -> AsyncGenerator[httpx.Request, httpx.Response]:
        """For the client on the loop: what blocks is done in a thread."""
        bearer = self.usable()
        if bearer is None:
            bearer = await self._in_thread(self.find)
        _authorize(request, bearer)
        response = yield request
        if self._accepts(bearer, request, response):
            return
        fresh = await self._in_thread(self._instead)
        if fresh is not None and _may_repeat(request):
            _authorize(request, fresh)
            self._accepts(fresh, request, (yield request))

    async def _in_thread(self, blocking: Callable[[], Found]) -> Found:
        return await trio.to_thread.run_sync(
            blocking, abandon_on_cancel=True, limiter=self._threads
        )

    def usable(self) -> Bearer | None:
        """The bearer in use, None where it has to be looked for."""
        known = self._known
        return None if known is None or self._is_refused(known) else known

    @property
    def last(self) -> Bearer | None:
        """The one that was last in use, refused or not."""
        return self._known or self._refused

    def find(self) -> Bearer:
        """A bearer that may be accepted.  Blocks.  Raises NotLoggedOn."""
        if not self._turn.acquire(timeout=TURN_SECONDS):
            raise self._ended()
        try:
            return self._found()
        finally:
            self._turn.release()

    def _found(self) -> Bearer:
        if (known := self.usable()) is not None:
            return known
        now = self._monotonic()
        if self._refused is not None and now < min(self._look_at, self._again_at):
            raise self._nothing()
        self._look_at = now + LOOK_SECONDS
        found = self._stored()
        if self._is_refused(found):
            found = self._another() or found
        if self._is_refused(found):
            if now < self._again_at:
                raise self._nothing()
            self._shown = True
            self._again_at = now + self._wait  # others wait for what comes of this one
            return found
        self._known = found
        return found

    def _another(self) -> Bearer | None:
        self._why = None
        try:
            return self._renew(self._refused)
        except NotLoggedOn as why:
            self._why = why
            raise

    def _nothing(self) -> NotLoggedOn:
        if self._why is None:
            return self._ended()
        return NotLoggedOn(self._why.message, remedy=self._why.remedy)

    def renewed(self, bearer: Bearer) -> None:
        """It is the one to use from now on."""
        self._known = bearer

    def look_again(self) -> None:
        """A person has logged on, perhaps."""
        self._look_at = 0.0
        self._known = self._why = None

    def _accepts(self, bearer: Bearer, request: httpx.Request, response: httpx.Response) -> bool:
        """Whether the service did not refuse the bearer; what it did is remembered."""
        self.clock.heard(response.headers.get("Date"))
        if response.status_code != httpx.codes.UNAUTHORIZED:
            if self._refused is not None and self._known in (None, bearer):
                self._refused, self._wait, self._known = None, 0.0, bearer
            return True
        if request.extensions.get("password"):
            return True  # it was not the bearer, as far as can be known
        now = self._monotonic()
        if not self._is_refused(bearer):
            self._refused, self._wait, self._again_at = bearer, AGAIN_SECONDS, now + AGAIN_SECONDS
        elif self._shown:
            self._shown = False
            self._wait = min(2 * self._wait, LONGEST_SECONDS)
            self._again_at = now + self._wait
        self._look_at = 0.0
        return False

    def _instead(self) -> Bearer | None:
        """Another bearer than the refused one, None where there is none."""
        try:
            found = self.find()
        except NotLoggedOn as none:
            if isinstance(none, _Ended) and not none.says_more:
                return None  # the service's own words say as much
            raise
        return None if self._is_refused(found) else found

    def _is_refused(self, bearer: Bearer) -> bool:
        return self._refused is not None and self._refused.secret == bearer.secret

    def _stored(self) -> Bearer:
        try:
            found = load_bearer(self._store)
        except StoreError as wrong:
            raise NotLoggedOn(wrong.message, remedy=wrong.remedy) from wrong
        found = found or self._renew(None)
        if found is None:
            command = self._command(False) or "zonedrive logon URL"
            raise NotLoggedOn("there is no stored logon", remedy=f"run '{command}'")
        return found

    def _ended(self) -> "_Ended":
        return _Ended(self._command(self.last is not None and self.last.kind == "session"))


class _Ended(NotLoggedOn):
    """There is a bearer, and the service has refused it."""

    def __init__(self, command: str) -> None:
        super().__init__(
            "the service does not accept the logon, or it has ended",
            remedy=f"run '{command or 'zonedrive logon URL'}'",
            status=httpx.codes.UNAUTHORIZED,
        )
        self.says_more = bool(command)  # than the answer of the service


def _authorize(request: httpx.Request, bearer: Bearer) -> None:
    request.headers["Authorization"] = f"Bearer {bearer.secret}"


def _may_repeat(request: httpx.Request) -> bool:
    return request.extensions.get("replayable", True) is True
