"""Metadata requests: deadline, retries, typed errors, and reports to the link.

Knows nothing about endpoints or JSON members. Runs on the trio loop; content is transferred by
`transfer`.

INVARIANT: every call ends: the first byte of an answer arrives within its deadline, and the last
one within `BODY_SECONDS` more. A request with an effect is sent once.
"""

import io
import random
import re
import time
from collections.abc import Callable, Mapping
from typing import Any

import httpx
import trio

from zonedrive.errors import (
    OVERLOADED,
    BadAnswer,
    NotLoggedOn,
    RemoteError,
    ReplyLost,
    TimedOut,
    Unavailable,
    Unreachable,
    ZonedriveError,
)
from zonedrive.remote import response_limits
from zonedrive.remote.clients import LoopClient
from zonedrive.remote.concurrency_limit import ConcurrencyLimit
from zonedrive.remote.connectivity import Connectivity
from zonedrive.remote.response_limits import CHANGED, LISTING, SMALL, Limits, TooLong
from zonedrive.remote.retry import Backoff, retry_after, worth_another
from zonedrive.remote.transport.exchange import EARLY, EFFECT, SENT, TARGET
from zonedrive.remote.urls import host_of
from zonedrive.remote.wire import encode, error_mapping
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
BACKOFF = Backoff()
_PLAIN = re.compile(r"/[\w.~!$&'()*+,;=:@%/-]*", re.ASCII)  # nothing of a path is to be escaped


