"""Queries for inodes whose parent folder has no row, and for numbers that have a row.

Knows nothing about the repair of such rows.
"""

from collections.abc import Iterable
from itertools import islice

from zonedrive.db import Database
from zonedrive.state.inode_table import BATCH


def has_homeless(database: Database) -> bool:
    """Return True if the parent folder of some inode has no row; checks each folder once."""
    found = database.execute(
        "WITH RECURSIVE folders (ino) AS (SELECT min(parent) FROM inodes WHERE parent > 0"
        " UNION ALL SELECT (SELECT min(parent) FROM inodes WHERE parent > folders.ino)"
        " FROM folders WHERE folders.ino IS NOT NULL)"
        " SELECT 1 FROM folders WHERE ino IS NOT NULL"
        " AND NOT EXISTS (SELECT 1 FROM inodes WHERE inodes.ino = folders.ino) LIMIT 1"
    )
    return found.fetchone() is not None


def homeless(database: Database) -> list[int]:
    """Return the inodes from which no chain of parent rows leads to the root, including cycles."""
    rows = database.execute(
        "WITH RECURSIVE home (ino) AS (SELECT ino FROM inodes WHERE ino = 1 OR parent = 0"
        " UNION SELECT inodes.ino FROM home JOIN inodes ON inodes.parent = home.ino)"
        " SELECT ino FROM inodes WHERE ino NOT IN (SELECT ino FROM home)"
    )
    return [ino for (ino,) in rows]


def known(database: Database, inos: Iterable[int]) -> set[int]:
    """Return the subset of the numbers that have a row."""
    rest, found = iter(inos), set[int]()
    while batch := list(islice(rest, BATCH)):
        marks = ",".join("?" * len(batch))
        sql = f"SELECT ino FROM inodes WHERE ino IN ({marks})"  # noqa: S608 - question marks
        found |= {ino for (ino,) in database.execute(sql, batch)}
    return found
