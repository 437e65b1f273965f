"""Times at which pinned files are checked, and the handling of failed downloads."""

import errno
import os
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.unit.pins.office import Office, running
from zonedrive.errors import Changed, Forbidden, TimedOut, Unavailable, Unreachable
from zonedrive.model import Revision
from zonedrive.pins.fetch import NO_ROOM, Failed, PinProgress
from zonedrive.pins.poll import PASS_S, TROUBLE
from zonedrive.state.inode import Inode, Kind
from zonedrive.state.local_operations import rename
from zonedrive.state.pin_table import Pin, PinStore
from zonedrive.state.remote_binding import unbind_folder


async def test_pinned_folders_are_looked_at_gently(
    office: Office, autojump_clock: MockClock
) -> None:
    """Folders are checked at the start, then every few minutes; new files are downloaded."""
    office.file("a")
    office.pins.add(office.zone)
    async with running(office.pin_fetcher.run):
        await trio.sleep(PASS_S * 0.9)
        assert office.listed == [office.zone.ino]
        late = office.file("late")
        await trio.sleep(PASS_S)
        assert office.listed == [office.zone.ino] * 2
        assert (late.ino, "1") in office.shelf.asked
        assert len(office.shelf.asked) == 2


async def test_later_pins_are_kept_up_to_date(office: Office, autojump_clock: MockClock) -> None:
    """An empty folder and a single file that are pinned later are kept up to date, too."""
    inode, folder = office.file("a"), office.folder("empty")
    async with running(office.pin_fetcher.run):
        await trio.sleep(2 * PASS_S)
        for each in (inode, folder):
            office.pins.add(each)
            await office.pin_fetcher.fetch(each, PinProgress())
        late = office.file("late", parent=folder)
        with office.state.transaction():
            office.state.inodes.update(inode, revision=Revision("2"))
        await trio.sleep(PASS_S * 1.1)
        assert office.shelf.asked[0] == (inode.ino, "1")
        assert sorted(office.shelf.asked[1:]) == [(inode.ino, "2"), (late.ino, "1")]


async def test_failed_files_are_fetched_in_the_next_round(
    office: Office, autojump_clock: MockClock
) -> None:
    """A failed file is tried again in the next round although its folder has not changed."""
    inode = office.file("a")
    office.pins.add(office.zone)
    office.shelf.errors = [Forbidden("not now")]
    async with running(office.pin_fetcher.run):
        await trio.sleep(PASS_S * 1.5)
        assert office.shelf.asked == [(inode.ino, "1")] * 2
        await trio.sleep(PASS_S)
        assert office.shelf.asked == [(inode.ino, "1")] * 2


async def test_failed_files_are_not_tried_with_every_listing(
    office: Office, autojump_clock: MockClock
) -> None:
    """A folder in use is listed every ten seconds: a failed file waits for the next round."""
    inode = office.file("a")
    office.pins.add(office.zone)
    office.shelf.bad = {inode.ino: Forbidden("never")}
    async with running(office.pin_fetcher.run):
        for _ in range(int(PASS_S / 10) - 1):
            await trio.sleep(10)
            office.state.listing_merged.notify(office.zone.ino)
        assert len(office.shelf.asked) <= 2
        await trio.sleep(PASS_S)
        assert 2 <= len(office.shelf.asked) <= 3


async def test_a_failed_file_that_a_program_reads_is_reported(
    office: Office, autojump_clock: MockClock
) -> None:
    """If a program downloads a file after a failed attempt, the next round reports it, once."""
    inode, arrived = office.file("a"), list[int]()
    office.pins.add(office.zone)
    office.shelf.errors = [Forbidden("not now")]
    async with running(office.pin_fetcher.run):
        await trio.sleep(1)
        office.pins.content_changes.add(arrived.append)
        office.shelf.complete_now.add((inode.ino, "1"))
        await trio.sleep(3 * PASS_S)
        assert arrived == [inode.ino]


