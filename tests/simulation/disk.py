"""Disks that fill up, fail and lose unsynced writes, and machines that die between two writes.

`Disk` stands below one client's files, and `instrument` places it there: it replaces the functions
of `os` that the stores use, and the commit of `zonedrive.db`. Calls of other files pass through.

Model of a power cut: a file keeps what it had at its last fsync, and each block written since then
is there or not. A name made, changed or removed since the folder's last fsync is there or not. Of a
database, SQLite's own writes count as ordered: the write-ahead log loses a tail that was never
synced. The next start is that of a rebooted machine, and the disk has what it finds. The death of a
process alone changes nothing on the disk.
"""

import contextlib
import errno
import gc
import os
import random
import re
import sqlite3
import struct
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from weakref import WeakKeyDictionary

from zonedrive.content import cache as cache_module
from zonedrive.content import cache_index
from zonedrive.db import LOG_MARK, Database, Migration

BLOCK = 4096  # first block of a file, which holds the header of a content file
PIECE = 64  # of all further blocks: the lines of programs are shorter than blocks of a disk
PAGE = 1024  # bytes, of a database whose disk notes nothing
MANY = 500  # open files
LEFT_OPEN = re.compile(r"/zd(case|sim)[^/]*/.* \(deleted\)$")  # of a run that has ended
WAL_HEADER, FRAME_HEADER, INDEX_HEADER = 32, 24, 48


class Disk:
    """Disk of one client."""

    def __init__(
        self,
        folder: Path,
        numbers: random.Random,
        passed: Callable[[str], None],
        *,
        may_lose_power: bool = True,
    ) -> None:
        """Observe `folder`; `passed` is called at each write, and may raise.

        Without `may_lose_power`, the disk does not note what is durable, and new databases are
        copies of one that is empty.
        """
        self.folder = folder
        self._prefix = os.fspath(folder) + os.sep
        self.may_lose_power = may_lose_power
        self.is_full = False
        self.failing = 0.0  # probability of EIO for a write or fsync
        self.had_trouble = False  # a call has failed
        self._numbers, self._passed = numbers, passed
        self._synced: dict[int, bytes] = {}  # content by inode number at its last fsync
        self._names: dict[Path, dict[str, int]] = {}  # of a folder at its last fsync
        self._inodes: dict[Path, int] = {}  # numbers at the client's death
        self._is_cut = False  # by a power cut at that time
        self.boots = 0

    @property
    def is_troubled(self) -> bool:
        """Return True if the disk is full or fails."""
        return self.is_full or self.failing > 0

    def has(self, path: str | Path) -> bool:
        """Return True if the path is on this disk."""
        return os.fspath(path).startswith(self._prefix)

    # ---- calls of the client ----

    def before(self, what: str, *, grows: bool = False) -> None:
        """Pass a step that changes the disk. Raises OSError if the disk refuses it."""
        self._passed(what)
        if grows and self.is_full:
            self.had_trouble = True
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if self.failing and self._numbers.random() < self.failing:
            self.had_trouble = True
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    def synced(self, descriptor: int) -> None:
        """Note the state that an fsync made durable."""
        if self.may_lose_power:
            self._note_durable(Path(f"/proc/self/fd/{descriptor}").readlink())

    def synced_range(self, descriptor: int, start: int, size: int) -> None:
        """Note the bytes that a write has made durable."""
        if self.may_lose_power:
            number = os.fstat(descriptor).st_ino
            durable = bytearray(self._synced.get(number, b"").ljust(start + size, b"\0"))
            durable[start : start + size] = os.pread(descriptor, size, start)
            self._synced[number] = bytes(durable)

    def synced_whole(self) -> None:
        """Note the state that a flush of the whole file system made durable."""
        for path in (self.folder, *self.folder.rglob("*")) if self.may_lose_power else ():
            self._note_durable(path)

    def _note_durable(self, path: Path) -> None:
        if path.is_dir():
            self._names[path] = {each.name: each.stat().st_ino for each in path.iterdir()}
        elif path.exists():
            self._synced[path.stat().st_ino] = path.read_bytes()

    # ---- the client's death ----

    def died(self) -> None:
        """Note the files at a death; the next client gets copies of them."""
        if not self.may_lose_power:
            return
        files = [path for path in self.folder.rglob("*") if path.is_file()]
        self._inodes = {path: path.stat().st_ino for path in files}
        self._is_cut = False

    def restarted(self) -> None:
        """Apply to the copies what is known of the files: after a power cut, they are durable."""
        present = {path: old for path, old in self._inodes.items() if path.exists()}
        renumbered = {old: path.stat().st_ino for path, old in present.items()}
        if self._is_cut:
            self._synced = {path.stat().st_ino: path.read_bytes() for path in present}
            return
        synced = self._synced.items()
        self._synced = {renumbered[old]: data for old, data in synced if old in renumbered}
        for folder, names in self._names.items():
            known = {name: renumbered[old] for name, old in names.items() if old in renumbered}
            self._names[folder] = known

    def erased(self) -> None:
        """Forget all files: they were deleted for good."""
        self._synced.clear()
        self._names.clear()

    # ---- a power cut ----

    def cut_power(self, kept: Path) -> None:
        """Remove from `kept`, a copy of the folder, the data that a power cut may destroy."""
        self.boots += 1
        self._is_cut = True
        for path in sorted(self.folder.rglob("*")):
            there = kept / path.relative_to(self.folder)
            if path.is_dir() or not there.exists():
                continue
            if path.name.endswith("-shm"):
                there.unlink()
            elif path.name.endswith("-wal"):
                self._cut_log(path, there)
            elif ".db" not in path.name:
                self._cut_file(path, there)
        for folder, names in self._names.items():
            self._restore_names(names, kept / folder.relative_to(self.folder))
        self._names.clear()
        self._synced.clear()

    def _cut_log(self, path: Path, there: Path) -> None:
        """Cut a write-ahead log at a place after its last fsync."""
        now, before = there.read_bytes(), self._synced.get(path.stat().st_ino, b"")
        least = _moved(path, now)
        if now[:WAL_HEADER] != before[:WAL_HEADER]:  # the log restarted after SQLite had synced it
            there.write_bytes(now[: self._numbers.randint(least, len(now))])
            return
        place = self._numbers.randint(max(_common(now, before), least), len(now))
        there.write_bytes(now[:place] + before[place:])

    def _cut_file(self, path: Path, there: Path) -> None:
        now, before = there.read_bytes(), self._synced.get(path.stat().st_ino)
        if before is None and self._numbers.random() < 0.3:
            there.unlink()  # its name was never synced either
            return
        before = before or b""
        size = len(now) if before == now else self._numbers.choice((len(now), len(before)))
        data = bytearray(size)
        ends = [*range(BLOCK, size, PIECE), size]
        for start, end in zip([0, *ends], ends, strict=False):
            source = self._numbers.choice((now, before))
            piece = source[start:end]
            data[start : start + len(piece)] = piece
        there.write_bytes(data)

    def _restore_names(self, names: dict[str, int], there: Path) -> None:
        """Bring some removed names back."""
        for name, number in sorted(names.items()):
            lost = not (there / name).exists() and number in self._synced
            if lost and there.exists() and self._numbers.random() < 0.5:
                (there / name).write_bytes(self._synced[number])


