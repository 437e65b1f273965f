"""Bytes of cached files in memory: for readers behind a download, and for reads from the disk.

Knows nothing about downloads or files.

`RecentChunks` serves a reader that follows a download, without a system call or decryption.
`StreamBuffers` hold the latest bytes of files that cannot be stored on the disk.  `ReadAhead` and
SCRATCH are buffers for reads from the disk.  `StreamBuffers` are thread-safe: threads write, the
event loop reads.  The others are used on the event loop only, and the bytes that they return are
consumed before the loop continues.

INVARIANT: a received chunk that is not stored yet stays in `RecentChunks`.

INVARIANT: buffers in `RecentChunks.spent` are not read any more, so they can be reused.

INVARIANT: all windows together hold about `capacity` bytes at most.  Windows that were not used
recently are emptied first, then the largest one.
"""

import threading
from collections import OrderedDict, deque
from collections.abc import Iterator
from typing import Final

from zonedrive import memory
from zonedrive.content.content_file import Buffer

RECENT = 8 << 20  # bytes of recent chunks of one content
_MOST_CHUNKS = 64  # of one content, where they are small
CELL = 64 * 1024
CAPACITY = 32 << 20  # bytes for the windows of all contents
_MOST = 16 << 20  # for the window of one content; more than all its read-ahead
_LEAST = 1 << 20  # minimum read-ahead of a window, however many windows exist
AHEAD = 512 << 10  # bytes of one disk read for a sequential reader


class _Chunk:
    """Bytes from `start` up to `end`."""

    __slots__ = ("data", "end", "is_stored", "start")

    def __init__(self, start: int, data: Buffer) -> None:
        self.start = start
        self.end = start + len(data)
        self.data = memoryview(data)
        self.is_stored = False


class RecentChunks:
    """Chunks of bytes by offset."""

    def __init__(self, capacity: int = RECENT) -> None:
        """Create an empty buffer for about `capacity` bytes."""
        self.spent: deque[Buffer] = deque(maxlen=_MOST_CHUNKS)
        """Memory of dropped chunks, for reuse by the download."""
        self._capacity = capacity
        self._chunks: list[_Chunk] = []  # in the order in which they came
        self._held = 0
        self._resting = False

    def put(self, offset: int, data: Buffer) -> None:
        """Add `data`, which is about to be stored."""
        self._resting = False
        self._chunks.append(_Chunk(offset, data))
        self._held += len(data)
        if self._held > self._capacity or len(self._chunks) > _MOST_CHUNKS:
            self._shrink()

    def stored(self, offset: int) -> None:
        """Record that the chunk at `offset` can also be read elsewhere."""
        for chunk in reversed(self._chunks):
            if chunk.start == offset and not chunk.is_stored:
                chunk.is_stored = True
                break
        if self._resting:
            self.drop_stored()

    @property
    def unstored(self) -> Iterator[tuple[int, int]]:
        """Ranges of bytes that are not stored elsewhere yet."""
        return ((chunk.start, chunk.end) for chunk in self._chunks if not chunk.is_stored)

    def get(self, offset: int, length: int) -> Buffer | None:
        """Return exactly `length` bytes, or None if some are missing.

        Bytes of one chunk are not copied; they are valid until the event loop continues.
        """
        end = offset + length
        for chunk in reversed(self._chunks):
            if chunk.start <= offset < chunk.end:
                if end <= chunk.end:
                    return chunk.data[offset - chunk.start : end - chunk.start]
                rest = self.get(chunk.end, end - chunk.end)
                return (
                    None if rest is None else b"".join((chunk.data[offset - chunk.start :], rest))
                )
        return None

    def drop_stored(self) -> None:
        """Drop the chunks that can be read elsewhere, until new bytes are added."""
        self._resting = True
        self._chunks = [chunk for chunk in self._chunks if not chunk.is_stored]
        self._held = sum(len(chunk.data) for chunk in self._chunks)
        self.spent.clear()

    def clear(self) -> None:
        """Drop all chunks."""
        self._chunks.clear()
        self._held = 0
        self.spent.clear()

    def _shrink(self) -> None:
        """Drop the oldest chunks that can be read elsewhere, but never the newest chunk."""
        kept: list[_Chunk] = []
        count = len(self._chunks)
        for index, chunk in enumerate(self._chunks):
            full = self._held > self._capacity or count > _MOST_CHUNKS
            if full and chunk.is_stored and index < len(self._chunks) - 1:
                self._held -= len(chunk.data)
                count -= 1
                self.spent.append(chunk.data)
            else:
                kept.append(chunk)
        self._chunks = kept


