"""Repair of a damaged database: its readable rows are copied to a new file.

This module does not interpret the rows. The modules that own the tables make them consistent again
afterwards, while `pending` returns True.

The damaged file is set aside, and is never changed or deleted. A repair has these steps, and a
process may be killed after each of them:

1. The new database is filled in the same folder as the old database.
2. A marker file is written, which contains the future name of the damaged file.
3. The old database is renamed to that name.
4. The new database is renamed to the name of the old database.
5. The modules that own the tables make them consistent, and the marker file is deleted.

If rows are lost without damage, because the database or its write-ahead log is missing or empty,
the marker file is written, and the database is used as it is.

INVARIANT: while the marker file exists, no data is deleted to which a lost row may have referred.
"""

import contextlib
import functools
import logging
import os
import re
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import cast

from zonedrive.db import (
    Connection,
    Database,
    Migration,
    drop_log_mark,
    is_damage,
    is_empty,
    is_log_lost,
    sibling,
)
from zonedrive.errors import Damaged, StoreError
from zonedrive.failpoint import Place, reached
from zonedrive.paths import sync_folder, write_private
from zonedrive.translation import marked

log = logging.getLogger(__name__)

PROBES = 20_000  # failed reads of row ranges after which the rest of a table is skipped
_SUFFIXES = ("", "-wal", "-shm")
_ASIDE = r"\.damaged-[0-9-]+"  # after the name of the database: a file that was set aside
MISSING = "missing"
"""Name in the marker file if rows were lost, but no damaged file was set aside."""
LIMIT = 1 << 40
"""Number that is greater than any inode number: a row or a counter that has it is damaged."""
_LAST_INO = (  # without a damaged value
    f"SELECT max(seq) FROM sqlite_sequence WHERE typeof(seq) = 'integer' AND seq < {LIMIT}"  # noqa: S608 - a number
)

REPAIR = "run 'zonedrive mount DIR', which repairs it; what waits is kept"

_PARTS = "SELECT type, name FROM sqlite_schema"

SMALL = 24 << 20  # bytes of a database that is checked completely, in a few tenths of a second

Conditions = Mapping[str, Sequence[str]]
"""SQL conditions for rows that the service cannot restore, by table."""

Accept = Callable[[str, Mapping[str, object]], bool]
"""Function that returns True if a row of a table (values by column name) is valid."""


class WrongKey(StoreError):
    """Error for a database in which no encrypted row can be read, so that the key must be wrong."""


def open_sound(
    path: Path,
    migrations: Sequence[Migration],
    accept: Accept,
    used: int = 0,
    only_here: Conditions | None = None,
) -> Database:
    """Open the database at `path`; if it is damaged, repair it first.

    `used` is the highest inode number in the spool, or 0; a repair never gives a new row a number
    up to `used`. If `loss` returns a reason, the database is used as it is, but `pending` returns
    True. In a large database, only the rows that match a condition in `only_here` are checked.

    Raises WrongKey if `accept` rejects several rows and accepts no encrypted row. Raises StoreError
    if the database cannot be opened for another reason or was written by a newer zonedrive.
    """
    if not pending(path) and (lack := loss(path, is_used=bool(used))):
        log.error("%s has lost rows: %s", path, lack)
        write_private(_mark(path), MISSING.encode())
    _finish(path)
    try:
        database = Database.open(path, migrations, marks_log=True)
    except StoreError as wrong:
        if not is_damage(wrong.__cause__):
            raise
        return _salvage(path, migrations, accept, used, str(wrong))
    large = path.stat().st_size > SMALL and not _fault_mark(path).exists()
    try:
        why = _damaged_schema(database, migrations)
        why = why or _fault(database, accept, only_here if large else None)
    except WrongKey:
        database.close()
        raise
    except (StoreError, sqlite3.DatabaseError, UnicodeDecodeError) as wrong:
        why = str(wrong)
    except BaseException:
        database.close()
        raise
    with contextlib.ExitStack() as stack:
        stack.callback(database.close)
        if not why:
            if pending(path):
                with database.transaction():
                    _use_up(database, database.execute, used)
                    database.renew_identity()  # numbers of lost rows may be in the cache
            _fault_mark(path).unlink(missing_ok=True)
            stack.pop_all()
            return database
    return _salvage(path, migrations, accept, used, why)


def loss(path: Path, *, is_used: bool) -> str:
    """Return the evidence that the database at `path` has lost rows, or "" if there is none.

    `is_used` is True if the spool has files. A damaged database is not examined. The function
    changes no file.
    """
    if not path.exists():
        return marked("it is missing") if is_used else ""
    if is_log_lost(path):
        return marked("its write-ahead log is missing")
    with contextlib.suppress(StoreError, OSError):
        return marked("it is empty") if is_used and is_empty(path) else ""
    return ""


