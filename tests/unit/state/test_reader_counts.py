"""Counts in a database without a key."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from zonedrive.cipher import Clear
from zonedrive.db import Database
from zonedrive.errors import StoreError
from zonedrive.state import row_upgrade
from zonedrive.state.inode import ROOT, Kind
from zonedrive.state.inodes import Inodes
from zonedrive.state.reader import StateReader
from zonedrive.state.schema import SCHEMAS


def counts(path: Path) -> tuple[int, int, int]:
    """Return the number of files in lost+found, with local-only names, and of the latter by a
    person."""
    with closing(Database.read(path, SCHEMAS)) as database:
        found = StateReader(database)
        return found.lost_files(), found.local_files(), found.files_by_user()


def test_an_error_is_not_counted_as_zero(tmp_path: Path) -> None:
    """An error raises, because the caller is about to delete the data."""
    path = tmp_path / "tree.db"
    assert counts(path) == (0, 0, 0)
    assert not path.exists()
    Database.open(path, ()).close()
    assert counts(path) == (0, 0, 0)
    Database.open(path, SCHEMAS).close()
    assert counts(path) == (0, 0, 0)
    with closing(sqlite3.connect(path)) as raw:
        (size,) = raw.execute("PRAGMA page_size").fetchone()
    whole = path.read_bytes()
    path.write_bytes(whole[:size] + b"\xff" * (len(whole) - size))  # the schema is left
    for count in (StateReader.lost_files, StateReader.local_files, StateReader.files_by_user):
        with pytest.raises(StoreError), closing(Database.read(path, SCHEMAS)) as database:
            count(StateReader(database))


def test_files_of_editors_before_an_upgrade(tmp_path: Path) -> None:
    """Former versions did not distinguish these files; after a mount, a logoff can."""
    path = tmp_path / "tree.db"
    database = Database.open(path, SCHEMAS)
    tree = Inodes.open(database, Clear())
    with tree.transaction():
        for name in ("notes.txt~", "a.private", ".a.swp"):
            tree.add(ROOT, name, Kind.FILE, local=True, generation=1)
        tree.add(ROOT, "a.txt", Kind.FILE, generation=1)
        database.execute("UPDATE inodes SET local = 1 WHERE local")
    assert counts(path)[1:] == (3, 3)
    row_upgrade.local_files(tree)
    assert counts(path)[1:] == (3, 1)
    assert StateReader(database).path_by_user(Clear()) == "a.private"
    database.close()


def test_a_cycle_of_rows(tmp_path: Path) -> None:
    """A cycle in a damaged database costs a file's name, but does not block a logoff."""
    path = tmp_path / "tree.db"
    database = Database.open(path, SCHEMAS)
    tree = Inodes.open(database, Clear())
    with tree.transaction():
        zone = tree.add(ROOT, "Zone", Kind.ZONE, zone="z", remote_id="z")
        folder = tree.add(zone.ino, "folder", Kind.FOLDER, local=True)
        tree.add(folder.ino, "a.private", Kind.FILE, local=True, generation=1)
    assert StateReader(database).path_by_user(Clear()) == "Zone/folder/a.private"
    with tree.transaction():
        database.execute("UPDATE inodes SET parent = ino WHERE ino = ?", (folder.ino,))
    assert StateReader(database).path_by_user(Clear()) == ""
    assert counts(path)[2] == 1
    database.close()
