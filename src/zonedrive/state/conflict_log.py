"""Table of conflict copies, with a mark for those that the user has been told about.

Knows nothing about the cause of a conflict.  The caller holds the transaction.
"""

import sqlite3
from collections.abc import Iterable

import msgspec

from zonedrive.cipher import Box
from zonedrive.db import Database
from zonedrive.state.column_crypto import opened, sealed

_USE = b"conflict by"


class Conflict(msgspec.Struct, frozen=True):
    """Conflict copy: a local version that was kept next to a coworker's version."""

    ino: int  # of the copy
    original: int  # ino of the file it is a copy of
    by: str  # user id of the other version's author
    at_ns: int


def create_table(connection: sqlite3.Connection) -> None:
    """Create the table of the first schema."""
    connection.execute(
        """
        CREATE TABLE conflicts (
            ino INTEGER PRIMARY KEY,      -- the copy
            original INTEGER NOT NULL,    -- the file whose name the other version kept
            by TEXT NOT NULL,             -- user id of its author; sealed
            at_ns INTEGER NOT NULL        -- when it was noticed (wall clock)
        )
        """
    )


def add_told(connection: sqlite3.Connection) -> None:
    """Migrate to the fifth schema: record which conflicts the user has been told about.

    Existing conflicts count as told.
    """
    connection.execute("ALTER TABLE conflicts ADD COLUMN told INTEGER NOT NULL DEFAULT 1")


def end_with_inodes(connection: sqlite3.Connection) -> None:
    """Migrate to the seventh schema: delete a conflict together with the row of its copy."""
    connection.execute("DELETE FROM conflicts WHERE ino NOT IN (SELECT ino FROM inodes)")
    connection.execute(
        "CREATE TRIGGER conflicts_end AFTER DELETE ON inodes"
        " BEGIN DELETE FROM conflicts WHERE ino = OLD.ino; END"
    )


class ConflictLog:
    """Table of conflict copies."""

    def __init__(self, database: Database, box: Box) -> None:
        self._database = database
        self._box = box

    def add(self, conflict: Conflict) -> None:
        """Record a conflict copy."""
        self._database.execute(
            "INSERT OR REPLACE INTO conflicts (ino, original, by, at_ns, told)"
            " VALUES (?, ?, ?, ?, 0)",
            (
                conflict.ino,
                conflict.original,
                sealed(self._box, conflict.by, _USE),
                conflict.at_ns,
            ),
        )

    def all(self) -> list[Conflict]:
        """Return all recorded conflict copies."""
        rows = self._database.execute("SELECT ino, original, by, at_ns FROM conflicts")
        return [
            Conflict(ino, original, str(opened(self._box, by, _USE)), at_ns)
            for ino, original, by, at_ns in rows
        ]

    def unacknowledged(self) -> set[int]:
        """Return the inodes of copies that the user has not been told about."""
        return {
            ino for (ino,) in self._database.execute("SELECT ino FROM conflicts WHERE NOT told")
        }

    def tell(self, copies: Iterable[int]) -> None:
        """Record that the user has been told about these copies."""
        for ino in copies:
            self._database.execute("UPDATE conflicts SET told = 1 WHERE ino = ?", (ino,))

    def pass_on(self, ino: int, heir: int) -> None:
        """Reassign a conflict to the inode `heir`, which takes over the copy's identity.

        The inode `heir` may have been a conflict copy itself; its former row is replaced.
        """
        self._database.execute("UPDATE OR REPLACE conflicts SET ino = ? WHERE ino = ?", (heir, ino))

    def drop_dangling(self) -> None:
        """Delete the conflicts that have no inode row; a repaired database may contain some."""
        self._database.execute("DELETE FROM conflicts WHERE ino NOT IN (SELECT ino FROM inodes)")

    def drop(self, ino: int) -> None:
        """Delete the record of a conflict copy."""
        self._database.execute("DELETE FROM conflicts WHERE ino = ?", (ino,))
