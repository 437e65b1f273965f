"""The tree: numbers that stay, and changes that happen whole or not at all."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from zonedrive.cipher import Box, Clear, Sealed, new_key
from zonedrive.db import Database
from zonedrive.errors import Damaged
from zonedrive.tree.inode import NOWHERE, ROOT, Inode, Kind
from zonedrive.tree.store import add_marks, create_table
from zonedrive.tree.tree import Tree

Opener = Callable[[Box], Tree]


class Stores:
    """One file of inodes, opened as often as a daemon starts."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._opened: list[Database] = []

    def open(self) -> Database:
        self._opened.append(Database(self._path, [create_table, add_marks]))
        return self._opened[-1]

    def close(self) -> None:
        for database in self._opened:
            database.close()


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[Stores]:
    found = Stores(tmp_path / "tree.db")
    yield found
    found.close()


@pytest.fixture
def database(stores: Stores) -> Database:
    return stores.open()


@pytest.fixture
def reopened(stores: Stores) -> Opener:
    """The tree as another daemon finds it."""
    return lambda box: Tree(stores.open(), box)


def planted(tree: Tree) -> tuple[Inode, Inode]:
    with tree.transaction():
        zone = tree.add(ROOT, "Zone", Kind.ZONE, zone="z", remote_id="0")
        file = tree.add(zone.ino, "a.txt", Kind.FILE, zone="z", remote_id="1", size=3)
    return zone, file


def test_inode_numbers_stay_over_a_restart(database: Database, reopened: Opener) -> None:
    """A number names the same file tomorrow, so backups and indexes can rely on it."""
    box = Sealed(new_key())
    zone, file = planted(Tree(database, box))
    tree = reopened(box)
    assert tree.children(ROOT) == {"Zone": zone.ino}
    assert tree.child(zone.ino, "a.txt") == file
    assert tree.path(file.ino) == "Zone/a.txt"


def test_a_number_is_never_used_for_another_file(database: Database, reopened: Opener) -> None:
    """After a file is gone its number stays unused, also after a restart."""
    tree = Tree(database, Clear())
    _, file = planted(tree)
    with tree.transaction():
        tree.unlink(file)
    again = reopened(Clear())
    with again.transaction():
        assert again.add(ROOT, "Other", Kind.ZONE, zone="o").ino > file.ino


def test_names_are_not_readable_in_the_file(database: Database) -> None:
    """Who finds the disk does not learn how the documents are called."""
    planted(Tree(database, Sealed(new_key())))
    database.close()
    assert b"a.txt" not in database.path.read_bytes()


def test_a_row_under_another_key_is_damaged_not_nonsense(
    database: Database, reopened: Opener
) -> None:
    """A lost key is an error, never wrong names."""
    planted(Tree(database, Sealed(new_key())))
    with pytest.raises(Damaged):
        reopened(Sealed(new_key())).children(ROOT)


class Refused(Exception):
    """Stands for whatever may go wrong in the middle of a change."""


def test_a_change_that_fails_leaves_nothing_behind(database: Database, reopened: Opener) -> None:
    """Memory and table are as before when a change fails half-way."""
    tree = Tree(database, Clear())
    zone, file = planted(tree)
    with pytest.raises(Refused), tree.transaction():
        tree.move(file, ROOT, "moved")
        tree.update(file, size=99)
        tree.add(zone.ino, "b.txt", Kind.FILE, zone="z")
        tree.unlink(zone)
        raise Refused
    for found in (tree, reopened(Clear())):
        assert found.children(ROOT) == {"Zone": zone.ino}
        assert found.children(zone.ino) == {"a.txt": file.ino}
        assert found.get(file.ino).size == 3


def test_a_tombstone_is_remembered_until_it_is_buried(database: Database, reopened: Opener) -> None:
    """A deletion that the service has not heard of survives a restart."""
    tree = Tree(database, Clear())
    _, file = planted(tree)
    with tree.transaction():
        tree.unlink(file, tombstone=True)
    again = reopened(Clear())
    assert [each.ino for each in again.unlinked()] == [file.ino]
    assert again.by_remote("z", "1") is not None
    with again.transaction():
        again.unlink(again.get(file.ino))
    assert reopened(Clear()).unlinked() == []


def test_an_unlinked_inode_lives_as_long_as_the_kernel_holds_it(database: Database) -> None:
    """A program that has a deleted file open can still ask for it."""
    tree = Tree(database, Clear())
    _, file = planted(tree)
    tree.remember(file.ino, 2)
    with tree.transaction():
        tree.unlink(file)
    assert tree.get(file.ino).parent == NOWHERE
    assert not tree.forget(file.ino, 1)
    assert tree.forget(file.ino, 1)
    tree.release(file.ino)
    assert tree.find(file.ino) is None


def test_a_change_outside_a_transaction_is_a_mistake(database: Database) -> None:
    """Nothing changes that could not be taken back."""
    tree = Tree(database, Clear())
    with pytest.raises(AssertionError):
        tree.add(ROOT, "Zone", Kind.ZONE)


def test_every_change_in_a_folder_counts_and_others_do_not(database: Database) -> None:
    """Who keeps a listing hears of each change in that folder, also of one that was undone."""
    tree = Tree(database, Clear())
    with tree.transaction():
        here = tree.add(ROOT, "here", Kind.FOLDER)
        there = tree.add(ROOT, "there", Kind.FOLDER)
        file = tree.add(here.ino, "a", Kind.FILE)
    seen = {tree.changes(here.ino)}

    def changed() -> bool:
        before = len(seen)
        seen.add(tree.changes(here.ino))
        return len(seen) > before and tree.changes(here.ino) == max(seen)

    elsewhere = tree.changes(there.ino)
    with tree.transaction():
        tree.update(file, size=1)
    assert changed()
    with tree.transaction():
        tree.move(file, here.ino, "b")
    assert changed()
    with pytest.raises(RuntimeError), tree.transaction():
        tree.update(file, size=2)
        assert changed()
        raise RuntimeError
    assert changed()
    with tree.transaction():
        tree.update(file, size=1)
    assert not changed()
    assert tree.changes(there.ino) == elsewhere
    with tree.transaction():
        tree.move(file, there.ino, "b")
    assert changed()
    assert tree.changes(there.ino) > elsewhere
    with tree.transaction():
        tree.add(here.ino, "c", Kind.FILE)
    assert changed()
    with tree.transaction():
        tree.unlink(tree.get(tree.children(here.ino)["c"]))
    assert changed()


def test_a_whole_listing_is_remembered_at_once(database: Database) -> None:
    """The kernel holds what it was listed, until it has forgotten each as often."""
    tree = Tree(database, Clear())
    tree.remember(7)
    tree.remember_all([7, 8])
    assert tree.forget(8, 1)
    assert not tree.forget(7, 1)
    assert tree.forget(7, 1)
    assert not tree.remembered(7)
