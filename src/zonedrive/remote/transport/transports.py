"""httpx transports: one for worker threads, one for the trio loop.

This module contains no endpoints.

INVARIANT: while a thread waits for a response that has begun, at least STALL_BYTES arrive in
`stall_seconds` of waiting, or the wait ends with a timeout. The time between two reads (a pause of
the consumer) does not count.
"""

import ssl
import time
from collections.abc import Callable, Iterator
from typing import Final, Self

import httpx
import trio

from zonedrive.remote.transport.connection import CERTIFICATE, Connection, Pool
from zonedrive.remote.transport.exchange import EARLY, EFFECT, Exchange
from zonedrive.remote.transport.streams import HTTP_2, Streams
from zonedrive.remote.transport.tls import Trust

BODY: Final = "body"
"""Response extension: the response's `Body` object."""
UNREAD: Final = 64 * 1024 * 1024
"""Maximum number of unread bytes of a successful response on a shared connection.

Such a response cannot be paused. The limit should not be reached, because the consumer reads at
once, and libcurl receives far fewer bytes of one response in one step of the loop.
"""
STALL_SECONDS: Final = 30.0
STALL_BYTES: Final = 4096
LINGER: Final = 0.002  # seconds that `read` waits for more bytes


class BlockingTransport(httpx.BaseTransport):
    """Transport for worker threads. Thread-safe."""

    def __init__(self, trust: Trust, stall_seconds: float = STALL_SECONDS) -> None:
        self.connections = Pool(trust)
        self._trust = trust
        self._stall_seconds = stall_seconds

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request; return the response once its headers arrive. Raises httpx's errors."""
        assert isinstance(request.stream, httpx.SyncByteStream)
        body = Body(self.connections, request, request.stream, self._stall_seconds)
        try:
            for seconds in body.begin():
                body.wait(seconds)
            return body.response()
        except httpx.ConnectError as wrong:
            body.close()
            if isinstance(wrong.__cause__, ssl.SSLError):
                _explain(wrong, self._trust, request.url)
            raise
        except BaseException:
            body.close()
            raise

    def close(self) -> None:
        self.connections.hang_up()


class LoopTransport(httpx.AsyncBaseTransport):
    """Transport for trio tasks.

    Repeatable requests share a connection if the service supports HTTP/2.
    """

    def __init__(self, trust: Trust) -> None:
        self.connections = Pool(trust)
        self._trust = trust
        self._streams: Streams | None = None
        self._is_shared = HTTP_2  # until the service turns out not to support HTTP/2
        self._is_closed = False

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request; return the response once its headers arrive. Raises httpx's errors."""
        try:
            return await self._response(request)
        except httpx.ConnectError as wrong:
            if isinstance(wrong.__cause__, ssl.SSLError):
                await trio.to_thread.run_sync(
                    _explain, wrong, self._trust, request.url, abandon_on_cancel=True
                )
            raise

    async def _response(self, request: httpx.Request) -> httpx.Response:
        if self._is_shared and request.method == "GET" and EFFECT not in request.extensions:
            shared = await self._on_stream(request)
            if shared is not None:
                return shared
        assert isinstance(request.stream, httpx.SyncByteStream)
        body = Body(self.connections, request, request.stream, float("inf"))
        try:
            for seconds in body.begin():
                await body.wait_on_loop(seconds)
            return body.response()
        except BaseException:
            body.close()
            raise

    async def _on_stream(self, request: httpx.Request) -> httpx.Response | None:
        """Send the request on a shared connection, and return the response.

        Return None if the service does not support HTTP/2, unless the response is already complete
        and came on a new connection. If the result is None, the caller must send the request again,
        on a connection of its own.
        """
        body = await self._begun(request)
        # The server had closed the connection, or was about to close it.
        if body.exchange.may_repeat and not self._is_closed:
            body.streams.retire()
            body = await self._begun(request)
        try:
            if body.exchange.version.startswith(b"HTTP/1"):
                self._is_shared = False
                body.streams.retire()
                # Only an unshared connection limits chunk extensions and detects left-over bytes.
                if not body.exchange.is_over or body.exchange.is_reused:
                    await body.aclose()
                    return None
            return body.response()
        except BaseException:
            await body.aclose()
            raise

    async def _begun(self, request: httpx.Request) -> "StreamBody":
        """Send the request on a shared connection, wait for the headers, and return the body."""
        if self._is_closed:
            raise httpx.ConnectError("all connections are closed")
        streams = self._streams
        if streams is None or streams.is_retired:
            streams = self._streams = Streams(self._trust, request.url)
        body = StreamBody(streams, request)
        await body.begin()
        return body

    def drop_idle(self) -> None:
        """Close idle connections, and send no new requests on shared connections in use."""
        self.connections.drop_idle()
        if self._streams is not None:
            self._streams.retire()
            self._streams = None
            self._is_shared = HTTP_2  # the new route may have another proxy

    async def aclose(self) -> None:
        self._is_closed = True
        self.connections.hang_up()
        if self._streams is not None:
            self._streams.close()


