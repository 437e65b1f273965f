"""Open files after a transaction that a full disk has rolled back."""

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.unit.state.test_outbox_states import Machine
from zonedrive.model import Revision
from zonedrive.state import local_operations, remote_binding, remote_operations
from zonedrive.state.inode import Inode
from zonedrive.state.local_state import LocalState
from zonedrive.state.merge import Merged
from zonedrive.state.open_file import Handle, OpenFile, Session, content_of


@contextmanager
def rolled_back(state: LocalState) -> Iterator[None]:
    """Roll back all transactions of the `with` block, as a full disk does at the commit."""
    with pytest.raises(OSError, match="full"), state.transaction():
        yield
        raise OSError(errno.ENOSPC, "the disk is full")


def arrival(machine: Machine) -> tuple[Inode, Callable[[], object]]:
    """Return a saved file, and the operation that records its upload."""
    state, inode = machine.state, machine.file()
    machine.save(inode)
    state.intents.let_go(inode.ino, 0)
    request = machine.send(inode)
    entry = machine.entry(inode)
    return inode, lambda: remote_operations.record_arrival(state, inode, request, entry)


def move(machine: Machine) -> tuple[Inode, Callable[[], object]]:
    """Return a renamed file, and the operation that records its move, which makes a revision."""
    state, inode = machine.state, machine.file()
    machine.rename(inode, "other")
    entry = machine.entry(inode, "other")
    return inode, lambda: remote_operations.record_move(
        state, inode, "root", entry, before=inode.revision
    )


def copy(machine: Machine) -> tuple[Inode, Callable[[], object]]:
    """Return a file of the service, and the operation that uses a copy as its local bytes."""
    state, inode = machine.state, machine.file()
    generation = state.next_generation()
    file = state.spool.create(inode.ino, generation)
    file.close()
    return inode, lambda: local_operations.adopt_copy(state, inode, generation, file)


def revert(machine: Machine) -> tuple[Inode, Callable[[], object]]:
    """Return a file with such a copy, and the operation that deletes the copy."""
    inode, adopt = copy(machine)
    adopt()
    return inode, lambda: machine.state.revert_to_remote(inode)


def reader(state: LocalState, inode: Inode) -> OpenFile:
    """Open a file, and read it."""
    opened = state.new_open_file(inode)
    opened.pages = True
    opened.handles.append(
        Handle(opened, opened.number, readable=True, writable=False, append=False)
    )
    return opened


@pytest.mark.parametrize("prepare", [arrival, move, copy, revert])
def test_a_reader_keeps_its_content(
    machine: Machine, prepare: Callable[[Machine], tuple[Inode, Callable[[], object]]]
) -> None:
    """The bytes are the same before and after, so no program has to open the file again."""
    state, (inode, operation) = machine.state, prepare(machine)
    opened, former = reader(state, inode), content_of(inode)
    with rolled_back(state):
        operation()
    assert opened.content == content_of(inode) == former
    assert not state.supersede(inode)
    operation()
    assert opened.content == content_of(inode) != former
    assert not state.supersede(inode)
    assert state.opened[inode.ino] is opened


def test_an_edit_that_is_undone_restores_the_present_content(machine: Machine) -> None:
    """`Session.former` names the content that the inode has."""
    state = machine.state
    inode, operation = arrival(machine)
    opened, former = state.new_open_file(inode), content_of(inode)
    file = state.spool.open(inode.ino, inode.generation)
    opened.session = Session(state.next_generation(), file, None, 0, former)
    with rolled_back(state):
        operation()
    assert opened.session.former == former
    operation()
    assert opened.session.former == inode.revision
    file.close()


@pytest.mark.parametrize("is_replaced", [False, True])
def test_a_file_that_is_still_there_is_not_removed(machine: Machine, is_replaced: bool) -> None:
    """An open file knows whether a local program has removed its name."""
    state, inode, other = machine.state, machine.file(), machine.file(new=True)
    machine.save(other)
    opened = state.new_open_file(inode)
    for is_removed in (False, True):
        if is_removed:
            _remove_or_replace(machine, inode, other if is_replaced else None)
        else:
            with rolled_back(state):
                _remove_or_replace(machine, inode, other if is_replaced else None)
        assert opened.removed_here == is_removed


def _remove_or_replace(machine: Machine, inode: Inode, other: Inode | None) -> None:
    if other is None:
        local_operations.remove(machine.state, inode)
    else:
        machine.rename(other, inode.name, inode)


@pytest.mark.parametrize("is_removed", [False, True])
def test_an_edit_keeps_its_base(machine: Machine, is_removed: bool) -> None:
    """The edit of a new file gets the base of the entry that the file takes over."""
    state, old, new = machine.state, machine.file(), machine.file(new=True)
    machine.save(new)
    if is_removed:
        local_operations.remove(state, old)
    opened = state.new_open_file(new)
    file = state.spool.open(new.ino, new.generation)
    session = opened.session = Session(new.generation, file, None, 0, Revision(""))

    def take_over() -> None:
        if is_removed:
            remote_binding.hand_over(state, old, machine.intent(old), new, Revision("1"))
        else:
            machine.rename(new, old.name, old)

    with rolled_back(state):
        take_over()
    assert session.base is None
    take_over()
    assert session.base == Revision("1")
    file.close()


def test_a_listing_that_cannot_be_merged_deletes_no_bytes(machine: Machine) -> None:
    """The inode refers to its copy of the service's version again."""
    state, (inode, adopt) = machine.state, copy(machine)
    adopt()
    merged = Merged()
    merged.copies.append((inode.ino, inode.generation))
    with rolled_back(state):
        state.inodes.update(inode, generation=0, revision=Revision("2"))
    remote_operations.queue_invalidations(state, merged)
    assert state.spool.stored() == [(inode.ino, inode.generation)]
