"""One open cached file: serves reads, and says from their pattern how far to read ahead.

A small one that is all here is served from memory.

Must not know how bytes are fetched or kept, only who does it.

INVARIANT: bytes come from one version only: an entry is of one revision for all its life.
"""

from collections.abc import Callable
from typing import Protocol

from zonedrive.content.entry import Entry
from zonedrive.content.fetch import Fetcher
from zonedrive.content.file import Buffer, ContentFile
from zonedrive.content.source import Changed
from zonedrive.errors import StoreError

FIRST_WINDOW = 1 << 20  # bytes read ahead of a reader that just began
MAX_WINDOW = 32 << 20
MAX_STREAMING_WINDOW = 4 << 20  # where the bytes wait in memory
EAGER = 8 << 20  # who has read so much in a row is taken to want all that follows
STEP = 4 << 20  # bytes after which a reader with the whole window ahead of it asks for more
SLACK = 1 << 20  # the kernel's reads of one sequential reader arrive in any order
_TRIES = 16  # a memory window may drop bytes before their reader wakes


class Reader(Protocol):
    """Reads one revision of a file."""

    size: int

    @property
    def complete(self) -> bool:
        """Whether all of it can be read without the source."""

    @property
    def spoilt(self) -> bool:
        """Whether it can read nothing more: the source had something else than this version."""

    @property
    def kept(self) -> bool:
        """Whether all of it is on the disk."""

    def file(self) -> ContentFile | None:
        """The file behind it, to be closed by the caller; None where there is none."""

    def available(self, offset: int, length: int) -> Buffer | None:
        """What `read` would give, if it is there already; else None.  Never waits."""

    async def read(self, offset: int, length: int) -> Buffer:
        """`length` bytes at `offset`; fewer at the end, none past it.

        They are valid until the loop goes on.
        Raises Changed where this version cannot be had any more, TimedOut where no bytes come,
        and whatever the source raises.
        """

    async def fill(self) -> None:
        """Wait until everything was fetched.  Raises what `read` raises, not for a full disk."""

    def close(self) -> None:
        """End the use."""


class MemoryReader:
    """Reads a small content that is all here."""

    complete = kept = True
    spoilt = False

    def __init__(self, data: bytes) -> None:
        self.size = len(data)
        self._data = data

    def file(self) -> None:
        """See Reader."""

    def available(self, offset: int, length: int) -> bytes:
        """See Reader."""
        return self._data[offset : offset + length]

    async def read(self, offset: int, length: int) -> bytes:
        """See Reader."""
        return self.available(offset, length)

    async def fill(self) -> None:
        """See Reader."""

    def close(self) -> None:
        """See Reader."""


class EntryReader:
    """Reads one revision of a file; bytes that are not there yet are fetched.

    complete: whether all of it can be read without the source.
    """

    def __init__(
        self, entry: Entry, fetcher: Fetcher, closed: Callable[["EntryReader"], None]
    ) -> None:
        """`closed` is called once, when this reader is."""
        self.size = entry.size
        self._entry = entry
        self._fetcher = fetcher
        self._closed: Callable[[EntryReader], None] | None = closed
        self._next = 0  # where a sequential reader goes on
        self._run = 0  # bytes read in sequence so far
        self._asked_from = self._asked_until = 0  # where a reader in sequence needs no more ahead
        self._head = FIRST_WINDOW  # read ahead in any case: of who began at the beginning

    @property
    def complete(self) -> bool:
        """Whether all of it is there."""
        self._entry.shed()
        return self._entry.present.covers(0, self.size)

    @property
    def spoilt(self) -> bool:
        """Whether it can read nothing more: the source had something else than this version."""
        return isinstance(self._fetcher.dead, Changed)

    @property
    def kept(self) -> bool:
        """Whether all of it is on the disk."""
        return self._entry.complete

    def file(self) -> ContentFile | None:
        """The file behind it, to be closed by the caller; None where there is none."""
        return self._entry.copy_source()

    def available(self, offset: int, length: int) -> Buffer | None:
        """What `read` would give, if it is there already; else None.  Never waits."""
        end = min(offset + length, self.size)
        if offset >= end:
            return b""
        data = self._entry.read(offset, end - offset)
        if data is not None:
            self._seen(offset, end)
            if not self._asked_from <= self._next < self._asked_until:
                self._ask_ahead()
        return data

    def _ask_ahead(self) -> None:
        """Let more be fetched for a reader in sequence; then not again for a while."""
        self._asked_from = self._asked_until = self._next
        if self._entry.complete:
            self._asked_until = self.size + 1
        elif window := self._window():
            goal, bounded = self._next + window, self._run < EAGER
            self._fetcher.ahead(self._next, goal, window // 2, bounded=bounded)
            if window == MAX_WINDOW:
                self._asked_until = self._next + STEP

    async def read(self, offset: int, length: int) -> Buffer:
        """`length` bytes at `offset`; fewer at the end, none past it.

        They are valid until the loop goes on.
        Raises Changed where this version cannot be had any more, TimedOut where no bytes come,
        and whatever the source raises.
        """
        end = min(offset + length, self.size)
        if offset >= end:
            return b""
        self._seen(offset, end)
        for _ in range(_TRIES):
            goal = end + self._window()
            await self._fetcher.wait(offset, end, goal, bounded=self._run < EAGER)
            data = self._entry.read(offset, end - offset)
            if data is not None:
                return data
        raise StoreError("the memory window is too small for all who read this file")

    async def fill(self, step: int = 8 << 20) -> None:
        """Wait until everything was fetched.  Raises what `read` raises, not for a full disk."""
        position = 0
        while position < self.size:
            end = min(position + step, self.size)
            await self._fetcher.wait(position, end, self.size)
            if self._entry.streaming:
                return  # it passes through memory and is not kept
            position = end
        await self._fetcher.settle()

    def close(self) -> None:
        """End the use; running downloads end with their last reader."""
        closed, self._closed = self._closed, None
        if closed is not None:
            closed(self)

    def _seen(self, offset: int, end: int) -> None:
        """Learn from a read whether its reader goes straight on."""
        if abs(offset - self._next) <= SLACK:
            self._run += max(end - max(self._next, offset), 0)
            self._next = max(self._next, end)
        else:
            self._run = self._head = 0
            self._next = end

    def _window(self) -> int:
        """How far to read ahead: not at all after a jump, then ever further."""
        most = MAX_WINDOW
        if self._entry.streaming:
            most = min(MAX_STREAMING_WINDOW, self._entry.ahead)
        return min(self._head + 2 * self._run, most)
