"""One request and the received part of its response, with the callbacks for libcurl.

This module does not open or select connections.

INVARIANT: the buffer for the consumer holds at most `room` bytes and one chunk of a successful
response, or ROOM bytes and one chunk of an error response.
"""

import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Final

import httpx
import pycurl

EFFECT: Final = "effect"
"""Request extension: the request must not be sent twice."""
TARGET: Final = "target"
"""Request extension: path and query to send instead of those of the URL."""
SENT: Final = "sent"
"""Request extension, set by the transport once a part of the request was sent."""
WHOLE: Final = "whole"
"""Request extension: the read timeout covers the whole response, body included."""
EARLY: Final = "early"
"""Response extension: True if the response came before the request was sent completely."""

ROOM: Final = 512 * 1024  # maximum number of received bytes that wait for the consumer
HEADERS: Final = 200  # maximum number of headers of a response
HEAD_BYTES: Final = 128 * 1024  # maximum size of all headers and trailers of a response
# A response may have SMALL_PIECES chunks that are smaller than SMALL_PIECE bytes. From then on, it
# must have at least SMALL_PIECE bytes per small chunk.
SMALL_PIECES: Final = 10_000
SMALL_PIECE: Final = 16
_TIMEOUTS: Final[dict[str, type[httpx.TimeoutException]]] = {
    "connect": httpx.ConnectTimeout,
    "write": httpx.WriteTimeout,
    "read": httpx.ReadTimeout,
}


