"""Top folders of zones are prefetched for programs that list the zones."""

from itertools import pairwise
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
from trio.testing import MockClock

from tests.unit.sync.account import Account
from tests.unit.sync.way import Way, running
from zonedrive.errors import Damaged, Forbidden, NotFound, Unavailable
from zonedrive.state.inode import ROOT, Kind
from zonedrive.state.local_state import LocalState
from zonedrive.state.merge import STEP
from zonedrive.sync.directory_cache import ADD, CLOSED_S, LEVELS_S, TROUBLE_S, DirectoryCache

LOOKS = 5


class Doors:
    """Service whose folders all give the same answer, with a record of the requests."""

    def __init__(self, state: LocalState, error: Exception) -> None:
        self.link, self.places, self.underway = Way(), 8, 0
        self.error = error
        self.asked: list[str] = []
        self.folders = DirectoryCache(state, cast(Any, self))
        with state.transaction():
            for name in "ab":
                state.inodes.add(ROOT, name, Kind.ZONE, zone=name, remote_id=name)

    async def listed(self, zone: str, folder: str) -> SimpleNamespace:
        """Simulate `Service.listed`."""
        self.asked.append(folder)
        raise self.error

    async def look(self) -> None:
        """List the zones repeatedly, as a program does."""
        async with running(self.folders):
            for _ in range(LOOKS):
                self.folders.reading(ROOT)
                await trio.sleep(2 * TROUBLE_S)


async def test_programs_continue_while_a_large_zone_is_removed(account: Account) -> None:
    """Other tasks run after a limited number of changes in the database."""
    changes = list[int]()

    async def watch() -> None:
        while True:
            changes.append(account.state.database.changes)
            await trio.lowlevel.checkpoint()

    async with account.running(), trio.open_nursery() as nursery:
        state, zone = account.state, account.zone
        for part in range(4):
            with state.transaction():
                ids = [f"{part} {each}" for each in range(STEP)]
                fields = {"kind": Kind.FILE, "zone": zone.zone}
                files = {each: {**fields, "remote_id": each} for each in ids}
                state.inodes.add_all(zone.ino, files)
        account.world.zones.clear()
        changes.append(state.database.changes)
        nursery.start_soon(watch)
        account.folders.forget(ROOT)
        await account.folders.ensure(state.inodes.get(ROOT))
        changes.append(state.database.changes)
        nursery.cancel_scope.cancel()
        assert state.inodes.inodes_in(ROOT) == []
        assert state.inodes.rows.counts()[0] == 1
    assert max(after - before for before, after in pairwise(changes)) < 3 * STEP


async def test_levels_that_arrive_late_count(state: LocalState, autojump_clock: MockClock) -> None:
    """The listing of the zones waits for them for a moment only."""
    doors: Any = Doors(state, Forbidden("no"))
    doors.can = lambda _operation: True

    async def levels() -> dict[str, str]:
        await trio.sleep(LEVELS_S + 1)
        return {"a": ADD, "b": "Modify"}

    async def listed_zones() -> SimpleNamespace:
        return SimpleNamespace(zones=[], unsure=(), complete=False)

    doors.levels, doors.listed_zones = levels, listed_zones
    async with running(doors.folders):
        await doors.folders.ensure(state.inodes.get(ROOT))
        assert trio.current_time() == LEVELS_S
        assert not state.rules.add_only
        await trio.sleep(2)
        assert state.rules.add_only == {"a"}


@pytest.mark.parametrize("error", [Forbidden("no"), NotFound("gone")])
async def test_a_closed_zone_is_requested_again_much_later(
    state: LocalState, autojump_clock: MockClock, error: Exception
) -> None:
    """A file manager lists the zones continually; a forbidden one is requested seldom."""
    doors = Doors(state, error)
    await doors.look()
    assert sorted(doors.asked) == ["a", "b"]
    await trio.sleep(CLOSED_S)
    await doors.look()
    assert sorted(doors.asked) == ["a", "a", "b", "b"]


