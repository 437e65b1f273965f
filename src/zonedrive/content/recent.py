"""The chunks of one content that came last, to be read from memory.

Knows nothing of downloads or files.  Thread-safe: downloads put chunks in, the loop reads.  Who
reads just behind a download would else go to the disk for what has only been put there.

INVARIANT: a chunk that was given out by `put` is looked at no more, so that its memory can be
used again.
"""

import threading
from collections import deque

from zonedrive.content.file import Buffer

CAPACITY = 6 << 20  # bytes for one content
_MOST = 64  # chunks, where they are small


class Recent:
    """Bytes by offset."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        """Hold at most `capacity` bytes, a chunk more or less."""
        self._capacity = capacity
        self._chunks: deque[tuple[int, Buffer]] = deque()
        self._held = 0
        self._lock = threading.Lock()

    def put(self, offset: int, data: Buffer) -> list[Buffer]:
        """Keep `data`; the chunks that make room for it."""
        gone: list[Buffer] = []
        with self._lock:
            self._chunks.append((offset, data))
            self._held += len(data)
            while len(self._chunks) > 1 and (
                self._held > self._capacity or len(self._chunks) > _MOST
            ):
                gone.append(self._chunks.popleft()[1])
                self._held -= len(gone[-1])
        return gone

    def get(self, offset: int, length: int) -> bytes | None:
        """Exactly `length` bytes, or None where some are not here."""
        parts: list[Buffer] = []
        end = offset + length
        with self._lock:
            while offset < end:
                for start, data in reversed(self._chunks):
                    if start <= offset < start + len(data):
                        parts.append(memoryview(data)[offset - start : end - start])
                        offset += len(parts[-1])
                        break
                else:
                    return None
            return b"".join(parts)

    def clear(self) -> None:
        """Hold nothing."""
        with self._lock:
            self._chunks.clear()
            self._held = 0
