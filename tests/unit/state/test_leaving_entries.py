"""Index of the entries that local changes move or delete, by their places on the service."""

import pytest

from tests.harness.counting import calls
from tests.unit.state.disk import Disk
from tests.unit.state.test_outbox_states import Machine
from zonedrive.model import Revision
from zonedrive.state import local_operations, remote_operations
from zonedrive.state.inode import Inode

FEW, MANY = 3, 300


def found(machine: Machine, name: str) -> list[Inode]:
    """Return the inodes that the index has for a name in the zone."""
    return machine.state.leaving.at(machine.zone, name)


def removed(machine: Machine, count: int) -> None:
    """Remove new files that the service has; none of these removals is sent."""
    for _ in range(count):
        local_operations.remove(machine.state, machine.file())


def test_entries_are_found_while_their_changes_are_pending(machine: Machine) -> None:
    """A removed, a renamed and a parked file are found under their names on the service."""
    state, files = machine.state, [machine.file() for _ in range(4)]
    local_operations.remove(state, files[0])
    machine.rename(files[1], "renamed")
    machine.rename(files[2], "parked~")
    machine.save(files[3])
    names = [file.remote_name or "" for file in files]
    assert [found(machine, name) for name in names] == [[each] for each in files[:3]] + [[]]
    assert not found(machine, "renamed")
    machine.rename(files[1], names[1])
    local_operations.forget(state, files[0])
    assert [found(machine, name) for name in names] == [[], [], [files[2]], []]


def test_the_oldest_change_comes_first(machine: Machine) -> None:
    """Two entries had one name after another on the service."""
    one, two = machine.file(), machine.file()
    with machine.state.transaction():
        machine.state.inodes.update(one, remote_name=two.remote_name)
    for file in (two, one):
        local_operations.remove(machine.state, file)
    assert found(machine, "f2") == [two, one]


def test_an_entry_is_found_at_its_new_place_on_the_service(machine: Machine) -> None:
    """A move without an answer may have reached another place than the one that is wanted now."""
    file = machine.file()
    machine.rename(file, "wanted")
    assert found(machine, "f1") == [file]
    remote_operations.record_blocking_place(machine.state, file, "root", "there")
    assert (found(machine, "f1"), found(machine, "there")) == ([], [file])


def test_a_rollback_restores_the_index(machine: Machine) -> None:
    """The index is as it was before the transaction, also if it was used inside."""
    state, file = machine.state, machine.file()
    machine.rename(file, "renamed")
    assert found(machine, "f1") == [file]
    with pytest.raises(OSError), state.transaction():
        state.inodes.update(file, remote_name="elsewhere")
        assert (found(machine, "f1"), found(machine, "elsewhere")) == ([], [file])
        state.intents.drop(file.ino)
        assert not found(machine, "elsewhere")
        raise OSError
    assert (found(machine, "f1"), found(machine, "elsewhere")) == ([file], [])


def test_a_restart_keeps_the_entries(disk: Disk) -> None:
    """The index is built from the rows."""
    machine = Machine(disk.start())
    file = machine.file()
    local_operations.remove(machine.state, file)
    state = disk.start()
    zone = state.inodes.get(machine.zone.ino)
    assert [each.ino for each in state.leaving.at(zone, "f1")] == [file.ino]
    assert not state.leaving.at(state.inodes.get(1), "f1")  # the root has no entry


def test_a_rename_does_not_look_at_all_pending_removals(machine: Machine) -> None:
    """The work is the same with few and with many of them."""
    file, numbers = machine.file(), []
    for count in (FEW, MANY):
        removed(machine, count)
        assert local_operations.removed_at(machine.state, machine.zone, "free") is None
        with calls() as counted:
            assert local_operations.removed_at(machine.state, machine.zone, "free") is None
            machine.rename(file, f"free {count}")
        numbers.append(counted.number)
    assert abs(numbers[1] - numbers[0]) < MANY


def test_a_rename_of_a_new_file_does_not_look_at_all_parked_files(machine: Machine) -> None:
    """The lookup finds those whose entries have the file's former name."""
    file, numbers = machine.file(new=True), []
    for count in (FEW, MANY):
        for _ in range(count):
            parked = machine.file()
            machine.rename(parked, f"{parked.name}~")
        assert local_operations.removed_at(machine.state, machine.zone, "free") is None
        with calls() as counted:
            machine.rename(file, f"free {count}")
        numbers.append(counted.number)
    assert abs(numbers[1] - numbers[0]) < MANY
    assert file.revision == Revision("")
