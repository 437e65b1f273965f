"""The local versions that were kept beside somebody else's, and which a person has heard of.

Must not know how a conflict comes about.  Who calls holds the transaction.
"""

import sqlite3
from collections.abc import Iterable

import msgspec

from zonedrive.cipher import Box
from zonedrive.db import Database
from zonedrive.outbox.sealing import opened, sealed

_USE = b"conflict by"


class Conflict(msgspec.Struct, frozen=True):
    """A local version that was kept beside somebody else's."""

    ino: int  # of the copy
    original: int  # ino of the file it is a copy of
    by: str  # user id of whoever made the other version
    at_ns: int


def create_table(connection: sqlite3.Connection) -> None:
    """Of the first schema."""
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
    """The fifth schema: which conflicts a person has heard of.  Those of before are old news."""
    connection.execute("ALTER TABLE conflicts ADD COLUMN told INTEGER NOT NULL DEFAULT 1")


def end_with_inodes(connection: sqlite3.Connection) -> None:
    """The seventh schema: a row goes with the row of its copy, in the same transaction."""
    connection.execute("DELETE FROM conflicts WHERE ino NOT IN (SELECT ino FROM inodes)")
    connection.execute(
        "CREATE TRIGGER conflicts_end AFTER DELETE ON inodes"
        " BEGIN DELETE FROM conflicts WHERE ino = OLD.ino; END"
    )


class Conflicts:
    """Their table."""

    def __init__(self, database: Database, box: Box) -> None:
        self._database = database
        self._box = box

    def add(self, conflict: Conflict) -> None:
        """Remember a copy that was made."""
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
        """The copies that were made and still exist."""
        rows = self._database.execute("SELECT ino, original, by, at_ns FROM conflicts")
        return [
            Conflict(ino, original, str(opened(self._box, by, _USE)), at_ns)
            for ino, original, by, at_ns in rows
        ]

    def untold(self) -> set[int]:
        """The copies that no person has heard of yet."""
        return {
            ino for (ino,) in self._database.execute("SELECT ino FROM conflicts WHERE NOT told")
        }

    def tell(self, copies: Iterable[int]) -> None:
        """A person has heard of these."""
        for ino in copies:
            self._database.execute("UPDATE conflicts SET told = 1 WHERE ino = ?", (ino,))

    def pass_on(self, ino: int, heir: int) -> None:
        """Another inode takes over the copy's identity; it may have been a copy itself."""
        self._database.execute("UPDATE OR REPLACE conflicts SET ino = ? WHERE ino = ?", (heir, ino))

    def drop_dangling(self) -> None:
        """Drop the rows whose copy has no row: a salvaged database may have such."""
        self._database.execute("DELETE FROM conflicts WHERE ino NOT IN (SELECT ino FROM inodes)")

    def drop(self, ino: int) -> None:
        """The copy is gone."""
        self._database.execute("DELETE FROM conflicts WHERE ino = ?", (ino,))
