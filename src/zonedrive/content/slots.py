"""Slots of an encrypted file, each with one encrypted and authenticated chunk, and the redo log.

Layout of a slot, with sizes in bytes:

    nonce 12, length of the plaintext 4, ciphertext of that length, tag 16

The encryption is AES-256-GCM under the file's key. The file id, the chunk number and the length are
also authenticated. In the file, the header (see `header`) is followed by the redo log (chunk number
in 8 bytes, then a slot), and by the slots of all chunks.

Before a chunk inside the recorded size is overwritten, its new slot is written to the redo log. The
callers choose the nonces.

INVARIANT: every write uses a new nonce (see `manifest.Nonces`), so that a copy of a file (same id,
same key) may be written independently.

INVARIANT: `repair` changes only a chunk that cannot be decrypted, and only to its last write.
"""

import os
import struct
from collections.abc import Callable

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from zonedrive.cipher import NONCE_BYTES, TAG_BYTES
from zonedrive.content.content_file import Buffer, write_all
from zonedrive.content.header import HEAD_BYTES
from zonedrive.errors import Damaged

CHUNK = 64 * 1024
_LENGTH = struct.Struct("<I")
_WHOLE = _LENGTH.pack(CHUNK)
SLOT_HEAD = NONCE_BYTES + _LENGTH.size
SLOT = SLOT_HEAD + CHUNK + TAG_BYTES
_EMPTY = bytes(SLOT_HEAD)
_INTO = hasattr(AESGCM, "encrypt_into")  # not in older versions of cryptography
_OUT_OF = hasattr(AESGCM, "decrypt_into")  # not in older versions of cryptography
_NUMBER = struct.Struct("<Q")
_LOG = HEAD_BYTES
_CHUNKS = HEAD_BYTES + 68 * 1024  # offset of the slot of chunk 0, page-aligned


def is_empty(slot: Buffer) -> bool:
    """Return True if the slot was never written or was cleared."""
    return len(slot) < SLOT_HEAD or slot[:SLOT_HEAD] == _EMPTY


def nonce_of(head: Buffer) -> int:
    """Return the nonce at the beginning of a slot as a number; the slot is not verified."""
    return int.from_bytes(head[:NONCE_BYTES], "big")


def slot_offset(number: int) -> int:
    """Return the file offset of a chunk's slot."""
    return _CHUNKS + number * SLOT


