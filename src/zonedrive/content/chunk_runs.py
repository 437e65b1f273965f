"""Reads and writes of consecutive whole chunks in one system call.

Knows nothing about the rest of the file.
"""

from zonedrive.content import redo_log
from zonedrive.content.chunk_crypto import CHUNK, SLOT, RunMemory, Sealer
from zonedrive.content.chunks import Chunks
from zonedrive.content.content_file import write_all

RUN = 16  # chunks at once
_memory = RunMemory(RUN)


def write(descriptor: int, sealer: Sealer, number: int, plain: memoryview, nonce: int) -> None:
    """Write the chunks from `number` on, with consecutive nonces from `nonce`.  Raises OSError."""
    with _memory.lend() as memory:
        sealed = sealer.seal_run(number, plain, memory, nonce)
        write_all(descriptor, sealed, redo_log.place_of(number))


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

    Raises Damaged, also for a hole if `holes` is False.
    """
    count = len(into) // CHUNK
    with _memory.lend() as memory:
        slots = redo_log.read_into(descriptor, number, memory[: count * SLOT])
        nonce = chunks.nonce_of_run(number, number + count)
        done = sealer.open_run(number, slots, into, nonce) if nonce else 0
        for index in range(done, count):
            slot = slots[index * SLOT : (index + 1) * SLOT]
            plain = into[index * CHUNK : (index + 1) * CHUNK]
            if chunks.is_there(number + index, slot, sealer.name, holes=holes):
                sealer.open_into(number + index, slot, plain)
            else:
                plain[:] = bytes(CHUNK)
