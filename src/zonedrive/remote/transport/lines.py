"""The kept connections of the metadata client: the one that was free last serves next.

Must not know requests or endpoints.  httpcore's own pool looks at the sockets of all connections
before and after each request; with many small requests on many connections that cost more than
the requests themselves.  Here only the connection that is to be used is looked at.

INVARIANT: a connection is lent to one request at a time, and comes back only when its answer was
read to the end; any other is closed.
INVARIANT: a request goes out only where nothing was received that no request has asked for, also on
connections through a proxy.
INVARIANT: what is lent is closed by nobody else, also before its request has begun.
INVARIANT: how many there are is the caller's matter: as many as requests at once.
"""

import ssl
from collections.abc import AsyncIterator, Callable, Iterable
from functools import partial
from types import TracebackType
from typing import Any, Self

import h11
import httpcore
import httpx
import trio

_TRIES = 3


class Lines:
    """Connections to one origin, HTTP/1.1."""

    def __init__(self, trust: ssl.SSLContext, keep_seconds: float) -> None:
        """Keep what nobody uses for at most `keep_seconds`."""
        self._trust = trust
        self._keep_seconds = keep_seconds
        self._free: list[httpcore.AsyncHTTPConnection] = []
        self._lent: set[httpcore.AsyncHTTPConnection] = set()
        self._backend = GuardedBackend(lambda stream: parser_on(self.connections, stream))

    @property
    def connections(self) -> list[httpcore.AsyncHTTPConnection]:
        """All of them."""
        return [*self._free, *self._lent]

    async def handle_async_request(self, request: httpcore.Request) -> httpcore.Response:
        """Send, and give the answer as it begins; its connection comes back when it is closed."""
        for _ in range(_TRIES):
            connection = await self._borrow(request.url.origin)
            try:
                response = await connection.handle_async_request(request)
                break
            except httpcore.ConnectionNotAvailable:  # nothing was sent
                await self._return(connection)
            except BaseException:
                await self._return(connection)
                raise
        else:
            raise httpcore.ConnectError("no connection lasted until it was to be used")
        return httpcore.Response(
            response.status,
            headers=response.headers,
            content=_Body(response, self, connection),
            extensions=response.extensions,
        )

    async def drop_idle(self) -> None:
        """Close the connections that nobody uses."""
        idle, self._free = self._free, []  # at once: each one closed gives others a turn
        for connection in idle:
            await connection.aclose()

    async def aclose(self) -> None:
        """Close all connections."""
        every, self._free = self.connections, []
        self._lent.clear()
        with trio.CancelScope(shield=True):
            for connection in every:
                await connection.aclose()

    async def __aenter__(self) -> Self:
        """As a pool."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        raised: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """As a pool."""
        await self.aclose()

    async def _borrow(self, origin: httpcore.Origin) -> httpcore.AsyncHTTPConnection:
        while self._free:
            connection = self._free.pop()
            if connection.can_handle_request(origin) and not (
                connection.is_closed() or connection.has_expired()
            ):
                break
            await connection.aclose()
        else:
            connection = httpcore.AsyncHTTPConnection(
                origin,
                ssl_context=self._trust,
                keepalive_expiry=self._keep_seconds,
                network_backend=self._backend,
            )
        self._lent.add(connection)
        return connection

    async def _return(self, connection: httpcore.AsyncHTTPConnection) -> None:
        """It is not used any more."""
        if connection not in self._lent:
            return
        self._lent.discard(connection)
        if connection.is_idle() and not connection.is_closed():
            self._free.append(connection)
        else:
            with trio.CancelScope(shield=True):
                await connection.aclose()


class _Body:
    """The body of an answer; when it is closed, its connection is free."""

    def __init__(
        self, response: httpcore.Response, lines: Lines, connection: httpcore.AsyncHTTPConnection
    ) -> None:
        self._stream = response.stream
        self._lines = lines
        self._connection = connection

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for part in self._stream:  # type: ignore[union-attr]
            yield part

    async def aclose(self) -> None:
        await self._stream.aclose()  # type: ignore[union-attr]
        await self._lines._return(self._connection)


Parsers = Callable[[object], h11.Connection | None]
"""Gives the HTTP parser that a stream feeds, None where it is not found."""


class _GuardedStream(httpcore.AsyncNetworkStream):
    """Looks for bytes that nobody has asked for, at the moment in which a request is to be sent."""

    def __init__(self, stream: httpcore.AsyncNetworkStream, parser: Parsers) -> None:
        self._stream = stream
        self._parser = parser
        self._used = False  # a request was sent
        self._begins = True  # what is sent next begins a request

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """As the stream below."""
        self._begins = True
        return await self._stream.read(max_bytes, timeout)

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """As the stream below; raises ConnectionNotAvailable where something follows an answer."""
        if buffer and self._begins:
            if self._used and self._has_more():
                raise httpcore.ConnectionNotAvailable
            if not self._used and not is_quiet(self._stream, used=False):
                raise httpcore.ConnectError("the service answers before it is asked")
            self._used, self._begins = True, False
        await self._stream.write(buffer, timeout)

    def _has_more(self) -> bool:
        parser = self._parser(self)
        if parser is None or parser.trailing_data[0]:
            return True
        return not is_quiet(self._stream, used=True)

    async def aclose(self) -> None:
        """As the stream below."""
        await self._stream.aclose()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """As the stream below."""
        secured = await self._stream.start_tls(ssl_context, server_hostname, timeout)
        return _GuardedStream(secured, self._parser)

    def get_extra_info(self, info: str) -> Any:
        """As the stream below."""
        return self._stream.get_extra_info(info)


class GuardedBackend(httpcore.AsyncNetworkBackend):
    """Makes such streams."""

    def __init__(self, parser: Parsers) -> None:
        self._system = httpcore.TrioBackend()
        self._parser = parser

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """A connection to `host`."""
        stream = await self._system.connect_tcp(host, port, timeout, local_address, socket_options)
        return _GuardedStream(stream, self._parser)


def is_quiet(stream: httpcore.AsyncNetworkStream, *, used: bool) -> bool:
    """Whether nothing has been received that no request has asked for, within TLS included.

    `used`: a request was sent before.  If none was, TLS itself may have more to say.
    """
    if used and stream.get_extra_info("is_readable"):
        return False
    tunnel = stream.get_extra_info("ssl_object")
    try:
        if tunnel is not None:
            tunnel.read(1)
    except ssl.SSLWantReadError:
        return True
    except ssl.SSLError:
        return False
    return tunnel is None


def parser_on(connections: Iterable[object], stream: object) -> h11.Connection | None:
    """The HTTP parser that `stream` feeds, which is that of one of `connections` of httpcore.

    None where it is not found, or their insides are not as they are known.  Tests hold the pinned
    version to the private names here.
    """
    for connection in connections:
        spoken = getattr(connection, "_connection", None)
        if getattr(spoken, "_network_stream", None) is stream:
            found = getattr(spoken, "_h11_state", None)
            return found if isinstance(found, h11.Connection) else None
    return None


def keep(client: httpx.AsyncClient, trust: ssl.SSLContext, keep_seconds: float) -> None:
    """Let a new client use such connections; those through a proxy are guarded alone.

    httpx has no public way to its pools, hence the private names.
    """
    transport = client._transport
    assert isinstance(transport, httpx.AsyncHTTPTransport)
    transport._pool = Lines(trust, keep_seconds)  # type: ignore[assignment]
    for other in client._mounts.values():
        if isinstance(other, httpx.AsyncHTTPTransport):
            pool = other._pool
            pool._network_backend = GuardedBackend(partial(_parser_in, pool))


def _parser_in(pool: httpcore.AsyncConnectionPool, stream: object) -> h11.Connection | None:
    return parser_on(pool.connections, stream)