async def test_missing_files_are_fetched_when_the_service_is_back(
    office: Office, autojump_clock: MockClock
) -> None:
    """Fetching begins when the service is back; nothing is requested before."""
    inodes = [office.file(name) for name in "abcd"]
    office.pins.add(office.zone)
    office.shelf.bad = {each.ino: Unreachable("the cable is out") for each in inodes}
    way = office.way
    async with running(office.pin_fetcher.run):
        await trio.sleep(1)
        way.become("offline")
        await trio.testing.wait_all_tasks_blocked()
        office.shelf.asked.clear()
        way.waits = 0
        await trio.sleep(3 * PASS_S)
        assert office.shelf.asked == []
        assert way.waits <= 1  # the next round was due
        office.shelf.bad.clear()
        way.become("online")
        await trio.sleep(1)
        assert len(office.shelf.asked) == 4


async def test_a_folder_with_much_in_it_that_comes_in_is_fetched(
    office: Office, autojump_clock: MockClock
) -> None:
    """The listing of a folder that was moved into a pinned one is already known."""
    pinned, moved = office.folder("pinned"), office.folder("moved")
    inside = office.file("inside", parent=moved)
    office.pins.add(pinned)
    async with running(office.pin_fetcher.run):
        await trio.sleep(PASS_S / 2)
        assert office.shelf.asked == []
        with office.state.transaction():
            office.state.inodes.move(moved, pinned.ino, "moved")
        office.state.listing_merged.notify(pinned.ino)
        await trio.sleep(1)
        assert office.shelf.asked == [(inside.ino, "1")]


async def test_a_folder_that_comes_back_is_fetched_again(
    office: Office, autojump_clock: MockClock
) -> None:
    """While it was elsewhere, the cache has evicted its content, as nothing there is pinned."""
    top, elsewhere = office.folder("top"), office.folder("elsewhere")
    inner = office.folder("inner", top)
    inode = office.file("a", parent=office.folder("innermost", inner))
    office.pins.add(top)
    async with running(office.pin_fetcher.run):
        await trio.sleep(PASS_S)
        assert office.shelf.complete_now == {(inode.ino, "1")}
        for parent in (elsewhere, top):
            with office.state.transaction():
                office.state.inodes.move(inner, parent.ino, "inner")
            office.shelf.complete_now.clear()
            await trio.sleep(2 * PASS_S)
        assert office.shelf.complete_now == {(inode.ino, "1")}


async def test_without_a_pin_no_request_is_sent(office: Office, autojump_clock: MockClock) -> None:
    """No folder is listed or downloaded, and no file is protected from eviction."""
    inode = office.file("a")
    async with running(office.pin_fetcher.run):
        office.state.listing_merged.notify(office.zone.ino)
        await trio.sleep(10 * PASS_S)
        assert (office.listed, office.shelf.asked) == ([], [])
        assert inode.ino not in office.pins


async def test_an_unchanged_listing_causes_no_check(
    office: Office, autojump_clock: MockClock
) -> None:
    """Only folders whose listing has changed are checked."""
    office.file("a")
    office.pins.add(office.zone)
    async with running(office.pin_fetcher.run):
        await trio.sleep(1)
        office.listed.clear()
        office.state.listing_merged.notify(office.zone.ino)
        await trio.sleep(1)
        assert office.listed == []
        new = office.file("b")
        office.state.listing_merged.notify(office.zone.ino)
        await trio.sleep(1)
        assert (new.ino, "1") in office.shelf.asked


async def test_a_file_that_does_not_fit_is_tried_once(
    office: Office, autojump_clock: MockClock
) -> None:
    """A file is tried once for each version, and again after a change of the pins."""
    inode = office.file("a")
    office.pins.add(office.zone)
    office.shelf.free = 4
    office.shelf.errors = [OSError(errno.ENOSPC, "full"), OSError(errno.ENOSPC, "full")]
    async with running(office.pin_fetcher.run):
        await trio.sleep(3 * PASS_S)
        assert office.shelf.asked == [(inode.ino, "1")]
        tally = PinProgress()
        await office.pin_fetcher.fetch(office.zone, tally)
        assert [one.error for one in tally.failed] == [NO_ROOM]
        assert (tally.files, tally.here) == (1, 0)
        assert (await office.pin_fetcher.count(office.zone, 9)).failed == [
            Failed("Zone/a", NO_ROOM)
        ]
        with office.state.transaction():
            office.state.inodes.update(inode, revision=Revision("2"))
        await trio.sleep(2 * PASS_S)
        assert office.shelf.asked == [(inode.ino, "1"), (inode.ino, "2")]


