"""Encrypted content files: authenticated chunks, encrypted under a separate key for each file.

Layout: the header (see `header`), the redo log, then a slot for each 64 KiB chunk (see `slots`).
The stored form of a chunk may be shorter than 64 KiB; the missing bytes are zeros.

INVARIANT: plaintext past the logical size never reappears. Code that extends the file first
rewrites the last chunk if the stored chunk extends past the old size.

INVARIANT: a chunk inside the recorded size is overwritten only after its new slot is complete in
the redo log, because a process that is killed during a write may leave half of the chunk.

INVARIANT: a chunk that `sync` has made safe is overwritten only after its new slot in the redo log
is safe, too, and the redo log is used again only after the chunk is safe. A power cut may lose any
block of the later write, and the bytes of the chunk that no program has changed must stay readable.
Such a write waits for the disk twice.

A read of an empty slot that is not listed as a hole raises Damaged and never returns zeros, because
a power cut may lose a chunk but not the header. A read of a chunk whose nonce `Chunks` does not
accept raises Damaged, too, because an attacker may have restored old bytes.
"""

import os
from collections import OrderedDict
from pathlib import Path

from zonedrive.content.content_file import (
    BLOCK,
    Buffer,
    Check,
    ContentFile,
    create_descriptor,
    open_descriptor,
)
from zonedrive.content.header import Head
from zonedrive.content.manifest import Chunks, count_of
from zonedrive.content.ranges import Ranges
from zonedrive.content.slots import CHUNK, SLOT, Slots, is_empty
from zonedrive.memory import Buffers

_MAX_DIRTY = 8  # partly written chunks in memory
_RUN = 16  # whole chunks that one system call reads or writes
_run_buffers = Buffers(_RUN * SLOT)


