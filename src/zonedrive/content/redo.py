"""Where the slots of a sealed file lie, and the one write that a killed process left half done.

Before a chunk inside the recorded size is overwritten, its new form is kept in the journal slot:
chunk number 8 bytes, then a slot.  Must not know what a chunk holds.

INVARIANT: `mend` touches only a chunk that has the nonce of the journal and fails its check.
"""

import os
import struct

from zonedrive.cipher import NONCE_BYTES
from zonedrive.content.file import write_all
from zonedrive.content.header import HEAD_BYTES
from zonedrive.content.slot import CHUNK, SLOT, Sealer, is_empty, used
from zonedrive.errors import Damaged

_NUMBER = struct.Struct("<Q")
_JOURNAL = HEAD_BYTES
_CHUNKS = HEAD_BYTES + 68 * 1024  # where the slot of chunk 0 begins, on a page


def place_of(number: int) -> int:
    """Where in the file the slot of a chunk begins."""
    return _CHUNKS + number * SLOT


def keep(descriptor: int, number: int, head: bytes, sealed: bytes) -> None:
    """Note the slot that is about to be written.  Raises OSError."""
    write_all(descriptor, b"".join((_NUMBER.pack(number), head, sealed)), _JOURNAL)


def mend(descriptor: int, sealer: Sealer, size: int, name: str) -> None:
    """Finish the write that a killed process may have left half done; `size` is the content's."""
    journal = os.pread(descriptor, _NUMBER.size + SLOT, _JOURNAL)
    slot = journal[_NUMBER.size :]
    if is_empty(slot):
        return
    (number,) = _NUMBER.unpack_from(journal)
    there = b""
    if number * CHUNK < size:
        there = os.pread(descriptor, SLOT, place_of(number))
    if there[:NONCE_BYTES] == slot[:NONCE_BYTES]:
        try:
            sealer.open(number, there, name)
        except Damaged:
            _restore(descriptor, sealer, number, slot, name)


def _restore(descriptor: int, sealer: Sealer, number: int, slot: bytes, name: str) -> None:
    try:
        plain = sealer.open(number, slot, name)
    except Damaged:
        return
    write_all(descriptor, slot[: used(plain)], place_of(number))
