"""The transport for trio's loop: httpx above, libcurl below.

Must not know endpoints.
"""

from typing import Self

import httpx
import trio

from zonedrive.remote.transport.connection import Connection
from zonedrive.remote.transport.exchange import EARLY, Exchange
from zonedrive.remote.transport.pool import Pool
from zonedrive.remote.transport.tls import Trust

ROOM = 256 * 1024  # bytes of an answer that wait for its reader


class LoopTransport(httpx.AsyncBaseTransport):
    """Sends requests for tasks."""

    def __init__(self, trust: Trust) -> None:
        self.connections = Pool(trust)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send, and return the answer as it begins.  See BlockingTransport.handle_request."""
        connection, used = self.connections.borrow(request.url)
        body = LoopBody(self.connections, connection, request)
        await body.begin()
        if used and body.exchange.may_repeat:
            connection, _ = self.connections.borrow(request.url, new=True)
            body = LoopBody(self.connections, connection, request)
            await body.begin()
        exchange = body.exchange
        if not exchange.has_head:
            assert exchange.wrong is not None
            raise exchange.wrong
        return httpx.Response(
            exchange.status,
            headers=exchange.headers,
            stream=body,
            extensions={EARLY: exchange.is_early},
        )

    async def aclose(self) -> None:
        """Close all connections."""
        self.connections.hang_up()


class LoopBody(httpx.AsyncByteStream):
    """The body of an answer."""

    def __init__(self, pool: Pool, connection: Connection, request: httpx.Request) -> None:
        self.exchange = Exchange(request, room=ROOM)
        self.exchange.supply([request.content] if self.exchange.length else ())
        self._pool = pool
        self._connection: Connection | None = connection

    async def begin(self) -> None:
        """Send the request, and wait for the head of the answer."""
        exchange = self.exchange
        try:
            assert self._connection is not None
            self._connection.begin(exchange)
            while not (exchange.has_head or exchange.is_over or exchange.wrong):
                await self._wait()
        except httpx.TransportError as wrong:
            exchange.wrong = wrong
        except BaseException:
            await self.aclose()
            raise
        self._settle()

    def __aiter__(self) -> Self:
        """Give the pieces as they come.  No generator: one that is left in the middle complains."""
        return self

    async def __anext__(self) -> bytes:
        """Return the next piece.  Raises httpx's errors."""
        exchange = self.exchange
        while not exchange.parts and self._connection is not None:
            exchange.moves()
            try:
                self._connection.go_on()
                if not (exchange.parts or exchange.is_over):
                    await self._wait()
            except httpx.TransportError as wrong:
                exchange.wrong = wrong
            self._settle()
        if exchange.parts:
            return exchange.take()
        raise exchange.wrong or StopAsyncIteration

    async def aclose(self) -> None:
        """Close the connection, unless all has come."""
        if self._connection is not None:
            self._pool.discard(self._connection)
            self._connection = None

    async def _wait(self) -> None:
        connection = self._connection
        assert connection is not None
        with trio.move_on_after(connection.seconds_left()):
            await trio.lowlevel.wait_readable(connection.epoll.fileno())
        connection.step(connection.epoll.poll(0))

    def _settle(self) -> None:
        """Let go of the connection where nothing more comes on it."""
        exchange, connection = self.exchange, self._connection
        if connection is None:
            return
        if exchange.wrong is not None or (exchange.is_early and exchange.is_over):
            self._pool.discard(connection)
            self._connection = None
        elif exchange.is_over:
            self._pool.give_back(connection)
            self._connection = None