class Slots:
    """Slots of one open encrypted file."""

    def __init__(self, descriptor: int, key: AESGCM, file_id: bytes, name: str) -> None:
        """Use the file that is open as `descriptor`; errors about damaged slots contain `name`."""
        self.name = name
        self._descriptor = descriptor
        self._key = key
        self._file_id = file_id

    # -- on the disk

    def read(self, number: int) -> memoryview:
        """Return the stored bytes of a slot, fewer than SLOT at the end of the file."""
        return memoryview(os.pread(self._descriptor, SLOT, slot_offset(number)))

    def read_into(self, first: int, into: memoryview) -> memoryview:
        """Fill `into` with the slots from `first` on; return the part of `into` that was filled."""
        return into[: os.preadv(self._descriptor, [into], slot_offset(first))]

    def _head(self, number: int) -> bytes:
        return os.pread(self._descriptor, SLOT_HEAD, slot_offset(number))

    def nonce(self, number: int) -> int:
        """Return the stored nonce of a chunk as a number; the slot is not verified."""
        return nonce_of(self._head(number))

    def length(self, number: int) -> int:
        """Return the stored plaintext length of a chunk in bytes; the slot is not verified.

        The result is 0 if the slot is incomplete.
        """
        head = self._head(number)
        return int(_LENGTH.unpack_from(head, NONCE_BYTES)[0]) if len(head) == SLOT_HEAD else 0

    def write(self, number: int, slot: tuple[bytes, bytes], *, durable: bool = False) -> None:
        """Write the slot of a chunk, as returned by `seal`.

        With `durable`, wait until the slot is safe from a power cut. Raises OSError; the slot may
        then be partly written.
        """
        self._write(slot, slot_offset(number), durable=durable)

    def log(self, number: int, slot: tuple[bytes, bytes], *, durable: bool = False) -> None:
        """Write the slot of a chunk, as returned by `seal`, to the redo log.

        For `durable`, see `write`. Raises OSError.
        """
        self._write((_NUMBER.pack(number), *slot), _LOG, durable=durable)

    def _write(self, parts: tuple[bytes, ...], place: int, *, durable: bool) -> None:
        # The flag concerns only these bytes: fdatasync would wait for all others of the file, too.
        flags = os.RWF_DSYNC if durable else 0
        written = os.pwritev(self._descriptor, parts, place, flags)
        while written < sum(map(len, parts)):
            rest = b"".join(parts)[written:]
            written += os.pwritev(self._descriptor, [rest], place + written, flags)

    def write_raw(self, number: int, slot: Buffer) -> None:
        """Write the raw bytes of one or more slots, from chunk `number` on. Raises OSError."""
        write_all(self._descriptor, slot, slot_offset(number))

    def clear(self, number: int) -> None:
        """Mark a slot as empty, even on a full disk. Raises OSError."""
        head = self._head(number)
        if any(head):
            self.write_raw(number, bytes(len(head)))

    def trim(self, count: int) -> None:
        """Truncate the file on the disk after its first `count` slots."""
        end = slot_offset(count)
        if os.fstat(self._descriptor).st_size > end:
            os.ftruncate(self._descriptor, end)

    def repair(self, size: int, is_last: Callable[[int, int, int], bool]) -> None:
        """Use the redo log to repair a chunk that a killed process or a power cut left incomplete.

        `size` is the size of the content in bytes. After a power cut, the chunk may still have the
        nonce of an earlier write. `is_last` then returns True if the redo log has the last write;
        its arguments are the number of the chunk, and the nonces in the redo log and in the chunk.
        """
        if is_empty(os.pread(self._descriptor, SLOT_HEAD, _LOG + _NUMBER.size)):
            return
        entry = os.pread(self._descriptor, _NUMBER.size + SLOT, _LOG)
        (number,) = _NUMBER.unpack_from(entry)
        slot, there = entry[_NUMBER.size :], b""
        if number * CHUNK < size:
            there = bytes(self.read(number))
        if is_empty(there) or self._is_whole(number, there) or not self._is_whole(number, slot):
            return
        logged, stored = nonce_of(slot), nonce_of(there)
        if logged == stored or is_last(number, logged, stored):
            (length,) = _LENGTH.unpack_from(slot, NONCE_BYTES)
            self.write_raw(number, slot[: SLOT_HEAD + length + TAG_BYTES])

    def _is_whole(self, number: int, slot: Buffer) -> bool:
        try:
            self.open(number, slot)
        except Damaged:
            return False
        return True

    # -- encryption

    def seal(self, number: int, plain: Buffer, nonce: int) -> tuple[bytes, bytes]:
        """Encrypt a chunk; return its slot in two parts: nonce and length, ciphertext and tag."""
        fresh = nonce.to_bytes(NONCE_BYTES, "big")
        sealed = self._key.encrypt(fresh, plain, self._aad(number, len(plain)))
        return fresh + _LENGTH.pack(len(plain)), sealed

    def write_run(self, number: int, plain: memoryview, into: memoryview, nonce: int) -> None:
        """Encrypt whole chunks into the buffer `into`, and write them in one call.

        The chunks have consecutive numbers from `number` on, and consecutive nonces from `nonce`
        on. Raises OSError.
        """
        count = len(plain) // CHUNK
        view = into[: count * SLOT]
        for index in range(count):
            slot = view[index * SLOT : (index + 1) * SLOT]
            piece = plain[index * CHUNK : (index + 1) * CHUNK]
            fresh = (nonce + index).to_bytes(NONCE_BYTES, "big")
            aad = self._aad(number + index, CHUNK)
            slot[:SLOT_HEAD] = fresh + _WHOLE
            if _INTO:
                self._key.encrypt_into(fresh, piece, aad, slot[SLOT_HEAD:])
            else:
                slot[SLOT_HEAD:] = self._key.encrypt(fresh, piece, aad)
        self.write_raw(number, view)

    def open_run(self, number: int, slots: memoryview, into: memoryview, nonce: int) -> int:
        """Decrypt whole chunks from `number` on into `into`.

        The expected nonces are consecutive from `nonce` on. Decryption stops at the first slot that
        has another nonce or cannot be decrypted. Returns the number of decrypted chunks.
        """
        count = len(into) // CHUNK if _OUT_OF else 0
        for index in range(count):
            at = index * SLOT
            head = (nonce + index).to_bytes(NONCE_BYTES, "big") + _WHOLE
            if slots[at : at + SLOT_HEAD] != head:
                return index
            try:
                self._key.decrypt_into(
                    head[:NONCE_BYTES],
                    slots[at + SLOT_HEAD : at + SLOT],
                    self._aad(number + index, CHUNK),
                    into[index * CHUNK : (index + 1) * CHUNK],
                )
            except (InvalidTag, ValueError):
                return index
        return count

    def open(self, number: int, slot: Buffer) -> bytes:
        """Decrypt a slot and return its plaintext. Raises Damaged if it cannot be decrypted."""
        length = _LENGTH.unpack_from(slot, NONCE_BYTES)[0] if len(slot) >= SLOT_HEAD else CHUNK
        if length <= CHUNK and len(slot) >= SLOT_HEAD + length + TAG_BYTES:
            nonce = bytes(slot[:NONCE_BYTES])
            sealed = memoryview(slot)[SLOT_HEAD : SLOT_HEAD + length + TAG_BYTES]
            try:
                return self._key.decrypt(nonce, sealed, self._aad(number, length))
            except InvalidTag:
                pass
        raise Damaged(f"{self.name}: stored bytes of chunk {number} fail their check")

    def _aad(self, number: int, length: int) -> bytes:
        return b"%b%d:%d" % (self._file_id, number, length)
