"""Merge of a service's listing with the local state."""

import time
from collections.abc import Iterable, Iterator
from itertools import pairwise

import msgspec
import pytest

from tests.unit.state.disk import Disk
from tests.unit.state.listings import Read
from zonedrive.cipher import Clear
from zonedrive.model import Attributes, Entry, Revision, Zone
from zonedrive.state.conflict_copies import is_copy_name
from zonedrive.state.inode import NOWHERE, ROOT, Inode, Kind, Local
from zonedrive.state.inodes import Inodes
from zonedrive.state.intents import Intent
from zonedrive.state.merge import SORTED, STEP, Merge, Merged
from zonedrive.state.names import aside_name


def entry(entry_id: str, name: str, *, revision: str = "1", folder: bool = False) -> Entry:
    return Entry(
        id=entry_id,
        zone_id="z",
        parent_id="root",
        name=name,
        folder=folder,
        size=len(revision),
        modified_ns=int(revision) * 1_000_000_000,
        modified_by="bob",
        attributes=Attributes(),
        revision=Revision(revision),
    )


class Folder:
    """Folder of one zone that is listed repeatedly."""

    def __init__(self, disk: Disk, first: int | None = None) -> None:
        """Create the zone, with the inode number `first`."""
        self.state = disk.start()
        self.tree = self.state.inodes
        self.tree._next_ino = first or self.tree._next_ino
        self.local: dict[int, Local] = {}  # by ino: changes that the service does not know yet
        self.pending_names = set[str]()
        vars(self.state).update(
            local=lambda ino: self.local.get(ino, Local.NOTHING),
            holds_local_changes=lambda _: bool(self.local),
            is_unsaved=lambda _: False,  # the new files of these tests have bytes
            opened=self.local,
        )
        vars(self.state.requests).update(names_in=lambda _: self.pending_names)
        self.merged = Merged()
        with self.tree.transaction():
            self.zone = self.tree.add(ROOT, "Zone", Kind.ZONE, zone="z", remote_id="root")

    def list(
        self, *entries: Entry, asked_ns: int | None = None, into: Inode | None = None
    ) -> Merged:
        for _ in self.merging(entries, asked_ns=asked_ns, into=into):
            pass
        return self.merged

    def merging(
        self, entries: Iterable[Entry], asked_ns: int | None = None, into: Inode | None = None
    ) -> Iterator[None]:
        merge = self.merge(into or self.zone, asked_ns)
        self.merged = merge.result
        return merge.entries(Read(entries))

    def merge(self, into: Inode, asked_ns: int | None = None) -> Merge:
        asked_ns = time.monotonic_ns() if asked_ns is None else asked_ns
        return Merge(self.state, into, asked_ns, lambda: True)

    @property
    def names(self) -> set[str]:
        return set(self.tree.children(self.zone.ino))

    def inode(self, name: str) -> Inode:
        found = self.tree.child(self.zone.ino, name)
        assert found is not None
        return found


@pytest.fixture
def folder(disk: Disk) -> Folder:
    return Folder(disk)


def test_a_remote_rename_keeps_the_inode(folder: Folder) -> None:
    """A file that is renamed on the service keeps its inode under the new name."""
    folder.list(entry("1", "a"), entry("2", "b"))
    ino = folder.inode("a").ino
    merged = folder.list(entry("1", "c"), entry("2", "b"))
    assert folder.names == {"b", "c"}
    assert folder.inode("c").ino == ino
    assert [(name, which) for _, name, which in merged.gone] == [("a", ino)]


def test_two_names_exchanged_on_the_service_are_exchanged_here(folder: Folder) -> None:
    """In any order of the listing, no entry disappears or keeps a mark."""
    folder.list(entry("1", "a"), entry("2", "b"))
    first = folder.inode("a").ino
    folder.list(entry("1", "b"), entry("2", "a"))
    folder.list(entry("1", "b"), entry("2", "a"))
    assert folder.names == {"a", "b"}
    assert folder.inode("b").ino == first


