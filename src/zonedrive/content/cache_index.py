"""Index of the cache in SQLite: the ranges, disk usage and last use of the cached content.

The content of small files is stored in the index itself. This module does not access the files that
hold other content. A damaged index is deleted and created again; callers then see an empty index. A
damaged row counts as missing.

INVARIANT: no method raises a disk error. `put` and `put_contents` return True if the write
succeeded. A row whose deletion failed counts as deleted. Each later write first tries again to
delete such rows.

INVARIANT: a returned row has the values that were stored. Each row has a hash of its values, except
the time of last use, which is not verified. If the account has a key, the hash is keyed, so that no
other program can create or change a row.
"""

import contextlib
import errno
import fcntl
import hashlib
import logging
import math
import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from hmac import compare_digest
from pathlib import Path

import msgspec

from zonedrive.content.manifest import have_same_chunks
from zonedrive.content.ranges import Ranges
from zonedrive.db import Database, is_damage
from zonedrive.errors import StoreError
from zonedrive.paths import private_dir

log = logging.getLogger(__name__)

NAME = "index.db"


class Row(msgspec.Struct, eq=False):
    """Row of the index: cached content of one revision of an inode."""

    ino: int
    stamp: str  # keyed hash of the revision
    name: str  # name of the file in the cache folder; see `in_index`
    size: int  # bytes of the content
    taken: int  # bytes on the disk
    complete: bool
    ranges: bytes  # parts that are on the disk, encoded by `Ranges.encode`; b"" if complete
    validator: str  # keyed hash of the source's validator, "" if it has none
    used_ns: int  # time of the last use, nanoseconds since the epoch
    manifest: bytes  # manifest of an encrypted file; for content in the index, its nonce

    def present(self) -> Ranges:
        """Return the byte ranges on the disk. Raises ValueError if they cannot be decoded."""
        return Ranges([(0, self.size)]) if self.complete else Ranges.decode(self.ranges)

    def describes_same_bytes(self, other: "Row") -> bool:
        """Return True if `other` describes the same bytes of the same file."""
        if self.name != other.name or list(self.present()) != list(other.present()):
            return False
        return have_same_chunks(self.manifest, other.manifest)

    @property
    def in_index(self) -> bool:
        """True if the content is stored in the index itself, not in a file."""
        return self.name == name_in_index(self.ino)


def name_in_index(ino: int) -> str:
    """Return the placeholder used instead of a file name for content stored in the index."""
    return f"{ino}:"


def _create(db: sqlite3.Connection) -> None:
    """Create the tables of the fourth schema; delete those of version 0.1.0 (second schema).

    The rows of 0.1.0 have no hashes and cannot be checked, so the cache starts empty.
    """
    db.execute("DROP TABLE IF EXISTS entries")
    db.execute("DROP TABLE IF EXISTS facts")
    db.execute(
        """CREATE TABLE entries (
            ino       INTEGER NOT NULL,  -- inode whose content it is
            stamp     TEXT NOT NULL,     -- keyed hash of its revision
            name      TEXT NOT NULL UNIQUE,  -- file in the folder of the index
            size      INTEGER NOT NULL,  -- bytes of the whole content
            taken     INTEGER NOT NULL,  -- bytes the file takes on the disk
            complete  INTEGER NOT NULL,  -- 1: all bytes are in the file
            ranges    BLOB NOT NULL,     -- ranges of the bytes in the file, if not all
            validator TEXT NOT NULL,     -- keyed hash of the source's validator
            used_ns   INTEGER NOT NULL,  -- last use, nanoseconds since the epoch
            manifest  BLOB NOT NULL DEFAULT x'',  -- of the file, x'' if it is not encrypted
            hash      BLOB NOT NULL DEFAULT x'',  -- of the row, see `CacheIndex`
            PRIMARY KEY (ino, stamp)
        ) WITHOUT ROWID"""
    )
    db.execute("CREATE INDEX entries_used ON entries (used_ns)")
    # identity: owner of the entries; clean: 1 after an orderly stop; boot: id of the boot
    db.execute("CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID")
    db.execute(
        """CREATE TABLE contents (
            ino     INTEGER PRIMARY KEY,  -- inode the content belongs to
            content BLOB NOT NULL         -- encrypted if the account has a key
        )"""
    )
    db.execute(
        """CREATE TRIGGER contents_gone AFTER DELETE ON entries WHEN old.name = old.ino || ':'
           BEGIN DELETE FROM contents WHERE ino = old.ino; END"""
    )


