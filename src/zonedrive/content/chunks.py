"""The chunks of one open sealed file: which of them are on the disk, and by which writes.

Must not know the disk, keys or plain bytes.  The file's lock protects it.

A file that is opened with its manifest (see there) is that state and no other: the manifest says
how long the file is, where its holes are, and by which write each chunk came.  A chunk of another
write is not accepted, unless a killed process may have written it after the manifest was recorded.
Without a manifest (outgoing files of earlier versions, and those whose database was lost) the head
says how long the file is and where its holes are, and each chunk stands for itself.

INVARIANT: with a manifest, a chunk has a nonce here if and only if it is on the disk.
"""

from collections.abc import Callable

from zonedrive.content.header import Head
from zonedrive.content.manifest import Manifest, Nonces, Writes
from zonedrive.content.ranges import Ranges
from zonedrive.content.slot import CHUNK, is_empty, nonce_of
from zonedrive.errors import Damaged


def count_of(size: int) -> int:
    """Return how many chunks a content of `size` bytes has."""
    return -(-size // CHUNK)


class Chunks:
    """What is known of the chunks of a file."""

    def __init__(self, head: Head, known: Manifest | None) -> None:
        """Begin with what the manifest says, or the head where nothing is known."""
        self.size = head.size if known is None else known.size
        """Bytes of the content when the file was opened."""
        self.holes = Ranges(head.holes if known is None else known.holes)
        self._file_id = head.file_id
        self._writes = None if known is None else known.writes
        self._floor = 0 if known is None else known.floor
        self._nonces: Nonces | None = None  # None: nothing was written by this object

    @classmethod
    def of_new_file(cls, head: Head) -> "Chunks":
        """Return the state of an empty file that is about to be written."""
        made = cls(head, Manifest(head.file_id, 0, Ranges(), Writes()))
        made._nonces = Nonces()
        return made

    @classmethod
    def of_file(cls, head: Head, manifest: bytes, name: str) -> "Chunks":
        """Return the state of the file `name`; an empty manifest is none.

        Raises Damaged where it is another file, or the manifest cannot be read.
        """
        known = Manifest.decode(manifest) if manifest else None
        if known is not None and known.file_id != head.file_id:
            raise Damaged(f"{name} is not the file that was recorded")
        return cls(head, known)

    # -- writing

    def fresh(self, count: int, size: int, stored: Callable[[int], int]) -> int:
        """Return the first of `count` nonces in a row that no write has had.

        `size` and `stored`: see `begin_writing`.
        """
        if self._nonces is None:
            self.begin_writing(size, stored)
        assert self._nonces is not None
        return self._nonces.take(count)

    def begin_writing(self, size: int, stored: Callable[[int], int]) -> None:
        """Take over what a killed process wrote after the manifest was recorded.

        From here on only what is known, or is written by this object, counts.  `stored` gives the
        nonce that is on the disk for a chunk.
        """
        if self._writes is not None and self._floor:
            for number in range(count_of(size)):
                self.accepts(number, stored(number))
            self._floor = 0
        self._nonces = Nonces()

    def put(self, first: int, end: int, nonce: int) -> None:
        """Note that chunks are on the disk, by the writes from `nonce` on."""
        self.holes.remove(first, end)
        if self._writes is not None:
            self._writes.set(first, end, nonce)

    def drop(self, first: int, end: int) -> None:
        """Note that chunks are not on the disk any more."""
        if self._writes is not None:
            self._writes.set(first, end, 0)

    def cut(self, first: int, end: int) -> None:
        """Note that there are no chunks from `first` to `end` any more."""
        self.drop(first, end)
        self.holes.remove(first, end)

    # -- reading

    def accepts(self, number: int, nonce: int) -> bool:
        """Return True if the chunk with that nonce is the present one, as far as is known.

        One that a killed process wrote is the present one from here on.
        """
        if self._writes is None or nonce == self._writes.get(number):
            return True
        if not Manifest.allows(self._floor, nonce):
            return False
        self.put(number, number + 1, nonce)
        return True

    def is_there(self, number: int, slot: memoryview, name: str, *, holes: bool) -> bool:
        """Return True for the slot of the present chunk, False for a hole of the file `name`.

        Raises Damaged for all else, and for a hole where there are to be none.
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
        """Return the nonce of the first of chunks that were written in a row; 0 for others."""
        return 0 if self._writes is None else self._writes.get_run(first, end)

    def holes_until(self, size: int) -> list[tuple[int, int]]:
        """Return ranges of bytes below `size` that may never have been written."""
        return [(first * CHUNK, min(end * CHUNK, size)) for first, end in self.holes]

    # -- the manifest

    def manifest(self, size: int, *, final: bool) -> bytes:
        """Return the manifest, cut to `size` bytes; b"" where nothing is known.

        `final`: nothing is written after this.
        """
        if self._writes is None:
            return b""
        own = 0 if self._nonces is None else self._nonces.upcoming
        return self._manifest(size, 0 if final else own or self._floor)

    def manifest_of_copy(self, size: int) -> bytes:
        """Return the manifest of a copy, which this object writes nothing to."""
        return b"" if self._writes is None else self._manifest(size, self._floor)

    def _manifest(self, size: int, floor: int) -> bytes:
        assert self._writes is not None
        holes = Ranges(self.holes)
        last = max((end for _, end in holes), default=0)
        holes.remove(count_of(size), last)
        return Manifest(self._file_id, size, holes, self._writes, floor).encode()
