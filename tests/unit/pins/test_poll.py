"""Pinned folders are listed in the background at a slow rate."""

import errno
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
from trio.testing import MockClock

from tests.unit.state.disk import Disk, zone_of
from tests.unit.sync.way import Way
from zonedrive.errors import Forbidden, TimedOut, Unavailable
from zonedrive.pins.pins import Pins
from zonedrive.pins.poll import AT_ONCE, PACE_S, PASS_S, TROUBLE, WIDTH, PinPoller
from zonedrive.state.inode import Inode, Kind
from zonedrive.state.local_state import LocalState
from zonedrive.sync.directory_cache import DirectoryCache


class Floor:
    """Folders with a record of their listings."""

    def __init__(self, state: LocalState) -> None:
        self.way = Way()
        service = cast(Any, SimpleNamespace(link=self.way))
        self.state = state
        self.zone = zone_of(state)
        self.pins = Pins(state)
        self.rounds = PinPoller(
            state, service, cast(DirectoryCache, self), self.pins, trio.CapacityLimiter(WIDTH)
        )
        self.listed: list[int] = []
        self.errors: list[Exception] = []
        self.bad: dict[int, Exception] = {}  # by ino, what always becomes of it
        self.most = self._now = 0

    async def refresh(self, folder: Inode, newer_than_ns: int) -> None:
        """Simulate `DirectoryCache.refresh`."""
        self._now += 1
        self.most = max(self.most, self._now)
        await trio.sleep(0.01)
        self._now -= 1
        self.listed.append(folder.ino)
        if self.errors:
            raise self.errors.pop(0)
        if folder.ino in self.bad:
            raise self.bad[folder.ino]

    def folders(self, count: int, parent: Inode) -> list[Inode]:
        """Create folders of the service."""
        with self.state.transaction():
            return [
                self.state.inodes.add(
                    parent.ino, name, Kind.FOLDER, zone="z", remote_id=f"{parent.ino}-{name}"
                )
                for name in map(str, range(count))
            ]

    def file(self, parent: Inode) -> Inode:
        """Create a file of the service."""
        with self.state.transaction():
            return self.state.inodes.add(parent.ino, "f", Kind.FILE, zone="z", remote_id="f")

    def taken(self) -> list[int]:
        """Return the listings since the last call."""
        listed, self.listed = self.listed, []
        return listed


@pytest.fixture
def floor(tmp_path: Path) -> Iterator[Floor]:
    """Yield an account with one zone."""
    disk = Disk(tmp_path)
    yield Floor(disk.start())
    disk.close()


async def test_each_folder_has_its_turn_in_every_round(
    floor: Floor, autojump_clock: MockClock
) -> None:
    """Pinned folders, those below, and the folder of a pinned file are listed; no others are."""
    first, second, third = floor.folders(3, floor.zone)
    below = floor.folders(5, first)
    floor.folders(5, second)
    floor.folders(1, third)
    floor.pins.add(first)
    floor.pins.add(floor.file(third))
    wanted = sorted([first.ino, third.ino, *(each.ino for each in below)])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(floor.rounds.run)
        for _ in range(3):
            await trio.sleep(PASS_S - 1)
            assert sorted(floor.taken()) == wanted
            await trio.sleep(1)
        nursery.cancel_scope.cancel()


async def test_without_pins_no_request_is_sent(floor: Floor, autojump_clock: MockClock) -> None:
    """No request is sent before the first pin and after the last one."""
    (folder,) = floor.folders(1, floor.zone)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(floor.rounds.run)
        await trio.sleep(3 * PASS_S)
        assert floor.taken() == []
        floor.pins.add(folder)
        await trio.sleep(1.5 * PASS_S)
        assert floor.taken() == [folder.ino]
        floor.pins.remove(folder)
        await trio.sleep(3 * PASS_S)
        assert floor.taken() == []
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("state", ["offline", "logon-required"])
async def test_an_unreachable_service_is_not_polled(
    floor: Floor, autojump_clock: MockClock, state: str
) -> None:
    """Folders are listed again as soon as the service is back."""
    floor.pins.add(floor.zone)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(floor.rounds.run)
        await trio.sleep(PASS_S / 2)
        assert floor.taken() == [floor.zone.ino]
        for away in (1.0, PASS_S * 4):
            floor.way.become(state)
            await trio.sleep(away)
            assert floor.taken() == []
            floor.way.become("online")
            await trio.sleep(1)
            assert floor.taken() == [floor.zone.ino]
        nursery.cancel_scope.cancel()