async def test_a_file_that_did_not_fit_is_fetched_later(
    office: Office, autojump_clock: MockClock
) -> None:
    """The file is downloaded, without a new pin, once the cache has room, and not tried before."""
    inode = office.file("a")
    office.pins.add(office.zone)
    full = OSError(errno.ENOSPC, "full")
    office.shelf.errors = [full, full]
    async with running(office.pin_fetcher.run):
        for free, tries in ((2, 1), (4, 1), (5, 2), (4, 2), (5, 2), (6, 3)):  # it has 5 bytes
            office.shelf.free = free
            await trio.sleep(2 * PASS_S)
            assert office.shelf.asked == [(inode.ino, "1")] * tries
        assert len(office.shelf.complete_now) == 1


async def test_files_that_leave_no_room_for_each_other_are_fetched_one_after_the_other(
    office: Office,
) -> None:
    """Concurrent downloads fill the cache and all fail; then as many files as fit are fetched."""
    for name in "abc":
        office.file(name)
    office.pins.add(office.zone)
    office.shelf.errors = [OSError(errno.ENOSPC, "full")] * 3
    office.shelf.free = 5 * 2  # each file has 5 bytes
    tally = PinProgress()
    await office.pin_fetcher.fetch(office.zone, tally)
    assert (tally.here, tally.here_bytes, len(office.shelf.complete_now)) == (2, 10, 2)
    assert [each.error for each in tally.failed] == [NO_ROOM]


async def test_a_file_without_room_after_a_failure_of_the_service_has_the_newer_reason(
    office: Office,
) -> None:
    """The file fails because of the service first, and then finds no room."""
    inode = office.file("a")
    office.pins.add(inode)
    office.shelf.errors = [Unavailable("busy"), OSError(errno.ENOSPC, "full")]
    office.shelf.free = 4  # the file has 5 bytes
    await office.pin_fetcher.fetch(inode, PinProgress())
    assert [one.error for one in (await office.pin_fetcher.count(inode, 9)).failed] == ["busy"]
    tally = PinProgress()
    await office.pin_fetcher.fetch(inode, tally)
    assert [one.error for one in tally.failed] == [NO_ROOM]
    assert [one.error for one in (await office.pin_fetcher.count(inode, 9)).failed] == [NO_ROOM]


async def test_a_pin_while_the_free_space_is_computed(office: Office) -> None:
    """A command that changes the pins meanwhile does not end the pass, and the file is fetched."""
    inode, other = office.file("a"), office.file("b")
    office.pins.add(inode)
    office.shelf.errors = [OSError(errno.ENOSPC, "full")]
    office.shelf.free = 4
    await office.pin_fetcher.fetch(inode, PinProgress())
    office.shelf.free, office.shelf.looks = 5, 0
    office.shelf.looked = trio.Event()
    tally = PinProgress()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(office.pin_fetcher.fetch, inode, tally)
        await wait_all_tasks_blocked()
        assert office.shelf.looks == 1
        office.pins.add(other)
        office.shelf.looked.set()
    assert (tally.files, tally.here, tally.failed) == (1, 1, [])


async def test_a_cache_disk_with_an_error_is_named(
    office: Office, autojump_clock: MockClock
) -> None:
    """The files are not said to be too large; each check tries one of them."""
    inodes = [office.file(name) for name in "abc"]
    office.pins.add(office.zone)
    tries = [3, 4, 5]  # so far, after each check
    office.shelf.errors = [OSError(errno.EIO, os.strerror(errno.EIO)) for _ in range(tries[-1])]
    async with running(office.pin_fetcher.run):
        await trio.sleep(1)
        for number in tries:
            assert len(office.shelf.asked) == number
            counted = await office.pin_fetcher.count(office.zone, 9)
            assert [each.error for each in counted.failed] == [
                "the cache folder cannot be written (Input/output error); see 'zonedrive doctor'"
            ] * len(inodes)
            await trio.sleep(PASS_S)
        assert office.shelf.complete_now == {(inode.ino, "1") for inode in inodes}
        assert (await office.pin_fetcher.count(office.zone, 9)).failed == []