def pending(path: Path) -> bool:
    """Return True if a repair may have lost rows, and `done` has not been called since."""
    return _mark(path).exists()


def damaged_name(path: Path) -> str:
    """Return the name of the damaged file that was set aside. Call while `pending` is True.

    Return MISSING if no file was set aside, or if the marker file with the name is damaged, too.
    """
    name = _mark(path).read_text("utf-8", "replace").strip()
    return name if re.fullmatch(re.escape(path.name) + _ASIDE, name, re.ASCII) else MISSING


def done(path: Path) -> None:
    """End the repair, so that `pending` returns False.

    Call this function when the tables are consistent and durable.
    """
    _mark(path).unlink()


def inspect(path: Path) -> str:
    """Check the structure of a large open database; return a description of the fault, or "".

    The next start of the daemon repairs a fault. The check takes seconds, so call this function
    in a thread. A small database is not checked, because `open_sound` checks such a database
    completely.
    """
    if path.stat().st_size <= SMALL:
        return ""
    try:
        with contextlib.closing(sqlite3.connect(path)) as connection:
            why = structure(connection.execute)
    except sqlite3.DatabaseError as wrong:
        why = str(wrong) if is_damage(wrong) else ""
    drop_log_mark(path)  # if the database was closed meanwhile
    if why:
        _note_fault(path, why)
    return why


@contextlib.contextmanager
def noting_damage(path: Path) -> Iterator[None]:
    """Record damage that the `with` block finds, so that the next start repairs the database.

    Such damage is possible because `open_sound` checks only some rows of a large database. Raises
    StoreError if the block finds damage.
    """
    try:
        yield
    except (StoreError, sqlite3.DatabaseError) as wrong:
        is_row = isinstance(wrong, Damaged)
        if not (is_row or is_damage(wrong) or is_damage(wrong.__cause__)):
            raise
        _note_fault(path, str(wrong))
        raise StoreError(f"{path} is damaged", remedy=REPAIR) from wrong


def note_row(database: Database, why: str) -> None:
    """Record a damaged row that a running daemon has read, so that the next start repairs it.

    Do nothing if a fault is recorded already, or if the database is only read.
    """
    if not (database.is_read_only or has_fault(database.path)):
        with contextlib.suppress(OSError):  # such as a full disk; the next read tries again
            _note_fault(database.path, why)


def _note_fault(path: Path, why: str) -> None:
    write_private(_fault_mark(path), why.encode())
    log.error("%s is damaged (%s): it is repaired at the next start", path, why)


def has_fault(path: Path) -> bool:
    """Return True if a fault was found in the database, and has not been repaired since."""
    return _fault_mark(path).exists()


def structure(execute: Callable[[str], sqlite3.Cursor]) -> str:
    """Return the first structural error of a database, or "". Reads the whole database."""
    (said,) = execute("PRAGMA integrity_check(1)").fetchone()
    return "" if said == "ok" else str(said).splitlines()[-1]


def _fault_mark(path: Path) -> Path:
    """Return the path of the marker file that exists after a fault was found."""
    return sibling(path, ".doubt")


def _mark(path: Path) -> Path:
    return sibling(path, ".salvage")


def _new(path: Path) -> Path:
    return sibling(path, ".new")


def _fault(database: Database, accept: Accept, only_here: Conditions | None) -> str:
    """Return a description of the database's fault, or "".

    If `only_here` is given, check only the rows that match its conditions, and not the structure.
    Raises WrongKey as `open_sound` does, and StoreError or sqlite3.DatabaseError if the database
    cannot be read.
    """
    if only_here is None and (said := structure(database.execute)):
        return said
    bad = opened = 0
    for table in _tables(database.execute):
        conditions = (only_here or {}).get(table, ("true",))
        for row in _looked_at(database.execute, table, conditions):
            whole = accept(table, row)
            bad += not whole
            opened += whole and "sealed" in row
    if bad > 1 and not opened:
        raise WrongKey(
            f"{database.path} cannot be read with the key of this account",
            remedy="was the setting 'encrypt' changed, or the keyring emptied?",
        )
    if bad:
        return f"{bad} rows fail their check"
    return "the last inode number is damaged" if _has_wrong_counter(database) else ""


