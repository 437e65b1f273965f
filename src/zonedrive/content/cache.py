"""Disk cache of the service's file content, in one folder and within a size limit.

The caller passes an inode number, a revision, a size, and a `Source` from which missing bytes are
fetched. All cached content can be fetched again. The content of small files is stored in the SQLite
index of the cache (see `cache_index` and `small_contents`), the content of other files in files.

INVARIANT: the cache keeps at most one revision of an inode for later reads. Other revisions exist
only while a reader has them open.

INVARIANT: a problem with the cache folder never makes a read fail if the source can serve the read.
Other programs may delete, empty, fill or write-protect the folder at any time. The files in the
folder may contain any data.

INVARIANT: `Quota.idle` is the disk usage in bytes of all content that has a row in the index,
except the content of entries in use.

INVARIANT: a cache file without a row in the index is removed at the next start. Files of other
programs are kept.
"""

import errno
import hashlib
import logging
import os
import re
import secrets
import time
from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Self

import msgspec
import trio

from zonedrive.content.cache_entry import CacheEntry
from zonedrive.content.cache_index import NAME, CacheIndex, Row
from zonedrive.content.content_file import ContentFile, copy_file
from zonedrive.content.encrypted_file import create_file, open_file
from zonedrive.content.fetcher import Engine, Fetcher
from zonedrive.content.quota import Quota, remove
from zonedrive.content.read_buffers import MemoryBudget
from zonedrive.content.reader import EntryReader, Reader
from zonedrive.content.small_contents import LARGEST, SmallContents
from zonedrive.content.source import Source
from zonedrive.errors import StoreError, ZonedriveError
from zonedrive.paths import private_dir, sync_file_system
from zonedrive.supervisor import Supervisor, Task

log = logging.getLogger(__name__)

EXPECT_S = 5.0  # minimum seconds between two connections that are opened in advance
GATHER_S = 0.1  # seconds; small files that are added within this time are written together
SHRINK_S = 600.0  # seconds between two checks of the free space of the disk
SYNC_S = 5.0  # maximum seconds to flush unencrypted files at the end
_PIECE = 1 << 20
_BIG = 8 << 20  # bytes that take milliseconds to free
_NAME = re.compile(r"\d+-[0-9a-f]{12}", re.ASCII)  # names of cache files; other files are kept
_BOOT = Path("/proc/sys/kernel/random/boot_id")


