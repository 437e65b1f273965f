"""Memory that bytes are read into from the disk, used again and again.

Belongs to the loop: what is read is used before the loop does anything else.
"""

from typing import Final

from zonedrive import memory

AHEAD = 512 << 10  # bytes that are read at once for who reads a file on the disk in sequence


class ReadAhead:
    """Bytes read from the disk beyond what was asked for, for who reads on."""

    def __init__(self) -> None:
        self.start = 0
        self.end = 0  # where the last read from the disk ended
        self._memory: memoryview | None = None

    def get(self, start: int, end: int) -> memoryview | None:
        """Return that range, valid until the loop goes on; None where not all of it is here."""
        if self._memory is not None and self.start <= start and end <= self.end:
            return self._memory[start - self.start : end - self.start]
        return None

    def memory(self) -> memoryview:
        """Return memory for AHEAD bytes."""
        if self._memory is None:
            self._memory = memoryview(bytearray(AHEAD))
        return self._memory


class Scratch:
    """Memory for one read at a time, of whatever entry."""

    def __init__(self) -> None:
        self._memory = memoryview(b"")

    def lend(self, count: int) -> memoryview:
        """Return `count` bytes of it, valid until the loop goes on."""
        if count > len(self._memory):
            self._memory = memory.large(count)
        return self._memory[:count]


SCRATCH: Final = Scratch()
