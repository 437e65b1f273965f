"""Recovery after a kill: leftovers are found, completed or reported."""

import errno
import logging
import os
from contextlib import closing
from pathlib import Path

import pytest

from tests.unit.state.disk import Disk, read, saved, store, zone_of
from zonedrive import failpoint
from zonedrive.db import Database
from zonedrive.failpoint import Place
from zonedrive.model import Revision
from zonedrive.state import row_upgrade
from zonedrive.state.inode import ROOT, Kind
from zonedrive.state.pending_requests import PendingRequest
from zonedrive.state.recovery import recover
from zonedrive.state.status import LOST_FOUND


def test_a_closed_file_is_waiting_again(disk: Disk) -> None:
    """A file that was closed before the kill is readable and still pending."""
    inode = saved(disk.start(), "a", b"content")
    state = disk.recovered()
    assert read(state, inode.ino) == b"content"
    assert state.intents.get(inode.ino) is not None


def test_an_open_file_is_sent_after_a_crash(disk: Disk) -> None:
    """A writer that died with the daemon no longer delays the upload of its file."""
    inode = saved(disk.start(), "a", b"content", held=True)
    state = disk.recovered()
    intent = state.intents.get(inode.ino)
    assert intent is not None
    assert not intent.held


@pytest.mark.parametrize("local", [False, True])
def test_bytes_after_the_last_save_are_removed(disk: Disk, local: bool) -> None:
    """Bytes that a program has appended but not saved do not come back with a later edit."""
    state = disk.start()
    inode = saved(state, "a", b"saved", local=local)
    with closing(state.spool.open(inode.ino, inode.generation)) as file:
        file.pwrite(5, b" never saved")
    again = disk.recovered()
    with closing(again.spool.open(inode.ino, inode.generation)) as file:
        assert file.pread(0, 100) == b"saved"


def test_bytes_that_nothing_names_are_removed(disk: Disk) -> None:
    """Incomplete bytes of an unconfirmed save are deleted, so that they do not fill the disk."""
    state = disk.start()
    inode = saved(state, "a", b"confirmed")
    state.spool.create(inode.ino, state.next_generation()).close()
    again = disk.recovered()
    assert again.spool.stored() == [(inode.ino, again.inodes.get(inode.ino).generation)]
    assert read(again, inode.ino) == b"confirmed"


