"""Recovery after rows were lost: bytes get a name, and lost changes are recorded again."""

import os
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.unit.state.disk import Disk, read, saved, store, zone_of
from zonedrive.model import Revision
from zonedrive.state import repair
from zonedrive.state.inode import NOWHERE, ROOT, Kind
from zonedrive.state.intents import Conflict, Intent
from zonedrive.state.local_state import LocalState
from zonedrive.state.pending_requests import PendingRequest
from zonedrive.state.status import LOST_FOUND

THEIRS = {"remote_parent": "root", "revision": Revision("3"), "zone": "z"}


def lose(state: LocalState, **tables: int) -> None:
    """Delete one row of each given table."""
    for table, ino in tables.items():
        state.database.execute(f"DELETE FROM {table} WHERE ino = ?", (ino,))


def salvaged(state: LocalState) -> Path:
    """Mark the database as repaired; return the mark."""
    mark = state.database.path.with_name("tree.db.salvage")
    mark.write_text("tree.db.damaged-1")
    return mark


def shown(state: LocalState) -> dict[str, bytes]:
    """Return the content of the files in lost+found by name, and check that they stay local."""
    folder = state.inodes.child(ROOT, LOST_FOUND)
    if folder is None:
        return {}
    assert (folder.kind, folder.local, folder.listed) == (Kind.FOLDER, True, True)
    found = state.inodes.inodes_in(folder.ino)
    assert all(each.local and state.intents.get(each.ino) is None for each in found)
    return {each.name: read(state, each.ino) for each in found}


def of_an_inode(state: LocalState, zone: int) -> tuple[int, int]:
    inode = saved(state, "a", b"content", parent=zone)
    lose(state, inodes=inode.ino)
    return inode.ino, inode.generation


def of_a_folder(state: LocalState, zone: int) -> tuple[int, int]:
    with state.transaction():
        folder = state.inodes.add(zone, "folder", Kind.FOLDER, zone="z", remote_id="f")
    inode = saved(state, "a", b"content", parent=folder.ino)
    lose(state, inodes=folder.ino)
    return inode.ino, inode.generation


def of_a_request(state: LocalState, zone: int) -> tuple[int, int]:
    inode = saved(state, "a", b"content", parent=zone)
    request = PendingRequest(
        900, inode.ino, inode.generation, 7, zone="z", folder="root", name="a", remote_id=None
    )
    with state.transaction():
        state.requests.note(request)
    lose(state, inodes=inode.ino, intents=inode.ino)
    return inode.ino, inode.generation


def of_nothing(state: LocalState, zone: int) -> tuple[int, int]:
    """Store bytes that no row names, which only the repair keeps."""
    salvaged(state)
    return 900, store(state, 900, b"content")


@pytest.mark.parametrize("text", [b"", b"\xff\xfe", b"../a/b", b"a" * 5000])
def test_a_damaged_mark_does_not_keep_the_daemon_from_starting(disk: Disk, text: bytes) -> None:
    """The mark only names the damaged file; the bytes are found as if it were intact."""
    state = disk.start()
    salvaged(state).write_bytes(text)
    which = 900, store(state, 900, b"content")
    state = disk.recovered()
    assert shown(state) == {f"{which[0]}-{which[1]}": b"content"}
    assert not repair.pending(state.database.path)


@pytest.mark.parametrize("lost", [of_an_inode, of_a_folder, of_a_request, of_nothing])
def test_bytes_without_a_name_are_shown_once(
    disk: Disk, lost: Callable[[LocalState, int], tuple[int, int]]
) -> None:
    """The files have their times, stay local and leave lost+found when the user deletes them."""
    state = disk.start()
    zone = zone_of(state).ino
    kept = saved(state, "kept", b"kept", parent=zone)
    ino, generation = lost(state, zone)
    os.utime(state.spool.path(ino, generation), ns=(5, 7))
    for _ in range(3):
        state = disk.recovered()
        assert shown(state) == {f"{ino}-{generation}": b"content"}
        (inode,) = state.inodes.inodes_in(state.inodes.children(ROOT)[LOST_FOUND])
        assert (inode.mtime_ns, inode.size) == (7, 7)
        assert {*state.spool.stored()} == {
            (kept.ino, kept.generation), (inode.ino, inode.generation)
        }  # fmt: skip
        assert [each.ino for each in state.intents.all()] == [kept.ino]
        assert state.requests.all() == []
        assert not repair.pending(state.database.path)
    with state.transaction():
        state.inodes.unlink(inode)
    state = disk.recovered()
    assert set(state.inodes.children(ROOT)) == {"Zone"}
    assert state.spool.stored() == [(kept.ino, kept.generation)]


def test_bytes_that_a_power_cut_brings_back_are_shown_under_another_name(disk: Disk) -> None:
    """The repair was undone, but not the folder, where the name is taken: the start must work."""
    state = disk.start()
    salvaged(state)
    generation = store(state, 900, b"content")
    for number in ("", " (2)", " (3)"):
        state = disk.recovered()
        assert shown(state)[f"900-{generation}{number}"] == b"content"
        salvaged(state)
        with closing(state.spool.create(900, generation)) as file:
            file.pwrite(0, b"content")


