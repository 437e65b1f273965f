"""Common base for all requests through libcurl: options, sockets, timers and errors.

The caller chooses how to wait: the engine provides the sockets (`epoll`) and the time (`alarm`) to
wait for, and continues when the caller calls `act` or `act_on_timers`.

INVARIANT: `failure` returns httpx.ConnectError or ProxyFailure only if no part of the request was
sent to the service.
INVARIANT: with libcurl 7.87 or later, no call waits for a host name lookup, which can take long.
"""

import contextlib
import errno
import os
import select
import socket
import ssl
import threading
import time
from collections.abc import Iterable, Iterator
from typing import Final

import httpx
import pycurl

from zonedrive.errors import ProxyFailed
from zonedrive.formatting import plain_text
from zonedrive.remote.transport.exchange import TARGET, Exchange
from zonedrive.remote.transport.proxies import Proxy, ProxyFailure, proxy_for
from zonedrive.remote.transport.tls import Trust

# The kernel detects a vanished peer (after a suspend or a change of network) within half a minute,
# however long the service takes to respond.
VANISHED: Final = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 15),  # seconds
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5),  # seconds
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 30_000),  # milliseconds
)
READ_BYTES: Final = 16 * 1024  # bytes of one read; libcurl reads up to a hundred times in a row
SEND_BYTES: Final = 512 * 1024
TIMERS: Final = 4  # libcurl's timers processed in one step, before the request is sent
_EVENTS: Final = {
    pycurl.POLL_REMOVE: 0,
    pycurl.POLL_IN: select.EPOLLIN,
    pycurl.POLL_OUT: select.EPOLLOUT,
    pycurl.POLL_INOUT: select.EPOLLIN | select.EPOLLOUT,
}
_FOREVER: Final = 100_000  # seconds; zonedrive's timeouts are shorter
_SUPPRESS_CONNECT_HEADERS: Final = 265  # pycurl has no name for it
_QUICK_EXIT: Final = 322  # the same; do not wait for the lookup of a removed handle
_HAS_QUICK_EXIT: Final = pycurl.version_info()[2] >= 0x075700  # 7.87
GNUTLS: Final = "GnuTLS" in pycurl.version
_FIXED: Final = (
    (pycurl.NOSIGNAL, 1),
    (pycurl.PROTOCOLS, pycurl.PROTO_HTTPS),
    (pycurl.PATH_AS_IS, 1),
    (pycurl.HTTP_VERSION, pycurl.CURL_HTTP_VERSION_1_1),
    (pycurl.SSLVERSION, pycurl.SSLVERSION_TLSv1_2),
    (pycurl.SSL_VERIFYPEER, 1),
    (pycurl.SSL_VERIFYHOST, 2),
    (pycurl.PROXY_SSL_VERIFYPEER, 1),
    (pycurl.PROXY_SSL_VERIFYHOST, 2),
    (pycurl.HEADEROPT, pycurl.HEADER_SEPARATE),  # a proxy sees no bearer token
    (_SUPPRESS_CONNECT_HEADERS, 1),
    (pycurl.NOPROXY, ""),
    (pycurl.USERAGENT, ""),
    (pycurl.BUFFERSIZE, READ_BYTES),
    (pycurl.UPLOAD_BUFFERSIZE, SEND_BYTES),
    (pycurl.CONNECTTIMEOUT, _FOREVER),
    (pycurl.MAXAGE_CONN, _FOREVER),
    *([(_QUICK_EXIT, 1)] if _HAS_QUICK_EXIT else []),
)


