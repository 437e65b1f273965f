"""The sealed codec: content in encrypted, authenticated chunks with a key of its own.

Layout: the head (see `header`), the journal slot, then one slot for each chunk of 64 KiB (see
`slot`).  A chunk may be stored shorter than that: what is missing is zeros.

INVARIANT: plain bytes past the logical size never come back: whoever extends the file stores
the last chunk anew if it holds more than the size says.
INVARIANT: a chunk inside the recorded size is overwritten only after its new form stands whole
in the journal slot, because a process killed inside a write may leave half of it.  Chunk and
journal have the same nonce then, by which `redo` knows them.
An empty slot that the head does not list as a hole is Damaged, never zeros: a power cut may
lose a chunk and keep the head.
"""

import os
from collections import OrderedDict, deque
from collections.abc import Iterator
from pathlib import Path

from zonedrive.content import redo
from zonedrive.content.file import Buffer, ContentFile, open_descriptor, write_all
from zonedrive.content.header import Head
from zonedrive.content.ranges import Ranges
from zonedrive.content.redo import place_of
from zonedrive.content.slot import CHUNK, SLOT, SLOT_HEAD, Sealer, is_empty, length_of
from zonedrive.errors import Damaged

RUN = 16  # whole chunks written at once
_MAX_DIRTY = 8  # partly written chunks in memory
_MAX_KEPT = 4  # decrypted chunks in memory
_memory: deque[bytearray] = deque(maxlen=4)  # to seal runs in, for all files


