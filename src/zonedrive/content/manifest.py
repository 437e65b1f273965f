"""The manifest of a sealed file: which state of the file is the present one.

A sealed file proves that its chunks were written by this account, not that they are the newest:
somebody who can write to the disk may put former chunks, or a former file, back in place.  So the
manifest of a file is kept apart from it, in the row that names the file, and sealed there.

Each write of a chunk has a nonce of its own (see `slot`): 8 random bytes of the open file that
writes, then a counter of 4 bytes.  The manifest holds the nonce of each chunk.  Chunks that were
written in a row have nonces in a row, so a file that was written once takes one run.

A process that is killed after it recorded a manifest may have written more chunks.  Their nonces
begin at `floor`: nobody can have older chunks with such a nonce.

Must not know how chunks are stored or where a manifest is kept.
"""

import os
import struct
from bisect import bisect_left, bisect_right

import msgspec

from zonedrive.cipher import NONCE_BYTES
from zonedrive.content.ranges import Ranges
from zonedrive.errors import Damaged

_COUNTER_BITS = 32
_COUNTER_MASK = (1 << _COUNTER_BITS) - 1
_PREFIX_BYTES = NONCE_BYTES - _COUNTER_BITS // 8
_RUN = struct.Struct(f">I{NONCE_BYTES}s")


class Nonces:
    """Fresh nonces, as numbers, for the chunks that one open file writes."""

    def __init__(self) -> None:
        self._next = 0

    def take(self, count: int) -> int:
        """Return the first of `count` nonces in a row."""
        if self.upcoming & _COUNTER_MASK > _COUNTER_MASK - count:
            self._next = 0
        first = self.upcoming
        self._next += count
        return first

    @property
    def upcoming(self) -> int:
        """The nonce that `take` gives next."""
        if not self._next:
            self._next = (int.from_bytes(os.urandom(_PREFIX_BYTES), "big") or 1) << _COUNTER_BITS
        return self._next


class Writes:
    """The nonce of the last write of each chunk, as runs; 0 for a chunk that has none.

    INVARIANT: starts are sorted, and no run goes on as the one before it does.
    """

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._firsts: list[int] = []  # nonce of the first chunk of the run; 0: of none in it

    def get(self, number: int) -> int:
        """Return the nonce of a chunk."""
        index = bisect_right(self._starts, number) - 1
        if index < 0 or not (first := self._firsts[index]):
            return 0
        return first + number - self._starts[index]

    def get_run(self, start: int, end: int) -> int:
        """Return the nonce of the chunk `start`; 0 unless those up to `end` have the next ones."""
        index = bisect_right(self._starts, start) - 1
        if index + 1 < len(self._starts) and self._starts[index + 1] < end:
            return 0
        return self.get(start)

    def set(self, start: int, end: int, first: int) -> None:
        """Give the chunks from `start` to `end` the nonces from `first` on, or none for 0."""
        if start >= end:
            return
        low, high = bisect_left(self._starts, start), bisect_left(self._starts, end)
        after = self.get(end)
        goes_on = after == (first + end - start if first else 0)
        if high < len(self._starts) and self._starts[high] == end:
            high += 1
        runs = [] if goes_on else [(end, after)]
        before = self.get(start - 1)
        if first != (before + 1 if before else 0):
            runs.insert(0, (start, first))
        self._starts[low:high] = [run[0] for run in runs]
        self._firsts[low:high] = [run[1] for run in runs]

    def __len__(self) -> int:
        return len(self._starts)

    def encode(self) -> bytes:
        """Return a compact form for a store."""
        runs = zip(self._starts, self._firsts, strict=True)
        return b"".join(_RUN.pack(start, _bytes(first)) for start, first in runs)

    @classmethod
    def decode(cls, data: bytes) -> "Writes":
        """Return what `encode` wrote.  Raises ValueError for anything else."""
        if len(data) % _RUN.size:
            raise ValueError("not a list of runs")
        made = cls()
        for start, nonce in _RUN.iter_unpack(data):
            made._starts.append(start)
            made._firsts.append(int.from_bytes(nonce, "big"))
        return made


class _Stored(msgspec.Struct, array_like=True, frozen=True):
    """A manifest as MessagePack."""

    file_id: bytes
    size: int
    holes: bytes
    writes: bytes
    floor: bytes


class Manifest(msgspec.Struct, frozen=True):
    """One state of one sealed file."""

    file_id: bytes
    size: int
    holes: Ranges  # chunks that were never written
    writes: Writes
    floor: int = 0  # first nonce of what may have been written since; 0: nothing may

    @staticmethod
    def allows(floor: int, nonce: int) -> bool:
        """Return True for the nonce of a chunk that was written after `floor` was recorded."""
        return 0 < floor <= nonce and floor >> _COUNTER_BITS == nonce >> _COUNTER_BITS

    def encode(self) -> bytes:
        """Return the form for a store."""
        stored = _Stored(
            self.file_id, self.size, self.holes.encode(), self.writes.encode(), _bytes(self.floor)
        )
        return msgspec.msgpack.encode(stored)

    @classmethod
    def decode(cls, data: bytes) -> "Manifest":
        """Return what `encode` wrote.  Raises Damaged for anything else."""
        try:
            stored = msgspec.msgpack.decode(data, type=_Stored)
            holes, writes = Ranges.decode(stored.holes), Writes.decode(stored.writes)
        except (msgspec.MsgspecError, ValueError) as wrong:
            raise Damaged("the manifest of a content file cannot be read") from wrong
        floor = int.from_bytes(stored.floor, "big")
        return cls(stored.file_id, stored.size, holes, writes, floor)


def _bytes(nonce: int) -> bytes:
    return nonce.to_bytes(NONCE_BYTES, "big")
