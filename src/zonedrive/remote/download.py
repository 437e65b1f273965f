"""One running download: the announced range, and the check that its bytes match.

Knows nothing about sending or repeating requests.

INVARIANT: a download ends with its last byte or with an exception, never silently short.
"""

import re
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Protocol, Self

import httpx

from zonedrive.errors import BadAnswer
from zonedrive.remote.connectivity import Connectivity
from zonedrive.remote.transport.transports import BODY, Body

Buffer = bytes | memoryview

_RANGE = re.compile(r"bytes (?:(\d{1,18})-(\d{1,18})|\*)/(\d{1,18}|\*)", re.ASCII)


class Owner(Protocol):
    """Interface to the object that opened the download."""

    @property
    def link(self) -> Connectivity:
        """Link to notify about an answer that does not match its announcement."""

    def chunks(self, response: httpx.Response, download: "Download") -> Iterator[Buffer]:
        """Yield the body in chunks. Raises Interrupted or TimedOut."""


class Download:
    """One running download; a context manager that closes the connection at the end.

    offset: real start of the bytes; 0 if the service ignored the range.
    total: size of the whole content in bytes, None if the service does not tell it.
    validator: the ETag, else Last-Modified, else None; unchanged while the content is unchanged.
    """

    def __init__(
        self,
        response: httpx.Response,
        offset: int,
        total: int | None,
        end: int | None,
        owner: Owner,
        doing: str,
        wanted: int | None = None,
    ) -> None:
        self.offset = offset
        self.total = total
        headers = response.headers
        self.validator: str | None = headers.get("ETag") or headers.get("Last-Modified")
        self.aborted = False
        self._response = response
        self._end = end
        self._wanted = wanted  # end of the requested range; None: end of the content
        self._owner = owner
        self.doing = doing
        self.spare: list[bytearray] = []  # memory for chunks to come

    def __enter__(self) -> Self:
        """Return the download."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the connection, or return it to the pool if everything was read."""
        self.close()

    def close(self) -> None:
        """Stop the download. Call this from the thread that iterates."""
        self._response.close()

    def give_back(self, chunks: Iterable[Buffer | bytearray]) -> None:
        """Reuse the memory of chunks that are no longer needed. Call this from the same thread."""
        for chunk in chunks:
            if isinstance(chunk, memoryview) and isinstance(chunk.obj, bytearray):
                self.spare.append(chunk.obj)

    def abort(self) -> None:
        """Abort an iteration in another thread; it ends soon, with an error if bytes are missing.

        Has no effect after `close`. A complete download has already returned its connection to the
        pool. That connection is not touched, because an upload of another request on it would end
        in a lost reply.
        """
        self.aborted = True
        body = self._response.extensions.get(BODY)
        if isinstance(body, Body):
            body.abort()

    def __iter__(self) -> Iterator[Buffer]:
        """Yield the bytes from `offset`, in chunks of some hundred KiB; only once.

        Raises BadAnswer if the number of bytes differs from the announced one, Interrupted or
        TimedOut if the connection breaks or stalls.
        """
        if self._response.status_code == 416:
            return
        position = self.offset
        for chunk in self._owner.chunks(self._response, self):
            position += len(chunk)
            if self._end is not None and position > self._end:
                raise self._wrong(f"more than the announced {self._end} bytes came")
            yield chunk
        if self._end is not None and position < self._end:
            raise self._wrong(f"only {position} of {self._end} bytes came")
        if self.total is not None and position < min(self.total, self._wanted or self.total):
            raise self._wrong(f"the service ends the range at {position} of {self.total} bytes")

    def _wrong(self, what: str) -> BadAnswer:
        error = BadAnswer(f"{self.doing}: {what}")
        if not self.aborted:
            self._owner.link.note_failure(error)
        return error


def extent(response: httpx.Response, offset: int, doing: str) -> tuple[int, int | None, int | None]:
    """Return start and end of the bytes in `response`, and the size of the whole content.

    Raises BadAnswer if the range does not start at `offset`.
    """
    length = response.headers.get("Content-Length", "")
    size = int(length) if length.isascii() and length.isdecimal() and len(length) < 19 else None
    status = response.status_code
    if status == 200:
        return 0, size, size
    match = _RANGE.fullmatch(response.headers.get("Content-Range", "").strip())
    if match and status == 206 and match[1]:
        start, last = int(match[1]), int(match[2])
        total = None if match[3] == "*" else int(match[3])
        if start == offset and last >= start and (total is None or last < total):
            return start, last + 1, total
    if match and status == 416 and match[3] != "*" and int(match[3]) <= offset:
        return offset, offset, int(match[3])
    raise BadAnswer(f"{doing}: the answer to a range is none (HTTP {status})", status=status)


def pieces(
    response: httpx.Response, limit: int, position: int, spare: list[bytearray]
) -> Iterator[Buffer]:
    """Yield the undecoded body in chunks of at most `limit` bytes. Raises httpx's errors.

    `position` is the offset of the body in the content: chunks end at multiples of `limit`, if the
    network is fast enough. `spare` holds buffers of `limit` bytes for reuse.
    """
    body = response.extensions.get(BODY)
    if not isinstance(body, Body):
        for part in response.iter_raw():
            for start in range(0, len(part), limit):
                yield part[start : start + limit]
        return
    while True:
        memory = spare.pop() if spare else bytearray(limit)
        piece = memoryview(memory)
        count = body.fill(piece[: limit - position % limit])
        if not count:
            return
        position += count
        if count < limit // 2:  # a consumer that keeps a small chunk must not keep a large buffer
            spare.append(memory)
            yield bytes(piece[:count])
        else:
            yield piece[:count]
