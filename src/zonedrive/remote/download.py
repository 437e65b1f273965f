"""One running download: what it announced, and whether its bytes keep to that.

Must not know how a request is sent or repeated.

INVARIANT: a download ends with its last byte or with an exception, never silently short.
"""

import re
import threading
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Protocol, Self

import httpx

from zonedrive.errors import BadAnswer
from zonedrive.remote.link import Link
from zonedrive.remote.transport import sockets
from zonedrive.remote.transport.body import Buffer

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
        stream = response.extensions.get("network_stream")
        self._stream = stream if isinstance(stream, sockets.Stream) else None
        self._exchange = self._stream.exchange if self._stream else 0
        self._ending = threading.Lock()  # of `_whole`, which `abort` looks at
        self._whole = False  # all came, so the connection is given back any moment
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
        with self._ending:
            self.aborted = True
            if self._stream is not None and not self._whole:
                self._stream.hang_up(self._exchange)

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
            if position == self._end:
                with self._ending:
                    self._whole = True
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
