"""Manifest of an encrypted file: the record of the file's current state.

The encryption proves that this account wrote the chunks, not that they are the newest: an attacker
with access to the disk may restore old chunks or an old file.  The manifest is therefore stored
apart from the file, encrypted, in the database row that names the file.

Each write of a chunk has its own nonce (see `slot`): 8 random bytes for the open file that writes,
then a counter of 4 bytes.  The manifest holds the nonce of each chunk.  Chunks written in sequence
have consecutive nonces, so a file that was written once needs only one run.

A process that is killed after it recorded a manifest may have written more chunks.  Their nonces
begin at `floor`; no older chunk can have such a nonce.

Knows nothing about how chunks are stored or where a manifest is kept.
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
    """New nonces, as numbers, for the chunks that one open file writes."""

    def __init__(self) -> None:
        self._next = 0

    def take(self, count: int) -> int:
        """Return the first of `count` consecutive nonces."""
        if self.upcoming & _COUNTER_MASK > _COUNTER_MASK - count:
            self._next = 0
        first = self.upcoming
        self._next += count
        return first

    @property
    def upcoming(self) -> int:
        """Nonce that the next `take` returns."""
        if not self._next:
            self._next = (int.from_bytes(os.urandom(_PREFIX_BYTES), "big") or 1) << _COUNTER_BITS
        return self._next


class Writes:
    """Nonce of the last write of each chunk, stored as runs; 0 means none.

    INVARIANT: starts are sorted, and no run continues the run before it.
    """

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._firsts: list[int] = []  # nonce of the first chunk of the run; 0: of none in it

    def get(self, number: int) -> int:
        """Return the nonce of a chunk, or 0."""
        index = bisect_right(self._starts, number) - 1
        if index < 0 or not (first := self._firsts[index]):
            return 0
        return first + number - self._starts[index]

    def get_run(self, start: int, end: int) -> int:
        """Return the nonce of chunk `start`, or 0 if the chunks up to `end` are not one run."""
        index = bisect_right(self._starts, start) - 1
        if index + 1 < len(self._starts) and self._starts[index + 1] < end:
            return 0
        return self.get(start)

    def set(self, start: int, end: int, first: int) -> None:
        """Set consecutive nonces from `first` on for chunks `start` to `end`; 0 removes them."""
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
        """Return a compact encoding."""
        runs = zip(self._starts, self._firsts, strict=True)
        return b"".join(_RUN.pack(start, _bytes(first)) for start, first in runs)

    @classmethod
    def decode(cls, data: bytes) -> "Writes":
        """Decode the result of `encode`.  Raises ValueError for other data."""
        if len(data) % _RUN.size:
            raise ValueError("not a list of runs")
        made = cls()
        for start, nonce in _RUN.iter_unpack(data):
            made._starts.append(start)
            made._firsts.append(int.from_bytes(nonce, "big"))
        return made


class _Stored(msgspec.Struct, array_like=True, frozen=True):
    """Manifest in its MessagePack form."""

    file_id: bytes
    size: int
    holes: bytes
    writes: bytes
    floor: bytes


class Manifest(msgspec.Struct, frozen=True):
    """Recorded state of one encrypted file."""

    file_id: bytes
    size: int
    holes: Ranges  # chunks that were never written
    writes: Writes
    floor: int = 0  # first nonce of chunks that may have been written since; 0: none

    @staticmethod
    def allows(floor: int, nonce: int) -> bool:
        """Return True if a chunk with this nonce was written after `floor` was recorded."""
        return 0 < floor <= nonce and floor >> _COUNTER_BITS == nonce >> _COUNTER_BITS

    def encode(self) -> bytes:
        """Return the encoded manifest."""
        stored = _Stored(
            self.file_id, self.size, self.holes.encode(), self.writes.encode(), _bytes(self.floor)
        )
        return msgspec.msgpack.encode(stored)

    @classmethod
    def decode(cls, data: bytes) -> "Manifest":
        """Decode the result of `encode`.  Raises Damaged for other data."""
        try:
            stored = msgspec.msgpack.decode(data, type=_Stored)
            holes, writes = Ranges.decode(stored.holes), Writes.decode(stored.writes)
        except (msgspec.MsgspecError, ValueError) as wrong:
            raise Damaged("the manifest of a content file cannot be read") from wrong
        floor = int.from_bytes(stored.floor, "big")
        return cls(stored.file_id, stored.size, holes, writes, floor)


def _bytes(nonce: int) -> bytes:
    return nonce.to_bytes(NONCE_BYTES, "big")
