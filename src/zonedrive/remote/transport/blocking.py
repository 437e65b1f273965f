"""The transport for worker threads: httpx above, libcurl below.

Must not know endpoints.

INVARIANT: over `stall_seconds` of waiting for an answer that has begun, at least STALL_BYTES come,
or the request ends in a timeout.  Time between two reads (a consumer's pause) does not count.
"""

import time
from collections.abc import Iterator
from typing import Final

import httpx

from zonedrive.remote.transport.connection import CERTIFICATE, Connection
from zonedrive.remote.transport.exchange import EARLY, NOWHERE, Exchange
from zonedrive.remote.transport.pool import Pool
from zonedrive.remote.transport.tls import Trust

BODY: Final = "body"
"""Extension of an answer: its Body."""
ROOM: Final = 512 * 1024  # bytes of an answer that wait for its reader
STALL_SECONDS: Final = 30.0
STALL_BYTES: Final = 4096
LINGER: Final = 0.002  # seconds that a piece waits for more bytes


class BlockingTransport(httpx.BaseTransport):
    """Sends requests for worker threads.  Thread-safe."""

    def __init__(self, trust: Trust, stall_seconds: float = STALL_SECONDS) -> None:
        self.connections = Pool(trust)
        self.stall_seconds = stall_seconds

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send, and return the answer as it begins.  Raises httpx's errors.

        Where a kept connection turns out to be none before the service can have acted, the request
        is sent on a new one.
        """
        connection, used = self.connections.borrow(request.url)
        body = Body(self, connection, request)
        body.begin()
        if used and body.exchange.may_repeat:
            body = Body(self, self.connections.borrow(request.url, new=True)[0], request)
            body.begin()
        return body.response()

    def close(self) -> None:
        """Close all connections."""
        self.connections.hang_up()


class Body(httpx.SyncByteStream):
    """The body of an answer, pulled by its reader."""

    def __init__(
        self, transport: BlockingTransport, connection: Connection, request: httpx.Request
    ) -> None:
        assert isinstance(request.stream, httpx.SyncByteStream)
        self.exchange = Exchange(request, room=ROOM)
        self.exchange.supply(request.stream)
        self._transport = transport
        self._connection: Connection | None = connection
        self._rest = memoryview(b"")
        self._waited = 0.0
        self._came = 0

    def begin(self) -> None:
        """Send the request, and wait for the head of the answer."""
        connection, exchange = self._connection, self.exchange
        assert connection is not None
        try:
            connection.begin(exchange)
            while not (exchange.has_head or exchange.is_over):
                connection.step(connection.epoll.poll(connection.seconds_left()))
        except httpx.TransportError as wrong:
            exchange.wrong = wrong
        except BaseException:
            self.close()
            raise
        self._settle()

    def response(self) -> httpx.Response:
        """Return the answer that has begun.  Raises what ended the request."""
        exchange = self.exchange
        if not exchange.has_head:
            self.close()
            assert exchange.wrong is not None
            raise exchange.wrong
        extensions = {BODY: self, EARLY: exchange.is_early, CERTIFICATE: exchange.certificate}
        return httpx.Response(
            exchange.status, headers=exchange.headers, stream=self, extensions=extensions
        )

    def __iter__(self) -> Iterator[bytes]:
        """Give the pieces as they come."""
        while self._more(None):
            yield self.exchange.take()

    def fill(self, into: memoryview) -> int:
        """Put what comes into `into`; return how much, 0 at the end.  Raises httpx's errors.

        Waits until it is full, as long as bytes keep coming.
        """
        exchange = self.exchange
        count = 0
        while count < len(into):
            if not self._rest and exchange.parts:
                self._rest = memoryview(exchange.take())
            if self._rest:
                size = min(len(into) - count, len(self._rest))
                into[count : count + size] = self._rest[:size]
                self._rest = self._rest[size:]
                count += size
                continue
            exchange.into, exchange.filled = into[count:], 0
            is_more = self._more(LINGER if count else None)
            count += exchange.filled
            exchange.into, exchange.filled = NOWHERE, 0
            if not is_more:
                break
        return count

    def abort(self) -> None:
        """Let the reader in another thread end soon; what has come whole is not touched."""
        if (connection := self._connection) is not None:
            connection.abort(self.exchange)

    def close(self) -> None:
        """Give the connection back where all has come, else close it."""
        if self._connection is not None:
            self._transport.connections.discard(self._connection)
            self._connection = None

    def _more(self, patience: float | None) -> bool:
        """Wait for bytes, if none are there; with `patience` only so long.  False for none."""
        exchange = self.exchange
        exchange.moves()
        before = exchange.filled
        while (connection := self._connection) is not None:
            if exchange.parts or exchange.filled > before:
                break
            began, seen = time.monotonic(), exchange.seen
            try:
                connection.go_on()
                if not exchange.seen > seen and not exchange.is_over:
                    left = connection.seconds_left()
                    events = connection.epoll.poll(
                        left if patience is None else min(left, patience)
                    )
                    connection.step(events)
                    if patience is not None and not events and left > patience:
                        break
            except httpx.TransportError as wrong:
                exchange.wrong = wrong
            self._settle()
            self._account(exchange.seen - seen, time.monotonic() - began)
        has_come = bool(exchange.parts) or exchange.filled > before
        if not has_come and patience is None and exchange.wrong is not None:
            raise exchange.wrong
        return has_come

    def _account(self, count: int, waited: float) -> None:
        self._came += count
        self._waited += waited
        if self._came >= STALL_BYTES:
            self._came, self._waited = 0, 0.0
        elif self._waited >= self._transport.stall_seconds and self._connection is not None:
            self.exchange.wrong = httpx.ReadTimeout(f"{self._came} bytes in {self._waited:.0f} s")
            self.close()

    def _settle(self) -> None:
        """Let go of the connection where nothing more comes on it."""
        exchange, connection = self.exchange, self._connection
        if connection is None:
            return
        if exchange.wrong is not None or (exchange.is_early and exchange.is_over):
            self.close()
        elif exchange.is_over:
            self._transport.connections.give_back(connection)
            self._connection = None
