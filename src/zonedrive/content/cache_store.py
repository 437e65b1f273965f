"""Cache folder: content files that are not in use, their index and their disk usage.

The content of small files is stored in the index; see `small_contents`.

Knows nothing about readers or downloads.  Other programs may empty, fill or write-protect the
folder at any time, and its files may contain any data.

INVARIANT: `room.idle` is the disk usage of all rows except those of entries in use.

INVARIANT: a cache file without a row is removed at the next start; foreign files are kept.
"""

import errno
import hashlib
import logging
import re
import secrets
import time
from collections.abc import Iterable
from pathlib import Path

import trio

from zonedrive.content.cache_entry import CacheEntry
from zonedrive.content.cache_index import NAME, CacheIndex, Row
from zonedrive.content.codec import open_file
from zonedrive.content.quota import Quota, remove
from zonedrive.content.reflink import copy_file
from zonedrive.content.small_contents import LARGEST, SmallContents
from zonedrive.content.stream_buffer import StreamBuffers
from zonedrive.errors import StoreError
from zonedrive.paths import private_dir
from zonedrive.supervisor import Supervisor, Task

log = logging.getLogger(__name__)

_NAME = re.compile(r"\d+-[0-9a-f]{12}", re.ASCII)  # cache files; other files are kept
GATHER_S = 0.1  # small contents that come within this time are written together
_BIG = 8 << 20  # bytes that take milliseconds to free
_BOOT = Path("/proc/sys/kernel/random/boot_id")


