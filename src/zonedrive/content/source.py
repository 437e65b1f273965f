"""Interface of content sources: a source is opened at an offset and returns a stream.

All methods but `abort` and `confirm` are called in worker threads and may block.  Knows nothing
about the service.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Protocol

from zonedrive.content.content_file import Buffer


class Stream(Protocol):
    """Bytes of one file from an offset on, in chunks, readable once.

    Iteration raises the error that ended the stream.
    """

    @property
    def offset(self) -> int:
        """Offset of the first byte; before the requested one if the source ignores ranges."""

    @property
    def total(self) -> int | None:
        """Size of the whole content in bytes, None if the source does not state it."""

    @property
    def validator(self) -> str | None:
        """Text that changes only when the content changes; None if the source has none."""

    def __iter__(self) -> Iterator[Buffer]:
        """Iterate over the chunks, preferably of 256 KiB to 1 MiB each."""

    def abort(self) -> None:
        """Make a blocked iteration in another thread end soon, with any exception.

        Must not block.
        """

    def give_back(self, chunks: list[Buffer]) -> None:
        """Return chunks that are no longer read, for reuse; called in the iterating thread."""


class Source(Protocol):
    """One version of one file, wherever it is stored."""

    def open(self, offset: int, end: int | None = None) -> AbstractContextManager[Stream]:
        """Open a stream at `offset`.  Raises the source's error if that fails.

        Bytes from `end` on may be left out, so that the connection can be reused.
        """

    async def confirm(self) -> None:
        """Raise Changed if the source now has another version; called on the event loop.

        Raises the source's error if the check fails.
        """
