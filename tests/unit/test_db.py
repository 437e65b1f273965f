"""Checkpoints of a database's write-ahead log."""

import errno
import os
import resource
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from zonedrive import db
from zonedrive.db import Connection, Database
from zonedrive.errors import StoreError


def _create(connection: Connection) -> None:
    connection.execute("CREATE TABLE words (word TEXT)")


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    """Return a database with an empty log."""
    made = Database.open(tmp_path / "words.db", [_create])
    made.checkpoint()
    yield made
    made.close()


def add(database: Database, *words: str) -> None:
    """Commit a row."""
    with database.transaction():
        database.execute_many("INSERT INTO words VALUES (?)", [(word,) for word in words])


def in_the_file(database: Database) -> list[str]:
    """Return the content of the file without its log."""
    uri = f"{database.path.as_uri()}?immutable=1"
    with closing(sqlite3.connect(uri, uri=True)) as connection:
        return [word for (word,) in connection.execute("SELECT word FROM words")]


class Busy:
    """Connection whose database is written during its work."""

    def __init__(self, connection: Connection, database: Database, commits: int) -> None:
        self._connection, self._database, self._commits = connection, database, commits
        self.passes = 0

    def execute(self, sql: str) -> sqlite3.Cursor:
        cursor = self._connection.execute(sql)
        if "wal_checkpoint" in sql:
            self.passes += 1
            if self.passes <= self._commits:
                add(self._database, f"during pass {self.passes}")
        return cursor

    def close(self) -> None:
        self._connection.close()


@pytest.mark.parametrize("commits", [0, 1, 5])
def test_a_checkpoint_moves_what_is_committed_meanwhile(
    database: Database, monkeypatch: pytest.MonkeyPatch, commits: int
) -> None:
    """A checkpoint ends soon, even if rows are written all the time."""
    add(database, "before")
    assert in_the_file(database) == []
    second = Busy(database._second_connection(), database, commits)
    monkeypatch.setattr(database, "_second_connection", lambda: second)
    database.checkpoint()
    assert 2 <= second.passes <= db.PASSES
    moved = [f"during pass {number + 1}" for number in range(min(commits, second.passes - 1))]
    assert in_the_file(database) == ["before", *moved]


def test_the_log_restarts_after_a_checkpoint(database: Database) -> None:
    """The log does not grow after a checkpoint, and no commit waits for the disk."""
    log = database.path.with_name(database.path.name + "-wal")
    sizes = []
    for number in range(10):
        add(database, *(f"{number} {each}" for each in range(50)))
        database.checkpoint()
        sizes.append(log.stat().st_size)
    assert max(sizes) < 3 * sizes[0]
    assert len(in_the_file(database)) == 500


@pytest.mark.parametrize("flushed", [False, True])
def test_another_program_does_not_delete_the_log_in_use(
    database: Database, tmp_path: Path, flushed: bool
) -> None:
    """A commit survives a program that opens the file and closes it, also after an fsync."""
    add(database, "before")
    if flushed:
        database.flush()
    script = (
        "import sqlite3, sys\n"
        "connection = sqlite3.connect(sys.argv[1])\n"
        "assert connection.execute('SELECT count(*) FROM words').fetchone() == (1,)\n"
        "connection.close()\n"
    )
    subprocess.run([sys.executable, "-c", script, database.path], check=True)
    assert database.path.with_name("words.db-wal").exists()
    add(database, "after")
    with closing(Database.read(database.path, [_create])) as reader:
        found = reader.execute("SELECT word FROM words").fetchall()
    assert found == [("before",), ("after",)]


def test_a_closed_database_has_no_descriptors(tmp_path: Path) -> None:
    """The daemon opens its stores again after a repair, so each open file must be closed."""
    before = set(os.listdir("/proc/self/fd"))
    made = Database.open(tmp_path / "words.db", [_create])
    made.close()
    with pytest.raises(RuntimeError):
        Database.open(tmp_path / "other.db", [_failing])
    assert set(os.listdir("/proc/self/fd")) == before


def _failing(connection: Connection) -> None:
    raise RuntimeError