class CacheStore:
    """Store of content files, by inode and revision."""

    def __init__(
        self,
        directory: Path,
        key: bytes | None,
        limit: int,
        identity: str,
        supervisor: Supervisor,
    ) -> None:
        """Prepare to use `directory`; `open` reads it."""
        self.directory = directory
        self.nursery: trio.Nursery | None = None  # to remove big files in threads
        self._supervisor = supervisor
        self._key = key
        self._complained = False
        self._facts: dict[str, str] = {}
        self.index = CacheIndex(directory / NAME, key, self._lost)
        self.room = Quota(directory, limit, self.index)
        self.small = SmallContents(self.index, self.room, key)
        self.windows = StreamBuffers()
        self._gathering = False
        self._identity = self.stamp(f"{identity}|{'' if key is None else 'sealed'}")

    def open(self) -> None:
        """Compare the folder with the index, and keep content of this identity and key only."""
        self.index.open()
        self._check()

    def stamp(self, text: str) -> str:
        """Return a keyed hash of a revision or validator, which may name people."""
        key = self._key or b""
        return hashlib.blake2b(text.encode(), digest_size=16, key=key).hexdigest()

    def failed(self, error: OSError) -> None:
        """Log an error of the disk, once and not for every read."""
        if not self._complained:
            log.warning("file content cannot be cached (%s); reads go on uncached", error)
        self._complained = True

    # -- entries

    def allow(self, entry: CacheEntry, need: int, want: int) -> bool:
        """See `Quota.allow`."""
        return self.room.allow(entry, need, want)

    def bring(self, ino: int, stamp: str, size: int) -> CacheEntry:
        """Return a new entry for a revision, with its stored bytes; drop other revisions."""
        self.small.drop(ino)
        rows = self.index.of(ino)
        row = next((row for row in rows if row.stamp == stamp and row.size == size), None)
        if row is not None and row.in_index:
            row = None  # a valid content would have been returned by `small`
        epoch = self.index.epoch
        self._drop_rows([other for other in rows if other is not row])
        path = self.directory / self._new_name(ino)
        entry = CacheEntry(ino, stamp, size, path, self._key, self.windows, self)
        if row is not None and self.index.epoch == epoch:
            self._revive(entry, row)
        self.room.entries.add(entry)
        return entry

    def _revive(self, entry: CacheEntry, row: Row) -> None:
        """Load the stored bytes of a row into `entry`."""
        path = self.directory / row.name
        try:
            file = open_file(path, self._key, row.manifest)
        except (FileNotFoundError, StoreError) as wrong:
            log.warning("cached content is lost and fetched again (%s)", wrong)
            self._drop_rows([row])
            return
        except OSError as wrong:  # no descriptor left, or the disk is in trouble
            self.failed(wrong)
            entry.without_disk()
            return
        if file.size != row.size or not self._is_bound(row.manifest):
            log.warning("cached content is not what it was and is fetched again (%s)", row.name)
            file.close()
            self._drop_rows([row])
            return
        present = row.present()
        for start, end in file.holes() if row.complete else ():
            present.remove(start, end)
        entry.path = path
        entry.validator = row.validator
        entry.adopt(file, present)
        entry.indexed = entry.complete
        entry.settle()
        self.room.idle -= row.taken

    def put(self, ino: int, stamp: str, data: bytes) -> bool:
        """Store the content of a small file, replacing other content of the inode.

        Returns False if the content is too large, or if the inode is in use.
        """
        if not 0 < len(data) <= LARGEST or self._in_use(ino):
            return False
        self.drop(ino)
        self.small.put(ino, stamp, data)
        if self.nursery is None or self.small.is_urgent:
            self.small.write(self._in_use)
        elif not self._gathering:
            self._gathering = True
            self.nursery.start_soon(self._supervisor.job, Task.SMALL_CONTENTS, self._gather)
        return True

    async def _gather(self) -> None:
        try:
            await trio.sleep(GATHER_S)
        finally:
            self._gathering = False
        self.small.write(self._in_use)
        if self.small.needs_checkpoint:
            await trio.to_thread.run_sync(self.small.checkpoint)

    def _in_use(self, ino: int) -> bool:
        return any(entry.ino == ino and not entry.doomed for entry in self.room.entries)

    def note(self, entry: CacheEntry) -> None:
        """Add a newly completed entry to the index at once, so that it survives a crash."""
        if entry.indexed or entry.doomed or not entry.complete or not entry.size:
            return
        entry.indexed = True
        if entry.flush() and entry.linked:
            entry.settle()
            self.index.put(_row(entry))

    def put_back(self, entry: CacheEntry) -> None:
        """Close an entry that has no users, and keep its bytes on the disk."""
        kept = entry.close()
        self.room.entries.discard(entry)
        if not entry.doomed:
            if kept and entry.on_disk and self.index.put(_row(entry)):
                self.room.idle += entry.held
                return
            self.index.delete([entry.path.name])
        self._discard([entry.path], entry.held)

    def doom(self, entry: CacheEntry) -> None:
        """Delete an entry's row and file name; its users continue with the open file."""
        entry.doomed = True
        self.index.delete([entry.path.name])
        self._discard([entry.path], 0)  # its bytes stay on the disk until it is closed

    def drop(self, ino: int) -> None:
        """Remove all content of an inode that is not in use."""
        self.small.drop(ino)
        self._drop_rows(self.index.of(ino))

    def _is_bound(self, manifest: bytes) -> bool:
        """Return True if old bytes in a file with this manifest would be detected."""
        return bool(manifest) or self._key is None

    async def take(
        self,
        path: Path,
        ino: int,
        revision: str,
        size: int,
        manifest: bytes,
        known: int | None = None,
    ) -> None:
        """Move a closed content file into the cache; `path` is always gone afterwards.

        `manifest` is the file's manifest; an encrypted file without a manifest is not accepted.
        `known` is the file's disk usage in bytes, if its content has just been read.
        """
        taken = self._adoptable(path, size, manifest, known)
        granted, victims = self.room.claim(taken, taken) if taken else (0, [])
        name = self._new_name(ino)
        target = self.directory / name
        self.room.leaving += granted  # until the row counts
        try:
            if victims:
                await trio.to_thread.run_sync(remove, victims)
            if granted and not _renamed(path, target):
                await trio.to_thread.run_sync(_copied, path, target)
        except OSError as wrong:
            self.failed(wrong)
            taken = 0
        finally:
            self.room.leaving -= granted
        row = Row(
            ino, self.stamp(revision), name, size, taken, True, b"", "", time.time_ns(), manifest
        )
        # The inode may have been opened during the copy; the open entry is then kept.
        self.small.drop(ino)
        if (
            granted
            and taken
            and not self._in_use(ino)
            and not self.index.of(ino)
            and self.index.put(row)
        ):
            self.room.idle += taken
            remove([path])
        else:
            remove([path, target])

    def _adoptable(self, path: Path, size: int, manifest: bytes, known: int | None) -> int:
        """Return the disk usage of `path` in bytes, or 0 if it cannot be a cache entry."""
        suffix = ".plain" if self._key is None else ".sealed"
        if path.suffix not in ("", suffix) or not self._is_bound(manifest):
            return 0
        if known is not None:
            return known
        try:
            file = open_file(path, self._key, manifest)
        except (OSError, StoreError):
            return 0
        try:
            return file.allocated if file.size == size else 0
        finally:
            file.close()

    def damaged(self, entry: CacheEntry) -> bool:
        """Mark an entry as incomplete; return True if the index no longer lists it as complete."""
        entry.indexed = False
        return entry.doomed or self.index.put(_row(entry))

    def _new_name(self, ino: int) -> str:
        # Never the name of an earlier file, because that file may still be removed in a thread.
        return f"{ino}-{secrets.token_hex(6)}"

    # -- removing

    def trim(self) -> None:
        """Evict content if the limit is lower or the disk fuller than before."""
        remove(self.room.excess())

    def _drop_rows(self, rows: Iterable[Row]) -> None:
        active = {entry.path.name for entry in self.room.entries}
        idle = [row for row in rows if row.name not in active]
        taken = sum(row.taken for row in idle)
        self.room.idle -= taken  # first: a restart of the index sets it to 0
        self.index.delete(row.name for row in idle)
        self._discard([self.directory / row.name for row in idle if not row.in_index], taken)

    def _discard(self, paths: list[Path], taken: int) -> None:
        """Remove files, in a thread if they are large."""
        if self.nursery is not None and taken > _BIG:
            self.room.leaving += taken
            self.nursery.start_soon(
                self._supervisor.job, Task.CACHE_REMOVAL, self._remove, paths, taken
            )
        else:
            remove(paths)

    async def _remove(self, paths: list[Path], taken: int) -> None:
        try:
            await trio.to_thread.run_sync(remove, paths)
        finally:
            self.room.leaving -= taken

    # -- the folder

    def _check(self) -> None:
        """Compare the index with the folder, the identity and the key; clear it on a mismatch."""
        identity = self._identity
        boot = _BOOT.read_text().strip()
        clean = self.index.fact("clean") == "1"
        if self.index.fact("identity") != identity:
            self.index.clear()
        elif not clean and self._key is None and self.index.fact("boot") != boot:
            # After a power cut plain files may have holes that nothing would detect.
            self.index.clear()
        rows = self.index.everything()
        files = [row for row in rows if not row.in_index]
        there = self._sweep({row.name for row in files})
        self.index.delete(row.name for row in files if row.name not in there)
        rows = [row for row in rows if row.in_index or row.name in there]
        if not clean:
            for row in rows:
                self._measure(row)
        self.room.idle = sum(row.taken for row in rows)
        self._facts = {"identity": identity, "boot": boot, "clean": "0"}
        self._write_facts()

    def _write_facts(self) -> None:
        """Write the facts that the next start checks."""
        for name, value in self._facts.items():
            self.index.note(name, value)

    def _measure(self, row: Row) -> None:
        """Correct a row's disk usage after a crash, because the file may have grown."""
        if row.in_index:
            return
        try:
            taken = (self.directory / row.name).stat().st_blocks * 512
        except OSError:
            return
        if taken != row.taken:
            row.taken = taken
            self.index.put(row)

    def _sweep(self, known: set[str]) -> set[str]:
        """Remove cache files that are not `known`; return the names of all files."""
        try:
            names = {path.name for path in self.directory.iterdir()}
        except OSError:
            return set()
        unknown = [name for name in names - known if _NAME.fullmatch(name)]
        remove(self.directory / name for name in unknown)
        return names

    def _lost(self) -> None:
        """Remove the files of lost rows, and count the usage again."""
        rows = self.index.everything()
        active = {entry.path.name for entry in self.room.entries}
        self.room.idle = sum(row.taken for row in rows if row.name not in active)
        self._sweep(active | {row.name for row in rows})
        self._write_facts()

    def close(self) -> None:
        """Write the waiting content items and close the index."""
        self.small.write(self._in_use)
        self.index.note("clean", "1")
        self.index.close()


def _row(entry: CacheEntry) -> Row:
    return Row(
        entry.ino,
        entry.stamp,
        entry.path.name,
        entry.size,
        entry.held,
        entry.complete,
        b"" if entry.complete else entry.on_disk.encode(),
        entry.validator,
        time.time_ns(),
        entry.manifest,
    )


def _copied(path: Path, target: Path) -> None:
    with path.open("rb") as source:
        copy_file(source.fileno(), target)


def _renamed(path: Path, target: Path) -> bool:
    """Rename a file; return False across file systems.  Raises OSError."""
    private_dir(target.parent)
    try:
        path.rename(target)
    except OSError as refused:
        if refused.errno != errno.EXDEV:
            raise
        return False
    return True