class Cache:
    """Cache of file content, keyed by inode and revision."""

    def __init__(
        self,
        directory: Path,
        key: bytes | None,
        limit: int,
        *,
        identity: str = "",
        connections: int = 8,
        stall: float = 10.0,
        supervisor: Supervisor | None = None,
    ) -> None:
        """Create a cache in `directory` of at most `limit` bytes, encrypted under `key` if given.

        `identity` identifies the account that owns the inode numbers; `start` deletes content
        stored for another identity or under another key. At most `connections` downloads run at
        once. A read fails with TimedOut after `stall` seconds without a new byte.
        """
        self._directory = directory
        self._key = key
        self._supervisor = supervisor or Supervisor()
        self._engine = Engine(connections, stall, self._supervisor)
        self.fetched = self._engine.fetched
        self._active: dict[tuple[int, str], tuple[CacheEntry, Fetcher]] = {}
        self._closing = trio.Event()
        self._prepared_at = -EXPECT_S
        self._gathering = False
        self._disk_failed = False
        self._boot = _BOOT.read_text().strip()
        self._given = range(0)  # inode numbers that may be given again; see `drop_between`
        self._adding: set[str] = set()  # names of files that will have a row
        self._index = CacheIndex(directory / NAME, key, self._check, self._rows_lost)
        self.quota = Quota(directory, limit, self._index)
        self.allow = self.quota.allow
        self._small = SmallContents(self._index, self.quota, key)
        self._budget = MemoryBudget()
        self._identity = self.stamp(f"{identity}|{'' if key is None else 'sealed'}")

    def start(self) -> Self:
        """Open the index and return this cache.

        Deletes content that was stored for another account (`identity`) or under another key. Also
        deletes unencrypted content that a power cut may have damaged.
        """
        self._index.open()
        return self

    def stamp(self, text: str) -> str:
        """Return the hash that the index stores instead of `text`, a revision or validator.

        The hash hides file names that `text` may contain. The hash is keyed if the cache has a key.
        """
        key = self._key or b""
        return hashlib.blake2b(text.encode(), digest_size=16, key=key).hexdigest()

    # -- state

    def inos(self) -> list[int]:
        """Return the numbers of all inodes with content that is cached or waits to be written."""
        return list({*self._index.inos(), *self._small.inos()})

    @property
    def epoch(self) -> int:
        """Number that changes after cached content was lost; 0 while the index cannot be opened.

        All content is lost if the folder is emptied or the index is damaged. New content is also
        lost while a disk error prevents the opening of the index.
        """
        self._index.delete(())  # notices the loss
        return self._index.epoch if self._index.is_open else 0

    def drop_between(self, first: int, end: int) -> None:
        """Drop the content of all inodes with numbers in [first, end).

        New inodes will get these numbers. The cache may still have content of former inodes with
        these numbers, because the database lost rows or was restored from a backup.
        """
        for ino in self._index.inos(first, end):
            self.drop(ino)
        if not self._index.is_open:
            self._given = range(first, end)

    def is_complete(self, ino: int, revision: str) -> bool:
        """Return True if the revision's whole content is on the disk or waits to be written."""
        stamp = self.stamp(revision)
        if active := self._active.get((ino, stamp)):
            return active[0].is_kept
        if self._small.has(ino, stamp):
            return True
        row = self._index.row(ino, stamp)
        if row is None or not row.complete:
            return False
        # Programs that delete old files may have deleted this one alone. False after a disk error.
        return row.in_index or os.path.exists(self._directory / row.name)  # noqa: PTH110

    def _is_recorded(self, ino: int, revision: str) -> bool:
        """Return True if the whole content stays in the cache after its last reader is closed."""
        stamp = self.stamp(revision)
        row = self._index.row(ino, stamp)
        return self._small.has(ino, stamp) or (row is not None and row.complete)

    # -- reading

    def open(self, ino: int, revision: str, size: int, source: Source) -> Reader:
        """Return a reader of a revision of `size` bytes; the caller closes the reader.

        The reader fetches missing bytes from `source`. Content of other revisions of the inode is
        dropped.
        """
        stamp = self.stamp(revision)
        active = self._active.get((ino, stamp))
        if active is not None and active[0].size != size:
            self._unlink(active[0])
            active = None
        if active is None:
            self._unlink_all(ino)
            if (data := self._small.get(ino, stamp, size)) is not None:
                return Reader(data)
            entry = self._load(ino, stamp, size)
            fetcher = Fetcher(
                entry,
                source,
                self._engine,
                self.stamp,
                moved=lambda: self._bytes_came(entry),
                over=lambda: self._unlink(entry),
            )
            active = self._active[ino, stamp] = entry, fetcher
        entry, fetcher = active
        fetcher.source = source
        entry.users += 1
        return EntryReader(entry, fetcher, lambda: self._close(entry, fetcher))

    async def complete(self, ino: int, revision: str, size: int, source: Source) -> None:
        """Fetch all missing bytes of a revision and store them on the disk.

        Raises the errors of `Reader.read`, and OSError if not all bytes can be stored, or if the
        index cannot record them: ENOSPC if there is no space, else the errno of the disk error.
        """
        self._index.delete(())  # tries to open it again
        if size > LARGEST and not self._index.is_open:  # do not fetch what cannot be recorded
            raise OSError(self._index.failure, os.strerror(self._index.failure))
        with closing(self.open(ino, revision, size, source)) as reader:
            await reader.fill(again=True)
            if not reader.kept:
                raise OSError(reader.failure, os.strerror(reader.failure))
            # Content that is outdated already needs no row.
            active = self._active.get((ino, self.stamp(revision)))
            is_current = active is not None and active[0].size == size > 0
        if is_current and not self._is_recorded(ino, revision):
            raise OSError(self._index.failure, os.strerror(self._index.failure))

    async def export(
        self, ino: int, revision: str, size: int, source: Source, path: Path
    ) -> ContentFile:
        """Write a whole revision to a new content file at `path`, and return the open file.

        `path` must not exist. The cache need not have space for the revision. Raises the errors of
        `Reader.read` and OSError. On failure, no file is left behind at `path`.
        """
        with closing(self.open(ino, revision, size, source)) as reader:
            await reader.fill()
            stored = reader.file() if reader.kept else None
            if stored is not None:
                changes = stored.changes  # now, while no chunk is missing
                try:
                    return await trio.to_thread.run_sync(_copied_whole, stored, path, size, changes)
                except ZonedriveError:
                    pass  # damaged on the disk: fetched again in pieces
                finally:
                    stored.close()
            return await self._export(reader, path)

    async def is_same(
        self, ino: int, revision: str, size: int, source: Source, file: ContentFile
    ) -> bool:
        """Return True if a revision of `size` bytes has the same bytes as `file`.

        Raises the errors of `Reader.read` and `ContentFile.pread`.
        """
        with closing(self.open(ino, revision, size, source)) as reader:
            for offset in range(0, size, _PIECE):
                if await reader.read(offset, _PIECE) != file.pread(offset, _PIECE):
                    return False
                await trio.lowlevel.checkpoint()
        return file.size == size

    async def _export(self, reader: Reader, path: Path) -> ContentFile:
        file = create_file(path, self._key)
        try:
            for offset in range(0, reader.size, _PIECE):
                file.pwrite(offset, await reader.read(offset, _PIECE))
                await trio.lowlevel.checkpoint()
            file.flush()
        except BaseException:
            remove([path])
            with suppress(OSError):
                file.close()
            raise
        return file

    def expect(self, prepare: Callable[[], None]) -> None:
        """Start `prepare` in a thread, for example to open a connection before an expected read.

        `prepare` runs at most once every EXPECT_S seconds, and only if two or more download threads
        are free.
        """
        now, limiter, nursery = trio.current_time(), self._engine.limiter, self._engine.nursery
        is_free = limiter.available_tokens > 1
        if nursery is not None and is_free and now >= self._prepared_at + EXPECT_S:
            self._prepared_at = now
            run = partial(trio.to_thread.run_sync, prepare, limiter=limiter, abandon_on_cancel=True)
            nursery.start_soon(self._supervisor.job, Task.READY_CONNECTION, run)

    # -- changing

    def put(self, ino: int, revision: str, data: bytes) -> bool:
        """Store the whole content of a small file, replacing all other content of the inode.

        Return False and change nothing if `data` is empty or larger than LARGEST bytes, or if the
        inode is open for reading.
        """
        if not 0 < len(data) <= LARGEST or self._in_use(ino):
            return False
        self._drop_idle(ino)
        self._small.put(ino, self.stamp(revision), data)
        if self._engine.nursery is None or self._small.is_urgent:
            self._small.write(self._in_use)
        elif not self._gathering:
            self._gathering = True
            job = self._supervisor.job
            self._engine.nursery.start_soon(job, Task.SMALL_CONTENTS, self._gather)
        return True

    async def _gather(self) -> None:
        """Wait GATHER_S seconds, then write the small files added so far to the index."""
        try:
            await trio.sleep(GATHER_S)
            await self.quota.shrink(self._small.need)  # in steps, unlike `write`
        finally:
            self._gathering = False
        self._small.write(self._in_use)
        if self._small.needs_checkpoint:
            await trio.to_thread.run_sync(self._small.checkpoint)

    async def add_file(
        self,
        path: Path,
        ino: int,
        revision: str,
        size: int,
        manifest: bytes,
        known: int | None = None,
    ) -> None:
        """Move a closed content file into the cache, or delete the file if that is impossible.

        In both cases, `path` does not exist afterwards, and other content of the inode is dropped.
        The holes of the file are read as zeros. `manifest` is the file's manifest; an encrypted
        file without a manifest is not accepted. A caller that has just read the whole file passes
        the file's disk usage in bytes as `known`; the file is then not opened again to verify its
        header and its size.
        """
        self.drop(ino)
        taken = self._adoptable(path, size, manifest, known)
        if taken and not await self.quota.claim(taken, taken):
            taken = None
        granted = taken or 0
        name = self._new_name(ino)
        target = self._directory / name
        self.quota.leaving += granted  # until the row of the file counts
        self._adding.add(name)
        try:
            if taken is not None and not _renamed(path, target):
                await trio.to_thread.run_sync(_copied, path, target)
        except OSError as wrong:
            self.failed(wrong)
            taken = None
        finally:
            self.quota.leaving -= granted
        stamp, now_ns = self.stamp(revision), time.time_ns()
        row = Row(ino, stamp, name, size, granted, True, b"", "", now_ns, manifest)
        # The inode may have been opened during the copy; the open entry is then kept.
        self._small.drop(ino)
        is_free = not self._in_use(ino) and not self._index.rows_of(ino)
        is_kept = taken is not None and is_free and self._index.put(row)
        self._adding.discard(name)
        if is_kept:
            self.quota.idle += granted
            remove([path])
        else:
            remove([path, target])

    def _adoptable(self, path: Path, size: int, manifest: bytes, known: int | None) -> int | None:
        """Return the disk usage of a file in bytes, or None if the file cannot be a cache entry."""
        suffix = ".plain" if self._key is None else ".sealed"
        if path.suffix not in ("", suffix) or not self._is_bound(manifest):
            return None
        if known is not None:
            return known
        try:
            file = open_file(path, self._key, manifest)
        except (OSError, StoreError):
            return None
        with closing(file):
            return file.allocated if file.size == size else None

    def relabel(self, ino: int, former: str, revision: str, size: int, source: Source) -> None:
        """Record the cached content of the revision `former` as content of `revision`.

        The two revisions have the same bytes. Missing bytes are fetched from `source` from now on.
        """
        old, new = self.stamp(former), self.stamp(revision)
        if (active := self._active.pop((ino, old), None)) is not None:
            entry, fetcher = self._active[ino, new] = active
            entry.stamp, entry.validator, fetcher.source = new, "", source
        self._index.delete(())  # if the folder was emptied, its rows must not get into a new index
        for row in self._index.rows_of(ino):
            if row.stamp == old and not row.in_index:
                self._index.put(msgspec.structs.replace(row, stamp=new, validator=""))
        if (data := self._small.get(ino, old, size)) is not None:
            self.put(ino, revision, data)

    def drop(self, ino: int) -> None:
        """Drop all content of an inode; its open readers can continue to read."""
        self._unlink_all(ino)
        self._drop_idle(ino)

    # -- running

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Evict content down to the size limit, then run downloads until `aclose` is called.

        Every SHRINK_S seconds, evict content again: other programs may have filled the disk.
        """
        async with trio.open_nursery() as nursery:
            self._engine.nursery = nursery
            await self.quota.shrink()
            task_status.started()
            try:
                while not self._closing.is_set():
                    with trio.move_on_after(SHRINK_S) as waiting:
                        await self._closing.wait()
                    if waiting.cancelled_caught:
                        await self.quota.shrink()
            finally:
                self._engine.nursery = None
            nursery.cancel_scope.cancel()

    def make_room(self, size: int, folder: Path) -> None:
        """Evict content if the disk has no free space for `size` bytes in another folder.

        Does nothing if the folder is on another disk than the cache.
        """
        with suppress(OSError):
            if folder.stat().st_dev == self._directory.stat().st_dev:
                _, victims = self.quota.claim_at_once(min(size, self.quota.limit))
                remove(victims)

    def close_index(self) -> None:
        """Close the index of a cache that is not used yet, so that another process can open it."""
        self._index.close()

    async def aclose(self) -> None:
        """Stop all downloads, store the received bytes, and close the index.

        Waiting readers get StoreError.
        """
        self._engine.nursery = None
        for entry, fetcher in list(self._active.values()):
            fetcher.stop(StoreError("the cache is closed"))
            self._release(entry)
        for entry in list(self.quota.entries):
            self._release(entry)
        self._small.write(self._in_use)
        if self._key is not None or await self._is_synced():
            self._index.set_fact("clean", "1")
        self._index.close()
        self._closing.set()
        with trio.move_on_after(1):  # the threads check their flags between two chunks
            while self._engine.limiter.borrowed_tokens:  # noqa: ASYNC110
                await trio.sleep(0.005)

    async def _is_synced(self) -> bool:
        """Flush the cache's files to the disk; return False if that fails or takes too long."""
        with trio.move_on_after(SYNC_S, shield=True):
            try:
                await trio.to_thread.run_sync(
                    sync_file_system, self._directory, abandon_on_cancel=True
                )
            except OSError:
                return False
            return True
        return False

    # -- called by entries

    def failed(self, error: OSError) -> None:
        """Log the first disk error; ignore later disk errors."""
        if not self._disk_failed:
            log.warning("file content cannot be cached (%s); reads continue uncached", error)
        self._disk_failed = True

    def damaged(self, entry: CacheEntry) -> bool:
        """Record in the index that an entry is incomplete, because some of its bytes are damaged.

        Return False if the index may still list the entry as complete.
        """
        entry.indexed = False
        if entry.unlinked:
            return True
        # Otherwise `put` could replace the row of an unopenable file, which would then stay.
        rows = self._index.rows_of(entry.ino)
        self._drop_rows([row for row in rows if row.name != entry.path.name])
        return self._index.put(_row(entry))

    # -- entries

    def _load(self, ino: int, stamp: str, size: int) -> CacheEntry:
        """Return a new entry for a revision, with the bytes of the revision that are on the disk.

        Rows of other revisions of the inode are dropped.
        """
        self._small.drop(ino)
        rows = self._index.rows_of(ino)
        row = next((row for row in rows if row.stamp == stamp and row.size == size), None)
        if row is not None and row.in_index:
            row = None  # valid content would have been returned by `SmallContents.get`
        epoch = self._index.epoch
        self._drop_rows([other for other in rows if other is not row])
        path = self._directory / self._new_name(ino)
        entry = CacheEntry(ino, stamp, size, path, self._key, self._budget, self)
        if row is not None and self._index.epoch == epoch:
            self._revive(entry, row)
        self.quota.entries.add(entry)
        return entry

    def _revive(self, entry: CacheEntry, row: Row) -> None:
        """Make `entry` use the file of `row`; drop the row if the file is missing or damaged."""
        path = self._directory / row.name
        try:
            file = open_file(path, self._key, row.manifest)
        except (FileNotFoundError, StoreError) as wrong:
            log.warning("cached content is missing or damaged and is fetched again (%s)", wrong)
            self._drop_rows([row])
            return
        except OSError as wrong:  # no descriptor left, or a disk error
            entry.without_disk(wrong)
            return
        if file.size != row.size or not self._is_bound(row.manifest):
            log.warning(
                "cached content differs from its record and is fetched again (%s)", row.name
            )
            file.close()
            self._drop_rows([row])
            return
        present = row.present()
        for start, end in () if row.complete else file.holes():
            present.remove(start, end)
        entry.path = path
        entry.validator = row.validator
        entry.adopt(file, present)
        entry.indexed = entry.complete
        entry.recount()
        self.quota.idle -= row.taken

    def _is_bound(self, manifest: bytes) -> bool:
        """Return True if `manifest` is not empty, or if the cache has no key.

        Without a manifest, a replacement of encrypted bytes by older bytes would go undetected.
        """
        return bool(manifest) or self._key is None

    def _in_use(self, ino: int) -> bool:
        return any(entry.ino == ino and not entry.unlinked for entry in self.quota.entries)

    def _new_name(self, ino: int) -> str:
        # Never the name of an earlier file, because that file may still be removed in a thread.
        return f"{ino}-{secrets.token_hex(6)}"

    def _bytes_came(self, entry: CacheEntry) -> None:
        """Record an entry in the index as soon as it is complete, so that it survives a crash."""
        if not (entry.indexed or entry.unlinked) and entry.complete and entry.size:
            entry.indexed = True
            if entry.flush() and entry.linked:
                entry.recount()
                self._index.put(_row(entry))

    def _close(self, entry: CacheEntry, fetcher: Fetcher) -> None:
        entry.users -= 1
        if entry.users == 0:
            fetcher.stop(StoreError("the file was closed"))
            self._release(entry)

    def _release(self, entry: CacheEntry) -> None:
        """Close an entry; delete its file if the entry is unlinked or cannot be indexed."""
        if entry not in self.quota.entries:
            return
        if not entry.unlinked:
            del self._active[entry.ino, entry.stamp]
        kept = entry.close()
        if not entry.unlinked:
            # Still in `entries`: a restart of the index removes all files that are not known.
            if kept and entry.on_disk and (row := self._recorded(_row(entry))) is not None:
                self.quota.entries.discard(entry)
                self.quota.idle += row.taken
                return
            self._index.delete([entry.path.name])
        self.quota.entries.discard(entry)
        self._discard([entry.path], entry.held)

    def _recorded(self, row: Row) -> Row | None:
        """Store `row`; return the row with which the index now describes the same bytes, or None.

        If `row` cannot be stored, for example on a full disk, the revision's earlier row stays in
        the index. The earlier row is returned if it describes the same bytes as `row`.
        """
        if self._index.put(row):
            return row
        known = self._index.row(row.ino, row.stamp)
        return known if known is not None and known.describes_same_bytes(row) else None

    def _unlink(self, entry: CacheEntry) -> None:
        """Remove an entry's row and file name; its readers continue with the open file."""
        if not entry.unlinked:
            self._active.pop((entry.ino, entry.stamp), None)
            entry.unlinked = True
            self._index.delete([entry.path.name])
            remove([entry.path])  # the bytes stay on the disk until the entry is closed

    def _unlink_all(self, ino: int) -> None:
        for entry, _ in list(self._active.values()):
            if entry.ino == ino:
                self._unlink(entry)

    # -- removing content that is not in use

    def _drop_idle(self, ino: int) -> None:
        """Remove the content of an inode, except the content of entries in use."""
        self._small.drop(ino)
        self._drop_rows(self._index.rows_of(ino))

    def _drop_rows(self, rows: Iterable[Row]) -> None:
        active = {entry.path.name for entry in self.quota.entries}
        idle = [row for row in rows if row.name not in active]
        taken = sum(row.taken for row in idle)
        self.quota.idle -= taken  # first: a restart of the index sets it to 0
        self._index.delete(row.name for row in idle)
        self._discard([self._directory / row.name for row in idle if not row.in_index], taken)

    def _discard(self, paths: list[Path], taken: int) -> None:
        """Delete the files `paths`; if their total size `taken` is large, do so in a thread."""
        nursery = self._engine.nursery
        if nursery is not None and taken > _BIG:
            self.quota.leaving += taken
            nursery.start_soon(self._supervisor.job, Task.CACHE_REMOVAL, self._remove, paths, taken)
        else:
            remove(paths)

    async def _remove(self, paths: list[Path], taken: int) -> None:
        try:
            await trio.to_thread.run_sync(remove, paths)
        finally:
            self.quota.leaving -= taken

    # -- the folder

    def _check(self) -> None:
        """Make the rows of an index that was just opened consistent with the cache files.

        First clear the index if it belongs to another identity or key, or if a power cut may have
        damaged unencrypted files. If the index cannot be written, do not use it yet. Then remove
        files without rows and rows without files, and set `Quota.idle`. If a disk error has delayed
        the opening, also remove outdated rows. A row is outdated if its inode is in use or has
        newer content, or if the inode's number was passed to `drop_between` meanwhile.
        """
        identity, boot = self._identity, self._boot
        clean = self._index.fact("clean") == "1"
        # After a power cut, unencrypted files may have holes that nothing would detect.
        is_lost = not clean and self._key is None and self._index.fact("boot") != boot
        if is_lost or self._index.fact("identity") != identity:
            self._index.clear()
        if not self._index.is_open:
            return
        epoch = self._index.epoch
        # The next start checks these facts; without them, it would not notice a power cut.
        facts = (("identity", identity), ("boot", boot), ("clean", "0"))
        if not all(self._index.set_fact(name, value) for name, value in facts):
            if self._index.epoch == epoch:
                self._index.suspend()
            return
        files, kept, gone, idle = self._files(), set[str](), list[str](), 0
        active = {entry.path.name for entry in self.quota.entries}
        newer = {entry.ino for entry in self.quota.entries}.union(self._small.inos())
        given, self._given = self._given, range(0)
        for row in self._index.all_rows():
            if row.name in active:
                continue
            is_new = row.ino in newer or row.ino in given
            if is_new or not (row.in_index or files is None or row.name in files):
                gone.append(row.name)
                continue
            if not row.in_index:
                kept.add(row.name)
                if not clean:
                    self._measure(row)
            idle += row.taken
        if self._index.epoch != epoch:
            return  # damaged: another call has checked the new index
        self._sweep((files or set()) - kept)
        self._index.delete(gone)
        self.quota.idle = idle

    def _measure(self, row: Row) -> None:
        """Correct a row's disk usage after a crash, because the row's file may have grown."""
        try:
            taken = (self._directory / row.name).stat().st_blocks * 512
        except OSError:
            return
        if taken != row.taken:
            row.taken = taken
            self._index.put(row)

    def _files(self) -> set[str] | None:
        """Return the names of all files in the cache folder, or None if it cannot be read."""
        try:
            return {path.name for path in self._directory.iterdir()}
        except OSError:
            return None

    def _sweep(self, names: set[str]) -> None:
        """Remove the cache files among `names` that are neither in use nor being added."""
        names -= self._adding.union(entry.path.name for entry in self.quota.entries)
        remove(self._directory / name for name in names if _NAME.fullmatch(name))

    def _rows_lost(self) -> None:
        """Remove files whose index rows were lost, and compute `Quota.idle` again."""
        epoch, files, idle = self._index.epoch, self._files() or set(), 0
        active = {entry.path.name for entry in self.quota.entries}
        for row in self._index.all_rows():
            files.discard(row.name)
            idle += 0 if row.name in active else row.taken
        if self._index.epoch == epoch:  # else checked by another call
            self.quota.idle = idle
            self._sweep(files)


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


