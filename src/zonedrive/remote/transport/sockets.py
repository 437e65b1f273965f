"""The sockets below the clients: noticing a peer that only drips, and letting go of dead ones.

Must not know requests.  httpx has a timeout for each call of the socket, which a byte a second
never meets; here the time spent waiting is added up until enough has come.

INVARIANT: over STALL_SECONDS of waiting for an answer that has begun, at least STALL_BYTES come,
or the connection ends in a timeout.  Time between two reads (a consumer's pause) does not count.
INVARIANT: no byte that came before a request was sent is part of the answer to it.
"""

import contextlib
import itertools
import select
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final

import h11
import httpcore
import httpx

from zonedrive.remote.transport import deadline
from zonedrive.remote.transport.channel import Channel, Plain, Tls
from zonedrive.remote.transport.lines import Lines, parser_on
from zonedrive.remote.transport.open_connections import Open
from zonedrive.turns import TURN

STALL_SECONDS: Final = 30.0
STALL_BYTES: Final = 4096

# A peer that has vanished (a suspend, another network) is noticed in half a minute by the system,
# however long the service may take for an answer.
VANISHED: Final = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 15),  # seconds
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5),  # seconds
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 30_000),  # milliseconds
)


INFORMATIONAL: Final = b"HTTP/1.1 1"  # how an answer begins that is not the last one
EARLY_BYTES: Final = 64 * 1024  # of informational answers while a request is being sent