class Requests:
    """Metadata requests to one service.

    At most `places` run at once; the others wait for their turn within their deadline.
    """

    def __init__(
        self,
        client: httpx.AsyncClient,
        base_url: str,
        link: Connectivity,
        *,
        connections: int = 8,
        read_seconds: float = READ_SECONDS,
        change_seconds: float = CHANGE_SECONDS,
        body_seconds: float = BODY_SECONDS,
        backoff: Backoff = BACKOFF,
        chance: Callable[[], float] = random.random,
    ) -> None:
        response_limits.restrict(client)
        self._client = client
        self._base_url = base_url
        self._origin = httpx.URL(base_url)
        self._headers = httpx.Headers({"Host": self._origin.netloc.decode(), **client.headers})
        self._host = host_of(base_url)
        self._link = link
        self._pace = ConcurrencyLimit(connections)
        self._turns = trio.CapacityLimiter(self._pace.allowed)
        self._read_seconds = read_seconds
        self._change_seconds = change_seconds
        self._body_seconds = body_seconds
        self._backoff = backoff
        self._chance = chance

    @property
    def places(self) -> int:
        """Maximum number of concurrent requests."""
        return self._pace.allowed

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
        seconds: float | None = None,
        headers: Mapping[str, str] | None = None,
        most: int = SMALL,
    ) -> bytes:
        """Send a repeatable request; return the body of a successful answer.

        `headers` are added to the default ones. `doing` begins the message of every error. Raises
        RemoteError's subclasses, BadAnswer for more than `most` bytes.
        """
        end = trio.current_time() + (self._read_seconds if seconds is None else seconds)
        failures = 0
        while True:
            self._link.check()
            timeout = TIMEOUT if failures else FIRST_TIMEOUT
            attempt = _Attempt(method, path, query, body, doing, timeout)
            attempt.headers.update(headers or {})
            attempt.limits = Limits(most)
            try:
                return await self._once(attempt, end)
            except RemoteError as error:
                failures += 1
                wait = None
                if worth_another(error):
                    remaining = end - trio.current_time()
                    wait = self._backoff.delay(failures, self._chance(), remaining, attempt.wish)
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
                raise budget.too_long() from wrong
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
        attempt = _Attempt(method, path, query, body, doing, CHANGE_TIMEOUT, effect=True)
        attempt.limits = Limits(CHANGED)
        attempt.password = password
        return await self._once(attempt, trio.current_time() + self._change_seconds)

    async def post(
        self, path: str, content: bytes, content_type: str, *, doing: str, seconds: float
    ) -> bytes:
        """Send `content` like `change`, as one body in memory, within `seconds`.

        Does not count as one of `places`: the caller limits the number of such requests. A
        rejection because of overload says nothing about the link.
        """
        self._link.check()
        timeout = httpx.Timeout(connect=10.0, read=seconds, write=15.0, pool=None)
        attempt = _Attempt("POST", path, None, None, doing, timeout, effect=True)
        attempt.content, attempt.headers = content, {"Content-Type": content_type}
        attempt.paced = False
        return await self._told(attempt, trio.current_time() + seconds)

    def drop_idle(self) -> None:
        """Close idle connections."""
        if isinstance(self._client, LoopClient):
            self._client.transport.drop_idle()

    async def try_once(self, path: str, *, doing: str, bare: bool) -> None:
        """Send a request once, even while offline; only the link learns the result.

        `bare`: without a bearer, for an endpoint that needs no logon.
        """
        attempt = _Attempt("GET", path, None, None, doing, TIMEOUT, bare=bare)
        attempt.limits = Limits(LISTING)
        try:
            await self._once(attempt, trio.current_time() + self._read_seconds)
        except RemoteError:
            return

    async def _once(self, attempt: "_Attempt", end: float) -> bytes:
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
            return await self._told(attempt, end)
        finally:
            if self._turns.total_tokens != self._pace.allowed:
                self._turns.total_tokens = self._pace.allowed
            self._turns.release()

    async def _told(self, attempt: "_Attempt", end: float) -> bytes:
        """Send one request and report its result to the link."""
        began = self._link.now()
        try:
            data = await self._asked(attempt, end)
        except ZonedriveError as error:
            other_logon = (attempt.bare or attempt.password) and isinstance(error, NotLoggedOn)
            turned_away = not attempt.paced and isinstance(error, Unavailable) and error.is_overload
            if not (other_logon or turned_away):
                self._link.note_failure(error, began)
            if isinstance(error, Unreachable):
                self.drop_idle()
            raise
        self._link.note_answer()
        return data

    async def _asked(self, attempt: "_Attempt", end: float) -> bytes:
        """Return the body of a success, or raise the error for the answer or its absence."""
        answer = _Answer()
        began = trio.current_time()
        with trio.CancelScope(deadline=end) as scope:
            try:
                await self._received(attempt, answer, scope)
            except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as wrong:
                if answer.status < 300:  # else the status alone shows that nothing was done
                    raise error_mapping.broken(
                        wrong, self._host, attempt.doing, sent=attempt.effect
                    ) from wrong
        if scope.cancelled_caught and answer.status < 300:
            slow = f"{attempt.doing}: {self._host} did not answer in time"
            if attempt.effect and attempt.sent:
                raise ReplyLost(f"{slow}, so it may have been done or not")
            raise TimedOut(slow)
        if 200 <= answer.status < 300:
            if attempt.paced:
                self._pace.answered(answer.began - began, self.underway)
            return answer.body
        if answer.status in OVERLOADED:
            self._pace.refused()
        attempt.wish = retry_after(answer.headers.get("Retry-After"), time.time())
        if 300 <= answer.status < 400:
            location = answer.headers.get("Location", "")
            raise error_mapping.redirected(answer.status, location, attempt.doing, self._base_url)
        error = error_mapping.refusal(
            answer.status, answer.body, attempt.doing, retry_after=attempt.wish
        )
        if attempt.effect and answer.status in error_mapping.LOST:
            raise error_mapping.lost(error)
        raise error

    async def _received(
        self, attempt: "_Attempt", answer: "_Answer", scope: trio.CancelScope
    ) -> None:
        """Send the request and fill `answer`; after the head, the body has its own deadline."""
        await trio.lowlevel.checkpoint_if_cancelled()
        request = self._request(attempt)
        response = await self._sent(request, None if attempt.bare else self._client.auth)
        try:
            answer.began = trio.current_time()
            scope.deadline = max(scope.deadline, answer.began + self._body_seconds)
            answer.status, answer.headers = response.status_code, response.headers
            if response.extensions.get(EARLY) and answer.status < 300:
                answer.status = 0
                raise httpx.WriteError("the answer came before the end of the request")
            response_limits.admit(response, attempt.limits)
            answer.body = await _body(response)
        finally:
            await response.aclose()

    def _request(self, attempt: "_Attempt") -> httpx.Request:
        """Build a request like the client does, but faster if its path needs no escaping."""
        extensions = attempt.extensions() | {"timeout": attempt.timeout.as_dict()}
        ours = isinstance(self._client, LoopClient)
        if not ours or attempt.query or not _PLAIN.fullmatch(attempt.path):
            return self._client.build_request(
                attempt.method,
                self._base_url + attempt.path,
                params=attempt.query or None,
                content=attempt.content,
                headers=attempt.headers,
                extensions=extensions,
            )
        request = httpx.Request(
            attempt.method,
            self._origin,
            headers=self._headers,
            stream=httpx.ByteStream(attempt.content or b""),
            extensions=extensions | {TARGET: attempt.path.encode()},
        )
        for name, value in attempt.headers.items():
            request.headers[name] = value
        if attempt.content:
            request.headers["Content-Length"] = str(len(attempt.content))
        return request

    async def _sent(self, request: httpx.Request, auth: httpx.Auth | None) -> httpx.Response:
        """Return the response to an authenticated request, before its body is read.

        Skips the client's other features (cookies, redirects, hooks), which are not used here: they
        took a fifth of the time of a small request.
        """
        if not isinstance(self._client, LoopClient):
            return await self._client.send(request, auth=auth, stream=True)
        transport = self._client.transport
        if auth is None:
            return await transport.handle_async_request(request)
        flow = auth.async_auth_flow(request)
        try:
            request = await anext(flow)
            while True:
                response = await transport.handle_async_request(request)
                try:
                    request = await flow.asend(response)
                except StopAsyncIteration:
                    return response
                except BaseException:
                    await response.aclose()
                    raise
                await response.aclose()
        finally:
            await flow.aclose()