async def test_failures_end_a_round(floor: Floor, autojump_clock: MockClock) -> None:
    """Some consecutive failures end the round; the next one continues at the same place."""
    floor.pins.add(floor.zone)
    inos = {each.ino for each in floor.folders(40, floor.zone)}
    async with trio.open_nursery() as nursery:
        floor.errors = [Unavailable("busy") for _ in range(TROUBLE)]
        nursery.start_soon(floor.rounds.run)
        await trio.sleep(PASS_S / 2)
        seen = floor.taken()
        assert TROUBLE <= len(seen) < TROUBLE + WIDTH
        await trio.sleep(PASS_S)
        rest = floor.taken()
        assert floor.zone.ino in rest[:WIDTH]
        assert set(rest) & set(seen) == {floor.zone.ino}
        assert {*seen, *rest} == {floor.zone.ino, *inos}
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("error", [Unavailable("busy"), TimedOut("late"), RuntimeError("a bug")])
async def test_a_failing_folder_does_not_delay_others(
    floor: Floor, autojump_clock: MockClock, error: Exception
) -> None:
    """A folder that always fails does not delay the others."""
    floor.pins.add(floor.zone)
    inos = {each.ino for each in floor.folders(20, floor.zone)}
    async with trio.open_nursery() as nursery:
        nursery.start_soon(floor.rounds.run)
        for bad in (floor.zone.ino, min(inos), max(inos)):
            floor.bad = {bad: error}
            await trio.sleep(PASS_S)
            assert {floor.zone.ino, *inos} <= set(floor.taken())
        nursery.cancel_scope.cancel()


async def test_a_round_that_fails_is_not_the_last_one(
    floor: Floor,
    autojump_clock: MockClock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A failed round is logged, and the next one begins in time."""
    floor.pins.add(floor.zone)

    def full() -> list[int]:
        raise OSError(errno.EIO, "the disk is broken")

    async with trio.open_nursery() as nursery:
        with monkeypatch.context() as patch:
            patch.setattr(floor.pins, "folders_to_list", full)
            nursery.start_soon(floor.rounds.run)
            await trio.sleep(PASS_S / 2)
        assert "cannot list pinned folders" in caplog.text
        await trio.sleep(PASS_S)
        assert floor.taken() == [floor.zone.ino]
        nursery.cancel_scope.cancel()


async def test_a_forbidden_folder_does_not_delay_others(
    floor: Floor, autojump_clock: MockClock
) -> None:
    """The other folders are listed although one is forbidden."""
    floor.pins.add(floor.zone)
    inos = {each.ino for each in floor.folders(20, floor.zone)}
    floor.errors = [Forbidden("no"), Forbidden("no"), Forbidden("no")]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(floor.rounds.run)
        await trio.sleep(PASS_S / 2)
        assert set(floor.taken()) == {floor.zone.ino, *inos}
        nursery.cancel_scope.cancel()


async def test_a_huge_tree_is_listed_slowly(floor: Floor, autojump_clock: MockClock) -> None:
    """Some folders are listed at once, then a few per second; a small pin is listed in each
    round."""
    huge, small = floor.folders(2, floor.zone)
    count = int(3 * PASS_S / PACE_S)
    many = {each.ino for each in floor.folders(count, huge)}
    floor.pins.add(huge)
    floor.pins.add(small)
    pace = PASS_S / PACE_S
    async with trio.open_nursery() as nursery:
        nursery.start_soon(floor.rounds.run)
        await trio.sleep(PASS_S / 100)
        seen = floor.taken()
        assert AT_ONCE <= len(seen) <= AT_ONCE + pace / 50
        await trio.sleep(PASS_S - PASS_S / 100)
        seen += floor.taken()
        for _ in range(4):
            await trio.sleep(PASS_S)
            listed = floor.taken()
            assert small.ino in listed
            assert pace / 2 < len(listed) < pace * 1.2
            seen += listed
        assert many <= set(seen)
        assert floor.most <= WIDTH
        nursery.cancel_scope.cancel()


async def test_a_removed_pin_is_not_listed(floor: Floor, autojump_clock: MockClock) -> None:
    """A pin that is removed during a round is not listed any more."""
    huge, small = floor.folders(2, floor.zone)
    floor.folders(int(2 * PASS_S / PACE_S), huge)
    floor.pins.add(huge)
    floor.pins.add(small)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(floor.rounds.run)
        await trio.sleep(PASS_S / 2)
        floor.pins.remove(huge)
        await trio.sleep(1)
        floor.taken()
        await trio.sleep(2 * PASS_S)
        assert set(floor.taken()) == {small.ino}
        nursery.cancel_scope.cancel()