def _nothing(_db: sqlite3.Connection) -> None:
    """Do nothing: the schemas 1 to 3 are not created any more."""


_SCHEMAS = (_nothing, _nothing, _nothing, _create)
_FIELDS = Row.__struct_fields__
_COLUMNS = ", ".join((*_FIELDS, "hash"))
_PUT = f"INSERT OR REPLACE INTO entries ({_COLUMNS}) VALUES (?{', ?' * len(_FIELDS)})"  # noqa: S608
_SLACK = 16 << 20  # bytes that a file system may give a file beyond what was written
HASH_BYTES = 16
RESERVE = 0.05  # fraction of the disk that stays free
AGAIN_S = 5.0  # seconds between two attempts to create an index on a failing disk
PAGE = 10_000  # rows that are read together; SQLite allows 32,766 parameters
FIRST = (-1, "")  # before the (used_ns, name) of all rows


class CacheIndex:
    """Cache index in a SQLite file that may disappear or be damaged at any time."""

    def __init__(
        self,
        path: Path,
        key: bytes | None,
        opened: Callable[[], None] = lambda: None,
        lost: Callable[[], None] = lambda: None,
    ) -> None:
        """Prepare to use the file at `path`.

        `opened` is called each time the file has been opened or created. `lost` is called after
        damaged rows have been deleted. `key` is the account's key. Rows that were stored under
        another key count as damaged.
        """
        self.path = path
        given = key or b""
        self._hash_key = hashlib.blake2b(b"zonedrive cache index", key=given).digest()
        self._opened, self._lost = opened, lost
        self._db: Database | None = None
        self._locked: int | None = None  # descriptor of the locked folder
        # Grows when the index restarts or is opened later; rows of earlier epochs are invalid.
        self.epoch = 0
        self._inode = 0
        # Names of rows that count as deleted, and the disk usage of their content in the index.
        self._undeleted: dict[str, int] = {}
        self.undeleted_bytes = 0  # sum of that disk usage
        # (used_ns, name) up to which no row can be evicted. `Quota` raises this value. If a row
        # with an earlier time of last use is stored, the value is lowered.
        self.passed = FIRST
        self.failure = errno.EIO  # errno of the last failure to open, read or write the file
        self._dropped = 0  # number of damaged rows that were deleted
        self._complained = False
        self._tried_s = time.monotonic()

    def open(self) -> None:
        """Open or create the index and call `opened`; after a disk error, work without an index.

        Later reads and writes then try to open the index, at most once in AGAIN_S seconds.
        """
        self._tried_s = time.monotonic()
        try:
            self._connect()
        except (OSError, StoreError) as wrong:
            self._failed(wrong)
        else:
            self._opened()

    def _connect(self) -> None:
        """Open the SQLite file, and create it if needed. Raises OSError and StoreError."""
        private_dir(self.path.parent)
        self._lock_folder()
        db = Database.open(self.path, _SCHEMAS, is_exclusive=True)
        try:
            db.execute("PRAGMA recursive_triggers = ON")  # so that a replaced row counts as deleted
            _enable_auto_vacuum(db)
        except BaseException:
            db.close()
            raise
        self._db = db
        self._inode = self.path.stat().st_ino

    def _lock_folder(self) -> None:
        """Lock the folder, unless this index has already locked the same folder.

        The lock also prevents systemd-tmpfiles from deleting old files. Raises OSError (EBUSY) if
        another program has locked the folder, such as the daemon of an account with the same name
        in another state folder. The two daemons would delete each other's content.
        """
        folder = os.open(self.path.parent, os.O_RDONLY | os.O_CLOEXEC)
        if self._locked is not None and os.path.samestat(os.fstat(folder), os.fstat(self._locked)):
            os.close(folder)
            return
        self._unlock_folder()
        self._locked = folder
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as held:
            self._unlock_folder()
            said = "locked by another program, perhaps the daemon of another state folder"
            raise OSError(errno.EBUSY, said, str(self.path.parent)) from held
        except OSError:  # NFS has no exclusive lock for a folder; others may have no locks at all
            with contextlib.suppress(OSError):
                fcntl.flock(folder, fcntl.LOCK_SH | fcntl.LOCK_NB)

    def _unlock_folder(self) -> None:
        if self._locked is not None:
            os.close(self._locked)
            self._locked = None

    @property
    def is_open(self) -> bool:
        """True if the SQLite file is open; False, for example, if a disk error prevents opening."""
        return self._db is not None

    def _restart(self, why: Exception | None) -> None:
        """Replace the index by an empty one and call `opened`.

        `why` is the error to log, or None.
        """
        if why is not None:
            log.warning("the cache index is damaged and is created again (%s)", why)
        self.clear()
        if self.is_open:
            self._opened()

    def clear(self) -> None:
        """Replace the index by an empty one; after a disk error, work without an index.

        The SQLite file is deleted, because a deletion of its rows would need disk space.
        """
        self._close_file()
        self._tried_s = time.monotonic()
        self.epoch += 1
        self._undeleted, self.undeleted_bytes = {}, 0
        try:
            private_dir(self.path.parent)
            self._lock_folder()  # in a new folder, the files may be those of another daemon
            for suffix in ("", "-wal", "-shm"):
                self.path.with_name(self.path.name + suffix).unlink(missing_ok=True)
            self._connect()
        except (StoreError, OSError) as wrong:
            self._complain(wrong)

    def _failed(self, wrong: Exception) -> None:
        cause = wrong.__cause__ if isinstance(wrong, StoreError) else wrong
        if not isinstance(wrong, OSError) and _is_damage(cause):
            self._restart(wrong)
        else:
            self._complain(wrong)

    def _complain(self, wrong: Exception) -> None:
        self.failure = (wrong.errno if isinstance(wrong, OSError) else None) or errno.EIO
        if not self._complained:
            log.warning("the cache index cannot be written (%s); reads continue uncached", wrong)
        self._complained = True

    def _open_again(self) -> None:
        """Open the index again if the last attempt failed at least AGAIN_S seconds ago."""
        if self._db is None and time.monotonic() >= self._tried_s + AGAIN_S:
            self.epoch += 1
            self.open()

    def _read(self, sql: str, values: Sequence[object] = ()) -> list[tuple[object, ...]]:
        self._open_again()
        if self._db is None:
            return []
        try:
            return self._db.execute(sql, values).fetchall()
        except (sqlite3.Error, StoreError, OSError) as wrong:
            self._failed(wrong)
            return []

    def _write(self, sql: str, values: Sequence[object] = ()) -> bool:
        return self._change(lambda db: db.execute(sql, values))

    def _change(self, change: Callable[[Database], object]) -> bool:
        self._open_again()
        if self._db is not None and not self._is_at_path():
            self._restart(None)  # the folder was emptied
        if self._db is None:
            return False
        try:
            while self._undeleted:
                name = next(reversed(self._undeleted))
                self._db.execute("DELETE FROM entries WHERE name = ?", (name,))
                self.undeleted_bytes -= self._undeleted.pop(name)
            change(self._db)
        except (sqlite3.Error, StoreError, OSError) as wrong:
            self._failed(wrong)
            return False
        self._complained = False
        return True

    def _rows(self, where: str, values: Sequence[object] = ()) -> list[Row]:
        found = self._read(f"SELECT {_COLUMNS} FROM entries {where}", values)  # noqa: S608
        rows: list[Row] = []
        damaged: list[Sequence[object]] = []
        for stored in found:
            row = self._decoded(stored)
            if row is None:
                damaged.append(stored[:2])
            elif row.name not in self._undeleted:
                rows.append(row)
        if damaged:
            self._drop(damaged)
        return rows

    def _drop(self, damaged: list[Sequence[object]]) -> None:
        """Delete damaged rows, given as (inode, stamp), and call `lost` if rows were deleted."""
        sql = "DELETE FROM entries WHERE ino IS ? AND stamp IS ?"
        if count := sum([self._write(sql, key) for key in damaged]):
            log.warning("%d damaged rows of the cache index were deleted", count)
            self._dropped += count
            self._lost()

    def _is_at_path(self) -> bool:
        """Return True if the path still refers to the file that was opened."""
        try:
            return self.path.stat().st_ino == self._inode
        except OSError:
            return False

    def row(self, ino: int, stamp: str) -> Row | None:
        """Return the row of the inode's revision whose keyed hash is `stamp`, or None."""
        rows = self._rows("WHERE ino = ? AND stamp = ?", (ino, stamp))
        return rows[0] if rows else None

    def rows_of(self, ino: int) -> list[Row]:
        """Return the rows of all stored revisions of an inode."""
        return self._rows("WHERE ino = ?", (ino,))

    def inos(self, first: int = 0, end: int = (1 << 63) - 1) -> list[int]:
        """Return the numbers in [first, end) of all inodes that have a row.

        Leave out damaged numbers; their rows are deleted when content is evicted.
        """
        found = self._read(
            "SELECT DISTINCT ino FROM entries WHERE ino >= ? AND ino < ?", (first, end)
        )
        return [ino for (ino,) in found if isinstance(ino, int)]

    def all_rows(self) -> Iterator[Row]:
        """Yield all rows; only some of them are in memory at a time."""
        inos = self.inos()
        for start in range(0, len(inos), PAGE):
            page = inos[start : start + PAGE]
            yield from self._rows(f"WHERE ino IN ({', '.join('?' * len(page))})", page)

    def oldest(self, count: int, after: tuple[int, str]) -> list[Row]:
        """Return the first `count` or more rows that follow `after`, least recently used first.

        Fewer rows are returned if fewer follow, or if some of them are damaged. `after` is the
        (used_ns, name) of a row.
        """
        count += len(self._undeleted)
        where = "WHERE (used_ns, name) > (?, ?) ORDER BY used_ns, name LIMIT ?"
        epoch, dropped = self.epoch, self._dropped
        rows = self._rows(where, (*after, count))
        if not rows and self._dropped > dropped and self.epoch == epoch:
            return self._rows(where, (*after, count))  # all rows were damaged, and are deleted now
        return rows

    def put(self, row: Row) -> bool:
        """Store a row, replacing a row of the same inode and stamp; return True on success."""
        self._put_back(row.used_ns)
        return self._write(_PUT, self._stored(row))

    def put_contents(self, batch: Sequence[tuple[Row, bytes]]) -> bool:
        """Store rows and their contents in one transaction; return True on success."""
        rows = [self._stored(row) for row, _ in batch]
        contents = [(row.ino, content) for row, content in batch]
        self._put_back(min(row.used_ns for row, _ in batch))

        def change(db: Database) -> None:
            with db.transaction():
                db.execute_many(_PUT, rows)
                db.execute_many("INSERT OR REPLACE INTO contents VALUES (?, ?)", contents)

        return self._change(change)

    def _put_back(self, used_ns: int) -> None:
        """Move the eviction position `passed` before all rows last used at `used_ns`, if needed."""
        self.passed = min(self.passed, (used_ns, ""))

    def content(self, ino: int) -> bytes | None:
        """Return the inode's content as stored (encrypted if there is a key), or None."""
        found = self._read("SELECT content FROM contents WHERE ino = ?", (ino,))
        return found[0][0] if found and isinstance(found[0][0], bytes) else None

    def checkpoint(self) -> None:
        """Move recent writes from the write-ahead log to the index file.

        Call this method in a thread, because it is slow.
        """
        if (db := self._db) is not None:
            db.checkpoint()

    def _stored(self, row: Row) -> tuple[object, ...]:
        fields = msgspec.structs.astuple(row)
        values = [int(each) if isinstance(each, bool) else each for each in fields]
        return (*values, self._hash(values))

    def _hash(self, values: Sequence[object]) -> bytes:
        """Return the hash of a row's values; the time of last use is not hashed."""
        kept = [value for name, value in zip(_FIELDS, values, strict=True) if name != "used_ns"]
        encoded = msgspec.msgpack.encode(kept)
        return hashlib.blake2b(encoded, digest_size=HASH_BYTES, key=self._hash_key).digest()

    def _decoded(self, stored: Sequence[object]) -> Row | None:
        """Return the decoded row, or None if the stored row is damaged."""
        *values, kept = stored
        if not isinstance(kept, bytes) or not compare_digest(kept, self._hash(values)):
            return None
        try:
            named = dict(zip(_FIELDS, values, strict=True))
            row = msgspec.convert(named, Row, strict=False)
            row.present()
        except (msgspec.ValidationError, ValueError):
            return None
        return row if 0 <= row.taken <= 2 * row.size + _SLACK else None

    def set_last_use(self, name: str, used_ns: int) -> None:
        """Set the time of the last use of the row `name`, in nanoseconds since the epoch."""
        self._put_back(used_ns)
        self._write("UPDATE entries SET used_ns = ? WHERE name = ?", (used_ns, name))

    def correct_last_uses(self) -> None:
        """Move times of last use that are in the future to at least a minute ago; keep their order.

        Such times were stored while the clock was wrong. Their rows would be evicted last.
        """
        now_ns, most = time.time_ns(), (1 << 63) - 1  # a damaged value sorts after all integers
        self._write(
            "UPDATE entries SET used_ns = max(0, ? + used_ns"
            " - (SELECT max(used_ns) FROM entries WHERE used_ns <= ?))"
            " WHERE used_ns BETWEEN ? AND ?",
            (now_ns - 60 * 10**9, most, now_ns + 1, most),
        )

    def delete(self, names: Iterable[str]) -> None:
        """Delete the rows with these names, and all rows whose deletion has failed before."""
        # 0 for content in a file, because the caller deletes the file.
        found = "SELECT CAST(taken AS INTEGER) * (name = ino || ':') FROM entries WHERE name = ?"
        for name in names:
            if name not in self._undeleted and (rows := self._read(found, (name,))):
                self._undeleted[name] = int(str(rows[0][0]))
                self.undeleted_bytes += self._undeleted[name]
        self._change(lambda _db: None)

    def delete_batch(self, names: Iterable[str]) -> bool:
        """Delete the rows with these names in one transaction.

        Return True on success. On failure, none of the rows counts as deleted.
        """

        def change(db: Database) -> None:
            with db.transaction():
                db.execute_many("DELETE FROM entries WHERE name = ?", [(name,) for name in names])

        return self._change(change)

    def fact(self, name: str) -> str:
        """Return the metadata value stored under `name`, or "" if there is none."""
        rows = self._read("SELECT value FROM facts WHERE name = ?", (name,))
        return str(rows[0][0]) if rows else ""

    def set_fact(self, name: str, value: str) -> bool:
        """Store a metadata value of the cache under `name`; return False after a disk error."""
        return self._write("INSERT OR REPLACE INTO facts VALUES (?, ?)", (name, value))

    def suspend(self) -> None:
        """Close the SQLite file as after a disk error; later calls try to open it again."""
        self._close_file()
        self._tried_s = time.monotonic()

    def close(self) -> None:
        """Close the SQLite file; later calls of other methods change nothing and find no rows."""
        self._close_file()
        self._unlock_folder()

    def _close_file(self) -> None:
        self._tried_s = math.inf
        if self._db is not None:
            self._db.close()
            self._db = None


