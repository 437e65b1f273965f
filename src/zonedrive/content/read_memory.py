"""Reusable buffers for reads from the disk.

Used on the event loop only: the bytes are consumed before the loop continues.
"""

from typing import Final

from zonedrive import memory

AHEAD = 512 << 10  # bytes of one disk read for a sequential reader


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
