"""Operations of programs on names and content: what is sent, what stays local, what is kept."""

from collections.abc import Callable

import pytest

from tests.unit.state.test_outbox_states import Machine
from zonedrive.model import Revision
from zonedrive.state import local_operations
from zonedrive.state.inode import NOWHERE, ROOT, Inode, Kind
from zonedrive.state.intents import Conflict
from zonedrive.state.invalidation import InodeChanged
from zonedrive.state.local_state import LocalState
from zonedrive.state.open_file import Session


def changes(machine: Machine) -> dict[str, str]:
    """Return the state of each change by the last name on this machine, with "-" if removed."""
    tree, found = machine.state.inodes, machine.state.intents.all()
    return {"-" * one.gone + tree.get(one.ino).name: one.state.name for one in found}


def closed(machine: Machine, *, new: bool = True) -> Inode:
    """Return a file with local bytes that no program has open."""
    inode = machine.file(new=new)
    machine.save(inode)
    machine.state.intents.let_go(inode.ino, 0)
    return inode


def folder(machine: Machine, name: str, *, new: bool = True, parent: Inode | None = None) -> Inode:
    """Return a folder."""
    above = parent or machine.zone
    if new:
        return local_operations.make_folder(machine.state, above, name, 0o700)
    with machine.state.transaction():
        return machine.state.inodes.add(
            above.ino, name, Kind.FOLDER, zone="z", remote_id=name,
            remote_parent=above.remote_id, remote_name=name, listed=True,
        )  # fmt: skip


def test_a_folder_with_a_local_name_is_never_sent(machine: Machine) -> None:
    """A folder has the bits of its mode, and changes the time of the folder above it."""
    with machine.state.transaction():
        machine.state.inodes.update(machine.zone, mtime_ns=1, ctime_ns=1)
    made, local = folder(machine, "made"), folder(machine, "made~")
    assert (made.local, local.local) == (False, True)
    assert (made.listed, made.mode, made.zone) == (True, 0o700, "z")
    assert changes(machine) == {"made": "MOVED"}
    assert machine.zone.mtime_ns == machine.zone.ctime_ns > 1


def test_a_new_entry_is_empty_and_has_the_permission_bits_of_its_mode(machine: Machine) -> None:
    """The kernel may pass the type of the file as well."""
    state, zone = machine.state, machine.zone
    file = local_operations.create_file(state, zone, "file", 0o100640)
    made = local_operations.make_folder(state, zone, "folder", 0o040750)
    assert (file.mode, file.size, file.generation) == (0o640, 0, 0)
    assert (made.mode, made.size, made.generation) == (0o750, 0, 0)


def test_a_deleted_open_file_can_be_created_again(machine: Machine) -> None:
    """The file keeps its inode, is empty, and has no place on the service. This is reported."""
    state, inode = machine.state, machine.file()
    opened = state.new_open_file(inode)
    with state.transaction():
        state.inodes.unlink(inode, tombstone=True)
    local_operations.recreate_empty(state, opened, machine.zone, "again")
    assert state.inodes.child(machine.zone.ino, "again") is inode
    assert (inode.size, inode.revision) == (0, Revision(""))
    assert (inode.remote_parent, inode.remote_name) == (None, None)
    assert opened.content == Revision("")
    assert state.intents.conflicts.unacknowledged() == {inode.ino}
    assert state.invalidations.receive.receive_nowait() == InodeChanged(inode.ino, attr_only=False)


def saved(state: LocalState, inode: Inode) -> Session:
    """Commit ten bytes as the file's content; return the session, whose file is open."""
    generation = state.next_generation()
    file = state.spool.create(inode.ino, generation)
    file.pwrite(0, b"0123456789")
    session = Session(generation, file, inode.revision, 0, inode.revision)
    file.flush()
    local_operations.commit_content(state, inode, session)
    return session


@pytest.mark.parametrize(
    ("size", "other", "is_sent", "shrinks"),
    [(5, False, True, True), (10, False, True, False), (11, False, True, False),
     (0, False, True, True), (5, True, True, False), (5, False, False, True)],
)  # fmt: skip
def test_a_record_never_names_more_bytes_than_the_file_has(
    machine: Machine, size: int, other: bool, is_sent: bool, shrinks: bool
) -> None:
    """A cut shrinks the record of these bytes before the file, never that of others."""
    state, inode = machine.state, machine.file()
    session = saved(state, inode)
    if not is_sent:
        with state.transaction():
            state.intents.drop(inode.ino)
    if other:
        with state.transaction():
            state.inodes.update(inode, generation=session.generation + 1)
    local_operations.shrink_content(state, inode, session, size)
    session.file.close()
    assert inode.size == (size if shrinks else 10)
    intent = state.intents.get(inode.ino)
    assert (intent is not None) == is_sent
    if intent is not None:
        assert (intent.size, intent.held) == (inode.size, True)


