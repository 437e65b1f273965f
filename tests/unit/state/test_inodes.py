"""Tree of inodes: permanent numbers, and atomic changes."""

from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from zonedrive.cipher import Box, Clear, Sealed, new_key
from zonedrive.db import Database
from zonedrive.errors import Damaged
from zonedrive.remote.requests import BODY_SECONDS, READ_SECONDS
from zonedrive.remote.wire.pagination import Budget
from zonedrive.state.inode import NOWHERE, ROOT, Inode, Kind
from zonedrive.state.inode_cache import Dirents
from zonedrive.state.inode_table import create_table
from zonedrive.state.inodes import STALE_LISTING_S, Inodes, RecentWrites

Opener = Callable[[Box], Inodes]


class Stores:
    """Database of inodes, opened as often as a daemon starts."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._opened: list[Database] = []

    def open(self) -> Database:
        self._opened.append(Database.open(self._path, [create_table]))
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
def tree(database: Database) -> Inodes:
    return Inodes.open(database, Clear())


@pytest.fixture
def reopened(stores: Stores) -> Opener:
    """Return the tree as another daemon reads it."""
    return lambda box: Inodes.open(stores.open(), box)


def planted(tree: Inodes) -> tuple[Inode, Inode]:
    with tree.transaction():
        zone = tree.add(ROOT, "Zone", Kind.ZONE, zone="z", remote_id="0")
        file = tree.add(zone.ino, "a.txt", Kind.FILE, zone="z", remote_id="1", size=3)
    return zone, file


def test_inode_numbers_stay_over_a_restart(database: Database, reopened: Opener) -> None:
    """Backups and indexes rely on inode numbers, which are the same after a restart."""
    box = Sealed(new_key())
    zone, file = planted(Inodes.open(database, box))
    tree = reopened(box)
    assert tree.children(ROOT) == {"Zone": zone.ino}
    assert msgspec.structs.asdict(tree.get(file.ino)) == msgspec.structs.asdict(file)
    assert tree.child(zone.ino, "a.txt") is tree.get(file.ino)
    assert tree.path(file.ino) == "Zone/a.txt"


def test_a_file_contains_nothing(tree: Inodes) -> None:
    """A hostile answer may name a file as a folder."""
    zone, file = planted(tree)
    with pytest.raises(FileNotFoundError), tree.transaction():
        tree.add(file.ino, "b.txt", Kind.FILE)
    with pytest.raises(FileNotFoundError), tree.transaction():
        tree.move(file, file.ino, "b.txt")
    assert tree.children(zone.ino) == {"a.txt": file.ino}
    assert tree.path(file.ino) == "Zone/a.txt"


def test_a_number_is_never_used_for_another_file(tree: Inodes, reopened: Opener) -> None:
    """The number of a deleted file is not used again, even after a restart."""
    _, file = planted(tree)
    with tree.transaction():
        tree.unlink(file)
    again = reopened(Clear())
    with again.transaction():
        assert again.add(ROOT, "Other", Kind.ZONE, zone="o").ino > file.ino


def test_a_row_under_another_key_is_damaged_not_nonsense(
    database: Database, reopened: Opener
) -> None:
    """With a lost key, reading gives an error instead of wrong names."""
    planted(Inodes.open(database, Sealed(new_key())))
    with pytest.raises(Damaged):
        reopened(Sealed(new_key())).children(ROOT)


class Refused(Exception):
    """Error in the middle of a change."""


def test_a_change_that_fails_leaves_nothing_behind(tree: Inodes, reopened: Opener) -> None:
    """Memory and table are the same as before the failed change."""
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


def test_a_tombstone_is_remembered_until_it_is_buried(tree: Inodes, reopened: Opener) -> None:
    """A deletion that was not sent yet survives a restart."""
    _, file = planted(tree)
    with tree.transaction():
        tree.unlink(file, tombstone=True)
    again = reopened(Clear())
    assert [each.ino for each in again.unlinked()] == [file.ino]
    assert again.by_remote("z", "1") is not None
    with again.transaction():
        again.unlink(again.get(file.ino))
    assert reopened(Clear()).unlinked() == []


def test_an_unlinked_inode_lives_as_long_as_the_kernel_holds_it(tree: Inodes) -> None:
    """A program that has a deleted file open can still read its attributes."""
    _, file = planted(tree)
    tree.remember(file.ino)
    tree.remember(file.ino)
    with tree.transaction():
        tree.unlink(file)
    assert tree.get(file.ino).parent == NOWHERE
    assert not tree.forget(file.ino, 1)
    assert tree.forget(file.ino, 1)
    tree.release(file.ino)
    assert tree.find(file.ino) is None


def test_a_released_folder_takes_no_memory(tree: Inodes) -> None:
    """A mount that is up for months sees millions of temporary folders."""
    with tree.transaction():
        folder = tree.add(ROOT, "here", Kind.FOLDER)
        tree.unlink(tree.add(folder.ino, "a", Kind.FILE))
        tree.unlink(folder)
    assert tree.changes(folder.ino) == 2
    tree.release(folder.ino)
    assert folder.ino not in tree._changes


def test_a_change_outside_a_transaction_is_a_mistake(tree: Inodes) -> None:
    """A change must be inside a transaction, so that it can be rolled back."""
    with pytest.raises(AssertionError):
        tree.add(ROOT, "Zone", Kind.ZONE)


def test_every_change_in_a_folder_counts_and_others_do_not(tree: Inodes) -> None:
    """The change counter of a folder includes its own changes and rolled back ones, but no
    others."""
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


def test_a_whole_listing_is_remembered_at_once(tree: Inodes) -> None:
    """The kernel's references to listed entries last until it has forgotten each as often."""
    zone, file = planted(tree)
    tree.remember(file.ino)
    tree.remember_all([file.ino, zone.ino])
    with tree.transaction():
        tree.unlink(file)
    assert not tree.forget(zone.ino, 1)  # it stays: it has a name
    assert not tree.remembered(zone.ino)
    assert not tree.forget(file.ino, 1)
    assert tree.remembered(file.ino)
    assert tree.forget(file.ino, 1)
    assert not tree.remembered(file.ino)