class Stream(httpcore.NetworkStream):
    """One connection, plain at first, then TLS."""

    def __init__(
        self,
        inner: httpcore.NetworkStream,
        stall_seconds: float,
        clock: Callable[[], float] = time.monotonic,
        open_ones: Open | None = None,
        channel: Channel | None = None,
    ) -> None:
        self.begun: ssl.SSLContext | None = None  # the trust of a connection made ahead
        self._inner = inner
        self._socket: socket.socket = inner.get_extra_info("socket")
        self._channel: Channel = channel or Plain(self._socket)
        self._readable, self._writable, self._either = (select.poll() for _ in range(3))
        self._readable.register(self._socket, select.POLLIN)
        self._writable.register(self._socket, select.POLLOUT)
        self._either.register(self._socket, select.POLLIN | select.POLLOUT)
        self._stall_seconds = stall_seconds
        self._clock = clock
        self.exchange = 0  # which request, and its answer, are on it
        self._changing = threading.Lock()  # of that
        self._asked = True  # nothing of the answer has come yet
        self._used = False  # a request was sent
        self._is_ended = False  # the peer sends no more
        self._ahead = b""  # received while a request was being sent
        self.is_early = False  # so the answer is none to the whole request
        self.parser: Callable[[Stream], h11.Connection | None] = lambda stream: None
        self._waited = 0.0
        self._came = 0
        self._open_ones = open_ones or Open()
        self._open_ones.add(self)

    def hang_up(self, exchange: int | None = None) -> None:
        """Make a read or write that another thread waits in end now (closing would not).

        Not where the connection is another exchange's by now, if one is given.
        """
        with self._changing:
            if exchange in (None, self.exchange):
                with contextlib.suppress(OSError):  # it has ended by itself
                    self._socket.shutdown(socket.SHUT_RDWR)

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """What is there, once something is."""
        buffer = memoryview(bytearray(max_bytes))
        return bytes(buffer[: self.fill(buffer, timeout)])

    def fill(self, into: memoryview, timeout: float | None = None) -> int:
        """Put what is there into `into`, once something is; how much, 0 at the end."""
        if self._ahead:
            count = min(len(self._ahead), len(into))
            into[:count], self._ahead = self._ahead[:count], self._ahead[count:]
            self._asked = False
            return count
        began = self._clock()
        try:
            while True:
                left = deadline.left(timeout)
                with TURN:
                    count, ended = self._take(into)
                if count or ended:
                    break
                self._wait(self._readable, left)
        except TimeoutError as slow:
            raise httpcore.ReadTimeout(str(slow)) from slow
        except (OSError, ValueError) as wrong:  # ValueError: closed meanwhile
            raise httpcore.ReadError(str(wrong)) from wrong
        self._account(count, self._clock() - began)
        return count

    def _take(self, into: memoryview) -> tuple[int, bool]:
        """What is there now: how much, and whether that was the end.  Does not wait."""
        count = 0
        while count < len(into):
            came = self._channel.take(into[count:])
            if not came:
                return count, came is not None
            count += came
        return count, not into

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """All of `buffer`; `timeout` is for each piece that the system takes.

        Raises WriteError where the answer comes before the end of the request, which httpcore
        goes on to read; ConnectionNotAvailable where something came before its beginning.
        """
        if not buffer:
            return  # the mark of an end, which the answer may have overtaken
        self._begin_write()
        rest = memoryview(buffer)
        try:
            while rest:
                with TURN:
                    while rest and (taken := self._channel.give(rest)):
                        rest = rest[taken:]
                if rest:
                    self._wait_to_write(timeout)
            while not self._channel.flush():
                self._wait_to_write(timeout)
        except TimeoutError as slow:
            raise httpcore.WriteTimeout(str(slow)) from slow
        except (OSError, ValueError) as wrong:
            raise httpcore.WriteError(str(wrong)) from wrong

    def _begin_write(self) -> None:
        if not self._asked:
            with self._changing:
                self.exchange += 1
        begins, again = not self._asked or not self._used, self._used
        self._asked, self._used, self._waited, self._came = True, True, 0.0, 0
        deadline.restart()
        if begins and again:
            parser = self.parser(self)
            if parser is None or parser.trailing_data[0] or self._ahead or not self.is_quiet():
                raise httpcore.ConnectionNotAvailable
        elif begins and self._is_answered():
            raise httpcore.RemoteProtocolError("the service answers before it is asked")
        else:
            self._check_early()

    def _wait_to_write(self, timeout: float | None) -> None:
        """Until the system takes more, or the answer comes.  Raises TimeoutError, WriteError."""
        self._wait(self._writable if self._is_ended else self._either, timeout)
        self._check_early()

    def _check_early(self) -> None:
        if self._is_answered():
            self.is_early = True
            raise httpcore.WriteError("the answer came before the end of the request")

    def _is_answered(self) -> bool:
        """Whether more than informational answers came while a request is being sent."""
        with contextlib.suppress(OSError, ValueError):
            piece = memoryview(bytearray(EARLY_BYTES))
            while len(self._ahead) < EARLY_BYTES and (count := self._channel.take(piece)):
                self._ahead += piece[:count]
            self._is_ended = count == 0
        answer = self._ahead
        while answer.startswith(INFORMATIONAL):
            answer = answer.partition(b"\r\n\r\n")[2]
        return not INFORMATIONAL.startswith(answer) or len(self._ahead) >= EARLY_BYTES

    def is_quiet(self) -> bool:
        """Whether a connection that was made ahead is as it was; the peer may have closed it."""
        try:
            return self._channel.take(memoryview(bytearray(1))) is None
        except (OSError, ValueError):
            return False

    def close(self) -> None:
        """End the connection."""
        self._inner.close()

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore.NetworkStream:
        """The same connection with TLS, also within TLS (that of a proxy)."""
        if self.begun is ssl_context:
            self.begun = None
            return self
        channel = Tls(self._channel, ssl_context, server_hostname)
        end = None if timeout is None else self._clock() + timeout
        try:
            while not channel.shake():
                self._wait(self._readable, None if end is None else max(0, end - self._clock()))
        except TimeoutError as slow:
            self.close()
            raise httpcore.ConnectTimeout(str(slow)) from slow
        except (OSError, ValueError) as wrong:
            self.close()
            raise httpcore.ConnectError(str(wrong)) from wrong
        secured = Stream(self._inner, self._stall_seconds, self._clock, self._open_ones, channel)
        secured.parser = self.parser
        return secured

    def get_extra_info(self, info: str) -> Any:
        """As the connection below."""
        if info == "ssl_object":
            return self._channel.tls
        return self._inner.get_extra_info(info)

    def _wait(self, until: select.poll, timeout: float | None) -> None:
        if not until.poll(None if timeout is None else timeout * 1000):
            raise TimeoutError(f"nothing passed for {timeout:g} s")

    def _account(self, count: int, waited: float) -> None:
        if self._asked:
            # How long a service may think before it answers is the read timeout's matter.
            self._asked = False
            return
        self._waited += waited
        self._came += count
        if self._came >= STALL_BYTES:
            self._waited, self._came = 0.0, 0
        elif self._waited >= self._stall_seconds and count:
            raise httpcore.ReadTimeout(f"{self._came} bytes in {self._waited:.0f} s")