def _has_wrong_counter(database: Database) -> bool:
    """Return True if a new inode could get the number of an existing inode, or an invalid number.

    SQLite changes the counter together with the rows, so they differ only if the file is damaged.
    """
    last = database.execute(_LAST_INO + " AND name = 'inodes'").fetchone()[0] or 0
    number = database.execute("SELECT count(*) FROM sqlite_sequence WHERE name = 'inodes'")
    highest = database.execute("SELECT max(ino) FROM inodes").fetchone()[0] or 0
    return bool(last < highest or (number.fetchone()[0] and not last))


@functools.cache
def _schema(
    migrations: tuple[Migration, ...],
) -> tuple[frozenset[tuple[str, str]], dict[str, list[str]]]:
    """Return the schema that the migrations create.

    The result has the type and name of each part, and the columns of each table.
    """
    with contextlib.closing(sqlite3.connect(":memory:")) as fresh:
        for migrate in migrations:
            migrate(fresh)
        tables = (*_tables(fresh.execute), "sqlite_sequence")
        columns = {table: _columns(fresh.execute, table) for table in tables}
        return frozenset(fresh.execute(_PARTS)), columns


def _damaged_schema(database: Database, migrations: Sequence[Migration]) -> str:
    """Return the first part of the schema that is missing or cannot be used, or "".

    Statements that change each table are compiled, but not run: SQLite reads the text of a trigger
    only when it compiles such a statement. Raises sqlite3.DatabaseError or StoreError if the schema
    cannot be read or a statement cannot be compiled.
    """
    parts, columns_of = _schema(tuple(migrations))
    for kind, name in sorted(parts - {*database.execute(_PARTS)}):
        return f"the schema lacks the {kind} {name}"
    for table, columns in columns_of.items():
        if lost := set(columns) - {*_columns(database.execute, table)}:
            return f"the schema lacks {min(lost)} of {table}"
    for table, columns in columns_of.items():
        if table == "sqlite_sequence":  # only SQLite changes it
            continue
        for change in (
            f"INSERT INTO {table} DEFAULT VALUES",
            f"UPDATE {table} SET {', '.join(f'{each} = {each}' for each in columns)}",  # noqa: S608
            f"DELETE FROM {table}",  # noqa: S608
        ):
            database.execute(f"EXPLAIN {change}").close()
    return ""


def _looked_at(
    execute: Callable[[str], sqlite3.Cursor], table: str, conditions: Sequence[str]
) -> Iterator[dict[str, object]]:
    for condition in conditions:
        cursor = execute(f"SELECT * FROM {table} WHERE {condition}")  # noqa: S608 - of the schema
        names = [column[0] for column in cursor.description]
        for row in cursor:
            yield dict(zip(names, row, strict=True))


def _tables(execute: Callable[[str], sqlite3.Cursor]) -> list[str]:
    rows = execute("SELECT name FROM sqlite_schema WHERE type = 'table'")
    return [name for (name,) in rows if not name.startswith("sqlite_")]


def _salvage(
    path: Path, migrations: Sequence[Migration], accept: Accept, used: int, why: str
) -> Database:
    # The form of the name is _ASIDE.
    name = f"{path.name}.damaged-{time.strftime('%Y%m%d-%H%M%S')}-{time.time_ns() % 1000:03}"
    for suffix in _SUFFIXES:
        sibling(_new(path), suffix).unlink(missing_ok=True)
    new = Database.open(_new(path), migrations)
    try:
        rows = _fill(new, path, accept, used)
    finally:
        new.close()
    with _new(path).open("rb") as file:
        os.fsync(file.fileno())
    reached(Place.SALVAGE_FILLED)
    write_private(_mark(path), name.encode())
    log.error("%s is damaged (%s): moved to %s; %d rows are recovered", path, why, name, rows)
    path.rename(path.with_name(name))
    reached(Place.SALVAGE_ASIDE)
    _finish(path)
    reached(Place.SALVAGE_PLACED)
    _fault_mark(path).unlink(missing_ok=True)
    return Database.open(path, migrations, marks_log=True)


def _finish(path: Path) -> None:
    """Put the new database in place if a repair has already renamed the damaged file."""
    if not pending(path) or path.exists():
        return
    for suffix in _SUFFIXES[1:]:  # they belong to the old database
        with contextlib.suppress(FileNotFoundError):
            sibling(path, suffix).rename(path.with_name(damaged_name(path) + suffix))
    drop_log_mark(path)
    with contextlib.suppress(FileNotFoundError):
        _new(path).rename(path)
    sync_folder(path.parent)


# ---- reading a damaged database ----


