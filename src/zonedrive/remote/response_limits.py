"""Limits on the size, encoding and duration of every answer of the service.

Knows nothing about endpoints or the meaning of an answer. Uses only public names of httpx, on top
of any transport.

INVARIANT: no answer is decoded. Each request asks for identity; a success with any other
Content-Encoding is an error, and an error with one has no body.
INVARIANT: at most `Limits.size` bytes of a success are held in memory, of an error REFUSAL bytes.
INVARIANT: no client keeps or sends a cookie.
"""

import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from dataclasses import dataclass
from http.cookiejar import CookieJar
from typing import Any, Final

import httpx
import trio

MIB: Final = 1 << 20
SMALL: Final = 4 * MIB  # one entry, one step of a logon
CHANGED: Final = 32 * MIB  # the answer to a change: a group has many members
LISTING: Final = 192 * MIB  # one list, all of its pages together
REFUSAL: Final = 64 * 1024  # bytes of an error that are read
HEADERS: Final = 200
HEADER_BYTES: Final = 64 * 1024
MOST_PARTS: Final = 10_000  # of a body, before they must have LEAST_PART bytes on average
LEAST_PART: Final = 16
PLAIN: Final = (b"", b"identity")
EXTENSION: Final = "limits"
"""Name of the request extension in which a blocking client passes its Limits."""


class Unacceptable(httpx.DecodingError):
    """Error for an answer that breaks a rule of this module."""


class TooLong(Unacceptable):
    """Error for an answer that exceeds its Limits."""


@dataclass(frozen=True)
class Limits:
    """Maximum size and duration of the body of a successful answer."""

    size: int | None = SMALL  # bytes; None: content, whose size the consumer checks
    seconds: float | None = None  # None: the consumer has its own deadline or stall check


CONTENT: Final = Limits(None)


class NoCookies(CookieJar):
    """Cookie jar that stores and sends no cookies."""

    def extract_cookies(self, response: Any, request: Any) -> None:
        """Ignore the cookies of an answer."""

    def add_cookie_header(self, request: Any) -> None:
        """Send no cookies."""


def restrict(client: httpx.Client | httpx.AsyncClient) -> None:
    """Apply the limits to a new client.

    A client on the trio loop calls `admit` for each answer.
    """
    client.headers["Accept-Encoding"] = "identity"
    client.cookies = NoCookies()
    if isinstance(client, httpx.Client):
        client.event_hooks = {"response": [_admit]}


def admit(response: httpx.Response, limits: Limits) -> None:
    """Check the head of an answer, and limit its body. Raises Unacceptable."""
    meter = Meter(response.status_code, response.headers, limits)
    if "Content-Encoding" in response.headers:  # httpx would decode what is left
        del response.headers["Content-Encoding"]
    if isinstance(response.stream, httpx.AsyncByteStream):
        response.stream = _AsyncStream(response.stream, meter)
    else:
        assert isinstance(response.stream, httpx.SyncByteStream)
        response.stream = _SyncStream(response.stream, meter)


def _admit(response: httpx.Response) -> None:
    """Check an answer of a blocking client, including answers during an authentication flow."""
    admit(response, response.request.extensions.get(EXTENSION, Limits()))


class Meter:
    """Limits for one answer. Every method raises Unacceptable."""

    def __init__(self, status: int, headers: httpx.Headers, limits: Limits) -> None:
        """Check the head of the answer."""
        self._limits = limits
        self._refused = status >= 300
        self._left = REFUSAL if self._refused else limits.size
        self._parts = self._came = 0
        self._end = None if limits.seconds is None else time.monotonic() + limits.seconds
        raw = headers.raw
        size, length, encoding, transfer = 0, b"", b"", b""
        for name, value in raw:
            size += len(name) + len(value)
            match name.lower():
                case b"content-length":
                    length = value
                case b"content-encoding":
                    encoding += value.strip().lower()
                case b"transfer-encoding":
                    transfer += value.strip().lower()
        if len(raw) > HEADERS or size > HEADER_BYTES:
            raise Unacceptable(f"it has over {HEADERS} headers or {HEADER_BYTES} bytes of them")
        # An encoded body is not read at all.
        self.is_over = encoding not in PLAIN or transfer not in (*PLAIN, b"chunked")
        if self._refused:
            return
        if self.is_over:
            raise Unacceptable("it comes encoded, which was not asked for")
        if length.isdigit():
            self._check(int(length[:20]))

    def accepted(self, part: bytes) -> bytes:
        """Return the accepted part of the body's next chunk; of an error only the first bytes.

        Raises httpx.ReadTimeout if the body takes too long.
        """
        if self._end is not None and time.monotonic() > self._end:
            raise httpx.ReadTimeout(f"the answer takes longer than {self._limits.seconds:g} s")
        if self._left is None:
            return part
        if self._refused:
            part = part[: self._left]
            self.is_over = len(part) == self._left
        else:
            self._check(len(part))
        self._left -= len(part)
        self._parts, self._came = self._parts + 1, self._came + len(part)
        if self._parts > MOST_PARTS and self._came < self._parts * LEAST_PART:
            self.is_over = True
            raise Unacceptable("it comes in too many too small parts")
        return part

    def _check(self, count: int) -> None:
        if self._left is not None and count > self._left:
            self.is_over = True
            raise TooLong(f"it has more than {self._limits.size} bytes")


class _SyncStream(httpx.SyncByteStream):
    """Accepted part of a body."""

    def __init__(self, stream: httpx.SyncByteStream, meter: Meter) -> None:
        self._stream, self._meter = stream, meter

    def __iter__(self) -> Iterator[bytes]:
        if self._meter.is_over:
            return
        for part in self._stream:
            yield self._meter.accepted(part)
            if self._meter.is_over:
                return

    def close(self) -> None:
        self._stream.close()


class _AsyncStream(httpx.AsyncByteStream):
    """Accepted part of a body, on the trio loop.

    This is not a generator: the garbage collector would end an abandoned generator with a warning.
    """

    def __init__(self, stream: httpx.AsyncByteStream, meter: Meter) -> None:
        self._stream, self._meter = stream, meter
        self._parts: AsyncIterator[bytes] | None = None

    def __aiter__(self) -> AsyncIterator[bytes]:
        self._parts = self._stream.__aiter__()
        return self

    async def __anext__(self) -> bytes:
        assert self._parts is not None
        if self._meter.is_over:
            await self._leave(self._parts)
            raise StopAsyncIteration
        part = await anext(self._parts)
        try:
            return self._meter.accepted(part)
        except httpx.HTTPError:
            await self._leave(self._parts)
            raise

    @staticmethod
    async def _leave(parts: AsyncIterator[bytes]) -> None:
        """Close the nested generators in order, by a cancellation."""
        if not isinstance(parts, AsyncGenerator):
            return
        with trio.CancelScope() as rest, contextlib.suppress(StopAsyncIteration, httpx.HTTPError):
            rest.cancel()
            while True:
                await anext(parts)

    async def aclose(self) -> None:
        await self._stream.aclose()