class Engine:
    """Multi handle of libcurl, with the sockets and the timer that the handle waits for."""

    def __init__(self, url: httpx.URL) -> None:
        self._proxy = proxy_for(url.netloc.decode())
        # A host name lookup may be running. For a SOCKS proxy, libcurl does not report its end.
        self._may_look_up = self._proxy is not None and self._proxy.is_socks
        self.epoll = select.epoll()
        self.multi = pycurl.CurlMulti()
        self.multi.setopt(pycurl.M_SOCKETFUNCTION, self._watch)
        self.multi.setopt(pycurl.M_TIMERFUNCTION, self._set_alarm)
        self.alarm: float | None = None  # when to call `act_on_timers`, on the monotonic clock
        self._watched: dict[int, int] = {}

    def act(self, events: Iterable[tuple[int, int]]) -> None:
        """Process events that `epoll` reported."""
        for descriptor, what in events:
            mask = pycurl.CSELECT_IN if what & ~select.EPOLLOUT else 0
            if what & select.EPOLLOUT:
                mask |= pycurl.CSELECT_OUT
            self.multi.socket_action(descriptor, mask)

    def act_on_timers(self, most: int) -> None:
        """Process up to `most` expired timers of libcurl; each timer may start another timer."""
        for _ in range(most):
            if self.alarm is None or self.alarm > time.monotonic():
                break
            self.alarm = None
            self.multi.socket_action(pycurl.SOCKET_TIMEOUT, 0)

    def remove(self, easy: pycurl.Curl) -> None:
        """Remove `easy` from the multi handle; if its request is in progress, abort the request."""
        is_reused = was_sent(easy) and not easy.getinfo(pycurl.NUM_CONNECTS)
        # libcurl may have connected to an IPv4 address before it knew the IPv6 addresses.
        if not (is_reused or easy.getinfo(pycurl.NAMELOOKUP_TIME)):
            self._may_look_up = True
        self.multi.remove_handle(easy)

    def dispose(self) -> None:
        """Close the multi handle and `epoll`. No request may be in progress."""
        if self._may_look_up:  # libcurl 8.20 and later would wait for the lookup
            threading.Thread(target=self._close, daemon=True).start()
        else:
            self._close()

    def _close(self) -> None:
        self.multi.close()
        self.epoll.close()

    # ---- called by libcurl ----

    def _watch(self, what: int, descriptor: int, _multi: object, _data: object) -> None:
        events, before = _EVENTS[what], self._watched.pop(descriptor, 0)
        if events:
            self._watched[descriptor] = events
        if not events:
            with contextlib.suppress(OSError):
                self.epoll.unregister(descriptor)
        elif not before:
            self.epoll.register(descriptor, events)
        elif events != before:
            self.epoll.modify(descriptor, events)

    def _set_alarm(self, milliseconds: int) -> None:
        self.alarm = None if milliseconds < 0 else time.monotonic() + milliseconds / 1000


def was_sent(easy: pycurl.Curl) -> bool:
    """Return True if a part of the request was sent; a CONNECT to a proxy does not count."""
    return bool(easy.getinfo(pycurl.REQUEST_SIZE) and easy.getinfo(pycurl.PRETRANSFER_TIME))


def configure(easy: pycurl.Curl, trust: Trust, proxy: Proxy | None) -> None:
    """Set the libcurl options that are common to all requests to an origin."""
    through = (pycurl.PROXY, proxy.url if proxy else "")
    for option, value in (*_FIXED, *_trusted(trust), through):
        if value is None:
            easy.unsetopt(option)
        else:
            easy.setopt(option, value)


def carry(easy: pycurl.Curl, exchange: Exchange) -> None:
    """Set up a handle to send the request of `exchange`, and to pass the response to `exchange`."""
    request = exchange.request
    target: bytes = request.extensions.get(TARGET) or request.url.raw_path
    easy.setopt(pycurl.URL, b"https://" + request.url.netloc + target)
    easy.setopt(pycurl.HTTPHEADER, exchange.lines)
    easy.setopt(pycurl.HEADERFUNCTION, exchange.head)
    easy.setopt(pycurl.WRITEFUNCTION, exchange.body)
    easy.setopt(pycurl.READFUNCTION, exchange.give)


def release(easy: pycurl.Curl) -> None:
    """Detach a handle from its request; reject data that libcurl delivers between two requests."""
    for option in (pycurl.HEADERFUNCTION, pycurl.WRITEFUNCTION, pycurl.READFUNCTION):
        easy.setopt(option, lambda _given: -1)


def watch_peer(descriptor: int, _purpose: int = 0) -> int:
    """Set the socket options that detect a vanished peer; libcurl calls this for a new socket."""
    with socket_of(descriptor) as opened:
        for level, option, value in VANISHED:
            opened.setsockopt(level, option, value)
    return int(pycurl.SOCKOPT_OK)


@contextlib.contextmanager
def socket_of(descriptor: int) -> Iterator[socket.socket]:
    """Yield a socket object for libcurl's socket `descriptor`, and leave the socket open."""
    opened = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 0, descriptor)
    try:
        yield opened
    finally:
        opened.detach()


def _trusted(trust: Trust) -> Iterator[tuple[int, str | None]]:
    """Yield the libcurl options for all CA locations, so that no default of libcurl remains."""
    file, folder = trust.file, trust.folder
    if file and folder and trust.is_same:  # one is enough: use the one that loads faster
        file, folder = (file, None) if GNUTLS else (None, folder)
    yield from ((pycurl.CAINFO, file), (pycurl.CAPATH, folder))
    yield from ((pycurl.PROXY_CAINFO, file), (pycurl.PROXY_CAPATH, folder))