def test_an_edited_file_gets_no_temporary_name_of_an_exchange(folder: Folder) -> None:
    """The file keeps its name until another client has exchanged both names."""
    folder.list(entry("1", "a"), entry("2", "b"))
    edited = folder.inode("a")
    folder.local[edited.ino] = Local.CONTENT
    folder.list(entry("1", aside_name(7, 1)), entry("2", "a"))
    assert edited.name == "a"
    folder.list(entry("1", "b"), entry("2", "a"))
    folder.list(entry("1", "b"), entry("2", "a"))
    assert folder.names == {"a", "b"}
    assert edited.name == "b"


def test_a_temporary_name_that_stays_is_shown_after_the_edit(folder: Folder) -> None:
    """The other client never ends the exchange, for example because the file was deleted."""
    folder.list(entry("1", "a"), entry("2", "b"))
    edited, temporary = folder.inode("a"), aside_name(7, 1)
    folder.local[edited.ino] = Local.CONTENT
    folder.list(entry("1", temporary), entry("2", "a"))
    del folder.local[edited.ino]
    folder.list(entry("1", temporary), entry("2", "a"))
    assert folder.names == {temporary, "a"}
    assert edited.name == temporary


def test_a_new_version_is_announced_and_an_unchanged_file_is_not(folder: Folder) -> None:
    """A changed file is reported to programs, and an unchanged file keeps its time."""
    folder.list(entry("1", "a"), entry("2", "b"))
    with folder.tree.transaction():
        folder.tree.update(folder.inode("b"), mtime_ns=42)
    merged = folder.list(entry("1", "a", revision="22"), entry("2", "b"))
    assert merged.content == [folder.inode("a").ino]
    assert folder.inode("a").size == 2
    assert folder.inode("b").mtime_ns == 42


@pytest.mark.parametrize(
    ("listed", "is_changed"),
    [
        ([entry("1", "a")], False), ([entry("1", "a", revision="22")], False),
        ([entry("1", "a"), entry("2", "b")], True), ([entry("1", "b")], True), ([], True),
    ],
)  # fmt: skip
def test_other_names_change_the_times_of_the_folder(
    folder: Folder, listed: list[Entry], is_changed: bool
) -> None:
    """Programs read a folder again if its times have changed; the first listing changes none."""
    with folder.tree.transaction():
        folder.tree.update(folder.zone, mtime_ns=42, ctime_ns=42)
    folder.list(entry("1", "a"))
    assert (folder.zone.mtime_ns, folder.zone.ctime_ns) == (42, 42)
    merged = folder.list(*listed)
    assert (folder.zone.mtime_ns != 42, folder.zone.ctime_ns != 42) == (is_changed, is_changed)
    assert (folder.zone.ino in merged.attributes) == is_changed


def test_other_names_after_a_restart_change_the_times_of_the_folder(folder: Folder) -> None:
    """Programs may keep the names for longer than a mount lasts."""
    root, zone = folder.tree.get(ROOT), Zone(id="z", name="Zone", root_id="root")
    folder.list(entry("1", "a"))
    folder.tree.delete_unreachable()
    with folder.tree.transaction():
        for each in (root, folder.zone):
            folder.tree.update(each, mtime_ns=42)
    folder.list(entry("1", "a"), entry("2", "b"))
    assert folder.zone.mtime_ns != 42
    other = Zone(id="b", name="Board", root_id="board")
    for _ in folder.merge(root).zones([zone, other]):
        pass
    assert root.mtime_ns != 42


def test_a_move_changes_the_times_of_both_folders(folder: Folder) -> None:
    """The former folder has one name less before its own listing."""
    folder.list(entry("1", "a"), entry("2", "sub", folder=True))
    sub = folder.inode("sub")
    folder.list(into=sub)
    with folder.tree.transaction():
        for each in (folder.zone, sub):
            folder.tree.update(each, mtime_ns=42)
    folder.list(entry("1", "a"), into=sub)
    assert folder.zone.mtime_ns != 42
    assert sub.mtime_ns != 42


def test_another_zone_changes_the_times_of_the_top(folder: Folder) -> None:
    """The first list of zones changes no times."""
    root, board = folder.tree.get(ROOT), Zone(id="b", name="Board", root_id="board")
    both = [Zone(id="z", name="Zone", root_id="root"), board]
    times = []
    for zones in (both[:1], both, both, both[:1]):
        with folder.tree.transaction():
            folder.tree.update(root, mtime_ns=42)
        for _ in folder.merge(root).zones(zones):
            pass
        times.append(root.mtime_ns != 42)
    assert times == [False, True, False, True]


