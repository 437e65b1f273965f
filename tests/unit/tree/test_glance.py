"""What is counted in a database without a key."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from zonedrive.cipher import Clear
from zonedrive.db import Database
from zonedrive.errors import StoreError
from zonedrive.tree import renewal
from zonedrive.tree.glance import local_files, lost_files, wanted_files, wanted_path
from zonedrive.tree.inode import ROOT, Kind
from zonedrive.tree.tree import Tree
from zonedrive.vfs.schema import SCHEMAS


def test_what_cannot_be_counted_is_not_taken_for_nothing(tmp_path: Path) -> None:
    """Whoever asks is about to destroy it."""
    path = tmp_path / "tree.db"
    assert lost_files(path) == local_files(path) == 0
    Database(path, ()).close()
    assert lost_files(path) == local_files(path) == 0
    Database(path, SCHEMAS).close()
    assert lost_files(path) == local_files(path) == 0
    with closing(sqlite3.connect(path)) as database:
        (size,) = database.execute("PRAGMA page_size").fetchone()
    whole = path.read_bytes()
    path.write_bytes(whole[:size] + b"\xff" * (len(whole) - size))  # the schema is left
    for count in (lost_files, local_files, wanted_files):
        with pytest.raises(StoreError, match="cannot be read"):
            count(path)


def test_what_editors_left_behind_before_an_upgrade_is_no_file_of_a_person(tmp_path: Path) -> None:
    """Former versions marked all that is local alike; once mounted, a logoff can tell it apart."""
    path = tmp_path / "tree.db"
    database = Database(path, SCHEMAS)
    tree = Tree(database, Clear())
    with tree.transaction():
        for name in ("notes.txt~", "a.private", ".a.swp"):
            tree.add(ROOT, name, Kind.FILE, local=True, generation=1)
        tree.add(ROOT, "a.txt", Kind.FILE, generation=1)
        database.execute("UPDATE inodes SET local = 1 WHERE local")
    assert (local_files(path), wanted_files(path)) == (3, 3)
    assert len(list(renewal.rows(tree))) == 2
    assert list(renewal.rows(tree)) == []
    assert (local_files(path), wanted_files(path)) == (3, 1)
    assert wanted_path(path, Clear()) == "a.private"
    database.close()


def test_rows_in_a_circle_hold_nobody_up(tmp_path: Path) -> None:
    """A damaged database costs a logoff the name of a file, not its end."""
    path = tmp_path / "tree.db"
    database = Database(path, SCHEMAS)
    tree = Tree(database, Clear())
    with tree.transaction():
        zone = tree.add(ROOT, "Zone", Kind.ZONE, zone="z", remote_id="z")
        folder = tree.add(zone.ino, "folder", Kind.FOLDER, local=True)
        tree.add(folder.ino, "a.private", Kind.FILE, local=True, generation=1)
    assert wanted_path(path, Clear()) == "Zone/folder/a.private"
    with tree.transaction():
        database.execute("UPDATE inodes SET parent = ino WHERE ino = ?", (folder.ino,))
    assert wanted_path(path, Clear()) == ""
    assert wanted_files(path) == 1
    database.close()