async def test_the_free_space_is_computed_once_for_many_files(office: Office) -> None:
    """The size of each fetched file is subtracted from it."""
    inodes = [office.file(f"{number}") for number in range(9)]
    office.pins.add(office.zone)
    office.shelf.errors = [OSError(errno.ENOSPC, "full")] * len(inodes)
    office.shelf.free = 4
    await office.pin_fetcher.fetch(office.zone, PinProgress())
    assert office.shelf.looks == 1
    office.shelf.looks = 0
    office.shelf.free = 5 * 7 + 4  # each file has 5 bytes
    tally = PinProgress()
    await office.pin_fetcher.fetch(office.zone, tally)
    assert office.shelf.looks == 1
    assert (tally.here, [each.error for each in tally.failed]) == (7, [NO_ROOM] * 2)


@pytest.mark.parametrize("error", [Unavailable("busy"), TimedOut("late")])
async def test_failing_files_do_not_delay_others(
    office: Office, autojump_clock: MockClock, error: Exception
) -> None:
    """A look at what is missing does not delay the next attempt, either."""
    inodes = [office.file(f"{number}") for number in range(40)]
    bad = inodes[: 2 * TROUBLE]
    office.shelf.bad = {each.ino: error for each in bad}
    office.pins.add(office.zone)
    async with running(office.pin_fetcher.run):
        await trio.sleep(5 * PASS_S)
        assert len(office.shelf.complete_now) == len(inodes) - len(bad)
        office.shelf.bad.clear()
        missing = (await office.pin_fetcher.count(office.zone, len(inodes))).failed
        assert [one.error for one in missing] == [str(error)] * len(bad)
        await trio.sleep(1.5 * PASS_S)
        assert len(office.shelf.complete_now) == len(inodes)
        assert not (await office.pin_fetcher.count(office.zone, len(inodes))).failed


async def test_a_folder_that_can_never_be_listed(office: Office, autojump_clock: MockClock) -> None:
    """The command names it and does not report an outage; other files are fetched."""
    folder, inode = office.folder("bad", listed=False), office.file("a")
    office.bad = {folder.ino: TimedOut("late")}
    office.pins.add(office.zone)
    tally = PinProgress()
    await office.pin_fetcher.fetch(office.zone, tally)
    assert office.shelf.asked == [(inode.ino, "1")]
    assert [one.path for one in tally.failed] == ["Zone/bad"]
    assert (tally.away, tally.here) == (None, 1)


async def test_a_service_that_gives_nothing_is_away(office: Office) -> None:
    """An unreachable service is reported although only one file is pinned."""
    inode = office.file("a")
    office.pins.add(inode)
    office.shelf.bad = {inode.ino: TimedOut("late")}
    tally = PinProgress()
    await office.pin_fetcher.fetch(inode, tally)
    assert (str(tally.away), tally.failed) == ("late", [])


async def test_a_file_that_changes_meanwhile_is_fetched_as_it_is_then(office: Office) -> None:
    """The folder is listed again, and the new version is downloaded."""
    inode = office.file("a")
    office.pins.add(inode)
    office.shelf.errors = [Changed("another one by now")]
    tally = PinProgress()
    await office.pin_fetcher.fetch(inode, tally)
    assert office.listed == [office.zone.ino]
    assert (tally.files, tally.here, tally.failed) == (1, 1, [])


