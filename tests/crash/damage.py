"""Damage of a database as by a bad disk: changed pages and bytes."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path

from tests.harness.waiting import eventually
from zonedrive.db import drop_log_mark


def flatten(path: Path) -> None:
    """Copy the write-ahead log into the database file."""

    def flat() -> bool:
        try:
            with closing(sqlite3.connect(path)) as database:
                database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
                database.execute("PRAGMA journal_mode = DELETE").fetchone()
        except sqlite3.OperationalError:  # a killed process releases its locks after a while
            return False
        return True

    eventually(flat, what="nobody has the database open")
    drop_log_mark(path)


def pages_of(path: Path, table: str) -> list[tuple[int, int]]:
    """Return (offset, bytes) of the pages of a table, its root first."""
    with closing(sqlite3.connect(path)) as database:
        (size,) = database.execute("PRAGMA page_size").fetchone()
        (root,) = database.execute(
            "SELECT rootpage FROM sqlite_schema WHERE name = ?", (table,)
        ).fetchone()
    data = path.read_bytes()
    start = (root - 1) * size
    found = [(start, size)]
    if data[start] == 5:  # an interior page of a table: its children
        cells = int.from_bytes(data[start + 3 : start + 5], "big")
        for cell in range(cells):
            place = start + 12 + 2 * cell
            pointer = start + int.from_bytes(data[place : place + 2], "big")
            child = int.from_bytes(data[pointer : pointer + 4], "big")
            found.append(((child - 1) * size, size))
    return found


def overwrite(path: Path, offset: int, size: int) -> None:
    """Overwrite the range with noise."""
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(b"\xa5" * size)
        os.fsync(file.fileno())


def lose_table(path: Path, table: str) -> None:
    """Make the whole table unreadable."""
    flatten(path)
    offset, size = pages_of(path, table)[0]
    overwrite(path, offset, size)
