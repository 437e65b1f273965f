"""Slots of an encrypted file: one encrypted and authenticated chunk each.

Layout of a slot:

    nonce 12, length of the plain bytes 4, ciphertext of that length, tag 16

The encryption is AES-256-GCM under the file's key.  File id, chunk number and length are
also authenticated.  Knows nothing about the position of slots in a file or about the choice of
nonces.

INVARIANT: every write uses a new nonce (see `manifest.Nonces`), so that a copy of a file (same id,
same key) may be written independently.
"""

import struct

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from zonedrive.cipher import NONCE_BYTES, TAG_BYTES
from zonedrive.content.content_file import Buffer
from zonedrive.errors import Damaged

CHUNK = 64 * 1024
_LENGTH = struct.Struct("<I")
_WHOLE = _LENGTH.pack(CHUNK)
SLOT_HEAD = NONCE_BYTES + _LENGTH.size
SLOT = SLOT_HEAD + CHUNK + TAG_BYTES
_EMPTY = bytes(SLOT_HEAD)
_INTO = hasattr(AESGCM, "encrypt_into")  # not in older versions
_OUT_OF = hasattr(AESGCM, "decrypt_into")  # not in older versions


def is_empty(slot: Buffer) -> bool:
    """Return True if the slot was never written or was cleared."""
    return len(slot) < SLOT_HEAD or slot[:SLOT_HEAD] == _EMPTY


def length_of(head: bytes) -> int:
    """Return the plain length in a slot's head, unchecked; 0 for an incomplete head."""
    return int(_LENGTH.unpack_from(head, NONCE_BYTES)[0]) if len(head) == SLOT_HEAD else 0


def nonce_of(head: Buffer) -> int:
    """Return the nonce of a slot as a number, unchecked."""
    return int.from_bytes(head[:NONCE_BYTES], "big")


def used(plain: Buffer) -> int:
    """Return the bytes that a chunk takes of its slot."""
    return SLOT_HEAD + len(plain) + TAG_BYTES


class Sealer:
    """Encryption and decryption of the slots of one file."""

    def __init__(self, key: AESGCM, file_id: bytes, name: str) -> None:
        """Create a sealer; `name` is used in messages about damaged slots."""
        self.name = name
        self._key = key
        self._file_id = file_id

    def seal(self, number: int, plain: Buffer, nonce: int) -> tuple[bytes, bytes]:
        """Return the head and the remaining bytes of a chunk's slot."""
        fresh = nonce.to_bytes(NONCE_BYTES, "big")
        sealed = self._key.encrypt(fresh, plain, self._aad(number, len(plain)))
        return fresh + _LENGTH.pack(len(plain)), sealed

    def seal_run(self, number: int, plain: memoryview, into: memoryview, nonce: int) -> memoryview:
        """Fill `into` with the slots of whole chunks from `number` on; return the filled part.

        The nonces are consecutive from `nonce` on.
        """
        count = len(plain) // CHUNK
        view = into[: count * SLOT]
        for index in range(count):
            slot = view[index * SLOT : (index + 1) * SLOT]
            piece = plain[index * CHUNK : (index + 1) * CHUNK]
            fresh, aad = (
                (nonce + index).to_bytes(NONCE_BYTES, "big"),
                self._aad(number + index, CHUNK),
            )
            slot[:SLOT_HEAD] = fresh + _LENGTH.pack(CHUNK)
            if _INTO:
                self._key.encrypt_into(fresh, piece, aad, slot[SLOT_HEAD:])
            else:
                slot[SLOT_HEAD:] = self._key.encrypt(fresh, piece, aad)
        return view

    def open_run(self, number: int, slots: memoryview, into: memoryview, nonce: int) -> int:
        """Decrypt whole chunks from `number` on into `into`.

        The expected nonces are consecutive from `nonce` on.  Stops at the first slot that does not
        match or fails its check; returns the number of decrypted chunks.
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

    def open_into(self, number: int, slot: memoryview, into: memoryview) -> None:
        """Decrypt a slot into `into`, followed by zeros.

        Plain bytes past the end of `into` are left out.  Raises Damaged.
        """
        (length,) = _LENGTH.unpack_from(slot, NONCE_BYTES)
        if length != len(into) or not _OUT_OF:
            plain = self.open(number, slot)[: len(into)]
            into[: len(plain)] = plain
            into[len(plain) :] = bytes(len(into) - len(plain))
            return
        try:
            sealed = slot[SLOT_HEAD : SLOT_HEAD + length + TAG_BYTES]
            nonce, aad = slot[:NONCE_BYTES], self._aad(number, length)
            self._key.decrypt_into(nonce, sealed, aad, into)
        except (InvalidTag, ValueError):  # ValueError: the slot is cut short
            raise self._damaged(number) from None

    def open(self, number: int, slot: Buffer) -> bytes:
        """Return the plain bytes of a slot.  Raises Damaged."""
        (length,) = _LENGTH.unpack_from(slot, NONCE_BYTES)
        if length <= CHUNK and len(slot) >= SLOT_HEAD + length + TAG_BYTES:
            nonce = bytes(slot[:NONCE_BYTES])
            sealed = memoryview(slot)[SLOT_HEAD : SLOT_HEAD + length + TAG_BYTES]
            try:
                return self._key.decrypt(nonce, sealed, self._aad(number, length))
            except InvalidTag:
                pass
        raise self._damaged(number)

    def _aad(self, number: int, length: int) -> bytes:
        return b"%b%d:%d" % (self._file_id, number, length)

    def _damaged(self, number: int) -> Damaged:
        return Damaged(f"{self.name}: stored bytes of chunk {number} fail their check")
