"""Telling the kernel what has changed behind its back.

Must not know why something changed.  Every call into the kernel is made in a thread that no
handler waits for: it may block until requests about the same inode have been answered, and
those are answered by the loop that must therefore stay free.

INVARIANT: when `run` has ended, no thread of it is left in the kernel, so that the session may
be closed.
"""

import errno
import logging
from typing import TypeAlias

import pyfuse3
import trio

from zonedrive.supervisor import Supervisor, Task
from zonedrive.vfs.invalidation import EntryChanged, EntryGone, InodeChanged, Invalidation

log = logging.getLogger(__name__)

THREADS = 4
"""One invalidation that waits for a slow request must not hold up all others."""

BATCH = 256

Source: TypeAlias = "trio.MemoryReceiveChannel[Invalidation]"


async def run(source: Source, supervisor: Supervisor) -> None:
    """Pass on what comes from `source` until it ends or this task is cancelled."""
    limit = trio.CapacityLimiter(THREADS)
    free = trio.Semaphore(THREADS)
    async with trio.open_nursery() as nursery:
        async for first in source:
            batch = [first]
            while len(batch) < BATCH:
                try:
                    batch.append(source.receive_nowait())
                except (trio.WouldBlock, trio.EndOfChannel):
                    break
            await free.acquire()
            nursery.start_soon(supervisor.job, Task.INVALIDATION, _pass_on, batch, free, limit)


async def _pass_on(
    batch: list[Invalidation], free: trio.Semaphore, limit: trio.CapacityLimiter
) -> None:
    try:
        # Not abandoned when cancelled: a thread that outlived the session would use freed memory.
        await trio.to_thread.run_sync(_tell, batch, limiter=limit)
    finally:
        free.release()


def _tell(batch: list[Invalidation]) -> None:
    for change in dict.fromkeys(batch):
        try:
            _tell_one(change)
        except OSError as refused:
            # ENOENT: the kernel does not know the inode or the name, so nothing is stale.
            # The others come with a session that is ending.
            if refused.errno not in (errno.ENOENT, errno.ENODEV, errno.ENOTCONN, errno.EBADF):
                log.warning("the kernel did not take %r (%s)", change, refused)
        except Exception:  # the others are told nevertheless
            log.exception("the kernel could not be told of %r", change)


def _tell_one(change: Invalidation) -> None:
    match change:
        case InodeChanged(ino, attr_only):
            pyfuse3.invalidate_inode(ino, attr_only)
        case EntryChanged(parent, name):
            pyfuse3.invalidate_entry(parent, name)
        case EntryGone(parent, name, ino):
            try:
                pyfuse3.invalidate_entry(parent, name, ino)  # tells inotify watchers, too
            except OSError as refused:
                if refused.errno not in (errno.ENOTEMPTY, errno.EBUSY, errno.EINVAL):
                    raise
                pyfuse3.invalidate_entry(parent, name)