class SealedFile(ContentFile):
    """Content encrypted at rest."""

    def __init__(self, path: Path, descriptor: int, head: Head, key: bytes) -> None:
        """Take over `descriptor`; `head` is what is stored there."""
        super().__init__(path, descriptor)
        self._head = head
        self._account_key = key
        self._sealer = Sealer(head.key, head.file_id)
        self._size = head.size
        self._holes = Ranges(head.holes)
        self._dirty: OrderedDict[int, bytearray] = OrderedDict()
        self._kept: OrderedDict[int, bytes] = OrderedDict()
        self._regenerable = False
        self._trimmed = False

    @classmethod
    def create(cls, path: Path, key: bytes) -> "SealedFile":
        """Make an empty file whose key is sealed under `key`.  Leaves nothing where it fails."""
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        descriptor = os.open(path, flags, 0o600)
        try:
            return cls(path, descriptor, Head.create(descriptor, key), key)
        except BaseException:
            os.close(descriptor)
            path.unlink(missing_ok=True)
            raise

    @classmethod
    def open(cls, path: Path, key: bytes) -> "SealedFile":
        """Open an existing file and mend what a killed process left."""
        descriptor, writable = open_descriptor(path)
        try:
            file = cls(path, descriptor, Head.load(descriptor, key), key)
            if writable:
                redo.mend(descriptor, file._sealer, file._size, path.name)
            return file
        except BaseException:
            os.close(descriptor)
            raise

    @property
    def size(self) -> int:
        """The logical size in bytes."""
        return self._size

    @property
    def identity(self) -> bytes:
        """Tells it from files that were not copied from it."""
        return self._head.file_id

    @property
    def pending(self) -> int:
        """At most how many bytes more the buffered writes take on the disk."""
        return len(self._dirty) * (SLOT + 4096)

    def pread(self, offset: int, length: int) -> bytes:
        """Read at most `length` bytes; fewer at the end, none past it.

        Raises Damaged where a chunk fails its check.
        """
        with self._lock:
            self._open()
            end = min(offset + length, self._size)
            if offset >= end:
                return b""
            first, last = offset // CHUNK, (end - 1) // CHUNK
            parts: list[Buffer] = []
            for number, chunk in self._chunks(first, last + 1):
                base = number * CHUNK
                start, stop = max(offset - base, 0), min(end - base, CHUNK)
                if start or stop < len(chunk):
                    parts.append(memoryview(chunk)[start:stop])
                else:
                    parts.append(chunk)
                if (missing := stop - max(start, len(chunk))) > 0:
                    parts.append(bytes(missing))
            if len(parts) == 1:
                return bytes(parts[0])
            return b"".join(parts)

    def pwrite(self, offset: int, data: Buffer) -> int:
        """Write all of `data` at `offset`; parts of chunks stay in memory until a flush."""
        view = memoryview(data)
        done, total = 0, len(view)
        while done < total:
            number, start = divmod(offset + done, CHUNK)
            run = min((total - done) // CHUNK, RUN)
            if start == 0 and run > 1 and self._write_run(number, view[done : done + run * CHUNK]):
                done += run * CHUNK
                continue
            step = min(CHUNK - start, total - done)
            # The lock is given back after each chunk, so that readers do not wait for all.
            with self._lock:
                self._open()
                self._write(number, start, view[done : done + step])
            done += step
        return total

    def truncate(self, size: int) -> None:
        """Cut or extend to `size` bytes."""
        with self._lock:
            self._open()
            self._changes += 1
            if size > self._size:
                self._grow(size)
                self._store_dirty()
            else:
                self._cut(size)
            self._save_head()
            # Only after the head says so may the slots go; a crash between leaves them unseen.
            self._trim()

    def punch(self, start: int, end: int) -> None:
        """Forget all chunks that [start, end) touches."""
        with self._lock:
            self._open()
            self._changes += 1
            first, last = start // CHUNK, -(-min(end, self._size) // CHUNK)
            for number in range(first, last):
                self._dirty.pop(number, None)
                self._kept.pop(number, None)
                self._holes.add(number, number + 1)
            self._save_head()
            for number in range(first, last):
                self._clear(number)

    # -- sizes

    def _grow(self, size: int) -> None:
        """Let the file be `size` long, with nothing but zeros behind its old end."""
        if not self._trimmed:  # a killed process may have left slots behind the end
            self._trim()
        number, used = divmod(self._size, CHUNK)
        if used:
            chunk = self._chunk(number)  # never longer than `used`
            if number not in self._dirty and self._stored_length(number) > used:
                self._dirty[number] = bytearray(chunk)
        self._holes.add(-(-self._size // CHUNK), -(-size // CHUNK))
        self._size = size

    def _cut(self, size: int) -> None:
        first_gone = -(-size // CHUNK)
        for number in [n for n in (*self._dirty, *self._kept) if n >= size // CHUNK]:
            used = size - number * CHUNK
            self._kept.pop(number, None)
            if used <= 0:
                self._dirty.pop(number, None)
            elif number in self._dirty:
                del self._dirty[number][used:]
        self._holes.remove(first_gone, max(first_gone, -(-self._size // CHUNK)))
        self._size = size

    def _trim(self) -> None:
        """Take slots behind the end off the disk."""
        self._trimmed = True
        descriptor = self._open()
        end = place_of(-(-self._size // CHUNK))
        if os.fstat(descriptor).st_size > end:
            os.ftruncate(descriptor, end)

    # -- chunks in memory

    def _chunks(self, first: int, end: int) -> Iterator[tuple[int, bytes | bytearray]]:
        """Chunks and their numbers; what lies in a row on the disk is read at once."""
        holes = not self._regenerable
        while first < end:
            last = first
            while last < end and last not in self._dirty and last not in self._kept:
                last += 1
            if last - first < 2:
                yield first, self._chunk(first, holes=holes)
                first += 1
                continue
            slots = memoryview(os.pread(self._descriptor, (last - first) * SLOT, place_of(first)))
            for number in range(first, last):
                plain = self._opened(number, slots[:SLOT], holes=holes)
                yield number, plain[: self._size - number * CHUNK]
                slots = slots[SLOT:]
            first = last

    def _chunk(self, number: int, *, holes: bool = True) -> bytes | bytearray:
        """The plain bytes of a chunk, without the zeros at its end and nothing past the size.

        Raises Damaged, also for a hole where there should be none.
        """
        if (dirty := self._dirty.get(number)) is not None:
            return dirty
        if (kept := self._kept.get(number)) is not None:
            self._kept.move_to_end(number)
            return kept
        plain = self._load(number, holes=holes)
        limit = self._size - number * CHUNK
        if len(plain) > limit:
            plain = plain[:limit]
        self._kept[number] = plain
        if len(self._kept) > _MAX_KEPT:
            self._kept.popitem(last=False)
        return plain

    def _write(self, number: int, start: int, piece: memoryview) -> None:
        base = number * CHUNK
        end = base + start + len(piece)
        if len(piece) < CHUNK and number not in self._dirty:
            while len(self._dirty) >= _MAX_DIRTY:  # first, so that a full disk changes nothing
                self._store_one(next(iter(self._dirty)))
        before = self._size
        if base + start > before:
            self._grow(base + start)
        self._holes.add(max(number, -(-self._size // CHUNK)), number + 1)  # until it is stored
        self._changes += 1
        if len(piece) == CHUNK:
            try:
                self._store(number, piece)
            except OSError:
                self._cut(before)
                raise
            self._dirty.pop(number, None)
        else:
            self._buffer(number, start, piece, whole=start == 0 and end >= self._size)
        self._size = max(self._size, end)
        if len(self._dirty.get(number, b"")) == CHUNK and end == base + CHUNK:
            self._store_one(number)

    def _write_run(self, number: int, plain: memoryview) -> bool:
        """Put whole chunks on the disk in one write; False where that must not be.

        Only where nobody can be reading them, so that no reader has to wait for the disk.
        """
        count = len(plain) // CHUNK
        with self._lock:
            self._open()
            new = number * CHUNK == self._size >= self._head.size
            if not new and not (self._regenerable and self._holes.covers(number, number + count)):
                return False
            self._changes += 1
            self._users += 1  # nobody closes it under us
        try:
            self._put_run(number, plain)
        finally:
            self.close()
        return True

    def _put_run(self, number: int, plain: memoryview) -> None:
        numbers = range(number, number + len(plain) // CHUNK)
        try:
            memory = _memory.pop()
        except IndexError:
            memory = bytearray(RUN * SLOT)
        sealed = self._sealer.seal_run(number, plain, memoryview(memory))
        try:
            write_all(self._descriptor, sealed, place_of(number))
        except OSError:
            with self._lock:
                for each in numbers:
                    if each * CHUNK < self._size:
                        self._clear(each)
                self._trim()
            raise
        finally:
            _memory.append(memory)
        with self._lock:
            self._changes += 1
            for each in numbers:
                self._dirty.pop(each, None)
                self._kept.pop(each, None)
            self._holes.remove(numbers.start, numbers.stop)
            self._size = max(self._size, numbers.stop * CHUNK)

    def _buffer(self, number: int, start: int, piece: memoryview, *, whole: bool) -> None:
        """Put `piece` into the chunk in memory; `whole`: nothing of the old chunk remains."""
        if whole:
            chunk = bytearray(piece)
        else:
            old = self._chunk(number)
            chunk = old if isinstance(old, bytearray) else bytearray(old)
            if len(chunk) < start:
                chunk.extend(bytes(start - len(chunk)))
            chunk[start : start + len(piece)] = piece
        self._dirty[number] = chunk
        self._dirty.move_to_end(number)
        self._kept.pop(number, None)

    def _store_one(self, number: int) -> None:
        self._store(number, self._dirty[number])
        del self._dirty[number]

    def _store_dirty(self) -> None:
        for number in sorted(self._dirty):
            self._store_one(number)

    def _flush(self) -> None:
        self._store_dirty()
        self._save_head()

    def _save_head(self) -> None:
        if self._size != self._head.size or list(self._holes) != list(self._head.holes):
            self._head.save(self._descriptor, self._size, self._holes)

    # -- chunks on the disk

    def _load(self, number: int, *, holes: bool) -> bytes:
        slot = os.pread(self._descriptor, SLOT, place_of(number))
        return self._opened(number, memoryview(slot), holes=holes)

    def _opened(self, number: int, slot: memoryview, *, holes: bool) -> bytes:
        """The plain bytes in what the disk has for a chunk.  Raises Damaged."""
        if is_empty(slot):
            if holes and self._holes.covers(number, number + 1):
                return b""
            raise Damaged(f"{self.path.name}: chunk {number} was lost")
        return self._sealer.open(number, slot, self.path.name)

    def _stored_length(self, number: int) -> int:
        return length_of(os.pread(self._descriptor, SLOT_HEAD, place_of(number)))

    def _store(self, number: int, plain: Buffer) -> None:
        """Put a chunk on the disk.  Raises OSError; the chunk is as it was then."""
        head, sealed = self._sealer.seal(number, plain)
        place = place_of(number)
        before: bytes | None = None
        if number * CHUNK < self._head.size and not self._regenerable:
            before = os.pread(self._descriptor, SLOT, place)
            redo.keep(self._descriptor, number, head, sealed)
        try:
            written = os.pwritev(self._descriptor, (head, sealed), place)
            if written < len(head) + len(sealed):
                write_all(self._descriptor, (head + sealed)[written:], place + written)
        except OSError:
            self._undo(number, before)
            raise
        self._kept.pop(number, None)
        self._holes.remove(number, number + 1)

    def holes(self) -> list[tuple[int, int]]:
        """Ranges of bytes that may never have been written."""
        with self._lock:
            pairs = [(first * CHUNK, end * CHUNK) for first, end in self._holes]
        return [(start, min(end, self._size)) for start, end in pairs]

    def without_journal(self) -> None:
        """For content that can be fetched again, of which only what was written is ever read.

        Writes are faster, and a killed process may leave a torn chunk: Damaged.  So is a hole.
        """
        self._regenerable = True

    def _undo(self, number: int, before: bytes | None) -> None:
        """After a failed write: the slot's old bytes, or none."""
        if before:
            write_all(self._descriptor, before, place_of(number))
        else:
            self._clear(number)
            self._holes.add(number, number + 1)

    def _clear(self, number: int) -> None:
        """Mark a slot as empty; takes no room on a full disk."""
        place = place_of(number)
        head = os.pread(self._descriptor, SLOT_HEAD, place)
        if any(head):
            write_all(self._descriptor, bytes(len(head)), place)

    def _same_kind(self, path: Path) -> ContentFile:
        return SealedFile.open(path, self._account_key)