class EncryptedFile(ContentFile):
    """Content file that is encrypted on the disk."""

    def __init__(
        self, path: Path, descriptor: int, head: Head, key: bytes, manifest: bytes | None
    ) -> None:
        """Take ownership of `descriptor`; `head` is the header stored in the file.

        `key` is the account's key. `manifest` is None for a new file, and b"" if it is unknown.
        Raises Damaged if the manifest belongs to another file or cannot be decoded.
        """
        super().__init__(path, descriptor)
        self._head = head
        self._account_key = key
        self._slots = Slots(descriptor, head.key, head.file_id, path.name)
        self._chunks = Chunks(head, self._slots, manifest)
        self._size = self._chunks.size
        self._dirty: OrderedDict[int, bytearray] = OrderedDict()
        self._regenerable = False
        self._synced = 0  # number of chunks that a power cut must not damage
        self._zeros = Ranges()  # holes that can be read although the file is regenerable
        self._trimmed = False

    @classmethod
    def create(cls, path: Path, key: bytes) -> "EncryptedFile":
        """Create and open an empty file; encrypt the file's own key under `key`.

        Raises OSError, including FileExistsError. On failure, no new file is left behind.
        """
        descriptor = create_descriptor(path)
        try:
            return cls(path, descriptor, Head.create(descriptor, key), key, None)
        except BaseException:
            os.close(descriptor)
            path.unlink(missing_ok=True)
            raise

    @classmethod
    def open(cls, path: Path, key: bytes, manifest: bytes) -> "EncryptedFile":
        """Open an existing file and repair a write that a killed process left incomplete.

        `manifest` is the expected state of the file, b"" if unknown. Raises OSError. Raises
        Damaged if the file's header is damaged or the manifest belongs to another file.
        """
        descriptor, writable = open_descriptor(path)
        try:
            head = Head.load(descriptor, key)
            file = cls(path, descriptor, head, key, manifest)
            if writable:
                # A power cut may have spared the header of a later truncation.
                file._slots.repair(max(head.size, file._size), file._chunks.is_last)
            return file
        except BaseException:
            os.close(descriptor)
            raise

    def manifest(self, *, size: int | None = None, final: bool = False) -> bytes:
        with self._lock:
            size = self._size if size is None else size
            if self.closed and not final:
                return self._chunks.manifest_without_floor(size)
            return self._chunks.manifest(size, final=final)

    @property
    def pending(self) -> int:
        return len(self._dirty) * (SLOT + 4096)

    def pread(self, offset: int, length: int) -> bytes:
        with self._lock:
            self._open()
            end = min(offset + length, self._size)
            if offset >= end:
                return b""
            number, start = divmod(offset, CHUNK)
            if end <= (number + 1) * CHUNK:
                piece = bytes(self._chunk_to_read(number)[start : end - number * CHUNK])
                return piece + bytes(end - offset - len(piece))
            into = bytearray(end - offset)
            self._fill(offset, memoryview(into))
            return bytes(into)

    def read_into(self, offset: int, into: memoryview) -> int:
        with self._lock:
            self._open()
            count = max(0, min(len(into), self._size - offset))
            self._fill(offset, into[:count])
            return count

    def verify(self, check: Check = lambda: None) -> None:
        into = memoryview(bytearray(BLOCK))
        for offset in range(0, self._size, BLOCK):
            check()
            self.read_into(offset, into)

    def pwrite(self, offset: int, data: Buffer) -> int:
        """Write all of `data` at `offset`; partial chunks are buffered until a flush."""
        view = memoryview(data)
        done, total = 0, len(view)
        while done < total:
            number, start = divmod(offset + done, CHUNK)
            run = min((total - done) // CHUNK, _RUN)
            if start == 0 and run > 1 and self._write_run(number, view[done : done + run * CHUNK]):
                done += run * CHUNK
                continue
            step = min(CHUNK - start, total - done)
            # The lock is released after each chunk, so that readers wait only briefly.
            with self._lock:
                self._open()
                self._write(number, start, view[done : done + step])
            done += step
        return total

    def truncate(self, size: int) -> None:
        with self._lock:
            self._open()
            self.changes += 1
            if size > self._size:
                self._grow(size)
                self._store_dirty()
            elif size < self._size:
                # The header is saved first, so that the content is unchanged if that fails.
                holes = Ranges(self._chunks.holes)
                holes.remove(count_of(size), count_of(self._size))
                self._head.save(self._descriptor, size, holes)
                self._cut(size)
            self._save_head()
            # Remove slots only after the header is saved; a crash in between leaves unused slots.
            self._trim()

    def punch(self, start: int, end: int) -> None:
        with self._lock:
            self._open()
            self.changes += 1
            first, last = start // CHUNK, count_of(min(end, self._size))
            for number in range(first, last):
                self._dirty.pop(number, None)
                self._chunks.holes.add(number, number + 1)
            self._save_head()
            for number in range(first, last):
                self._clear(number)

    # -- sizes

    def _grow(self, size: int) -> None:
        """Extend the content to `size` bytes with zeros, which are stored as holes."""
        if not self._trimmed:  # a killed process may have left slots after the end
            self._trim()
        number, used = divmod(self._size, CHUNK)
        if used:
            chunk = self._chunk(number)  # at most `used` bytes
            if number not in self._dirty and self._slots.length(number) > used:
                self._dirty[number] = bytearray(chunk)
        self._chunks.holes.add(count_of(self._size), count_of(size))
        self._size = size

    def _cut(self, size: int) -> None:
        self._chunks.cut(count_of(size), count_of(self._size))
        for number in [n for n in self._dirty if n >= size // CHUNK]:
            used = size - number * CHUNK
            if used <= 0:
                del self._dirty[number]
            else:
                del self._dirty[number][used:]
        self._size = size

    def _trim(self) -> None:
        """Remove slots after the end of the file from the disk, except synced ones.

        A power cut may undo a truncation. The next sync ends that, and until then the manifest
        shows that these slots are not part of the file.
        """
        kept = self._synced if self._chunks.has_manifest else 0
        self._slots.trim(max(count_of(self._size), kept))
        self._trimmed = True

    # -- chunks in memory

    def _fill(self, offset: int, into: memoryview) -> None:
        """Fill `into` with the bytes from `offset` on, all of which are before the end of the file.

        Whole chunks are decrypted directly into `into`.
        """
        done, total = 0, len(into)
        while done < total:
            number, start = divmod(offset + done, CHUNK)
            if start == 0 and (run := self._run_on_disk(number, (total - done) // CHUNK)):
                self._read_run(number, into[done : done + run * CHUNK])
                done += run * CHUNK
                continue
            step = min(CHUNK - start, total - done)
            piece = self._chunk_to_read(number)[start : start + step]
            into[done : done + len(piece)] = piece
            into[done + len(piece) : done + step] = bytes(step - len(piece))
            done += step

    def _read_run(self, number: int, into: memoryview) -> None:
        """Fill `into` with whole chunks from `number` on, read in one system call."""
        count = len(into) // CHUNK
        with _run_buffers.lend() as memory:
            slots = self._slots.read_into(number, memory[: count * SLOT])
            nonce = self._chunks.nonce_of_run(number, number + count)
            done = self._slots.open_run(number, slots, into, nonce) if nonce else 0
            for index in range(done, count):
                slot = slots[index * SLOT : (index + 1) * SLOT]
                plain = into[index * CHUNK : (index + 1) * CHUNK]
                opened = self._opened(number + index, slot, holes=self._may_be_hole(number + index))
                plain[: len(opened)] = opened
                plain[len(opened) :] = bytes(CHUNK - len(opened))

    def _run_on_disk(self, number: int, count: int) -> int:
        """Return the number of chunks from `number` on that precede the first buffered chunk.

        The result is at most `count` and at most _RUN.
        """
        count = min(count, _RUN)
        return next((run for run in range(count) if number + run in self._dirty), count)

    def _chunk_to_read(self, number: int) -> memoryview:
        return memoryview(self._chunk(number, holes=self._may_be_hole(number)))

    def _may_be_hole(self, number: int) -> bool:
        """Return True if a hole at this chunk stands for zeros, not for missing bytes."""
        return not self._regenerable or self._zeros.covers(number, number + 1)

    def _chunk(self, number: int, *, holes: bool = True) -> bytes | bytearray:
        """Return the plaintext of a chunk, excluding trailing zeros and bytes past the file size.

        Raises Damaged for a damaged chunk and, if `holes` is False, for a hole.
        """
        if (dirty := self._dirty.get(number)) is not None:
            return dirty
        plain = self._opened(number, self._slots.read(number), holes=holes)
        return plain[: self._size - number * CHUNK]

    def _write(self, number: int, start: int, piece: memoryview) -> None:
        base = number * CHUNK
        end = base + start + len(piece)
        if len(piece) < CHUNK and number not in self._dirty:
            while len(self._dirty) >= _MAX_DIRTY:  # before the change, in case the disk is full
                self._store_one(next(iter(self._dirty)))
        before = self._size
        if base + start > before:
            self._grow(base + start)
        # A new chunk counts as a hole until it is stored.
        self._chunks.holes.add(max(number, count_of(self._size)), number + 1)
        self.changes += 1
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
        """Write whole chunks in one call, beginning with chunk `number`.

        The lock is not held during the write, so that readers do not wait for the disk. The write
        is therefore allowed only for chunks that no reader can be reading. Otherwise, return False
        and write nothing.
        """
        count = len(plain) // CHUNK
        with self._lock:
            self._open()
            new = number * CHUNK == self._size >= self._head.size and number >= self._synced
            holes = self._regenerable and self._chunks.holes
            if not new and not (holes and holes.covers(number, number + count)):
                return False
            self.changes += 1
            self._users += 1  # prevents a close during the write
            nonce = self._chunks.reserve_nonces(count, self._size)
        try:
            self._put_run(number, plain, nonce)
        finally:
            self.close()
        return True

    def _put_run(self, number: int, plain: memoryview, nonce: int) -> None:
        numbers = range(number, number + len(plain) // CHUNK)
        try:
            with _run_buffers.lend() as memory:
                self._slots.write_run(number, plain, memory, nonce)
        except OSError:
            with self._lock:
                for each in numbers:
                    if each * CHUNK < self._size:
                        self._clear(each)
                self._trim()
            raise
        with self._lock:
            self.changes += 1
            for each in numbers:
                self._dirty.pop(each, None)
            self._chunks.put(numbers.start, numbers.stop, nonce)
            self._size = max(self._size, numbers.stop * CHUNK)

    def _buffer(self, number: int, start: int, piece: memoryview, *, whole: bool) -> None:
        """Write `piece` at offset `start` of a chunk in memory.

        `whole` states that `piece` replaces all bytes of the chunk.
        """
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

    def _store_one(self, number: int) -> None:
        self._store(number, self._dirty[number])
        del self._dirty[number]

    def _store_dirty(self) -> None:
        for number in sorted(self._dirty):
            self._store_one(number)

    def _flush(self) -> None:
        self._store_dirty()
        self._save_head()

    def _begin_sync(self) -> None:
        self._synced = count_of(self._size)

    def _save_head(self) -> None:
        if self._size != self._head.size or list(self._chunks.holes) != list(self._head.holes):
            self._head.save(self._descriptor, self._size, self._chunks.holes)

    # -- chunks on the disk

    def _opened(self, number: int, slot: memoryview, *, holes: bool) -> bytes:
        """Return the plaintext of a chunk from its slot, b"" for a hole.

        Raises Damaged if the slot is damaged or does not hold the chunk's last write, and for a
        hole if `holes` is False.
        """
        if self._chunks.is_there(number, slot, holes=holes):
            return self._slots.open(number, slot)
        return b""

    def _store(self, number: int, plain: Buffer) -> None:
        """Write a chunk to the disk. Raises OSError; the slot is then restored or cleared."""
        nonce = self._chunks.reserve_nonces(1, self._size)
        slot = self._slots.seal(number, plain, nonce)
        before: Buffer | None = None
        is_new = number * CHUNK >= max(self._size, self._head.size) and number >= self._synced
        if not (is_new or self._regenerable):
            before = self._slots.read(number)
        is_synced = number < self._synced and before is not None and not is_empty(before)
        if is_synced or (number * CHUNK < self._head.size and not self._regenerable):
            self._slots.log(number, slot, durable=is_synced)
        try:
            self._slots.write(number, slot, durable=is_synced)
        except OSError:
            self._undo(number, before)
            raise
        self._chunks.put(number, number + 1, nonce)

    def holes(self) -> list[tuple[int, int]]:
        with self._lock:
            holes = self._chunks.holes
            return [(first * CHUNK, min(end * CHUNK, self._size)) for first, end in holes]

    def disable_redo_log(self, *, is_complete: bool = False) -> None:
        with self._lock:
            self._regenerable = True
            self._zeros = Ranges(self._chunks.holes) if is_complete else Ranges()

    def _undo(self, number: int, before: Buffer | None) -> None:
        """Restore the previous bytes `before` of a slot after a failed write.

        If `before` is None or empty, clear the slot.
        """
        if before:
            self._slots.write_raw(number, before)
        else:
            self._clear(number)

    def _clear(self, number: int) -> None:
        self._chunks.drop(number, number + 1)
        self._slots.clear(number)

    def _open_copy(self, path: Path) -> ContentFile:
        with self._lock:
            manifest = self._chunks.manifest_without_floor(self._size)
        copy = EncryptedFile.open(path, self._account_key, manifest)
        try:
            copy._chunks.begin_writing(copy._size)  # in a thread, not at the first write
        except BaseException:
            copy.close()
            raise
        return copy


def create_file(path: Path, key: bytes | None) -> ContentFile:
    """Create and open an empty content file, encrypted under `key`, or plain if `key` is None.

    Raises OSError, including FileExistsError.
    """
    if key is None:
        return ContentFile(path, create_descriptor(path))
    return EncryptedFile.create(path, key)


def open_file(path: Path, key: bytes | None, manifest: bytes = b"") -> ContentFile:
    """Open a file that `create_file` has created with the same key.

    `manifest` is the recorded state of an encrypted file, or b"" if it is unknown. With a manifest,
    reads raise Damaged if the bytes were replaced by older bytes. This function raises Damaged if
    the file's header is damaged or the manifest belongs to another file, and OSError if the file
    cannot be opened.
    """
    if key is None:
        return ContentFile(path, open_descriptor(path)[0])
    return EncryptedFile.open(path, key, manifest)
