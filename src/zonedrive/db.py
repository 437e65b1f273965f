"""SQLite wrapper for all stores, with one connection, a write-ahead log and nested transactions.

This module does not depend on any table. Calls are synchronous and short (tens of microseconds), so
no other task of the event loop runs during a call.

INVARIANT: no `await` inside a transaction.
"""

import errno
import os
import resource
import secrets
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from zonedrive.config import on_this_machine
from zonedrive.errors import StoreError
from zonedrive.paths import given_runtime_dir, require_room

SQLITE = sqlite3.sqlite_version

# By SQLite's result code, extended or primary.
_ERRNO = {
    sqlite3.SQLITE_FULL: errno.ENOSPC,
    sqlite3.SQLITE_IOERR_WRITE: errno.ENOSPC,  # of the write-ahead log; see `_disk_errno`
    sqlite3.SQLITE_IOERR_SHMSIZE: errno.ENOSPC,
    sqlite3.SQLITE_IOERR: errno.EIO,  # any other error of the disk
    sqlite3.SQLITE_READONLY: errno.EROFS,
    sqlite3.SQLITE_NOMEM: errno.ENOMEM,
}

_BROKEN = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_LOCKED = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_PROTOCOL)

_READS = ("SELECT", "WITH", "PRAGMA")
"""First words of statements that change nothing."""

LOG_PAGES = 1000
"""Length of the write-ahead log, in pages, at which a commit also runs a checkpoint.

The checkpoint waits for the disk. The log takes disk space that the database file may need. With a
longer log, deletions that would free space could fail on a full disk. See `checkpoint`.
"""

LOG_PART = 64  # the log of a small disk is limited to the size of the disk divided by LOG_PART
PAGE = 4096  # SQLite's default size of a page, in bytes

PASSES = 3  # maximum number of passes of one checkpoint

SHARED, EXCLUSIVE = "?vfs=unix", "?vfs=unix-excl"
"""Ends of a database's URI, for SQLite's module that locks files and shares memory.

The second one keeps the file locked and the index of the log in the memory of this process, where
all connections of the process use it.
"""

LOG_MARK = ".logged"
"""Suffix of the marker file that exists while the write-ahead log has commits."""

DOCTOR = "run 'zonedrive doctor'"

_COPY = "zonedrive-state-"  # prefix of a temporary copy; the process id follows

Connection = sqlite3.Connection
Migration = Callable[[Connection], None]
Run = Callable[..., sqlite3.Cursor]
K = TypeVar("K")
V = TypeVar("V")


def is_damage(wrong: BaseException | None) -> bool:
    """Return True if `wrong` reports a corrupt database file.

    Corruption causes an error of SQLite, or a UnicodeDecodeError for a name in the schema.
    """
    if isinstance(wrong, UnicodeDecodeError):
        return True
    code = getattr(wrong, "sqlite_errorcode", 0)
    return isinstance(wrong, sqlite3.DatabaseError) and code & 0xFF in _BROKEN


