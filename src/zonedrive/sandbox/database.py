"""SQLite database in the data folder (--data), with one connection for the event loop's thread.

The tables are defined in `schema`. INVARIANT: no `await` inside a transaction, so that other
requests never see an incomplete transaction.
"""

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from zonedrive.sandbox import schema
from zonedrive.sandbox.errors import SandboxError, unusable

Row = sqlite3.Row


class Database:
    """Database connection with nested transactions."""

    def __init__(self, path: Path) -> None:
        """Open, create or upgrade the database; raise SandboxError if it cannot be used."""
        try:
            # Created first, because the write-ahead log inherits the mode of the database.
            os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
            self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            self._connection.row_factory = sqlite3.Row
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = NORMAL")
            self._connection.execute("PRAGMA foreign_keys = ON")
            (found,) = self._connection.execute("PRAGMA user_version").fetchone()
            if found == 0:
                self._connection.executescript(
                    f"BEGIN IMMEDIATE; {schema.TABLES}{schema.SINCE_2}{schema.SINCE_3}"
                    f"{schema.SINCE_4}"
                    f"PRAGMA user_version = {schema.VERSION}; COMMIT;"
                )
                found = schema.VERSION
            while found in schema.UPGRADES:
                self._connection.executescript(
                    f"BEGIN IMMEDIATE; {schema.UPGRADES[found]}"
                    f"PRAGMA user_version = {found + 1}; COMMIT;"
                )
                found += 1
        except (sqlite3.DatabaseError, OSError) as wrong:
            raise unusable(path, wrong) from wrong
        if found != schema.VERSION:
            raise SandboxError(f"{path} has schema {found}, this sandbox knows {schema.VERSION}")
        self._depth = 0

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Run the `with` block in a transaction; roll the transaction back after an exception.

        A nested transaction is a part of the outermost transaction, and is committed or rolled back
        together with it.
        """
        if self._depth == 0:
            self._connection.execute("BEGIN IMMEDIATE")
        self._depth += 1
        try:
            yield
            if self._depth == 1:
                self._connection.execute("COMMIT")
        except BaseException:
            # SQLite has already ended the transaction after some errors, such as a full disk.
            if self._depth == 1 and self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise
        finally:
            self._depth -= 1

    def run(self, sql: str, *values: Any) -> int:
        """Execute one statement; return the number of changed rows."""
        return self._connection.execute(sql, values).rowcount

    def many(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        """Execute a statement once for each row of values."""
        self._connection.executemany(sql, rows)

    def one(self, sql: str, *values: Any) -> Row | None:
        """Return the first row of the query's result, or None."""
        row: Row | None = self._connection.execute(sql, values).fetchone()
        return row

    def all(self, sql: str, *values: Any) -> list[Row]:
        """Return all rows of the query's result."""
        return self._connection.execute(sql, values).fetchall()

    def scalar(self, sql: str, *values: Any) -> Any:
        """Return the first column of the first row of the query's result, or None."""
        row = self.one(sql, *values)
        return None if row is None else row[0]

    def close(self) -> None:
        """Checkpoint the write-ahead log and close the database."""
        self._connection.close()
