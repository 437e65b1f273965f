"""One running download: what it announced, and whether its bytes keep to that.

Must not know how a request is sent or repeated.

INVARIANT: a download ends with its last byte or with an exception, never silently short.
"""

import re
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Protocol, Self

import httpx

from zonedrive.errors import BadAnswer
from zonedrive.remote.link import Link
from zonedrive.remote.transport.transports import BODY, Body

Buffer = bytes | memoryview

_RANGE = re.compile(r"bytes (?:(\d{1,18})-(\d{1,18})|\*)/(\d{1,18}|\*)", re.ASCII)


class Owner(Protocol):
    """What a download needs of whoever opened it."""

    @property
    def link(self) -> Link:
        """Hears of an answer that breaks its word."""

    def chunks(self, response: httpx.Response, download: "Download") -> Iterator[Buffer]:
        """The body, in pieces.  Raises Interrupted, TimedOut."""


class Download:
    """One running download; a context manager, whose end closes the connection.

    offset: where the bytes really start: 0 where the service ignored the range.
    total: bytes of the whole content, None where the service does not say.
    validator: the ETag, else Last-Modified, else None: the same as long as the content is.
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
        self._wanted = wanted  # where the range that was asked for ends, None: with the content
        self._owner = owner
        self.doing = doing
        self.spare: list[bytearray] = []  # memory for chunks to come

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the connection, or give it back where all was read."""
        self.close()

    def close(self) -> None:
        """Stop.  From the thread that iterates."""
        self._response.close()

    def give_back(self, chunks: Iterable[Buffer | bytearray]) -> None:
        """Chunks that nobody looks at any more, for those to come.  From the same thread."""
        for chunk in chunks:
            if isinstance(chunk, memoryview) and isinstance(chunk.obj, bytearray):
                self.spare.append(chunk.obj)

    def abort(self) -> None:
        """Break off what another thread iterates: it ends soon, in an error where bytes lack.

        Not after `close`.  What has come whole leaves its connection to others, and is not
        touched: an upload of theirs would end in a lost reply.
        """
        self.aborted = True
        body = self._response.extensions.get(BODY)
        if isinstance(body, Body):
            body.abort()

    def __iter__(self) -> Iterator[Buffer]:
        """The bytes from `offset` on, in chunks of some hundred KiB; once.

        Raises BadAnswer where they are not as many as announced, Interrupted or TimedOut where
        the connection breaks or stalls.
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
    """Where the bytes of `response` start, where they end, and the size of the whole content.

    Raises BadAnswer for another range than the one from `offset`.
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
    """The undecoded body, in pieces of at most `limit` bytes.  Raises httpx's errors.

    `position` is where in the content it begins: pieces end at multiples of `limit`, where the
    network is fast enough.  `spare`: memory of `limit` bytes each, to be used.
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
        if count < limit // 2:  # who keeps a small piece shall not keep memory for a large one
            spare.append(memory)
            yield bytes(piece[:count])
        else:
            yield piece[:count]