class Exchange:
    """One request and the received part of its response."""

    def __init__(
        self,
        request: httpx.Request,
        content: Iterable[bytes],
        *,
        room: int = ROOM,
        may_pause: bool = True,
    ) -> None:
        """Prepare to send `request` with the body `content`.

        `room` is the number of received bytes of a successful response that may wait for the
        consumer. At this limit, the response is paused if `may_pause` is True; otherwise it is
        ended with an error.
        """
        self.request = request
        self.timeout: dict[str, float | None] = request.extensions.get("timeout", {})
        self.lines, self.length = _lines(request)  # headers in libcurl's form
        self.unsent = self.length
        self.is_first = True  # the request is the first on its connection
        self.is_reused = False  # the shared connection carried another request before
        self.is_sent = False  # a part of the request was sent to the service
        self.is_held = True  # the body waits until the headers were sent and no response has come
        self.is_asked = False  # libcurl has asked for the body
        self.flushed = 0  # bytes of the request's body that libcurl has sent
        self.acknowledged = 0  # sent bytes that the peer had acknowledged at the last check
        self.version = b""  # HTTP version of the response
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []
        self.has_head = self.is_over = False
        self.is_early = False  # the response came before the end of the request
        self.wrong: Exception | None = None  # error that ended the exchange
        self.certificate: str | None = None
        self.seen = 0  # received bytes of the response
        self.pieces = 0  # number of small chunks of the response's body
        self.parts: deque[bytes] = deque()
        self.waiting = 0  # bytes in `parts`
        self.is_paused = False
        self.easy: pycurl.Curl | None = None  # handle on a shared connection
        self.moved = time.monotonic()
        self.is_ahead: Callable[[], bool] = lambda: False  # the response came before the request
        self._room, self._may_pause = room, may_pause
        self._head: list[bytes] = []  # received lines of incomplete headers
        self._head_bytes = 0
        self._is_ascii = True
        self._source: Iterator[bytes] = iter(content)
        self._rest = memoryview(b"")

    def due(self) -> tuple[float, type[httpx.TimeoutException]]:
        """Return the current deadline (monotonic clock), and the error type for a timeout."""
        phase = "connect" if not self.is_sent else "write" if self.unsent else "read"
        seconds = self.timeout.get(phase)
        return (float("inf") if seconds is None else self.moved + seconds), _TIMEOUTS[phase]

    def moves(self) -> None:
        """Restart the timeout after progress.

        Between the end of the request and the response headers, the timeout is not restarted. With
        the extension WHOLE, the timeout is not restarted after the end of the request.
        """
        if not self.is_sent or self.unsent or (
            self.has_head and not self.request.extensions.get(WHOLE)
        ):  # fmt: skip
            self.moved = time.monotonic()

    @property
    def may_repeat(self) -> bool:
        """True if the request failed on a reused connection, and its repetition does no harm.

        A request without an effect may be repeated although the service may have processed it.
        """
        if self.is_first or isinstance(self.wrong, httpx.TimeoutException):
            return False
        if (self.wrong is None or self.has_head) and (not self.is_early or self.status >= 300):
            return False
        if self.length:
            return self.unsent == self.length
        return EFFECT not in self.request.extensions and self.request.method != "POST"

    def take(self) -> bytes:
        """Remove and return the next received chunk of the body."""
        part = self.parts.popleft()
        self.waiting -= len(part)
        return part

    def end_content(self) -> None:
        """Close the source of the request's body; no further byte of the body is sent."""
        source, self._source = self._source, iter(())
        if isinstance(source, Generator):
            source.close()

    def response(
        self, stream: httpx.SyncByteStream | httpx.AsyncByteStream, extensions: dict[str, object]
    ) -> httpx.Response:
        """Return the response, without waiting; call this after its headers have arrived.

        Raises the request's error if the request failed before the headers arrived, and
        httpx.DecodingError for a successful response with an encoded body or too many headers.
        """
        if not self.has_head:
            raise self.wrong or httpx.RemoteProtocolError("there is no answer")
        found = httpx.Response(
            self.status, headers=self.headers, stream=stream, extensions=extensions
        )
        if self._is_ascii:  # otherwise httpx would check all headers
            found.headers.encoding = "ascii"
        if self.status < 300 and len(self.headers) > HEADERS:
            raise httpx.DecodingError(f"it has over {HEADERS} headers")
        if self.status < 300 and is_encoded(found.headers):
            raise httpx.DecodingError("it is encoded, which was not requested")
        return found

    # ---- called by libcurl, which prints and discards exceptions ----

    def give(self, size: int) -> bytes | int:
        """Return up to `size` bytes of the request's body, or a libcurl code to pause or abort."""
        self.is_asked = True
        if self.is_held:
            return int(pycurl.READFUNC_PAUSE)
        try:
            while not self._rest:
                piece = next(self._source, None)
                if piece is None:
                    return b""
                self._rest = memoryview(piece)
        except BaseException as wrong:
            self.wrong = wrong if isinstance(wrong, Exception) else httpx.WriteError("ended")
            return int(pycurl.READFUNC_ABORT)
        whole = self._rest.obj
        if isinstance(whole, bytes) and len(self._rest) == len(whole) <= size:
            part, self._rest = whole, self._rest[:0]
        else:
            part, self._rest = bytes(self._rest[:size]), self._rest[size:]
        self.moves()
        self.unsent -= len(part)
        return part

    def head(self, line: bytes) -> int | None:
        """Process a header line or a trailer; return None, or -1 to abort the transfer."""
        size = len(line)
        self.seen += size
        self._head_bytes += size
        try:
            if self._head_bytes > HEAD_BYTES:
                raise httpx.RemoteProtocolError(f"the head has over {HEAD_BYTES} bytes")
            if self.seen == size and self.is_ahead():
                raise httpx.RemoteProtocolError("the service answered before the request")
            if not self.has_head:  # else it is a trailer
                self._head.append(line)
                if line.isspace():
                    return self._head_ended()
        except (OSError, httpx.HTTPError) as wrong:
            self.wrong = wrong
            return -1
        return None

    def _head_ended(self) -> int | None:
        version, _, rest = self._head[0].partition(b" ")
        if not (version.startswith(b"HTTP/") and rest[:3].isdigit()):
            raise httpx.RemoteProtocolError("the answer has no status")
        self.version, self.status = version, int(rest[:3])
        for line in self._head[1:-1]:
            name, colon, value = line.partition(b":")
            if not colon or name.split() != [name]:
                raise httpx.RemoteProtocolError("a line of the head is not a header")
            self.headers.append((name, value.strip()))
        self._is_ascii = b"".join(self._head).isascii()
        self._head.clear()
        if self.status < 200:
            self.headers.clear()
            return None
        if self.status >= 300:
            self._room = min(self._room, ROOM)
        self.has_head = True
        self.is_early = self.unsent > 0
        return -1 if self.is_early and self.status < 300 else None

    def body(self, part: bytes) -> int | None:
        """Store a chunk of the response's body; return None, or a code to pause or abort."""
        size = len(part)
        if self.waiting > self._room:
            if not self._may_pause:
                self.wrong = httpx.RemoteProtocolError("the answer arrives faster than it is read")
                return -1
            self.is_paused = True
            return int(pycurl.WRITEFUNC_PAUSE)
        self.parts.append(part)
        self.waiting += size
        self.seen += size
        if size < SMALL_PIECE:
            self.pieces += 1
            if self.pieces > SMALL_PIECES and self.seen < self.pieces * SMALL_PIECE:
                self.wrong = httpx.RemoteProtocolError(
                    "the answer arrives in parts that are too small"
                )
                return -1
        return None


def is_encoded(headers: httpx.Headers) -> bool:
    """Return True if the body of a response is encoded, for example compressed."""
    content = headers.get("Content-Encoding", "").lower()
    transfer = headers.get("Transfer-Encoding", "").lower()
    return content not in ("", "identity") or transfer not in ("", "identity", "chunked")


def _lines(request: httpx.Request) -> tuple[list[bytes], int]:
    """Return the header lines for libcurl, and the length of the body in bytes.

    The headers that libcurl adds itself are left out. A line that ends with ":" makes libcurl omit
    its own header of this name. Raises httpx.LocalProtocolError for a header with a line break.
    """
    lines, length = [b"Expect:"], 0
    if "Content-Type" not in request.headers:
        lines.append(b"Content-Type:")
    for name, value in request.headers.raw:
        if b"\r" in value or b"\n" in value or b"\0" in value:
            raise httpx.LocalProtocolError("a header has a line break in it")
        match name.lower():
            case b"content-length":
                length = int(value)
            case b"connection" | b"transfer-encoding":
                pass
            case _:
                lines.append(name + (b": " + value if value else b";"))
    return lines, length
