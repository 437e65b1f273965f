"""A small request over a kept connection, without a client in between.

For the uploads of small files, of which hundreds come in a row: httpx and httpcore take several
times as long for each as the connection, TLS and the HTTP parser (h11) do, which are used here.

Must not know endpoints, logons or what an answer means.  Not for proxies.

INVARIANT: a connection is lent to one request at a time, and comes back only when its answer was
read to the end; any other is closed.
INVARIANT: how many there are is the caller's matter: as many as requests at once.
"""

import io
import ssl
from collections.abc import Sequence
from urllib.parse import urlsplit

import h11
import httpcore
import httpx
import trio

from zonedrive.remote.transport import sockets
from zonedrive.remote.transport.lines import is_quiet
from zonedrive.remote.transport.response_limits import Limits, Meter

HTTPS = 443
CONNECT_SECONDS = 10.0
PIECE = 64 * 1024  # bytes asked of a connection at once


class Reply:
    """An answer, whole."""

    def __init__(self, answer: h11.Response) -> None:
        self.status = answer.status_code
        self.headers = httpx.Headers(list(answer.headers))
        self.body = b""


class _Line:
    """One connection."""

    def __init__(self, stream: httpcore.AsyncNetworkStream) -> None:
        self._stream = stream
        self._http = h11.Connection(h11.CLIENT)
        self._used = False
        self.free_since = trio.current_time()

    def is_fresh(self, seconds: float) -> bool:
        """Whether it can be used (again): one that has received something has ended, or worse."""
        idle = trio.current_time() - self.free_since
        return idle < seconds and is_quiet(self._stream, used=self._used)

    async def ask(self, request: h11.Request, content: bytes, limits: Limits) -> Reply:
        """Send all at once, and take the answer.  Raises httpx's errors."""
        http = self._http
        parts = [http.send(request), http.send(h11.Data(content)), http.send(h11.EndOfMessage())]
        try:
            self._used = True
            await self._stream.write(b"".join(part for part in parts if part))
            return await self._answer(limits)
        except h11.RemoteProtocolError as wrong:
            raise httpx.RemoteProtocolError(str(wrong)) from wrong
        except (OSError, httpcore.NetworkError) as wrong:
            raise httpx.ReadError(str(wrong)) from wrong

    async def _answer(self, limits: Limits) -> Reply:
        """The answer; what is not accepted of it stays unread, which ends the connection."""
        reply: Reply | None = None
        meter: Meter | None = None
        body = io.BytesIO()
        while True:
            event = self._http.next_event()
            if event is h11.NEED_DATA:
                self._http.receive_data(await self._stream.read(PIECE))
            elif isinstance(event, h11.Response):
                reply = Reply(event)
                meter = Meter(reply.status, reply.headers, limits)
            elif isinstance(event, h11.Data) and meter is not None:
                body.write(meter.accepted(bytes(event.data)))
            elif not isinstance(event, h11.InformationalResponse | h11.EndOfMessage):
                raise h11.RemoteProtocolError("the connection ended before the answer did")
            if reply and meter and (meter.is_over or isinstance(event, h11.EndOfMessage)):
                reply.body = body.getvalue()
                return reply

    def is_over(self) -> bool:
        """Whether it must be closed after an answer; else it is ready for the next request."""
        if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
            return True
        if self._http.trailing_data[0]:  # else it would be taken for the next answer
            return True
        self._http.start_next_cycle()
        self.free_since = trio.current_time()
        return False

    async def close(self) -> None:
        """At once."""
        with trio.CancelScope(shield=True):
            await self._stream.aclose()


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

    async def post(
        self, path: str, headers: Sequence[tuple[str, str]], content: bytes, limits: Limits
    ) -> Reply:
        """The answer to a POST of `content`, within `limits`.  Raises httpx's errors."""
        request = h11.Request(
            method="POST",
            target=path,
            headers=[*self._headers, *headers, ("Content-Length", str(len(content)))],
        )
        line = await self._borrow()
        over = True
        try:
            reply = await line.ask(request, content, limits)
            over = line.is_over()
            return reply
        finally:
            if over:
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
            await line.close()
        line = await self._connect()
        if line.is_fresh(self._keep_seconds):
            return line
        await line.close()
        raise httpx.ConnectError("the service answers before it is asked")

    async def _connect(self) -> _Line:
        try:
            tcp = await httpcore.TrioBackend().connect_tcp(
                self._host, self._port, CONNECT_SECONDS, socket_options=sockets.VANISHED
            )
            try:
                return _Line(await tcp.start_tls(self._trust, self._host, CONNECT_SECONDS))
            except BaseException:
                with trio.CancelScope(shield=True):
                    await tcp.aclose()
                raise
        except httpcore.ConnectTimeout as slow:
            raise httpx.ConnectTimeout("") from slow
        except (OSError, httpcore.NetworkError) as wrong:
            raise httpx.ConnectError(str(wrong)) from wrong
