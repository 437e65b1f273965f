"""Metadata requests: deadline, retries, typed errors, and reports to `Connectivity`.

The callers choose the endpoints and parse the responses; only the check of the logon uses a fixed
endpoint, ZONES. The requests run on the trio loop. The content of large files is transferred by the
module `transfer`.

INVARIANT: every call ends. A call raises an error if the response headers do not arrive before the
call's deadline, or if the response does not end within BODY_SECONDS after the headers.
INVARIANT: a request that changes something is sent once, except after a response with status 401,
which shows that the request had no effect.
"""

import contextlib
import copy
import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

import httpx
import msgspec
import trio

from zonedrive.errors import (
    OVERLOADED,
    BadAnswer,
    EndpointRefused,
    Forbidden,
    Rejected,
    RemoteError,
    ReplyLost,
    TimedOut,
    Unreachable,
    drop_tracebacks,
    during,
)
from zonedrive.remote.clients import CHANGED, LISTING, SMALL, LoopClient, TooLong, read_body
from zonedrive.remote.concurrency_limit import ConcurrencyLimit
from zonedrive.remote.connectivity import Connectivity
from zonedrive.remote.request_times import Kind
from zonedrive.remote.retry import Backoff
from zonedrive.remote.transport.exchange import EARLY, EFFECT, SENT
from zonedrive.remote.urls import ZONES, Request
from zonedrive.remote.wire import error_mapping
from zonedrive.remote.wire.pagination import Budget, Page, Pagination, Query

READ_SECONDS = 15.0  # for a request that changes nothing, including all retries
CHANGE_SECONDS = 30.0  # for a request with an effect: a service may have to move many entries
BODY_SECONDS = 60.0  # for the body of a response
# Bytes per second of an upload on a slow connection, which many uploads share.
SLOWEST = 1000.0
TIMEOUT = httpx.Timeout(connect=10.0, read=READ_SECONDS, write=15.0, pool=None)
# An idle connection may have broken without notice. So the first attempt at a request that changes
# nothing has a shorter timeout, which leaves time for another attempt on a new connection.
FIRST_TIMEOUT = httpx.Timeout(
    connect=10.0, read=READ_SECONDS / 3, write=READ_SECONDS / 3, pool=None
)
CHANGE_TIMEOUT = httpx.Timeout(connect=10.0, read=CHANGE_SECONDS, write=15.0, pool=None)
LARGE = 1_000_000  # bytes; parsing a longer page would block the loop for too long
_NOT_JSON = (ValueError, TypeError, OverflowError, RecursionError, msgspec.MsgspecError)

ValueT = TypeVar("ValueT")


@dataclass(eq=False)
class _Attempt:
    request: Request
    made: httpx.Request  # to send for `request`
    most: int = SMALL  # maximum size of a successful response in bytes
    empty: bytes = b""  # the result for a response with status 204
    is_bare: bool = False  # without a bearer token
    is_upload: bool = False  # does not count towards `places`

    @property
    def has_effect(self) -> bool:
        """True if the request changes something."""
        return EFFECT in self.made.extensions

    @property
    def kind(self) -> Kind:
        """Kind of request under which `RequestTimes` counts the attempt."""
        return "upload" if self.is_upload else "change" if self.has_effect else "metadata"


