"""State of an encrypted file's chunks, and the manifest, which is the record of that state.

The encryption proves that this account wrote the chunks, but not that the chunks are the newest: an
attacker with access to the disk may restore old chunks or an old file. The manifest is therefore
stored apart from the file, in the database row that names the file, and is authenticated there.

Each write of a chunk has its own nonce (see `slots`): 8 random bytes, chosen each time a file is
opened for writing, then a counter of 4 bytes. The manifest holds the nonce of each chunk. Chunks
written in sequence have consecutive nonces and are recorded as one run. A file that was written
once, from start to end, therefore needs only one run.

A process that is killed after it recorded a manifest may have written more chunks. Their nonces
begin at `Manifest.floor`; no older chunk can have such a nonce.

A file that is opened with its manifest must have the recorded size, holes and nonces. A file has no
manifest if an earlier version wrote it to the spool, or if the database was lost. The size and the
holes then come from the header, and every valid chunk is accepted.

`Slots` stores the chunks. The callers of this module store the manifests.

INVARIANT: if the file has a manifest, `Chunks` has nonces for exactly the chunks on the disk.
"""

import os
import struct
from bisect import bisect_left, bisect_right

import msgspec

from zonedrive.cipher import NONCE_BYTES
from zonedrive.content.header import Head
from zonedrive.content.ranges import Ranges
from zonedrive.content.slots import CHUNK, Slots, is_empty, nonce_of
from zonedrive.errors import Damaged

_COUNTER_BITS = 32
_COUNTER_MASK = (1 << _COUNTER_BITS) - 1
_PREFIX_BYTES = NONCE_BYTES - _COUNTER_BITS // 8
_RUN = struct.Struct(f">I{NONCE_BYTES}s")


class Nonces:
    """Generator of nonces, as integers, for the chunks that are written to one open file."""

    def __init__(self) -> None:
        self._next = 0

    def reserve(self, count: int) -> int:
        """Reserve `count` consecutive nonces and return the first one."""
        if self.upcoming & _COUNTER_MASK > _COUNTER_MASK - count:
            self._next = 0
        first = self.upcoming
        self._next += count
        return first

    @property
    def upcoming(self) -> int:
        """Next unused nonce, which `reserve` returns unless the counter would overflow."""
        if not self._next:
            self._next = (int.from_bytes(os.urandom(_PREFIX_BYTES), "big") or 1) << _COUNTER_BITS
        return self._next


class Writes:
    """Map from chunk numbers to the nonces of their last writes, stored as runs; 0 means no nonce.

    INVARIANT: the starts of the runs are sorted, and no run continues the run before it.
    """

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._firsts: list[int] = []  # nonce of each run's first chunk; 0: a run without nonces

    def get(self, number: int) -> int:
        """Return the nonce of chunk `number`, or 0 if it has none."""
        index = bisect_right(self._starts, number) - 1
        if index < 0 or not (first := self._firsts[index]):
            return 0
        return first + number - self._starts[index]

    def get_run(self, start: int, end: int) -> int:
        """Return the nonce of chunk `start`, or 0 if chunks [start, end) are not in one run."""
        index = bisect_right(self._starts, start) - 1
        if index + 1 < len(self._starts) and self._starts[index + 1] < end:
            return 0
        return self.get(start)

    def set(self, start: int, end: int, first: int) -> None:
        """Set the nonces of chunks [start, end) to `first`, `first` + 1, …

        If `first` is 0, remove the nonces of these chunks.
        """
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

    def encode(self) -> bytes:
        """Return a compact encoding for `decode`."""
        runs = zip(self._starts, self._firsts, strict=True)
        return b"".join(_RUN.pack(start, _bytes(first)) for start, first in runs)

    @classmethod
    def decode(cls, data: bytes) -> "Writes":
        """Decode the result of `encode`. Raises ValueError for other data."""
        if len(data) % _RUN.size:
            raise ValueError("not a list of runs")
        made = cls()
        for start, nonce in _RUN.iter_unpack(data):
            made._starts.append(start)
            made._firsts.append(int.from_bytes(nonce, "big"))
        return made


class Manifest(msgspec.Struct, array_like=True, frozen=True):
    """Recorded state of one encrypted file, encoded as MessagePack in the database."""

    file_id: bytes
    size: int
    holes: bytes  # encoded `Ranges` of the chunks that were never written
    writes: bytes  # encoded `Writes`
    floor: bytes  # first nonce of chunks that may have been written since; 0: there are none

    @classmethod
    def decode(cls, data: bytes) -> tuple["Manifest", Ranges, Writes]:
        """Return a manifest, its holes and its writes, decoded from MessagePack.

        Raises Damaged if `data` is not a valid manifest.
        """
        try:
            found = msgspec.msgpack.decode(data, type=cls)
            return found, Ranges.decode(found.holes), Writes.decode(found.writes)
        except (msgspec.MsgspecError, ValueError) as wrong:
            raise Damaged("the manifest of a content file cannot be read") from wrong


def have_same_chunks(first: bytes, second: bytes) -> bool:
    """Return True if two manifests describe the same chunks; `Manifest.floor` may differ.

    Raises Damaged if a manifest cannot be decoded. The manifest b"" equals only itself.
    """
    if not (first and second):
        return first == second
    one, other = Manifest.decode(first)[0], Manifest.decode(second)[0]
    return msgspec.structs.replace(one, floor=other.floor) == other


def _bytes(nonce: int) -> bytes:
    return nonce.to_bytes(NONCE_BYTES, "big")


