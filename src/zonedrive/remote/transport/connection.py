"""Connections to one origin through libcurl; each carries one request at a time.

This module contains no endpoints. Each connection has its own multi handle, so that this
module alone decides which request uses which connection.

INVARIANT: libcurl never sends a request twice, and opens no second connection for a request.
INVARIANT: no byte that arrived before a request was sent is part of its response.
"""

import contextlib
import fcntl
import os
import select
import socket
import struct
import termios
import threading
import time
from collections.abc import Iterable
from typing import Final, NamedTuple

import httpx
import pycurl

from zonedrive.remote.transport.engine import (
    TIMERS,
    Engine,
    carry,
    configure,
    failure,
    release,
    socket_of,
    was_sent,
    watch_peer,
)
from zonedrive.remote.transport.exchange import SENT, Exchange
from zonedrive.remote.transport.tls import Trust

CERTIFICATE: Final = "certificate"
"""Request extension: report the server's certificate. Response extension: the certificate (PEM)."""
KEPT: Final = 32  # maximum number of idle connections
KEEP_SECONDS: Final = 300.0
UNSEEN_BYTES: Final = 1 << 20  # maximum number of received bytes without response data
_WITH_BODY: Final = ("POST", "PUT", "PATCH")  # send Content-Length even for an empty body
_LONGEST: Final = 3600  # seconds of one wait
_ESTABLISHED: Final = 1
_UPLOADED: Final[int] = getattr(pycurl, "SIZE_UPLOAD_T", pycurl.SIZE_UPLOAD)


class _Wire(NamedTuple):
    """State and byte counters of a TCP socket in the kernel; the defaults mean a closed socket."""

    state: int = 0
    received: int = -1
    queued: int = 0  # received but not read
    acknowledged: int = 0  # sent bytes that the peer has acknowledged


