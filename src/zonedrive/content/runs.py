"""Whole chunks in a row on the disk, written and read in one system call.

Must not know the rest of a file.
"""

from zonedrive.content import redo
from zonedrive.content.chunks import Chunks
from zonedrive.content.file import write_all
from zonedrive.content.slot import CHUNK, SLOT, RunMemory, Sealer

RUN = 16  # chunks at once
_memory = RunMemory(RUN)


def write(descriptor: int, sealer: Sealer, number: int, plain: memoryview, nonce: int) -> None:
    """Put the chunks from `number` on the disk, with nonces from `nonce` on.  Raises OSError."""
    with _memory.lend() as memory:
        sealed = sealer.seal_run(number, plain, memory, nonce)
        write_all(descriptor, sealed, redo.place_of(number))


def read(
    descriptor: int,
    sealer: Sealer,
    chunks: Chunks,
    number: int,
    into: memoryview,
    *,
    holes: bool,
) -> None:
    """Fill `into` with the chunks from `number` on; holes are zeros.

    Raises Damaged, also for a hole where there are to be none.
    """
    count = len(into) // CHUNK
    with _memory.lend() as memory:
        slots = redo.read_into(descriptor, number, memory[: count * SLOT])
        nonce = chunks.nonce_of_run(number, number + count)
        done = sealer.open_run(number, slots, into, nonce) if nonce else 0
        for index in range(done, count):
            slot = slots[index * SLOT : (index + 1) * SLOT]
            plain = into[index * CHUNK : (index + 1) * CHUNK]
            if chunks.is_there(number + index, slot, sealer.name, holes=holes):
                sealer.open_into(number + index, slot, plain)
            else:
                plain[:] = bytes(CHUNK)
