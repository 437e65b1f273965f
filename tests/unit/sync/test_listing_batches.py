"""Small listings that arrive together are one transaction; a failing one affects no other."""

import errno
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.unit.state.disk import Disk, zone_of
from tests.unit.state.listings import Read
from zonedrive.model import Attributes, Entry, Revision
from zonedrive.state import remote_binding
from zonedrive.state.inode import ROOT, Inode, Kind
from zonedrive.state.local_state import LocalState
from zonedrive.state.merge import Merge, Merged
from zonedrive.state.pending_requests import PendingRequest
from zonedrive.sync import listing_batches
from zonedrive.sync.listing_batches import TOGETHER, ListingBatches

FOLDERS = 30


def answer(folder: str, count: int) -> Read:
    """Return a listing with files."""
    return Read(
        Entry(
            id=f"{folder}-{number}", zone_id="z", parent_id=folder, name=f"{number}.txt",
            folder=False, size=1, modified_ns=1, modified_by="bob", attributes=Attributes(),
            revision=Revision("1"),
        )
        for number in range(count)
    )  # fmt: skip


class Place:
    """Tree with many folders, the reported changes, and the number of commits."""

    def __init__(self, disk: Disk) -> None:
        self.state = disk.start()
        self.told: dict[int, Merged] = {}
        self.commits = 0
        self.merging = ListingBatches(self.state, lambda: True, self.told.__setitem__)
        tree = self.state.inodes
        with self.state.transaction():
            zone = tree.add(ROOT, "Zone", Kind.ZONE, zone="z", remote_id="root")
            self.folders = [
                tree.add(
                    zone.ino, f"f{number}", Kind.FOLDER, zone="z", remote_id=f"f{number}",
                    remote_parent="root", remote_name=f"f{number}",
                )
                for number in range(FOLDERS)
            ]  # fmt: skip
        self.state.database._connection.set_trace_callback(self._ran)

    def _ran(self, sql: str) -> None:
        self.commits += sql == "COMMIT"

    async def list_all(self, count: int, *, urgent: bool = True) -> dict[int, Exception]:
        """Merge all answers one after the other; return the errors by folder."""
        failed: dict[int, Exception] = {}

        async def one(folder: Inode) -> None:
            try:
                await self.merging.merge(folder, 0, answer(folder.entry_id, count), urgent=urgent)
            except Exception as wrong:
                failed[folder.ino] = wrong

        async with trio.open_nursery() as nursery:
            for folder in self.folders:
                nursery.start_soon(one, folder)
                if not urgent:
                    await wait_all_tasks_blocked()
        return failed

    def names(self, folder: Inode) -> set[str]:
        """Return the names in a folder."""
        return set(self.state.inodes.children(folder.ino))


@pytest.fixture
def place(disk: Disk) -> Place:
    """Return the tree."""
    return Place(disk)


async def test_small_listings_that_arrive_together_are_committed_together(place: Place) -> None:
    """The number of listings in a transaction is limited."""
    assert not await place.list_all(10)
    for folder in place.folders:
        assert place.names(folder) == {f"{number}.txt" for number in range(10)}
        assert folder.listed
        assert place.told[folder.ino].appeared == 10
    assert place.commits == 2


async def test_prefetched_listings_are_merged_in_batches(
    place: Place, mock_clock: MockClock
) -> None:
    """Listings are gathered for a moment, or until a program waits for one of them."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(place.list_all, 5, urgent=False))
        await wait_all_tasks_blocked(0.02)
        assert not place.told
        place.merging.merge_waiting()
        assert len(place.told) == FOLDERS
        assert place.commits == 1
    place.told.clear()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(place.list_all, 4, urgent=False))
        await wait_all_tasks_blocked(0.02)
        assert not place.told
        assert place.merging.waiting == FOLDERS
        mock_clock.jump(listing_batches.GATHER_S)
    assert len(place.told) == FOLDERS
    assert place.merging.waiting == 0
    assert place.commits == 2


async def test_as_many_as_fill_a_transaction_are_not_gathered_any_longer(
    place: Place, mock_clock: MockClock
) -> None:
    """The next listing merges them at once, and begins a new batch."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(place.list_all, TOGETHER // FOLDERS, urgent=False))
        await wait_all_tasks_blocked(0.02)
        assert FOLDERS // 2 < len(place.told) < FOLDERS
        assert place.merging.waiting == FOLDERS - len(place.told)
        assert place.commits == 1
        mock_clock.jump(listing_batches.GATHER_S)
    assert len(place.told) == FOLDERS
    assert place.commits == 2


async def test_a_cancelled_listing_does_not_stop_the_batch(
    place: Place, mock_clock: MockClock
) -> None:
    """The other listings of the batch are merged."""
    merge = partial(place.merging.merge, urgent=False)
    async with trio.open_nursery() as nursery:
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as first:
                first.start_soon(merge, place.folders[0], 0, answer("f0", 1))
                await wait_all_tasks_blocked()
                nursery.start_soon(merge, place.folders[1], 0, answer("f1", 1))
                await wait_all_tasks_blocked()
                scope.cancel()
    assert place.names(place.folders[0]) == set()
    assert place.names(place.folders[1]) == {"0.txt"}