def test_a_local_edit_keeps_its_bytes_and_its_base(folder: Folder) -> None:
    """A coworker's version does not affect a local edit; the outbox handles it later."""
    folder.list(entry("1", "a"))
    inode = folder.inode("a")
    folder.local[inode.ino] = Local.CONTENT
    merged = folder.list(entry("1", "a", revision="22"))
    assert inode.revision == "1"
    assert merged.content == []


def test_a_remote_deletion_keeps_local_edits(folder: Folder) -> None:
    """An edited file and its folder stay when a coworker deletes them."""
    folder.list(entry("1", "a"), entry("2", "b"), entry("3", "sub", folder=True))
    sub = folder.inode("sub")
    folder.list(entry("4", "deep"), into=sub)
    folder.local[folder.inode("a").ino] = Local.CONTENT
    folder.local[next(iter(folder.tree.children(sub.ino).values()))] = Local.CONTENT
    folder.list()
    assert folder.names == {"a", "sub"}


@pytest.mark.parametrize("first", [10, 1000])
def test_a_folder_whose_local_changes_have_ended_is_removed(disk: Disk, first: int) -> None:
    """A listing did not name the folder before; large numbers are not the same object twice."""
    folder = Folder(disk, first)
    folder.list(entry("f", "f", folder=True))
    inner = folder.inode("f")
    folder.list(entry("1", "a"), into=inner)
    (file,) = folder.tree.inodes_in(inner.ino)
    folder.local[file.ino] = Local.CONTENT
    folder.list()
    assert folder.names == {"f"}
    folder.state.inodes = folder.tree = Inodes.open(folder.state.database, Clear())
    folder.zone = folder.tree.get(folder.zone.ino)
    folder.local.clear()
    folder.local[int(str(file.ino))] = Local.NOTHING
    folder.list()
    assert folder.names == set()


def test_a_name_changed_here_is_not_changed_back(folder: Folder) -> None:
    """A pending rename takes precedence over listings without it."""
    folder.list(entry("1", "a"))
    inode = folder.inode("a")
    with folder.tree.transaction():
        folder.tree.move(inode, folder.zone.ino, "mine")
    folder.local[inode.ino] = Local.PLACE
    folder.list(entry("1", "a"))
    assert folder.names == {"mine"}


def test_the_place_of_a_parked_file_is_compared_each_time(folder: Folder) -> None:
    """A coworker may move the entry back, which no other fact about the file tells."""
    folder.list(entry("1", "a"))
    inode = folder.inode("a")
    folder.local[inode.ino] = Local.PARKED
    folder.list(entry("1", "b", revision="2"))
    assert (inode.remote_name, inode.revision, inode.seen) == ("a", "2", 0)


def test_a_file_deleted_here_does_not_come_back(folder: Folder) -> None:
    """A pending deletion hides the entry in listings."""
    folder.list(entry("1", "a"))
    inode = folder.inode("a")
    with folder.tree.transaction():
        folder.tree.unlink(inode, tombstone=True)
    folder.local[inode.ino] = Local.GONE
    folder.list(entry("1", "a"))
    assert folder.names == set()


def test_a_listing_that_was_overtaken_undoes_nothing(folder: Folder) -> None:
    """A listing that began before the end of an upload does not revert the upload."""
    folder.list(entry("1", "a"))
    asked = time.monotonic_ns()
    folder.tree.recent_writes.add("z", "1")
    folder.list(asked_ns=asked)
    assert folder.names == {"a"}
    folder.list()
    assert folder.names == set()


def test_a_new_file_keeps_its_name(folder: Folder) -> None:
    """A new local file keeps its name; the outbox gets the entry that has the same name."""
    with folder.tree.transaction():
        folder.tree.add(folder.zone.ino, "a", Kind.FILE, zone="z")
    merged = folder.list(entry("1", "a"))
    assert folder.names == {"a"}
    assert merged.hidden["a"].id == "1"


def test_an_entry_moved_between_folders_keeps_its_inode(folder: Folder) -> None:
    """An entry that was moved on the service keeps its inode in the new folder."""
    folder.list(entry("1", "a"), entry("3", "sub", folder=True))
    ino = folder.inode("a").ino
    folder.list(entry("1", "a"), into=folder.inode("sub"))
    assert folder.tree.path(ino) == "Zone/sub/a"
    folder.list(entry("3", "sub", folder=True))
    assert folder.tree.path(ino) == "Zone/sub/a"