@pytest.mark.parametrize(
    "code",
    [
        sqlite3.SQLITE_READONLY_CANTINIT,
        sqlite3.SQLITE_READONLY_RECOVERY,
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_PROTOCOL,
    ],
)
def test_a_log_whose_index_cannot_be_used_is_read_from_a_copy(
    database: Database, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """The index needs a repair, or a daemon that was stopped in a commit keeps it locked."""
    add(database, "in the log")
    looked_at = db._looked_at

    def refuse(uri: str, stack: ExitStack) -> Connection:
        if "readonly_shm" not in uri:
            return looked_at(uri, stack)
        wrong = sqlite3.OperationalError("attempt to write a readonly database")
        wrong.sqlite_errorcode = code
        raise wrong

    monkeypatch.setattr(db, "_looked_at", refuse)
    with closing(Database.read(database.path, [_create])) as reader:
        assert reader.execute("SELECT word FROM words").fetchall() == [("in the log",)]


def test_copies_that_a_killed_reader_left_are_deleted(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Copies of running processes stay."""
    add(database, "in the log")
    place = tmp_path / "place"
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    left, used = (place / f"zonedrive-state-{pid}-x" for pid in (ended.pid, os.getppid()))
    for each in (left, used):
        each.mkdir(parents=True)
        (each / "words.db").write_bytes(b"copy")
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    monkeypatch.setattr(db, "given_runtime_dir", lambda: place)
    log = database.path.with_name("words.db-wal")
    with ExitStack() as stack:
        db._remove_leftovers(place)
        connection = db._copied(database.path, log, stack)
        assert connection.execute("SELECT word FROM words").fetchall() == [("in the log",)]
    assert list(place.iterdir()) == [used]


@pytest.mark.usefixtures("as_root")
def test_copies_of_other_users_stay(tmp_path: Path) -> None:
    """Another user may put folders there without end, which would be deleted without end."""
    theirs = tmp_path / "zonedrive-state-999999999-x"
    theirs.mkdir()
    os.chown(theirs, 65534, 65534)
    db._remove_leftovers(tmp_path)
    assert theirs.exists()


def test_a_copy_needs_no_temporary_folder(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copy is in memory; no disk may be writable."""
    add(database, "in the log")
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", list)
    log = database.path.with_name("words.db-wal")
    with ExitStack() as stack:
        connection = db._copied(database.path, log, stack)
        assert connection.execute("SELECT word FROM words").fetchall() == [("in the log",)]


class Failing:
    """Connection to a database whose log cannot be written."""

    in_transaction = False

    def execute(self, _sql: str, _parameters: object) -> sqlite3.Cursor:
        wrong = sqlite3.OperationalError("disk I/O error")
        wrong.sqlite_errorcode = sqlite3.SQLITE_IOERR_WRITE
        raise wrong


@pytest.mark.parametrize(
    ("disk", "told"),
    [
        (None, errno.ENOSPC),
        (errno.EDQUOT, errno.ENOSPC),
        (errno.EIO, errno.EIO),
        (errno.EROFS, errno.EROFS),
    ],
)
def test_a_faulty_disk_is_not_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, disk: int | None, told: int
) -> None:
    """After a failed write, which SQLite does not explain, an attempt to write tells the reason."""

    def written(folder: Path) -> None:
        assert folder == tmp_path
        if disk is not None:
            raise OSError(disk, os.strerror(disk))

    monkeypatch.setattr(db, "require_room", written)
    connection: Any = Failing()
    database = Database(tmp_path / "words.db", connection, ExitStack())
    with pytest.raises(OSError, match=os.strerror(told)) as refused:
        database.execute("INSERT INTO words VALUES (?)", ("one",))
    assert refused.value.errno == told


def test_a_limit_of_file_sizes_is_not_a_full_disk(database: Database) -> None:
    """The error names the limit, and the next transaction has room again."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, hard))
    try:
        with pytest.raises(OSError, match="File too large") as refused:
            add(database, *["a long word" * 100] * 1000)
        add(database, "short")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert refused.value.errno == errno.EFBIG
    assert refused.value.filename == str(database.path)
    assert database.execute("SELECT word FROM words").fetchall() == [("short",)]


def test_a_disk_without_shared_memory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error is not that a file of the database is missing, and has a remedy."""

    monkeypatch.setattr(db, "SHARED", "?vfs=unix-dotfile")  # SQLite's files on such a disk
    with pytest.raises(StoreError) as refused:
        Database.open(tmp_path / "words.db", [_create])
    assert refused.value.remedy
