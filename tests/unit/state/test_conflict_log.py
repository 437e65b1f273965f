"""Rows of conflicts are deleted with the inode of the copy, in the same transaction."""

from pathlib import Path

import pytest

from zonedrive.db import Database
from zonedrive.state.schema import SCHEMAS

INODE = (
    "INSERT INTO inodes (ino, parent, kind, zone, revision, generation, local, listed, sealed)"
    " VALUES (?, 1, 3, '', '', 0, 0, 0, x'')"
)
CONFLICT = "INSERT INTO conflicts VALUES (?, 1, '', 1, 0)"
SIXTH = 6


def conflicts(database: Database) -> list[int]:
    """Return the inode numbers of the copies."""
    return [ino for (ino,) in database.execute("SELECT ino FROM conflicts ORDER BY ino")]


def test_a_conflict_goes_with_its_copy(tmp_path: Path) -> None:
    """The row of another file stays, as does that of a failed transaction."""
    database = Database.open(tmp_path / "tree.db", SCHEMAS)
    for ino in (7, 8):
        database.execute(INODE, (ino,))
        database.execute(CONFLICT, (ino,))

    def remove(fail: bool) -> None:
        with database.transaction():
            database.execute("DELETE FROM inodes WHERE ino = 7")
            assert conflicts(database) == [8]
            if fail:
                raise OSError

    with pytest.raises(OSError, match=r"^$"):
        remove(True)
    assert conflicts(database) == [7, 8]
    remove(False)
    assert conflicts(database) == [8]
    database.close()


def test_an_upgrade_deletes_rows_without_a_copy(tmp_path: Path) -> None:
    """Rows of existing copies stay."""
    database = Database.open(tmp_path / "tree.db", SCHEMAS[:SIXTH])
    database.execute(INODE, (7,))
    for ino in (7, 8):
        database.execute(CONFLICT, (ino,))
    database.close()
    database = Database.open(tmp_path / "tree.db", SCHEMAS)
    assert conflicts(database) == [7]
    database.close()