async def test_one_that_a_program_waits_for_takes_the_others_along(
    place: Place, mock_clock: MockClock
) -> None:
    """An urgent listing is not delayed."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(place.list_all, 5, urgent=False))
        await wait_all_tasks_blocked(0.02)
        await place.merging.merge(place.folders[0], 0, answer("f0", 3), urgent=True)
        assert len(place.told) == FOLDERS
        assert place.names(place.folders[0]) == {"0.txt", "1.txt", "2.txt"}


async def test_a_large_listing_is_merged_alone(place: Place) -> None:
    """A large listing is merged in steps."""
    await place.merging.merge(place.folders[0], 0, answer("f0", TOGETHER + 1), urgent=True)
    assert len(place.names(place.folders[0])) == TOGETHER + 1
    assert place.told[place.folders[0].ino].appeared == TOGETHER + 1


@pytest.mark.parametrize("wrong", [OSError(errno.ENOSPC, "full"), KeyError("unforeseen")])
async def test_a_listing_that_cannot_be_merged(
    place: Place, monkeypatch: pytest.MonkeyPatch, wrong: Exception
) -> None:
    """The listing leaves nothing in memory or on the disk; its caller gets the error, others are
    merged."""
    bad = place.folders[3]

    class Failing(Merge):
        def entries(self, answer: object) -> Iterator[None]:
            yield from super().entries(answer)  # type: ignore[arg-type]
            if self._folder is bad:
                raise wrong

    monkeypatch.setattr(listing_batches, "Merge", Failing)
    assert await place.list_all(10) == {bad.ino: wrong}
    assert place.names(bad) == set()
    assert not bad.listed
    assert bad.ino not in place.told
    for folder in place.folders:
        if folder is not bad:
            assert len(place.names(folder)) == 10
    monkeypatch.setattr(listing_batches, "Merge", Merge)
    await place.merging.merge(bad, 0, answer("f3", 10), urgent=True)
    assert len(place.names(bad)) == 10


async def test_a_cancelled_caller_does_not_affect_others(place: Place) -> None:
    """A mount may end at any moment."""
    with trio.CancelScope() as scope:
        scope.cancel()
        await place.merging.merge(place.folders[0], 0, answer("f0", 10), urgent=True)
    assert scope.cancelled_caught
    await place.merging.merge(place.folders[1], 0, answer("f1", 10), urgent=True)
    assert place.names(place.folders[0]) == set()
    assert len(place.names(place.folders[1])) == 10


async def test_the_log_of_the_database_is_kept_short(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkpoint in the background moves the log into the database file."""
    monkeypatch.setattr(listing_batches, "ROWS", 1)
    assert place.merging.claim_checkpoint()
    before = place.state.database.changes
    assert not await place.list_all(10)
    written = place.state.database.changes - before
    assert written > 10 * FOLDERS
    monkeypatch.setattr(listing_batches, "ROWS", written + 1)
    assert not place.merging.claim_checkpoint()
    monkeypatch.setattr(listing_batches, "ROWS", written)
    assert place.merging.claim_checkpoint()
    assert not place.merging.claim_checkpoint()
    before = place.state.database.path.stat().st_size
    with place.state.transaction():
        place.state.inodes.update(place.folders[0], listed=False)
        await place.merging.checkpoint()
        place.state.inodes.update(place.folders[0], listed=True)
    assert place.state.database.path.stat().st_size > before


def park(state: LocalState, zone: Inode, remote_id: str, folder: str) -> Inode:
    """Return a file with a local name whose entry on the service is to get its new content."""
    with state.transaction():
        inode = state.inodes.add(
            zone.ino, f"{remote_id}~", Kind.FILE, zone="z", remote_id=remote_id,
            remote_parent=folder, remote_name=remote_id, local=True,
        )  # fmt: skip
        state.intents.park(inode.ino, Revision("1"))
    return inode


def test_a_coworker_moves_the_entry_of_a_parked_file(state: LocalState) -> None:
    """The outbox is notified once, and not at all of an entry that stays at its place."""
    inode = park(state, zone_of(state), "a", "root")
    notified = list[bool]()
    state.intents.changes.add(lambda: notified.append(inode.ino in state.moved_entries))
    for folder, name, moved in (
        ("root", "a", False), ("root", "b", True), ("f", "a", True), ("root", "a", False)
    ):  # fmt: skip
        listed = Inode(7, ROOT, "f", Kind.FOLDER, remote_id=folder)
        Merge(state, listed, 0, lambda: True)._note_parked(inode, name)
        assert (inode.ino in state.moved_entries) == moved
    assert notified == [True]


def test_parked_files_whose_entries_are_in_a_folder_that_left_the_tree(state: LocalState) -> None:
    """The other parked files keep their places."""
    zone = zone_of(state)
    inside, outside = park(state, zone, "a", "f"), park(state, zone, "b", "root")
    with state.transaction():
        folder = state.inodes.add(zone.ino, "f", Kind.FOLDER, zone="z", remote_id="f")
        state.intents.park(900, Revision("1"))  # without an inode
        remote_binding.release_parked_in(state, folder)
    assert (inside.remote_parent, outside.remote_parent) == (None, "root")


@pytest.mark.parametrize("what", ["unsaved", "open", "local", "bytes", "intent", "request", "sent"])
def test_a_new_file_whose_bytes_a_full_disk_did_not_take(state: LocalState, what: str) -> None:
    """Every file that has something else is kept."""
    every: dict[str, dict[str, Any]] = {
        "local": {"local": True}, "bytes": {"generation": 7}, "sent": {"remote_id": "1"},
    }  # fmt: skip
    fields = every.get(what, {})
    with state.transaction():
        inode = state.inodes.add(zone_of(state).ino, "a", Kind.FILE, zone="z", **fields)
        if what == "intent":
            state.intents.content(inode.ino, 1, 1, base=None, held=False, due_ns=0)
        elif what == "request":
            state.requests.note(PendingRequest(inode.ino, inode.ino, 1, 1, "z", "root", "a", None))
    if what == "open":
        state.new_open_file(inode)
    assert state.is_unsaved(inode) == (what == "unsaved")
