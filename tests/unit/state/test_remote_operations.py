"""Effect of the service's answers on local changes."""

import msgspec
import pytest

from tests.unit.state.test_outbox_states import Machine
from zonedrive.model import Revision
from zonedrive.state import conflicts, local_operations, remote_operations
from zonedrive.state.inode import Kind
from zonedrive.state.invalidation import InodeChanged
from zonedrive.state.open_file import Session
from zonedrive.state.outbox_states import Change


@pytest.mark.parametrize("is_edited", [False, True])
@pytest.mark.parametrize(("before", "follows"), [("1", True), ("2", False), (None, False)])
def test_a_move_changes_the_revision_and_the_base_of_an_edit(
    machine: Machine, before: Revision | None, follows: bool, is_edited: bool
) -> None:
    """Some services count a move as a version, which is no conflict with a coworker.

    Another version before the move was saved elsewhere; the next listing shows it.
    """
    inode = machine.file()
    if is_edited:
        machine.save(inode)
    machine.rename(inode, "other")
    entry = machine.entry(inode, "other")
    remote_operations.record_move(
        machine.state, inode, "root", entry, before=before, done=machine.intent(inode)
    )
    expected = entry.revision if follows else Revision("1")
    assert (inode.remote_name, inode.revision) == ("other", expected)
    left = machine.state.intents.get(inode.ino)
    assert (left and (left.state, left.base)) == ((Change.OPEN, expected) if is_edited else None)


def test_a_lost_folder_is_created_with_the_folders_above_it(machine: Machine) -> None:
    """The service has lost two nested folders; a second call changes nothing."""
    state, inode = machine.state, machine.file(new=True)
    with state.transaction():
        outer = state.inodes.add(inode.parent, "outer", Kind.FOLDER, zone="z", listed=True)
        inner = state.inodes.add(outer.ino, "inner", Kind.FOLDER, zone="z", listed=True)
    for _ in range(2):
        remote_operations.create_lost_folder(state, inner)
        scheduled = {intent.ino for intent in state.intents.all()}
        assert scheduled == {outer.ino, inner.ino}


@pytest.mark.parametrize(("parent", "expected"), [("", "root"), ("root", "root"), ("f", "f")])
def test_an_arrived_file_is_where_the_service_reports(
    machine: Machine, parent: str, expected: str
) -> None:
    """Some services do not report the folder, which is then that of the request."""
    inode = machine.file(new=True)
    machine.save(inode)
    request = machine.send(inode)
    entry = msgspec.structs.replace(machine.entry(inode), parent_id=parent)
    remote_operations.record_arrival(machine.state, inode, request, entry)
    assert (inode.remote_parent, inode.remote_name) == (expected, inode.name)


def test_an_arrived_folder_has_no_bytes_to_delete(machine: Machine) -> None:
    """Only the bytes of a file move into the cache."""
    state = machine.state
    folder = local_operations.make_folder(state, machine.zone, "folder", 0o700)
    request = machine.send(folder)
    entry = msgspec.structs.replace(machine.entry(folder), folder=True)
    assert not remote_operations.record_arrival(state, folder, request, entry)
    assert folder.remote_id == entry.id
    assert state.intents.get(folder.ino) is None


@pytest.mark.parametrize("is_renamed", [True, False])
def test_a_new_file_gets_the_name_that_the_service_gave_it(
    machine: Machine, is_renamed: bool
) -> None:
    """But a new name that a program has given the file since the request stays, and is sent."""
    inode = machine.file(new=True)
    machine.save(inode)
    machine.state.intents.let_go(inode.ino, 0)
    request = machine.send(inode)
    if is_renamed:
        machine.rename(inode, "renamed")
    entry = machine.entry(inode, "F1")
    remote_operations.record_arrival(machine.state, inode, request, entry)
    assert inode.remote_name == "F1"
    assert inode.name == ("renamed" if is_renamed else "F1")
    left = machine.state.intents.get(inode.ino)
    assert (left.state if left else None) == (Change.MOVED if is_renamed else None)


@pytest.mark.parametrize("edited", [True, False])
def test_a_version_that_went_elsewhere_is_not_sent_again(machine: Machine, edited: bool) -> None:
    """The file shows the service's version, unless it has been edited since."""
    inode = machine.file()
    machine.save(inode)
    machine.state.intents.let_go(inode.ino, 0)
    request = machine.send(inode)
    if edited:
        machine.save(inode)
    current = machine.entry(inode)
    remote_operations.discard_sent(machine.state, inode, request, current)
    assert machine.state.requests.get(inode.ino) is None
    assert (machine.state.intents.get(inode.ino) is not None) == edited
    assert inode.revision == (Revision("1") if edited else current.revision)
    assert bool(inode.generation) == edited


