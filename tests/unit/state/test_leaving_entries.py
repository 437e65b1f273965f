"""Index of the entries that local changes move or delete, by their places on the service."""

import pytest

from tests.harness.counting import calls
from tests.unit.state.disk import Disk
from tests.unit.state.test_outbox_states import Machine
from zonedrive.model import Revision
from zonedrive.state import local_operations, remote_operations
from zonedrive.state.inode import Inode, Kind
from zonedrive.state.names import local_name

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


def shown_file(machine: Machine, remote_name: str, shown: str) -> Inode:
    """Create a file that the zone shows under another name than the service's."""
    file = machine.file()
    with machine.state.transaction():
        machine.state.inodes.update(file, remote_name=remote_name)
        machine.state.inodes.move(file, machine.zone.ino, shown)
    return file


@pytest.mark.parametrize("change", ["removed", "renamed", "parked"])
def test_an_entry_is_found_under_its_display_name(machine: Machine, change: str) -> None:
    """Each of two entries with look-alike names is found under the name that it had here."""
    state, leaving = machine.state, machine.state.leaving
    mark = local_name("a\u2409b", "f2", {"a\u2409b"})
    files = [shown_file(machine, "a\tb", "a\u2409b"), shown_file(machine, "a\u2409b", mark)]
    for file in files:
        if change == "removed":
            local_operations.remove(state, file)
        else:
            machine.rename(file, f"x{file.ino}{'~' if change == 'parked' else ''}")
    for file, name, shown in zip(files, ("a\tb", "a\u2409b"), ("a\u2409b", mark), strict=True):
        assert found(machine, shown) == leaving.with_remote_name(machine.zone, name) == [file]
        assert leaving.display_name(file.ino) == shown
    assert not found(machine, "a\tb")
    if change != "removed":
        machine.rename(files[1], mark)
        assert (found(machine, "a\u2409b"), found(machine, mark)) == ([files[0]], [])
        assert leaving.display_name(files[1].ino) is None


def test_an_entry_with_the_name_on_the_service_comes_first(machine: Machine) -> None:
    """Another entry, which looks the same and was renamed twice, has left the name before."""
    mark = local_name("a\tb", "f1", {"a\u2409b"})
    marked, plain = (shown_file(machine, *names) for names in (("a\tb", mark), ("a\u2409b",) * 2))
    for name in ("one", "two"):
        machine.rename(marked, name)
    local_operations.remove(machine.state, plain)
    assert found(machine, "a\u2409b") == [plain, marked]


def test_a_display_name_in_another_folder_does_not_count(machine: Machine) -> None:
    """Only the folder of the entry on the service has shown the entry."""
    state = machine.state
    mark = local_name("a\tb", "f1", {"a\u2409b"})
    file, folder = shown_file(machine, "a\tb", "a\u2409b"), machine.file()
    with state.transaction():
        state.inodes.update(folder, kind=Kind.FOLDER)
    local_operations.rename(state, file, folder, mark, None)
    local_operations.remove(state, file)
    assert machine.intent(file).left == (folder.ino, mark)
    assert state.leaving.at(folder, mark) == found(machine, mark) == []
    assert found(machine, "a\u2409b") == [file]


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
    root = state.inodes.get(1)  # has no entry
    assert not (state.leaving.at(root, "f1") or state.leaving.with_remote_name(root, "f1"))


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
