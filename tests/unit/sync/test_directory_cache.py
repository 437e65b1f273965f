"""Age of listings."""

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
import trio.testing
from msgspec.structs import replace

from tests.unit.state.disk import zone_of
from tests.unit.sync.account import Account
from tests.unit.sync.way import Way, running
from zonedrive.boot_clock import since_boot_ns
from zonedrive.causes import Cause
from zonedrive.errors import BadAnswer, NotFound
from zonedrive.state import local_operations
from zonedrive.state.inode import NOWHERE, Kind
from zonedrive.state.local_state import LocalState
from zonedrive.sync import directory_cache
from zonedrive.sync.directory_cache import DirectoryCache

RECENT_NS = 10**15  # longer than any test runs
SUSPENDED_NS = 10**16


class Empty:
    """Service whose folders are all empty; `asked` counts the listings."""

    def __init__(self) -> None:
        self.link, self.places, self.underway = Way(), 8, 0
        self.asked = 0

    async def listed(self, zone: str, folder: str) -> SimpleNamespace:
        """Return an empty listing."""
        self.asked += 1
        return SimpleNamespace(ids=[], complete=True, strangers=())


@pytest.mark.parametrize(("suspended_ns", "listings"), [(0, 1), (SUSPENDED_NS, 2)])
async def test_a_listing_from_before_a_suspend_is_not_recent(
    state: LocalState, monkeypatch: pytest.MonkeyPatch, suspended_ns: int, listings: int
) -> None:
    """A new file's name is checked in a listing that includes changes during the suspend.

    The monotonic clock stands still during a suspend.
    """
    service = Empty()
    folders, zone = DirectoryCache(state, cast(Any, service)), zone_of(state)
    async with running(folders):
        await folders.refresh(zone, time.monotonic_ns())
        monkeypatch.setattr(
            directory_cache, "since_boot_ns", lambda: since_boot_ns() + suspended_ns
        )
        await folders.refresh(zone, time.monotonic_ns() - RECENT_NS)
    assert service.asked == listings


