"""Memory buffers of cached files: recently downloaded chunks, and buffers for disk reads.

All methods run on the event loop, and callers use the returned bytes before their next checkpoint.

`RecentChunks` serves a reader that follows a download, without a system call or decryption. It
also keeps the latest bytes that could not be stored for lack of space or after a disk error.
`ReadAhead` and SCRATCH are buffers for reads from the disk.

INVARIANT: a received chunk that is not stored yet stays in `RecentChunks`.

INVARIANT: one `MemoryBudget` limits the total size of chunks that could not be stored.
"""

from collections import deque
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Final

from zonedrive import memory
from zonedrive.content.content_file import Buffer

RECENT = 8 << 20  # bytes of recent chunks of one entry
_MOST_CHUNKS = 64  # maximum number of recent chunks of one entry, if the chunks are small
PIECE = 64 * 1024  # bytes up to which small chunks that could not be stored are joined
CAPACITY = 32 << 20  # maximum unstored bytes in memory of all entries together
_MOST = 16 << 20  # maximum unstored bytes in memory of one entry; more than its read-ahead
_LEAST = 1 << 20  # minimum read-ahead in bytes of one entry, however many entries there are
AHEAD = 512 << 10  # bytes of one disk read for a sequential reader


class _Chunk:
    """Bytes of a file's content from offset `start` up to, not including, `end`."""

    __slots__ = ("data", "end", "is_stored", "start")

    def __init__(self, start: int, data: bytes) -> None:
        self.start = start
        self.end = start + len(data)
        self.data = memoryview(data)
        self.is_stored = False