@pytest.mark.parametrize("others", [0, 1200])
def test_entries_moved_out_of_a_deleted_folder_stay(folder: Folder, others: int) -> None:
    """A file, and a folder with its content, keep their inodes if moved out of a deleted folder."""
    beside = [entry(f"9{number:05}", f"other {number}") for number in range(others)]
    folder.list(entry("3", "goes", folder=True), *beside)
    goes = folder.inode("goes")
    folder.list(entry("1", "a"), entry("4", "deep", folder=True), entry("5", "b"), into=goes)
    deep, file = (folder.tree.child(goes.ino, name) for name in ("deep", "a"))
    assert deep is not None
    assert file is not None
    folder.list(entry("6", "inner"), into=deep)
    many = [entry(f"8{number:05}", f"new {number}") for number in range(others)]
    folder.list(entry("1", "a"), entry("4", "deep", folder=True), *many)
    assert folder.inode("a") is file
    assert folder.inode("deep") is deep
    assert (file.remote_id, deep.remote_id, goes.parent) == ("1", "4", NOWHERE)
    assert set(folder.tree.children(deep.ino)) == {"inner"}
    assert folder.tree.by_remote("z", "5") is None


def test_a_folder_moved_into_its_own_subfolder(folder: Folder) -> None:
    """No folder is lost in a cycle, whichever of the two listings comes first."""
    folder.list(entry("3", "outer", folder=True))
    outer = folder.inode("outer")
    folder.list(entry("4", "inner", folder=True), into=outer)
    inner = folder.tree.child(outer.ino, "inner")
    assert inner is not None
    folder.list(entry("3", "outer", folder=True), into=inner)
    assert folder.tree.path(inner.ino) == "Zone/outer/inner"
    folder.list(entry("4", "inner", folder=True))
    folder.list(entry("3", "outer", folder=True), into=inner)
    assert folder.names == {"inner"}
    assert set(folder.tree.children(inner.ino)) == {"outer"}


@pytest.mark.parametrize("removed", [False, True])
def test_a_folder_moved_into_one_that_was_moved_out_of_it(folder: Folder, removed: bool) -> None:
    """The place of a folder that has left the outer one is unknown until it is listed."""
    tree = folder.tree
    folder.list(entry("3", "outer", folder=True))
    outer = folder.inode("outer")
    folder.list(entry("4", "middle", folder=True), into=outer)
    (middle,) = tree.inodes_in(outer.ino)
    folder.list(entry("5", "inner", folder=True), into=middle)
    (inner,) = tree.inodes_in(middle.ino)
    folder.list(entry("6", "lowest", folder=True), into=inner)
    (lowest,) = tree.inodes_in(inner.ino)
    moved = inner if removed else middle
    folder.local[middle.ino] = Local.GONE if removed else Local.PLACE
    if removed:
        folder.local[inner.ino] = Local.PLACE
    with tree.transaction():
        tree.move(moved, folder.zone.ino, moved.name)
        if removed:
            tree.unlink(middle, tombstone=True)
    folder.list(entry("3", "outer", folder=True), into=lowest)
    places = [each.remote_parent for each in (outer, middle, inner, lowest)]
    assert places == ["6", None, None if removed else "4", "5"]
    folder.list(entry("4", "middle", folder=True), entry("5", "inner", folder=True))
    assert (middle.remote_parent, moved.remote_parent) == ("root", "root")


def test_nothing_is_put_into_a_folder_that_is_gone(folder: Folder) -> None:
    """A late change in the folder gives an error, and leaves no file without a place."""
    folder.list(entry("3", "sub", folder=True))
    sub = folder.inode("sub")
    folder.list()
    with pytest.raises(FileNotFoundError), folder.tree.transaction():
        folder.tree.add(sub.ino, "mine", Kind.FILE)


def test_hostile_and_equal_names_are_all_shown(folder: Folder) -> None:
    """Every entry of the listing can be opened, whatever the names are."""
    names = ["..", "a/b", "x\x00y", "same", "same", "n" * 400, ""]
    folder.list(*[entry(str(number), name) for number, name in enumerate(names)])
    assert len(folder.names) == len(names)