def test_an_open_file_has_one_inode_object(tree: Inodes) -> None:
    """An open file has one inode object, even after ten thousand other lookups."""
    zone, file = planted(tree)
    with tree.transaction():
        tree.add_all(zone.ino, {f"{n:05}": {"kind": Kind.FILE} for n in range(20_000)})
    assert sum(1 for _ in tree.inodes_in(zone.ino)) == 20_001
    with tree.transaction():
        tree.update(file, size=77)
    assert tree.get(file.ino) is file
    assert tree.child(zone.ino, "a.txt") is file
    assert next(each for each in tree.everything() if each.ino == file.ino) is file


def test_a_removed_open_file_stays_in_memory(tree: Inodes) -> None:
    """The file has no row any more, so it could not be loaded again."""
    zone, file = planted(tree)
    ino = file.ino
    with tree.transaction():
        tree.add_all(zone.ino, {f"{n:05}": {"kind": Kind.FILE} for n in range(20_000)})
        tree.update(file, size=77)
        tree.unlink(file)
    del file
    assert sum(1 for _ in tree.inodes_in(zone.ino)) == 20_000
    assert tree.get(ino).size == 77
    tree.release(ino)
    assert tree.find(ino) is None


def test_a_name_is_found_without_reading_its_folder(database: Database, reopened: Opener) -> None:
    """After a start a lookup of one name in a large folder reads only that name."""
    key = new_key()
    tree = Inodes.open(database, Sealed(key))
    zone, _ = planted(tree)
    with tree.transaction():
        tree.add_all(zone.ino, {f"{n:05}": {"kind": Kind.FILE} for n in range(3000)})
    again = reopened(Sealed(key))
    found = again.child(zone.ino, "02999")
    assert found is not None
    assert found.name == "02999"
    assert again.child(zone.ino, "03000") is None
    assert len(list(again.loading(zone.ino))) > 3


def test_everything_is_every_inode_once(tree: Inodes, reopened: Opener) -> None:
    """The rows are read in several queries, and drafts have no rows."""
    zone, _ = planted(tree)
    with tree.transaction():
        tree.add_all(zone.ino, {f"{n:05}": {"kind": Kind.FILE} for n in range(3000)})
    again = reopened(Clear())
    with again.transaction():
        again.draft(zone.ino, "draft", zone="z", mode=None, local=False)
    names = [inode.name for inode in again.everything() if inode.ino != ROOT]
    assert sorted(names) == [*(f"{n:05}" for n in range(3000)), "Zone", "a.txt", "draft"]


