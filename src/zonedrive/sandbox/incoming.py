"""Received content, which a thread writes in large blocks to a file below `incoming/`.

This module does not depend on the source of the bytes. INVARIANT: at most a few MiB are in memory.
After `finish`, all bytes are on the disk. After `discard`, the file is no longer in `incoming/`.
"""

import asyncio
import os
from pathlib import Path

WRITE_BYTES = 1 << 20
# Bytes after which the file is synced, so that the sync at the end is short.
SYNC_BYTES = 64 << 20


class Incoming:
    """File that is being received; `feed` accepts bytes while a thread writes earlier bytes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = 0
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._unsynced = 0
        self._running: asyncio.Future[None] | None = None

    async def feed(self, pieces: list[bytes]) -> None:
        """Accept bytes; wait only if the disk is slower than the network.

        Raises OSError if a previous write failed.
        """
        for piece in pieces:
            self._waiting.append(piece)
            self._waiting_bytes += len(piece)
            self.size += len(piece)
        if self._waiting_bytes >= WRITE_BYTES:
            await self._settle()
            self._start()

    async def finish(self) -> None:
        """Write and sync the remaining bytes, then close the file.

        Raises OSError if a write or the sync fails.
        """
        await self._settle()
        self._start()
        await self._settle()
        await asyncio.to_thread(os.fdatasync, self._fd)
        os.close(self._fd)
        self._fd = -1

    async def discard(self) -> None:
        """Wait for a running write, close the file, and delete it unless it was moved away."""
        if self._running is not None:
            await asyncio.wait([self._running])
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        self.path.unlink(missing_ok=True)

    async def _settle(self) -> None:
        if self._running is not None:
            # Shielded: after a cancellation, `discard` must still wait for the running write.
            await asyncio.shield(self._running)
            self._running = None

    def _start(self) -> None:
        pieces, self._waiting = self._waiting, []
        self._unsynced += self._waiting_bytes
        self._waiting_bytes = 0
        sync = self._unsynced >= SYNC_BYTES
        if sync:
            self._unsynced = 0
        if pieces:
            loop = asyncio.get_running_loop()
            self._running = loop.run_in_executor(None, _write, self._fd, pieces, sync)


def _write(fd: int, pieces: list[bytes], sync: bool) -> None:
    while pieces:
        # writev accepts at most IOV_MAX (1024) buffers.
        batch, pieces = pieces[:1024], pieces[1024:]
        whole = sum(map(len, batch))
        written = os.writev(fd, batch)
        if written < whole:
            rest = memoryview(b"".join(batch))[written:]
            while rest:
                rest = rest[os.write(fd, rest) :]
    if sync:
        os.fdatasync(fd)