def _explain(wrong: httpx.ConnectError, trust: Trust, url: httpx.URL) -> None:
    # Imported here, because most processes never need it.
    from zonedrive.remote.transport.peer_certificate import explain

    explain(wrong, trust, url)


class Body(httpx.SyncByteStream, httpx.AsyncByteStream):
    """Response body of a request in progress; readable once the headers have arrived."""

    def __init__(
        self,
        pool: Pool,
        request: httpx.Request,
        content: httpx.SyncByteStream,
        stall_seconds: float,
    ) -> None:
        self.exchange = Exchange(request, content)
        self._pool = pool
        self._content = content
        self._stall_seconds = stall_seconds
        self._connection: Connection | None = None
        self._rest = b""
        self._waited = 0.0  # seconds of waiting since `_counted` bytes had arrived
        self._counted = 0

    def begin(self) -> Iterator[float]:
        """Send the request; until the response headers have arrived, yield the seconds to wait.

        The caller waits for up to the yielded number of seconds, and then continues the iteration.
        If `Exchange.may_repeat` allows it after a failure, the request is sent again on a new
        connection.
        """
        yield from self._head(new=False)
        if self.exchange.may_repeat:
            self.exchange.end_content()
            self.exchange = Exchange(self.exchange.request, self._content)
            yield from self._head(new=True)

    def _head(self, *, new: bool) -> Iterator[float]:
        exchange = self.exchange
        self._connection = self._pool.borrow(exchange.request.url, new=new)
        self._connection.begin(exchange)
        yield from self._steps(lambda: exchange.has_head)

    def response(self) -> httpx.Response:
        """Return the response; call this after `begin`. Raises the error that ended the request."""
        exchange = self.exchange
        extensions = {BODY: self, EARLY: exchange.is_early, CERTIFICATE: exchange.certificate}
        return exchange.response(self, extensions)

    def wait(self, seconds: float) -> bool:
        """Block the calling thread for up to `seconds`; return True if an event occurred."""
        return self._connection is not None and bool(self._connection.epoll.poll(seconds))

    async def wait_on_loop(self, seconds: float) -> None:
        """Wait on the trio loop for an event, up to `seconds`."""
        if self._connection is not None:
            with trio.move_on_after(seconds):
                await trio.lowlevel.wait_readable(self._connection.epoll.fileno())

    def __iter__(self) -> Iterator[bytes]:
        while self._more():
            yield self.exchange.take()

    def read(self, most: int) -> bytes:
        """Return up to `most` bytes of the body, b"" at the end.

        Block until at least one byte has arrived, and then until there are `most` bytes or no more
        bytes arrive for LINGER seconds. Raises httpx's errors.
        """
        exchange, parts = self.exchange, list[bytes]()
        while most:
            if not (self._rest or exchange.parts or self._more(LINGER if parts else None)):
                break
            part = self._rest or exchange.take()
            parts.append(part[:most])
            self._rest = part[most:]
            most -= len(parts[-1])
        return b"".join(parts)

    def _more(self, patience: float | None = None) -> bool:
        """Wait for bytes, up to `patience` seconds if given; return True if some are available."""
        exchange = self.exchange
        for seconds in self._receive(lambda: bool(exchange.parts)):
            began = time.monotonic()
            if patience is None or seconds <= patience:
                self.wait(seconds)
            elif not self.wait(patience):
                break
            self._waited += time.monotonic() - began
            if exchange.seen - self._counted >= STALL_BYTES:
                self._waited, self._counted = 0.0, exchange.seen
            elif self._waited >= self._stall_seconds:
                exchange.wrong = httpx.ReadTimeout(
                    f"too little data arrived in {self._waited:.0f} s"
                )
                self.close()
        if patience is None and exchange.wrong is not None and not exchange.parts:
            raise exchange.wrong
        return bool(exchange.parts)

    def __aiter__(self) -> Self:
        """Return the body itself, because an abandoned async generator would cause a warning."""
        return self

    async def __anext__(self) -> bytes:
        exchange = self.exchange
        try:
            for seconds in self._receive(lambda: bool(exchange.parts)):
                await self.wait_on_loop(seconds)
        except BaseException:
            self.close()
            raise
        if exchange.parts:
            return exchange.take()
        raise exchange.wrong or StopAsyncIteration

    def abort(self) -> None:
        """Make the thread that reads the body raise an error soon, unless the body is complete."""
        if (connection := self._connection) is not None:
            connection.abort(self.exchange)

    def close(self) -> None:
        """Close the connection, unless the whole response has arrived."""
        self.exchange.end_content()
        if self._connection is not None:
            self._pool.discard(self._connection)
            self._connection = None

    async def aclose(self) -> None:
        self.close()

    def _receive(self, is_enough: Callable[[], bool]) -> Iterator[float]:
        """Continue receiving until `is_enough()` is true; meanwhile, yield the seconds to wait."""
        self.exchange.moves()
        if self._connection is not None and not is_enough():
            self._connection.go_on()
            yield from self._steps(is_enough)

    def _steps(self, is_enough: Callable[[], bool]) -> Iterator[float]:
        exchange = self.exchange
        try:
            while self._connection and not (exchange.is_over or is_enough()):
                yield self._connection.seconds_left()
                if self._connection:
                    self._connection.step(self._connection.epoll.poll(0))
        except httpx.TransportError as wrong:
            exchange.wrong = wrong
        if exchange.wrong is not None or (exchange.is_early and exchange.is_over):
            self.close()
        elif exchange.is_over and self._connection is not None:
            self._pool.give_back(self._connection)
            self._connection = None


class StreamBody(httpx.AsyncByteStream):
    """Body of a response on a shared connection."""

    def __init__(self, streams: Streams, request: httpx.Request) -> None:
        self.exchange = Exchange(request, (), room=UNREAD, may_pause=False)
        self.streams = streams

    async def begin(self) -> None:
        """Send the request and wait for the response headers. Raises httpx's errors."""
        self.streams.begin(self.exchange)
        try:
            while not (self.exchange.has_head or self.exchange.is_over):
                await self.streams.wait(self.exchange)
        except BaseException:
            await self.aclose()
            raise

    def response(self) -> httpx.Response:
        """Return the response; call this after `begin`. Raises the error that ended the request."""
        return self.exchange.response(self, {})

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        exchange = self.exchange
        while not (exchange.parts or exchange.is_over):
            exchange.moves()
            await self.streams.wait(exchange)
        if exchange.parts:
            return exchange.take()
        raise exchange.wrong or StopAsyncIteration

    async def aclose(self) -> None:
        """Stop receiving the response."""
        self.streams.leave(self.exchange)
