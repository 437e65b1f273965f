"""Rows of conflicts follow the inodes of their files, in the same transaction."""

from pathlib import Path

import pytest

from zonedrive.db import Database
from zonedrive.state.intents import Conflict, IntentTable
from zonedrive.state.schema import SCHEMAS

INODE = (
    "INSERT INTO inodes"
    " (ino, remote_id, parent, kind, zone, revision, generation, local, listed, sealed)"
    " VALUES (?, ?, 1, 3, 'Z', '', 0, 0, 0, x'')"
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
        database.execute(INODE, (ino, None))
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


def test_a_conflict_returns_with_its_files(tmp_path: Path) -> None:
    """Copy and original get other inodes; numbers of deleted inodes may be used again."""
    database = Database.open(tmp_path / "tree.db", SCHEMAS)
    log = IntentTable(database).conflicts
    for ino, remote_id in ((7, "copy"), (8, "original")):
        database.execute(INODE, (ino, remote_id))
    log.add(Conflict(7, 8, "bob", 1))
    database.execute("DELETE FROM inodes WHERE ino IN (7, 8)")
    database.execute(INODE, (7, "another"))
    log.drop_dangling()
    assert (log.all(), log.unacknowledged()) == ([], set())
    database.execute(INODE, (9, "original"))
    database.execute("DELETE FROM inodes WHERE ino = 9")
    database.execute(INODE, (10, "copy"))
    assert [each.ino for each in log.all()] == [10]
    database.execute(INODE, (11, "original"))
    database.execute("DELETE FROM inodes WHERE ino = 7")
    assert (log.all(), log.unacknowledged()) == ([Conflict(10, 11, "bob", 1)], {10})
    log.drop(10)
    database.execute("DELETE FROM inodes WHERE ino IN (10, 11)")
    database.execute(INODE, (12, "copy"))
    assert log.all() == []
    database.close()


def test_an_upgrade_deletes_rows_without_a_copy(tmp_path: Path) -> None:
    """Rows of existing copies stay."""
    database = Database.open(tmp_path / "tree.db", SCHEMAS[:SIXTH])
    database.execute(INODE, (7, None))
    for ino in (7, 8):
        database.execute(CONFLICT, (ino,))
    database.close()
    database = Database.open(tmp_path / "tree.db", SCHEMAS)
    assert conflicts(database) == [7]
    database.close()