def test_a_name_is_plain_again_once_its_twin_is_gone(folder: Folder) -> None:
    """A mark distinguishes two files of one name, and is removed with the other file."""
    folder.list(entry("1", "same"), entry("2", "same"))
    marked = next(name for name in folder.names if name != "same")
    second = folder.inode(marked)
    folder.list(entry("2", "same"))
    assert folder.names == {"same"}
    assert folder.inode("same") is second


def test_zones_come_rename_and_go(folder: Folder) -> None:
    """New zones appear, renamed ones are renamed, and inaccessible ones are not shown."""
    tree = folder.tree

    def show(*zones: Zone) -> set[str]:
        root = tree.get(ROOT)
        list(folder.merge(root).zones(zones))
        return set(tree.children(ROOT))

    mine = Zone("z", "Zone", "root")
    assert show(mine, Zone("y", "Closed", "r", accessible=False)) == {"Zone"}
    assert show(Zone("z", "New name", "root"), Zone("x", "New name", "r2")) >= {"New name"}
    assert len(tree.children(ROOT)) == 2
    assert show() == set()


def test_a_large_zone_is_removed_in_steps(folder: Folder) -> None:
    """The removal of thousands of entries does not block programs until its end."""
    tree, root = folder.tree, folder.tree.get(ROOT)
    folder.list(entry("sub", "sub", folder=True))
    many = [entry(f"{number:05}", f"file {number}") for number in range(4 * STEP)]
    folder.list(*many, into=folder.inode("sub"))
    merge, left = folder.merge(root), [tree.rows.counts()[0]]
    for _ in merge.zones([]):
        left.append(tree.rows.counts()[0])
    left.append(tree.rows.counts()[0])
    assert left[-1] == 1  # the root
    assert max(before - after for before, after in pairwise(left)) <= STEP + 2
    assert len(merge.result.gone) == len(many) + 2


