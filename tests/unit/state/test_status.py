"""Report about local changes: paths, reasons, counts, and files that stay on this machine."""

import time
from pathlib import Path
from typing import Any

import pytest

from tests.unit.state.disk import zone_of
from zonedrive.causes import Cause
from zonedrive.errors import Rejected, StoreError, Unavailable, Unreachable
from zonedrive.model import Revision
from zonedrive.state.inode import NOWHERE, ROOT, Inode, Kind
from zonedrive.state.intents import Conflict, Intent
from zonedrive.state.local_state import LocalState
from zonedrive.state.pause import Pause
from zonedrive.state.pending_requests import PendingRequest
from zonedrive.state.status import LOST_FOUND, Status, Work, damage_notice, staying

FULL = OSError(28, "No space left on device")


def add(state: LocalState, parent: int, name: str, kind: Kind = Kind.FILE, **what: object) -> Inode:
    """Add an inode."""
    with state.transaction():
        return state.inodes.add(parent, name, kind, **{"zone": "z", **what})


def content(state: LocalState, inode: Inode, *, held: bool = False, size: int = 5) -> Intent:
    """Record new content of a file."""
    with state.transaction():
        return state.intents.content(inode.ino, 1, size, base=None, held=held, due_ns=0)


def answer(
    state: LocalState, work: Work | None = None, most: int | None = None, **more: Any
) -> dict[str, Any]:
    """Return the answer about all changes."""
    options: dict[str, Any] = {"state": "online", "cache": (1, 2), "notices": (), "lost": 3}
    return Status(state, work).answer(state.intents.pending(), most, **options | more)


def test_an_entry_that_was_removed_here_has_its_path_on_the_service(state: LocalState) -> None:
    """An upload without an answer tells where a file is that was renamed or removed since."""
    zone = zone_of(state).ino
    there = {"remote_id": "f", "remote_parent": "root", "remote_name": "folder"}
    folder = add(state, zone, "local name", Kind.FOLDER, **there)
    file = add(state, folder.ino, "file", remote_id="1", remote_parent="f", remote_name="there")
    new = add(state, zone, "new")
    odd = add(state, zone, "odd", remote_id="2")
    request = PendingRequest(
        new.ino, new.ino, 1, 1, zone="z", folder="f", name="asked", remote_id=None
    )
    with state.transaction():
        for each in (file, new, odd):
            state.inodes.unlink(each, tombstone=True)
    assert state.path(new.ino) == "new"
    with state.transaction():
        state.requests.note(request)
    paths = [state.path(each.ino) for each in (file, new, odd, folder)]
    assert paths == ["Zone/local name/there", "Zone/local name/asked", "odd", "Zone/local name"]
    with state.transaction():
        state.inodes.unlink(folder, tombstone=True)
    assert [state.path(each.ino) for each in (file, folder)] == [
        "Zone/folder/there", "Zone/folder",
    ]  # fmt: skip
    assert (state.path(ROOT), state.path(900)) == ("", "")


@pytest.mark.parametrize(
    ("held", "failure", "error", "cause"),
    [
        (False, None, None, None),
        (True, None, "a program still has it open for writing", None),
        (False, FULL, "the disk of the outbox is full; make room there", "local"),
        (True, FULL, "a program still has it open for writing", None),
        (False, StoreError("no room"), "no room", "local"),
        (False, Unreachable("away"), None, None),
    ],
)
def test_a_reason_on_this_machine_is_given_without_a_row(
    state: LocalState, held: bool, failure: Exception | None, error: str | None, cause: str | None
) -> None:
    """A full disk cannot record the failure; only the daemon knows."""
    content(state, add(state, zone_of(state).ino, "a"), held=held)
    (upload,) = answer(state, Work(failure=lambda _: failure), most=5)["uploads"]
    assert (upload["error"], upload["cause"]) == (error, cause)


AWAY, BUSY = Unreachable("away"), Unavailable("busy", status=503)


