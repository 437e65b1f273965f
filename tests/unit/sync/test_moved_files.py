"""Edited files follow coworkers' moves, but no answer from before a move of this client."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import msgspec
import pytest

from tests.unit.state.disk import Disk, zone_of
from zonedrive.causes import Cause
from zonedrive.model import Attributes, Entry, Revision
from zonedrive.remote.service import Service
from zonedrive.state import local_operations, remote_operations
from zonedrive.state.inode import Inode, Kind
from zonedrive.state.invalidation import EntryChanged, EntryGone, Invalidation
from zonedrive.state.local_state import LocalState
from zonedrive.state.names import aside_name
from zonedrive.sync.moved_entries import MovedEntries


def entry(name: str) -> Entry:
    """Return the service's answer about the file."""
    return Entry(
        id="f", zone_id="z", parent_id="root", name=name, folder=False, size=1, modified_ns=1,
        modified_by="bob", attributes=Attributes(), revision=Revision("1"),
    )  # fmt: skip


@dataclass
class Slow:
    """Service that answers with `name`, after `meanwhile` has happened."""

    name: str
    meanwhile: Callable[[], None]

    async def entry(self, *_: object) -> Entry:
        """Return the file."""
        self.meanwhile()
        return entry(self.name)


def edited(state: LocalState, name: str = "a", remote_id: str = "f") -> Inode:
    """Return a file of the service with local content that is not sent."""
    zone = state.inodes.by_remote("z", "root") or zone_of(state)
    with state.transaction():
        inode = state.inodes.add(
            zone.ino, name, Kind.FILE, zone="z", remote_id=remote_id, remote_parent="root",
            remote_name=name, revision=Revision("1"), size=1,
        )  # fmt: skip
        state.intents.content(inode.ino, 1, 1, base=inode.revision, held=False, due_ns=1 << 62)
    return inode


@pytest.mark.parametrize("in_it", [True, False])
async def test_edits_elsewhere_cost_a_listing_nothing(disk: Disk, in_it: bool) -> None:
    """A listing reads no rows of other edited files, and of its own only those of missing ones."""
    state, counts = disk.start(), list[int]()
    zone, cause = zone_of(state), Cause.REFUSED
    with state.transaction():
        folder = state.inodes.add(zone.ino, "other", Kind.FOLDER, zone="z", remote_id="o")
    for number in (20, 40):
        with state.transaction():
            for each in range(number - 20, number):
                inode = state.inodes.add(
                    zone.ino, f"{each}", Kind.FILE, zone="z", remote_id=f"{each}"
                )
                state.intents.content(
                    inode.ino, 1, 1, base=Revision("1"), held=False, due_ns=1 << 62
                )
        for intent in state.intents.all():
            state.intents.postpone(intent, 1 << 62, "no", cause)
        again, statements = disk.start(), list[str]()  # no inode is in memory
        listed = again.inodes.get(zone.ino if in_it else folder.ino)
        again.database._connection.set_trace_callback(statements.append)
        files = MovedEntries(again, cast(Service, None))
        await files.all_missing(listed, [f"{each}" for each in range(number)], 0)
        again.retry_failed_in(folder.ino)
        counts.append(len(statements))
    assert counts[0] == counts[1]


async def missing(state: LocalState, inode: Inode, service: Slow) -> None:
    """Merge a listing of the folder without the file."""
    folder = state.inodes.get(inode.parent)
    await MovedEntries(state, cast(Service, service)).all_missing(folder, [], 0)


async def test_the_kernel_forgets_the_former_name_of_a_followed_file(state: LocalState) -> None:
    """Programs find the file under its new name only."""
    inode = edited(state)
    await missing(state, inode, Slow("b", lambda: None))
    assert inode.name == "b"
    queue, told = state.invalidations.receive, list[Invalidation]()
    while queue.statistics().current_buffer_used:
        told.append(queue.receive_nowait())
    assert EntryGone(inode.parent, b"a", inode.ino) in told
    assert EntryChanged(inode.parent, b"b") in told


async def test_the_temporary_name_of_an_exchange_is_not_followed(state: LocalState) -> None:
    """Another client is exchanging the names of two files."""
    inode = edited(state)
    await missing(state, inode, Slow(aside_name(15, 8), lambda: None))
    assert inode.name == "a"


async def test_an_answer_from_before_an_own_rename_is_not_followed(state: LocalState) -> None:
    """The file was renamed, and the service has it under the new name, before the answer came."""
    inode = edited(state)

    def renamed() -> None:
        local_operations.rename(state, inode, state.inodes.get(inode.parent), "c", None)
        intent = state.intents.get(inode.ino)
        remote_operations.record_move(state, inode, "root", entry("c"), done=intent)

    await missing(state, inode, Slow("b", renamed))
    assert (inode.name, inode.remote_name) == ("c", "c")


async def test_a_folder_that_is_removed_meanwhile_is_not_restored(state: LocalState) -> None:
    """The file stays, and so does the listing of its folder."""
    inode = edited(state)
    folder = state.inodes.get(inode.parent)

    class Removing:
        async def entry(self, _zone: str, remote_id: str) -> Entry:
            parents = {"f": "inner", "inner": "outer", "outer": "root"}
            if remote_id == "outer":  # meanwhile it is listed, and removed here
                with state.transaction():
                    outer = state.inodes.add(
                        folder.ino, "outer", Kind.FOLDER, zone="z", remote_id="outer"
                    )
                local_operations.remove(state, outer)
            return msgspec.structs.replace(
                entry(remote_id), id=remote_id, parent_id=parents[remote_id],
                folder=remote_id != "f",
            )  # fmt: skip

    await MovedEntries(state, cast(Service, Removing())).all_missing(folder, [], 0)
    assert inode.parent == folder.ino
    assert state.inodes.by_remote("z", "inner") is None


async def test_a_file_that_loses_its_entry_meanwhile_does_not_stop_others(
    state: LocalState,
) -> None:
    """The files are looked up one after another; the ones after it still follow."""
    files = {each.ino: each for each in (edited(state, name, f"id of {name}") for name in "abc")}
    folder = state.inodes.get(files[min(files)].parent)
    first, lost, last = (files[ino] for ino, _ in state.inodes.rows.among(folder.ino, files))
    former = lost.name

    class Losing:
        async def entry(self, _zone: str, remote_id: str) -> Entry:
            with state.transaction():
                state.inodes.update(lost, remote_id=None)
            return entry(f"new {remote_id}")

    await MovedEntries(state, cast(Service, Losing())).all_missing(folder, [], 0)
    assert first.name.startswith("new ")
    assert lost.name == former
    assert last.name.startswith("new ")
