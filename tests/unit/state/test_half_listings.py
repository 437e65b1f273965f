"""Incomplete listings: no entry disappears or changes its type."""

import msgspec
import pytest

from tests.unit.state.disk import Disk
from tests.unit.state.test_merge import Folder, entry
from zonedrive.model import Zone
from zonedrive.remote.wire import entries as wire
from zonedrive.remote.wire.entries import Listed, raw_items
from zonedrive.state.inode import ROOT
from zonedrive.state.merge import Merged, RawListing

WHOLE = [
    {"id": "1", "name": "file", "folder": False, "size": 3, "lastModified": "2026-01-01T00:00:00Z"},
    {"id": "2", "name": "folder", "folder": True},
    {"id": "3", "name": "other", "folder": False, "size": 4},
]


@pytest.fixture
def folder(disk: Disk) -> Folder:
    """Return a folder whose listing is WHOLE."""
    found = Folder(disk)
    merge(found, answer(WHOLE))
    assert found.names == {"file", "folder", "other"}
    return found


def answer(items: object) -> Listed:
    """Return the parsed answer of the service."""
    raws = raw_items(msgspec.json.encode(items), "listing")
    return Listed(raws, "listing", zone_id="z", parent_id="root")


def merge(folder: Folder, said: RawListing) -> Merged:
    """Merge an answer; return the changes."""
    merging = folder.merge(folder.zone)
    for _ in merging.entries(said):
        pass
    return merging.result


def state(folder: Folder) -> dict[str, tuple[int, bool, int, str]]:
    """Return everything that a program can see."""
    inodes = {name: folder.inode(name) for name in folder.names}
    return {
        name: (inode.ino, inode.is_folder, inode.size, str(inode.revision))
        for name, inode in inodes.items()
    }


ODD: list[object] = [None, 1, {}, "odd"]
ODD_MEMBERS: dict[str, list[object]] = {
    "name": [None, 1],
    "folder": [None, 1, "true"],
    "size": [None, True, -1, "x", "-3", "9" * 30],
    "deleted": [1, "false"],
}
HALVES = [(member, value) for member, values in ODD_MEMBERS.items() for value in values]


@pytest.mark.parametrize(("member", "value"), HALVES, ids=str)
def test_a_known_entry_without_attributes_stays(folder: Folder, member: str, value: object) -> None:
    """Name, kind, bytes and inode stay until the service reports them again."""
    before = state(folder)
    half = [WHOLE[0] | {member: value}, *WHOLE[1:]]
    merged = merge(folder, answer(half))
    assert state(folder) == before
    assert (merged.unsure, merged.gone, merged.content) == (1, [], [])
    merge(folder, answer(WHOLE))
    assert state(folder) == before


@pytest.mark.parametrize("member", ["name", "folder"])
def test_a_known_folder_without_attributes_stays(folder: Folder, member: str) -> None:
    """The name, entries and inode of the folder stay, too."""
    before = state(folder)
    half = [WHOLE[0], {k: v for k, v in WHOLE[1].items() if k != member}, WHOLE[2]]
    merge(folder, answer(half))
    assert state(folder) == before


def test_a_half_entry_that_is_new_is_not_shown(folder: Folder) -> None:
    """A new folder is not shown as an empty file; it appears once its type is known."""
    before = state(folder)
    merged = merge(folder, answer([*WHOLE, {"id": "4", "name": "new"}]))
    assert (merged.unsure, merged.unshown, state(folder)) == (1, 1, before)
    assert merged.hidden["new"].unsure
    merge(folder, answer([*WHOLE, {"id": "4", "name": "new", "folder": True}]))
    assert folder.inode("new").is_folder


@pytest.mark.parametrize("item", [*ODD, {"name": "file", "folder": False, "size": 3}], ids=str)
def test_beside_an_item_without_id_nothing_vanishes(folder: Folder, item: object) -> None:
    """The item may be a known entry: all known entries stay, and new ones appear."""
    before = state(folder)
    merge(folder, answer([WHOLE[1], item, entry_of("9", "new")]))
    after = state(folder)
    assert after.pop("new")
    assert after == before
    merge(folder, answer(WHOLE[1:]))
    assert folder.names == {"folder", "other"}


def entry_of(entry_id: str, name: str) -> dict[str, object]:
    return {"id": entry_id, "name": name, "folder": False, "size": 0}


def test_a_file_that_was_moved_here_by_half_stays_where_it_was(folder: Folder) -> None:
    """The file appears once, in its former folder."""
    sub = folder.inode("folder")
    folder.list(entry("7", "inner"), into=sub)
    merge(folder, answer([*WHOLE, {"id": "7", "name": "inner", "folder": None}]))
    assert folder.names == {"file", "folder", "other"}
    assert set(folder.tree.children(sub.ino)) == {"inner"}


@pytest.mark.parametrize(
    "half",
    [
        {"id": "z", "name": None, "rootId": "root"},
        {"id": "z", "name": "Zone"},
        {"id": "z", "name": "Zone", "rootId": None},
        {"id": "z", "name": {}, "rootId": []},
        {"name": "Zone", "rootId": "root"},
        None,
        "z",
    ],
    ids=str,
)
def test_a_half_zone_stays_mounted(folder: Folder, half: object) -> None:
    """An incomplete zone stays with its content; a zone that is not listed disappears."""
    tree = folder.tree
    before = state(folder)

    def show(said: object) -> set[str]:
        listed = wire.ListedZones(wire.objects(said, "x"), "x")
        merge = folder.merge(tree.get(ROOT))
        list(merge.zones(listed.zones, unsure=listed.unsure, complete=listed.complete))
        return set(tree.children(ROOT))

    other = {"id": "y", "name": "Other", "rootId": "r2"}
    assert show([half, other]) == {"Zone", "Other"}
    assert state(folder) == before
    assert show([other]) == {"Other"}


def test_a_zone_that_was_closed_goes(folder: Folder) -> None:
    """A closed zone disappears, whatever else in the answer is malformed."""
    merge = folder.merge(folder.tree.get(ROOT))
    list(merge.zones([Zone("z", "Zone", "root", accessible=False)], complete=False))
    assert folder.tree.children(ROOT) == {}
