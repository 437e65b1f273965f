"""A set of byte positions, kept as few half-open ranges: which parts of a file are there.

Knows nothing of files.  Must stay cheap with tens of thousands of ranges (random readers).

INVARIANT: ranges are non-empty, sorted, and neither overlap nor touch.
"""

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

_PAIR = struct.Struct("<QQ")


class Ranges:
    """Positions from `start` up to, not including, `end`, any number of times."""

    def __init__(self, pairs: Iterable[tuple[int, int]] = ()) -> None:
        """Hold the positions of all `pairs` of (start, end)."""
        self._starts: list[int] = []
        self._ends: list[int] = []
        self.total = 0
        """How many positions are in the set."""
        for start, end in pairs:
            self.add(start, end)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(list(zip(self._starts, self._ends, strict=True)))

    def __len__(self) -> int:
        return len(self._starts)

    def __repr__(self) -> str:
        return f"Ranges({list(self)})"

    def add(self, start: int, end: int) -> int:
        """Put [start, end) in; give back how many positions were new."""
        if start >= end:
            return 0
        low = bisect_left(self._ends, start)  # the first range that touches or follows
        high = bisect_right(self._starts, end)  # the first range that lies wholly behind
        known = 0
        if low < high:
            known = sum(
                min(e, end) - max(s, start)
                for s, e in zip(self._starts[low:high], self._ends[low:high], strict=True)
            )
            start_of, end_of = min(start, self._starts[low]), max(end, self._ends[high - 1])
        else:
            start_of, end_of = start, end
        self._starts[low:high] = [start_of]
        self._ends[low:high] = [end_of]
        new = end - start - known
        self.total += new
        return new

    def remove(self, start: int, end: int) -> None:
        """Take [start, end) out."""
        if start >= end:
            return
        low = bisect_right(self._ends, start)
        high = bisect_left(self._starts, end)
        if low >= high:
            return
        starts, ends = self._starts[low:high], self._ends[low:high]
        gone = sum(min(e, end) - max(s, start) for s, e in zip(starts, ends, strict=True))
        kept: list[tuple[int, int]] = []
        if starts[0] < start:
            kept.append((starts[0], start))
        if ends[-1] > end:
            kept.append((end, ends[-1]))
        self._starts[low:high] = [pair[0] for pair in kept]
        self._ends[low:high] = [pair[1] for pair in kept]
        self.total -= gone

    def reach(self, start: int) -> int:
        """The first position from `start` on that is not in the set."""
        index = bisect_right(self._starts, start) - 1
        if index >= 0 and self._ends[index] > start:
            return self._ends[index]
        return start

    def following(self, start: int) -> int | None:
        """The first position from `start` on that is in the set, None where there is none."""
        index = bisect_right(self._starts, start) - 1
        if index >= 0 and self._ends[index] > start:
            return start
        return self._starts[index + 1] if index + 1 < len(self._starts) else None

    def covers(self, start: int, end: int) -> bool:
        """Whether all of [start, end) is in the set; an empty range always is."""
        return start >= end or self.reach(start) >= end

    def within(self, start: int, end: int) -> list[tuple[int, int]]:
        """The ranges that have positions in [start, end), uncut."""
        if start >= end:
            return []
        low = bisect_right(self._ends, start)
        high = bisect_left(self._starts, end)
        return list(zip(self._starts[low:high], self._ends[low:high], strict=True))

    def encode(self) -> bytes:
        """A compact form for a store: pairs of unsigned 64-bit little-endian numbers."""
        return b"".join(_PAIR.pack(*pair) for pair in self)

    @classmethod
    def decode(cls, data: bytes) -> "Ranges":
        """What `encode` wrote.  Raises ValueError for anything else."""
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