def _fill(new: Database, path: Path, accept: Accept, used: int) -> int:
    """Copy the readable rows to the new database; return their number."""
    copy = sibling(path, ".reading")
    for suffix in _SUFFIXES[:2]:  # read a copy, because SQLite may write to the files
        source = sibling(path, suffix)
        sibling(copy, suffix).unlink(missing_ok=True)
        if source.exists():
            shutil.copyfile(source, sibling(copy, suffix))
    taken, highest = 0, used
    try:
        _restore_schema(copy, new)
        with contextlib.closing(sqlite3.connect(copy)) as old, new.transaction():
            old.execute("PRAGMA writable_schema = ON")  # a damaged index does not hide the tables
            for table in _tables(new.execute):
                columns = _columns(new.execute, table)
                for row in _rows(old, table):
                    if not accept(table, row) or (ino := cast(int, row.get("ino", 0))) >= LIMIT:
                        continue
                    if _take(new, table, columns, row):
                        taken += 1
                        highest = max(highest, ino)
            _use_up(new, old.execute, highest)
    finally:
        for suffix in _SUFFIXES:
            sibling(copy, suffix).unlink(missing_ok=True)
    return taken


def _restore_schema(copy: Path, new: Database) -> None:
    """Replace the definitions of the tables in `copy`, if both databases have the same schema.

    A definition with a damaged character may have other columns, which hold values of the next
    ones.
    """
    execute = new.execute
    with (
        contextlib.suppress(sqlite3.DatabaseError),
        contextlib.closing(sqlite3.connect(copy, isolation_level=None)) as old,
    ):
        old.execute("PRAGMA writable_schema = ON")
        version = "PRAGMA user_version"
        if old.execute(version).fetchone() == execute(version).fetchone():
            for row in execute("SELECT sql, name FROM sqlite_schema WHERE type = 'table'"):
                old.execute("UPDATE sqlite_schema SET sql = ? WHERE name = ?", row)


def _columns(execute: Callable[[str], sqlite3.Cursor], table: str) -> list[str]:
    return [name for (name,) in execute(f"SELECT name FROM pragma_table_info('{table}')")]  # noqa: S608


def _take(new: Database, table: str, columns: list[str], row: Mapping[str, object]) -> bool:
    known = [name for name in columns if name in row]
    marks = ", ".join("?" for _ in known)
    try:
        new.execute(
            f"INSERT OR IGNORE INTO {table} ({', '.join(known)}) VALUES ({marks})",  # noqa: S608
            [row[name] for name in known],
        )
    except sqlite3.IntegrityError:
        return False
    return True


def _use_up(new: Database, old: Callable[[str], sqlite3.Cursor], highest: int) -> None:
    """Prevent the reuse of inode numbers up to `highest` and of those used in `old`.

    `old` executes a statement in the old database. Damaged numbers are ignored.
    """
    highest = highest if highest < LIMIT else 0
    with contextlib.suppress(sqlite3.DatabaseError):
        highest = max(highest, *(seq or 0 for (seq,) in old(_LAST_INO)))
    new.execute("DELETE FROM sqlite_sequence WHERE name = 'inodes'")
    new.execute("INSERT INTO sqlite_sequence (name, seq) VALUES ('inodes', ?)", (highest,))


def _rows(old: Connection, table: str) -> Iterator[dict[str, object]]:
    """Yield the readable rows of a table.

    A range of rows that cannot be read is divided into halves, which are read separately.
    """
    seen: set[int] = set()
    ranges = [(-1, _last(old, table))]
    vain = 0
    while ranges and vain < PROBES:
        low, high = ranges.pop()
        try:
            cursor = old.execute(
                f"SELECT rowid AS salvaged, * FROM {table} WHERE rowid BETWEEN ? AND ?",  # noqa: S608
                (low, high),
            )
            names = [column[0] for column in cursor.description]
            for row in cursor:
                if row[0] not in seen:
                    seen.add(row[0])
                    yield dict(zip(names[1:], row[1:], strict=True))
        except (sqlite3.DatabaseError, OverflowError, UnicodeDecodeError):
            vain += 1
            if low < high:
                middle = (low + high) // 2
                ranges += [(middle + 1, high), (low, middle)]


def _last(old: Connection, table: str) -> int:
    """Return an upper bound of the row numbers in the readable part of a table."""
    for question in (
        f"SELECT max(rowid) FROM {table}",  # noqa: S608 - of the schema
        _LAST_INO,
    ):
        with contextlib.suppress(sqlite3.DatabaseError):
            (found,) = old.execute(question).fetchone()
            if found is not None:
                return int(found)
    return PROBES