CURRENT: ContextVar[Disk | None] = ContextVar("disk", default=None)


def _of(path: Any) -> Disk | None:
    """Return the disk of a path or descriptor, None for files of no client."""
    disk = CURRENT.get()
    if disk is None or isinstance(path, int):
        return disk
    return disk if disk.has(path) else None


@contextmanager
def observing() -> Iterator[None]:
    """Let the calls in the block pass to the real disk."""
    token = CURRENT.set(None)
    try:
        yield
    finally:
        CURRENT.reset(token)


@contextmanager
def instrument() -> Iterator[None]:
    """Put the disks below all clients of this process."""
    real = {
        name: getattr(os, name)
        for name in ("pwrite", "pwritev", "ftruncate", "fsync", "link", "unlink",
                     "replace", "rename", "copy_file_range", "statvfs")
    }  # fmt: skip
    commit, original = Database._commit, vars(Database)["open"]
    real_sync = vars(cache_module)["sync_file_system"]
    open_: Callable[..., Database] = original.__func__
    written: WeakKeyDictionary[Database, int] = WeakKeyDictionary()

    def wrapped(name: str, *, grows: bool) -> Callable[..., Any]:
        def call(first: Any, *args: Any, **options: Any) -> Any:
            is_log_mark = str(first).endswith(LOG_MARK)  # it goes with the log, as one step
            if (disk := _of(first)) is not None and not is_log_mark:
                disk.before(name, grows=grows)
            done = real[name](first, *args, **options)
            if disk is not None and name == "pwritev" and args[2:] == (os.RWF_DSYNC,):
                disk.synced_range(first, args[1], done)
            return done

        return call

    def fsync(descriptor: int) -> None:
        if (disk := CURRENT.get()) is not None:
            disk.before("fsync")
            disk.synced(descriptor)
        real["fsync"](descriptor)

    def sync_file_system(folder: Path) -> None:
        if (disk := _of(folder)) is not None:
            disk.before("fsync")
            disk.synced_whole()

    def statvfs(path: Any) -> os.statvfs_result:
        found: os.statvfs_result = real["statvfs"](path)
        disk = _of(path)
        if disk is None or not disk.is_full:
            return found
        plain = list(found)
        plain[3] = plain[4] = 0  # f_bfree and f_bavail
        return os.statvfs_result(plain)

    def committed(database: Database) -> None:
        disk = CURRENT.get()
        is_empty = written.get(database) == database.changes
        if disk is not None and database._connection.in_transaction and not is_empty:
            try:
                disk.before("commit", grows=True)
            except BaseException as wrong:
                database._roll_back(wrong)
                raise
        commit(database)
        written[database] = database.changes

    def opened(
        kind: type[Database], path: Path, migrations: Sequence[Migration], **options: bool
    ) -> Database:
        disk = _of(path)
        if disk is not None and not disk.may_lose_power and not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            path.write_bytes(_empty(open_, path.name, tuple(migrations)))
        return open_(kind, path, migrations, **options)

    for name in ("pwrite", "pwritev", "link", "copy_file_range"):
        setattr(os, name, wrapped(name, grows=True))
    for name in ("ftruncate", "unlink", "replace", "rename"):
        setattr(os, name, wrapped(name, grows=False))
    os.fsync = fsync  # type: ignore[assignment]
    os.statvfs = statvfs
    vars(cache_module)["sync_file_system"] = sync_file_system
    Database._commit = committed  # type: ignore[method-assign,assignment]
    Database.open = classmethod(opened)  # type: ignore[method-assign,assignment,arg-type]
    try:
        yield
    finally:
        for name, function in real.items():
            setattr(os, name, function)
        vars(cache_module)["sync_file_system"] = real_sync
        Database._commit = commit  # type: ignore[method-assign]
        Database.open = original  # type: ignore[method-assign]


