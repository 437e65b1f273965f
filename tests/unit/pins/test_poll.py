"""Pinned folders are listed in the background at a slow rate."""

import errno

import pytest
import trio
from trio.testing import MockClock

from tests.unit.pins.office import Office, running
from zonedrive.errors import Forbidden, TimedOut, Unavailable
from zonedrive.pins.poll import AT_ONCE, PACE_S, PASS_S, TROUBLE, WIDTH


async def test_each_folder_has_its_turn_in_every_round(
    office: Office, autojump_clock: MockClock
) -> None:
    """Pinned folders, those below, and the folder of a pinned file are listed; no others are."""
    first, second, third = office.folders(3, office.zone)
    below = office.folders(5, first)
    office.folders(5, second)
    office.folders(1, third)
    office.pins.add(first)
    office.pins.add(office.file("f", parent=third))
    wanted = sorted([first.ino, third.ino, *(each.ino for each in below)])
    async with running(office.rounds.run):
        for _ in range(3):
            await trio.sleep(PASS_S - 1)
            assert sorted(office.taken()) == wanted
            await trio.sleep(1)


async def test_without_pins_no_request_is_sent(office: Office, autojump_clock: MockClock) -> None:
    """No request is sent before the first pin and after the last one."""
    (folder,) = office.folders(1, office.zone)
    async with running(office.rounds.run):
        await trio.sleep(3 * PASS_S)
        assert office.taken() == []
        office.pins.add(folder)
        await trio.sleep(1.5 * PASS_S)
        assert office.taken() == [folder.ino]
        office.pins.remove(folder)
        await trio.sleep(3 * PASS_S)
        assert office.taken() == []


@pytest.mark.parametrize("state", ["offline", "logon-required"])
async def test_an_unreachable_service_is_not_polled(
    office: Office, autojump_clock: MockClock, state: str
) -> None:
    """Folders are listed again as soon as the service is back."""
    office.pins.add(office.zone)
    async with running(office.rounds.run):
        await trio.sleep(PASS_S / 2)
        assert office.taken() == [office.zone.ino]
        for away in (1.0, PASS_S * 4):
            office.way.become(state)
            await trio.sleep(away)
            assert office.taken() == []
            office.way.become("online")
            await trio.sleep(1)
            assert office.taken() == [office.zone.ino]


async def test_failures_end_a_round(office: Office, autojump_clock: MockClock) -> None:
    """Some consecutive failures end the round; the next one continues at the same place."""
    office.pins.add(office.zone)
    inos = {each.ino for each in office.folders(40, office.zone)}
    office.errors = [Unavailable("busy") for _ in range(TROUBLE)]
    async with running(office.rounds.run):
        await trio.sleep(PASS_S / 2)
        seen = office.taken()
        assert TROUBLE <= len(seen) < TROUBLE + WIDTH
        await trio.sleep(PASS_S)
        rest = office.taken()
        assert office.zone.ino in rest[:WIDTH]
        assert set(rest) & set(seen) == {office.zone.ino}
        assert {*seen, *rest} == {office.zone.ino, *inos}


@pytest.mark.parametrize("error", [Unavailable("busy"), TimedOut("late"), RuntimeError("a bug")])
async def test_a_failing_folder_does_not_delay_others(
    office: Office, autojump_clock: MockClock, error: Exception
) -> None:
    """A folder that always fails does not delay the others."""
    office.pins.add(office.zone)
    inos = {each.ino for each in office.folders(20, office.zone)}
    async with running(office.rounds.run):
        for bad in (office.zone.ino, min(inos), max(inos)):
            office.bad = {bad: error}
            await trio.sleep(PASS_S)
            assert {office.zone.ino, *inos} <= set(office.taken())


async def test_a_round_that_fails_is_not_the_last_one(
    office: Office,
    autojump_clock: MockClock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A failed round is logged, and the next one begins in time."""
    office.pins.add(office.zone)

    def full() -> list[int]:
        raise OSError(errno.EIO, "the disk is broken")

    async with trio.open_nursery() as nursery:
        with monkeypatch.context() as patch:
            patch.setattr(office.pins, "folders_to_list", full)
            nursery.start_soon(office.rounds.run)
            await trio.sleep(PASS_S / 2)
        assert "cannot list pinned folders" in caplog.text
        await trio.sleep(PASS_S)
        assert office.taken() == [office.zone.ino]
        nursery.cancel_scope.cancel()


async def test_a_forbidden_folder_does_not_delay_others(
    office: Office, autojump_clock: MockClock
) -> None:
    """The other folders are listed although one is forbidden."""
    office.pins.add(office.zone)
    inos = {each.ino for each in office.folders(20, office.zone)}
    office.errors = [Forbidden("no"), Forbidden("no"), Forbidden("no")]
    async with running(office.rounds.run):
        await trio.sleep(PASS_S / 2)
        assert set(office.taken()) == {office.zone.ino, *inos}


async def test_a_huge_tree_is_listed_slowly(office: Office, autojump_clock: MockClock) -> None:
    """Some folders at once, then a few per second; a small pin is listed in each round."""
    huge, small = office.folders(2, office.zone)
    count = int(3 * PASS_S / PACE_S)
    many = {each.ino for each in office.folders(count, huge)}
    office.pins.add(huge)
    office.pins.add(small)
    pace = PASS_S / PACE_S
    async with running(office.rounds.run):
        await trio.sleep(PASS_S / 100)
        seen = office.taken()
        assert AT_ONCE <= len(seen) <= AT_ONCE + pace / 50
        await trio.sleep(PASS_S - PASS_S / 100)
        seen += office.taken()
        for _ in range(4):
            await trio.sleep(PASS_S)
            listed = office.taken()
            assert small.ino in listed
            assert pace / 2 < len(listed) < pace * 1.2
            seen += listed
        assert many <= set(seen)
        assert office.most <= WIDTH


async def test_a_removed_pin_is_not_listed(office: Office, autojump_clock: MockClock) -> None:
    """A pin that is removed during a round is not listed any more."""
    huge, small = office.folders(2, office.zone)
    office.folders(int(2 * PASS_S / PACE_S), huge)
    office.pins.add(huge)
    office.pins.add(small)
    async with running(office.rounds.run):
        await trio.sleep(PASS_S / 2)
        office.pins.remove(huge)
        await trio.sleep(1)
        office.taken()
        await trio.sleep(2 * PASS_S)
        assert set(office.taken()) == {small.ino}
