"""Readers of open cached files, with a read-ahead that depends on the access pattern.

The complete content of a small file is served from memory. `fetcher` fetches the bytes of other
files, and `cache_entry` stores them.

INVARIANT: all bytes come from one version, because an entry always belongs to one revision.
"""

import errno
from collections.abc import Callable

from zonedrive.content.cache_entry import CacheEntry
from zonedrive.content.content_file import Buffer, ContentFile
from zonedrive.content.fetcher import Fetcher
from zonedrive.errors import Changed, StoreError

FIRST_WINDOW = 1 << 20  # bytes of read-ahead for a new reader
MAX_WINDOW = 32 << 20
MAX_STREAMING_WINDOW = 4 << 20  # maximum if bytes can be kept only in memory
EAGER = 8 << 20  # after this many sequential bytes, the rest of the file is fetched
STEP = 4 << 20  # bytes after which a reader with the largest window requests more
SLACK = 1 << 20  # bytes; the kernel may reorder the reads of a sequential reader by this much
FILL_STEP = 8 << 20
_FILLS = 3  # attempts to store bytes that could not be stored before
_TRIES = 16  # attempts of a read: bytes in memory may be dropped before the reader runs


class Reader:
    """Reader of one revision of a file; this base class serves a small file from memory."""

    version_gone = False
    """True if reading is no longer possible, because the source has another version."""

    def __init__(self, data: bytes) -> None:
        self.size = len(data)
        self._data = data

    @property
    def complete(self) -> bool:
        """True if all bytes can be read without the source."""
        return True

    @property
    def kept(self) -> bool:
        """True if all bytes are on the disk."""
        return True

    @property
    def failure(self) -> int:
        """Errno of the failure to store bytes on the disk, if `kept` is False after `fill`."""
        return errno.ENOSPC

    def file(self) -> ContentFile | None:
        """Return a reference to the content file, or None if there is no file.

        The caller closes the reference.
        """
        return None

    def available(self, offset: int, length: int) -> Buffer | None:
        """Return the result of `read` if it is available without waiting, else None."""
        return self._data[offset : offset + length]

    async def read(self, offset: int, length: int) -> Buffer:
        """Return `length` bytes at `offset`; fewer at the end of the file, none past the end.

        The bytes are valid until the next read or the caller's next checkpoint. Raises Changed if
        this version is no longer available, TimedOut if no bytes arrive, StoreError if memory is
        short or the cache is closed, and the errors of the source.
        """
        return self._data[offset : offset + length]

    async def begin(self) -> bool:
        """Fetch the first bytes if no bytes are local; return True if bytes were fetched.

        Nothing is fetched for an empty file. Raises the errors of `read`.
        """
        return False

    async def fill(self, *, again: bool = False) -> None:
        """Fetch all missing bytes, and wait until all bytes are stored.

        If the disk cannot store the bytes, return early without an error; `kept` is then False.
        With `again`, bytes that could not be stored before are fetched again. Raises the errors of
        `read`.
        """

    def close(self) -> None:
        """Close the reader; the downloads of an entry stop when its last reader is closed."""


class EntryReader(Reader):
    """Reader that fetches the missing bytes of one revision of a file."""

    def __init__(self, entry: CacheEntry, fetcher: Fetcher, closed: Callable[[], None]) -> None:
        """Create a reader; `closed` is called once, when the reader is closed."""
        self.size = entry.size
        self._entry = entry
        self._fetcher = fetcher
        self._closed: Callable[[], None] | None = closed
        self._next = 0  # offset at which a sequential reader continues
        self._run = 0  # bytes read in sequence so far
        self._asked_from = self._asked_until = 0  # range of positions with enough read-ahead
        self._head = FIRST_WINDOW  # minimum read-ahead, until the first seek

    @property
    def complete(self) -> bool:
        return self._entry.present.covers(0, self.size)

    @property
    def version_gone(self) -> bool:  # type: ignore[override]
        return isinstance(self._fetcher.dead, Changed)

    @property
    def kept(self) -> bool:
        return self._entry.complete

    @property
    def failure(self) -> int:
        return self._entry.failure

    def file(self) -> ContentFile | None:
        return self._entry.copy_source()

    def available(self, offset: int, length: int) -> Buffer | None:
        end = min(offset + length, self.size)
        if offset >= end:
            return b""
        if not self._entry.has(offset, end):
            return None
        self._seen(offset, end)
        if not self._asked_from <= self._next < self._asked_until:
            self._ask_ahead()  # before the read, whose result may be in memory that this reuses
        return self._entry.read(offset, end - offset)

    def _ask_ahead(self) -> None:
        """Request read-ahead, and record the range of positions that need no further request."""
        self._asked_from = self._asked_until = self._next
        if self._entry.complete:
            self._asked_until = self.size + 1
        elif window := self._window():
            goal, bounded = self._next + window, self._run < EAGER
            self._fetcher.ahead(self._next, goal, window // 2, bounded=bounded)
            if window == MAX_WINDOW:
                self._asked_until = self._next + STEP

    async def read(self, offset: int, length: int) -> Buffer:
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
        raise StoreError("too many programs read this uncached file at once")

    async def begin(self) -> bool:
        if self._entry.present or not self.size:
            return False
        await self.read(0, 1)
        return True

    async def fill(self, *, again: bool = False) -> None:
        # A download that is running may refuse one more chunk after the disk has room again.
        for _ in range(_FILLS if again and self._entry.streaming else 1):
            if again and self._entry.streaming:
                self._entry.try_disk_again()
            await self._fill()
            if not self._entry.streaming:
                return

    async def _fill(self) -> None:
        position = 0
        while position < self.size:
            end = min(position + FILL_STEP, self.size)
            await self._fetcher.wait(position, end, self.size)
            if self._entry.streaming:
                return  # the bytes pass through memory and cannot be kept
            position = end
        await self._fetcher.wait_until_stored()

    def close(self) -> None:
        closed, self._closed = self._closed, None
        if closed is not None:
            closed()

    def _seen(self, offset: int, end: int) -> None:
        """Update the recorded access pattern for a read of [offset, end)."""
        if abs(offset - self._next) <= SLACK:
            self._run += max(end - max(self._next, offset), 0)
            self._next = max(self._next, end)
        else:
            self._run = self._head = 0
            self._next = end

    def _window(self) -> int:
        """Return the read-ahead in bytes: 0 after a seek, then growing with sequential reads."""
        most = MAX_WINDOW
        if self._entry.streaming:
            most = min(MAX_STREAMING_WINDOW, self._entry.budget.ahead)
        return min(self._head + 2 * self._run, most)