class Database:
    """SQLite file that only its owner can access (mode 0600), with a schema version.

    A commit survives the death of the process. After `flush`, all earlier commits also survive a
    power cut.
    """

    def __init__(
        self, path: Path, connection: Connection, resources: ExitStack, *descriptors: int
    ) -> None:
        """Store a connection that `open` or `read` has created.

        `close` closes the `resources`, and `flush` flushes the files of the `descriptors`.
        """
        self.path = path
        self._connection = connection
        self._resources = resources
        # Descriptors of the log and the file. Closing a descriptor of a file drops all POSIX locks
        # that the process holds on the file; another program could then delete the log in use.
        self._descriptors = descriptors
        self._marks_log = self._is_log_marked = False  # see `open`
        self._address = ""  # URI of the file, for another connection
        self._undo: list[Callable[[], object]] | None = None  # steps to undo the open transaction
        self._afterwards: list[Callable[[], object]] = []  # steps to take after the commit

    @classmethod
    def open(
        cls,
        path: Path,
        migrations: Sequence[Migration],
        *,
        marks_log: bool = False,
        is_exclusive: bool = False,
    ) -> Self:
        """Open the file at `path`, creating it if necessary, and upgrade its schema.

        `migrations[n]` upgrades schema n to n + 1. With `marks_log`, a marker file exists while the
        write-ahead log has commits, so that `is_log_lost` detects the loss of the log. With
        `is_exclusive`, no other process can open the database. SQLite then maps no file into
        memory; a mapped file that another program truncates kills the process. Raises OSError if
        the file cannot be created, and StoreError if SQLite cannot open the file or a newer
        zonedrive wrote it.
        """
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with ExitStack() as stack, _explained(path, "opened"):
            stack.callback(drop_log_mark, path)  # after the connection is closed
            file = _descriptor(path, os.O_RDWR | os.O_CREAT, stack)
            # Other threads only call `flush` and `checkpoint`, which do not use the connection.
            address = path.absolute().as_uri() + (EXCLUSIVE if is_exclusive else SHARED)
            connection = _connected(address, stack)
            (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
            if mode != "wal":
                raise StoreError(
                    f"{path} cannot be opened: its file system has no shared memory for SQLite",
                    remedy=on_this_machine(),
                )
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute("PRAGMA foreign_keys = ON")
            connection.execute(f"PRAGMA wal_autocheckpoint = {_log_pages(path.parent)}")
            _migrate(path, connection, migrations)
            log = _descriptor(sibling(path, "-wal"), os.O_RDONLY, stack)
            database = cls(path, connection, stack.pop_all(), log, file)
            database._address = address
            database._marks_log = marks_log
            return database
        raise AssertionError

    @classmethod
    def read(cls, path: Path, migrations: Sequence[Migration]) -> Self:
        """Open the file at `path` for reading, without changing the file or its log.

        The write-ahead log of a killed daemon is read as well. A file with an older schema is
        copied to memory and upgraded there. A missing file and a file of 0 bytes count as a new
        database. A file of 0 bytes is not opened, because SQLite would delete its log. Raises
        StoreError as `open` does, and OSError if the disk has no room for a temporary copy.
        """
        with ExitStack() as stack, _explained(path, "read"):
            has_pages = path.exists() and path.stat().st_size
            connection = _read_only(path, stack) if has_pages else _connected(":memory:", stack)
            (schema,) = connection.execute("PRAGMA user_version").fetchone()
            if schema != len(migrations):
                copy = _connected(":memory:", stack)
                connection.backup(copy)
                connection.close()
                _migrate(path, copy, migrations)
                connection = copy
            connection.execute("PRAGMA query_only = ON")
            return cls(path, connection, stack.pop_all())
        raise AssertionError

    @property
    def identity(self) -> str:
        """Random identifier of this file (8 hex digits); a new file gets another identifier."""
        (number,) = self._connection.execute("PRAGMA application_id").fetchone()
        return f"{number:08x}"

    @property
    def is_read_only(self) -> bool:
        """True if the file was opened with `read`."""
        return bool(self._connection.execute("PRAGMA query_only").fetchone()[0])

    def renew_identity(self) -> None:
        """Replace the database's identifier by a random one."""
        self.execute(_new_identity())

    def transaction(self) -> "Transaction":
        """Return a context manager that runs its `with` block as one transaction.

        The statements in the block take effect together or not at all. Transactions may be nested:
        the outermost one commits or rolls back everything. Code that also holds rows in memory
        calls `on_rollback` to register how to undo a change of these rows. A block that only reads
        begins no transaction of SQLite.
        """
        return Transaction(self)

    def _begin(self) -> bool:
        """Begin a transaction and return True, or return False inside another transaction."""
        if self._undo is not None:
            return False
        self._undo, self._afterwards = [], []
        return True

    def _commit(self) -> None:
        """Commit the transaction and call the functions that `after_commit` has registered.

        If the commit fails, roll back and raise OSError or StoreError.
        """
        try:
            if self._connection.in_transaction:
                self._run(self._connection.execute, "COMMIT", ())
        except BaseException as wrong:
            self._roll_back(wrong)
            raise
        self._undo = None
        if self._marks_log and not self._is_log_marked:
            self._mark_log()
        for step in self._afterwards:
            step()

    def _mark_log(self) -> None:
        """Create the marker file if the log has commits.

        An OSError is ignored, so the marker may be missing although the log has commits. The log is
        synced first, so that a power cut does not leave the marker beside an empty log.
        """
        log = self._descriptors[0]
        if not os.fstat(log).st_size:
            return
        self._is_log_marked = True  # also after a failure: a sync for each commit takes long
        with suppress(OSError):
            os.fsync(log)
            os.close(os.open(_log_mark(self.path), os.O_WRONLY | os.O_CREAT, 0o600))

    def _roll_back(self, wrong: BaseException | None) -> None:
        """Undo all changes of the transaction, in the file and in memory.

        `wrong` is the error that ended the transaction. If the disk is full, or a file has reached
        the limit of file sizes, the log is truncated, to free space for the next transaction.
        """
        try:
            if self._connection.in_transaction:  # a full disk may have rolled back already
                self._connection.execute("ROLLBACK")
            for step in reversed(self._undo or []):
                step()
        finally:
            self._undo = None
        if isinstance(wrong, OSError) and wrong.errno in (errno.ENOSPC, errno.EFBIG):
            self._unmark_log()
            with suppress(sqlite3.Error):  # frees space for the next transaction
                self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()

    def on_rollback(self, step: Callable[[], object]) -> None:
        """Register `step` to be called if the open transaction is rolled back.

        Registered functions are called in reverse order of registration. Raises AssertionError if
        no transaction is open.
        """
        if self._undo is None:
            raise AssertionError("a change outside a transaction")
        self._undo.append(step)

    def restore_on_rollback(self, values: dict[K, V], key: K) -> None:
        """Ensure that a rollback of the open transaction restores `values[key]`.

        Call this method before the change of `values[key]`. If the key is missing now, the rollback
        removes the key.
        """
        before = values.get(key)
        if before is None:
            self.on_rollback(lambda: values.pop(key, None))
        else:
            self.on_rollback(lambda: values.__setitem__(key, before))

    def assign(self, target: object, **values: object) -> None:
        """Set attributes of `target`, and restore them if the open transaction is rolled back."""
        before = {name: getattr(target, name) for name in values}
        self.on_rollback(lambda: _assign(target, before))
        _assign(target, values)

    def after_commit(self, step: Callable[[], object]) -> None:
        """Call `step` after the commit of the open transaction, or at once if none is open.

        Use this method for steps that cannot be undone, such as deleting a file that rows referred
        to before the commit.
        """
        if self._undo is None:
            step()
        else:
            self._afterwards.append(step)

    def execute(self, sql: str, parameters: Sequence[object] = ()) -> sqlite3.Cursor:
        """Run one statement with its `?` parameters and return the cursor.

        Raises OSError if the disk is full, read-only or faulty, and StoreError if the file is
        damaged.
        """
        if self._undo is not None and not sql.startswith(_READS):
            self._begin_writing()
        return self._run(self._connection.execute, sql, parameters)

    def execute_many(self, sql: str, rows: Iterable[Sequence[object]]) -> None:
        """Run one statement once for each row of parameters. Raises the errors of `execute`."""
        if self._undo is not None:
            self._begin_writing()
        self._run(self._connection.executemany, sql, rows)

    def _begin_writing(self) -> None:
        if not self._connection.in_transaction:
            self._run(self._connection.execute, "BEGIN IMMEDIATE", ())

    def _run(self, run: Run, sql: str, parameters: object) -> sqlite3.Cursor:
        """Run a statement, and convert SQLite's errors to the errors that `execute` raises."""
        try:
            return run(sql, parameters)
        except sqlite3.OperationalError as wrong:
            code = getattr(wrong, "sqlite_errorcode", 0)
            number = _ERRNO.get(code) or _ERRNO.get(code & 0xFF)
            if number is None:
                raise
            if number == errno.ENOSPC:
                number = errno.EFBIG if self._is_at_limit() else self._disk_errno()
            raise OSError(number, os.strerror(number), str(self.path)) from wrong
        except (sqlite3.IntegrityError, sqlite3.ProgrammingError):
            raise
        except (sqlite3.DatabaseError, UnicodeDecodeError) as wrong:
            raise StoreError(f"{self.path} is damaged ({wrong})") from wrong

    def _disk_errno(self) -> int:
        """Return the errno of a failed write to the disk, because SQLite does not report the errno.

        The method tests the disk with another write. If the test does not fail with EIO or EROFS,
        return ENOSPC.
        """
        try:
            require_room(self.path.parent)
        except OSError as wrong:
            if wrong.errno in (errno.EIO, errno.EROFS):
                return wrong.errno
        return errno.ENOSPC

    def _is_at_limit(self) -> bool:
        """Return True if a file of the database has reached this process's limit of file sizes."""
        limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
        sizes = (os.fstat(descriptor).st_size for descriptor in self._descriptors)
        return limit != resource.RLIM_INFINITY and max(sizes, default=0) >= limit

    def flush(self) -> None:
        """Wait until all commits are on the disk.

        Call this method in a thread, because a flush takes milliseconds.
        """
        for descriptor in self._descriptors:
            os.fsync(descriptor)

    @property
    def changes(self) -> int:
        """Number of rows changed since the file was opened."""
        return self._connection.total_changes

    def checkpoint(self) -> None:
        """Copy the content of the write-ahead log into the database file.

        Call this in a thread, because it takes milliseconds. SQLite overwrites the log only after
        all of it has been copied. The copy is therefore repeated, at most PASSES times in total,
        to include commits made meanwhile. SQLite's errors are ignored; later commits copy the rest.
        """
        before = None
        with suppress(sqlite3.Error), closing(self._second_connection()) as connection:
            connection.execute("PRAGMA synchronous = NORMAL")
            for _ in range(PASSES):
                found = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
                if found == before:
                    break
                before = found

    def _second_connection(self) -> Connection:
        return sqlite3.connect(f"{self._address}&mode=rw", uri=True, isolation_level=None)

    def close(self) -> None:
        """Copy the write-ahead log into the file and close the file.

        The marker file (see `open`) is deleted before the log. Otherwise, a kill between the two
        deletions would look like a loss of the log.
        """
        self._unmark_log()
        self._resources.close()

    def _unmark_log(self) -> None:
        if self._is_log_marked:
            self._is_log_marked = False
            with suppress(OSError):
                _log_mark(self.path).unlink(missing_ok=True)


class Transaction:
    """Context manager that `Database.transaction` returns.

    The context manager is a class because a generator-based one takes twice as long.
    """

    __slots__ = ("_database", "_outermost")

    def __init__(self, database: Database) -> None:
        self._database = database
        self._outermost = False

    def __enter__(self) -> None:
        self._outermost = self._database._begin()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        wrong: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not self._outermost:
            return
        if wrong is None:
            self._database._commit()
        else:
            self._database._roll_back(wrong)


def _assign(target: object, values: Mapping[str, object]) -> None:
    for name, value in values.items():
        setattr(target, name, value)


def _connected(place: Path | str, stack: ExitStack) -> Connection:
    """Return a new connection, which is closed together with `stack`.

    `place` is a path or, as a string, a URI or ":memory:".
    """
    return stack.enter_context(
        closing(
            sqlite3.connect(
                place, uri=isinstance(place, str), isolation_level=None, check_same_thread=False
            )
        )
    )


def _descriptor(path: Path, flags: int, stack: ExitStack) -> int:
    descriptor = os.open(path, flags, 0o600)
    stack.callback(os.close, descriptor)
    return descriptor


@contextmanager
def _explained(path: Path, done: str) -> Iterator[None]:
    """Convert SQLite errors in the `with` block to StoreError; `done` is "opened" or "read".

    A name in the schema that is not UTF-8 counts as an SQLite error.
    """
    try:
        yield
    except (sqlite3.DatabaseError, UnicodeDecodeError) as wrong:
        full = getattr(wrong, "sqlite_errorcode", 0) == sqlite3.SQLITE_FULL
        remedy = "make room on that disk" if full else DOCTOR
        raise StoreError(f"{path} cannot be {done} ({wrong})", remedy=remedy) from wrong


def _migrate(path: Path, connection: Connection, migrations: Sequence[Migration]) -> None:
    (found,) = connection.execute("PRAGMA user_version").fetchone()
    if found > len(migrations):
        raise StoreError(
            f"{path} was written by a newer zonedrive (schema {found})",
            remedy="upgrade zonedrive",
        )
    for number in range(found, len(migrations)):
        connection.execute("BEGIN IMMEDIATE")
        try:
            if number == 0:
                connection.execute(_new_identity())
            migrations[number](connection)
            connection.execute(f"PRAGMA user_version = {number + 1}")
        except BaseException:
            connection.execute("ROLLBACK")
            raise
        connection.execute("COMMIT")


def _new_identity() -> str:
    """Return the SQL statement that gives a database a new identifier."""
    return f"PRAGMA application_id = {1 + secrets.randbelow((1 << 31) - 1)}"


def is_empty(path: Path) -> bool:
    """Return True if the existing database at `path` has no schema.

    Changes neither the database nor its `-wal` and `-shm` files. Raises StoreError if SQLite cannot
    read the database, and OSError as `Database.read` does.
    """
    if not path.stat().st_size:
        return True
    with ExitStack() as stack, _explained(path, "read"):
        (schema,) = _read_only(path, stack).execute("PRAGMA user_version").fetchone()
        return not schema
    raise AssertionError


def is_log_lost(path: Path) -> bool:
    """Return True if the write-ahead log of the database at `path` had commits and is lost.

    The database then has an older state. Detects only the loss of a log for which `Database.open`
    was called with `marks_log`.
    """
    log = sibling(path, "-wal")
    return _log_mark(path).exists() and not (log.exists() and log.stat().st_size)


def drop_log_mark(path: Path) -> None:
    """Delete the marker file of the write-ahead log if SQLite has deleted the log.

    Call this after closing a connection: SQLite deletes the log when the last connection is closed.
    """
    mark = _log_mark(path)
    with suppress(OSError):
        if mark.exists() and not sibling(path, "-wal").exists():
            mark.unlink()


def _log_mark(path: Path) -> Path:
    """Return the path of the file that exists while the write-ahead log has commits."""
    return sibling(path, LOG_MARK)


def _read_only(path: Path, stack: ExitStack) -> Connection:
    """Return a connection that reads a database without changing any of its files.

    SQLite keeps an index (`-shm`) of the write-ahead log (`-wal`). Normally, SQLite writes to the
    index, and creates log and index if they are missing. The connection avoids such changes:

    - If there is no log, SQLite needs no index (`immutable`).
    - If log and index exist, SQLite builds a separate index in memory (`readonly_shm`).
    - If a daemon has the database open, SQLite uses and locks the daemon's index instead.
    - If the index is missing, needs a repair, or stays locked for seconds, a temporary copy of the
      database is read. A daemon that keeps the index locked was stopped in the middle of a commit,
      so the database does not change while it is copied.
    """
    log, index = sibling(path, "-wal"), sibling(path, "-shm")
    uri = f"{path.absolute().as_uri()}?mode=ro"
    if not log.exists() or not (log.stat().st_size or index.exists()):
        return _looked_at(f"{uri}&immutable=1", stack)
    if not index.exists():  # not copied from another machine or a backup
        return _copied(path, log, stack)
    try:
        return _looked_at(f"{uri}&readonly_shm=1", stack)
    except sqlite3.OperationalError as wrong:
        code = getattr(wrong, "sqlite_errorcode", 0)
        if code & 0xFF not in (sqlite3.SQLITE_READONLY, *_LOCKED):
            raise
        stack.close()
        if code == sqlite3.SQLITE_READONLY_CANTLOCK:
            return _looked_at(uri, stack)
        return _copied(path, log, stack)


def _looked_at(uri: str, stack: ExitStack) -> Connection:
    connection = _connected(uri, stack)
    connection.execute("PRAGMA schema_version").fetchone()  # raises the errors of the file
    return connection


def _log_pages(folder: Path) -> int:
    """Return the length of the log, in pages, at which a commit runs a checkpoint.

    The result is LOG_PAGES, but on a small disk at most 1/LOG_PART of the disk, because the
    database and its log share the disk space that the spool leaves free. The size of the disk is
    ignored if the file system does not report a size.
    """
    disk = os.statvfs(folder)
    pages = disk.f_blocks * disk.f_frsize // LOG_PART // PAGE
    return min(LOG_PAGES, pages) if pages else LOG_PAGES


def _copied(path: Path, log: Path, stack: ExitStack) -> Connection:
    """Return a connection to a temporary copy of the file and its log.

    The copy is already deleted when the function returns, but the connection can still read it.
    Raises OSError if no folder has room for the copy.
    """
    for place in _copy_folders():
        _remove_leftovers(place)
        with (
            suppress(OSError),
            tempfile.TemporaryDirectory(prefix=f"{_COPY}{os.getpid()}-", dir=place) as folder,
        ):
            for each in (path, log):
                shutil.copyfile(each, Path(folder, each.name))
            connection = _connected(Path(folder, path.name), stack)
            # The index of the log is then in memory, so the folder is no longer needed.
            connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            connection.execute("PRAGMA schema_version").fetchone()
            return connection
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))


def _copy_folders() -> Iterator[Path]:
    yield Path("/dev/shm")  # noqa: S108 - private
    if runtime := given_runtime_dir():
        yield runtime
    with suppress(FileNotFoundError):  # none is writable
        yield Path(tempfile.gettempdir())


def _remove_leftovers(place: Path) -> None:
    """Delete the temporary copies that this user's killed processes left in the folder `place`.

    Copies of other users are ignored. Otherwise, a user who keeps adding files to such a copy could
    keep this process busy forever.
    """
    for each in place.glob(f"{_COPY}*"):
        process = each.name.removeprefix(_COPY).partition("-")[0]
        with suppress(OSError):
            if each.lstat().st_uid == os.geteuid() and not Path("/proc", process).exists():
                shutil.rmtree(each, ignore_errors=True)


def sibling(path: Path, suffix: str) -> Path:
    """Return `path` with `suffix` appended to the file name."""
    return path.with_name(path.name + suffix)
