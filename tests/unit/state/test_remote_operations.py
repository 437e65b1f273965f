"""Effect of the service's answers on local changes."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tests.unit.state.disk import Disk
from tests.unit.state.test_outbox_states import Machine
from zonedrive.model import Revision
from zonedrive.state import conflicts, remote_operations
from zonedrive.state.outbox_states import Change


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    """Yield an account with one zone."""
    disk = Disk(tmp_path)
    yield Machine(disk.start())
    disk.close()


@pytest.mark.parametrize("unchanged", [True, False])
def test_a_move_changes_the_base_of_an_edit_only_if_nobody_else_has_saved(
    machine: Machine, unchanged: bool
) -> None:
    """Some services count a move as a version, which is no conflict with a coworker."""
    inode = machine.file()
    machine.save(inode)
    machine.rename(inode, "other")
    entry = machine.entry(inode, "other")
    remote_operations.record_move(
        machine.state, inode, "root", entry, unchanged=unchanged, done=machine.intent(inode)
    )
    assert (inode.remote_name, machine.intent(inode).state) == ("other", Change.OPEN)
    expected = entry.revision if unchanged else Revision("1")
    assert (machine.intent(inode).base, inode.revision) == (expected, expected)


@pytest.mark.parametrize(("size", "follows"), [(1, True), (2, False)])
def test_a_moved_file_without_edits_has_the_revision_of_the_move(
    machine: Machine, size: int, follows: bool
) -> None:
    """Another size means a coworker's version, which the next listing shows."""
    inode = machine.file()
    machine.rename(inode, "other")
    entry = msgspec.structs.replace(machine.entry(inode, "other"), size=size)
    remote_operations.record_move(machine.state, inode, "root", entry, done=machine.intent(inode))
    assert machine.state.intents.get(inode.ino) is None
    assert inode.revision == (entry.revision if follows else Revision("1"))


def test_an_answer_to_an_older_upload_leaves_the_newer_content(machine: Machine) -> None:
    """The newer content is sent next, on top of the version that has just arrived."""
    inode = machine.file()
    machine.save(inode)
    machine.state.intents.let_go(inode.ino, 0)
    request = machine.send(inode)
    machine.save(inode)
    entry = machine.entry(inode)
    assert not remote_operations.record_arrival(machine.state, inode, request, entry)
    assert machine.state.requests.get(inode.ino) is None
    assert machine.intent(inode).generation == inode.generation != request.generation
    assert machine.intent(inode).base == inode.revision == entry.revision


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


def test_exchanged_names_are_taken_back_together(machine: Machine) -> None:
    """No entry is without a name at any time, and nothing is left to send."""
    state, (one, other) = machine.state, (machine.file(), machine.file())
    names = one.name, other.name
    machine.rename(one, "aside")
    machine.rename(other, names[0])
    machine.rename(one, names[1])
    ways = {
        one.ino: (one, machine.zone, names[0]),
        other.ino: (other, machine.zone, names[1]),
    }
    remote_operations.move_back(state, ways)
    assert (one.name, other.name) == names
    assert state.inodes.child(machine.zone.ino, names[0]) is one
    assert len(state.intents) == 0