class Connection(Engine):
    """Connection to one origin, opened by its first request. Only `abort` is thread-safe."""

    def __init__(self, trust: Trust, url: httpx.URL) -> None:
        super().__init__(url)
        self.origin = (url.scheme, url.netloc)
        self.free_since = 0.0
        self._sockets: dict[int, int] = {}  # descriptor to inode
        self._received = -1  # bytes from the socket before the request was sent; -1: it is new
        self._counted = -1  # received bytes at the last progress of the response; -1: unknown
        self._form: object = None  # method, length and extension of the previous request
        self._is_refused = False
        self._exchange: Exchange | None = None
        self._lock = threading.Lock()  # protects the next two attributes
        self._aborted = self._is_closed = False
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self.epoll.register(self._wake, select.EPOLLIN)
        self._easy = pycurl.Curl()
        configure(self._easy, trust, self._proxy)
        self._easy.setopt(pycurl.SOCKOPTFUNCTION, self._opened)

    def begin(self, exchange: Exchange) -> None:
        """Start sending the request of `exchange`, without waiting."""
        self._exchange, exchange.is_ahead = exchange, self.is_ahead
        exchange.is_first = self._received < 0
        self._counted = -1
        request, easy = exchange.request, self._easy
        carry(easy, exchange)
        form = (request.method, exchange.length, CERTIFICATE in request.extensions)
        if form != self._form:
            self._form = form
            easy.setopt(pycurl.OPT_CERTINFO, int(CERTIFICATE in request.extensions))
            easy.unsetopt(pycurl.CUSTOMREQUEST)
            if exchange.length or request.method in _WITH_BODY:
                easy.setopt(pycurl.POST, 1)
                easy.setopt(pycurl.POSTFIELDSIZE_LARGE, exchange.length)
            else:
                easy.setopt(pycurl.HTTPGET, 1)
                easy.setopt(pycurl.NOBODY, int(request.method == "HEAD"))
            if request.method not in ("GET", "HEAD", "POST"):
                easy.setopt(pycurl.CUSTOMREQUEST, request.method)
        self.multi.add_handle(easy)
        self.step(())

    def seconds_left(self) -> float:
        """Return the maximum number of seconds to wait for an event of `epoll`.

        Raises httpx.TimeoutException if the request's deadline has passed.
        """
        assert self._exchange is not None
        now = time.monotonic()
        end, kind = self._exchange.due()
        if end <= now and self._is_leaving(self._exchange):
            self._exchange.moved = now
            end, kind = self._exchange.due()
        if end <= now:
            raise kind("too little data arrived in time")
        end = min(end, now + _LONGEST)
        return max(0.0, min(end, end if self.alarm is None else self.alarm) - now)

    def step(self, events: Iterable[tuple[int, int]]) -> None:
        """Process events from `epoll`. Raises httpx.ReadError after `abort`."""
        exchange = self._exchange
        if self._aborted:
            raise httpx.ReadError("the transfer was aborted")
        if exchange is None or exchange.is_over:
            return
        seen, unsent = exchange.seen, exchange.unsent
        self.act(events)
        if not (events and exchange.is_sent):
            self._when_due()
        if exchange.is_held and exchange.is_asked and not exchange.seen:
            exchange.is_held = False
            with contextlib.suppress(pycurl.error):  # the request may have ended
                self._easy.pause(pycurl.PAUSE_CONT)
            self._when_due()
        if not exchange.is_sent:
            exchange.is_sent = was_sent(self._easy)
            if exchange.is_sent:
                exchange.moved = time.monotonic()
                exchange.request.extensions[SENT] = True
        if exchange.flushed < exchange.length and not exchange.unsent:
            flushed = int(self._easy.getinfo(_UPLOADED))
            if flushed > exchange.flushed:
                exchange.flushed, exchange.moved = flushed, time.monotonic()
        if exchange.has_head and CERTIFICATE in exchange.request.extensions:
            chain = self._easy.getinfo(pycurl.INFO_CERTINFO)
            exchange.certificate = dict(chain[0]).get("Cert") if chain else None
        _, good, bad = self.multi.info_read()
        if good or bad:
            self._end(exchange, *(bad[0][1:] if bad else (0, "")))
        elif exchange.seen != seen:
            exchange.moves()
            self._counted = -1
        elif exchange.unsent == unsent and exchange.is_sent and self._is_barren():
            self._end(exchange, pycurl.E_RECV_ERROR, "the received data is not an HTTP answer")

    def _is_leaving(self, exchange: Exchange) -> bool:
        """Return True if the peer acknowledged more of the request body since the last call.

        libcurl itself shows progress only after it has sent a whole large piece.
        """
        if not exchange.is_sent or exchange.flushed >= exchange.length:
            return False
        taken, before = self._wire().acknowledged, exchange.acknowledged
        exchange.acknowledged = taken
        return taken > before

    def _is_barren(self) -> bool:
        """Return True if libcurl read over UNSEEN_BYTES bytes without finding response data."""
        received = self._taken()
        if self._counted < 0:
            self._counted = received
        return received - self._counted > UNSEEN_BYTES

    def go_on(self) -> None:
        """Resume a paused response after the consumer has read some of the received bytes."""
        exchange = self._exchange
        if exchange is not None and exchange.is_paused:
            exchange.is_paused = False
            with contextlib.suppress(pycurl.error):  # the request may have ended
                self._easy.pause(pycurl.PAUSE_CONT)
            self.step(())

    def is_quiet(self) -> bool:
        """Return True if the connection is open and no unread data has arrived.

        Also record the number of received bytes, for `is_ahead`.
        """
        wire = self._wire()
        is_open = wire.state == _ESTABLISHED and not wire.queued
        self._received = wire.received if is_open else -1
        return self._received >= 0 and not self._aborted

    def is_ahead(self) -> bool:
        """Return True if all bytes read so far had arrived before the current request was sent.

        Such bytes cannot be the response to this request.
        """
        return 0 <= self._taken() <= self._received

    def _taken(self) -> int:
        wire = self._wire()
        return wire.received - wire.queued

    def _wire(self) -> "_Wire":
        for descriptor, inode in self._sockets.items():
            with contextlib.suppress(OSError):
                if os.fstat(descriptor).st_ino == inode:  # the descriptor was not reused
                    return _counters(descriptor)
        return _Wire()

    def abort(self, exchange: Exchange | None = None) -> None:
        """Make the next `step` raise httpx.ReadError. Thread-safe.

        If `exchange` is given, do nothing unless the connection still carries `exchange`.
        """
        with self._lock:
            if not self._is_closed and exchange in (None, self._exchange):
                self._aborted = True
                os.eventfd_write(self._wake, 1)

    def close(self) -> None:
        """Close the connection and abandon its request."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
        if self._exchange is not None and not self._exchange.is_over:
            self.remove(self._easy)
        self._easy.close()
        self.dispose()
        os.close(self._wake)

    def release(self) -> None:
        """Detach the finished exchange, so that the connection can carry another exchange.

        An `abort` of the finished exchange has no effect from now on.
        """
        with self._lock:
            self._exchange = None
        release(self._easy)
        self.free_since = time.monotonic()

    def _end(self, exchange: Exchange, code: int, text: str) -> None:
        easy = self._easy
        if code and exchange.wrong is None and not (exchange.is_early and exchange.status < 300):
            if self._is_refused:
                text = "the connection ended before the answer"
            exchange.wrong = failure(easy, exchange, code, text, self._proxy)
        if easy.getinfo(_UPLOADED) < exchange.length:
            exchange.is_early = True
        exchange.is_over = True
        self.remove(easy)
        if code:
            self._sockets.clear()

    def _when_due(self) -> None:
        exchange = self._exchange
        self.act_on_timers(1 if exchange and exchange.is_sent else TIMERS)

    # ---- called by libcurl ----

    def _watch(self, what: int, descriptor: int, multi: object, data: object) -> None:
        exchange = self._exchange
        if what == pycurl.POLL_REMOVE and exchange and exchange.has_head and not exchange.is_paused:
            return  # the response has come; the next request waits for the same socket
        super()._watch(what, descriptor, multi, data)

    def _opened(self, descriptor: int, _purpose: int) -> int:
        self._is_refused = self._received >= 0
        if self._is_refused:
            return int(pycurl.SOCKOPT_ERROR)
        self._sockets[descriptor] = os.fstat(descriptor).st_ino
        return watch_peer(descriptor)


def _counters(descriptor: int) -> _Wire:
    """Return the kernel's counters of a socket as a consistent snapshot.

    Two system calls read the counters, and bytes that arrive between the calls make the counters
    inconsistent. Therefore the calls are repeated until no bytes are queued or two successive
    results agree. If the results still differ after 100 attempts, return the last result. The
    number of read bytes computed from it (`received - queued`) may then be too low.
    """
    wire = _Wire()
    with socket_of(descriptor) as opened:
        for _ in range(100):
            before = wire
            info = opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 136)
            acknowledged, received = struct.unpack_from("QQ", info, 120)
            answer = fcntl.ioctl(descriptor, termios.FIONREAD, b"0000")
            wire = _Wire(info[0], received, struct.unpack("i", answer)[0], acknowledged)
            if not wire.queued or (wire.received, wire.queued) == (before.received, before.queued):
                break
    return wire


class Pool:
    """Pool of one client's open connections, reused last in, first out. Thread-safe.

    INVARIANT: a connection is lent to one request at a time, and returns to the pool only after its
    response was read to the end; any other connection is closed.
    INVARIANT: the pool does not limit the number of connections in use, which equals the number of
    concurrent requests.
    """

    def __init__(self, trust: Trust) -> None:
        self._trust = trust
        self._lock = threading.Lock()
        self._idle: list[Connection] = []
        self._lent: set[Connection] = set()
        self._ended = False

    def __len__(self) -> int:
        return len(self._idle) + len(self._lent)

    def borrow(self, url: httpx.URL, *, new: bool) -> Connection:
        """Return a usable idle connection to the origin of `url`, or a new connection.

        If `new` is true, always return a new connection. Raises httpx.ConnectError after `hang_up`.
        """
        found: Connection | None = None
        over = []
        with self._lock:
            if self._ended:
                raise httpx.ConnectError("all connections are closed")
            while self._idle and not new and found is None:
                found = self._idle.pop()
                if (
                    found.origin != (url.scheme, url.netloc)
                    or time.monotonic() - found.free_since > KEEP_SECONDS
                    or not found.is_quiet()
                ):
                    over.append(found)
                    found = None
            found = found or Connection(self._trust, url)
            self._lent.add(found)
        for each in over:
            each.close()
        return found

    def give_back(self, connection: Connection) -> None:
        """Return a connection to the pool after its response was read to the end."""
        connection.release()
        with self._lock:
            self._lent.discard(connection)
            keep = not self._ended and len(self._idle) < KEPT
            if keep:
                self._idle.append(connection)
        if not keep:
            connection.close()

    def discard(self, connection: Connection) -> None:
        """Close a borrowed connection."""
        with self._lock:
            self._lent.discard(connection)
        connection.close()

    def has_idle(self) -> bool:
        """Return True if an idle connection is usable."""
        with self._lock:
            return any(each.is_quiet() for each in self._idle)

    def drop_idle(self) -> None:
        """Close the idle connections.

        After a suspend or a change of network, all idle connections are dead, and each would delay
        a request until a timeout.
        """
        with self._lock:
            idle, self._idle = self._idle, []
        for each in idle:
            each.close()

    def cut(self) -> None:
        """Abort all connections in use; callers may retry their requests on new connections."""
        with self._lock:
            for each in self._lent:
                each.abort()

    def hang_up(self) -> None:
        """Abort the connections in use, close the idle ones, and refuse to open new ones."""
        with self._lock:
            self._ended = True
        self.cut()
        self.drop_idle()
