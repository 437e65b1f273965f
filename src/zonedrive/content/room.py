"""The room that cached bytes may take: the limit, the disk's reserve, and who has to go.

Must not know downloads or readers.  `allow` is called in threads, the rest on the loop.

INVARIANT: what is allowed never takes usage beyond `limit`, nor the disk's free space below
RESERVE of its size; files that make room are removed before the new bytes are written.
INVARIANT: an entry in use, and a pinned inode, is never evicted.
"""

import contextlib
import errno
import logging
import os
import time
from collections.abc import Container, Iterable
from pathlib import Path

import trio

from zonedrive.content.entry import Entry
from zonedrive.content.index import Index, Row

log = logging.getLogger(__name__)

RESERVE = 0.05
SAID_S = 3600.0
_BATCH = 64


def most(directory: Path, limit: int, used: int, promised: int = 0) -> int:
    """Up to how many bytes may be used there, as full as the disk is.

    Negative where others took so much that all of them have to go.  `promised` bytes are counted
    as used and are not written yet.
    """
    disk = None
    for folder in (directory, *directory.parents):  # it may not be made yet
        with contextlib.suppress(OSError):
            disk = os.statvfs(folder)
            break
    if disk is None:
        return limit
    free = disk.f_bavail * disk.f_frsize - int(disk.f_blocks * disk.f_frsize * RESERVE)
    return min(limit, used + free - promised)


class Room:
    """Keeps count of the cache's bytes on the disk."""

    def __init__(self, directory: Path, limit: int, index: Index) -> None:
        """Nothing is stored yet; `idle` is to be set to what the index lists."""
        self.limit = limit
        self.pinned: Container[int] = ()
        self.idle = 0  # bytes of entries that nobody uses
        self.leaving = 0  # bytes of files that are about to be removed
        self.entries: set[Entry] = set()  # in use
        self._directory = directory
        self._index = index
        self._said_s = -SAID_S  # when it was last said that there is no room

    @property
    def ceiling(self) -> int:
        """Bytes that may be taken as the disk is now: `limit`, or what the disk leaves of it."""
        return max(0, self._most())

    def usage(self) -> int:
        """Bytes on the disk, and bytes allowed to be written there."""
        return self.idle + self.leaving + sum(entry.held for entry in self.entries)

    def allow(self, entry: Entry, need: int, want: int) -> bool:
        """In a thread: let `entry` write `need` bytes now, and up to `want` altogether."""
        granted, victims = trio.from_thread.run_sync(self._grant, entry, need, want)
        remove(victims)
        return granted

    def _grant(self, entry: Entry, need: int, want: int) -> tuple[bool, list[Path]]:
        entry.settle()
        granted, victims = self.claim(need, want)
        entry.permit(granted, need)
        return granted > 0, victims

    def claim(self, need: int, want: int) -> tuple[int, list[Path]]:
        """Make room: how many bytes there is room for, and the files to be removed first."""
        victims: list[Path] = []
        free = self._free()
        if need <= self.limit and free < want:
            for row in self._candidates():
                if not row.in_index:
                    victims.append(self._directory / row.name)
                free += row.taken
                if free >= want:
                    break
        granted = want if free >= want else free if free >= need else 0
        if not granted:
            self._say_full()
        return granted, victims

    def _say_full(self) -> None:
        # Not again each time that a small file found room in between.
        if time.monotonic() - self._said_s >= SAID_S:
            self._said_s = time.monotonic()
            log.warning("there is no room left to cache file content; reads go on uncached")

    def excess(self) -> list[Path]:
        """Files to be removed because the limit is lower now, or the disk fuller."""
        victims: list[Path] = []
        free = self._free()
        if free < 0:
            for row in self._candidates():
                if not row.in_index:
                    victims.append(self._directory / row.name)
                free += row.taken
                if free >= 0:
                    break
        return victims

    def _free(self) -> int:
        """Bytes that may still be allowed; negative where there are too many already."""
        return self._most() - self.usage()

    def _most(self) -> int:
        promised = sum(entry.unused for entry in self.entries)
        return most(self._directory, self.limit, self.usage(), promised)

    def _candidates(self) -> Iterable[Row]:
        """Rows to evict, longest unused first; each one is out of the index when it comes."""
        after = (-1, "")
        busy = {entry.path.name for entry in self.entries}
        epoch = self._index.epoch
        while rows := self._index.oldest(_BATCH, after):
            for row in rows:
                if self._index.epoch != epoch:
                    return
                after = (row.used_ns, row.name)
                if row.ino not in self.pinned and row.name not in busy:
                    self.idle -= row.taken  # first: an index that is begun anew sets it to 0
                    self._index.delete([row.name])
                    yield row


def remove(paths: Iterable[Path]) -> None:
    """Remove files that no index lists any more; takes milliseconds for big ones."""
    failed: list[OSError] = []
    for path in paths:
        try:
            path.unlink(missing_ok=True)
        except OSError as wrong:
            if wrong.errno == errno.EROFS:
                continue  # no longer ours to free; that nothing can be written is said elsewhere
            failed.append(wrong)
    if failed:
        log.warning("%d cached files cannot be removed (%s)", len(failed), failed[0])