def count_of(size: int) -> int:
    """Return the number of chunks of a file of `size` bytes."""
    return -(-size // CHUNK)


class Chunks:
    """Record of an open file's chunks: their presence on the disk, and the nonces of their writes.

    Callers hold the file's lock.
    """

    def __init__(self, head: Head, slots: Slots, manifest: bytes | None) -> None:
        """Load `manifest`, which is None for a new file, or b"" to use the file's header.

        Raises Damaged if the manifest belongs to another file or cannot be decoded.
        """
        self._slots = slots
        self._file_id = head.file_id
        self._nonces: Nonces | None = None  # None: this object has written no chunk
        self._writes: Writes | None = None  # None: the file was opened without a manifest
        self._floor = 0  # see `Manifest.floor`
        self.size = head.size
        """Size of the content in bytes when the file was opened."""
        self.holes = Ranges(head.holes)
        if manifest is None:
            self._writes, self._nonces = Writes(), Nonces()
        elif manifest:
            known, self.holes, self._writes = Manifest.decode(manifest)
            if known.file_id != head.file_id:
                raise Damaged(f"{slots.name} is not the file that was recorded")
            self.size = known.size
            self._floor = int.from_bytes(known.floor, "big")

    @property
    def has_manifest(self) -> bool:
        """True if the file is new or was opened with its manifest."""
        return self._writes is not None

    # -- writing

    def reserve_nonces(self, count: int, size: int) -> int:
        """Reserve `count` consecutive nonces and return the first one.

        The first call uses `size`, the size of the content in bytes; see `begin_writing`.
        """
        nonces = self._nonces or self.begin_writing(size)
        return nonces.reserve(count)

    def begin_writing(self, size: int) -> Nonces:
        """Accept and record chunks that a killed process wrote after the manifest was recorded.

        `size` is the size of the content in bytes. Afterwards only recorded chunks are accepted.
        Returns the generator of nonces for new writes.
        """
        if self._writes is not None and self._floor:
            for number in range(count_of(size)):
                self.accepts(number, self._slots.nonce(number))
            self._floor = 0
        self._nonces = Nonces()
        return self._nonces

    def put(self, first: int, end: int, nonce: int) -> None:
        """Record that chunks [first, end) are on the disk, with consecutive nonces from `nonce`."""
        self.holes.remove(first, end)
        if self._writes is not None:
            self._writes.set(first, end, nonce)

    def drop(self, first: int, end: int) -> None:
        """Record that chunks [first, end) are no longer on the disk."""
        if self._writes is not None:
            self._writes.set(first, end, 0)

    def cut(self, first: int, end: int) -> None:
        """Record that chunks [first, end) no longer exist, because the file was truncated."""
        self.drop(first, end)
        self.holes.remove(first, end)

    # -- reading

    def accepts(self, number: int, nonce: int) -> bool:
        """Return True if `nonce` belongs to the last write of chunk `number`.

        If the file has no manifest, every nonce is accepted. If a killed process wrote the chunk
        after the manifest was recorded, the nonce is accepted and recorded.
        """
        if self._writes is None or nonce == self._writes.get(number):
            return True
        is_later = nonce >= self._floor > 0
        if not is_later or self._floor >> _COUNTER_BITS != nonce >> _COUNTER_BITS:
            return False
        self.put(number, number + 1, nonce)
        return True

    def is_last(self, number: int, nonce: int, other: int) -> bool:
        """Return True if the manifest shows that `nonce`, not `other`, is of a chunk's last write.

        If so, the write is recorded. Without a manifest, the result is False.
        """
        is_before_other = nonce < other and nonce >> _COUNTER_BITS == other >> _COUNTER_BITS
        return self._writes is not None and not is_before_other and self.accepts(number, nonce)

    def is_there(self, number: int, slot: memoryview, *, holes: bool) -> bool:
        """Return True if `slot` holds the last write of chunk `number`, False for a hole.

        Raises Damaged for any other slot, and for a hole if `holes` is False.
        """
        empty = is_empty(slot)
        if not empty and self.accepts(number, nonce_of(slot)):
            return True
        if holes and self.holes.covers(number, number + 1):
            return False
        if empty:
            raise Damaged(f"{self._slots.name}: chunk {number} was lost")
        raise Damaged(f"{self._slots.name}: chunk {number} is not the last stored one")

    def nonce_of_run(self, first: int, end: int) -> int:
        """Return the nonce of chunk `first` if chunks [first, end) are in one run, else 0."""
        return 0 if self._writes is None else self._writes.get_run(first, end)

    # -- the manifest

    def manifest(self, size: int, *, final: bool) -> bytes:
        """Return the manifest of the file as if it were truncated to `size` bytes.

        The result is b"" if the file was opened without a manifest. `final` states that no writes
        follow.
        """
        own = 0 if self._nonces is None else self._nonces.upcoming
        return self._encoded(size, 0 if final else own or self._floor)

    def manifest_without_floor(self, size: int) -> bytes:
        """Return the manifest of a closed file, or of a copy, as if truncated to `size` bytes.

        The result is b"" if the file was opened without a manifest. Unlike the result of
        `manifest`, this manifest does not accept later writes through this object. The next writer
        therefore need not look for such writes in all chunks; see `begin_writing`.
        """
        return self._encoded(size, self._floor)

    def _encoded(self, size: int, floor: int) -> bytes:
        if self._writes is None:
            return b""
        holes = Ranges(self.holes)
        last = max((end for _, end in holes), default=0)
        holes.remove(count_of(size), last)
        writes = self._writes.encode()
        known = Manifest(self._file_id, size, holes.encode(), writes, _bytes(floor))
        return msgspec.msgpack.encode(known)