def test_names_that_change_while_a_folder_is_loaded_are_right(
    tree: Inodes, reopened: Opener
) -> None:
    """Names may be added, removed and renamed between the steps of loading a large folder."""
    zone, _ = planted(tree)
    with tree.transaction():
        tree.add_all(zone.ino, {f"{n:05}": {"kind": Kind.FILE} for n in range(3000)})
    again = reopened(Clear())
    steps = again.loading(zone.ino)
    next(steps)
    with again.transaction():
        for name in ("00001", "02001"):
            if child := again.child(zone.ino, name):
                again.unlink(child)
        for name in ("00002", "02002"):
            if child := again.child(zone.ino, name):
                again.move(child, zone.ino, f"{name} moved")
        again.add(zone.ino, "new", Kind.FILE)
    with pytest.raises(RuntimeError), again.transaction():
        again.add(zone.ino, "never", Kind.FILE)
        raise RuntimeError
    for _ in steps:
        pass
    expected = {f"{n:05}" for n in range(3000)} - {"00001", "02001", "00002", "02002"}
    expected |= {"00002 moved", "02002 moved", "new", "a.txt"}
    assert set(again.children(zone.ino)) == expected


def test_names_with_a_mark_are_found_without_a_search(tree: Inodes) -> None:
    """They are known for each cached folder, after each change, in the order of the folder."""

    def expected(folder: int) -> list[tuple[str, int]]:
        return [item for item in tree.children(folder).items() if "~" in item[0]]

    with tree.transaction():
        zone = tree.add(ROOT, "Zone", Kind.ZONE)
        files = [tree.add(zone.ino, name, Kind.FILE) for name in ("c~1", "a", "a~1", "b~1")]
    assert list(tree.marked(zone.ino).items()) == expected(zone.ino)
    steps: list[Callable[[], None]] = [
        lambda: tree.unlink(files[0]),
        lambda: tree.move(files[1], zone.ino, "c~1"),
        lambda: tree.move(files[2], zone.ino, "a"),
        lambda: tree.add_all(zone.ino, {"d~1": {"kind": Kind.FILE}, "d": {"kind": Kind.FILE}}),
    ]
    for step in steps:
        with tree.transaction():
            step()
        assert list(tree.marked(zone.ino).items()) == expected(zone.ino)
    with pytest.raises(RuntimeError), tree.transaction():
        tree.unlink(files[3])
        assert "b~1" not in tree.marked(zone.ino)
        raise RuntimeError
    assert list(tree.marked(zone.ino).items()) == expected(zone.ino)
    assert set(tree.marked(zone.ino)) == {"c~1", "b~1", "d~1"}


@pytest.mark.parametrize("value", [b"\0", "text", 5])
def test_a_damaged_copy_is_listed_again_under_its_number(
    database: Database, reopened: Opener, value: object
) -> None:
    """A damaged row of a copy is lost, and its folder is listed again under the same number."""
    tree = Inodes.open(database, Sealed(key := new_key()))
    zone, file = planted(tree)
    with tree.transaction():
        tree.update(zone, listed=True)
    database.execute("UPDATE inodes SET sealed = ? WHERE ino = ?", (value, file.ino))
    again = reopened(Sealed(key))
    assert dict(again.children(zone.ino)) == {}
    assert not again.get(zone.ino).listed
    lost = again.get(file.ino)
    assert (lost.remote_id, lost.name, lost.revision, lost.seen) == ("1", f"/{file.ino}", "", 0)
    assert (lost.size, lost.mtime_ns, lost.ctime_ns, lost.mode) == (0, 0, 0, None)
    again = reopened(Sealed(key))
    assert not again.get(zone.ino).listed


def test_listings_are_incomplete_after_rows_were_lost(tree: Inodes, reopened: Opener) -> None:
    """The listings of cached inodes are, too; the service does not list local and new folders."""
    zone, file = planted(tree)
    with tree.transaction():
        new = tree.add(zone.ino, "new", Kind.FOLDER, zone="z")
        local = tree.add(zone.ino, "local~", Kind.FOLDER, zone="z", local=True)
        for folder in (tree.get(ROOT), zone, new, local):
            tree.update(folder, listed=True)
        tree.update(file, seen=7)
    with tree.transaction():
        tree.delete_unreachable()
    for each in (tree, reopened(Clear())):
        listed = [ino for ino in (ROOT, zone.ino, new.ino, local.ino) if each.get(ino).listed]
        assert listed == [new.ino, local.ino]
        assert each.get(file.ino).seen == 0


