"""Authentication of httpx clients with a bearer token that is replaced after a rejection.

A bearer token is the token or session id in the Authorization header. This module contains no
logon. The creator of a BearerAuth provides a function that renews the bearer token.

INVARIANT: a request that the service rejects with 401 is repeated at most once, and only with a
bearer token other than the rejected one (a renewed bearer token, or the bearer token of a later
logon).
INVARIANT: a request that contains a password is never repeated, and a 401 response to such a
request does not count as a rejection of the bearer token. The same holds for a request to an
endpoint that only the deployment profile defines, because such an endpoint may reject a valid
bearer token.
INVARIANT: a rejected bearer token is sent to the service again only after a wait that grows from
AGAIN_SECONDS to LONGEST_SECONDS, because a rejection may be temporary. During the wait, requests
fail without being sent.
"""

import contextlib
import os
import pwd
import socket
import threading
import time
from collections.abc import AsyncGenerator, Callable, Generator
from datetime import UTC, datetime
from typing import Literal, TypeVar

import httpx
import msgspec
import trio

from zonedrive.errors import NotLoggedOn, StoreError
from zonedrive.formatting import plain
from zonedrive.logon.secrets import Secret, SecretStore
from zonedrive.remote.transport.exchange import SENT
from zonedrive.remote.wire.fields import fits_header, header_seconds

NAME = "bearer"
AGAIN_SECONDS = 5.0  # wait before a rejected bearer token is sent again; the wait doubles
LONGEST_SECONDS = 900.0  # maximum of this wait
THREADS = 16  # maximum number of threads that load or renew a bearer token
TURN_SECONDS = 50.0  # longer than a renewal takes, see `renewal.PROCESS_SECONDS`
LOOK_SECONDS = 1.0  # minimum interval between reads of the store after a rejection
AGREED_NS = 5 * 10**9  # a smaller difference is ignored: a Date has whole seconds, and arrives late
_YEAR_9999 = 253_370_764_800 * 10**9

REJECTED = "the service does not accept the logon, or it has ended"


class Clock:
    """Clock of the service: the local clock, corrected by the last Date header. Thread-safe.

    INVARIANT: stored times of a logon are times of the service's clock, so that an expiry does not
    depend on the local clock.
    """

    def __init__(self, here: Callable[[], int] = time.time_ns) -> None:
        """Create the clock; `here` reads the local clock, in nanoseconds since the epoch."""
        self._here = here
        self._ahead_ns = 0  # offset of the local clock

    def heard(self, date: str | None) -> None:
        """Update the offset of the local clock with the value of a Date header.

        A missing or malformed header is ignored.
        """
        there = header_seconds(date)
        if there is None:
            return
        ahead = self._here() - int(there) * 10**9
        self._ahead_ns = 0 if abs(ahead) <= AGREED_NS else ahead

    def now_ns(self) -> int:
        """Return the service's time in nanoseconds since the epoch."""
        return self._here() - self._ahead_ns


class Bearer(msgspec.Struct, frozen=True):
    """Credential that authenticates requests: a token or a session id."""

    secret: str
    kind: Literal["token", "session"]
    expires_ns: int = 0  # the service's time; 0: not known
    id: str = ""  # the token's id, which is not a secret
    began_ns: int = 0  # time of issue, the service's time; 0: not known

    @property
    def until(self) -> str:
        """Expiry time for display; "" if it is unknown or after the year 9999."""
        if not 0 < self.expires_ns < _YEAR_9999:
            return ""
        return f"{datetime.fromtimestamp(self.expires_ns / 1e9, UTC):%Y-%m-%d %H:%M} UTC"

    def __repr__(self) -> str:
        return f"Bearer(kind={self.kind!r}, expires_ns={self.expires_ns})"


def load_bearer(store: SecretStore) -> Bearer | None:
    """Return the account's bearer token, or None if none is stored.

    Stored text that does not begin with "{" is the token itself (a credential set up by hand).
    Raises StoreError if the store fails or the stored bearer token is damaged.
    """
    kept = store.get(NAME)
    text = "" if kept is None else kept.reveal().strip()
    if not text:
        return None
    bearer = None
    if text.startswith("{"):
        # The parser's message is left out because it could quote the secret.
        with contextlib.suppress(msgspec.MsgspecError):
            bearer = msgspec.json.decode(text, type=Bearer)
    else:
        bearer = Bearer(text, "token")
    if bearer is None or not fits_header(bearer.secret):
        raise StoreError("the stored logon is damaged", remedy="log on again")
    return bearer


