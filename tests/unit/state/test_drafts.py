"""New files before their first close: visible to all programs, but without a row."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from zonedrive.cipher import Clear
from zonedrive.db import Database
from zonedrive.model import Attributes, Revision
from zonedrive.state.inode import ROOT, Inode, Kind
from zonedrive.state.inode_table import create_table
from zonedrive.state.inodes import Inodes

STEPS = [create_table]


class Disk:
    """Tree whose folder is not in memory, and the view of another daemon."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._opened: list[Database] = []
        tree = self.found()
        with tree.transaction():
            tree.add(ROOT, "Zone", Kind.ZONE, zone="z", remote_id="0")
            folder = tree.add(tree.children(ROOT)["Zone"], "folder", Kind.FOLDER, zone="z")
            tree.add(folder.ino, "old", Kind.FILE, zone="z", remote_id="1")
        self.tree = self.found()
        self.folder = self.tree.get(folder.ino)

    def found(self) -> Inodes:
        """Return the tree as another daemon reads it."""
        self._opened.append(Database.open(self._path, STEPS))
        return Inodes.open(self._opened[-1], Clear())

    def names(self) -> set[str]:
        """Return the names that another daemon finds in the folder."""
        return set(self.found().children(self.folder.ino))

    def draft(self, name: str = "new") -> Inode:
        with self.tree.transaction():
            inode = self.tree.draft(self.folder.ino, name, zone="z")
            self.tree.note_times(self.folder, mtime_ns=5, ctime_ns=5)
        return inode

    def close(self) -> None:
        for database in self._opened:
            database.close()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    made = Disk(tmp_path / "tree.db")
    yield made
    made.close()


@pytest.mark.parametrize("loaded", [False, True], ids=["folder unread", "folder read"])
def test_a_file_that_was_never_closed_is_seen_here_and_by_no_later_daemon(
    disk: Disk, loaded: bool
) -> None:
    """All lookups find the file, but the next daemon does not."""
    tree, folder = disk.tree, disk.folder
    if loaded:
        assert set(tree.children(folder.ino)) == {"old"}
    inode = disk.draft()
    assert tree.child(folder.ino, "new") is inode
    assert tree.has_name(folder.ino, "new")
    assert tree.new_in(folder.ino) == [inode]
    assert inode.ino in tree.numbers_in(folder.ino)
    assert inode.ino in tree.without_origin()
    assert inode in tree.everything()
    assert inode in tree.below(folder.ino)
    assert set(tree.children(folder.ino)) == {"old", "new"}
    assert tree.get(inode.ino) is inode
    assert disk.names() == {"old"}


def test_the_first_bytes_bring_all_that_was_set_before(disk: Disk) -> None:
    """A close stores the file with its permissions, and the times of its folder."""
    tree, inode = disk.tree, disk.draft()
    with tree.transaction():
        tree.update(inode, mode=0o640)
    assert disk.names() == {"old"}
    with tree.transaction():
        tree.update(inode, generation=7, size=3)
    found = disk.found()
    again = found.child(disk.folder.ino, "new")
    assert again is not None
    assert msgspec.structs.asdict(again) == msgspec.structs.asdict(inode)
    assert (again.mode, again.generation) == (0o640, 7)
    assert found.get(disk.folder.ino).mtime_ns == 5
    with tree.transaction():
        tree.update(inode, mode=0o600)
    assert disk.found().get(inode.ino).mode == 0o600


def test_a_listing_of_the_folder_keeps_the_times_that_a_new_file_gave_it(disk: Disk) -> None:
    """The folder's times are written with its row, whatever changes the row."""
    disk.draft()
    with disk.tree.transaction():
        disk.tree.update(disk.folder, listed=True)
    found = disk.found().get(disk.folder.ino)
    assert (found.listed, found.mtime_ns) == (True, 5)


def test_a_listing_changes_nothing_else_of_the_row(disk: Disk) -> None:
    """Another daemon finds the folder listed, with all other columns unchanged."""
    tree, folder = disk.tree, disk.folder
    with tree.transaction():
        tree.update(folder, mtime_ns=7, mode=0o750)
    before = msgspec.structs.asdict(disk.found().get(folder.ino))
    with tree.transaction():
        tree.update(folder, listed=True)
    assert msgspec.structs.asdict(disk.found().get(folder.ino)) == before | {"listed": True}


