"""Invalidation of the kernel's caches after changes that the kernel did not make.

Each call into the kernel runs in a thread that no handler waits for. The call may block until
requests for the same inode are answered, and the event loop that answers these requests must not be
blocked.

INVARIANT: after `run` has ended, no thread is in a call into the kernel, so that the session can be
closed.
"""

import errno
import logging
import threading
from functools import partial

import pyfuse3
import trio

from zonedrive.state.invalidation import EntryChanged, EntryGone, InodeChanged, Invalidation
from zonedrive.supervisor import Supervisor, Task

log = logging.getLogger(__name__)

THREADS = 4
"""Number of threads, so that an invalidation that waits for a slow request blocks no others."""

BATCH = 256


class _Pages:
    """Inodes whose cached pages are being invalidated, each by at most one thread.

    An invalidation waits for pages that the kernel is reading, so further threads would also wait.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._again: dict[int, bool] = {}  # by ino: True if the invalidation must be repeated

    def begin(self, ino: int) -> bool:
        """Register the calling thread as the one that invalidates the inode's pages; return True.

        If another thread is registered, make that thread repeat the invalidation; return False.
        """
        with self._lock:
            is_free = ino not in self._again
            self._again[ino] = not is_free
            return is_free

    def end(self, ino: int) -> bool:
        """Unregister the calling thread; return True if it must invalidate the pages once more."""
        with self._lock:
            return self._again.pop(ino)


async def run(source: "trio.MemoryReceiveChannel[Invalidation]", supervisor: Supervisor) -> None:
    """Send the invalidations from `source` to the kernel until the source ends.

    A task that runs this function can be cancelled at any time.
    """
    limit = trio.CapacityLimiter(THREADS)
    free, pages = trio.Semaphore(THREADS), _Pages()
    async with trio.open_nursery() as nursery:
        async for first in source:
            batch = [first]
            while len(batch) < BATCH:
                try:
                    batch.append(source.receive_nowait())
                except (trio.WouldBlock, trio.EndOfChannel):
                    break
            await free.acquire()
            call = partial(_pass_on, batch, pages, free, limit)
            nursery.start_soon(supervisor.job, Task.INVALIDATION, call)


async def _pass_on(
    batch: list[Invalidation], pages: _Pages, free: trio.Semaphore, limit: trio.CapacityLimiter
) -> None:
    while True:
        try:
            # Not abandoned on cancellation: a thread that outlived the session would use freed
            # memory.
            batch = await trio.to_thread.run_sync(_invalidate_all, batch, pages, limiter=limit)
        finally:
            free.release()
        if not batch:
            return
        await free.acquire()  # after the batches that wait for a thread


def _invalidate_all(batch: list[Invalidation], pages: _Pages) -> list[Invalidation]:
    """Send a batch to the kernel; return the invalidations that must be repeated."""
    again: list[Invalidation] = []
    for change in dict.fromkeys(batch):
        if not isinstance(change, InodeChanged) or change.attr_only:
            _send(change)
        elif pages.begin(change.ino):
            _send(change)
            if pages.end(change.ino):
                again.append(change)
    return again


def _send(change: Invalidation) -> None:
    try:
        _invalidate(change)
    except OSError as refused:
        # ENOENT: the kernel does not know the inode or the name, so nothing is stale.
        # The other numbers occur while a session is ending.
        if refused.errno not in (errno.ENOENT, errno.ENODEV, errno.ENOTCONN, errno.EBADF):
            log.warning("the kernel rejected %s of inode %d (%s)", *_told(change), refused)
    except Exception:  # the other invalidations are still sent
        log.exception("cannot send %s of inode %d to the kernel", *_told(change))


def _told(change: Invalidation) -> tuple[str, int]:
    """Return the type and the inode number of a change for the log, where no name may appear."""
    ino = change.ino if isinstance(change, InodeChanged) else change.parent
    return type(change).__name__, ino


def _invalidate(change: Invalidation) -> None:
    match change:
        case InodeChanged(ino, attr_only):
            pyfuse3.invalidate_inode(ino, attr_only)
        case EntryChanged(parent, name):
            pyfuse3.invalidate_entry(parent, name)
        case EntryGone(parent, name, ino):
            try:
                pyfuse3.invalidate_entry(parent, name, ino)
            except OSError as refused:
                if refused.errno not in (errno.ENOTEMPTY, errno.EBUSY, errno.EINVAL):
                    raise
                pyfuse3.invalidate_entry(parent, name)