class Backend(httpcore.NetworkBackend):
    """Makes such connections."""

    def __init__(self, stall_seconds: float = STALL_SECONDS) -> None:
        self._system = httpcore.SyncBackend()
        self._stall_seconds = stall_seconds
        self._ahead: tuple[tuple[str, int], Stream] | None = None
        self._lock = threading.Lock()  # of this
        self.open_ones = Open()
        self.parser: Callable[[Stream], h11.Connection | None] = lambda stream: None

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        """A connection to `host`."""
        if (ahead := self._take_ahead((host, port))) is not None:
            return ahead
        every = [*(socket_options or ()), *VANISHED]
        inner = self._system.connect_tcp(host, port, timeout, local_address, every)
        stream = Stream(inner, self._stall_seconds, open_ones=self.open_ones)
        stream.parser = self.parser
        return stream

    def prepare(self, host: str, port: int, trust: ssl.SSLContext, timeout: float) -> None:
        """Make a connection with TLS that the next `connect_tcp` finds; as that, it blocks.

        Raises httpcore's errors.
        """
        if (ready := self._take_ahead((host, port))) is None:
            made = self.connect_tcp(host, port, timeout).start_tls(trust, host, timeout)
            assert isinstance(made, Stream)
            ready = made
            ready.begun = trust
        with self._lock:
            before, self._ahead = self._ahead, ((host, port), ready)
        if before is not None:
            before[1].close()

    def drop(self) -> None:
        """Close what was made ahead."""
        with self._lock:
            ahead, self._ahead = self._ahead, None
        if ahead is not None:
            ahead[1].close()

    def _take_ahead(self, whither: tuple[str, int]) -> Stream | None:
        with self._lock:
            if self._ahead is None or self._ahead[0] != whither:
                return None
            stream, self._ahead = self._ahead[1], None
        if stream.is_quiet():
            return stream
        stream.close()
        return None


def prepare(client: httpx.Client, address: httpx.URL, timeout: float) -> None:
    """Have a connection ready where none is free; what fails is no matter.  Not for proxies."""
    pool = getattr(client._transport, "_pool", None)
    backend = getattr(pool, "_network_backend", None)
    trust = getattr(pool, "_ssl_context", None)
    if client._mounts or pool is None or trust is None or not isinstance(backend, Backend):
        return
    for connection in pool.connections:
        if connection.is_idle() and not connection.has_expired():
            return
    with contextlib.suppress(httpcore.NetworkError, httpcore.TimeoutException):
        backend.prepare(address.host, address.port or 443, trust, timeout)


def guard(client: httpx.Client, stall_seconds: float = STALL_SECONDS) -> None:
    """Make all of a new client's connections, those through proxies too, such sockets.

    httpx has no public way to its pools, hence the private names here and below; tests hold the
    pinned version to them.
    """
    backend = Backend(stall_seconds)
    backend.parser = partial(parser_of, client)
    for transport in _transports(client):
        transport._pool._network_backend = backend


def hang_up(client: httpx.Client) -> None:
    """End all connections of a client that is guarded, those in use too."""
    for transport in _transports(client):
        backend = transport._pool._network_backend
        if isinstance(backend, Backend):
            backend.open_ones.hang_up()
            backend.drop()


def cut(client: httpx.Client) -> None:
    """End the connections that a client has now; what they were used for may be tried again."""
    for transport in _transports(client):
        backend = transport._pool._network_backend
        if isinstance(backend, Backend):
            backend.open_ones.cut()


def _transports(client: httpx.Client) -> list[httpx.HTTPTransport]:
    every = (client._transport, *client._mounts.values())
    return [transport for transport in every if isinstance(transport, httpx.HTTPTransport)]


async def drop_idle(client: httpx.AsyncClient) -> None:
    """Close the kept connections that nothing is using.

    After a suspend or a change of network all of them are dead at once, and each would cost a
    request its patience.
    """
    for transport in (client._transport, *client._mounts.values()):
        if not isinstance(transport, httpx.AsyncHTTPTransport):
            continue
        pool = transport._pool
        if isinstance(pool, Lines):
            await pool.drop_idle()
            continue
        for connection in pool.connections:  # of which the pool takes another, where one breaks
            if connection.is_idle():
                await connection.aclose()


def parser_of(client: httpx.Client, stream: object) -> h11.Connection | None:
    """The HTTP parser that a connection of a client feeds; None where it is not found."""
    every = (transport._pool.connections for transport in _transports(client))
    return parser_on(itertools.chain.from_iterable(every), stream)


def drop_idle_in_thread(client: httpx.Client) -> None:
    """As `drop_idle`, for the client of worker threads.

    A connection that another thread takes up at this moment breaks under it, which that request
    survives as any other break.
    """
    for transport in _transports(client):
        if isinstance(transport._pool._network_backend, Backend):
            transport._pool._network_backend.drop()
        for connection in transport._pool.connections:
            if connection.is_idle():
                connection.close()