@cache
def _empty(make: Callable[..., Database], name: str, migrations: tuple[Migration, ...]) -> bytes:
    """Return the bytes of a new database of that name, with small pages: they are copied fast."""
    with observing(), TemporaryDirectory() as folder:
        path = Path(folder, name)
        with contextlib.closing(sqlite3.connect(path)) as connection:
            connection.execute(f"PRAGMA page_size = {PAGE}")
            if name == cache_index.NAME:
                connection.execute("PRAGMA auto_vacuum = FULL")  # as the index does itself
            connection.execute("VACUUM")  # writes the first page
        make(Database, path, migrations).close()
        return path.read_bytes()


def _common(one: bytes, other: bytes) -> int:
    """Return the number of bytes that are the same at the beginning of both."""
    sizes = range(1, min(len(one), len(other)) + 1)
    return bisect_left(sizes, True, key=lambda size: one[:size] != other[:size])


def _moved(log: Path, content: bytes) -> int:
    """Return the size of a log's part that SQLite has moved into the database, and so has synced.

    The number of moved frames follows the two headers of the index.
    """
    index = log.with_name(f"{log.name.removesuffix('-wal')}-shm")
    if len(content) < WAL_HEADER or not index.exists():
        return 0
    (frames,) = struct.unpack_from("=I", index.read_bytes(), 2 * INDEX_HEADER)
    size = int.from_bytes(content[8:12], "big") + FRAME_HEADER
    return min(WAL_HEADER + int(frames) * size, len(content)) if frames else 0


def close_left_open() -> None:
    """Close the files that killed clients have left open, as the kernel does for a killed process.

    Call between runs, when all their folders are deleted. Does nothing while few files are open.
    """
    if len(os.listdir("/proc/self/fd")) < MANY:
        return
    gc.collect()  # connections of SQLite close their own files
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            target = os.fspath(Path(f"/proc/self/fd/{number}").readlink())
            if LEFT_OPEN.search(target):
                os.close(int(number))