@pytest.mark.parametrize(
    ("cause", "failure", "due_in_s", "is_online", "is_running", "is_told"),
    [
        (Cause.SERVICE, AWAY, 9, True, False, True),
        (Cause.SERVICE, AWAY, 0, False, False, True),
        (Cause.SERVICE, AWAY, 0, True, False, False),
        (Cause.SERVICE, None, 0, True, False, False),  # the daemon was restarted since
        (Cause.SERVICE, BUSY, 0, True, False, True),
        (Cause.SERVICE, AWAY, 9, True, True, False),
        (Cause.REFUSED, Rejected("no", status=400), 0, True, False, True),
        (Cause.REFUSED, Rejected("no", status=400), 0, True, True, False),
    ],
)
def test_an_error_is_told_as_long_as_it_delays_the_upload(
    state: LocalState, cause: Cause, failure: Exception | None, due_in_s: int,
    is_online: bool, is_running: bool, is_told: bool,
) -> None:  # fmt: skip
    """An upload that is under way again, or waits for something else, has no reason to tell."""
    file = add(state, zone_of(state).ino, "a")
    due_ns = time.time_ns() + due_in_s * 10**9
    state.intents.postpone(content(state, file), due_ns, "the reason", cause)
    work = Work(
        running=lambda: {file.ino} if is_running else set(),
        failure=lambda _: failure,
        is_online=lambda: is_online,
    )
    (upload,) = answer(state, work)["uploads"]
    assert upload["error"] == ("the reason" if is_told else None)


def test_the_refusal_of_another_change_is_told(state: LocalState) -> None:
    """A change that waits for a refused one says why."""
    content(state, add(state, zone_of(state).ino, "a"))
    refused = Rejected("no new folders", remedy="ask a manager", status=403)
    (upload,) = answer(state, Work(blocking=lambda inos: dict.fromkeys(inos, refused)))["uploads"]
    assert (upload["state"], upload["error"]) == ("pending", "no new folders; ask a manager")


def test_a_removed_file_that_is_open_waits_for_its_reader(state: LocalState) -> None:
    """The removal is sent when the program closes the file."""
    file = add(state, zone_of(state).ino, "a", remote_id="1")
    with state.transaction():
        state.inodes.unlink(file, tombstone=True)
        state.intents.gone(file.ino, 0)
        state.intents.hold(file.ino)
    (upload,) = answer(state, most=5)["uploads"]
    said = "a program still reads the removed file"
    assert (upload["error"], upload["change"]) == (said, "removed")


def test_the_most_urgent_changes_are_shown(state: LocalState) -> None:
    """All are counted: failed ones come first, then running ones, conflicts and the others."""
    zone = zone_of(state).ino
    names = ("waits", "conflict", "runs", "failed", "waits too", "passing")
    inodes = {name: add(state, zone, name) for name in names}
    intents = {name: content(state, inode) for name, inode in inodes.items()}
    state.intents.postpone(intents["failed"], 0, "denied", Cause.REFUSED)
    state.intents.postpone(intents["passing"], 0, "away", Cause.SERVICE)
    copy = inodes["conflict"]
    with state.transaction():
        state.intents.place(add(state, zone, "folder", Kind.FOLDER).ino, 0)
        state.intents.conflicts.add(Conflict(copy.ino, inodes["waits"].ino, "bob", 7))
        state.intents.conflicts.add(Conflict(900, 900, "bob", 7))
    work = Work(running=lambda: {inodes["runs"].ino}, sent=lambda _: 9)
    found = answer(state, work, most=4)
    assert [(one["path"], one["state"]) for one in found["uploads"]] == [
        ("Zone/failed", "failed"), ("Zone/runs", "uploading"), ("Zone/conflict", "conflict"),
        ("Zone/waits", "pending"),
    ]  # fmt: skip
    assert {one["sent"] for one in found["uploads"]} == {5}
    assert {name: found["outbox"][name] for name in ("pending", "uploading", "failed")} == {
        "pending": 5, "uploading": 1, "failed": 1,
    }  # fmt: skip
    outbox = found["outbox"]
    assert (outbox["conflicts"], outbox["bytes"], outbox["files"]) == (1, 30, 6)
    assert outbox["causes"] == {"refused": 1}
    assert (found["lost"], found["cache"]) == (3, {"bytes": 1, "limit": 2})
    assert found["tree"] == {"entries": 9, "folders": 3}
    assert len(answer(state, work)["uploads"]) == 7
    assert answer(state, work)["lost"] == 3
    assert "lost" not in answer(state, work, lost=0)
    assert [one["state"] for one in Status(state, work).uploads(state.intents.pending())] == [
        "pending", "conflict", "uploading", "failed", "pending", "pending", "pending",
    ]  # fmt: skip


