"""Set of positions, such as byte offsets or chunk numbers, stored as half-open ranges.

The operations must stay fast with tens of thousands of ranges, which random reads cause.

INVARIANT: ranges are non-empty and sorted, and neither overlap nor touch.
"""

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

_PAIR = struct.Struct("<QQ")


class Ranges:
    """Set of positions, stored as ranges from `start` up to, not including, `end`."""

    def __init__(self, pairs: Iterable[tuple[int, int]] = ()) -> None:
        """Create the set of all positions in the ranges `pairs`, each (start, end)."""
        self._starts: list[int] = []
        self._ends: list[int] = []
        for start, end in pairs:
            self.add(start, end)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(list(zip(self._starts, self._ends, strict=True)))

    def __len__(self) -> int:
        return len(self._starts)

    def add(self, start: int, end: int) -> None:
        """Add the positions [start, end)."""
        if start >= end:
            return
        low = bisect_left(self._ends, start)  # the first range that touches or follows
        high = bisect_right(self._starts, end)  # the first range that starts after `end`
        if low < high:
            start, end = min(start, self._starts[low]), max(end, self._ends[high - 1])
        self._starts[low:high] = [start]
        self._ends[low:high] = [end]

    def remove(self, start: int, end: int) -> None:
        """Remove the positions [start, end)."""
        if start >= end:
            return
        low = bisect_right(self._ends, start)
        high = bisect_left(self._starts, end)
        if low >= high:
            return
        kept: list[tuple[int, int]] = []
        if self._starts[low] < start:
            kept.append((self._starts[low], start))
        if self._ends[high - 1] > end:
            kept.append((end, self._ends[high - 1]))
        self._starts[low:high] = [pair[0] for pair in kept]
        self._ends[low:high] = [pair[1] for pair in kept]

    def reach(self, start: int) -> int:
        """Return the first position from `start` on that is not in the set."""
        index = bisect_right(self._starts, start) - 1
        if index >= 0 and self._ends[index] > start:
            return self._ends[index]
        return start

    def following(self, start: int) -> int | None:
        """Return the first position from `start` on that is in the set, or None."""
        index = bisect_right(self._starts, start) - 1
        if index >= 0 and self._ends[index] > start:
            return start
        return self._starts[index + 1] if index + 1 < len(self._starts) else None

    def covers(self, start: int, end: int) -> bool:
        """Return True if all of [start, end) is in the set; True for an empty range."""
        return start >= end or self.reach(start) >= end

    def within(self, start: int, end: int) -> list[tuple[int, int]]:
        """Return every range that overlaps [start, end), not clipped to [start, end)."""
        if start >= end:
            return []
        low = bisect_right(self._ends, start)
        high = bisect_left(self._starts, end)
        return list(zip(self._starts[low:high], self._ends[low:high], strict=True))

    def encode(self) -> bytes:
        """Return a compact encoding: pairs of unsigned 64-bit little-endian numbers."""
        return b"".join(_PAIR.pack(*pair) for pair in self)

    @classmethod
    def decode(cls, data: bytes) -> "Ranges":
        """Decode the result of `encode`. Raises ValueError for other data."""
        if len(data) % _PAIR.size:
            raise ValueError("not a list of ranges")
        ranges = cls()
        last = -1
        for start, end in _PAIR.iter_unpack(data):
            if not last < start < end:
                raise ValueError("not a list of ranges")
            ranges.add(start, end)
            last = end
        return ranges