def test_replaced_bytes_are_deleted_after_the_record_that_replaced_them_is_durable(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A daemon may be killed between a commit and the flush that makes it durable."""
    state = disk.start()
    inode = saved(state, "a", b"synced")
    former = inode.ino, inode.generation
    newer = inode.ino, store(state, inode.ino, b"newer")
    with state.transaction():
        state.inodes.update(inode, generation=newer[1])
        state.intents.content(*newer, 5, base=None, held=False, due_ns=1 << 62)
    again, kept = disk.start(), list[list[tuple[int, int]]]()
    monkeypatch.setattr(Database, "flush", lambda _: kept.append(again.spool.stored()))
    recover(again)
    assert kept == [[former, newer]]
    assert again.spool.stored() == [newer]


def test_bytes_of_an_earlier_run_may_be_durable(disk: Disk) -> None:
    """Their program may have synced them, so a flush has to precede their deletion."""
    inode = saved(disk.start(), "a", b"content")
    state = disk.recovered()
    which = inode.ino, inode.generation
    state.supersede_bytes(*which)
    assert state.spool.stored() == [which]
    state.delete_superseded([which])
    assert state.spool.stored() == []


def test_missing_bytes_are_named_and_stop_nothing(
    disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    """If outgoing bytes were deleted, the user is told the name, which is in no log.

    Other files are sent.
    """
    state = disk.start()
    lost = saved(state, "lost.txt", b"x")
    state.spool.delete(lost.ino, lost.generation)
    again = disk.start()
    with caplog.at_level(logging.ERROR):
        recover(again)
    assert "lost.txt" not in caplog.text
    assert [(each.path, each.said) for each in again.refusals.unacknowledged()] == [
        ("Zone/lost.txt", "the bytes of the last save are missing; save the file again")
    ]
    assert len(again.intents) == 0
    assert again.inodes.find(lost.ino) is None or again.inodes.get(lost.ino).parent == 0


class Killed(BaseException):
    """Kill at a place of the recovery."""


def recover_until(place: Place, disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Start a recovery that is killed at a place."""

    def die(place: Place) -> None:
        raise Killed

    monkeypatch.setattr(failpoint, "_die", die)
    failpoint.arm({failpoint.VARIABLE: place})
    with pytest.raises(Killed):
        disk.recovered()
    failpoint.arm({})


@pytest.mark.parametrize("place", [None, Place.LOST_LINKED, Place.LOST_FOUND])
def test_a_lost_save_of_a_new_file_does_not_hide_what_was_sent(
    disk: Disk, place: Place | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name is free for the service's file, and the bytes that were sent are in lost+found.

    A kill meanwhile changes nothing.
    """
    state = disk.start()
    inode = saved(state, "new.txt", b"sent")
    sent = PendingRequest(
        inode.ino, inode.ino, inode.generation, 4, inode.zone, "folder", "new.txt", None
    )
    state.record_request(sent)
    lost = store(state, inode.ino, b"lost")
    with state.transaction():
        state.inodes.update(inode, generation=lost, size=4)
        state.intents.content(inode.ino, lost, 4, base=None, held=False, due_ns=1 << 62)
    state.spool.delete(inode.ino, lost)
    if place is not None:
        recover_until(place, disk, monkeypatch)
    again = disk.recovered()
    assert again.requests.all() == []
    assert again.inodes.get(inode.ino).parent == 0
    (rescued,) = again.inodes.inodes_in(again.inodes.children(ROOT)[LOST_FOUND])
    assert read(again, rescued.ino) == b"sent"
    assert again.spool.stored() == [(rescued.ino, rescued.generation)]


@pytest.mark.parametrize("place", [Place.LOST_LINKED, Place.LOST_FOUND])
def test_a_kill_does_not_keep_bytes_of_a_missing_inode_from_lost_found(
    disk: Disk, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next start repeats the work: the second link may exist, but the new inode does not."""
    state = disk.start()
    inode = saved(state, "a", b"content")
    state.database.execute("DELETE FROM inodes WHERE ino = ?", (inode.ino,))
    recover_until(place, disk, monkeypatch)
    again = disk.recovered()
    (found,) = again.inodes.inodes_in(again.inodes.children(ROOT)[LOST_FOUND])
    assert read(again, found.ino) == b"content"
    assert again.spool.stored() == [(found.ino, found.generation)]


@pytest.mark.parametrize("file", ["saved", "open", "copied"])
def test_missing_bytes_leave_the_version_of_the_service(disk: Disk, file: str) -> None:
    """An edit without its bytes cannot be sent, even if a program had the file open.

    A copy may be deleted after a commit that a power cut has undone.
    """
    state = disk.start()
    inode = saved(state, "a.txt", b"x", held=file == "open")
    with state.transaction():
        state.inodes.update(
            inode, remote_id="1", remote_parent="root", remote_name="a.txt",
            revision=Revision("1"), seen=7,
        )  # fmt: skip
        if file == "copied":
            state.intents.drop(inode.ino)
    state.spool.delete(inode.ino, inode.generation)
    again = disk.recovered()
    assert len(again.intents) == 0
    found = again.inodes.get(inode.ino)
    assert (found.generation, found.revision, found.seen) == (0, "", 0)
    assert again.inodes.path(inode.ino) == "Zone/a.txt"


def test_a_removed_file_that_was_only_open_is_forgotten(disk: Disk) -> None:
    """A removal that the service does not know yet stays."""
    state = disk.start()
    zone, inos = zone_of(state), []
    with state.transaction():
        for name in ("open", "removed"):
            inode = state.inodes.add(zone.ino, name, Kind.FILE, zone="z", remote_id=name)
            state.inodes.unlink(inode, tombstone=True)
            inos.append(inode.ino)
        state.intents.gone(inos[1], 0)
    disk.recovered()
    again = disk.start()
    assert [again.inodes.find(ino) is not None for ino in inos] == [False, True]


def test_local_files_stay(disk: Disk) -> None:
    """A lock or swap file still exists after a restart, and is still not sent."""
    state = disk.start()
    inode = saved(state, ".a.swp", b"swap")
    with state.transaction():
        state.inodes.update(inode, local=True)
        state.intents.drop(inode.ino)
    again = disk.recovered()
    assert read(again, inode.ino) == b"swap"
    assert len(again.intents) == 0


def test_names_of_the_former_rule_are_shown_by_the_present_one(disk: Disk) -> None:
    """Names are updated after an upgrade, even if two become equal, without a change on the
    service. A rename that is not sent yet stays."""
    state = disk.start()
    new = saved(state, "tab\there", b"content")
    known = {"x\u202e.txt": "x\u202e.txt", "y\u241b": "y\x85", "z\u241b": "z\x1b"}
    known[".hidden\u241b"] = ".hidden\x85"  # only a zone gets another first character
    with state.transaction():
        zone = new.parent
        twin = state.inodes.add(zone, "tab\u2409here", Kind.FILE, zone="z", remote_id="twin")
        inos = {
            name: state.inodes.add(
                zone, name, Kind.FILE, zone="z", remote_id=f"id {name}", remote_name=there
            ).ino
            for name, there in known.items()
        }
        renamed = state.inodes.add(
            zone, "mine\u241b", Kind.FILE, zone="z", remote_id="mine", remote_name="former"
        )
        top = state.inodes.add(ROOT, ".git", Kind.ZONE, zone="g", remote_id="r", remote_name=".git")
        state.database.execute("UPDATE inodes SET mark = NULL WHERE ino = ?", (ROOT,))
    state = disk.recovered()
    shown = {inode.ino: inode.name for inode in state.inodes.inodes_in(new.parent)}
    assert [shown[ino] for ino in inos.values()] == [
        "x\u2039RLO\u203a.txt", "y\u241bE", "z\u241b", ".hidden\u241bE",
    ]  # fmt: skip
    assert shown[renamed.ino] == "mine\u241b"
    assert shown[twin.ino] == "tab\u2409here"
    assert shown[new.ino] == f"tab\u2409here~{new.ino}"
    assert state.inodes.get(top.ino).name == "\uff0egit"
    assert [state.remote_name(state.inodes.get(ino)) for ino in inos.values()] == [*known.values()]
    assert read(state, new.ino) == b"content"
    assert not state.inodes.child(new.parent, "tab\there")
    row_upgrade.names(state.inodes)  # nothing is left to be done


def test_a_copy_of_the_services_version_ends_with_the_daemon(disk: Disk) -> None:
    """A file that was opened for writing, but not written, is read from the service again."""
    state = disk.start()
    inode = saved(state, "a", b"copied", remote_id="f", revision=Revision("1"))
    with state.transaction():
        state.intents.drop(inode.ino)
    again = disk.recovered()
    found = again.inodes.get(inode.ino)
    assert (found.generation, found.revision, found.size) == (0, Revision("1"), 6)
    assert again.spool.stored() == []


def boot() -> bytes:
    """Return the id of the machine's present boot."""
    return Path("/proc/sys/kernel/random/boot_id").read_bytes().strip()


@pytest.mark.parametrize(
    ("noted", "waits", "checked"),
    [
        (None, True, False), (boot(), True, False), (b"", True, True), (b"z", True, True),
        (b"z", False, False), (b"\xff\0", True, True), (b"\xff\0", False, False),
    ],
    ids=[
        "first start", "same boot", "smaller id", "larger id", "nothing waits", "damaged",
        "damaged and nothing waits",
    ],
)  # fmt: skip
def test_bytes_from_before_a_restart_of_the_machine_are_checked(
    disk: Disk, noted: bytes | None, waits: bool, checked: bool
) -> None:
    """The check is repeated at each start until no bytes from before the restart are pending."""
    state, waiting = disk.start(), set()
    if waits:
        inode = saved(state, "a", b"content")
        waiting = {(inode.ino, inode.generation)}
    note = state.database.path.with_name("boot")
    if noted is not None:
        note.write_bytes(noted)
    for _ in range(2):
        state = disk.recovered()
        assert state.unverified_after_crash == (waiting if checked else set())
        assert note.read_bytes() == (noted if checked else boot())


def test_content_of_lost_inodes_is_not_that_of_new_ones(disk: Disk) -> None:
    """A database from a backup gives numbers again; the cache drops what it has under them."""
    state = disk.start()
    kept = saved(state, "kept", b"content")
    state.cache.put(kept.ino, Revision("r"), b"known")
    state.cache.put(kept.ino + 1, Revision("r"), b"of a lost inode")
    state.cache.put(kept.ino + 9, Revision("r"), b"of another")
    again = disk.recovered()
    assert again.cache.inos() == [kept.ino]


def test_a_kill_on_a_disk_without_hard_links_keeps_bytes_of_lost_found(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bytes of lost rows are shown once, although a killed recovery has copied them before."""
    state = disk.start()
    lost = saved(state, "lost", b"bytes")
    saved(state, "kept", b"kept", parent=lost.parent)
    for table in ("inodes", "intents"):
        state.database.execute(f"DELETE FROM {table} WHERE ino = ?", (lost.ino,))
    state.database.path.with_name("tree.db.salvage").write_text("tree.db.damaged-1")

    def refuse(*_: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", refuse)
    recover_until(Place.LOST_LINKED, disk, monkeypatch)
    again = disk.recovered()
    (inode,) = again.inodes.inodes_in(again.inodes.children(ROOT)[LOST_FOUND])
    assert read(again, inode.ino) == b"bytes"
    assert len(again.spool.stored()) == 2