def test_bytes_with_two_names_are_shown_only_without_another_name(disk: Disk) -> None:
    """A second hard link of named bytes is deleted; of two links without a name, one is shown."""
    state = disk.start()
    kept = saved(state, "kept", b"kept", parent=zone_of(state).ino)
    salvaged(state)
    generation = store(state, 900, b"twice")
    with state.transaction():
        state.spool.link(900, generation, 901)
        state.spool.link(kept.ino, kept.generation, 902)
    state = disk.recovered()
    assert shown(state) == {f"900-{generation}": b"twice"}
    assert len(state.spool.stored()) == 2


def test_a_linked_row_keeps_its_bytes(disk: Disk) -> None:
    """Bytes that a file still has are not shown for a request whose inode is lost."""
    state = disk.start()
    kept = saved(state, "kept", b"kept", parent=zone_of(state).ino)
    request = PendingRequest(
        900, 901, kept.generation, 4, zone="z", folder="root", name="a", remote_id=None
    )
    with state.transaction():
        state.spool.link(kept.ino, kept.generation, 901)
        state.requests.note(request)
    state = disk.recovered()
    assert shown(state) == {}
    assert state.spool.stored() == [(kept.ino, kept.generation)]
    assert read(state, kept.ino) == b"kept"


def test_a_deleted_file_whose_deletion_is_lost_leaves_nothing(disk: Disk) -> None:
    """Its request is dropped with its row, because no intent is left that would settle it."""
    state = disk.start()
    inode = saved(state, "a", b"content")
    sent = PendingRequest(inode.ino, inode.ino, inode.generation, 7, "z", "root", "a", None)
    state.record_request(sent)
    with state.transaction():
        state.inodes.update(inode, parent=NOWHERE)
    lose(state, intents=inode.ino)
    state = disk.recovered()
    assert state.requests.all() == []
    assert state.spool.stored() == []
    assert shown(state) == {}


