"""State of an encrypted file's chunks, and its record, the manifest.

The encryption proves that this account wrote the chunks, not that they are the newest: an attacker
with access to the disk may restore old chunks or an old file.  The manifest is therefore stored
apart from the file, encrypted, in the database row that names the file.

Each write of a chunk has its own nonce (see `chunk_crypto`): 8 random bytes for the open file that
writes, then a counter of 4 bytes.  The manifest holds the nonce of each chunk.  Chunks written in
sequence have consecutive nonces, so a file that was written once needs only one run.

A process that is killed after it recorded a manifest may have written more chunks.  Their nonces
begin at `floor`; no older chunk can have such a nonce.

A file that is opened with its manifest must be in the recorded state: size, holes, and the write
of each chunk.  Without a manifest (outgoing files of earlier versions, or a lost database) the size
and the holes come from the head, and every valid chunk is accepted.

Knows nothing about how chunks are stored or where a manifest is kept.

INVARIANT: with a manifest, `Chunks` has a nonce for a chunk if and only if it is on the disk.
"""

import os
import struct
from bisect import bisect_left, bisect_right
from collections.abc import Callable

import msgspec

from zonedrive.cipher import NONCE_BYTES
from zonedrive.content.chunk_crypto import CHUNK, is_empty, nonce_of
from zonedrive.content.header import Head
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

    def reserve(self, count: int) -> int:
        """Return the first of `count` consecutive nonces."""
        if self.upcoming & _COUNTER_MASK > _COUNTER_MASK - count:
            self._next = 0
        first = self.upcoming
        self._next += count
        return first

    @property
    def upcoming(self) -> int:
        """Nonce that the next `reserve` returns."""
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


def count_of(size: int) -> int:
    """Return the number of chunks of a file of `size` bytes."""
    return -(-size // CHUNK)


class Chunks:
    """Chunks of an open file: which are on the disk, and which write put them there.

    The file's lock protects this object.
    """

    def __init__(self, head: Head, known: Manifest | None) -> None:
        """Start with the manifest, or with the head if there is no manifest."""
        self.size = head.size if known is None else known.size
        """Size of the content in bytes when the file was opened."""
        self.holes = Ranges(head.holes if known is None else known.holes)
        self._file_id = head.file_id
        self._writes = None if known is None else known.writes
        self._floor = 0 if known is None else known.floor
        self._nonces: Nonces | None = None  # None: nothing was written by this object

    @classmethod
    def of_new_file(cls, head: Head) -> "Chunks":
        """Return the state of an empty new file."""
        made = cls(head, Manifest(head.file_id, 0, Ranges(), Writes()))
        made._nonces = Nonces()
        return made

    @classmethod
    def of_file(cls, head: Head, manifest: bytes, name: str) -> "Chunks":
        """Return the state of the file `name`; an empty `manifest` means that none is known.

        Raises Damaged if the manifest is of another file or cannot be read.
        """
        known = Manifest.decode(manifest) if manifest else None
        if known is not None and known.file_id != head.file_id:
            raise Damaged(f"{name} is not the file that was recorded")
        return cls(head, known)

    # -- writing

    def reserve_nonces(self, count: int, size: int, stored: Callable[[int], int]) -> int:
        """Return the first of `count` consecutive unused nonces.

        `size` and `stored`: see `begin_writing`.
        """
        if self._nonces is None:
            self.begin_writing(size, stored)
        assert self._nonces is not None
        return self._nonces.reserve(count)

    def begin_writing(self, size: int, stored: Callable[[int], int]) -> None:
        """Accept chunks that a killed process wrote after the manifest was recorded.

        Afterwards only known chunks, and chunks written by this object, are accepted.  `stored`
        returns the nonce on the disk of a chunk.
        """
        if self._writes is not None and self._floor:
            for number in range(count_of(size)):
                self.accepts(number, stored(number))
            self._floor = 0
        self._nonces = Nonces()

    def put(self, first: int, end: int, nonce: int) -> None:
        """Record that chunks are on the disk, with consecutive nonces from `nonce` on."""
        self.holes.remove(first, end)
        if self._writes is not None:
            self._writes.set(first, end, nonce)

    def drop(self, first: int, end: int) -> None:
        """Record that chunks are no longer on the disk."""
        if self._writes is not None:
            self._writes.set(first, end, 0)

    def cut(self, first: int, end: int) -> None:
        """Record that the chunks from `first` to `end` no longer exist."""
        self.drop(first, end)
        self.holes.remove(first, end)

    # -- reading

    def accepts(self, number: int, nonce: int) -> bool:
        """Return True if a chunk with that nonce is the current one according to the records.

        A chunk that a killed process wrote is recorded as the current one.
        """
        if self._writes is None or nonce == self._writes.get(number):
            return True
        if not Manifest.allows(self._floor, nonce):
            return False
        self.put(number, number + 1, nonce)
        return True

    def is_there(self, number: int, slot: memoryview, name: str, *, holes: bool) -> bool:
        """Return True if the slot holds the current chunk, False for a hole in the file `name`.

        Raises Damaged for any other slot, and for a hole if `holes` is False.
        """
        empty = is_empty(slot)
        if not empty and self.accepts(number, nonce_of(slot)):
            return True
        if holes and self.holes.covers(number, number + 1):
            return False
        if empty:
            raise Damaged(f"{name}: chunk {number} was lost")
        raise Damaged(f"{name}: chunk {number} is not the last stored one")

    def nonce_of_run(self, first: int, end: int) -> int:
        """Return the first nonce of chunks that were written in sequence, else 0."""
        return 0 if self._writes is None else self._writes.get_run(first, end)

    def holes_until(self, size: int) -> list[tuple[int, int]]:
        """Return the ranges of bytes below `size` that may never have been written."""
        return [(first * CHUNK, min(end * CHUNK, size)) for first, end in self.holes]

    # -- the manifest

    def manifest(self, size: int, *, final: bool) -> bytes:
        """Return the manifest, cut to `size` bytes, or b"" if the state is not known.

        `final`: no writes follow.
        """
        if self._writes is None:
            return b""
        own = 0 if self._nonces is None else self._nonces.upcoming
        return self._manifest(size, 0 if final else own or self._floor)

    def manifest_of_copy(self, size: int) -> bytes:
        """Return the manifest for a copy of the file, to which this object does not write."""
        return b"" if self._writes is None else self._manifest(size, self._floor)

    def _manifest(self, size: int, floor: int) -> bytes:
        assert self._writes is not None
        holes = Ranges(self.holes)
        last = max((end for _, end in holes), default=0)
        holes.remove(count_of(size), last)
        return Manifest(self._file_id, size, holes, self._writes, floor).encode()