def test_a_damaged_row_that_exists_nowhere_else_is_not_passed_over(
    database: Database, reopened: Opener
) -> None:
    """A file with local bytes cannot be shown without its name, so the start must repair it."""
    tree = Inodes.open(database, Sealed(key := new_key()))
    _, file = planted(tree)
    with tree.transaction():
        tree.update(file, generation=3)
    database.execute("UPDATE inodes SET sealed = x'00' WHERE ino = ?", (file.ino,))
    with pytest.raises(Damaged):
        reopened(Sealed(key)).find(file.ino)


@pytest.mark.parametrize("folder", ["new", "lost"])
def test_a_damaged_copy_in_a_folder_without_a_listing_is_not_passed_over(
    database: Database, reopened: Opener, folder: str
) -> None:
    """The service cannot list a new folder or one without a row, so the start repairs the row."""
    tree = Inodes.open(database, Sealed(key := new_key()))
    zone, file = planted(tree)
    if folder == "new":
        with tree.transaction():
            tree.move(file, tree.add(zone.ino, "new", Kind.FOLDER, zone="z").ino, "a.txt")
    else:
        database.execute("DELETE FROM inodes WHERE ino = ?", (zone.ino,))
    database.execute("UPDATE inodes SET sealed = x'00' WHERE ino = ?", (file.ino,))
    with pytest.raises(Damaged):
        reopened(Sealed(key)).find(file.ino)


def test_a_damaged_zone_is_listed_again(database: Database, reopened: Opener) -> None:
    """The service has no entry for the root, but it lists the zones."""
    tree = Inodes.open(database, Sealed(key := new_key()))
    zone, _ = planted(tree)
    with tree.transaction():
        tree.update(tree.get(ROOT), listed=True)
    database.execute("UPDATE inodes SET sealed = x'00' WHERE ino = ?", (zone.ino,))
    again = reopened(Sealed(key))
    assert again.get(zone.ino).name == f"/{zone.ino}"
    assert not again.get(ROOT).listed


def test_the_file_tells_no_names_and_no_authors(database: Database, tmp_path: Path) -> None:
    """Names and authors in the database cannot be read without the key."""
    tree = Inodes.open(database, Sealed(new_key()))
    zone, file = planted(tree)
    with tree.transaction():
        tree.add(zone.ino, "Salaries.xlsx", Kind.FILE, revision="1|2|bob@acme.example")
        tree.update(file, modified_by="bob@acme.example", remote_name="Salaries.xlsx")
    database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    data = (tmp_path / "tree.db").read_bytes()
    assert b"Salaries" not in data
    assert b"acme.example" not in data


def test_a_change_of_one_entry_is_none_of_another_one() -> None:
    """A listing is only out of date for the entries that this client has changed since."""
    writes = RecentWrites()
    assert not writes.since("z", "a", 0)
    writes.add("z", "a")
    assert [writes.since(*which, 0) for which in (("z", "a"), ("z", "b"), ("y", "a"))] == [
        True, False, False,
    ]  # fmt: skip
    assert not writes.since("z", "a", 1 << 62)


def test_a_change_is_remembered_for_as_long_as_a_listing_may_take() -> None:
    """A listing in many pages may lack a file that was uploaded after its first page."""
    assert Budget().seconds + READ_SECONDS + BODY_SECONDS < STALE_LISTING_S


def test_the_number_of_cached_names_is_limited() -> None:
    """The folders that were used the longest time ago are dropped, but never the newest one."""
    cache = Dirents(limit=10)

    def load(folder: int, count: int) -> None:
        cache.begin(folder, []).names.update({f"{number}": number for number in range(count)})
        cache.finish(folder)

    def cached() -> set[int]:
        return {folder for folder in (1, 2, 3, 4) if folder in cache._maps}

    load(1, 4)
    load(2, 4)
    assert cache.get(1) is not None
    load(3, 2)
    assert cached() == {1, 2, 3}
    cache.link(3, "new", 9)
    load(4, 4)
    assert cached() == {3, 4}
    load(1, 11)
    assert cached() == {1}
    load(2, 1)
    assert cached() == {2}