class StreamBuffers:
    """Memory budget shared by all windows."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        """Limit the combined size of all windows to `capacity` bytes."""
        self.lock = threading.Lock()
        self.held = 0
        self._capacity = capacity
        self._holders: set[StreamBuffer] = set()  # those that hold something

    @property
    def ahead(self) -> int:
        """Bytes of read-ahead that one window can hold until they are read."""
        return max(_LEAST, self._capacity // (3 * max(1, len(self._holders))))

    def new(self) -> "StreamBuffer":
        """Return a new window within the shared budget."""
        return StreamBuffer(self, min(_MOST, self._capacity))

    def empty_idle(self) -> None:
        """Empty the windows that were not used since the last call."""
        with self.lock:
            for window in list(self._holders):
                if window.used:
                    window.used = False
                else:
                    window.empty()

    def changed(self, window: "StreamBuffer", by: int) -> None:
        """Add `by` bytes to the total; called with the lock held."""
        self.held += by
        if window.held:
            self._holders.add(window)
        else:
            self._holders.discard(window)

    def shrink_to_capacity(self) -> None:
        """Drop cells until the total is within the budget; called with the lock held."""
        while self.held > self._capacity and self._holders:
            max(self._holders, key=lambda window: (not window.used, window.held)).shrink()


class StreamBuffer:
    """Bytes of one file by offset; the oldest cells are dropped to make room for new ones."""

    def __init__(self, windows: StreamBuffers, most: int) -> None:
        """Create a window of at most `most` bytes."""
        self.used = True
        self.held = 0
        self.dropped: deque[tuple[int, int]] = deque()
        """Queue of dropped ranges; the owner of the window removes and processes them."""
        self._cells: OrderedDict[int, dict[int, bytes]] = OrderedDict()
        self._windows = windows
        self._most = most

    def pwrite(self, offset: int, data: Buffer) -> None:
        """Store `data`, dropping older cells of any window if necessary."""
        with self._windows.lock:
            self.used = True
            before, done = self.held, 0
            while done < len(data):
                cell, start = divmod(offset + done, CELL)
                piece = bytes(data[done : done + CELL - start])  # not the buffer it lies in
                fragments = self._cells.setdefault(cell, {})
                known = len(fragments.get(start, b""))
                if len(piece) > known:  # another stream may have been cut into longer pieces
                    self.held += len(piece) - known
                    fragments[start] = piece
                self._cells.move_to_end(cell)
                done += len(piece)
            self._windows.changed(self, self.held - before)
            while self.held > self._most and len(self._cells) > 1:
                self.shrink()
            self._windows.shrink_to_capacity()

    def pread(self, offset: int, length: int) -> bytes | None:
        """Return exactly `length` bytes, or None if some are missing."""
        parts: list[bytes] = []
        end = offset + length
        with self._windows.lock:
            self.used = True
            while offset < end:
                cell, start = divmod(offset, CELL)
                fragments = self._cells.get(cell, {})
                for base, piece in fragments.items():
                    if base <= start < base + len(piece):
                        part = piece[start - base : start - base + end - offset]
                        break
                else:
                    return None
                parts.append(part)
                offset += len(part)
        return b"".join(parts)

    def holds(self, offset: int) -> bool:
        """Return True if the cell at `offset` has any bytes."""
        with self._windows.lock:
            return offset // CELL in self._cells

    def close(self) -> None:
        """Drop all bytes."""
        with self._windows.lock:
            self.empty()

    def empty(self) -> None:
        """Drop all bytes; called with the lock held."""
        while self._cells:
            self.shrink()

    def shrink(self) -> None:
        """Drop the oldest cell; called with the lock held."""
        cell, fragments = self._cells.popitem(last=False)
        gone = sum(map(len, fragments.values()))
        self.held -= gone
        self.dropped.append((cell * CELL, (cell + 1) * CELL))
        self._windows.changed(self, -gone)


class ReadAhead:
    """Bytes read from the disk in advance for a sequential reader."""

    def __init__(self) -> None:
        self.start = 0
        self.end = 0  # where the last read from the disk ended
        self._memory: memoryview | None = None

    def get(self, start: int, end: int) -> memoryview | None:
        """Return a range, valid until the event loop continues, or None if bytes are missing."""
        if self._memory is not None and self.start <= start and end <= self.end:
            return self._memory[start - self.start : end - self.start]
        return None

    def memory(self) -> memoryview:
        """Return a buffer of AHEAD bytes."""
        if self._memory is None:
            self._memory = memoryview(bytearray(AHEAD))
        return self._memory


class Scratch:
    """Buffer for one read at a time, shared by all entries."""

    def __init__(self) -> None:
        self._memory = memoryview(b"")

    def lend(self, count: int) -> memoryview:
        """Return `count` bytes of the buffer, valid until the event loop continues."""
        if count > len(self._memory):
            self._memory = memory.large(count)
        return self._memory[:count]


SCRATCH: Final = Scratch()