def test_a_cut_of_bytes_that_were_sent_does_not_send_them_again(machine: Machine) -> None:
    """The cut file is sent when the program has written the rest; its rename is independent."""
    state, inode = machine.state, machine.file()
    session = saved(state, inode)
    with state.transaction():
        state.intents.drop(inode.ino)
    machine.rename(inode, "renamed")
    local_operations.shrink_content(state, inode, session, 5)
    session.file.close()
    assert inode.size == 5
    assert (machine.intent(inode).place, machine.intent(inode).generation) == (True, 0)


def test_a_save_replaces_the_bytes_of_the_former_one(machine: Machine) -> None:
    """The former bytes are deleted, the file has the newer times, and is sent unless local."""
    state, inode = machine.state, machine.file(new=True)
    machine.save(inode)
    before = inode.generation
    machine.save(inode)
    assert state.spool.stored() == [(inode.ino, inode.generation)]
    assert inode.generation > before
    local = machine.file()
    machine.rename(local, "local~")
    machine.save(local)
    gone = machine.file()
    machine.open(gone)
    local_operations.remove(state, gone)
    machine.save(gone)
    assert changes(machine) == {"f1": "OPEN", "local~": "PARKED", "-f3": "REMOVED_IN_USE"}


def test_a_folder_with_entries_is_not_removed(machine: Machine) -> None:
    """The error is the one of rmdir(2)."""
    outer = folder(machine, "outer")
    folder(machine, "inner", parent=outer)
    with pytest.raises(OSError, match="not empty"):
        local_operations.remove(machine.state, outer)
    assert machine.state.inodes.child(machine.zone.ino, "outer") is outer


def test_a_removal_replaces_pending_changes(machine: Machine) -> None:
    """The service gets a deletion only for an entry that it has, or may have."""
    state = machine.state
    new, known, asked = closed(machine), closed(machine, new=False), closed(machine)
    machine.send(asked)
    opened = closed(machine, new=False)
    machine.open(opened)
    with state.transaction():
        state.intents.conflicts.add(Conflict(known.ino, known.ino, "bob", 1))
    for each in (new, known, asked, opened):
        local_operations.remove(state, each, final=each is known)
    assert changes(machine) == {"-f2": "DELETED", "-f3": "REMOVED", "-f4": "REMOVED_IN_USE"}
    assert state.intents.conflicts.all() == []
    kept = {(asked.ino, machine.state.requests.all()[0].generation)}
    kept |= {(opened.ino, opened.generation)}
    assert set(state.spool.stored()) == kept
    assert [each.generation for each in (known, asked)] == [0, 0]
    assert state.opened[opened.ino].removed_here


def test_a_whole_folder_is_removed_permanently(machine: Machine) -> None:
    """No new folder takes over its identity."""
    state, outer = machine.state, folder(machine, "outer", new=False)
    inner = folder(machine, "inner", new=False, parent=outer)
    local_operations.remove_whole(state, outer)
    assert changes(machine) == {"-outer": "DELETED"}
    assert (outer.parent, inner.parent) == (NOWHERE, outer.ino)


def test_a_forgotten_folder_keeps_the_bytes_of_an_open_file_until_its_close(
    machine: Machine,
) -> None:
    """The bytes of the other files below the folder are deleted at once."""
    state, outer = machine.state, folder(machine, "outer", new=False)
    inner = folder(machine, "inner", new=False, parent=outer)
    open_file, other = closed(machine, new=False), closed(machine, new=False)
    for each in (open_file, other):
        local_operations.rename(state, each, inner, each.name, None)
    machine.open(open_file)
    local_operations.remove_whole(state, outer)
    local_operations.forget(state, outer)
    assert state.spool.stored() == [(open_file.ino, open_file.generation)]
    assert [state.inodes.find(each.ino) for each in (outer, inner, other)] == [None] * 3
    assert len(state.intents) == 0
    del state.opened[open_file.ino]
    state.release_if_unreferenced(open_file)
    assert state.spool.stored() == []


