"""The kept connections of the metadata client: the one that was free last serves next.

Must not know requests or endpoints.  httpcore's own pool looks at the sockets of all connections
before and after each request; with many small requests on many connections that cost more than
the requests themselves.  Here only the connection that is to be used is looked at.

INVARIANT: a connection is lent to one request at a time, and comes back only when its answer was
read to the end and nothing followed it; any other is closed.
INVARIANT: a request goes out only while nothing has been received that no request has asked for.
INVARIANT: what is lent is closed by nobody else, also before its request has begun.
INVARIANT: how many there are is the caller's matter: as many as requests at once.
"""

import ssl
from collections.abc import AsyncIterator, Mapping
from types import TracebackType
from typing import Any, Self
from weakref import WeakKeyDictionary

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
        self._streams: WeakKeyDictionary[
            httpcore.AsyncHTTPConnection, httpcore.AsyncNetworkStream
        ] = WeakKeyDictionary()

    @property
    def connections(self) -> list[httpcore.AsyncHTTPConnection]:
        """All of them."""
        return [*self._free, *self._lent]

    async def handle_async_request(self, request: httpcore.Request) -> httpcore.Response:
        """Send, and give the answer as it begins; its connection comes back when it is closed."""
        guard = _Guard(request)
        for _ in range(_TRIES):
            connection = await self._borrow(request.url.origin)
            guard.stream, guard.used = self._streams.get(connection), True
            try:
                response = await connection.handle_async_request(request)
                self._streams[connection] = response.extensions["network_stream"]
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
                origin, ssl_context=self._trust, keepalive_expiry=self._keep_seconds
            )
        self._lent.add(connection)
        return connection

    async def _return(self, connection: httpcore.AsyncHTTPConnection) -> None:
        """It is not used any more."""
        if connection not in self._lent:
            return
        self._lent.discard(connection)
        parser = parser_of(connection)
        whole = parser is not None and not parser.trailing_data[0]
        if whole and connection.is_idle() and not connection.is_closed():
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


class _Guard:
    """Looks at a connection at the moment in which a request is to be sent on it."""

    def __init__(self, request: httpcore.Request) -> None:
        self.stream: httpcore.AsyncNetworkStream | None = None
        self.used = False
        self._told = request.extensions.get("trace")
        request.extensions = {**request.extensions, "trace": self.trace}

    async def trace(self, event: str, info: Mapping[str, Any]) -> None:
        """Called by httpcore at each step.  Raises ConnectionNotAvailable: nothing was sent."""
        if event == "connection.start_tls.complete":
            self.stream, self.used = info["return_value"], False
        elif (
            event == "http11.send_request_headers.started"
            and self.stream is not None
            and not is_quiet(self.stream, used=self.used)
        ):
            raise httpcore.ConnectionNotAvailable
        if self._told is not None:
            await self._told(event, info)


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


def parser_of(connection: object) -> h11.Connection | None:
    """The HTTP parser of a connection of httpcore; None where its insides are not as known.

    A test holds the pinned versions to the private names here.
    """
    found = getattr(getattr(connection, "_connection", None), "_h11_state", None)
    return found if isinstance(found, h11.Connection) else None


def keep(client: httpx.AsyncClient, trust: ssl.SSLContext, keep_seconds: float) -> None:
    """Let a new client use such connections, unless they go through a proxy.

    httpx has no public way to its pools, hence the private names.
    """
    transport = client._transport
    assert isinstance(transport, httpx.AsyncHTTPTransport)
    transport._pool = Lines(trust, keep_seconds)  # type: ignore[assignment]