def test_an_edit_of_a_deleted_file_is_a_new_file_and_a_listed_conflict(machine: Machine) -> None:
    """The new file has no id and no base version."""
    inode = machine.file()
    machine.save(inode)
    conflicts.recreate(machine.state, inode)
    assert inode.is_new
    assert machine.intent(inode).base is None
    assert [each.ino for each in machine.state.intents.conflicts.all()] == [inode.ino]


def outdated(machine: Machine) -> list[int | None]:
    """Return the folders whose listings are reported as out of date from now on."""
    found: list[int | None] = []
    machine.state.listing_outdated.add(found.append)
    return found


@pytest.mark.parametrize("situation", ["open", "moved there", "renamed here", "no intent", "gone"])
def test_an_arrived_version(machine: Machine, situation: str) -> None:
    """The rest of the change is based on it, and a name that differs is sent next."""
    state, inode, found = machine.state, machine.file(), outdated(machine)
    machine.save(inode)
    state.intents.let_go(inode.ino, 0)
    request = machine.send(inode)
    generation = inode.generation
    match situation:
        case "open":
            opened = state.new_open_file(inode)
            file = state.spool.open(inode.ino, generation)
            opened.session = Session(generation, file, inode.revision, 0, inode.revision)
        case "moved there":
            with state.transaction():
                state.inodes.update(inode, remote_name="elsewhere")
        case "renamed here":
            machine.rename(inode, "renamed")
        case "no intent":
            with state.transaction():
                state.intents.drop(inode.ino)
        case _:
            with state.transaction():
                state.inodes.unlink(inode, tombstone=True)
                state.intents.drop(inode.ino)
    entry = machine.entry(inode)
    bytes_go = remote_operations.record_arrival(state, inode, request, entry)
    assert bytes_go
    assert inode.generation == 0
    assert inode.revision == entry.revision
    assert found == ([None] if situation == "moved there" else [])
    left = state.intents.get(inode.ino)
    states = {"renamed here": Change.MOVED, "gone": Change.REMOVED, "moved there": Change.MOVED}
    assert (left.state if left else None) == states.get(situation)
    if situation == "open":
        assert opened.session is not None
        assert opened.session.base == entry.revision
        opened.session.file.close()


@pytest.mark.parametrize("entry", ["gone", "another id", "known folder", "told folder"])
def test_the_place_after_a_move_without_an_answer(machine: Machine, entry: str) -> None:
    """A service that does not tell the folder has the entry in the one that was asked for."""
    state, inode = machine.state, machine.file()
    machine.rename(inode, "b")
    request = machine.send_move(inode)
    request = msgspec.structs.replace(request, folder="target")
    state.record_request(request)
    found = machine.entry(inode, "b")
    match entry:
        case "another id":
            with state.transaction():
                state.inodes.update(inode, remote_id="another")
        case "known folder":
            found = msgspec.structs.replace(found, parent_id="")
        case "told folder":
            found = msgspec.structs.replace(found, parent_id="told")
    remote_operations.record_location(state, request, None if entry == "gone" else found)
    places = {"known folder": "target", "told folder": "told"}
    assert inode.remote_parent == places.get(entry, "root")
    assert inode.remote_name == ("b" if entry in places else "f1")
    assert state.requests.all() == []
    assert machine.intent(inode).state is Change.MOVED


def test_a_version_of_the_service_is_shown_without_local_bytes(machine: Machine) -> None:
    """Size, time and author are those of the service; the kernel drops the former content."""
    inode = machine.file()
    entry = msgspec.structs.replace(machine.entry(inode), size=7, modified_ns=9)
    remote_operations.accept_version(machine.state, inode, entry)
    assert (inode.size, inode.mtime_ns, inode.modified_by) == (7, 9, "alice")
    assert inode.revision == entry.revision
    change = machine.state.invalidations.receive.receive_nowait()
    assert change == InodeChanged(inode.ino, attr_only=False)


@pytest.mark.parametrize("why", ["removed", "parked", "in place"])
def test_a_name_that_needs_no_move(machine: Machine, why: str) -> None:
    """Only a shown entry whose name differs is moved."""
    state, inode = machine.state, machine.file()
    if why == "removed":
        with state.transaction():
            state.inodes.unlink(inode, tombstone=True)
    if why == "parked":
        machine.rename(inode, "f1~")
    with state.transaction():
        remote_operations.record_place(state, inode)
    left = state.intents.get(inode.ino)
    assert (left.state if left else None) == (Change.PARKED if why == "parked" else None)