@pytest.mark.parametrize("final", [False, True])
def test_the_successor_of_a_removed_file_continues_its_history(
    machine: Machine, final: bool
) -> None:
    """A file that was moved to the place of a removed one is sent as its next version."""
    old, successor = machine.file(), closed(machine, new=False)
    machine.rename(old, "aside")
    machine.rename(successor, "f1")
    local_operations.remove(machine.state, old, final=final)
    assert successor.is_new != final
    sent = "SAVED_MOVED" if final else "SAVED"
    removed = {"-aside": "DELETED"} if final else {"-aside": "REMOVED", "-f1": "REMOVED"}
    assert changes(machine) == {"f1": sent, **removed}
    assert machine.intent(successor).base == (Revision("1") if final else None)


@pytest.mark.parametrize("kind", ["file", "folder", "new file", "none"])
def test_only_a_known_file_that_was_moved_to_the_place_is_a_successor(
    machine: Machine, kind: str
) -> None:
    """A folder has no versions, and a new file takes over the entry by itself."""
    state, old = machine.state, machine.file()
    machine.rename(old, "aside")
    assert local_operations.successor(state, old) is None
    other = folder(machine, "other", new=False) if kind == "folder" else machine.file()
    if kind == "new file":
        with state.transaction():
            state.inodes.update(other, remote_id=None)
    if kind != "none":
        machine.rename(other, "f1")
    if kind == "new file":
        with state.transaction():
            state.intents.place(other.ino, 0)
    assert local_operations.successor(state, old) is (other if kind == "file" else None)


def removed(machine: Machine, inode: Inode) -> None:
    local_operations.remove(machine.state, inode)


def removed_during_upload(machine: Machine, inode: Inode) -> None:
    """Remove a file whose upload is running."""
    machine.save(inode)
    machine.state.in_flight[inode.ino] = machine.intent(inode)
    local_operations.remove(machine.state, inode)


def being_deleted(machine: Machine, inode: Inode) -> None:
    """Remove a file, and start the deletion of its entry."""
    local_operations.remove(machine.state, inode)
    machine.state.in_flight[inode.ino] = machine.intent(inode)


def removed_for_good(machine: Machine, inode: Inode) -> None:
    local_operations.remove(machine.state, inode, final=True)


def parked(machine: Machine, inode: Inode) -> None:
    machine.rename(inode, f"{inode.name}~")


def moved(machine: Machine, inode: Inode) -> None:
    machine.rename(inode, f"{inode.name} elsewhere")


@pytest.mark.parametrize(
    ("left", "continues"),
    [(removed, True), (removed_during_upload, True), (being_deleted, False),
     (removed_for_good, False), (parked, True), (moved, False)],
)  # fmt: skip
def test_a_file_at_the_name_of_a_former_one_continues_its_history(
    machine: Machine, left: Callable[[Machine, Inode], None], continues: bool
) -> None:
    """The former file was removed or set aside; a file in another folder or zone is another one.

    An entry whose deletion is under way may be gone already.
    """
    state, former, other = machine.state, machine.file(), closed(machine, new=False)
    name = former.name
    left(machine, former)
    assert (local_operations.removed_at(state, machine.zone, name) is former) == continues
    assert local_operations.removed_at(state, machine.zone, "another") is None
    inner = folder(machine, "inner", new=False)
    assert local_operations.removed_at(state, inner, name) is None
    machine.rename(other, name)
    assert other.is_new == continues


def test_a_removed_folder_has_no_history(machine: Machine) -> None:
    """Only files have versions."""
    former, other = folder(machine, "former", new=False), closed(machine, new=False)
    local_operations.remove(machine.state, former)
    assert local_operations.removed_at(machine.state, machine.zone, "former") is None
    machine.rename(other, "former")
    assert not other.is_new