def test_a_close_that_fails_leaves_the_file_as_it_was(disk: Disk) -> None:
    """On a full disk the name stays for programs that have it open; a later close may succeed."""
    tree, inode = disk.tree, disk.draft()
    with pytest.raises(OSError, match="full"), tree.transaction():
        tree.update(inode, generation=7)
        raise OSError("full")
    assert inode.generation == 0
    assert tree.child(disk.folder.ino, "new") is inode
    assert tree.new_in(disk.folder.ino) == [inode]
    assert disk.names() == {"old"}
    with tree.transaction():
        tree.update(inode, generation=8)
    assert disk.names() == {"old", "new"}
    assert disk.found().get(disk.folder.ino).mtime_ns == 5


def test_a_rename_before_the_first_close_is_kept(disk: Disk) -> None:
    """The new name is stored, even if the first attempt to store it fails."""
    tree, inode = disk.tree, disk.draft()
    with pytest.raises(RuntimeError), tree.transaction():
        tree.move(inode, ROOT, "elsewhere")
        raise RuntimeError
    assert tree.child(disk.folder.ino, "new") is inode
    assert tree.new_in(disk.folder.ino) == [inode]
    with tree.transaction():
        tree.move(inode, disk.folder.ino, "renamed", ctime_ns=9)
    assert tree.new_in(disk.folder.ino) == [inode]
    assert disk.names() == {"old", "renamed"}
    assert disk.found().get(inode.ino).ctime_ns == 9


def test_a_removed_one_leaves_nothing(disk: Disk) -> None:
    """A temporary file that is removed before its close is in no table and no folder."""
    tree, inode = disk.tree, disk.draft()
    with pytest.raises(RuntimeError), tree.transaction():
        tree.unlink(inode)
        raise RuntimeError
    assert tree.child(disk.folder.ino, "new") is inode
    with tree.transaction():
        tree.unlink(inode)
    assert tree.child(disk.folder.ino, "new") is None
    assert tree.new_in(disk.folder.ino) == []
    assert list(tree.below(disk.folder.ino))[1:] == [tree.child(disk.folder.ino, "old")]
    assert disk.names() == {"old"}
    disk.draft()  # the name is free again


def test_a_draft_that_fails_at_once_leaves_nothing(disk: Disk) -> None:
    """A file whose creation failed is not found, and the times of its folder are unchanged."""
    before = disk.folder.mtime_ns
    with pytest.raises(RuntimeError), disk.tree.transaction():
        disk.tree.draft(disk.folder.ino, "new", zone="z")
        disk.tree.note_times(disk.folder, mtime_ns=5, ctime_ns=5)
        raise RuntimeError
    assert disk.tree.child(disk.folder.ino, "new") is None
    assert disk.folder.mtime_ns == before
    assert set(disk.tree.children(disk.folder.ino)) == {"old"}


CHANGES: list[dict[str, object]] = [
    {"size": 9, "mtime_ns": 1, "ctime_ns": 2, "mode": 0o700},
    {"listed": True, "seen": 4},
    {"local": True},
    {"generation": 3},
    {"remote_id": "2", "remote_parent": "p", "remote_name": "n"},
    {"zone": "y"},
    {"revision": Revision("r"), "modified_by": "bob", "type": "t", "sync": "s"},
    {"attributes": Attributes(executable=True)},
]


@pytest.mark.parametrize("changes", CHANGES, ids=lambda changes: next(iter(changes)))
def test_every_change_of_a_row_is_found_again(disk: Disk, changes: dict[str, object]) -> None:
    """After a restart each change is complete, whichever columns it is written to."""
    file = disk.tree.child(disk.folder.ino, "old")
    assert file is not None
    with disk.tree.transaction():
        disk.tree.update(file, **changes)
    found = disk.found().get(file.ino)
    assert msgspec.structs.asdict(found) == msgspec.structs.asdict(file)
    with disk.tree.transaction():
        disk.tree.move(file, ROOT, "moved", **changes)
    again = disk.found()
    assert msgspec.structs.asdict(again.get(file.ino)) == msgspec.structs.asdict(file)
    named = again.child(ROOT, "moved")
    assert named is not None
    assert named.ino == file.ino