class MemoryBudget:
    """Memory limit, shared by all cache entries, for bytes that could not be stored on the disk."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        """Create a budget of `capacity` bytes for all entries together."""
        self.capacity = capacity
        self.holders: set[RecentChunks] = set()  # buffers with bytes that could not be stored

    @property
    def held(self) -> int:
        """Total number of bytes in memory that could not be stored on the disk."""
        return sum(each.kept_bytes for each in self.holders)

    @property
    def ahead(self) -> int:
        """Maximum read-ahead in bytes that one entry may hold only in memory."""
        return max(_LEAST, self.capacity // (3 * max(1, len(self.holders))))

    def shrink(self) -> None:
        """Drop bytes that could not be stored on the disk, until the total is within the limit.

        Each step drops the oldest such chunk of the buffer that has the most such bytes.
        """
        while self.held > self.capacity:
            max(self.holders, key=lambda each: each.kept_bytes).drop_oldest()


class RecentChunks:
    """Recently downloaded chunks of one entry, by offset."""

    def __init__(
        self,
        dropped: Callable[[int, int], None],
        budget: MemoryBudget,
        capacity: int = RECENT,
    ) -> None:
        """Create an empty buffer for about `capacity` bytes.

        Bytes that could not be stored on the disk do not count towards `capacity`. `dropped` is
        called with the start and end offsets of a chunk that was dropped and is stored nowhere
        else.
        """
        self.kept_bytes = 0  # bytes in `_kept`
        self._kept: deque[_Chunk] = deque()  # chunks that could not be stored, the oldest first
        self._budget = budget
        self._dropped = dropped
        self._capacity = capacity
        self._chunks: list[_Chunk] = []  # all other chunks, in the order of their arrival
        self._held = 0
        self._resting = False

    def put(self, offset: int, data: bytes) -> None:
        """Add the bytes `data` at `offset`; call this before storing them on the disk."""
        self._resting = False
        self._chunks.append(_Chunk(offset, data))
        self._held += len(data)
        if self._held > self._capacity or len(self._chunks) > _MOST_CHUNKS:
            self._shrink()

    def stored(self, offset: int) -> None:
        """Record that the chunk at `offset` can also be read from the disk."""
        if (chunk := self._unstored_at(offset)) is not None:
            chunk.is_stored = True
        if self._resting:
            self.drop_stored()

    def keep(self, offset: int) -> None:
        """Record that the chunk at `offset` could not be stored on the disk.

        If such chunks now exceed the limit of this entry or the budget of all entries, drop the
        oldest ones.
        """
        chunk = self._unstored_at(offset)
        if chunk is None:
            return
        self._chunks.remove(chunk)
        self._held -= len(chunk.data)
        self.kept_bytes += len(chunk.data)
        last = self._kept[-1] if self._kept else None
        if last is not None and last.end == offset and len(last.data) + len(chunk.data) <= PIECE:
            last.data, last.end = memoryview(b"".join((last.data, chunk.data))), chunk.end
        else:
            self._kept.append(chunk)
        self._budget.holders.add(self)
        while self.kept_bytes > _MOST and len(self._kept) > 1:
            self.drop_oldest()
        self._budget.shrink()

    def _unstored_at(self, offset: int) -> _Chunk | None:
        for chunk in reversed(self._chunks):
            if chunk.start == offset and not chunk.is_stored:
                return chunk
        return None

    def drop_oldest(self) -> None:
        """Drop the oldest chunk that could not be stored on the disk."""
        chunk = self._kept.popleft()
        self.kept_bytes -= len(chunk.data)
        if not self._kept:
            self._budget.holders.discard(self)
        self._dropped(chunk.start, chunk.end)

    @property
    def is_storing(self) -> bool:
        """True if a chunk still waits to be stored on the disk."""
        return any(not chunk.is_stored for chunk in self._chunks)

    @property
    def unstored(self) -> Iterator[tuple[int, int]]:
        """Ranges (start, end) of bytes that are in this buffer but not on the disk."""
        storing = (chunk for chunk in self._chunks if not chunk.is_stored)
        return ((chunk.start, chunk.end) for chunk in chain(storing, self._kept))

    def get(self, offset: int, length: int) -> Buffer | None:
        """Return exactly `length` bytes at `offset`, or None if some of the bytes are missing.

        The bytes are copied only if they are in more than one chunk.
        """
        parts, end = list[memoryview](), offset + length
        while offset < end:
            chunk = self._chunk_at(offset)
            if chunk is None:
                return None
            parts.append(chunk.data[offset - chunk.start : end - chunk.start])
            offset = chunk.end
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _chunk_at(self, offset: int) -> _Chunk | None:
        for chunk in chain(reversed(self._chunks), reversed(self._kept)):
            if chunk.start <= offset < chunk.end:
                return chunk
        return None

    def drop_stored(self) -> None:
        """Drop all chunks that are also on the disk.

        Until the next `put`, further chunks are dropped as soon as they are stored.
        """
        self._resting = True
        self._chunks = [chunk for chunk in self._chunks if not chunk.is_stored]
        self._held = sum(len(chunk.data) for chunk in self._chunks)

    def clear(self) -> None:
        """Drop all chunks."""
        self._chunks.clear()
        self._kept.clear()
        self._held = self.kept_bytes = 0
        self._budget.holders.discard(self)

    def _shrink(self) -> None:
        """Drop stored chunks, oldest first, until the limits are met; keep the newest chunk."""
        kept: list[_Chunk] = []
        count = len(self._chunks)
        for index, chunk in enumerate(self._chunks):
            full = self._held > self._capacity or count > _MOST_CHUNKS
            if full and chunk.is_stored and index < len(self._chunks) - 1:
                self._held -= len(chunk.data)
                count -= 1
            else:
                kept.append(chunk)
        self._chunks = kept


class ReadAhead:
    """Bytes read from the disk in advance for a sequential reader."""

    def __init__(self) -> None:
        self.start = 0
        self.end = 0  # where the last read from the disk ended
        self._memory: memoryview | None = None

    def get(self, start: int, end: int) -> memoryview | None:
        """Return the bytes [start, end), or None if some of the bytes are missing.

        The result is valid until the next read from the disk.
        """
        if self._memory is not None and self.start <= start and end <= self.end:
            return self._memory[start - self.start : end - self.start]
        return None

    def memory(self) -> memoryview:
        """Return the buffer of AHEAD bytes; allocate the buffer at the first call."""
        if self._memory is None:
            self._memory = memoryview(bytearray(AHEAD))
        return self._memory


class Scratch:
    """Buffer for one read at a time, shared by all entries."""

    def __init__(self) -> None:
        self._memory = memoryview(b"")

    def lend(self, count: int) -> memoryview:
        """Return `count` bytes of the buffer, valid until the caller's next checkpoint."""
        if count > len(self._memory):
            self._memory = memory.large(count)
        return self._memory[:count]


SCRATCH: Final = Scratch()