def test_a_large_zone_is_removed_quickly_despite_many_local_changes(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The local changes, which are all elsewhere, are not examined again in each step."""
    tree, examined, intents = folder.tree, list[int](), folder.state.intents
    folder.list(*[entry(f"{number:05}", f"file {number}") for number in range(4 * STEP)])
    folder.local[99_999] = Local.CONTENT

    def examine() -> list[Intent]:
        examined.append(1)
        return []

    monkeypatch.setattr(intents, "all", examine)
    vars(folder.state).update(holds_local_changes=lambda _: False)
    list(folder.merge(tree.get(ROOT)).zones([]))
    assert tree.rows.counts()[0] == 1
    assert len(examined) == 3  # before the first step, and twice in the last one


def test_a_large_zone_with_a_local_change_stays(folder: Folder) -> None:
    """A change that is made during the removal of a zone keeps the zone, and the change in it."""
    tree, root = folder.tree, folder.tree.get(ROOT)
    folder.list(*[entry(f"{number:05}", f"file {number}") for number in range(4 * STEP)])
    steps = folder.merge(root).zones([])
    next(steps)
    last = max(tree.numbers_in(folder.zone.ino))
    folder.local[last] = Local.CONTENT
    list(steps)
    assert tree.get(last).parent == folder.zone.ino
    assert folder.zone.parent == ROOT


def test_a_lost_zone_with_a_local_only_file_keeps_what_a_local_change_may_need(
    folder: Folder,
) -> None:
    """Entries are no longer removed after a program makes a change; the change may be undone."""
    tree, root = folder.tree, folder.tree.get(ROOT)
    folder.list(*[entry(f"{number:05}", f"file {number}") for number in range(4 * STEP)])
    with tree.transaction():
        tree.add(folder.zone.ino, "a~", Kind.FILE, zone="z", local=1, generation=1)
    vars(folder.state).update(holds_local_changes=lambda _: True)
    steps = folder.merge(root).zones([])
    next(steps)
    folder.local[max(tree.numbers_in(folder.zone.ino)) - 1] = Local.PLACE
    list(steps)
    assert len(folder.names) == 3 * STEP + 1
    assert "a~" in folder.names


def test_a_large_listing_is_merged_in_steps(folder: Folder) -> None:
    """Thousands of new names or changes do not block programs until the end of the merge."""
    many = [entry(f"{number:05}", f"file {number}") for number in range(3000)]
    assert len(list(folder.merging(many))) > 6
    assert folder.names == {each.name for each in many}
    inos = dict(folder.tree.children(folder.zone.ino))
    changed = [entry(each.id, each.name, revision="22") for each in many[:2000]]
    merged = folder.list(*changed)
    assert len(merged.content) == 2000
    assert len(merged.gone) == 1000
    assert dict(folder.tree.children(folder.zone.ino)) == {
        each.name: inos[each.name] for each in changed
    }


def test_a_small_folder_is_listed_in_one_step(folder: Folder) -> None:
    """A program that walks a tree does not wait for other tasks between the folders."""
    assert list(folder.merging([entry("1", "a"), entry("2", "b")])) == []
    assert folder.names == {"a", "b"}
    assert folder.zone.listed


def test_many_new_versions_are_merged_in_steps(folder: Folder) -> None:
    """No transaction changes more than a limited number of entries."""
    names = {f"{number:05}": f"file {number}" for number in range(2 * STEP)}
    folder.list(*(entry(each, name) for each, name in names.items()))
    known = 0
    for _ in folder.merging(entry(each, name, revision="2") for each, name in names.items()):
        assert len(folder.merged.content) - known <= STEP
        known = len(folder.merged.content)
    assert len(folder.merged.content) - known <= STEP
    assert len(folder.merged.content) == len(names)


def test_names_exchanged_in_a_large_listing_are_exchanged_at_once(folder: Folder) -> None:
    """No name has a mark afterwards, however many names are exchanged."""
    many = [entry(f"{number:05}", f"file {number}") for number in range(1200)]
    folder.list(*many)
    inos = dict(folder.tree.children(folder.zone.ino))
    turned = [entry(each.id, many[number - 1].name) for number, each in enumerate(many)]
    folder.list(*turned)
    assert folder.names == {each.name for each in many}
    assert all(
        folder.inode(turned[number].name).ino == inos[each.name] for number, each in enumerate(many)
    )


def test_local_changes_during_a_long_merge(folder: Folder) -> None:
    """A file that is created, renamed or removed locally during a long merge is not changed by
    it."""
    many = [entry(f"{number:05}", f"file {number:05}") for number in range(2500)]
    folder.list(*many)
    later = [entry(each.id, each.name, revision="22") for each in many]
    later += [entry(f"9{number:05}", f"new {number:05}") for number in range(1500)]
    tree, zone = folder.tree, folder.zone
    steps = folder.merging(later)
    for _ in range(10):
        next(steps)
    removed, renamed = folder.inode("file 02499"), folder.inode("file 02498")
    with tree.transaction():
        made = tree.add(zone.ino, "new 01499", Kind.FILE, zone="z", generation=7)
        tree.unlink(removed, tombstone=True)
        tree.move(renamed, zone.ino, "mine")
    folder.local[removed.ino] = Local.GONE
    folder.local[renamed.ino] = Local.PLACE
    for _ in steps:
        pass
    assert folder.inode("new 01499") is made
    assert removed.parent == NOWHERE
    assert folder.inode("mine") is renamed
    assert len(folder.names) == 2500 - 1 + 1500
    assert "file 02499" not in folder.names


def test_a_folder_removed_during_a_merge_stays_removed(folder: Folder) -> None:
    """The rest of the merge adds no entry to it."""
    folder.list(entry("3", "sub", folder=True))
    sub = folder.inode("sub")
    steps = folder.merging([entry(f"{n:05}", f"file {n}") for n in range(3000)], into=sub)
    for _ in range(4):
        next(steps)
    folder.list()
    for _ in steps:
        pass
    assert folder.names == set()
    assert folder.tree.rows.counts() == (2, 2)


def test_a_large_folder_is_removed_in_steps(folder: Folder) -> None:
    """Thousands of entries that the service deleted are not removed in one step."""
    folder.list(entry("3", "sub", folder=True), entry("4", "other", folder=True))
    for name in ("sub", "other"):
        many = [entry(f"{name}{number:05}", f"file {number}") for number in range(1500)]
        folder.list(*many, into=folder.inode(name))
    mine = folder.tree.child(folder.inode("other").ino, "file 1499")
    assert mine is not None
    folder.local[mine.ino] = Local.CONTENT
    assert len(list(folder.merging([]))) >= 3
    assert folder.names == {"other"}
    assert set(folder.tree.children(folder.inode("other").ino)) == {"file 1499"}


def test_an_unchanged_listing_writes_nothing(folder: Folder) -> None:
    """Repeated listings write nothing to the disk, and drop no cached data of others."""
    many = [entry(f"{number:05}", f"file {number}") for number in range(1000)]
    many.append(entry("long", "ä" * 200 + ".pdf"))
    folder.list(*many)
    before = folder.tree.changes(folder.zone.ino)
    written = folder.state.database.execute("SELECT total_changes()").fetchone()
    folder.list(*reversed(many))
    assert folder.tree.changes(folder.zone.ino) == before
    assert folder.state.database.execute("SELECT total_changes()").fetchone() == written


def test_a_change_made_here_is_compared_again(folder: Folder) -> None:
    """After a local change of an entry, the next listing compares it again."""
    folder.list(entry("1", "a"))
    with folder.tree.transaction():
        folder.tree.update(folder.inode("a"), revision=Revision("mine"), size=99)
    assert folder.inode("a").seen == 0
    merged = folder.list(entry("1", "a"))
    assert merged.content == [folder.inode("a").ino]
    assert folder.inode("a").size == 1


@pytest.mark.parametrize("local", [Local.CONTENT | Local.PLACE, Local.PLACE], ids=["edit", "move"])
def test_a_file_that_leaves_a_deleted_folder_during_the_merge_stays(
    folder: Folder, local: Local
) -> None:
    """A program moves a file out of a large folder, while it is emptied in steps."""
    folder.list(entry("F", "deleted", folder=True))
    deleted = folder.inode("deleted")
    folder.list(*(entry(f"{n}", f"{n:05}") for n in range(2 * STEP)), into=deleted)
    files = dict(folder.tree.children(deleted.ino))
    steps = folder.merging([entry("K", "kept")])
    while len(left := dict(folder.tree.children(deleted.ino))) == len(files):
        next(steps)
    _, ino = left.popitem()
    moved = folder.tree.get(ino)
    with folder.tree.transaction():
        folder.tree.move(moved, folder.zone.ino, "moved")
    folder.local[ino] = local
    for _ in steps:
        pass
    assert left
    assert folder.names == {"kept", "moved"}


@pytest.mark.parametrize("gone", ["removed", "another folder"])
def test_a_listing_of_a_folder_that_is_gone_is_not_merged(folder: Folder, gone: str) -> None:
    """The folder was removed, or stands for another one, while its listing was merged."""
    with folder.tree.transaction():
        inner = folder.tree.add(
            folder.zone.ino, "inner", Kind.FOLDER, zone="z", remote_id="i", remote_parent="root"
        )
    steps = folder.merging([entry("1", "a")], into=inner)
    with folder.tree.transaction():
        if gone == "removed":
            folder.tree.unlink(inner, tombstone=True)
        else:
            folder.tree.update(inner, remote_id="j")
    for _ in steps:
        pass
    assert folder.tree.children(inner.ino) == {}


@pytest.mark.parametrize("changed", ["nothing", "version", "type", "attributes", "sync", "folder"])
def test_what_has_changed_is_announced_once(folder: Folder, changed: str) -> None:
    """Other bytes, other attributes and other names are different changes for the kernel."""
    first = [entry("1", "a"), entry("2", "f", folder=True)]
    folder.list(*first)
    ino, before = folder.inode("a").ino, folder.inode("a").ctime_ns
    fields: dict[str, dict[str, object]] = {
        "version": {"revision": Revision("22"), "size": 2},
        "type": {"type": "txt"},
        "attributes": {"attributes": Attributes(write_protected=True)},
        "sync": {"sync": "Synchronized"},
    }
    again = msgspec.structs.replace(first[0], **fields.get(changed, {}))
    other = msgspec.structs.replace(first[1], revision=Revision("3"))
    merged = folder.list(again, other if changed == "folder" else first[1])
    newer = {"version": [ino], "folder": [folder.inode("f").ino]}
    assert merged.content == newer.get(changed, [])
    assert merged.attributes == ([ino] if changed in ("type", "attributes", "sync") else [])
    assert merged.changed == (changed in ("type", "attributes", "sync"))
    assert (folder.inode("a").ctime_ns > before) == (changed not in ("nothing", "folder"))
    assert (merged.gone, merged.moved, merged.appeared) == ([], [], 0)


def test_new_and_renamed_entries_change_a_folder(folder: Folder) -> None:
    """Failed changes in the folder are tried again, because their reason may be gone."""
    assert folder.list(entry("1", "a")).changed
    assert not folder.list(entry("1", "a")).changed
    merged = folder.list(entry("1", "a"), entry("2", "b"))
    assert (merged.appeared, merged.changed) == (1, True)
    assert folder.list(entry("1", "c"), entry("2", "b")).changed
    assert folder.list(entry("2", "b")).changed


@pytest.mark.parametrize("generation", [0, 5])
def test_a_copy_of_a_former_version_is_not_kept(folder: Folder, generation: int) -> None:
    """Local bytes without a local change are those of the version before."""
    folder.list(entry("1", "a"))
    inode = folder.inode("a")
    with folder.tree.transaction():
        folder.tree.update(inode, generation=generation)
    merged = folder.list(entry("1", "a", revision="22"))
    assert merged.copies == ([(inode.ino, 5)] if generation else [])
    assert inode.generation == 0


def test_a_copy_does_not_keep_a_file_that_was_deleted_with_its_folder(folder: Folder) -> None:
    """A rename that a crash prevents leaves such a copy."""
    folder.list(entry("9", "sub", folder=True))
    sub = folder.inode("sub")
    folder.list(entry("1", "a"), into=sub)
    inode = folder.tree.child(sub.ino, "a")
    assert inode is not None
    with folder.tree.transaction():
        folder.tree.update(inode, generation=5)
    merged = folder.list()
    assert folder.names == set()
    assert merged.copies == [(inode.ino, 5)]


@pytest.mark.parametrize("ours", [False, True])
@pytest.mark.parametrize("folder_first", [False, True])
def test_an_id_of_another_kind_is_another_entry(
    folder: Folder, ours: bool, folder_first: bool
) -> None:
    """The former entry is removed, unless it has local changes in it."""
    folder.list(entry("1", "a", folder=folder_first))
    former = changed = folder.inode("a")
    if folder_first:
        with folder.tree.transaction():
            changed = folder.tree.add(former.ino, "inner", Kind.FILE, zone="z")
    if ours:
        folder.local[changed.ino] = Local.CONTENT
    merged = folder.list(entry("1", "a", folder=not folder_first))
    now = folder.inode("a")
    if ours:
        assert now is former
        assert changed.parent != NOWHERE
        assert merged.appeared == 0
    else:
        assert now.is_folder != folder_first
        assert now.remote_id == "1"
        assert former.parent == NOWHERE


@pytest.mark.parametrize("entry_id", ["root", "3", "4"])
def test_a_folder_above_a_listing_is_no_file_in_it(folder: Folder, entry_id: str) -> None:
    """A hostile listing removes neither its own folder nor one above it."""
    folder.list(entry("3", "outer", folder=True))
    outer = folder.inode("outer")
    folder.list(entry("4", "inner", folder=True), into=outer)
    (inner,) = folder.tree.inodes_in(outer.ino)
    folder.list(entry(entry_id, "new"), entry("5", "x"), into=inner)
    assert folder.tree.path(inner.ino) == "Zone/outer/inner"
    assert set(folder.tree.children(inner.ino)) == {"x"}


@pytest.mark.parametrize("more", [0, SORTED])
@pytest.mark.parametrize("is_known", [False, True], ids=["new", "renamed"])
def test_a_kept_folder_gives_its_name_up(folder: Folder, more: int, is_known: bool) -> None:
    """A folder that was deleted on the service is kept for a local change; the name is used."""
    others = [entry(f"{number:05}", f"n{number}") for number in range(more)]
    other = [entry("F", "other")] if is_known else []
    folder.list(*others, *other, entry("K", "kept", folder=True))
    kept = folder.inode("kept")
    with folder.tree.transaction():
        file = folder.tree.add(kept.ino, "f", Kind.FILE, zone="z")
    folder.local[file.ino] = Local.CONTENT
    folder.list(*others, *other)
    assert folder.inode("kept") is kept
    folder.list(*others, entry("F", "kept"))
    assert folder.inode("kept").remote_id == "F"
    assert is_copy_name(kept.name, "kept")
