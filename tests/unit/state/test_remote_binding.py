"""Remote entries that have two inodes, and entries that are handed over to another inode."""

import pytest

from tests.unit.state.test_outbox_states import Machine
from zonedrive.errors import StoreError
from zonedrive.model import Attributes, Entry, Revision
from zonedrive.state import local_operations, remote_binding
from zonedrive.state.inode import NOWHERE, Inode, Kind
from zonedrive.state.invalidation import EntryGone
from zonedrive.state.names import local_name
from zonedrive.state.open_file import Session


def add(machine: Machine, parent: Inode, name: str, kind: Kind, **what: object) -> Inode:
    """Add an inode."""
    with machine.state.transaction():
        return machine.state.inodes.add(parent.ino, name, kind, **{"zone": "z", **what})


def known(machine: Machine, parent: Inode, name: str, kind: Kind = Kind.FILE) -> Inode:
    """Add an inode of an entry that the service has."""
    return add(
        machine, parent, name, kind, remote_id=f"{parent.ino}/{name}", remote_name=name,
        remote_parent=parent.remote_id, revision=Revision("1"), listed=True,
    )  # fmt: skip


def below(machine: Machine, folder: Inode) -> dict[str, int]:
    """Return the inode numbers below a folder by path."""
    top = machine.state.path(folder.ino)
    return {
        machine.state.path(each.ino).removeprefix(f"{top}/"): each.ino
        for each in machine.state.inodes.below(folder.ino)
        if each is not folder
    }


def found(name: str, remote_id: str) -> Entry:
    """Return the service's folder."""
    return Entry(
        id=remote_id, zone_id="z", parent_id="root", name=name, folder=True, size=0,
        modified_ns=1, modified_by="bob", attributes=Attributes(), revision=Revision("7"),
    )  # fmt: skip


def gone(machine: Machine) -> list[EntryGone]:
    """Return the names that the kernel is to forget."""
    queue, items = machine.state.invalidations.receive, []
    while queue.statistics().current_buffer_used:
        items.append(queue.receive_nowait())
    return [each for each in items if isinstance(each, EntryGone)]


def test_a_new_folder_and_a_coworkers_one_of_its_name_are_one(machine: Machine) -> None:
    """The content of both folders stays reachable; local changes and names take precedence.

    Entries whose names are taken have the mark of a listing.
    """
    state, zone = machine.state, machine.zone
    ours = local_operations.make_folder(state, zone, "f", 0o700)
    theirs = known(machine, zone, "f~", Kind.FOLDER)
    only_here = local_operations.create_file(state, ours, "only here", 0o600)
    machine.save(only_here)
    only_there = known(machine, theirs, "only there")
    twin_here = local_operations.create_file(state, ours, "twin", 0o600)
    twin_there = known(machine, theirs, "twin")
    edited_here = local_operations.create_file(state, ours, "edited.txt", 0o600)
    edited_there = known(machine, theirs, "edited.txt")
    machine.save(edited_there)
    inner_here = local_operations.make_folder(state, ours, "inner", 0o700)
    inner_there = known(machine, theirs, "inner", Kind.FOLDER)
    deep_here = local_operations.create_file(state, inner_here, "deep here", 0o600)
    deep_there = known(machine, inner_there, "deep there")
    machine.save(deep_there)
    mixed_here = local_operations.create_file(state, ours, "mixed", 0o600)
    mixed_there = known(machine, theirs, "mixed", Kind.FOLDER)
    deep_mixed = known(machine, mixed_there, "deep mixed")
    machine.save(deep_mixed)
    gone(machine)
    remote_binding.adopt_folder(
        state, machine.intent(ours), ours, found("f", theirs.remote_id or "")
    )
    paths = below(machine, ours)
    beside = local_name("edited.txt", edited_there.remote_id or "", {"edited.txt"})
    mixed = local_name("mixed", mixed_there.remote_id or "", {"mixed"})
    assert paths == {
        "only here": only_here.ino, "only there": only_there.ino, "twin": twin_here.ino,
        "edited.txt": edited_here.ino, beside: edited_there.ino, "inner": inner_here.ino,
        "inner/deep here": deep_here.ino, "inner/deep there": deep_there.ino,
        "mixed": mixed_here.ino, mixed: mixed_there.ino, f"{mixed}/deep mixed": deep_mixed.ino,
    }  # fmt: skip
    assert (ours.remote_id, ours.remote_parent, ours.remote_name) == (
        f"{zone.ino}/f~", "root", "f"
    )  # fmt: skip
    assert (ours.revision, ours.modified_by, ours.listed) == (Revision("7"), "bob", False)
    assert state.intents.get(ours.ino) is None
    assert {each.parent for each in (theirs, twin_there, inner_there)} == {NOWHERE}
    assert set(gone(machine)) == {
        EntryGone(each.ino, name.encode(), ino) for each, name, ino in (
            (theirs, "only there", only_there.ino), (theirs, "twin", twin_there.ino),
            (theirs, "edited.txt", edited_there.ino), (theirs, "inner", inner_there.ino),
            (inner_there, "deep there", deep_there.ino), (zone, "f~", theirs.ino),
        )
    }  # fmt: skip


