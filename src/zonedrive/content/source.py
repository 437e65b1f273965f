"""What the cache needs from whoever brings bytes: a source that can be opened at an offset.

Everything here is called in worker threads and may block; nothing here knows the service.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Protocol, runtime_checkable

from zonedrive.content.file import Buffer
from zonedrive.errors import Changed as Changed  # what a source raises


class Stream(Protocol):
    """The bytes of one content from some offset on, in chunks, once.

    Iterating raises what broke it.  A stream may also have `abort()` (see Abortable).
    """

    @property
    def offset(self) -> int:
        """Where the bytes really start: before what was asked for where ranges are ignored."""

    @property
    def total(self) -> int | None:
        """Bytes of the whole content, None where the source does not say."""

    @property
    def validator(self) -> str | None:
        """The same text as long as the content is the same, None where there is none."""

    def __iter__(self) -> Iterator[Buffer]:
        """The chunks, best 256 KiB to 1 MiB each."""


class Source(Protocol):
    """One version of one file, wherever it is."""

    def open(self, offset: int) -> AbstractContextManager[Stream]:
        """Begin to read at `offset`.  Raises what hinders it."""


@runtime_checkable
class RangeSource(Source, Protocol):
    """A source that can be asked for a part, which leaves its connection usable."""

    def open_range(self, offset: int, end: int) -> AbstractContextManager[Stream]:
        """Begin to read at `offset`; bytes from `end` on are not wanted and may be left out."""


@runtime_checkable
class Abortable(Protocol):
    """A stream that another thread can break off."""

    def abort(self) -> None:
        """Let a blocked iteration end soon, with any exception.  Must not block."""


@runtime_checkable
class Confirming(Source, Protocol):
    """A source that can say whether its version is still the one it was made for."""

    async def confirm(self) -> None:
        """Raise Changed where it is another one by now.  On the loop; raises what hinders it."""


@runtime_checkable
class Thrifty(Protocol):
    """A stream that uses the memory of its chunks again."""

    def give_back(self, chunks: list[Buffer]) -> None:
        """Nobody looks at these chunks any more.  From the thread that iterates."""