def test_unreadable_bytes_are_shown_as_an_empty_file(
    disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    """Bytes that cannot be decrypted are kept, and reported."""
    state = disk.start()
    salvaged(state)
    (disk.path / "outgoing" / "900-5.sealed").write_bytes(b"secret")
    state = disk.recovered()
    (inode,) = state.inodes.inodes_in(state.inodes.children(ROOT)[LOST_FOUND])
    assert (inode.name, inode.size) == ("900-5", 0)
    assert state.spool.path(inode.ino, inode.generation).read_bytes() == b"secret"
    assert "900-5.sealed cannot be read" in caplog.text


def test_a_zone_named_like_the_folder_stays(disk: Disk) -> None:
    """Only the local folder lost+found is removed when it is empty."""
    state = disk.start()
    with state.transaction():
        state.inodes.add(ROOT, LOST_FOUND, Kind.ZONE, zone="l", remote_id="l")
    state = disk.recovered()
    assert LOST_FOUND in state.inodes.children(ROOT)


def test_conflicts_of_lost_rows_are_dropped(disk: Disk) -> None:
    """The list of conflicts has only files that exist."""
    state = disk.start()
    kept = saved(state, "kept", b"kept", parent=zone_of(state).ino)
    with state.transaction():
        for ino in (900, kept.ino):
            state.intents.conflicts.add(Conflict(ino, ino, "bob", 1))
    state = disk.recovered()
    assert [each.ino for each in state.intents.conflicts.all()] == [kept.ino]


def told(intent: Intent | None) -> tuple[object, ...] | None:
    """Return the fields of an intent, without its time."""
    if intent is None:
        return None
    content = (intent.generation, intent.size, intent.base) if intent.generation else ()
    return intent.state.name, *content, *(("base", intent.base) if intent.parked else ())


def test_lost_changes_are_recorded_again(disk: Disk) -> None:
    """Changes that the inodes show are sent; no change is sent twice or without a reason."""
    state = disk.start()
    zone = zone_of(state).ino
    rows: dict[str, tuple[Kind, dict[str, object], tuple[object, ...] | None]] = {
        "new": (Kind.FILE, {"generation": 1, "size": 5}, ("SAVED", 1, 5, None)),
        "edited": (
            Kind.FILE, {**THEIRS, "remote_id": "1", "remote_name": "edited", "generation": 2,
                        "size": 6}, ("SAVED", 2, 6, "3"),
        ),
        "renamed": (
            Kind.FILE, {**THEIRS, "remote_id": "2", "remote_name": "old"}, ("MOVED",)
        ),
        "moved": (
            Kind.FILE, {**THEIRS, "remote_id": "3", "remote_name": "moved", "remote_parent": "x"},
            ("MOVED",),
        ),
        "renamed and edited": (
            Kind.FILE, {**THEIRS, "remote_id": "4", "remote_name": "old too", "generation": 4,
                        "size": 7}, ("SAVED_MOVED", 4, 7, "3"),
        ),
        "new folder": (Kind.FOLDER, {}, ("MOVED",)),
        "renamed folder": (
            Kind.FOLDER, {**THEIRS, "remote_id": "5", "remote_name": "old folder"}, ("MOVED",)
        ),
        "same": (Kind.FILE, {**THEIRS, "remote_id": "6", "remote_name": "same"}, None),
        "same folder": (
            Kind.FOLDER, {**THEIRS, "remote_id": "7", "remote_name": "same folder"}, None
        ),
        "tab\u2409": (Kind.FILE, {**THEIRS, "remote_id": "8", "remote_name": "tab\t"}, None),
        "swap~": (Kind.FILE, {"local": True, "generation": 8, "size": 1}, None),
        "parked~": (
            Kind.FILE, {**THEIRS, "remote_id": "9", "remote_name": "p", "local": True},
            ("PARKED", "base", "3"),
        ),
        "local folder~": (Kind.FOLDER, {"local": True}, None),
    }  # fmt: skip
    with state.transaction():
        for name, (kind, fields, _) in rows.items():
            inode = state.inodes.add(zone, name, kind, **{"zone": "z", **fields})
            if inode.generation:
                state.spool.create(inode.ino, inode.generation).close()
        removed = state.inodes.add(zone, "removed", Kind.FILE, **THEIRS, remote_id="10")
        state.inodes.unlink(removed, tombstone=True)
        known = state.inodes.add(
            zone, "known", Kind.FILE, **THEIRS, remote_id="11", remote_name="former", generation=9
        )
        state.spool.create(known.ino, 9).close()
        state.intents.content(known.ino, 9, 3, base=Revision("2"), held=False, due_ns=5)
        placed = state.inodes.add(zone, "placed", Kind.FOLDER, **THEIRS, remote_id="12")
        state.intents.place(placed.ino, 6)
        waits = state.inodes.add(zone, "parked too~", Kind.FILE, **THEIRS, local=True)
        state.inodes.update(waits, remote_id="13", remote_name="p2")
        state.intents.park(waits.ino, Revision("1"))
    mark = salvaged(state)
    state = disk.recovered()
    names = state.inodes.children(zone)
    found = {name: told(state.intents.get(names[name])) for name in rows}
    assert found == {name: wanted for name, (_, _, wanted) in rows.items()}
    assert told(state.intents.get(known.ino)) == ("SAVED_MOVED", 9, 3, "2")
    intent = state.intents.get(placed.ino)
    assert intent is not None
    assert (intent.due_ns, intent.seq) == (6, 2), "the row that was not lost is not replaced"
    assert told(state.intents.get(waits.ino)) == ("PARKED", "base", "1")
    assert state.inodes.find(removed.ino) is None or state.inodes.get(removed.ino).parent == NOWHERE
    assert state.intents.get(removed.ino) is None
    assert state.intents.get(zone) is None
    assert not mark.exists()


def test_listings_of_a_repaired_database_are_fetched_again(disk: Disk) -> None:
    """Rows may be missing in a folder that was listed; after an ordinary start nothing is."""
    state = disk.start()
    zone = zone_of(state)
    with state.transaction():
        state.inodes.update(zone, listed=True)
    state = disk.recovered()
    assert state.inodes.get(zone.ino).listed
    salvaged(state)
    state = disk.recovered()
    assert not state.inodes.get(zone.ino).listed


def test_an_edit_that_was_never_saved_leaves_no_name(disk: Disk) -> None:
    """A new file with neither bytes nor content is removed; folders and other files stay."""
    state = disk.start()
    zone = zone_of(state).ino
    with state.transaction():
        for name, kind, fields in (
            ("never closed", Kind.FILE, {}),
            ("never written~", Kind.FILE, {"local": True}),
            ("lost~", Kind.FILE, {"local": True, "generation": 4}),
            ("folder~", Kind.FOLDER, {"local": True}),
            ("theirs", Kind.FILE, {**THEIRS, "remote_id": "1"}),
        ):
            state.inodes.add(zone, name, kind, **{"zone": "z", **fields})
    saved(state, "kept~", b"x", parent=zone, local=True)
    state = disk.recovered()
    assert set(state.inodes.children(zone)) == {"folder~", "theirs", "kept~"}


def test_bytes_that_are_newer_than_a_repaired_row_stay(disk: Disk) -> None:
    """The row that recorded the last save may be lost, so they are not taken for unsaved bytes."""
    state = disk.start()
    inode = saved(state, "a", b"content")
    with closing(state.spool.open(inode.ino, inode.generation)) as file:
        file.pwrite(7, b", saved later")
    salvaged(state)
    again = disk.recovered()
    with closing(again.spool.open(inode.ino, inode.generation)) as file:
        assert file.pread(0, 100) == b"content, saved later"
