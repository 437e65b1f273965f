"""Metadata requests: deadline, retries, typed errors, and reports to the link.

Knows nothing about endpoints or JSON members. Runs on the trio loop; content is transferred by
`transfer`.

INVARIANT: every call ends: the first byte of an answer arrives within its deadline, and the last
one within `BODY_SECONDS` more. A request with an effect is sent once.
"""

import contextlib
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import httpx
import msgspec
import trio

from zonedrive.errors import (
    OVERLOADED,
    BadAnswer,
    NotLoggedOn,
    Rejected,
    RemoteError,
    ReplyLost,
    TimedOut,
    Unavailable,
    Unreachable,
    ZonedriveError,
)
from zonedrive.remote.clients import LoopClient
from zonedrive.remote.concurrency_limit import ConcurrencyLimit
from zonedrive.remote.connectivity import Connectivity
from zonedrive.remote.response_limits import CHANGED, LISTING, SMALL, TooLong, read_body
from zonedrive.remote.retry import Backoff
from zonedrive.remote.transport.exchange import EARLY, EFFECT, SENT
from zonedrive.remote.wire import error_mapping
from zonedrive.remote.wire.pagination import Budget

READ_SECONDS = 15.0  # for a harmless request with all its repetitions
CHANGE_SECONDS = 30.0  # for a request with an effect: a service may have much to move
BODY_SECONDS = 60.0  # for the body of an answer
TIMEOUT = httpx.Timeout(connect=10.0, read=READ_SECONDS, write=15.0, pool=None)
# An idle connection may be dead undetected.  So the first attempt at a harmless request
# has a shorter timeout, and leaves time for another attempt on a new connection.
FIRST_TIMEOUT = httpx.Timeout(
    connect=10.0, read=READ_SECONDS / 3, write=READ_SECONDS / 3, pool=None
)
CHANGE_TIMEOUT = httpx.Timeout(connect=10.0, read=CHANGE_SECONDS, write=15.0, pool=None)
JSON = "application/json"
_NOT_JSON = (ValueError, TypeError, OverflowError, RecursionError, msgspec.MsgspecError)


@dataclass(eq=False)
class _Attempt:
    """One request, and facts that become known during it."""

    method: str
    path: str
    query: Mapping[str, str] | None
    doing: str
    timeout: httpx.Timeout
    content: bytes = field(default=b"", repr=False)  # may hold a password
    headers: Mapping[str, str] = field(default_factory=dict)
    most: int = SMALL  # bytes of a success
    has_effect: bool = False
    has_password: bool = False
    is_bare: bool = False  # without a bearer
    is_upload: bool = False  # not one of `places`
    is_sent: bool = False  # a part of it was sent

    def request(self, client: LoopClient) -> httpx.Request:
        """Return the request for transport and authentication."""
        extensions: dict[str, object] = {}
        if self.has_effect:
            extensions = {EFFECT: True, SENT: self._note_sent, "password": self.has_password}
        return client.request(
            self.method,
            self.path,
            self.query,
            headers=self.headers,
            stream=httpx.ByteStream(self.content),
            length=len(self.content),
            timeout=self.timeout,
            extensions=extensions,
        )

    def _note_sent(self) -> None:
        self.is_sent = True