def token_name(account: str) -> str:
    """Return the name for a new token: machine, user, account and time.

    The name distinguishes the tokens in the service's list.
    """
    try:
        user = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a container may have no entry for its user
        user = str(os.getuid())
    day = time.strftime("%Y-%m-%d %H:%M")
    return f"zonedrive on {plain(socket.gethostname())} ({user}, account {account}, {day})"


def save_bearer(store: SecretStore, bearer: Bearer) -> None:
    """Store the account's bearer token. Raises StoreError."""
    store.set(NAME, Secret(msgspec.json.encode(bearer).decode()))


Renew = Callable[["Bearer | None"], "Bearer | None"]
"""Function that returns a new bearer token for a rejected one, or None if renewal is not possible.

The argument is None if no bearer token is stored. The function blocks, is called by several threads
at once, and raises NotLoggedOn if the service rejected the renewal.
"""


Command = Callable[[bool], str]
"""Function that returns the shell command to log on again, or "" if the command is unknown.

The argument is True for a logon with a session only, False for a logon with a token.
"""

Found = TypeVar("Found")


class _Refusal(msgspec.Struct, frozen=True):
    """Most recently rejected bearer token, and the time of the next attempt with this token.

    The record is deleted when the service accepts a bearer token.
    """

    bearer: Bearer
    again_at: float  # time of the next attempt with the bearer token, on the monotonic clock
    wait: float = AGAIN_SECONDS  # seconds between the last refusal and this attempt
    is_tried: bool = False  # the attempt was made, and its response has not come


