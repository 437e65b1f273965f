"""Most recently downloaded chunks of one file, in memory.

Used on the event loop.  A reader that follows a download is served from here, without a system call
or decryption.

INVARIANT: a chunk that is not stored yet stays here.

INVARIANT: buffers in `spent` are not read any more, so they can be reused.  Bytes returned by `get`
are consumed before the event loop continues.
"""

from collections import deque
from collections.abc import Iterator

from zonedrive.content.content_file import Buffer

CAPACITY = 8 << 20  # bytes for one content
_MOST = 64  # chunks, where they are small


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

    def __init__(self, capacity: int = CAPACITY) -> None:
        """Create an empty buffer for about `capacity` bytes."""
        self.spent: deque[Buffer] = deque(maxlen=_MOST)
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
        if self._held > self._capacity or len(self._chunks) > _MOST:
            self._shrink()

    def stored(self, offset: int) -> None:
        """Record that the chunk at `offset` can also be read elsewhere."""
        for chunk in reversed(self._chunks):
            if chunk.start == offset and not chunk.is_stored:
                chunk.is_stored = True
                break
        if self._resting:
            self.rest()

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

    def rest(self) -> None:
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
            full = self._held > self._capacity or count > _MOST
            if full and chunk.is_stored and index < len(self._chunks) - 1:
                self._held -= len(chunk.data)
                count -= 1
                self.spent.append(chunk.data)
            else:
                kept.append(chunk)
        self._chunks = kept
