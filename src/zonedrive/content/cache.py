"""Cache: content of files on the service, within a size limit.

Knows nothing about the service, names or folders.  The caller passes an inode number, a revision, a
size and a Source for missing bytes.  All cached content can be fetched again.

INVARIANT: only one revision of an inode can be opened at a time; older revisions exist only while a
reader has them open.

INVARIANT: no problem with the cache folder (deleted, full, read-only, damaged) makes a read fail
that the source can serve.
"""

import contextlib
import errno
import os
from collections.abc import Callable, Container
from pathlib import Path
from typing import Self

import trio

from zonedrive import memory
from zonedrive.content.cache_entry import CacheEntry
from zonedrive.content.cache_store import CacheStore
from zonedrive.content.codec import create_file
from zonedrive.content.content_file import ContentFile
from zonedrive.content.fetcher import Engine, Fetcher
from zonedrive.content.quota import remove
from zonedrive.content.reader import EntryReader, MemoryReader, Reader
from zonedrive.content.source import Source
from zonedrive.errors import StoreError, ZonedriveError
from zonedrive.supervisor import Supervisor, Task

_PIECE = 1 << 20
EXPECT_S = 5.0
IDLE_S = 5.0  # memory of a reader that is idle for this time, or up to twice as long, is freed


class Cache:
    """Cached content, by inode and revision."""

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
        """Use `directory` for at most `limit` bytes, encrypted under `key` if given.

        `identity` names the owner of the inode numbers: a cache of another owner, or under another
        key, is emptied.  At most `connections` downloads run at once; a download without progress
        for `stall` seconds is cancelled.
        """
        self._key = key
        self._engine = Engine(connections, stall, supervisor)
        self.fetched = self._engine.fetched
        self._keep, self._job = self._engine.supervisor.keep, self._engine.supervisor.job
        self._active: dict[tuple[int, str], tuple[CacheEntry, Fetcher]] = {}
        self._closing = trio.Event()
        self._prepared = -EXPECT_S
        self._tending = False
        self._shelf = CacheStore(directory, key, limit, identity, self._engine.supervisor)

    def start(self) -> Self:
        """Open the folder and load the content of an earlier daemon."""
        self._shelf.open()
        return self

    # -- what there is

    @property
    def limit(self) -> int:
        """Maximum number of bytes on the disk."""
        return self._shelf.room.limit

    @limit.setter
    def limit(self, limit: int) -> None:
        self._shelf.room.limit = limit
        self._shelf.trim()

    @property
    def ceiling(self) -> int:
        """Limit in force, which is lower than `limit` if the disk is nearly full."""
        return self._shelf.room.ceiling

    @property
    def pinned(self) -> Container[int]:
        """Inodes that are never evicted; the caller manages and stores them."""
        return self._shelf.room.pinned

    @pinned.setter
    def pinned(self, inos: Container[int]) -> None:
        self._shelf.room.pinned = inos

    def usage(self) -> int:
        """Return the bytes that the cache takes on the disk."""
        return self._shelf.room.usage()

    def is_complete(self, ino: int, revision: str) -> bool:
        """Return True if the whole revision is on the disk."""
        stamp = self._shelf.stamp(revision)
        if active := self._active.get((ino, stamp)):
            return active[0].is_kept
        if self._shelf.small.has(ino, stamp):
            return True
        row = self._shelf.index.find(ino, stamp)
        return row is not None and row.complete

    ready = is_complete

    # -- reading

    def open(self, ino: int, revision: str, size: int, source: Source) -> Reader:
        """Return a reader for a revision of `size` bytes; missing bytes are fetched from `source`.

        Entries of other revisions of the inode are dropped.
        """
        stamp = self._shelf.stamp(revision)
        active = self._active.get((ino, stamp))
        if active is not None and active[0].size != size:
            self._doom(active[0])
            active = None
        if active is None:
            self._doom_all(ino)
            if (data := self._shelf.small.get(ino, stamp, size)) is not None:
                return MemoryReader(data)
            entry = self._shelf.bring(ino, stamp, size)
            fetcher = Fetcher(
                entry,
                source,
                self._engine,
                self._shelf.stamp,
                moved=lambda: self._moved(entry),
                over=lambda: self._doom(entry),
            )
            active = self._active[ino, stamp] = entry, fetcher
        entry, fetcher = active
        fetcher.source = source
        entry.users += 1
        return EntryReader(entry, fetcher, lambda _reader: self._close(entry, fetcher))

    async def complete(self, ino: int, revision: str, size: int, source: Source) -> None:
        """Fetch all missing bytes.

        Raises the errors of `Reader.read`, and OSError (ENOSPC) if not all bytes can be stored.
        """
        reader = self.open(ino, revision, size, source)
        try:
            await reader.fill()
            if not reader.kept:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        finally:
            reader.close()

    async def export(
        self, ino: int, revision: str, size: int, source: Source, path: Path
    ) -> ContentFile:
        """Write a whole revision to a new content file at `path`, which must not exist.

        Works even if the cache has no space for the revision.  Raises the errors of `Reader.read`
        and OSError; then no file is left at `path`.
        """
        reader = self.open(ino, revision, size, source)
        try:
            await reader.fill()
            stored = reader.file() if reader.kept else None
            if stored is not None:
                try:
                    return await trio.to_thread.run_sync(stored.copy_to, path)
                except ZonedriveError:  # damaged on the disk: fetched again in pieces
                    remove([path])
                finally:
                    stored.close()
            return await self._export(reader, path)
        finally:
            reader.close()

    async def _export(self, reader: Reader, path: Path) -> ContentFile:
        file = create_file(path, self._key)
        try:
            for offset in range(0, reader.size, _PIECE):
                file.pwrite(offset, await reader.read(offset, _PIECE))
            file.flush()
        except BaseException:
            remove([path])
            with contextlib.suppress(OSError):
                file.close()
            raise
        return file

    def expect(self, prepare: Callable[[], None]) -> None:
        """Run `prepare` in a thread if a read is likely soon, at most every EXPECT_S seconds."""
        now, engine = trio.current_time(), self._engine
        free = engine.limiter.available_tokens > 1
        if engine.nursery is not None and free and now >= self._prepared + EXPECT_S:
            self._prepared = now
            engine.nursery.start_soon(self._job, Task.READY_CONNECTION, self._prepare, prepare)

    async def _prepare(self, prepare: Callable[[], None]) -> None:
        limiter = self._engine.limiter
        await trio.to_thread.run_sync(prepare, limiter=limiter, abandon_on_cancel=True)

    # -- changing

    async def take(
        self,
        path: Path,
        ino: int,
        revision: str,
        size: int,
        manifest: bytes,
        taken: int | None = None,
    ) -> None:
        """Add a closed content file as this revision; `path` is always gone afterwards.

        `manifest`: see `ContentFile.manifest`.  `taken` is the number of bytes on the disk, if the
        caller has just read the whole file.
        """
        self.drop(ino)
        await self._shelf.take(path, ino, revision, size, manifest, taken)

    def put(self, ino: int, revision: str, data: bytes) -> bool:
        """Store a small revision, replacing other revisions of the inode.

        Returns False if it is too large, or if the inode is being read.
        """
        return self._shelf.put(ino, self._shelf.stamp(revision), data)

    def inos(self) -> list[int]:
        """Return all inodes with content on the disk or waiting to be written."""
        return list({*self._shelf.index.inos(), *self._shelf.small.inos()})

    def drop(self, ino: int) -> None:
        """Drop all content of an inode; open readers can continue."""
        self._doom_all(ino)
        self._shelf.drop(ino)

    # -- running

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run the downloads until `aclose`."""
        async with trio.open_nursery() as nursery:
            self._engine.nursery = self._shelf.nursery = nursery
            if victims := self._shelf.room.excess():
                await trio.to_thread.run_sync(remove, victims)
            task_status.started()
            try:
                await self._closing.wait()
            finally:
                self._engine.nursery = self._shelf.nursery = None
            nursery.cancel_scope.cancel()

    async def aclose(self) -> None:
        """Stop all downloads and keep the received bytes; waiting readers get StoreError."""
        self._engine.nursery = self._shelf.nursery = None
        for entry, fetcher in list(self._active.values()):
            fetcher.stop(StoreError("the cache is closed"))
            self._release(entry)
        for entry in list(self._shelf.room.entries):
            self._release(entry)
        self._shelf.close()
        self._closing.set()
        with trio.move_on_after(1):  # the threads look at their flags between two chunks
            while self._engine.limiter.borrowed_tokens:  # noqa: ASYNC110
                await trio.sleep(0.005)

    close = aclose

    # -- entries

    def _moved(self, entry: CacheEntry) -> None:
        """Update the index and start to free idle memory after bytes were received."""
        self._shelf.note(entry)
        if entry.streaming and not self._tending and self._engine.nursery is not None:
            self._tending = True
            self._engine.nursery.start_soon(self._keep, Task.IDLE_MEMORY, self._tend)

    async def _tend(self) -> None:
        """Free idle memory while content that cannot be stored is in memory."""
        windows = self._shelf.windows
        while windows.held:
            await trio.sleep(IDLE_S)
            windows.rest()
            await trio.to_thread.run_sync(memory.give_back)
        self._tending = False

    def _close(self, entry: CacheEntry, fetcher: Fetcher) -> None:
        entry.users -= 1
        if entry.users == 0:
            fetcher.stop(StoreError("the file was closed"))
            self._release(entry)

    def _release(self, entry: CacheEntry) -> None:
        """Close an entry that has no users, or that must not be used any more."""
        if entry in self._shelf.room.entries:
            if not entry.doomed:
                del self._active[entry.ino, entry.stamp]
            self._shelf.put_back(entry)

    def _doom(self, entry: CacheEntry) -> None:
        """Remove an entry from the cache; its readers continue with the open file."""
        if not entry.doomed:
            self._active.pop((entry.ino, entry.stamp), None)
            self._shelf.doom(entry)

    def _doom_all(self, ino: int) -> None:
        for entry, _ in list(self._active.values()):
            if entry.ino == ino:
                self._doom(entry)
