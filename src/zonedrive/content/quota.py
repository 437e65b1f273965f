"""Limit on the disk space of the cache, reserve of free disk space, and eviction.

This module does not depend on downloads or readers. `allow` is called in threads, all other methods
on the event loop.

INVARIANT: granted bytes never raise the usage above `limit`, nor reduce the free space of the disk
below the RESERVE fraction. Evicted files are removed before the new bytes are written.

INVARIANT: an entry in use or a pinned inode is never evicted.
"""

import errno
import logging
import time
from collections.abc import Container, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import TypeAlias

import trio

from zonedrive.content.cache_entry import CacheEntry
from zonedrive.content.cache_index import FIRST, CacheIndex, Row, usable_bytes

log = logging.getLogger(__name__)

SAID_S = 3600.0  # minimum seconds between two warnings about a full cache
# Seconds after which rows that could not be evicted are examined again, because entries may have
# been moved out of a pinned folder, or the clock may have been set back.
EXAMINE_S = 60.0
AT_ONCE = 8  # batches that `claim_at_once` examines
_BATCH = 64  # rows that are evicted in one transaction
_Steps: TypeAlias = Iterator[tuple[int | None, list[Path]]]  # see `Quota._claim`


class Quota:
    """Accounting and limit of the cache's disk usage."""

    def __init__(self, directory: Path, limit: int, index: CacheIndex) -> None:
        """Create a quota of `limit` bytes for the cache folder `directory`.

        The usage is 0 until the caller sets `idle` to the disk usage of all rows of the index.
        """
        self.limit = limit
        self.pinned: Container[int] = ()
        """Numbers of the inodes that are never evicted; call `examine_again` after each change."""
        self.idle = 0  # bytes of entries that are not in use
        self.leaving = 0  # bytes of files that are about to be removed
        self.entries: set[CacheEntry] = set()  # entries in use
        self._directory = directory
        self._index = index
        self._said_s = -SAID_S  # time of the last warning about a full cache
        self._examined_s = 0.0  # time since which `CacheIndex.passed` counts

    def examine_again(self) -> None:
        """Make the next claim examine all rows, even those that could not be evicted before."""
        self._index.correct_last_uses()
        self._index.passed, self._examined_s = FIRST, time.monotonic()

    @property
    def ceiling(self) -> int:
        """Number of bytes that the cache may use now: `limit`, or less on a nearly full disk."""
        return max(0, self._most())

    def usage(self) -> int:
        """Return the disk usage of the cache in bytes, plus the bytes granted for writing."""
        held = sum(entry.held for entry in self.entries)
        return self.idle + self._index.undeleted_bytes + self.leaving + held

    def allow(self, entry: CacheEntry, need: int, want: int) -> bool:
        """Grant `entry` between `need` and `want` bytes; return False if there is no space.

        Evicted files are removed before this method returns. Call this in a thread.
        """
        steps, granted = self._claim(need, want), None
        while granted is None:
            granted, victims = trio.from_thread.run_sync(self._grant, entry, need, steps)
            remove(victims)
        return granted > 0

    def _grant(self, entry: CacheEntry, need: int, steps: _Steps) -> tuple[int | None, list[Path]]:
        entry.recount()
        granted, victims = next(steps)
        if granted is not None:
            entry.grant(granted, need)
        return granted, victims

    async def claim(self, need: int, want: int) -> int:
        """Grant between `need` and `want` bytes, or 0 if there is no space; return the number.

        Evicted files are removed before this method returns, and other tasks run between two
        batches. The caller counts the granted bytes as used before its next checkpoint.
        """
        steps = self._claim(need, want)
        while True:
            granted, victims = next(steps)
            if granted is not None:
                return granted
            if victims:
                with trio.CancelScope(shield=True):
                    await trio.to_thread.run_sync(remove, victims)
            await trio.lowlevel.checkpoint()

    def claim_at_once(self, need: int) -> tuple[int, list[Path]]:
        """Grant `need` bytes, or 0 if there is no space, without running other tasks.

        Examines at most AT_ONCE batches of rows; the next claim continues after them. Returns the
        number of granted bytes and the evicted files. The caller counts the granted bytes as used,
        and removes the evicted files before it writes.
        """
        victims = list[Path]()
        for granted, more in islice(self._claim(need, need), AT_ONCE):
            if granted is not None:
                return granted, victims
            victims += more
        return 0, victims

    async def room(self) -> int:
        """Return how many bytes could be granted after the eviction of all evictable content.

        The result is negative if the usage would still exceed the limit. Nothing is evicted; other
        tasks run between two batches of rows.
        """
        self.examine_again()  # a claim for this room must find the same rows
        evictable, after = 0, FIRST
        while rows := self._index.oldest(_BATCH, after):
            busy = {entry.path.name for entry in self.entries}
            evictable += sum(row.taken for row in rows if self._is_evictable(row, busy))
            after = rows[-1].used_ns, rows[-1].name
            await trio.lowlevel.checkpoint()
        return self._most() - self.usage() + evictable

    def _is_evictable(self, row: Row, busy: set[str]) -> bool:
        """Return True if a row may be evicted; `busy` are the names of the files in use."""
        return row.ino not in self.pinned and row.name not in busy

    async def shrink(self, need: int = 0) -> None:
        """Evict rows until the usage is within the limit, and `need` bytes are free if possible.

        Other tasks run between two batches.
        """
        await self.claim(need, need)

    def _claim(self, need: int, want: int) -> _Steps:
        """Evict rows in steps, least recently used first, and grant the space that is free then.

        After each batch of rows, a step yields None and the evicted files, which the caller
        removes. The last step yields the number of granted bytes. Other operations may run between
        two steps. Rows are evicted until `need` bytes are free, or `want` bytes if one batch is
        enough. Content in the index is not evicted while the index cannot delete content, because
        the eviction would free no space.

        Rows that cannot be evicted are examined only once, until the pins change or EXAMINE_S
        seconds have passed. An entry in use gets a new place in the index when it is closed.
        """
        if time.monotonic() - self._examined_s >= EXAMINE_S:
            self.examine_again()
        self._index.delete(())  # rows that an earlier call could not delete
        # Computed once, because the disk space of evicted content becomes free later.
        most = self._most()
        epoch, after, size, evicted = self._index.epoch, self._index.passed, _BATCH, 0
        while self._index.epoch == epoch:
            wanted = 0 if need > self.limit else want if evicted < _BATCH else need
            missing = self.usage() + wanted - most
            if missing <= 0 or not (rows := self._index.oldest(_BATCH, after)):
                break
            busy = {entry.path.name for entry in self.entries}
            keeps_contents = self._index.undeleted_bytes > 0
            batch, last = list[Row](), after
            for row in rows:
                if missing <= 0 or len(batch) == size:
                    break
                last = row.used_ns, row.name
                if self._is_evictable(row, busy) and not (keeps_contents and row.in_index):
                    missing -= row.taken
                    batch.append(row)
            names, taken = [row.name for row in batch], sum(row.taken for row in batch)
            self.idle -= taken  # first: a restart of the index sets it to 0
            if size == 1:
                self._index.delete(names)
            elif names and not self._index.delete_batch(names) and self._index.epoch == epoch:
                self.idle += taken
                size = 1  # a full disk may still have space for a short transaction
                continue
            if self._index.passed == after and not keeps_contents:  # else examined again later
                self._index.passed = last
            after = last
            evicted += len(batch)
            yield None, [self._directory / row.name for row in batch if not row.in_index]
        free = most - self.usage()  # negative: the usage exceeds the limit
        granted = min(free, want) if free >= need else 0
        if need and not granted:
            self._say_full()
        yield granted, []

    def _say_full(self) -> None:
        # Do not warn again each time after a small file has found space.
        if time.monotonic() - self._said_s >= SAID_S:
            self._said_s = time.monotonic()
            log.warning("there is no room left to cache file content; reads continue uncached")

    def _most(self) -> int:
        promised = sum(entry.unused for entry in self.entries)
        return usable_bytes(self._directory, self.limit, self.usage(), promised)


def remove(paths: Iterable[Path]) -> None:
    """Delete files; do not raise OSError, but log one warning for all files that remain.

    EROFS and ENOTDIR are not logged, because they are reported elsewhere. The deletion of a large
    file blocks for a few milliseconds, so delete large amounts in a thread (as `Cache._discard`
    does).
    """
    failed: list[OSError] = []
    for path in paths:
        try:
            path.unlink(missing_ok=True)
        except OSError as wrong:
            if wrong.errno in (errno.EROFS, errno.ENOTDIR):
                continue  # such a disk, or a file instead of the folder, is reported elsewhere
            failed.append(wrong)
    if failed:
        log.warning("%d cached files cannot be removed (%s)", len(failed), failed[0])