def failure(
    easy: pycurl.Curl, exchange: Exchange, code: int, text: str, proxy: Proxy | None
) -> httpx.TransportError:
    """Return the exception for a request that ended with libcurl's error `code`.

    `text` is libcurl's message. The `__cause__` of the exception is an OSError or ssl.SSLError with
    the reason, if libcurl reported one.
    """
    sent, host = exchange.is_sent, exchange.request.url.netloc.decode()
    system: int = easy.getinfo(pycurl.OS_ERRNO)
    if proxy is not None and not sent:
        tunnel: int = easy.getinfo(pycurl.HTTP_CONNECTCODE)  # status of the proxy's response
        is_through = code not in _BEFORE_SOCKS if proxy.is_socks else 200 <= tunnel < 300
        if not is_through:
            return ProxyFailure(_proxy_error(proxy, host, tunnel, code, system))
    if code in (pycurl.E_UNSUPPORTED_PROTOCOL, pycurl.E_URL_MALFORMAT):
        return httpx.UnsupportedProtocol(text)
    cause: Exception | None = None
    if code == pycurl.E_COULDNT_CONNECT and system:
        cause = OSError(system, os.strerror(system))
    elif code == pycurl.E_COULDNT_RESOLVE_HOST:
        cause = socket.gaierror(socket.EAI_NONAME, "Name or service not known")
    elif code in _CERTIFICATE:
        cause = ssl.SSLCertVerificationError(1, text)
    elif not (sent or code in _NO_TLS):
        cause = ssl.SSLError(1, text)
    kinds = {pycurl.E_SEND_ERROR: httpx.WriteError, pycurl.E_RECV_ERROR: httpx.ReadError}
    kind = kinds.get(code, httpx.RemoteProtocolError) if sent else httpx.ConnectError
    found = kind(text)
    found.__cause__ = cause
    return found


def _proxy_error(proxy: Proxy, host: str, status: int, code: int, system: int) -> ProxyFailed:
    """Return the error for a proxy that did not connect to `host`.

    `status` is the HTTP status of the proxy's response. It is 0 if there was no response; then
    libcurl's error `code` or the errno `system` gives the reason. libcurl's message is not used,
    because the message may repeat the password of the proxy.
    """
    variable, place = proxy.variable, plain_text(proxy.place)
    named = f"the proxy {place} (from {variable})"
    remedy = f"check the proxy in {variable}, and the network"
    if not proxy.is_usable:
        said = f"{variable} does not hold the address of a proxy"
        remedy = f"set {variable} to http://PROXY:PORT, or unset it"
    elif status == 407 and proxy.has_user:
        said = f"{named} does not accept the user and password in {variable} (HTTP 407)"
        remedy = f"correct them in {variable}"
    elif status == 407:
        said = f"{named} demands a user and password (HTTP 407)"
        remedy = f"set {variable} to http://USER:PASSWORD@{place}"
    elif status >= 500:
        said = f"{named} cannot reach {host} (HTTP {status})"
        remedy = "check the base URL, or try again later"
    elif status:
        said = f"{named} refuses connections to {host} (HTTP {status})"
        remedy = f"ask its administrator, or put {host.rpartition(':')[0] or host} into NO_PROXY"
    elif code in _CERTIFICATE:
        said = f"the certificate of {named} is not trusted"
        remedy = "ask the administrator of the proxy for its certificate authority"
    elif code == pycurl.E_COULDNT_RESOLVE_PROXY:
        said = f"the name of {named} is not known"
        remedy = f"correct {variable}, or check the network"
    elif code == pycurl.E_COULDNT_CONNECT and system == errno.ECONNREFUSED:
        said = f"{named} refused the connection"
    elif code == pycurl.E_COULDNT_CONNECT and system:
        said = f"{named} cannot be reached ({os.strerror(system)})"
    else:
        said = f"{named} ended the connection"
    return ProxyFailed(said, remedy=remedy)


_CERTIFICATE: Final = (pycurl.E_PEER_FAILED_VERIFICATION, pycurl.E_SSL_ISSUER_ERROR, 91)
_NO_TLS: Final = (pycurl.E_SEND_ERROR, pycurl.E_RECV_ERROR, pycurl.E_COULDNT_CONNECT)
"""Error codes that do not indicate a TLS problem, even if no part of the request was sent."""
_BEFORE_SOCKS: Final = (pycurl.E_COULDNT_RESOLVE_PROXY, pycurl.E_COULDNT_CONNECT, 97)
"""Error codes of a connection that did not get through a SOCKS proxy."""