def test_a_conflict_is_listed_as_long_as_its_copy_exists(state: LocalState) -> None:
    """An original that is gone has no path; a file that was made anew is its own original."""
    zone = zone_of(state).ino
    copy, original, removed, anew, other = (
        add(state, zone, name, remote_id=name) for name in "abcde"
    )
    with state.transaction():
        state.intents.conflicts.add(Conflict(anew.ino, anew.ino, "", 5))
        state.intents.conflicts.add(Conflict(other.ino, removed.ino, "bob", 6))
        state.intents.conflicts.add(Conflict(copy.ino, original.ino, "bob", 7))
        state.intents.conflicts.add(Conflict(original.ino, 900, "carol", 8))
        state.intents.conflicts.add(Conflict(removed.ino, copy.ino, "bob", 9))
        state.inodes.unlink(removed, tombstone=True)
    assert Status(state).conflicts() == [
        {"ino": copy.ino, "path": "Zone/a", "original": "Zone/b", "by": "bob", "at_ns": 7},
        {"ino": original.ino, "path": "Zone/b", "original": "", "by": "carol", "at_ns": 8},
        {"ino": anew.ino, "path": "Zone/d", "original": "Zone/d", "by": "", "at_ns": 5},
        {"ino": other.ino, "path": "Zone/e", "original": "", "by": "bob", "at_ns": 6},
    ]


@pytest.mark.parametrize(
    ("pause", "said"),
    [
        (None, {"paused": False}),
        (Pause(0, 0), {"paused": True}),
        (Pause(10**9, 0), {"paused": True, "paused_since": 1}),
        (Pause(10**9, 2 * 10**9), {"paused": True, "paused_since": 1, "paused_until": 2}),
    ],
)
def test_the_times_of_a_pause_are_reported(
    state: LocalState, pause: Pause | None, said: dict[str, object]
) -> None:
    """Scripts read when a pause began and when it ends."""
    found = answer(state, pause=pause)
    shown = {name: value for name, value in found.items() if name.startswith("paused")}
    times = {name: value for name, value in said.items() if name != "paused"}
    assert shown.keys() == said.keys()
    assert shown["paused"] == said["paused"]
    assert all(shown[name].startswith(f"1970-01-01T00:00:0{times[name]}") for name in times)


def test_notices_are_one_line(state: LocalState) -> None:
    """Without a notice the member is missing."""
    assert answer(state, notices=("one", "", "two"))["notice"] == "one; two"
    assert "notice" not in answer(state, notices=("", ""))


def test_damage_is_reported_until_the_files_are_removed(tmp_path: Path) -> None:
    """Damage found by the daemon is more important than the files that were found."""
    path = tmp_path / "tree.db"
    assert damage_notice(path, 0) == ""
    assert damage_notice(path, 1).startswith("the names of 1 file were")
    path.with_name("tree.db.doubt").touch()
    assert "damaged: unmount" in damage_notice(path, 1)


def test_files_that_stay_here_are_counted(state: LocalState) -> None:
    """Files with a local-only name count, below the given folders.

    Files in lost+found and temporary files of programs do not.
    """
    zone = zone_of(state).ino
    local: dict[str, Any] = {"local": True, "generation": 1}
    folder = add(state, zone, "folder", Kind.FOLDER, remote_id="f")
    inner = add(state, folder.ino, "inner", Kind.FOLDER, remote_id="i")
    in_zone = add(state, zone, "a.private", **local)
    in_folder = add(state, inner.ino, "b.private", **local)
    parked = add(state, folder.ino, "c~", remote_id="1", **local)
    local_folder = add(state, zone, "d~", Kind.FOLDER, local=True)
    add(state, local_folder.ino, "e", Kind.FOLDER, local=True)
    add(state, add(state, ROOT, LOST_FOUND, Kind.FOLDER, local=True).ino, "1-2.private", **local)
    add(state, zone, "theirs", remote_id="2")
    add(state, zone, "temporary~", **local)
    content(state, add(state, zone, "pending", generation=1))
    unlinked = add(state, zone, "gone.private", remote_id="3", **local)
    with state.transaction():
        state.intents.park(parked.ino, Revision("1"))
        state.intents.park(unlinked.ino, Revision("1"))
        state.inodes.unlink(unlinked, tombstone=True)
        state.intents.park(unlinked.ino, Revision("1"))
    assert unlinked.parent == NOWHERE
    expected = [
        (None, (), 3), ({ROOT}, (), 3), ({zone}, (), 3), ({folder.ino}, (), 2),
        ({inner.ino}, (), 1), ({local_folder.ino}, (), 0), (set(), (), 0),
        (None, {in_zone.ino}, 2), ({zone}, {in_folder.ino, parked.ino}, 1),
        ({in_zone.ino}, (), 1), ({in_folder.ino, zone}, (), 3),
    ]  # fmt: skip
    for under, but, number in expected:
        assert staying(state, under, but)["files"] == number, (under, but)
    assert staying(state, {inner.ino}) == {"files": 1, "path": "Zone/folder/inner/b.private"}
    assert staying(state, set()) == {"files": 0, "path": ""}