async def _body(response: httpx.Response) -> bytes:
    """Return the accepted body of a response, without overhead for many small chunks."""
    body = io.BytesIO()
    assert isinstance(response.stream, httpx.AsyncByteStream)
    async for part in response.stream:
        body.write(part)
    return body.getvalue()


class _Answer:
    """Received part of an answer; status 0 means none."""

    headers = httpx.Headers()

    def __init__(self) -> None:
        self.status = 0
        self.began = 0.0  # when it began to come, on trio's clock
        self.body = b""


class _Attempt:
    """One request, and facts that become known during it."""

    def __init__(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        body: object,
        doing: str,
        timeout: httpx.Timeout,
        *,
        effect: bool = False,
        bare: bool = False,
    ) -> None:
        self.method, self.path, self.doing = method, path, doing
        self.query = encode.as_query(query, doing)
        self.timeout, self.effect, self.bare = timeout, effect, bare
        self.content = None if body is None else encode.as_json(body, doing)
        self.headers = {} if body is None else {"Content-Type": "application/json"}
        self.limits = Limits()
        self.password = False  # whether the body holds one
        self.sent = False
        self.paced = True  # one of `places`; False for an upload
        self.wish: float | None = None

    def extensions(self) -> dict[str, Any]:
        """Return the request extensions for transport and authentication."""
        if not self.effect:
            return {}
        more: dict[str, Any] = {"password": True} if self.password else {}
        return more | {EFFECT: True, SENT: self.handed_over}

    def handed_over(self) -> None:
        """Record that a part of the request was sent."""
        self.sent = True
