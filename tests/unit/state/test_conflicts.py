"""Conflict copies."""

import time

import pytest

from tests.unit.state.disk import read, saved, zone_of
from zonedrive.causes import Cause
from zonedrive.model import Attributes, Entry, Revision
from zonedrive.state import conflict_copies, conflicts
from zonedrive.state.inode import Kind
from zonedrive.state.local_state import LocalState
from zonedrive.state.names import CONFLICT_MARK, fits
from zonedrive.state.status import state_of

THEIRS = Entry(
    id="theirs", zone_id="z", parent_id="root", name="new", folder=False, size=1,
    modified_ns=1, modified_by="bob", attributes=Attributes(), revision=Revision("1"),
)  # fmt: skip
"""Entry of a coworker."""


@pytest.mark.parametrize("kind", [Kind.FILE, Kind.FOLDER])
def test_the_name_of_a_conflict_copy_is_sent_at_once(state: LocalState, kind: Kind) -> None:
    """A renamed entry whose name a coworker took is moved to its new name at once.

    There is no pause after the rejected attempt.
    """
    zone = zone_of(state)
    with state.transaction():
        inode = state.inodes.add(
            zone.ino, "new", kind, zone="z", remote_id="ours", remote_parent="root",
            remote_name="old", revision=Revision("1"),
        )  # fmt: skip
        intent = state.intents.place(inode.ino, 0, inode.revision)
    state.intents.postpone(intent, time.time_ns() + 10**15, "the name is taken", Cause.CHANGED)
    conflicts.rename_local_aside(state, inode, THEIRS)
    assert state.inodes.child(zone.ino, "new") is state.inodes.by_remote("z", "theirs")
    assert inode.name.startswith("new (conflict, alice on ")
    moved = state.intents.get(inode.ino)
    assert moved is not None
    assert moved.place
    assert moved.due_ns <= time.time_ns()


def test_a_new_file_whose_name_is_taken_is_sent_at_once(state: LocalState) -> None:
    """A new file is uploaded under its conflict name without the pause after the rejection."""
    zone = zone_of(state)
    with state.transaction():
        inode = state.inodes.add(zone.ino, "new", Kind.FILE, zone="z", generation=1, size=5)
        state.send_content(inode, None)
    intent = state.intents.get(inode.ino)
    assert intent is not None
    state.intents.postpone(intent, time.time_ns() + 10**15, "the name is taken", Cause.CHANGED)
    conflicts.rename_local_aside(state, inode, THEIRS)
    upload = state.intents.get(inode.ino)
    assert upload is not None
    assert (upload.generation, upload.size) == (1, 5)
    assert not upload.place  # one upload, and no rename after it
    assert upload.due_ns <= time.time_ns()
    assert state_of(upload, {inode.ino}, {inode.ino}) == "uploading"
    assert state_of(upload, (), {inode.ino}) == "conflict"
    assert state_of(upload, (), ()) == "pending"


@pytest.mark.parametrize(
    ("name", "original", "is_copy"),
    [
        ("a (conflict, u on h, 2026-11-21 14-03-07).txt", "a.txt", True),
        ("a (conflict, u on h, 2026-11-21 14-03-07) 2.txt", "a.txt", True),
        ("a (conflict, u on h, 1) (conflict, u on h, 2).txt", "a (conflict, u on h, 1).txt", True),
        ("a (conflict, u on h, 2026-11-21 14-03-07).txt", "b.txt", False),
        ("a (conflict, u on h, 2026-11-21 14-03-07).txt", "a (conflict, u on h, 1).txt", False),
        ("a.txt", "a.txt", False),
        ("é" * 105 + " (conflict, u on h, 2026-11-21 14-03-07).txt", "é" * 120 + ".txt", True),
    ],
)
def test_a_name_of_a_conflict_copy(name: str, original: str, *, is_copy: bool) -> None:
    assert conflict_copies.is_copy_name(name, original) == is_copy


@pytest.mark.parametrize("user", ["u" * 300, "é" * 120])
def test_the_name_of_a_copy_fits_for_a_long_user_id(state: LocalState, user: str) -> None:
    """The kernel allows 255 bytes."""
    state.user = user
    name = conflict_copies.copy_name(state, saved(state, "name" * 60 + ".document", b""))
    assert name.startswith("name")
    assert name.endswith(".document")
    assert fits(name)
    assert CONFLICT_MARK.search(name)


def test_a_long_name_of_the_service_is_examined_at_once(state: LocalState) -> None:
    """A hostile name does not block the loop; it ends the conflict, as no copy has it."""
    copy = saved(state, "copy", b"")
    conflict_copies.record_conflict(state, copy.ino, copy.ino, "bob")
    before, hostile = time.process_time(), " " * 256 + " (conflict, " * 50_000
    assert not conflict_copies.is_copy_name(hostile, "copy")
    with state.transaction():
        conflict_copies.end_conflict_if_renamed(state, copy, hostile)
    assert time.process_time() < before + 10
    assert state.intents.conflicts.all() == []


@pytest.mark.parametrize("is_synced", [False, True])
def test_the_copy_of_synced_bytes_is_durable(state: LocalState, is_synced: bool) -> None:
    """Bytes that replace those of the copy must not be lost together with them.

    The copy keeps the inode, and a new inode shows the other version.
    """
    ours = saved(state, "new", b"ours")
    which = ours.ino, ours.generation
    with state.transaction():
        state.inodes.update(ours, remote_id=THEIRS.id, remote_parent="root", remote_name="new")
    if is_synced:
        state.durable.add(which)
    conflicts.keep_both_versions(state, ours, THEIRS)
    assert (which in state.durable) == is_synced
    assert state.spool.stored() == [which]
    assert read(state, ours.ino) == b"ours"
    shown = state.inodes.child(ours.parent, "new")
    assert shown is not None
    assert (shown.remote_id, shown.generation) == (THEIRS.id, 0)