class Requests:
    """Sender of metadata requests to one service.

    At most `places` requests run at once. A further request waits until another request ends, and
    raises TimedOut if its own deadline comes first.
    """

    def __init__(
        self,
        client: LoopClient,
        link: Connectivity,
        *,
        connections: int = 8,
        chance: Callable[[], float] = random.random,
        budget: Callable[[], Budget] = Budget,
    ) -> None:
        """Prepare to send requests through `client` and to report their results to `link`.

        `connections` is the highest value that `places` may reach. `chance` returns a random number
        from 0 to 1 for retry delays. `budget` returns the limits for one listing.
        """
        self._client = client
        self._link = link
        self._limit = ConcurrencyLimit(connections)
        self._turns = trio.CapacityLimiter(self._limit.allowed)
        self._backoff = Backoff()
        self._chance = chance
        self._budget = budget
        self._paginations: dict[str, Pagination] = {}
        self._check_turn = trio.Lock()
        self._checks = self._last_check = 0  # number of begun checks of the logon; last ended one
        self._check_error: RemoteError | None = None  # of the last check that ended

    @property
    def places(self) -> int:
        """Maximum number of concurrent requests."""
        return self._limit.allowed

    @property
    def underway(self) -> int:
        """Number of requests in progress."""
        return self._turns.borrowed_tokens

    async def read(
        self, request: Request, *, accept: str | None = None, most: int = SMALL, empty: bytes = b""
    ) -> bytes:
        """Send a request that changes nothing, with retries; return the body of the response.

        `accept` is the Accept header, and `empty` is returned for a response without content
        (status 204). Raises subclasses of RemoteError, for example BadAnswer if the body has more
        than `most` bytes.
        """
        headers = {"Accept": accept} if accept is not None else None

        async def send() -> bytes:
            end = trio.current_time() + READ_SECONDS
            failures = 0
            while True:
                self._link.check()
                timeout = TIMEOUT if failures else FIRST_TIMEOUT
                made = self._json_request(request, timeout, headers)
                try:
                    return await self._in_turn(_Attempt(request, made, most, empty), end)
                except RemoteError as error:
                    failures += 1
                    remaining = end - trio.current_time()
                    wait = self._backoff.delay(error, failures, self._chance(), remaining)
                    if wait is None:
                        raise
                # If the service goes offline during this pause, `check` above raises.
                await trio.sleep(wait)

        return await self._with_valid_logon(send, request.doing)

    async def listing(
        self, request: Request, items: Callable[[bytes], Page[ValueT]], *, kind: str
    ) -> Page[ValueT]:
        """Return all items of a listing, from all its pages.

        The service is assumed to paginate either all listings of one `kind` or none. `items` parses
        the body of a page, and is called in a thread for a large page. Raises subclasses of
        RemoteError, for example BadAnswer if the listing exceeds a limit of its `Budget`.
        """
        budget, doing = self._budget(), request.doing

        async def fetch(page: Query) -> Page[ValueT]:
            budget.spend(doing, pages=1)
            # Some services send no array for a page after the last one.
            after = b"null" if page.get("page", "1") != "1" else None
            try:
                paged = replace(request, query={**request.query, **page})
                data = await self.read(paged, most=budget.left, empty=after or b"")
            except BadAnswer as wrong:
                if isinstance(wrong.__cause__, TooLong):
                    budget.spend(doing, size=budget.left)
                raise
            if data == after:
                return []
            budget.spend(doing, size=len(data))
            is_small = len(data) < LARGE
            found = items(data) if is_small else await trio.to_thread.run_sync(items, data)
            budget.spend(doing, items=len(found))
            return found

        try:
            pagination = self._paginations.setdefault(kind, Pagination())
            size = request.query.get("pageSize", "")
            return await pagination.read(fetch, int(size) if size.isdecimal() else None)
        except BadAnswer as wrong:
            drop_tracebacks(wrong)
            raise

    async def change(self, request: Request, *, password: bool = False) -> bytes:
        """Send a request that changes something, without retries; return the response body.

        If `password`, the body contains a password, and a status 401 concerns this password, not
        the logon. Raises ReplyLost if the effect of the request is unknown, and other subclasses of
        RemoteError.
        """
        extensions = {EFFECT: True, "password": password}

        async def send() -> bytes:
            self._link.check()
            made = self._json_request(request, CHANGE_TIMEOUT, extensions=extensions)
            attempt = _Attempt(request, made, CHANGED)
            return await self._in_turn(attempt, trio.current_time() + CHANGE_SECONDS)

        return await self._with_valid_logon(send, request.doing)

    async def _with_valid_logon(self, send: Callable[[], Awaitable[bytes]], doing: str) -> bytes:
        """Return the result of `send`; after EndpointRefused, check the logon and send again.

        A second EndpointRefused is raised, because the logon is then valid for other requests.
        """
        with contextlib.suppress(EndpointRefused):
            return await send()
        await self._check_logon(doing)
        return await send()

    async def _check_logon(self, doing: str) -> None:
        """Raise NotLoggedOn if the logon has ended and cannot be renewed.

        Concurrent callers share one check and its error. A caller does not use the result of a
        check that began before the call.
        """
        needed = self._checks + 1
        async with self._check_turn:
            if self._last_check < needed:
                self._checks += 1
                self._check_error = None
                try:
                    await self.read(Request("GET", ZONES, doing=doing, origin="published"))
                except Forbidden:  # the response to a limited but valid logon
                    pass
                except RemoteError as wrong:
                    self._check_error = wrong
                self._last_check = self._checks
            if self._check_error is not None:
                raise copy.copy(self._check_error)

    async def change_with_password(self, request: Request) -> bytes:
        """Send a change whose body has the logged-on user's password; return the response body.

        Raises CredentialsRefused if the password is wrong, NotLoggedOn if the logon has ended.

        INVARIANT: a rejected password is not sent a second time. A 401 may concern the password or
        the logon. Therefore the logon is checked (and renewed if it has ended) before the password
        is sent; any later 401 concerns the password, and nothing is repeated.
        """
        with contextlib.suppress(Forbidden):  # the response to a limited but valid logon
            await self.read(Request("GET", ZONES, doing=request.doing, origin="published"))
        with error_mapping.checked_password(request.doing):
            return await self.change(request, password=True)

    async def upload(
        self, request: Request, content: bytes, content_type: str, *, seconds: float
    ) -> bytes:
        """Send an upload, without retries; return the response body.

        `content` is the whole request body. `seconds` is the time limit for the response after the
        last byte was sent; it is also the limit of the whole call, extended by one second for every
        SLOWEST bytes. The request does not count towards `places`, because the caller limits the
        number of uploads. A rejection because of overload is not reported to `Connectivity`. Raises
        the same errors as the method `change`.
        """
        self._link.check()
        timeout = httpx.Timeout(connect=10.0, read=seconds, write=15.0, pool=None)
        made = self._client.request(
            request, headers={"Content-Type": content_type}, content=content,
            timeout=timeout, extensions={EFFECT: True},
        )  # fmt: skip
        attempt = _Attempt(request, made, is_upload=True)
        end = trio.current_time() + seconds + len(content) / SLOWEST
        return await self._reported(attempt, end)

    async def try_once(self, path: str, *, bare: bool) -> None:
        """Send a GET request once, even while offline, and report its result to `Connectivity`.

        Raises no RemoteError. If `bare`, the request has no bearer token; use this for an endpoint
        that requires no logon.
        """
        request = Request("GET", path, origin="published")
        made = self._client.request(request, timeout=TIMEOUT)
        attempt = _Attempt(request, made, LISTING, is_bare=bare)
        with contextlib.suppress(RemoteError):
            await self._in_turn(attempt, trio.current_time() + READ_SECONDS)

    async def _in_turn(self, attempt: _Attempt, end: float) -> bytes:
        """Wait until fewer than `places` requests run, send `attempt`, and report its result.

        Return the body of a successful response. Raises TimedOut if `places` requests still run at
        the time `end` (trio's clock); this error is not reported to `Connectivity`.
        """
        try:
            self._turns.acquire_nowait()
        except trio.WouldBlock:
            with trio.CancelScope(deadline=end) as waiting:
                await self._turns.acquire()
            if waiting.cancelled_caught:
                raise TimedOut(f"{attempt.request.doing}: too many requests are underway") from None
        try:
            return await self._reported(attempt, end)
        finally:
            if self._turns.total_tokens != self._limit.allowed:
                self._turns.total_tokens = self._limit.allowed
            self._turns.release()

    async def _reported(self, attempt: _Attempt, end: float) -> bytes:
        is_of_other_logon = attempt.is_bare or bool(attempt.made.extensions.get("password"))
        try:
            with self._link.reported(attempt.kind, is_of_other_logon=is_of_other_logon):
                return await self._answer(attempt, end)
        except Unreachable:
            self._client.transport.drop_idle()
            raise

    async def _answer(self, attempt: _Attempt, end: float) -> bytes:
        client, doing = self._client, attempt.request.doing
        status, headers, body = 0, httpx.Headers(), b""
        began = head_at = trio.current_time()
        with trio.CancelScope(deadline=end) as scope:
            try:
                await trio.lowlevel.checkpoint_if_cancelled()
                response = await client.send(attempt.made, bare=attempt.is_bare)
                try:
                    head_at = trio.current_time()
                    scope.deadline = max(scope.deadline, head_at + BODY_SECONDS)
                    if response.extensions.get(EARLY) and response.status_code < 300:
                        raise httpx.WriteError("the answer arrived before the end of the request")
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
            bare = f"{client.host} did not answer in time"
            slow = during(doing, bare)
            if attempt.has_effect and SENT in attempt.made.extensions:
                raise ReplyLost(f"{slow}, so it may or may not have taken effect")
            raise TimedOut(slow, bare=bare)
        if 200 <= status < 300:
            # The response to an upload must describe the file.
            is_unchecked = attempt.has_effect and not attempt.is_upload and status != 204
            if is_unchecked and error_mapping.is_page(body):
                raise error_mapping.page_for_change(status, doing)
            if not attempt.is_upload:
                self._limit.answered(head_at - began, self.underway)
            return attempt.empty if status == 204 else body
        if status in OVERLOADED:
            self._limit.refused()
        raise error_mapping.failed(
            status, headers, body, attempt.request, client.base_url, sent=attempt.has_effect
        )

    def _json_request(
        self,
        request: Request,
        timeout: httpx.Timeout,
        headers: Mapping[str, str] | None = None,
        extensions: Mapping[str, object] | None = None,
    ) -> httpx.Request:
        """Return `request` as an httpx request, with the body encoded as JSON.

        Raises Rejected if the body cannot be encoded, for example because of lone surrogates.
        """
        content: bytes | None = b""
        if request.body is not None:
            headers = {**(headers or {}), "Content-Type": "application/json"}
            content = None
            with contextlib.suppress(*_NOT_JSON):
                content = msgspec.json.encode(request.body)
        if content is None:  # raised outside, because msgspec's error contains the value
            raise Rejected(
                f"{request.doing}: a value cannot be sent as JSON",
                remedy="give texts that are valid Unicode, and plain values",
            )
        return self._client.request(
            request, headers=headers, content=content, timeout=timeout, extensions=extensions
        )
