"""A small request over a kept connection, without a client in between.

For the uploads of small files, of which hundreds come in a row: httpx and httpcore take several
times as long for each as the connection, TLS and the HTTP parser (h11) do, which are used here.

Must not know endpoints, logons or what an answer means.  Not for proxies.

INVARIANT: a connection is lent to one request at a time, and comes back only when its answer was
read to the end; any other is closed.
INVARIANT: how many there are is the caller's matter: as many as requests at once.
"""

import contextlib
import ssl
from collections.abc import Sequence
from urllib.parse import urlsplit

import h11
import httpx
import trio

from zonedrive.remote.transport import sockets

HTTPS = 443
CONNECT_SECONDS = 10.0
PIECE = 64 * 1024  # bytes asked of a connection at once


class Reply:
    """An answer, whole."""

    def __init__(self, answer: h11.Response, body: bytes) -> None:
        self.status = answer.status_code
        self.headers = httpx.Headers(list(answer.headers))
        self.body = body


class _Line:
    """One connection."""

    def __init__(self, socket: trio.socket.SocketType, stream: trio.SSLStream[trio.SocketStream]):
        self._socket = socket
        self._stream = stream
        self._http = h11.Connection(h11.CLIENT)
        self.free_since = 0.0

    def is_fresh(self, seconds: float) -> bool:
        """Whether it can be used again: an idle one that can be read from has ended."""
        idle = trio.current_time() - self.free_since
        return idle < seconds and not self._socket.is_readable()

    async def ask(self, request: h11.Request, content: bytes) -> Reply:
        """Send all at once, and take the answer.  Raises httpx's errors."""
        http = self._http
        parts = [http.send(request), http.send(h11.Data(content)), http.send(h11.EndOfMessage())]
        try:
            await self._stream.send_all(b"".join(part for part in parts if part))
            return await self._answer()
        except h11.RemoteProtocolError as wrong:
            raise httpx.RemoteProtocolError(str(wrong)) from wrong
        except (OSError, trio.BrokenResourceError, trio.ClosedResourceError) as wrong:
            raise httpx.ReadError(str(wrong)) from wrong

    async def _answer(self) -> Reply:
        answer: h11.Response | None = None
        body: list[bytes] = []
        while True:
            event = self._http.next_event()
            if event is h11.NEED_DATA:
                self._http.receive_data(bytes(await self._stream.receive_some(PIECE)))
            elif isinstance(event, h11.Response):
                answer = event
            elif isinstance(event, h11.Data):
                body.append(bytes(event.data))
            elif isinstance(event, h11.EndOfMessage) and answer is not None:
                return Reply(answer, b"".join(body))
            elif not isinstance(event, h11.InformationalResponse):
                raise h11.RemoteProtocolError("the connection ended before the answer did")

    def is_over(self) -> bool:
        """Whether it must be closed after an answer; else it is ready for the next request."""
        if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
            return True
        self._http.start_next_cycle()
        self.free_since = trio.current_time()
        return False

    async def close(self) -> None:
        """At once."""
        await trio.aclose_forcefully(self._stream)


class Direct:
    """The connections to one origin."""

    def __init__(
        self, base_url: str, trust: ssl.SSLContext, headers: dict[str, str], keep_seconds: float
    ) -> None:
        """`headers` go with every request; what nobody uses for `keep_seconds` is closed."""
        parts = urlsplit(base_url)
        self._host, self._port = parts.hostname or "", parts.port or HTTPS
        self._trust = trust
        self._headers = [("Host", parts.netloc), *headers.items()]
        self._keep_seconds = keep_seconds
        self._free: list[_Line] = []

    async def post(self, path: str, headers: Sequence[tuple[str, str]], content: bytes) -> Reply:
        """The answer to a POST of `content`.  Raises httpx's errors."""
        request = h11.Request(
            method="POST",
            target=path,
            headers=[*self._headers, *headers, ("Content-Length", str(len(content)))],
        )
        line = await self._borrow()
        over = True
        try:
            reply = await line.ask(request, content)
            over = line.is_over()
            return reply
        finally:
            if over:
                with trio.CancelScope(shield=True):
                    await line.close()
            else:
                self._free.append(line)

    async def drop_idle(self) -> None:
        """Close the connections that nobody uses."""
        while self._free:
            await self._free.pop().close()

    async def _borrow(self) -> _Line:
        while self._free:
            line = self._free.pop()
            if line.is_fresh(self._keep_seconds):
                return line
            with trio.CancelScope(shield=True):
                await line.close()
        return await self._connect()

    async def _connect(self) -> _Line:
        try:
            with trio.fail_after(CONNECT_SECONDS):
                return await self._connected()
        except trio.TooSlowError as slow:
            raise httpx.ConnectTimeout("") from slow
        except (OSError, trio.BrokenResourceError) as wrong:
            raise httpx.ConnectError(str(wrong)) from wrong

    async def _connected(self) -> _Line:
        tcp = await trio.open_tcp_stream(self._host, self._port)
        for option in sockets.VANISHED:
            with contextlib.suppress(OSError):
                tcp.setsockopt(*option)
        stream = trio.SSLStream(tcp, self._trust, server_hostname=self._host, https_compatible=True)
        try:
            await stream.do_handshake()
        except BaseException:
            with trio.CancelScope(shield=True):
                await trio.aclose_forcefully(stream)
            raise
        return _Line(tcp.socket, stream)
