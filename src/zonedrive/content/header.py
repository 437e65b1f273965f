"""Header of an encrypted file: its key, its size and its possible holes.

Layout of the first 4096 bytes (numbers are little-endian, sizes are in bytes):

    0     magic, 8 bytes; the last byte is the version of the format
    8     file id, 16 random bytes
    24    the file's key, encrypted under the account's key: nonce 12, ciphertext 32, tag 16
    512   first copy of the state record, at most 1536 bytes: length 4, then encrypted under the
          file's key: sequence number 8, logical size 8, ranges of chunks that may be holes
    2048  second copy of the state record

INVARIANT: a new state record replaces the first copy and then the second, each in one write. A
process that is killed at any time therefore leaves at least one complete record, of the new or the
previous state. A single damaged record never restores an old state, because the other record holds
the new state.
"""

import os
import struct

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from zonedrive.cipher import KEY_BYTES, NONCE_BYTES, TAG_BYTES, new_key
from zonedrive.content.content_file import write_all
from zonedrive.content.ranges import Ranges
from zonedrive.errors import Damaged

MAGIC = b"ZDSEAL\x00\x01"
HEAD_BYTES = 4096
FILE_ID_BYTES = 16
_WRAPPED = len(MAGIC) + FILE_ID_BYTES
_RECORD_OFFSETS = (512, 2048)
_RECORD_BYTES = 1536
_NUMBERS = struct.Struct("<QQ")
_LENGTH = struct.Struct("<I")
MAX_HOLES = (_RECORD_BYTES - _LENGTH.size - NONCE_BYTES - TAG_BYTES - _NUMBERS.size) // 16


class Head:
    """Header of an encrypted file, with the file's key."""

    def __init__(self, file_id: bytes, key: bytes) -> None:
        """Create a header with the state of an empty file."""
        self.file_id = file_id
        self.key = AESGCM(key)
        self.size = 0
        self.holes = Ranges()
        self._sequence = 0

    @classmethod
    def create(cls, descriptor: int, account_key: bytes) -> "Head":
        """Write the header of a new, empty file, and return it. Raises OSError."""
        file_id, key, nonce = os.urandom(FILE_ID_BYTES), new_key(), os.urandom(NONCE_BYTES)
        sealed = AESGCM(account_key).encrypt(nonce, key, MAGIC + file_id)
        head = cls(file_id, key)
        record = head._record(0, Ranges())
        page = bytearray(HEAD_BYTES)
        start = MAGIC + file_id + nonce + sealed
        page[: len(start)] = start
        for offset in _RECORD_OFFSETS:
            page[offset : offset + len(record)] = record
        write_all(descriptor, page, 0)
        return head

    @classmethod
    def load(cls, descriptor: int, account_key: bytes) -> "Head":
        """Read and return the header of a file.

        Raises Damaged if the file has no header of this version, or if the header is damaged or
        was encrypted under another key.
        """
        page = os.pread(descriptor, HEAD_BYTES, 0)
        if not page.startswith(MAGIC) or len(page) < HEAD_BYTES:
            raise Damaged("not an encrypted file, or one of another version")
        file_id = page[len(MAGIC) : _WRAPPED]
        nonce, sealed = page[_WRAPPED:][:NONCE_BYTES], page[_WRAPPED + NONCE_BYTES :]
        try:
            key = AESGCM(account_key).decrypt(
                nonce, sealed[: KEY_BYTES + TAG_BYTES], MAGIC + file_id
            )
        except InvalidTag as wrong:
            raise Damaged("the key of an encrypted file fails its check") from wrong
        head = cls(file_id, key)
        states = [state for offset in _RECORD_OFFSETS if (state := head._state(page[offset:]))]
        if not states:
            raise Damaged("the header of an encrypted file fails its check")
        head._sequence, head.size, head.holes = max(states, key=lambda state: state[0])
        return head

    def save(self, descriptor: int, size: int, holes: Ranges) -> None:
        """Write the file's state: `size` (in bytes) and `holes` (in chunks).

        Raises OSError; the attributes `size` and `holes` are then unchanged.
        """
        record = self._record(size, holes)
        for offset in _RECORD_OFFSETS:
            write_all(descriptor, record, offset)
        self.size = size
        self.holes = Ranges(holes)

    def _record(self, size: int, holes: Ranges) -> bytes:
        self._sequence += 1
        nonce = os.urandom(NONCE_BYTES)
        plain = _NUMBERS.pack(self._sequence, size) + _limited(holes).encode()
        sealed = nonce + self.key.encrypt(nonce, plain, b"state" + self.file_id)
        return _LENGTH.pack(len(sealed)) + sealed

    def _state(self, record: bytes) -> tuple[int, int, Ranges] | None:
        (length,) = _LENGTH.unpack_from(record)
        sealed = record[_LENGTH.size :][: min(length, _RECORD_BYTES)]
        try:
            plain = self.key.decrypt(
                sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], b"state" + self.file_id
            )
            sequence, size = _NUMBERS.unpack_from(plain)
            return sequence, size, Ranges.decode(plain[_NUMBERS.size :])
        except (InvalidTag, ValueError, struct.error):
            return None


def _limited(holes: Ranges) -> Ranges:
    """Return `holes`, or one range that contains all of them if there are more than MAX_HOLES.

    All chunks in that range then count as possible holes. Existing chunks are still read and
    verified, but without a manifest a lost chunk cannot be distinguished from a hole.
    """
    if len(holes) <= MAX_HOLES:
        return holes
    pairs = list(holes)
    return Ranges([(pairs[0][0], pairs[-1][1])])
