"""Limits on the size of every answer of the service.

Knows nothing about endpoints or the meaning of an answer. The transport limits the head of an
answer and the number of small pieces, and refuses encoded ones; `Requests` and `Transfer` set
deadlines.

INVARIANT: an encoded error has no body.
INVARIANT: at most `most` bytes of a success are held in memory, of an error REFUSAL bytes.
"""

import io
from typing import Final

import httpx

from zonedrive.remote.transport.exchange import is_encoded

MIB: Final = 1 << 20
SMALL: Final = 4 * MIB  # one entry, one step of a logon
CHANGED: Final = 32 * MIB  # the answer to a change: a group has many members
LISTING: Final = 192 * MIB  # one list, all of its pages together
REFUSAL: Final = 64 * 1024  # bytes of an error that are read


class TooLong(httpx.DecodingError):
    """Error for an answer that is longer than its limit."""


async def read_body(response: httpx.Response, most: int = SMALL) -> bytes:
    """Return the body of an answer on the trio loop. Raises TooLong, and httpx's errors."""
    assert isinstance(response.stream, httpx.AsyncByteStream)
    body = _Body(response, most)
    if not body.is_over:
        async for part in response.stream:
            if body.add(part):
                break
    return body.received.getvalue()


def read_body_blocking(response: httpx.Response, most: int = SMALL) -> bytes:
    """Return the body of an answer in a thread. Raises TooLong, and httpx's errors."""
    assert isinstance(response.stream, httpx.SyncByteStream)
    body = _Body(response, most)
    if not body.is_over:
        for part in response.stream:
            if body.add(part):
                break
    return body.received.getvalue()


class _Body:
    """Body of an answer, checked while it is received."""

    def __init__(self, response: httpx.Response, most: int) -> None:
        self.received = io.BytesIO()
        self.is_over = is_encoded(response.headers)
        self._is_refusal = response.status_code >= 300
        self._most = REFUSAL if self._is_refusal else most
        length = response.headers.get("Content-Length", "")
        if length.isdecimal() and not self._is_refusal:
            self._require(int(length[:20]))

    def add(self, part: bytes) -> bool:
        """Store a piece, of an error only the first bytes; return True if it is the last one."""
        size = self.received.tell()
        if not self._is_refusal:
            self._require(size + len(part))
        self.received.write(part[: self._most - size])
        return self._is_refusal and self.received.tell() == self._most

    def _require(self, size: int) -> None:
        if size > self._most:
            raise TooLong(f"it has more than {self._most} bytes")
