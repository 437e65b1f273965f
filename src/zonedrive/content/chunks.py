"""Chunks of an open encrypted file: which ones are on the disk, and which write put them there.

Knows nothing about the disk, keys or plain bytes.  The file's lock protects it.

A file that is opened with its manifest must be in the state that the manifest records: the file's
size, its holes, and the write of each chunk.  A chunk of another write is rejected, unless a killed
process may have written it after the manifest was recorded.  Without a manifest (outgoing files of
earlier versions, or a lost database) the size and the holes come from the head, and every valid
chunk is accepted.

INVARIANT: with a manifest, a chunk has a nonce here if and only if it is on the disk.
"""

from collections.abc import Callable

from zonedrive.content.chunk_crypto import CHUNK, is_empty, nonce_of
from zonedrive.content.header import Head
from zonedrive.content.manifest import Manifest, Nonces, Writes
from zonedrive.content.ranges import Ranges
from zonedrive.errors import Damaged


def count_of(size: int) -> int:
    """Return the number of chunks of a file of `size` bytes."""
    return -(-size // CHUNK)


class Chunks:
    """State of the chunks of a file."""

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

    def fresh(self, count: int, size: int, stored: Callable[[int], int]) -> int:
        """Return the first of `count` consecutive unused nonces.

        `size` and `stored`: see `begin_writing`.
        """
        if self._nonces is None:
            self.begin_writing(size, stored)
        assert self._nonces is not None
        return self._nonces.take(count)

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
        raise Damaged(f"{name}: chunk {number} is not the one that was stored last")

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