async def test_a_file_that_is_removed_during_its_download_is_skipped(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The download of a removed file ends with Changed; the other files are still downloaded."""
    removed, other = office.file("a"), office.file("b")
    with office.state.transaction():
        office.state.inodes.update(office.zone, listed=True)
    office.pins.add(office.zone)
    complete = office.shelf.complete

    async def changed(ino: int, *args: Any) -> None:
        if ino == removed.ino:
            with office.state.transaction():
                office.state.inodes.unlink(removed)
            raise Changed("deleted by somebody else")
        await complete(ino, *args)

    monkeypatch.setattr(office.shelf, "complete", changed)
    tally = PinProgress()
    await office.pin_fetcher.fetch(office.zone, tally)
    assert (tally.files, tally.here, tally.failed) == (2, 1, [])
    assert office.shelf.asked == [(other.ino, "1")]


async def test_an_unpinned_folder_is_not_fetched_any_further(
    office: Office, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Running downloads end, and no further one begins; the other pinned folder is fetched."""
    huge, small = office.folder("huge"), office.folder("small")
    for number in range(40):
        office.file(f"{number}", parent=huge)
    wanted = office.file("wanted", parent=small)
    office.pins.add(huge, small)
    complete = office.shelf.complete
    begun: list[int] = []

    async def slow(ino: int, *args: Any) -> None:
        begun.append(ino)
        await trio.sleep(10)
        await complete(ino, *args)

    monkeypatch.setattr(office.shelf, "complete", slow)
    async with running(office.pin_fetcher.run):
        await trio.sleep(5)
        before = len(begun)
        assert 0 < before < 40
        office.pins.remove(huge)
        await trio.sleep(PASS_S)
        assert begun[before:] == [wanted.ino]
        assert office.shelf.complete_now == {(wanted.ino, "1")}


async def test_an_unpinned_folder_is_not_listed_any_further(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the command `pin` still lists the folders below, it sends no further request."""
    office.folders(40, office.zone)
    office.pins.add(office.zone)
    refresh = office.refresh

    async def unpinned(folder: Inode, newer_than_ns: int) -> None:
        await refresh(folder, newer_than_ns)
        if len(office.listed) >= 10 and office.pins:
            office.pins.remove(office.zone)

    monkeypatch.setattr(office, "refresh", unpinned)
    await office.pin_fetcher.fetch(office.zone, PinProgress())
    assert 10 <= len(office.listed) < 20


async def test_a_service_that_goes_away_ends_the_waiting(office: Office) -> None:
    """After some consecutive failures the reason is reported; the other files are not tried."""
    with office.state.transaction():
        office.state.inodes.update(office.zone, listed=True)
    inodes = [office.file(f"{number}") for number in range(40)]
    office.pins.add(office.zone)
    office.shelf.bad = {each.ino: Unreachable("the cable is out") for each in inodes}
    tally = PinProgress()
    await office.pin_fetcher.fetch(office.zone, tally)
    assert str(tally.away) == "the cable is out"
    assert tally.failed == []
    assert len(office.shelf.asked) < 2 * TROUBLE


async def test_a_pass_that_fails_does_not_end_the_mount(
    office: Office, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """A failed pass is logged, and the next pass continues."""
    office.file("a")
    office.pins.add(office.zone)
    office.shelf.errors = [RuntimeError("a bug")]
    async with running(office.pin_fetcher.run):
        await trio.sleep(PASS_S * 1.5)
        assert "cannot check pinned files" in caplog.text
        assert len(office.shelf.asked) == 2


async def test_a_pin_on_a_full_disk_stays_valid(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pin stays valid although its new place cannot be stored."""
    with office.state.transaction():
        made = office.state.inodes.add(office.zone.ino, "made", Kind.FILE, zone="z")
    office.pins.add(made)
    with office.state.transaction():
        office.state.inodes.update(made, remote_id="new")

    def full(store: PinStore, *pins: Pin) -> None:
        raise OSError(errno.ENOSPC, "full")

    with monkeypatch.context() as patch:
        patch.setattr(PinStore, "put", full)
        assert [inode.ino for inode in office.pins.roots()] == [made.ino]
    assert PinStore(office.state.database).all() == [Pin(made.ino, "z")]
    assert [inode.ino for inode in office.pins.roots()] == [made.ino]
    assert PinStore(office.state.database).all() == [Pin(made.ino, "z", "new")]


def test_pins_of_exchanged_files_are_stored_together(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the disk is full after one of two files has got the entry of the other one, both stay."""
    one, other = office.file("one"), office.file("other")
    office.pins.add(one, other)
    before = office.pins._store.all()
    with office.state.transaction():
        office.state.inodes.update(other, remote_id=None)
        office.state.inodes.update(one, remote_id="other")
        third = office.file("third")
        office.state.inodes.update(third, remote_id="one")

    def full(store: PinStore, *pins: Pin) -> None:
        raise OSError(errno.ENOSPC, "full")

    with monkeypatch.context() as patch:
        patch.setattr(PinStore, "put", full)
        assert {inode.ino for inode in office.pins.roots()} == {one.ino, third.ino}
    assert PinStore(office.state.database).all() == before
    office.pins.update_inodes()
    stored = PinStore(office.state.database).all()
    assert set(stored) == {Pin(one.ino, "z", "other"), Pin(third.ino, "z", "one")}


def test_the_pin_of_a_deleted_entry_passes_on_with_the_file(office: Office) -> None:
    """A coworker deletes a pinned file that was edited here; a save then renames a file over it."""
    edited = office.file("edited")
    office.pins.add(edited)
    with office.state.transaction():
        office.state.inodes.update(edited, remote_id=None)
        saved = office.state.inodes.add(office.zone.ino, "saved", Kind.FILE, zone="z")
    office.pins.update_inodes()
    with office.state.transaction():
        rename(office.state, saved, office.zone, "edited", edited)
    assert office.pins.roots() == [saved]
    assert PinStore(office.state.database).all() == [Pin(saved.ino, "z")]


def test_a_pin_that_cannot_be_stored(office: Office) -> None:
    """After a failed transaction memory and table agree."""
    inode = office.file("a")
    store = PinStore(office.state.database)
    store.put(Pin(7))
    with pytest.raises(RuntimeError), office.state.transaction():
        store.put(Pin(inode.ino, "z", "a"))
        store.drop([7])
        raise RuntimeError
    assert store.all() == [Pin(7)] == PinStore(office.state.database).all()


def test_only_missing_pins_are_looked_up_after_a_listing(office: Office) -> None:
    """One deleted pinned file costs a few queries for each listing, however many pins there are."""
    files = [office.file(f"{number}") for number in range(100)]
    for each in files:
        office.pins.add(each)
    inodes = office.state.inodes
    with office.state.transaction():
        inodes.unlink(files[0])
        inodes.unlink(files[1])
    office.pins.update_inodes()
    queries: list[str] = []
    office.state.database._connection.set_trace_callback(queries.append)
    assert not office.pins.find_returned()
    assert len(queries) < 10
    returned = office.file("1")
    assert office.pins.find_returned()
    assert returned.ino in office.pins
    assert [pin.remote_id for pin in office.pins.missing()] == ["0"]


def test_the_entry_of_a_pinned_folder_that_is_kept_for_local_changes_is_missing(
    office: Office,
) -> None:
    """The service may have moved the entry; the pin goes with it once it is found."""
    folder = office.folder("plans")
    entry_id = folder.entry_id
    office.pins.add(folder)
    with office.state.transaction():
        unbind_folder(office.state, folder)
    assert [pin.remote_id for pin in office.pins.missing()] == [entry_id]
    assert folder.ino in office.pins
    assert not office.pins.find_returned()
    moved = office.folder("moved")
    with office.state.transaction():
        office.state.inodes.update(moved, remote_id=entry_id)
    assert office.pins.find_returned()
    assert [each.ino for each in office.pins.roots()] == [moved.ino]
    assert office.pins.missing() == []


def test_a_pinned_folder_that_is_created_again_and_its_former_entry_are_both_pinned(
    office: Office,
) -> None:
    """The service may have moved the former entry."""
    folder = office.folder("plans")
    entry_id = folder.entry_id
    office.pins.add(folder)
    with office.state.transaction():
        unbind_folder(office.state, folder)
        office.state.inodes.update(folder, remote_id="again")
    (former,) = office.pins.missing()
    assert former.remote_id == entry_id
    assert [each.ino for each in office.pins.roots()] == [folder.ino]
    moved = office.folder("moved")
    with office.state.transaction():
        office.state.inodes.update(moved, remote_id=entry_id)
    assert office.pins.find_returned()
    assert {each.ino for each in office.pins.roots()} == {moved.ino, folder.ino}
    assert office.pins.missing() == []
    office.pins.forget_former(former)
    assert {each.ino for each in office.pins.roots()} == {moved.ino, folder.ino}


def test_only_the_pin_of_a_former_entry_is_removed_with_the_entry(office: Office) -> None:
    """The pin of an entry without a successor is kept, because the entry may be restored."""
    folder, file = office.folder("plans"), office.file("a")
    office.pins.add(folder, file)
    with office.state.transaction():
        unbind_folder(office.state, folder)
        office.state.inodes.update(folder, remote_id="again")
        office.state.inodes.unlink(file)
    for pin in office.pins.missing():
        office.pins.forget_former(pin)
    assert [pin.remote_id for pin in office.pins.missing()] == ["a"]
    assert [each.ino for each in office.pins.roots()] == [folder.ino]