class BearerAuth(httpx.Auth):
    """Authentication of httpx requests with the account's stored bearer token. Thread-safe.

    A request raises NotLoggedOn if no acceptable bearer token exists or the store fails. A request
    with a false `extensions["replayable"]` is not repeated, because its body can be read only once.
    A 401 response does not count as a rejection of the bearer token if the request has
    `extensions["password"]`, because the response may concern the password in the request. The same
    holds for a request with `extensions["of_profile"]`, because the response may concern only the
    endpoint.
    """

    def __init__(
        self,
        store: SecretStore,
        renew: Renew = lambda refused: None,
        monotonic: Callable[[], float] = time.monotonic,
        *,
        command: Command = lambda session_only: "",
        reopen: Callable[[], SecretStore] | None = None,
    ) -> None:
        """Set the store and the callbacks.

        `reopen` returns the account's current store, because a later logon may use another store.
        `monotonic` returns seconds. See `Renew` and `Command` for the other callbacks.
        """
        self._command, self._reopen = command, reopen
        self.clock = Clock()
        self._store, self._renew, self._monotonic = store, renew, monotonic
        self._turn = threading.Lock()
        self._threads = trio.CapacityLimiter(THREADS)
        self._why: NotLoggedOn | None = None  # the error of the store or of the last renewal
        self._known: Bearer | None = None
        self._refusal: _Refusal | None = None
        self._changing = threading.Lock()  # held, without waiting, for each change of `_refusal`
        self._look_at = 0.0  # time of the next look into the store, on the monotonic clock

    def sync_auth_flow(
        self, request: httpx.Request
    ) -> Generator[httpx.Request, httpx.Response, None]:
        """Authenticate a request of a worker thread.

        After a 401 response, repeat the request once if another bearer token is available.
        """
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
        """Authenticate a request on the trio loop, as `sync_auth_flow` does in a worker thread.

        Blocking work runs in a separate thread.
        """
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
        """Return the bearer token in use; None if none is loaded or the service rejected it."""
        known = self._known
        return None if known is None or self._refusal_of(known) else known

    @property
    def last(self) -> Bearer | None:
        """Most recently used bearer token, even if it was rejected; None if none was used."""
        refusal = self._refusal
        return self._known or (None if refusal is None else refusal.bearer)

    def find(self) -> Bearer:
        """Return the bearer token in use, or else the stored bearer token or a renewed one.

        The bearer token is renewed if the stored one was rejected or is missing. A rejected bearer
        token is returned again when its next attempt is due. Blocks while the bearer token is
        loaded or renewed. Raises NotLoggedOn if there is no bearer token to return, or if another
        thread takes more than TURN_SECONDS to load or renew one.
        """
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
        if (refusal := self._refusal) and now < min(self._look_at, refusal.again_at):
            raise self._nothing()
        self._look_at = now + LOOK_SECONDS
        try:
            found = self._stored()
            if self._refusal_of(found):
                found = self._another(found) or found
        except NotLoggedOn:
            if (refusal := self._refusal) is None or now < refusal.again_at:
                raise
            found = refusal.bearer  # the rejection may have been temporary
        with self._changing:
            if (refusal := self._refusal_of(found)) is None:
                self._known = found
                return found
            if now >= refusal.again_at:
                # Other requests wait for the result of this one.
                self._refusal = _Refusal(found, now + refusal.wait, refusal.wait, is_tried=True)
                return found
        raise self._nothing()

    def _another(self, refused: Bearer) -> Bearer | None:
        self._why = None
        try:
            return self._renew(refused)
        except NotLoggedOn as why:
            self._why = why
            raise

    def _nothing(self) -> NotLoggedOn:
        if self._why is None:
            return self._ended()
        return NotLoggedOn(self._why.message, remedy=self._why.remedy)

    def renewed(self, bearer: Bearer) -> None:
        """Use the renewed `bearer` for requests from now on."""
        self._known = bearer

    def look_again(self) -> None:
        """Load the stored bearer token at the next request, because the user may have logged on."""
        self._look_at = 0.0
        self._known = self._why = None

    def _accepts(self, bearer: Bearer, request: httpx.Request, response: httpx.Response) -> bool:
        """Return False if `response` shows that the service rejected `bearer`, else True.

        Also record the result, and update the clock.
        """
        self.clock.heard(response.headers.get("Date"))
        is_accepted = response.status_code != httpx.codes.UNAUTHORIZED
        if not is_accepted and request.extensions.get("password"):
            return True  # the response may concern the password
        with self._changing:
            now, refusal = self._monotonic(), self._refusal_of(bearer)
            if is_accepted:
                if self._refusal is not None and self._known in (None, bearer):
                    self._refusal, self._known = None, bearer
                return True
            if request.extensions.get("of_profile"):  # the response may concern the endpoint
                if refusal is not None and refusal.is_tried:
                    # The check of the logon, which follows, may send the bearer token at once.
                    self._refusal = _Refusal(bearer, now, refusal.wait)
                return True
            request.extensions.pop(SENT, None)  # a rejected request had no effect
            if refusal is None:
                self._refusal = _Refusal(bearer, now + AGAIN_SECONDS)
            elif refusal.is_tried:
                wait = min(2 * refusal.wait, LONGEST_SECONDS)
                self._refusal = _Refusal(bearer, now + wait, wait)
            self._look_at = 0.0
        return False

    def _instead(self) -> Bearer | None:
        try:
            found = self.find()
        except NotLoggedOn as none:
            if isinstance(none, _Ended) and not none.says_more:
                return None  # the service's own message is sufficient
            raise
        return None if self._refusal_of(found) else found

    def _refusal_of(self, bearer: Bearer) -> _Refusal | None:
        refusal = self._refusal
        return refusal if refusal and refusal.bearer.secret == bearer.secret else None

    def _stored(self) -> Bearer:
        try:
            try:
                found = load_bearer(self._store)
            except StoreError:
                if self._reopen is None:
                    raise
                found = None
            if found is None and self._reopen is not None:
                self._store = self._reopen()
                found = load_bearer(self._store)
        except StoreError as wrong:
            self._why = NotLoggedOn(wrong.message, remedy=wrong.remedy)
            raise self._why from wrong
        found = found or self._renew(None)
        if found is None:
            command = self._command(False) or "zonedrive logon URL"
            raise NotLoggedOn("there is no stored logon", remedy=f"run '{command}'")
        return found

    def _ended(self) -> "_Ended":
        return _Ended(self._command(self.last is not None and self.last.kind == "session"))


class _Ended(NotLoggedOn):
    """Error for a stored bearer token that the service rejected."""

    def __init__(self, command: str) -> None:
        super().__init__(
            REJECTED,
            remedy=f"run '{command or 'zonedrive logon URL'}'",
            status=httpx.codes.UNAUTHORIZED,
        )
        self.says_more = bool(command)  # True if the remedy says more than the service's response


def _authorize(request: httpx.Request, bearer: Bearer) -> None:
    request.headers["Authorization"] = f"Bearer {bearer.secret}"


def _may_repeat(request: httpx.Request) -> bool:
    return request.extensions.get("replayable", True) is True
