"""The cache: content of files on the service, kept as far as the room for it goes.

Must not know the service, names or folders: an inode number, a revision and a size are all it
is told, and a Source to get missing bytes from.  Everything in it can be fetched again.

INVARIANT: for one inode at most one revision can be opened; older ones live on only with those
who have them open.
INVARIANT: nothing that happens to the folder (deleted, full, read-only, damaged) makes a read
fail that the source can serve.
"""

import contextlib
import errno
import hashlib
import logging
import os
import re
import secrets
import time
from pathlib import Path

import trio

from zonedrive.content.codec import create_file, open_file
from zonedrive.content.copying import copy_file
from zonedrive.content.entry import Entry
from zonedrive.content.fetch import Engine, Fetcher
from zonedrive.content.file import ContentFile
from zonedrive.content.index import Index, Row
from zonedrive.content.ranges import Ranges
from zonedrive.content.reader import Reader
from zonedrive.content.room import Room, remove
from zonedrive.content.source import Source
from zonedrive.errors import StoreError, ZonedriveError
from zonedrive.paths import private_dir

log = logging.getLogger(__name__)

_NAME = re.compile(r"\d+-[0-9a-f]{12}", re.ASCII)  # of our files; others are left alone
_PIECE = 1 << 20
_BIG = 8 << 20  # bytes that take milliseconds to free


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
        stall: float = 20.0,
    ) -> None:
        """Use `directory`, sealed under `key` where there is one, for at most `limit` bytes.

        `identity` names what the inode numbers belong to: a cache filled for another one, or
        under another key, is emptied.  At most `connections` downloads run at once; one that
        brings nothing for `stall` seconds is given up.  Must be made inside trio.
        """
        self.directory = directory
        self._key = key
        self._engine = Engine(connections, stall)
        self._active: dict[tuple[int, str], tuple[Entry, Fetcher]] = {}
        self._complained = False
        self._facts: dict[str, str] = {}
        self._closing = trio.Event()
        self._index = Index(directory / "index.db", self._lost)
        self._room = Room(directory, limit, self._index)
        self._check(identity)

    # -- what there is

    @property
    def limit(self) -> int:
        """Most bytes on the disk."""
        return self._room.limit

    @limit.setter
    def limit(self, limit: int) -> None:
        self._room.limit = limit
        remove(self._room.excess())

    @property
    def pinned(self) -> set[int]:
        """Inodes that are never evicted; the caller's to fill and to remember."""
        return self._room.pinned

    def usage(self) -> int:
        """Bytes that the cache takes on the disk."""
        return self._room.usage()

    def is_complete(self, ino: int, revision: str) -> bool:
        """Whether all of this revision is on the disk."""
        stamp = self._stamp(revision)
        if active := self._active.get((ino, stamp)):
            return active[0].complete
        row = self._index.find(ino, stamp)
        return row is not None and row.complete

    ready = is_complete

    # -- reading

    def open(self, ino: int, revision: str, size: int, source: Source) -> Reader:
        """Read a revision of `size` bytes; what is missing comes from `source`.

        Entries of other revisions of the inode are dropped.
        """
        stamp = self._stamp(revision)
        active = self._active.get((ino, stamp))
        if active is not None and active[0].size != size:
            self._doom(active[0])
            active = None
        if active is None:
            entry = self._entry(ino, stamp, size)
            fetcher = Fetcher(entry, source, self._engine, self._stamp)
            fetcher.moved = lambda: self._moved(entry)
            fetcher.over = lambda: self._doom(entry)
            active = self._active[ino, stamp] = entry, fetcher
            self._room.entries.add(entry)
        entry, fetcher = active
        fetcher.source = source
        entry.users += 1
        reader = Reader(entry, fetcher, lambda _reader: self._close(entry, fetcher))
        reader.background = self._in_background
        return reader

    async def complete(self, ino: int, revision: str, size: int, source: Source) -> None:
        """Fetch everything that is missing.

        Raises what `Reader.read` raises, and OSError (ENOSPC) where it cannot all be kept.
        """
        reader = self.open(ino, revision, size, source)
        try:
            await reader.fill()
            if not reader.kept:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        finally:
            reader.close()

    def prefetch(self, ino: int, revision: str, size: int, source: Source) -> None:
        """Fetch everything in the background; what goes wrong shows at the next read."""
        if not self.is_complete(ino, revision):
            reader = self.open(ino, revision, size, source)
            self._in_background(reader, close=True)

    async def export(
        self, ino: int, revision: str, size: int, source: Source, path: Path
    ) -> ContentFile:
        """All of a revision as a file of its own at `path`, which must not exist.

        Works also where the cache has no room for it.  Raises what `Reader.read` raises and
        OSError; nothing is left at `path` then.
        """
        reader = self.open(ino, revision, size, source)
        try:
            await reader.fill()
            stored = reader.file() if reader.kept else None
            if stored is not None:
                try:
                    return await trio.to_thread.run_sync(stored.copy_to, path)
                except ZonedriveError:  # damaged on the disk: piece by piece it is fetched again
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

    # -- changing

    async def take(self, path: Path, ino: int, revision: str, size: int) -> None:
        """Adopt a closed content file as this revision; `path` is gone afterwards in any case."""
        self.drop(ino)
        taken = self._adoptable(path, size)
        granted, victims = self._room.claim(taken, taken) if taken else (0, [])
        if victims:
            await trio.to_thread.run_sync(remove, victims)
        name = self._new_name(ino)
        target = self.directory / name
        try:
            if granted and not _moved(path, target):
                await trio.to_thread.run_sync(_copied, path, target)
        except OSError as wrong:
            self._failed(wrong)
            granted = 0
        row = Row(ino, self._stamp(revision), name, size, taken, True, b"", "", time.time_ns())
        # Somebody may have opened the inode while bytes were copied: then his entry stays.
        if granted and not self._index.of(ino) and self._alone(ino) and self._index.put(row):
            self._room.idle += taken
            remove([path])
        else:
            remove([path, target])

    def _adoptable(self, path: Path, size: int) -> int:
        """Bytes that `path` takes on the disk, 0 where it cannot be an entry of ours."""
        suffix = ".plain" if self._key is None else ".sealed"
        if path.suffix not in ("", suffix):
            return 0
        try:
            file = open_file(path, self._key)
        except (OSError, StoreError):
            return 0
        try:
            return file.allocated if file.size == size else 0
        finally:
            file.close()

    def _alone(self, ino: int) -> bool:
        return not any(other == ino for other, _ in self._active)

    def drop(self, ino: int) -> None:
        """Forget all content of an inode; who has it open can read on."""
        for entry, _ in list(self._active.values()):
            if entry.ino == ino:
                self._doom(entry)
        self._drop_rows(self._index.of(ino))

    # -- running

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Own the downloads until `aclose`."""
        async with trio.open_nursery() as nursery:
            self._engine.nursery = nursery
            if victims := self._room.excess():
                await trio.to_thread.run_sync(remove, victims)
            task_status.started()
            try:
                await self._closing.wait()
            finally:
                self._engine.nursery = None
            nursery.cancel_scope.cancel()

    async def aclose(self) -> None:
        """End all downloads and keep what they brought; who still waits gets StoreError."""
        self._engine.nursery = None
        for entry, fetcher in list(self._active.values()):
            fetcher.stop(StoreError("the cache is closed"))
            self._release(entry)
        for entry in list(self._room.entries):
            self._release(entry)
        self._index.note("clean", "1")
        self._index.close()
        self._closing.set()
        with trio.move_on_after(1):  # the threads look at their flags between two chunks
            while self._engine.limiter.borrowed_tokens:  # noqa: ASYNC110
                await trio.sleep(0.005)

    close = aclose

    # -- entries

    def _stamp(self, text: str) -> str:
        """Hides a revision or validator, which may name people."""
        key = self._key or b""
        return hashlib.blake2b(text.encode(), digest_size=16, key=key).hexdigest()

    def _new_name(self, ino: int) -> str:
        # Never the name of an earlier file: that one may still be about to be removed.
        return f"{ino}-{secrets.token_hex(6)}"

    def _entry(self, ino: int, stamp: str, size: int) -> Entry:
        """The entry of a revision, from the disk if it is there; others of the inode go."""
        for (other, _), (entry, _) in list(self._active.items()):
            if other == ino:
                self._doom(entry)
        rows = self._index.of(ino)
        row = next((row for row in rows if row.stamp == stamp and row.size == size), None)
        epoch = self._index.epoch
        self._drop_rows([other for other in rows if other is not row])
        if self._index.epoch != epoch:
            row = None
        entry = Entry(ino, stamp, size, self.directory / self._new_name(ino), self._key)
        entry.allow = self._room.allow
        entry.failed, entry.damaged = self._failed, self._damaged
        if row is not None:
            self._revive(entry, row)
        return entry

    def _revive(self, entry: Entry, row: Row) -> None:
        """Let `entry` begin with what the disk has of it."""
        path = self.directory / row.name
        try:
            file = open_file(path, self._key)
        except (FileNotFoundError, StoreError) as wrong:
            log.warning("cached content is lost and fetched again (%s)", wrong)
            self._drop_rows([row])
            return
        except OSError as wrong:  # no descriptor left, or the disk is in trouble
            self._failed(wrong)
            entry.without_disk()
            return
        present = row.present()
        for start, end in file.holes() if row.complete else ():
            present.remove(start, end)
        if file.size != row.size:
            present = Ranges()
            file.truncate(0)
            file.truncate(row.size)
        entry.path = path
        entry.validator = row.validator
        entry.adopt(file, present)
        entry.indexed = entry.complete
        entry.settle()
        self._room.idle -= row.taken

    def _moved(self, entry: Entry) -> None:
        """Bytes came: what is complete now is noted at once, it shall survive a crash."""
        if entry.indexed or entry.doomed or not entry.complete or not entry.size:
            return
        entry.indexed = True
        if entry.flush() and entry.linked:
            entry.settle()
            self._index.put(self._row(entry))

    def _damaged(self, entry: Entry) -> bool:
        """Some of it failed its check; whether the index knows."""
        entry.indexed = False
        return entry.doomed or self._index.put(self._row(entry))

    def _row(self, entry: Entry) -> Row:
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
        )

    def _close(self, entry: Entry, fetcher: Fetcher) -> None:
        entry.users -= 1
        if entry.users == 0:
            fetcher.stop(StoreError("the file was closed"))
            self._release(entry)

    def _release(self, entry: Entry) -> None:
        """Nobody uses it any more: keep what is on the disk."""
        if entry not in self._room.entries:
            return
        kept = entry.close()
        self._room.entries.discard(entry)
        if not entry.doomed:
            del self._active[entry.ino, entry.stamp]
            if kept and entry.on_disk and self._index.put(self._row(entry)):
                self._room.idle += entry.held
                return
            self._index.delete([entry.path.name])
        self._discard([entry.path], entry.held)

    def _doom(self, entry: Entry) -> None:
        """Take it out of the cache; who has it open goes on with the open file."""
        if entry.doomed:
            return
        entry.doomed = True
        self._active.pop((entry.ino, entry.stamp), None)
        self._index.delete([entry.path.name])
        self._discard([entry.path], 0)  # its bytes stay on the disk until it is closed

    def _drop_rows(self, rows: list[Row]) -> None:
        active = {entry.path.name for entry in self._room.entries}
        idle = [row for row in rows if row.name not in active]
        taken = sum(row.taken for row in idle)
        self._room.idle -= taken  # first: an index that is begun anew sets it to 0
        self._index.delete(row.name for row in idle)
        self._discard([self.directory / row.name for row in idle], taken)

    def _discard(self, paths: list[Path], taken: int) -> None:
        """Remove files, in a thread where there is much to free."""
        if self._engine.nursery is not None and taken > _BIG:
            self._room.leaving += taken
            self._engine.nursery.start_soon(self._remove, paths, taken)
        else:
            remove(paths)

    async def _remove(self, paths: list[Path], taken: int) -> None:
        try:
            await trio.to_thread.run_sync(remove, paths)
        finally:
            self._room.leaving -= taken

    def _in_background(self, reader: Reader, *, close: bool = False) -> None:
        if self._engine.nursery is not None:
            self._engine.nursery.start_soon(self._fill, reader, close)
        elif close:
            reader.close()

    async def _fill(self, reader: Reader, close: bool) -> None:
        with reader.scope:
            try:
                await reader.fill()
            except (ZonedriveError, OSError) as wrong:
                log.debug("reading ahead ended (%s)", wrong)
            finally:
                if close:
                    reader.close()

    # -- the folder

    def _failed(self, error: OSError) -> None:
        """The disk refused something; said once until it works again."""
        if not self._complained:
            log.warning("file content cannot be cached (%s); reads go on uncached", error)
        self._complained = True

    def _lost(self) -> None:
        """The index was begun anew: files that only the old one knew are unknown now."""
        self._room.idle = 0
        self._sweep({entry.path.name for entry in self._room.entries})
        self._note()

    def _sweep(self, known: set[str]) -> set[str]:
        """Remove our files that are not `known`; give back the names of those that are there."""
        try:
            names = {path.name for path in self.directory.iterdir()}
        except OSError:
            return set()
        unknown = [name for name in names - known if _NAME.fullmatch(name)]
        remove(self.directory / name for name in unknown)
        return names

    def _check(self, identity: str) -> None:
        """Compare the index with the folder, and with what this cache is for."""
        sealed = "" if self._key is None else "sealed"
        identity = self._stamp(f"{identity}|{sealed}")
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        clean = self._index.fact("clean") == "1"
        if self._index.fact("identity") != identity:
            self._index.clear()
        elif not clean and self._key is None and self._index.fact("boot") != boot:
            # After a power cut plain files may have holes that nothing would detect.
            self._index.clear()
        rows = self._index.everything()
        there = self._sweep({row.name for row in rows})
        self._index.delete(row.name for row in rows if row.name not in there)
        rows = [row for row in rows if row.name in there]
        if not clean:
            for row in rows:
                self._measure(row)
        self._room.idle = sum(row.taken for row in rows)
        self._facts = {"identity": identity, "boot": boot, "clean": "0"}
        self._note()

    def _note(self) -> None:
        """Write what the next start compares with."""
        for name, value in self._facts.items():
            self._index.note(name, value)

    def _measure(self, row: Row) -> None:
        """After an unclean stop a file may be bigger than the index says."""
        try:
            taken = (self.directory / row.name).stat().st_blocks * 512
        except OSError:
            return
        if taken != row.taken:
            row.taken = taken
            self._index.put(row)


def _copied(path: Path, target: Path) -> None:
    with path.open("rb") as source:
        copy_file(source.fileno(), target)


def _moved(path: Path, target: Path) -> bool:
    """Rename; False where the two are on different file systems.  Raises OSError."""
    private_dir(target.parent)
    try:
        path.rename(target)
    except OSError as refused:
        if refused.errno != errno.EXDEV:
            raise
        return False
    return True