async def test_a_listing_that_was_requested_at_the_given_moment_is_recent(
    state: LocalState, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The listing contains all earlier changes, so another one is not needed."""
    monkeypatch.setattr(time, "monotonic_ns", lambda: RECENT_NS)
    monkeypatch.setattr(directory_cache, "since_boot_ns", lambda: SUSPENDED_NS)
    service = Empty()
    folders, zone = DirectoryCache(state, cast(Any, service)), zone_of(state)
    async with running(folders):
        with trio.move_on_after(5):
            await folders.refresh(zone, RECENT_NS)
    assert service.asked == 1


@pytest.mark.parametrize(
    ("folder", "known", "asked"),
    [
        ("never listed", True, 1), ("fresh", True, 0), ("old", True, 1), ("new", False, 0),
        ("removed", False, 0), ("unreachable", False, 0), ("5 requests", True, 1),
        ("6 requests", False, 0), ("8 requests", False, 0),
    ],
)  # fmt: skip
async def test_a_listing_is_prefetched_if_it_is_useful(
    state: LocalState, folder: str, known: bool, asked: int
) -> None:
    """A folder that the service does not have, or that was listed a moment ago, is not asked.

    Two of eight requests are reserved for programs.
    """
    service = Empty()
    folders, zone = DirectoryCache(state, cast(Any, service)), zone_of(state)
    with state.transaction():
        inode = state.inodes.add(
            zone.ino, "f", Kind.FOLDER, zone="z", remote_id=None if folder == "new" else "f"
        )
    async with running(folders):
        if folder in ("fresh", "old"):
            await folders.ensure(inode)
        if folder == "old":
            folders.forget(inode.ino)
        if folder == "removed":
            with state.transaction():
                state.inodes.unlink(inode, tombstone=True)
        if folder == "unreachable":
            service.link.become("offline")
        if folder.endswith("requests"):
            service.underway = int(folder[0])
        service.asked = 0
        assert await folders.list_ahead(inode) == known
    assert service.asked == asked


@pytest.mark.parametrize(
    ("refresh", "seconds", "trusted"), [(10, 4, 6.0), (10, 9.5, 1.0), (10, 20, 1.0), (0.5, 20, 0.5)]
)
async def test_the_kernel_caches_a_folder_as_long_as_its_listing_is_trusted(
    state: LocalState, monkeypatch: pytest.MonkeyPatch, refresh: float, seconds: float,
    trusted: float,
) -> None:  # fmt: skip
    """An old listing is cached for a moment, because the service may be slow or unreachable."""
    clock = [10**9]
    monkeypatch.setattr(directory_cache, "since_boot_ns", lambda: clock[0])
    state.settings = replace(state.settings, refresh=refresh)
    folders, zone = DirectoryCache(state, cast(Any, Empty())), zone_of(state)
    async with running(folders):
        assert folders.trusted_for(zone.ino) == min(refresh, 1.0)
        await folders.ensure(zone)
        clock[0] += int(seconds * 1e9)
        assert folders.trusted_for(zone.ino) == trusted
        assert folders.trusted_for(900) == refresh


@pytest.mark.parametrize("removed_by", ["this client", "a coworker"])
async def test_a_listing_keeps_no_empty_records_in_memory(
    state: LocalState, removed_by: str
) -> None:
    """The records of a folder are deleted when the folder leaves the tree."""
    folders, zone = DirectoryCache(state, cast(Any, Empty())), zone_of(state)
    with state.transaction():
        folder = state.inodes.add(zone.ino, "f", Kind.FOLDER, zone="z", remote_id="f")

    def known() -> set[str]:
        stores = vars(folders).items()
        return {name for name, store in stores if isinstance(store, dict) and folder.ino in store}

    async with running(folders):
        await folders.ensure(folder)
        assert known() == {"_asked_ns", "_took_s"}
        if removed_by == "this client":
            local_operations.remove(state, folder)
        else:
            await folders.ensure(zone)
        assert folder.parent == NOWHERE
        assert known() == set()


async def test_a_folder_that_was_created_again_is_listed_under_its_new_id(
    state: LocalState,
) -> None:
    """The listing of the parent folder tells the new id."""
    zone, asked = zone_of(state), list[str]()
    with state.transaction():
        folder = state.inodes.add(zone.ino, "f", Kind.FOLDER, zone="z", remote_id="old")

    class Renewed(Empty):
        async def listed(self, zone: str, folder_id: str) -> SimpleNamespace:
            asked.append(folder_id)
            if folder_id == "old":
                raise NotFound("gone")
            with state.transaction():
                state.inodes.update(folder, remote_id="new")
            return SimpleNamespace(ids=[], complete=False, strangers=())

    folders = DirectoryCache(state, cast(Any, Renewed()))
    async with running(folders):
        await folders.refresh(folder, time.monotonic_ns())
    assert asked == ["old", "root", "new"]
    assert folder.listed


async def test_a_listing_under_a_former_id_tells_nothing_about_the_new_one(
    state: LocalState,
) -> None:
    """A folder that gets a new id while its former one is listed is listed again."""
    zone, asked, answer = zone_of(state), list[str](), trio.Event()
    with state.transaction():
        folder = state.inodes.add(zone.ino, "f", Kind.FOLDER, zone="z", remote_id="old")
        inner = state.inodes.add(folder.ino, "g", Kind.FOLDER, zone="z", remote_id="inner")

    class Renewed(Empty):
        async def listed(self, zone: str, folder_id: str) -> SimpleNamespace:
            asked.append(folder_id)
            if folder_id == "old":
                await answer.wait()
            if folder_id in ("old", "inner"):
                raise NotFound("gone")
            if folder_id == "new":
                with state.transaction():
                    state.inodes.update(inner, remote_id="new inner")
            return SimpleNamespace(ids=[], complete=False, strangers=())

    folders = DirectoryCache(state, cast(Any, Renewed()))
    async with running(folders) as nursery:
        nursery.start_soon(folders.refresh, folder, time.monotonic_ns())
        await trio.testing.wait_all_tasks_blocked()
        with state.transaction():
            state.inodes.update(folder, remote_id="new")
        nursery.start_soon(folders.refresh, inner, time.monotonic_ns())
        await trio.testing.wait_all_tasks_blocked()
        assert asked == ["old", "inner"]
        answer.set()
        await trio.testing.wait_all_tasks_blocked()
    assert inner.listed


async def test_an_error_for_a_former_id_is_not_raised(state: LocalState) -> None:
    """A folder that gets a new id before its first listing fails is listed under the new id."""
    zone, asked = zone_of(state), list[str]()
    with state.transaction():
        folder = state.inodes.add(zone.ino, "f", Kind.FOLDER, zone="z", remote_id="old")

    class Renewed(Empty):
        async def listed(self, zone: str, folder_id: str) -> SimpleNamespace:
            asked.append(folder_id)
            if folder_id == "old":
                with state.transaction():
                    state.inodes.update(folder, remote_id="new")
                raise NotFound("gone")
            return SimpleNamespace(ids=[], complete=False, strangers=())

    folders = DirectoryCache(state, cast(Any, Renewed()))
    async with running(folders):
        await folders.ensure(folder)
    assert asked == ["old", "new"]
    assert folder.listed


@pytest.mark.parametrize("complete", [True, False])
async def test_a_listing_of_a_folder_that_was_removed_meanwhile_is_dropped(
    state: LocalState, complete: bool
) -> None:
    """Observers get no notification for the removed folder."""
    zone, merged = zone_of(state), list[int]()
    with state.transaction():
        folder = state.inodes.add(zone.ino, "f", Kind.FOLDER, zone="z", remote_id="f")

    class Removing(Empty):
        async def listed(self, zone: str, folder_id: str) -> SimpleNamespace:
            with state.transaction():
                state.inodes.unlink(folder, tombstone=True)
            return SimpleNamespace(ids=[], complete=complete, strangers=())

    state.listing_merged.add(merged.append)
    folders = DirectoryCache(state, cast(Any, Removing()))
    async with running(folders):
        await folders.refresh(folder, time.monotonic_ns())
    assert merged == []
    assert not folder.listed


@pytest.mark.parametrize("in_progress", [True, False])
async def test_the_parent_of_a_folder_that_vanished_is_listed_once(
    state: LocalState, in_progress: bool
) -> None:
    """A listing of the parent folder that is in progress tells what happened to the folder."""
    zone, gate = zone_of(state), trio.Event()
    with state.transaction():
        folder = state.inodes.add(zone.ino, "f", Kind.FOLDER, zone="z", remote_id="f")

    class Slow(Empty):
        async def listed(self, zone: str, folder_id: str) -> SimpleNamespace:
            if folder_id == "f":
                raise NotFound("gone")
            self.asked += 1
            if self.asked == 2:
                await gate.wait()
            return SimpleNamespace(ids=[], complete=False, strangers=())

    folders = DirectoryCache(state, cast(Any, Slow()))
    async with running(folders) as nursery:
        await folders.ensure(zone)
        if in_progress:
            nursery.start_soon(folders.refresh, zone, time.monotonic_ns())
            await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(NotFound):
            await folders.ensure(folder)
        assert (folders.trusted_for(zone.ino) > 1.0) == in_progress


async def test_listings_that_have_arrived_leave_room_for_others(state: LocalState) -> None:
    """A prefetched listing that waits for its merge needs no connection any more."""
    service = Empty()
    service.places = 3
    folders, zone = DirectoryCache(state, cast(Any, service)), zone_of(state)
    with state.transaction():
        first, second = (
            state.inodes.add(zone.ino, name, Kind.FOLDER, zone="z", remote_id=name) for name in "ab"
        )
    async with running(folders) as nursery:
        nursery.start_soon(folders.list_ahead, first)
        await trio.testing.wait_all_tasks_blocked()
        assert service.asked == 1
        assert not first.listed, "the listing waits for others"
        assert await folders.list_ahead(second)
    assert service.asked == 2


@pytest.mark.parametrize("entry", ["deleted", "made again"])
async def test_a_late_listing_of_an_entry_that_the_folder_no_longer_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entry: str
) -> None:
    """A folder that is kept for an edit shows no files of the entry that a coworker deleted."""
    account = Account(tmp_path, refresh="600")
    account.bob.make_folder("docs")
    for name in ("edited", "unchanged"):
        account.bob.write(f"docs/{name}", b"first")
    async with account.running():
        await account.list("docs")
        account.save("docs/edited", b"second")
        docs, listed, answer = account.at("docs"), account.service.listed, trio.Event()
        former = docs.remote_id

        async def late(zone: str, folder: str) -> Any:
            found = await listed(zone, folder)
            if folder == former:
                await answer.wait()
            return found

        monkeypatch.setattr(account.service, "listed", late)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(account.list, "docs")
            await trio.testing.wait_all_tasks_blocked()
            account.bob.delete("docs")
            await account.list()
            if entry == "made again":
                account.bob.make_folder("docs")
                account.bob.write("docs/new", b"first")
                await account.list()
            assert docs.remote_id != former
            answer.set()
        await account.folders.ensure(docs)
        new = {"new"} if entry == "made again" else set[str]()
        assert account.names_in("docs") == {"edited"} | new


async def test_a_file_with_the_id_of_a_folder_is_not_listed(account: Account) -> None:
    """A wrong answer has shown the file; entries must not be added to a file."""
    account.bob.make_folder("folder")
    account.bob.write("folder/inside", b"1")
    account.bob.write("file", b"2")
    async with account.running():
        file, folder = account.at("file"), account.at("folder")
        remote_id = folder.remote_id
        with account.state.transaction():
            account.state.inodes.unlink(folder)
            account.state.inodes.update(folder, remote_id=None)
            account.state.inodes.update(file, remote_id=remote_id)
        with pytest.raises(BadAnswer):
            await account.folders.refresh(file, time.monotonic_ns())
        assert not account.state.inodes.numbers_in(file.ino)


@pytest.mark.parametrize("changed", [True, False])
async def test_a_change_of_the_listed_folder_repeats_what_failed_in_it(
    account: Account, changed: bool
) -> None:
    """The reason may be gone; a listing without a change leaves the time of the next attempt."""
    far = 1 << 62
    async with account.running():
        await account.list()
        intent = account.save("new", b"first")
        account.state.intents.postpone(intent, far, "no", Cause.REFUSED)
        if changed:
            account.bob.write("other", b"")
        await account.list()
        assert (account.intent(account.at("new")).due_ns < far) == changed