def test_a_new_file_over_another_one_becomes_its_next_version(machine: Machine) -> None:
    """The new file takes over place, version, request and conflict of the other."""
    state = machine.state
    target, new = closed(machine, new=False), closed(machine)
    with state.transaction():
        state.inodes.update(target, modified_by="bob", type="txt")
    sent = machine.send(target)
    machine.rename(target, "renamed")
    with state.transaction():
        state.intents.conflicts.add(Conflict(target.ino, target.ino, "bob", 1))
    opened = state.new_open_file(new)
    machine.rename(new, "renamed", target)
    assert (new.remote_id, new.remote_parent, new.remote_name) == ("f1", "root", "f1")
    assert (new.revision, new.modified_by, new.type) == (Revision("1"), "bob", "txt")
    said = machine.intent(new)
    assert (said.state.name, said.base, said.generation) == (
        "SAVED_MOVED", Revision("1"), new.generation
    )  # fmt: skip
    assert len(state.intents) == 1
    request = state.requests.get(new.ino)
    assert request is not None
    assert (request.bytes_ino, request.generation) == (target.ino, sent.generation)
    assert [each.ino for each in state.intents.conflicts.all()] == [new.ino]
    assert state.opened[new.ino] is opened
    assert target.parent == NOWHERE
    assert set(state.spool.stored()) == {
        (target.ino, sent.generation), (new.ino, new.generation)
    }  # fmt: skip


@pytest.mark.parametrize("known", ["moved", "target", "both", "neither"])
def test_a_file_over_another_one(machine: Machine, known: str) -> None:
    """The service has one file afterwards, whichever of the two it knew."""
    state = machine.state
    moving = closed(machine, new=known in ("target", "neither"))
    target = closed(machine, new=known in ("moved", "neither"))
    machine.rename(moving, target.name, target)
    assert state.inodes.child(machine.zone.ino, "f2") is moving
    found = {
        (one.state.name, one.base, state.inodes.get(one.ino).remote_id)
        for one in state.intents.all()
    }
    assert (
        found
        == {
            "moved": {("SAVED_MOVED", Revision("1"), "f1")},
            "target": {("SAVED", Revision("1"), "f2")},
            "both": {("SAVED", Revision("1"), "f2"), ("REMOVED", None, "f1")},
            "neither": {("SAVED", None, None)},
        }[known]
    )


def test_a_new_folder_over_another_one(machine: Machine) -> None:
    """The replaced folder is deleted on the service."""
    moving, target = folder(machine, "moving"), folder(machine, "target", new=False)
    local_operations.rename(machine.state, moving, machine.zone, "target", target)
    assert changes(machine) == {"target": "MOVED", "-target": "REMOVED"}
    assert moving.is_new


def test_a_folder_that_gets_a_local_name(machine: Machine) -> None:
    """The content of the folder is not sent until the folder gets another name."""
    state, outer = machine.state, folder(machine, "outer")
    inner = folder(machine, "inner", parent=outer)
    swap = folder(machine, "swap~", parent=inner)
    file, empty, known = closed(machine), machine.file(new=True), closed(machine, new=False)
    asked = closed(machine)
    for each in (file, empty, known, asked):
        local_operations.rename(state, each, inner, each.name, None)
    machine.send(asked)
    local_operations.rename(state, outer, machine.zone, "outer~", None)
    ghosts = [one.ino for one in state.intents.all() if one.gone]
    assert [state.requests.get(ino) is not None for ino in ghosts] == [True]
    assert changes(machine) == {"f3": "PARKED", "-f4": "REMOVED"}
    inodes = (outer, inner, file, empty, known, asked, swap)
    assert all(each.local for each in inodes)
    local_operations.rename(state, outer, machine.zone, "outer", None)
    assert [each.local for each in inodes] == [False] * 6 + [True]
    found = {state.inodes.path(one.ino): one.state.name for one in state.intents.all()}
    assert found == {
        "Zone/outer": "MOVED", "Zone/outer/inner": "MOVED", "Zone/outer/inner/f1": "SAVED",
        "Zone/outer/inner/f3": "SAVED_MOVED", "Zone/outer/inner/f4": "SAVED", "f4": "REMOVED",
    }  # fmt: skip


def test_a_name_that_returns_to_its_place_needs_no_request(machine: Machine) -> None:
    """A move back needs a request only if a move was sent whose outcome is unknown."""
    state = machine.state
    plain, asked, flying = machine.file(), machine.file(), machine.file()
    for each in (plain, asked, flying):
        machine.rename(each, f"{each.name}-")
    machine.send_move(asked)
    state.in_flight[flying.ino] = machine.intent(flying)
    for each in (plain, asked, flying):
        machine.rename(each, each.name.strip("-"))
    assert changes(machine) == {"f2": "MOVED", "f3": "MOVED"}