def _copied_whole(stored: ContentFile, path: Path, size: int, changes: int) -> ContentFile:
    """Copy a cached file of `size` bytes to `path`, and verify the whole copy.

    The copy is verified now, because damaged bytes could not be fetched again after a program has
    written to the copy. `changes` is the number of changes of `stored` when it was complete: a
    reader that finds a damaged chunk removes it, and the copy would have zeros there. Call this in
    a thread of trio, whose task can be cancelled. Raises OSError, and StoreError if the copy is
    damaged. On failure, no file is left behind at `path`.
    """
    copy = stored.copy_to(path, trio.from_thread.check_cancelled)
    try:
        if copy.size != size:
            raise StoreError(f"another program has cut {stored.path.name}")
        if stored.changes != changes:
            raise StoreError(f"{stored.path.name} was written to while it was copied")
        copy.verify(trio.from_thread.check_cancelled)
    except BaseException:
        remove([path])
        copy.close()
        raise
    return copy


def _copied(path: Path, target: Path) -> None:
    with path.open("rb") as source:
        copy_file(source.fileno(), target)


def _renamed(path: Path, target: Path) -> bool:
    """Rename `path` to `target`; return False if the file systems differ. Raises OSError."""
    private_dir(target.parent)
    try:
        path.rename(target)
    except OSError as refused:
        if refused.errno != errno.EXDEV:
            raise
        return False
    return True