@pytest.mark.parametrize("what", ["new file", "renamed file", "new folder", "sent folder"])
def test_two_local_entries_of_one_name(machine: Machine, what: str) -> None:
    """Folders are united; a file, and a folder that is being created, become conflict copies."""
    state, zone = machine.state, machine.zone
    ours = local_operations.make_folder(state, zone, "f", 0o700)
    theirs = known(machine, zone, "f~", Kind.FOLDER)
    if what.endswith("folder"):
        twin = local_operations.make_folder(state, ours, "a", 0o700)
        child = local_operations.make_folder(state, theirs, "a", 0o700)
        deep = local_operations.create_file(state, child, "deep", 0o600)
        machine.save(deep)
    else:
        twin = local_operations.create_file(state, ours, "a", 0o600)
        if what == "new file":
            child = local_operations.create_file(state, theirs, "a", 0o600)
            machine.save(child)
        else:
            child = known(machine, theirs, "former")
            local_operations.rename(state, child, theirs, "a", None)
    if what == "sent folder":
        machine.send(child)
    remote_binding.adopt_folder(state, machine.intent(ours), ours, found("f", f"{zone.ino}/f~"))
    assert state.inodes.child(ours.ino, "a") is twin
    if what == "new folder":
        assert below(machine, ours) == {"a": twin.ino, "a/deep": deep.ino}
        assert state.intents.get(child.ino) is None
        return
    assert child.parent == ours.ino
    assert child.name.startswith("a (conflict, alice on ")
    (conflict,) = state.intents.conflicts.all()
    assert (conflict.ino, conflict.original, conflict.by) == (child.ino, twin.ino, "alice")
    assert machine.intent(child).place == (what != "new file")


@pytest.mark.parametrize("other", ["none", "same", "free", "in use", "another kind"])
def test_another_inode_of_an_entry_is_dropped_unless_it_is_in_use(
    machine: Machine, other: str
) -> None:
    """A wrong id is replaced only if no local change depends on the other inode."""
    state, zone = machine.state, machine.zone
    file = known(machine, zone, "a")
    twin: Inode | None = None
    match other:
        case "free" | "in use":
            twin = known(machine, zone, "b")
        case "another kind":
            twin = known(machine, zone, "b", Kind.FOLDER)
    if other == "in use" and twin is not None:
        machine.save(twin)
    new_id = file.remote_id if other == "same" else f"{zone.ino}/b"
    if other in ("in use", "another kind"):
        with pytest.raises(StoreError):
            remote_binding.adopt_id(state, file, new_id or "")
        assert file.remote_id == f"{zone.ino}/a"
        assert twin is not None
        assert state.inodes.find(twin.ino) is twin
        return
    remote_binding.adopt_id(state, file, new_id or "")
    assert file.remote_id == new_id
    assert set(state.inodes.children(zone.ino)) == {"a"}


@pytest.mark.parametrize("leaves", ["removed", "renamed", "parked"])
@pytest.mark.parametrize("writing", [False, True])
@pytest.mark.parametrize("copied", [False, True])
@pytest.mark.parametrize("is_there", [False, True])
def test_a_new_file_takes_over_an_entry(
    machine: Machine, leaves: str, writing: bool, copied: bool, is_there: bool
) -> None:
    """The former file is gone, or is sent as a new one; copied bytes are not sent again.

    If the new file is not at the place of the entry, the entry is moved to the file.
    """
    state, old, new = machine.state, machine.file(), machine.file(new=True)
    machine.save(new)
    state.intents.let_go(new.ino, 0)
    match leaves:
        case "removed":
            local_operations.remove(state, old)
        case "renamed":
            machine.save(old)
            machine.rename(old, "renamed")
        case _:
            machine.save(old)
            machine.rename(old, "parked~")
    if is_there:
        machine.rename(new, "f1")
    if writing:
        opened = state.new_open_file(new)
        file = state.spool.open(new.ino, new.generation)
        opened.session = Session(new.generation, file, None, 0, Revision(""))
        if leaves != "removed":
            former = state.new_open_file(old)
            former.session = opened.session
    if copied:
        state.copies[new.ino, new.generation] = ("f1", Revision("1"))
    old = state.inodes.get(old.ino)
    remote_binding.hand_over(state, old, machine.intent(old), new, Revision("1"))
    assert (new.remote_id, new.remote_parent, new.remote_name) == ("f1", "root", "f1")
    assert new.revision == Revision("1")
    sending = state.intents.get(new.ino)
    if copied:
        assert (sending is None) == is_there
        assert bool(new.generation) == writing
    else:
        assert sending is not None
        assert (sending.base, sending.generation) == (Revision("1"), new.generation)
    if sending is not None:
        assert (sending.place, bool(sending.generation)) == (not is_there, not copied)
    left = state.intents.get(old.ino)
    if leaves == "removed":
        assert state.inodes.find(old.ino) is None
    else:
        assert (old.remote_id, old.remote_parent, old.remote_name) == (None, None, None)
        assert old.local == (leaves == "parked")
        assert (left is None) == (leaves == "parked")
        if left is not None:
            assert (left.base, left.place, left.held) == (None, False, writing)
            assert left.generation == old.generation
    if writing:
        assert opened.session is not None
        assert opened.session.base == Revision("1")
        file.close()


def test_an_entry_of_a_parked_file_is_deleted_in_its_known_version(machine: Machine) -> None:
    """The file stays here; a later version of a coworker stays on the service."""
    state, file = machine.state, machine.file()
    machine.save(file)
    machine.rename(file, "f1~")
    remote_binding.withdraw(state, file, Revision("5"))
    assert file.is_new
    assert file.local
    (intent,) = state.intents.all()
    ghost = state.inodes.get(intent.ino)
    assert (intent.state.name, ghost.parent) == ("REMOVED", NOWHERE)
    assert (ghost.remote_id, ghost.remote_parent, ghost.remote_name) == ("f1", "root", "f1")
    assert (ghost.zone, ghost.revision, ghost.size) == ("z", Revision("5"), 1)