def cache_usage(directory: Path) -> int:
    """Return the disk usage in bytes of a cache folder that no daemon uses.

    The result is 0 if the index is missing or cannot be read.
    """
    try:
        with contextlib.closing(Database.read(directory / NAME, _SCHEMAS)) as db:
            # `sum` fails for the integers of damaged rows, and `total` may be infinite.
            sql = "SELECT total(CAST(taken AS INTEGER)) FROM entries"
            taken = db.execute(sql).fetchone()[0]
    except (sqlite3.Error, StoreError, OSError):
        return 0  # the next start creates the index again
    return max(0, int(taken))


def usable_bytes(directory: Path, limit: int, used: int, promised: int = 0) -> int:
    """Return how many bytes may be used in a directory: `limit`, or less on a nearly full disk.

    `used` bytes are in use, including the `promised` bytes, which were granted but are not written
    yet. The result can be lower than `used`, or negative, if other files fill the disk.
    """
    disk = None
    for folder in (directory, *directory.parents):  # the directory may not exist yet
        with contextlib.suppress(OSError):
            disk = os.statvfs(folder)
            break
    if disk is None:
        return limit
    free = disk.f_bavail * disk.f_frsize - int(disk.f_blocks * disk.f_frsize * RESERVE)
    return min(limit, used + free - promised)


def _enable_auto_vacuum(db: Database) -> None:
    """Enable SQLite's auto-vacuum, which shrinks the file when rows are deleted.

    If the disk has no space for the conversion, the next start tries again. Raises StoreError if
    the file is damaged.
    """
    if db.execute("PRAGMA auto_vacuum").fetchone()[0]:
        return
    try:
        db.execute("PRAGMA auto_vacuum = FULL")
        db.execute("VACUUM")
    except (sqlite3.OperationalError, OSError) as wrong:  # no space for a copy
        log.info("cannot make the cache index smaller (%s)", wrong)


def _is_damage(wrong: BaseException | None) -> bool:
    """Return True if the error means a damaged file, and not a disk failure.

    None stands for a StoreError without a cause, which means a wrong schema and counts as damage.
    An error without SQLite's code, for example about text that is not UTF-8, counts as damage. An
    error in a statement (SQLITE_ERROR) also counts as damage, because all statements fit an
    undamaged schema.
    """
    code = getattr(wrong, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
    return is_damage(wrong) or code == sqlite3.SQLITE_ERROR
