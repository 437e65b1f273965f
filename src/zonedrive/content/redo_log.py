"""Slots of an encrypted file on the disk, and repair of an incomplete write.

Before a chunk inside the recorded size is overwritten, its new form is written to the redo log:
chunk number in 8 bytes, then a slot.  Knows nothing about the content of a chunk.

INVARIANT: `repair` changes only a chunk that has the nonce of the redo log and fails its check.
"""

import os
import struct

from zonedrive.cipher import NONCE_BYTES
from zonedrive.content.chunk_crypto import CHUNK, SLOT, SLOT_HEAD, Sealer, is_empty, used
from zonedrive.content.content_file import write_all
from zonedrive.content.header import HEAD_BYTES
from zonedrive.errors import Damaged

_NUMBER = struct.Struct("<Q")
_LOG = HEAD_BYTES
_CHUNKS = HEAD_BYTES + 68 * 1024  # where the slot of chunk 0 begins, on a page


def place_of(number: int) -> int:
    """Return the file offset of a chunk's slot."""
    return _CHUNKS + number * SLOT


def read(descriptor: int, number: int) -> memoryview:
    """Return the stored bytes of a slot."""
    return memoryview(os.pread(descriptor, SLOT, place_of(number)))


def read_into(descriptor: int, first: int, into: memoryview) -> memoryview:
    """Fill `into` with the slots from `first` on; return the part of `into` that was filled."""
    return into[: os.preadv(descriptor, [into], place_of(first))]


def head_of(descriptor: int, number: int) -> bytes:
    """Return the head of a slot."""
    return os.pread(descriptor, SLOT_HEAD, place_of(number))


def write(descriptor: int, number: int, head: bytes, sealed: bytes) -> None:
    """Write a slot.  Raises OSError; the slot may then be partly written."""
    place = place_of(number)
    written = os.pwritev(descriptor, (head, sealed), place)
    if written < len(head) + len(sealed):
        write_all(descriptor, (head + sealed)[written:], place + written)


def clear(descriptor: int, number: int) -> None:
    """Mark a slot as empty, which needs no disk space."""
    head = head_of(descriptor, number)
    if any(head):
        write_all(descriptor, bytes(len(head)), place_of(number))


def trim(descriptor: int, count: int) -> None:
    """Cut the file after its first `count` slots."""
    end = place_of(count)
    if os.fstat(descriptor).st_size > end:
        os.ftruncate(descriptor, end)


def record(descriptor: int, number: int, head: bytes, sealed: bytes) -> None:
    """Write the new form of a slot to the redo log.  Raises OSError."""
    write_all(descriptor, b"".join((_NUMBER.pack(number), head, sealed)), _LOG)


def repair(descriptor: int, sealer: Sealer, size: int) -> None:
    """Repair a chunk that a killed process left incomplete; `size` is the content's size."""
    if is_empty(os.pread(descriptor, SLOT_HEAD, _LOG + _NUMBER.size)):
        return
    entry = os.pread(descriptor, _NUMBER.size + SLOT, _LOG)
    slot = entry[_NUMBER.size :]
    (number,) = _NUMBER.unpack_from(entry)
    there = b""
    if number * CHUNK < size:
        there = os.pread(descriptor, SLOT, place_of(number))
    if there[:NONCE_BYTES] == slot[:NONCE_BYTES]:
        try:
            sealer.open(number, there)
        except Damaged:
            _restore(descriptor, sealer, number, slot)


def _restore(descriptor: int, sealer: Sealer, number: int, slot: bytes) -> None:
    try:
        plain = sealer.open(number, slot)
    except Damaged:
        return
    write_all(descriptor, slot[: used(plain)], place_of(number))