class Requests:
    """Metadata requests to one service.

    At most `places` run at once; the others wait for their turn within their deadline.
    """

    def __init__(
        self,
        client: LoopClient,
        link: Connectivity,
        *,
        connections: int = 8,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._client = client
        self._link = link
        self._limit = ConcurrencyLimit(connections)
        self._turns = trio.CapacityLimiter(self._limit.allowed)
        self._backoff = Backoff()
        self._chance = chance

    @property
    def places(self) -> int:
        """Maximum number of concurrent requests."""
        return self._limit.allowed

    @property
    def underway(self) -> int:
        """Number of requests in progress."""
        return self._turns.borrowed_tokens

    async def read(
        self,
        path: str,
        query: Mapping[str, str] | None = None,
        *,
        doing: str,
        method: str = "GET",
        body: object = None,
        headers: Mapping[str, str] | None = None,
        most: int = SMALL,
    ) -> bytes:
        """Send a repeatable request; return the body of a successful answer.

        `headers` are added to the default ones. `doing` begins the message of every error. Raises
        RemoteError's subclasses, BadAnswer for more than `most` bytes.
        """
        end = trio.current_time() + READ_SECONDS
        failures = 0
        while True:
            self._link.check()
            timeout = TIMEOUT if failures else FIRST_TIMEOUT
            attempt = _attempt(method, path, query, body, doing, timeout)
            attempt.headers = {**attempt.headers, **(headers or {})}
            attempt.most = most
            try:
                return await self._in_turn(attempt, end)
            except RemoteError as error:
                failures += 1
                remaining = end - trio.current_time()
                wait = self._backoff.delay(error, failures, self._chance(), remaining)
                if wait is None:
                    raise
            # If the link goes offline meanwhile, the check above raises.
            await trio.sleep(wait)

    async def page(
        self,
        budget: Budget,
        path: str,
        query: Mapping[str, str],
        *,
        doing: str,
        method: str = "GET",
        body: object = None,
    ) -> bytes:
        """Send a `read` for one page of a listing, limited to the rest of `budget`."""
        try:
            page = await self.read(
                path, query, doing=doing, method=method, body=body, most=budget.size
            )
        except BadAnswer as wrong:
            if isinstance(wrong.__cause__, TooLong):
                budget.spend(budget.size)
            raise
        budget.spend(len(page))
        return page

    async def change(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: object = None,
        *,
        doing: str,
        password: bool = False,
    ) -> bytes:
        """Send a request with an effect once; return the body of a successful answer.

        `password`: the body contains a password, and a 401 concerns it, not the logon. Raises
        ReplyLost if the request may have had its effect, and RemoteError's other subclasses.
        """
        self._link.check()
        attempt = _attempt(method, path, query, body, doing, CHANGE_TIMEOUT)
        attempt.most, attempt.has_effect, attempt.has_password = CHANGED, True, password
        return await self._in_turn(attempt, trio.current_time() + CHANGE_SECONDS)

    async def upload(
        self, path: str, content: bytes, content_type: str, *, doing: str, seconds: float
    ) -> bytes:
        """Send `content` like `change`, as one body in memory, within `seconds`.

        Does not count as one of `places`: the caller limits the number of such requests. A
        rejection because of overload says nothing about the link.
        """
        self._link.check()
        timeout = httpx.Timeout(connect=10.0, read=seconds, write=15.0, pool=None)
        headers = {"Content-Type": content_type}
        attempt = _Attempt("POST", path, None, doing, timeout, content, headers)
        attempt.has_effect = attempt.is_upload = True
        return await self._reported(attempt, trio.current_time() + seconds)

    def drop_idle(self) -> None:
        """Close idle connections."""
        self._client.transport.drop_idle()

    async def try_once(self, path: str, *, doing: str, bare: bool) -> None:
        """Send a request once, even while offline; only the link learns the result.

        `bare`: without a bearer, for an endpoint that needs no logon.
        """
        attempt = _Attempt("GET", path, None, doing, TIMEOUT, most=LISTING, is_bare=bare)
        try:
            await self._in_turn(attempt, trio.current_time() + READ_SECONDS)
        except RemoteError:
            return

    async def _in_turn(self, attempt: _Attempt, end: float) -> bytes:
        """Send one request in its turn, and report its result to the link.

        A request that gets no turn in time is not reported.
        """
        try:
            self._turns.acquire_nowait()
        except trio.WouldBlock:
            with trio.CancelScope(deadline=end) as waiting:
                await self._turns.acquire()
            if waiting.cancelled_caught:
                raise TimedOut(f"{attempt.doing}: too many requests are underway") from None
        try:
            return await self._reported(attempt, end)
        finally:
            if self._turns.total_tokens != self._limit.allowed:
                self._turns.total_tokens = self._limit.allowed
            self._turns.release()

    async def _reported(self, attempt: _Attempt, end: float) -> bytes:
        """Send one request and report its result to the link."""
        request = attempt.request(self._client)
        began = self._link.now()
        try:
            data = await self._answer(attempt, request, end)
        except ZonedriveError as error:
            other_logon = isinstance(error, NotLoggedOn) and (
                attempt.is_bare or attempt.has_password
            )
            turned_away = attempt.is_upload and isinstance(error, Unavailable) and error.is_overload
            if not (other_logon or turned_away):
                self._link.note_failure(error, began)
            if isinstance(error, Unreachable):
                self.drop_idle()
            raise
        self._link.note_answer()
        return data

    async def _answer(self, attempt: _Attempt, request: httpx.Request, end: float) -> bytes:
        """Return the body of a success, or raise the error for the answer or its absence."""
        client, doing = self._client, attempt.doing
        status, headers, body = 0, httpx.Headers(), b""
        began = head_at = trio.current_time()
        with trio.CancelScope(deadline=end) as scope:
            try:
                await trio.lowlevel.checkpoint_if_cancelled()
                response = await client.send(request, bare=attempt.is_bare)
                try:
                    head_at = trio.current_time()
                    scope.deadline = max(scope.deadline, head_at + BODY_SECONDS)
                    if response.extensions.get(EARLY) and response.status_code < 300:
                        raise httpx.WriteError("the answer came before the end of the request")
                    status, headers = response.status_code, response.headers
                    body = await read_body(response, attempt.most)
                finally:
                    await response.aclose()
            except httpx.HTTPError as wrong:
                if status < 300:  # else the status alone shows that nothing was done
                    raise error_mapping.broken(
                        wrong, client.host, doing, sent=attempt.has_effect
                    ) from wrong
        if scope.cancelled_caught and status < 300:
            slow = f"{doing}: {client.host} did not answer in time"
            if attempt.has_effect and attempt.is_sent:
                raise ReplyLost(f"{slow}, so it may have been done or not")
            raise TimedOut(slow)
        if 200 <= status < 300:
            if not attempt.is_upload:
                self._limit.answered(head_at - began, self.underway)
            return body
        if status in OVERLOADED:
            self._limit.refused()
        raise error_mapping.failed(
            status, headers, body, doing, client.base_url, sent=attempt.has_effect
        )


def _attempt(
    method: str,
    path: str,
    query: Mapping[str, str] | None,
    body: object,
    doing: str,
    timeout: httpx.Timeout,
) -> _Attempt:
    """Return a request with `body` as JSON, None for no body.

    Raises Rejected if `body` has no JSON form, e.g. because of lone surrogates.
    """
    if body is None:
        return _Attempt(method, path, query, doing, timeout)
    content = None
    with contextlib.suppress(*_NOT_JSON):
        content = msgspec.json.encode(body)
    if content is None:  # raised outside, because msgspec's error contains the value
        raise Rejected(
            f"{doing}: a value cannot be sent as JSON",
            remedy="give texts that are valid Unicode, and plain values",
        )
    return _Attempt(method, path, query, doing, timeout, content, {"Content-Type": JSON})