def test_an_exchange_of_a_new_file_sends_it_under_its_name(machine: Machine) -> None:
    """Each inode has the other's name; a planned upload of the former name is stale."""
    state, new, known = machine.state, closed(machine), machine.file()
    planned = state.intents.snapshot(machine.intent(new))
    local_operations.exchange(state, new, known)
    assert (new.name, known.name) == ("f2", "f1")
    assert not planned.is_current
    assert changes(machine) == {"f2": "SAVED", "f1": "MOVED"}
    assert machine.state.inodes.path(ROOT) == ""


def test_an_exchange_changes_the_times_of_both_folders(machine: Machine) -> None:
    state, zone, other = machine.state, machine.zone, folder(machine, "other")
    file, moved = closed(machine), closed(machine)
    local_operations.rename(state, moved, other, "moved", None)
    with state.transaction():
        for each in (zone, other):
            state.inodes.update(each, mtime_ns=1, ctime_ns=1)
    local_operations.exchange(state, file, moved)
    assert zone.mtime_ns == zone.ctime_ns > 1
    assert other.mtime_ns == other.ctime_ns > 1


def test_a_conflict_ends_when_the_user_renames_the_copy(machine: Machine) -> None:
    """A rename to a local-only name does not end the conflict; the user is notified of it once."""
    state, one, other = machine.state, machine.file(), machine.file()
    with state.transaction():
        for each in (one, other):
            state.intents.conflicts.add(Conflict(each.ino, each.ino, "bob", 1))
    local_operations.acknowledge_conflicts(state, [other.ino])
    assert state.intents.conflicts.unacknowledged() == {one.ino}
    machine.rename(one, "one~")
    machine.rename(other, "other")
    assert [each.ino for each in state.intents.conflicts.all()] == [one.ino]


@pytest.mark.parametrize("is_sent", [True, False])
def test_the_conflict_of_a_new_copy_ends_when_the_user_renames_the_copy(
    machine: Machine, is_sent: bool
) -> None:
    """The conflict ends whether or not the upload of the copy has begun."""
    state, copy = machine.state, closed(machine)
    with state.transaction():
        state.intents.conflicts.add(Conflict(copy.ino, copy.ino, "bob", 1))
    if is_sent:
        machine.send(copy)
    machine.rename(copy, "renamed")
    assert state.intents.conflicts.all() == []
    assert state.intents.conflicts.unacknowledged() == set()


def test_the_last_place_of_a_file_is_recorded_until_the_rename_is_sent(machine: Machine) -> None:
    """The place is one that the service does not know; names of this machine do not count."""
    state, file = machine.state, machine.file()
    places: list[tuple[int, str] | None] = []
    for name in ("one", "two", "two~", "three~", "f1", "four"):
        machine.rename(file, name)
        intent = state.intents.get(file.ino)
        places.append(intent.left if intent else None)
    zone = machine.zone.ino
    assert places == [None, (zone, "one"), (zone, "two"), (zone, "two"), None, None]
    local_operations.remove(state, file)
    assert machine.intent(file).left == (zone, "four")


def test_the_last_place_stays_recorded_while_a_new_file_is_there(machine: Machine) -> None:
    """The old file may be renamed again or removed before the new one is sent."""
    state, file = machine.state, machine.file()
    for name in ("one", "two"):
        machine.rename(file, name)
    new = local_operations.create_file(state, machine.zone, "one", 0o600)
    machine.rename(file, "three")
    assert machine.intent(file).left == (machine.zone.ino, "one")
    local_operations.exchange(state, file, machine.file())
    assert machine.intent(file).left == (machine.zone.ino, "one")
    local_operations.remove(state, new)
    local_operations.remove(state, file)
    assert machine.intent(file).left == (machine.zone.ino, "f2")


def test_a_file_that_replaces_another_one_gets_its_last_place(machine: Machine) -> None:
    """An editor replaces its last backup by the file that it has saved before."""
    file, saved = machine.file(), closed(machine)
    for name in ("one", "two"):
        machine.rename(file, name)
    machine.rename(saved, "two", file)
    assert saved.remote_name == "f1"
    assert machine.intent(saved).left == (machine.zone.ino, "one")


def test_a_sent_rename_ends_the_record_of_the_last_place(machine: Machine) -> None:
    """The content that is still to be sent has no such record."""
    file = closed(machine, new=False)
    for name in ("one", "two"):
        machine.rename(file, name)
    with machine.state.transaction():
        machine.state.intents.done(machine.intent(file), place=True)
    assert (machine.intent(file).state.name, machine.intent(file).left) == ("SAVED", None)
