"""Interface of content sources: a source is opened at an offset and returns a stream.

All methods except `abort` and `confirm` are called in worker threads and may block. This module
does not depend on the service's API.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Protocol


class Stream(Protocol):
    """Stream of one file's bytes from an offset on, in chunks.

    A stream can be read only once. Iteration raises the error that ended the stream.
    """

    @property
    def offset(self) -> int:
        """Offset of the first byte, lower than requested if the source ignores ranges."""

    @property
    def total(self) -> int | None:
        """Size of the whole content in bytes, None if the source does not state it."""

    @property
    def validator(self) -> str | None:
        """Identifier of the content's version, such as an ETag; None if the source has none."""

    def __iter__(self) -> Iterator[bytes]:
        """Return an iterator over the chunks, preferably of 256 KiB to 1 MiB each."""

    def abort(self) -> None:
        """Make a blocked iteration in another thread end soon.

        The iteration may raise any exception. This method must not block.
        """


class Source(Protocol):
    """Source of the bytes of one version of one file."""

    def open(self, offset: int, end: int | None = None) -> AbstractContextManager[Stream]:
        """Open a stream at `offset`. Raises the source's error if the stream cannot be opened.

        The source may leave out the bytes from `end` on, so that the connection can be reused. If
        `end` is None, the stream continues to the end of the file.
        """

    async def confirm(self) -> None:
        """Raise Changed if the source now has another version.

        Raises the source's error if the check fails. This method is called on the event loop.
        """