async def test_a_failed_listing_of_zones_is_repeated(
    state: LocalState, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a failure of the service the request must be repeated."""
    monkeypatch.setattr("zonedrive.sync.directory_cache.time.monotonic", trio.current_time)
    doors = Doors(state, Unavailable("busy"))
    await doors.look()
    assert doors.asked.count("a") == doors.asked.count("b") >= LOOKS - 1


async def test_an_error_of_a_prefetch_does_not_end_the_mount(
    state: LocalState, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    """The error may be a damaged row: a program that lists the zones gets its own error."""
    doors = Doors(state, Forbidden("no"))

    def broken(parent: int) -> None:
        raise Damaged("a row")

    monkeypatch.setattr(state.inodes, "inodes_in", broken)
    await doors.look()
    assert "zone listing ahead" in caplog.text


async def test_the_end_of_a_mount_during_a_prefetch_is_no_failure(
    state: LocalState, caplog: pytest.LogCaptureFixture
) -> None:
    """The log would warn of it whenever a mount ends early.

    The order of tasks is random, so that one attempt may miss the moment.
    """
    doors: Any = Doors(state, Forbidden("no"))
    for _ in range(50):
        doors.folders = DirectoryCache(state, doors)
        doors.asked.clear()
        async with running(doors.folders):
            doors.folders.reading(ROOT)
            while not doors.asked:
                await trio.lowlevel.checkpoint()
    assert not caplog.records


@pytest.mark.parametrize(
    ("places", "underway", "link", "asked"),
    [
        (1, 0, "online", True), (2, 0, "online", True), (2, 1, "online", False),
        (3, 0, "online", True), (3, 1, "online", False), (8, 5, "online", True),
        (8, 6, "online", False), (8, 0, "offline", False), (2, 0, "offline", False),
        (8, 0, "logon-required", False),
    ],
)  # fmt: skip
async def test_zones_are_listed_when_the_service_has_time(
    state: LocalState, autojump_clock: MockClock, places: int, underway: int, link: str, asked: bool
) -> None:
    """A service that allows few concurrent requests is asked when none is in progress."""
    doors = Doors(state, Forbidden("no"))
    doors.places, doors.underway = places, underway
    doors.link.become(link)
    await doors.look()
    assert bool(doors.asked) == asked


@pytest.mark.parametrize("places", [2, 8])
async def test_a_failing_service_is_left_alone_for_a_while(
    state: LocalState, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, places: int
) -> None:
    """After a failure, the next zone is asked for when some seconds have passed."""
    monkeypatch.setattr("zonedrive.sync.directory_cache.time.monotonic", trio.current_time)
    doors = Doors(state, Unavailable("busy"))
    doors.places = places
    async with running(doors.folders):
        doors.folders.reading(ROOT)
        await trio.sleep(TROUBLE_S - 0.5)
        assert doors.asked == ["a"]
        await trio.sleep(1)
        assert doors.asked == ["a", "b"]


async def test_a_refused_list_of_zones_is_a_notice(state: LocalState) -> None:
    """`zonedrive status` tells why no zones are shown, until they are listed again.

    One zone that cannot be listed is no such reason.
    """
    doors: Any = Doors(state, Forbidden("no"))
    doors.can = lambda _operation: False
    refusals: list[Exception] = [Forbidden("no zones")]

    async def listed_zones() -> SimpleNamespace:
        if refusals:
            raise refusals.pop()
        return SimpleNamespace(zones=[], unsure=(), complete=False)

    doors.listed_zones = listed_zones
    folders, root = doors.folders, state.inodes.get(ROOT)
    async with running(folders):
        with pytest.raises(Forbidden):
            await folders.ensure(root)
        assert "no zones" in folders.notice()
        with pytest.raises(Forbidden):
            await folders.ensure(state.inodes.inodes_in(ROOT)[0])
        assert "no zones" in folders.notice()
        await folders.ensure(root)
        assert folders.notice() == ""
        with pytest.raises(Forbidden):
            await folders.ensure(state.inodes.inodes_in(ROOT)[0])
        assert folders.notice() == ""
