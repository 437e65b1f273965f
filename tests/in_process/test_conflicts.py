"""Conflicting edits of two users: both versions are kept and reported."""

import errno
import os
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from tests.harness.machine import Mounted
from tests.harness.virtual_mount import VirtualMount
from tests.harness.waiting import eventually
from zonedrive.sync.moved_entries import FOLDERS

SAID = "a conflict copy"
NAME = re.compile(
    r"notes \(conflict, alice@acme\.example on .+, \d{4}-\d\d-\d\d \d\d-\d\d-\d\d\)\.txt"
)


def collide(desk: Mounted) -> None:
    """Save as Alice an edit that is based on the version before Bob's."""
    desk.allow(SAID)
    with (desk.root / "notes.txt").open("wb", buffering=0) as file:
        desk.zone.write("notes.txt", b"Bob's version\n")
        file.write(b"Alice's version\n")
    desk.sync()


def copies(desk: Mounted) -> list[str]:
    """Return the names of conflict copies on the service."""
    return [name for name in desk.zone.listing() if NAME.fullmatch(name)]


@pytest.mark.also_mounted
def test_both_versions_are_kept(desk: Mounted) -> None:
    """The coworker's version keeps the name; the local one becomes a conflict copy on the
    service."""
    collide(desk)
    (copy,) = copies(desk)
    assert desk.zone.read("notes.txt") == b"Bob's version\n"
    assert desk.zone.read(copy) == b"Alice's version\n"
    assert (desk.root / copy).read_bytes() == b"Alice's version\n"
    eventually(
        lambda: (desk.root / "notes.txt").read_bytes() == b"Bob's version\n",
        what="the coworker's version shows",
    )


def test_a_conflict_is_listed_until_its_copy_goes(desk: Mounted) -> None:
    """`zonedrive conflicts` shows copy, original, author and time, also after a restart."""
    collide(desk)
    (copy,) = copies(desk)
    desk.restart()
    (conflict,) = desk.conflicts()
    assert set(conflict) == {"path", "original", "by", "at"}
    assert conflict["path"].endswith(copy)
    assert conflict["original"].endswith("notes.txt")
    assert conflict["by"] == "bob@acme.example"
    assert conflict["at"]
    (desk.root / copy).unlink()
    desk.sync()
    assert desk.conflicts() == []


@pytest.mark.mount("settle=5")
def test_a_conflict_whose_original_was_removed_here(desk: Mounted) -> None:
    """The copy stays listed, without an original, before and after the removal is sent."""
    collide(desk)
    (desk.root / "notes.txt").unlink()
    assert "notes.txt" in desk.zone.listing()
    (before,) = desk.conflicts()
    desk.sync()
    assert "notes.txt" not in desk.zone.listing()
    (after,) = desk.conflicts()
    assert before["original"] == after["original"] == ""


@pytest.mark.mount("settle=0")
def test_sync_reports_each_conflict_copy_once(desk: Mounted) -> None:
    """A copy is reported that waits for its upload, or was uploaded before anybody asked."""
    desk.deployment.fault(latency_ms=2000, method="POST")
    desk.allow(SAID)
    with (desk.root / "notes.txt").open("wb", buffering=0) as file:
        desk.zone.write("notes.txt", b"Bob's version\n")
        file.write(b"Alice's version\n")
    eventually(lambda: bool(desk.conflicts()), what="the conflict is recorded")
    assert copies(desk) == []
    (path,) = [one["path"] for one in desk.conflicts()]
    assert desk.command("sync", timeout=60)["conflicts"] == [path]
    assert desk.command("sync", timeout=60)["conflicts"] == []
    desk.deployment.heal()
    with (desk.root / "notes.txt").open("wb", buffering=0) as file:
        desk.zone.write("notes.txt", b"Bob's second version\n")
        file.write(b"Alice's second version\n")
    eventually(lambda: len(copies(desk)) == 2, what="the copy is on the service")
    time.sleep(5)
    (other,) = [one["path"] for one in desk.conflicts() if one["path"] != path]
    assert desk.command("sync", paths=["Zone 01/docs"], timeout=60)["conflicts"] == []
    assert desk.command("sync", timeout=60)["conflicts"] == [other]
    assert desk.command("sync", timeout=60)["conflicts"] == []


def save_in_place(desk: Mounted) -> None:
    """Save as Alice an edit of the version before Bob's."""
    with (desk.root / "notes.txt").open("wb", buffering=0) as file:
        desk.zone.write("notes.txt", b"Bob's version\n")
        file.write(b"Alice's version\n")


def save_by_rename(desk: Mounted) -> None:
    """Save as Alice an edit of the version before Bob's, in a new file."""
    (desk.root / "notes.txt").read_bytes()
    (desk.root / "notes.tmp").write_bytes(b"Alice's version\n")
    (desk.root / "notes.tmp").rename(desk.root / "notes.txt")
    desk.zone.write("notes.txt", b"Bob's version\n")


@pytest.mark.mount("settle=600", "refresh=600")
@pytest.mark.parametrize("command", ["sync", "send"])
@pytest.mark.parametrize("place", ["notes.txt", "."])
@pytest.mark.parametrize("save", [save_in_place, save_by_rename], ids=lambda save: save.__name__)
def test_sync_of_a_file_waits_for_its_conflict_copy(
    desk: Mounted, save: Callable[[Mounted], None], place: str, command: str
) -> None:
    """The bytes that were saved in the file are in the copy."""
    desk.allow(SAID)
    save(desk)
    answer = desk.command(command, paths=[f"Zone 01/{place}"], timeout=60)
    (copy,) = copies(desk)
    assert desk.zone.read(copy) == b"Alice's version\n"
    assert (answer["exit"], answer["left"]["files"]) == (0, 0)
    assert answer["conflicts"] == [f"Zone 01/{copy}"]
    assert desk.command(command, paths=["Zone 01/notes.txt"], timeout=60)["conflicts"] == []


@pytest.mark.mount("settle=600", "refresh=600")
def test_sync_of_a_file_fails_if_its_conflict_copy_cannot_be_sent(desk: Mounted) -> None:
    """A refusal and an unreachable service have the exit codes that they have for the file."""
    desk.allow(SAID, "refused", "offline", "reach")
    desk.deployment.fault(status=403, method="POST", path="^/api/zones/")
    save_in_place(desk)
    answer = desk.command("sync", paths=["Zone 01/notes.txt"], timeout=60)
    (copy,) = [one["path"] for one in desk.conflicts()]
    assert (answer["exit"], answer["left"]["files"]) == (1, 1)
    assert [one["path"] for one in answer["failed"]] == answer["conflicts"] == [copy]
    assert desk.command("sync", paths=["Zone 01/docs"], timeout=60)["exit"] == 0
    desk.deployment.heal()
    with desk.deployment.faulty(down=True):
        answer = desk.command("sync", paths=["Zone 01/notes.txt"], timeout=60)
        assert (answer["exit"], answer["left"]["files"]) == (4, 1)
    answer = desk.command("sync", paths=["Zone 01/notes.txt"], timeout=60)
    assert (answer["exit"], answer["conflicts"]) == (0, [copy])
    assert len(copies(desk)) == 1


@pytest.mark.mount("refresh=1")
@pytest.mark.parametrize("others", [0, FOLDERS])
def test_a_conflict_stays_listed_after_a_move_of_its_folder(desk: Mounted, others: int) -> None:
    """A coworker moves the folder with copy and original; its former parent is listed first.

    With others that are moved at the same time, it gets another inode.
    """
    for number in range(others):
        desk.zone.make_folder(f"{number}")
    desk.zone.make_folder("team")
    desk.zone.write("team/notes.txt", b"the first\n")
    desk.zone.make_folder("archive")
    eventually(lambda: (desk.root / "team/notes.txt").exists(), what="the file is listed")
    assert not list((desk.root / "archive").iterdir())
    desk.allow(SAID)
    with (desk.root / "team/notes.txt").open("wb", buffering=0) as file:
        desk.zone.write("team/notes.txt", b"Bob's version\n")
        file.write(b"Alice's version\n")
    desk.sync()
    for name in ("team", *map(str, range(others))):
        desk.zone.move(name, f"archive/{name}")
    eventually(lambda: not (desk.root / "team").exists(), what="the folder has left")
    assert len(desk.conflicts()) == (not others)
    eventually(lambda: (desk.root / "archive/team").exists(), what="the folder has arrived")
    assert len(list((desk.root / "archive/team").iterdir())) == 2
    (conflict,) = desk.conflicts()
    assert NAME.fullmatch(conflict["path"].rpartition("/")[2])
    assert conflict["original"].endswith("/archive/team/notes.txt")
    assert desk.status()["outbox"]["conflicts"] == 1


@pytest.mark.mount("refresh=0.2")
@pytest.mark.parametrize("name", ["mine.txt", "notes.txt", "docs/mine.txt"])
def test_a_conflict_ends_when_a_coworker_renames_the_copy(desk: Mounted, name: str) -> None:
    """The copy is renamed, or replaces the original."""
    collide(desk)
    (copy,) = copies(desk)
    if name == "notes.txt":
        desk.zone.delete(name)
    if "/" in name:  # its new folder is listed first
        desk.zone.move(copy, name)
        assert name.partition("/")[2] in desk.names(desk.root / "docs")
    else:
        desk.zone.move(copy, name)
    eventually(lambda: copy not in desk.names(desk.root), what="the rename shows")
    assert (desk.root / name).read_bytes() == b"Alice's version\n"
    assert desk.conflicts() == []
    assert desk.status()["outbox"]["conflicts"] == 0


@pytest.mark.mount("refresh=0.2")
def test_a_conflict_ends_when_a_coworker_renames_a_copy_that_is_edited(desk: Mounted) -> None:
    """The edit follows to the new place."""
    collide(desk)
    (copy,) = copies(desk)
    with (desk.root / copy).open("ab", buffering=0) as file:
        file.write(b"and more\n")
        desk.zone.move(copy, "docs/mine.txt")
        eventually(lambda: copy not in desk.names(desk.root), what="the rename shows")
    assert desk.conflicts() == []
    desk.sync()
    assert desk.zone.read("docs/mine.txt") == b"Alice's version\nand more\n"
    assert desk.conflicts() == []


def remove_copy(path: Path) -> None:
    """Remove the conflict copy."""
    path.unlink()


def rename_copy(path: Path) -> None:
    """Rename the conflict copy."""
    path.rename(path.with_name("mine.txt"))


def replace_original(path: Path) -> None:
    """Rename the conflict copy over the original; its bytes are on this machine."""
    path.read_bytes()
    path.rename(path.with_name("notes.txt"))


HANDLED = pytest.mark.parametrize(
    "handle", [remove_copy, rename_copy, replace_original], ids=lambda each: each.__name__
)


@pytest.mark.mount("settle=600", "refresh=0.2")
@HANDLED
def test_a_conflict_is_listed_again_if_the_change_of_its_copy_is_undone(
    desk: Mounted, handle: Callable[[Path], None]
) -> None:
    """The copy is not listed while the change waits, also after a restart of the daemon."""
    collide(desk)
    (copy,) = copies(desk)
    before = desk.conflicts()
    with desk.deployment.faulty(status=403, path="^/api/sandbox/zones/[^/]+/entries/"):
        desk.allow("refused")
        handle(desk.root / copy)
        assert desk.conflicts() == []
        assert desk.status()["outbox"]["conflicts"] == 0
        assert {one["state"] for one in desk.status()["uploads"]} == {"pending"}
        desk.kill()
        desk.mount()
        assert desk.conflicts() == []
        desk.try_sync()
        eventually(lambda: copy in desk.names(desk.root), what="the change is undone")
    desk.try_sync()
    (conflict,) = desk.conflicts()
    assert (conflict["path"], conflict["at"]) == (before[0]["path"], before[0]["at"])
    assert desk.status()["outbox"]["conflicts"] == 1
    assert desk.xattr(desk.root / copy, "user.zonedrive.state") == "conflict"


@pytest.mark.mount("settle=0", "refresh=0.2")
@HANDLED
def test_a_conflict_ends_when_the_change_of_its_copy_is_sent(
    desk: Mounted, handle: Callable[[Path], None]
) -> None:
    """The copy is not listed if a coworker restores the copy or gives it its name again."""
    collide(desk)
    (copy,) = copies(desk)
    entry = desk.zone.entry_id(copy)
    handle(desk.root / copy)
    desk.sync()
    if handle is rename_copy:
        desk.zone.move("mine.txt", copy)
    else:
        desk.zone.restore(entry)
    eventually(lambda: copy in desk.names(desk.root), what="the copy shows again")
    assert desk.conflicts() == []


@pytest.mark.mount("settle=600")
def test_a_conflict_whose_copy_is_renamed_back_is_listed(desk: Mounted) -> None:
    """The service gets neither of the renames."""
    collide(desk)
    (copy,) = copies(desk)
    (desk.root / copy).rename(desk.root / "mine.txt")
    assert desk.conflicts() == []
    (desk.root / "mine.txt").rename(desk.root / copy)
    assert [one["path"] for one in desk.conflicts()] == [f"{desk.root.name}/{copy}"]
    desk.sync()
    assert len(desk.conflicts()) == 1


@pytest.mark.mount("settle=600")
def test_a_conflict_ends_when_its_copy_and_the_original_exchange_their_names(
    desk: Mounted,
) -> None:
    """The user has chosen the version, as by a rename of the copy over the original."""
    collide(desk)
    (copy,) = copies(desk)
    desk.exchange(desk.root / copy, desk.root / "notes.txt")
    assert desk.conflicts() == []
    desk.sync()
    assert desk.conflicts() == []


@pytest.mark.mount("settle=600", "refresh=0.2")
def test_a_conflict_is_listed_again_if_the_exchange_of_its_names_is_undone(desk: Mounted) -> None:
    """The service refuses the exchange after a restart, or the user exchanges the names again."""
    collide(desk)
    (copy,) = copies(desk)
    before = desk.conflicts()
    with desk.deployment.faulty(status=403, path="^/api/sandbox/zones/[^/]+/entries/"):
        desk.allow("refused")
        desk.exchange(desk.root / copy, desk.root / "notes.txt")
        assert desk.conflicts() == []
        desk.kill()
        desk.mount()
        assert desk.conflicts() == []
        desk.try_sync()
    desk.try_sync()
    assert desk.conflicts() == before
    desk.exchange(desk.root / copy, desk.root / "notes.txt")
    assert desk.conflicts() == []
    desk.exchange(desk.root / copy, desk.root / "notes.txt")
    assert desk.conflicts() == before


@pytest.mark.mount("settle=600")
def test_a_conflict_whose_copy_is_saved_by_removal_stays_listed(desk: Mounted) -> None:
    """The new file takes over the entry of the copy."""
    collide(desk)
    (copy,) = copies(desk)
    entry = desk.zone.entry_id(copy)
    (desk.root / copy).unlink()
    (desk.root / copy).write_bytes(b"another version\n")
    desk.sync()
    assert desk.zone.entry_id(copy) == entry
    assert [one["path"] for one in desk.conflicts()] == [f"{desk.root.name}/{copy}"]


def test_a_conflict_names_its_original_after_a_save_by_rename(desk: Mounted) -> None:
    """The other version is listed under its name after a program has replaced the file."""
    collide(desk)
    (desk.root / "new.tmp").write_bytes(b"both versions\n")
    (desk.root / "new.tmp").rename(desk.root / "notes.txt")
    desk.sync()
    (conflict,) = desk.conflicts()
    assert conflict["original"].endswith("/notes.txt")
    assert conflict["path"] != conflict["original"]


def save_after_removal(path: Path) -> None:
    """Remove the file, and write a new one."""
    path.unlink()
    path.write_bytes(b"edited\n")


def save_after_rename(path: Path) -> None:
    """Rename the file, and write a new one."""
    path.rename(path.with_name("notes.bak"))
    path.write_bytes(b"edited\n")


def save_with_backup(path: Path) -> None:
    """Rename the file to a backup, write a new one, and remove the backup, as vim does."""
    backup = path.with_name(f"{path.name}~")
    path.rename(backup)
    path.write_bytes(b"edited\n")
    backup.unlink()


SAVED = pytest.mark.parametrize(
    "save_again",
    [save_after_removal, save_after_rename, save_with_backup],
    ids=lambda each: each.__name__,
)


@pytest.mark.mount("settle=0")
@SAVED
def test_a_conflict_names_its_original_after_a_save_in_a_new_file(
    desk: Mounted, save_again: Callable[[Path], None]
) -> None:
    """The new file takes over the entry of the original, so the copy is listed with its name."""
    collide(desk)
    entry = desk.zone.entry_id("notes.txt")
    save_again(desk.root / "notes.txt")
    desk.sync()
    assert desk.zone.entry_id("notes.txt") == entry
    (conflict,) = desk.conflicts()
    assert conflict["original"] == f"{desk.root.name}/notes.txt"


@pytest.mark.mount("settle=0", "refresh=0.2")
@SAVED
def test_sync_of_a_file_that_was_saved_again_sends_its_conflict_copy(
    desk: Mounted, save_again: Callable[[Path], None]
) -> None:
    """Otherwise `zonedrive sync FILE` reports success while a version of the user is not sent."""
    desk.allow(SAID, "refused")
    with desk.deployment.faulty(status=403, method="POST", path="^/api/zones/"):
        save_in_place(desk)
        assert desk.try_sync() == 1
    desk.command("pause")
    save_again(desk.root / "notes.txt")
    answer = desk.command("send", paths=["Zone 01/notes.txt"], timeout=60)
    assert answer["exit"] == 0
    (copy,) = copies(desk)
    assert desk.zone.read(copy) == b"Alice's version\n"


@pytest.mark.mount("settle=0")
def test_a_conflict_whose_copy_is_saved_with_a_backup_stays_listed(desk: Mounted) -> None:
    """The backup is not uploaded, so the new file takes over the entry of the copy."""
    collide(desk)
    (copy,) = copies(desk)
    before = desk.conflicts()
    save_with_backup(desk.root / copy)
    desk.sync()
    assert desk.zone.read(copy) == b"edited\n"
    assert desk.conflicts() == before


@pytest.mark.mount("settle=0", "refresh=0.2")
@SAVED
def test_a_file_that_a_coworker_deleted_during_an_edit_stays_listed_after_a_save(
    desk: Mounted, save_again: Callable[[Path], None]
) -> None:
    """The user is still told that the file was deleted, whichever way a program saves the file."""
    desk.allow("deleted on the service while edited")
    with (desk.root / "notes.txt").open("wb", buffering=0) as file:
        file.write(b"Alice's version\n")
        desk.zone.delete("notes.txt")
    desk.sync()
    save_again(desk.root / "notes.txt")
    desk.sync()
    path = f"{desk.root.name}/notes.txt"
    assert [(each["path"], each["original"]) for each in desk.conflicts()] == [(path, path)]


@pytest.mark.mount("settle=0", "refresh=0.2")
def test_an_unsent_conflict_copy_that_is_saved_by_rename_stays_listed(desk: Mounted) -> None:
    """The conflict is reported until the copy is renamed or removed, not only until it is saved."""
    desk.allow(SAID, "refused")
    with desk.deployment.faulty(status=403, method="POST", path="^/api/zones/"):
        save_in_place(desk)
        assert desk.try_sync() == 1
        before = desk.conflicts()
        (copy,) = [desk.path / each["path"] for each in before]
        (desk.root / "new.tmp").write_bytes(b"edited\n")
        (desk.root / "new.tmp").rename(copy)
        assert desk.conflicts() == before
        assert desk.command("sync", paths=["Zone 01/notes.txt"], timeout=60)["exit"] == 1
    desk.sync()
    assert desk.zone.read(copy.name) == b"edited\n"
    assert desk.conflicts() == before


@pytest.mark.mount("settle=0", "refresh=0.2")
@pytest.mark.parametrize("handle", [remove_copy, rename_copy], ids=lambda each: each.__name__)
def test_a_conflict_is_listed_again_if_a_change_during_the_upload_of_its_copy_is_undone(
    desk: Mounted, handle: Callable[[Path], None]
) -> None:
    """The service refuses the change after it has stored the copy, so the copy shows again."""
    desk.allow(SAID, "refused")
    desk.deployment.fault(stall=5, method="POST", path="^/api/zones/")
    save_in_place(desk)
    eventually(lambda: bool(desk.conflicts()), what="the conflict is recorded")
    before = desk.conflicts()
    (copy,) = [desk.path / each["path"] for each in before]
    time.sleep(1)  # the upload begins
    with desk.deployment.faulty(status=403, path="^/api/sandbox/zones/[^/]+/entries/"):
        handle(copy)
        assert desk.conflicts() == []
        desk.try_sync()
        eventually(lambda: copy.name in desk.names(desk.root), what="the change is undone")
    assert desk.conflicts() == before


@pytest.mark.mount("settle=0", "refresh=0.2")
def test_a_conflict_whose_copy_is_renamed_back_during_its_upload_is_listed(desk: Mounted) -> None:
    """The copy has the name under which the service stores it."""
    desk.allow(SAID)
    with desk.deployment.faulty(stall=5, method="POST", path="^/api/zones/"):
        save_in_place(desk)
        eventually(lambda: bool(desk.conflicts()), what="the conflict is recorded")
        before = desk.conflicts()
        (copy,) = [desk.path / each["path"] for each in before]
        time.sleep(1)  # the upload begins
        copy.rename(desk.root / "mine.txt")
        (desk.root / "mine.txt").rename(copy)
        desk.sync()
    assert copies(desk) == [copy.name]
    assert desk.conflicts() == before


@pytest.mark.mount("settle=0", "refresh=0.2")
def test_a_conflict_ends_when_its_copy_is_uploaded_under_another_name(desk: Mounted) -> None:
    """The copy is renamed during an upload that fails, and is not listed again later."""
    desk.allow(SAID, "refused")
    with desk.deployment.faulty(latency_ms=5000, status=403, method="POST", path="^/api/zones/"):
        save_in_place(desk)
        eventually(lambda: bool(desk.conflicts()), what="the conflict is recorded")
        (copy,) = [desk.path / each["path"] for each in desk.conflicts()]
        time.sleep(1)  # the upload begins
        copy.rename(desk.root / "mine.txt")
        time.sleep(10)
    desk.sync()
    entry = desk.zone.entry_id("mine.txt")
    desk.zone.delete("mine.txt")
    eventually(lambda: "mine.txt" not in desk.names(desk.root), what="the deletion shows")
    desk.zone.restore(entry)
    eventually(lambda: "mine.txt" in desk.names(desk.root), what="the file shows again")
    assert desk.conflicts() == []


def test_equal_content_is_no_conflict(desk: Mounted) -> None:
    """If both users saved the same bytes, there is no conflict copy."""
    assert (desk.root / "notes.txt").read_bytes()
    desk.zone.write("notes.txt", b"the same\n")
    (desk.root / "notes.txt").write_bytes(b"the same\n")
    desk.sync()
    assert copies(desk) == []
    assert desk.status()["outbox"]["conflicts"] == 0


@pytest.mark.mount("settle=0")
@pytest.mark.parametrize("failed_for_s", [0, 60])
def test_equal_content_that_cannot_be_compared_at_once(desk: Mounted, failed_for_s: int) -> None:
    """Earlier failures of the upload do not cause a needless conflict copy."""
    assert isinstance(desk, VirtualMount)
    assert (desk.root / "notes.txt").read_bytes()
    with desk.deployment.faulty(status=500, method="POST", path="^/api/zones/"):
        (desk.root / "notes.txt").write_bytes(b"the same\n")
        desk.loop.run(trio.sleep, failed_for_s)
        desk.zone.write("notes.txt", b"the same\n")
    with desk.deployment.faulty(status=500, times=6, method="GET", path="content"):
        desk.sync(seconds=600)
    assert copies(desk) == []
    assert desk.status()["outbox"]["conflicts"] == 0


@pytest.mark.mount("settle=600")
def test_a_new_file_beside_a_coworkers_of_the_same_name(desk: Mounted) -> None:
    """If both created `plan.txt` at the same time, each finds both contents."""
    desk.allow(SAID)
    (desk.root / "plan.txt").write_bytes(b"Alice's plan\n")
    desk.zone.write("plan.txt", b"Bob's own plan\n")
    desk.sync()
    assert desk.zone.read("plan.txt") == b"Bob's own plan\n"
    (copy,) = [name for name in desk.zone.listing() if name.startswith("plan (conflict, ")]
    assert desk.zone.read(copy) == b"Alice's plan\n"
    eventually(
        lambda: (desk.root / "plan.txt").read_bytes() == b"Bob's own plan\n",
        what="the coworker's file shows under its name",
    )


@pytest.mark.mount("settle=0")
def test_a_coworkers_file_in_a_new_folder_that_is_answered_late(desk: Mounted) -> None:
    """The answer about the new folder does not show what is in it since."""
    desk.allow("a coworker uses the name")
    with desk.deployment.faulty(stall=10, times=1, method="POST"):
        (desk.root / "new").mkdir()
        (desk.root / "new/f").write_bytes(b"by Alice")
        time.sleep(3)
        desk.zone.write("new/f", b"by Bob, at the same time")
        time.sleep(10)
    desk.sync()
    assert desk.zone.read("new/f") == b"by Bob, at the same time"
    (conflict,) = desk.conflicts()
    assert desk.zone.read(f"new/{conflict['path'].rpartition('/')[2]}") == b"by Alice"


@pytest.mark.mount("refresh=0.2")
def test_an_edit_after_the_other_version_was_seen_is_no_conflict(desk: Mounted) -> None:
    """A save after the coworker's version was visible makes the next version."""
    desk.zone.write("notes.txt", b"Bob's version\n")
    eventually(
        lambda: (desk.root / "notes.txt").read_bytes() == b"Bob's version\n",
        what="the coworker's version shows",
    )
    (desk.root / "notes.txt").write_bytes(b"Alice's next version\n")
    desk.sync()
    assert copies(desk) == []
    assert len(desk.zone.versions("notes.txt")) == 3


@pytest.mark.parametrize("is_seen", [True, False])
@pytest.mark.parametrize(
    "save", ["in place", "by a rename", "removed first", "removed, then renamed", "moved aside"]
)
@pytest.mark.mount("refresh=5")
def test_an_edit_of_a_version_that_arrived_while_a_rename_waits(
    desk: Mounted, save: str, is_seen: bool
) -> None:
    """A version that the program has read is no conflict, however the program saves."""
    desk.allow(SAID)
    before, theirs = (desk.root / "notes.txt").read_bytes(), b"Bob's version\n"
    desk.command("pause")
    path = desk.root / "plan.txt"
    (desk.root / "notes.txt").rename(path)
    desk.zone.write("notes.txt", theirs)
    if is_seen:
        eventually(lambda: path.read_bytes() == theirs, what="the coworker's version shows")
    edited = (theirs if is_seen else before) + b"and Alice's line\n"
    if save == "in place":
        path.write_bytes(edited)
    else:
        aside = desk.root / "plan.bak"
        if save.startswith("removed"):
            path.unlink()
        elif save == "moved aside":
            path.rename(aside)
        if save == "removed first":
            path.write_bytes(edited)
        else:
            (desk.root / "plan.tmp").write_bytes(edited)
            (desk.root / "plan.tmp").rename(path)
        if save == "moved aside":
            aside.unlink()
    desk.command("resume")
    desk.sync()
    assert len(copies_of(desk, "plan")) == (not is_seen)
    assert desk.zone.read("plan.txt") == (edited if is_seen else theirs)


@pytest.mark.also_mounted
@pytest.mark.mount("refresh=60")
def test_appending_to_a_version_that_was_not_listed(desk: Mounted) -> None:
    """An append with an outdated listing continues the coworker's version."""
    path = desk.root / "notes.txt"
    assert path.stat().st_size == 23
    desk.zone.write("notes.txt", b"Bob's longer version of the notes\n")
    with path.open("ab") as file:
        file.write(b"and Alice's line\n")
    desk.sync()
    names = set(desk.zone.listing())
    found = {desk.zone.read(name) for name in names if name.startswith("notes")}
    assert b"Bob's longer version of the notes\n" in {each[:34] for each in found}
    assert any(each.endswith(b"and Alice's line\n") for each in found)


def test_one_of_two_entries_of_a_name_is_not_sent_over_the_other(desk: Mounted) -> None:
    """The service selects versions by name: if two entries have it, an edit waits and is
    reported."""
    desk.allow("not sent")
    for content in ("AAAA", "BBBBBB"):
        desk.deployment.plant(desk.root.name, "twice", content)
    names = [name for name in desk.names(desk.root) if name.startswith("twice")]
    assert len(names) == 2
    for name in names:
        (desk.root / name).write_bytes(b"edited " + name.encode())
    assert desk.try_sync(seconds=8) == 1
    entries = desk.zone.entries()
    found = [desk.zone.read_id(each["id"]) for each in entries if each["name"] == "twice"]
    assert sorted(found) == [b"AAAA", b"BBBBBB"]


@pytest.mark.mount("settle=60", "refresh=600")
@pytest.mark.parametrize("size", ["same", "other"])
@pytest.mark.parametrize("change", ["nothing", "edit", "rename"])
@pytest.mark.parametrize("name", ["bob", "alice"])
def test_a_deletion_spares_a_version_that_was_not_seen(
    desk: Mounted, name: str, change: str, size: str
) -> None:
    """A deletion does not delete a version that was written elsewhere just before.

    The other machine may be the same user's.
    """
    desk.allow("newer version")
    path = desk.root / "notes.txt"
    before = path.read_bytes()
    if change == "edit":
        path.write_bytes(b"edited\n")
    elif change == "rename":
        path = path.rename(desk.root / "renamed.txt")
    other = before.upper() if size == "same" else b"another version\n"
    desk.deployment.person(name).zone(desk.root.name).write("notes.txt", other)
    path.unlink()
    desk.sync()
    assert desk.zone.read("notes.txt") == other
    eventually((desk.root / "notes.txt").exists, what="the file shows again")


@pytest.mark.mount("refresh=600")
@pytest.mark.parametrize("name", ["bob", "alice"])
def test_a_folder_in_the_trash_spares_a_version_that_was_not_seen(desk: Mounted, name: str) -> None:
    """The folder stays, with the version that was written elsewhere just before."""
    desk.allow("has new entries on the service")
    desk.zone.make_folder("box")
    desk.zone.write("box/x.txt", b"one\n")
    assert (desk.root / "box/x.txt").read_bytes() == b"one\n"
    desk.deployment.person(name).zone(desk.root.name).write("box/x.txt", b"two\n")
    (desk.root / "box").rename(desk.path / f".Trash-{os.getuid()}/files/box")
    desk.sync()
    assert desk.zone.read("box/x.txt") == b"two\n"
    eventually((desk.root / "box/x.txt").exists, what="it shows again")


@pytest.mark.also_mounted(kind="folder")
@pytest.mark.mount("settle=0", "refresh=60")
@pytest.mark.parametrize("kind", ["file", "folder", "new folder"])
def test_a_name_that_a_coworker_took_meanwhile(desk: Mounted, kind: str) -> None:
    """If a coworker takes the name of a rename or a new file, the local one becomes a conflict
    copy."""
    desk.allow(SAID)
    assert "target" not in desk.names(desk.root)
    desk.zone.write("target", b"by bob\n")
    match kind:
        case "file":
            content = (desk.root / "notes.txt").read_bytes()
            (desk.root / "notes.txt").rename(desk.root / "target")
        case "folder":
            (desk.root / "docs").rename(desk.root / "target")
        case _:
            (desk.root / "target").mkdir()
    desk.sync()
    assert desk.zone.read("target") == b"by bob\n"
    (ours,) = (name for name in desk.zone.listing() if "conflict" in name)
    assert ours in desk.names(desk.root)
    assert (desk.root / "target").read_bytes() == b"by bob\n"
    if kind == "file":
        assert desk.zone.read(ours) == content
    (told,) = desk.conflicts()
    assert told["path"].endswith(ours)
    assert told["original"].endswith("/target")
    assert told["by"] == "bob@acme.example"


@pytest.mark.mount("settle=0", "refresh=1")
def test_a_name_that_a_coworker_took_and_gave_back(desk: Mounted) -> None:
    """A coworker renames a file to a name that is taken here meanwhile, and back: this is shown."""
    desk.allow(SAID)
    desk.zone.write("theirs", b"by bob\n")
    assert "theirs" in desk.names(desk.root)
    desk.zone.move("theirs", "target")
    (desk.root / "notes.txt").rename(desk.root / "target")
    desk.sync()
    desk.zone.move("target", "theirs")  # before the folder is listed again
    eventually(lambda: "theirs" in desk.names(desk.root), what="it has its name again")
    assert "target" not in desk.names(desk.root)


@pytest.mark.mount("settle=60", "refresh=0.2")
@pytest.mark.parametrize("aside", ["notes.bak", "notes.txt~"])
def test_a_coworkers_version_between_the_steps_of_a_save(desk: Mounted, aside: str) -> None:
    """If a coworker's version arrives between the steps of a save, both are kept."""
    desk.allow(SAID)
    path = desk.root / "notes.txt"
    path.read_bytes()
    path.rename(desk.root / aside)
    desk.zone.write("notes.txt", b"Bob's version\n")
    eventually(lambda: (desk.root / aside).stat().st_size == 14, what="it is heard of")
    path.write_bytes(b"Alice's version\n")
    desk.sync()
    assert desk.zone.read("notes.txt") == b"Bob's version\n"
    (copy,) = copies(desk)
    assert desk.zone.read(copy) == b"Alice's version\n"


def test_a_conflict_is_settled_by_a_rename(desk: Mounted) -> None:
    """An edit leaves the copy listed; a rename, even over the original, ends the conflict."""
    collide(desk)
    (copy,) = copies(desk)
    (desk.root / "save.tmp").write_bytes(b"edited\n")
    (desk.root / "save.tmp").rename(desk.root / copy)
    desk.sync()
    (told,) = desk.conflicts()
    assert told["path"].endswith(copy)
    (desk.root / copy).rename(desk.root / "notes.txt")
    desk.sync()
    assert desk.conflicts() == []
    assert desk.zone.read("notes.txt") == b"edited\n"
    assert copies(desk) == []


@pytest.mark.mount("settle=60", "refresh=60")
@pytest.mark.parametrize("new", ["renamed.txt", "docs/notes.txt"])
def test_a_coworkers_rename_of_a_file_that_waits(desk: Mounted, new: str) -> None:
    """If a coworker renames or moves an edited file, the version is added at the new place."""
    before = desk.zone.entry_id("notes.txt")
    (desk.root / "notes.txt").read_bytes()
    (desk.root / "notes.txt").write_bytes(b"edited\n")
    desk.zone.move("notes.txt", new)
    desk.sync()
    assert desk.zone.entry_id(new) == before
    assert desk.zone.read(new) == b"edited\n"
    assert desk.zone.find("notes.txt") is None
    eventually((desk.root / new).exists, what="it shows under its new name")
    assert (desk.root / new).read_bytes() == b"edited\n"
    eventually(lambda: not (desk.root / "notes.txt").exists(), what="the former name goes")


@pytest.mark.mount("settle=0", "refresh=600")
def test_a_removed_folder_with_new_entries(desk: Mounted) -> None:
    """New entries are not removed silently: the folder stays and is shown again, without an
    error."""
    desk.allow("has new entries on the service")
    desk.zone.make_folder("box")
    assert desk.names(desk.root / "box") == []
    desk.zone.write("box/x.txt", b"by bob\n")
    (desk.root / "box").rmdir()
    desk.sync()
    assert desk.zone.read("box/x.txt") == b"by bob\n"
    eventually((desk.root / "box/x.txt").exists, what="it shows again")
    assert desk.status()["outbox"]["failed"] == 0


@pytest.mark.mount("settle=60", "refresh=60")
def test_names_that_a_coworker_exchanged_while_both_wait(desk: Mounted) -> None:
    """Each version is added to the edited file, under its present name."""
    for name in ("one.txt", "two.txt"):
        desk.zone.write(name, name.encode())
    ids = {name: desk.zone.entry_id(name) for name in ("one.txt", "two.txt")}
    for name in ids:
        (desk.root / name).read_bytes()
        (desk.root / name).write_bytes(b"edited " + name.encode())
    desk.zone.move("one.txt", "three.txt")
    desk.zone.move("two.txt", "one.txt")
    desk.zone.move("three.txt", "two.txt")
    desk.sync()
    assert desk.zone.read_id(ids["one.txt"]) == b"edited one.txt"
    assert desk.zone.read_id(ids["two.txt"]) == b"edited two.txt"
    assert desk.zone.entry_id("two.txt") == ids["one.txt"]
    assert not [name for name in desk.zone.listing() if "conflict" in name]
    eventually(lambda: (desk.root / "two.txt").read_bytes() == b"edited one.txt", what="it shows")


def test_a_name_that_a_coworker_gave_to_another_file_is_respected(desk: Mounted) -> None:
    """A coworker renames another file to the name of a pending new file: both are kept, once.

    The same holds while a program has the other file open for writing.
    """
    desk.allow("a conflict copy")
    with (desk.root / "notes.txt").open("r+b", buffering=0) as other:
        other.write(b"edited")
        with (desk.root / "plan.txt").open("wb", buffering=0) as plan:
            plan.write(b"my plan")
            desk.zone.move("notes.txt", "plan.txt")
        theirs = desk.zone.entry_id("plan.txt")
        eventually(lambda: len(copies_of(desk, "plan")) == 1, what="the copy is sent")
        assert len(desk.zone.versions("plan.txt")) == 1
    desk.sync()
    assert desk.zone.entry_id("plan.txt") == theirs
    assert desk.zone.read("plan.txt").startswith(b"edited")
    (copy,) = copies_of(desk, "plan")
    assert desk.zone.read(copy) == b"my plan"
    assert len(desk.zone.versions(copy)) == 1


def test_a_folder_that_a_coworker_made_again_is_one_folder(desk: Mounted) -> None:
    """A coworker deletes and recreates a folder in which local files are pending.

    In the end there is one folder with the files of both.
    """
    desk.allow("deleted on the service", "taken in the united folder", "a conflict copy")
    (desk.root / "docs/mine.txt").write_bytes(b"1")
    desk.sync()
    desk.deployment.fault(status=503, method="POST", path="^/api/")
    (desk.root / "docs/mine.txt").write_bytes(b"2")
    (desk.root / "docs/new.txt").write_bytes(b"3")
    with desk.paused():  # nothing is sent before all of that is done
        desk.zone.delete("docs")
        desk.deployment.heal()
        desk.zone.make_folder("docs")
        desk.zone.write("docs/theirs.txt", b"4")
    eventually(lambda: (desk.root / "docs/theirs.txt").exists(), what="one folder")
    desk.sync()
    wanted = {"docs/mine.txt": b"2", "docs/new.txt": b"3", "docs/theirs.txt": b"4"}
    found = desk.zone.tree()
    assert {path: found.get(path) for path in wanted} == wanted
    assert [path for path in found if path.startswith("docs") and path not in wanted] == ["docs"]
    for path, content in wanted.items():
        assert (desk.root / path).read_bytes() == content


def copies_of(desk: Mounted, stem: str) -> list[str]:
    """Return the names of conflict copies of a file on the service."""
    return [name for name in desk.zone.listing() if name.startswith(f"{stem} (conflict, ")]


@pytest.mark.parametrize("is_edited", [False, True], ids=["moved", "moved and edited"])
@pytest.mark.parametrize("is_removed", [False, True], ids=["renamed here", "removed here"])
def test_a_coworker_gives_the_name_of_a_new_file_to_an_entry_that_leaves(
    desk: Mounted, is_removed: bool, is_edited: bool
) -> None:
    """The new file does not become a version of that entry."""
    desk.allow(SAID, "a newer version")
    notes, before = desk.root / "notes.txt", desk.zone.read("notes.txt")
    desk.command("pause")
    if is_removed:
        notes.unlink()
    else:
        notes.rename(desk.root / "mine.txt")
    (desk.root / "docs" / "new.txt").write_bytes(b"new")
    desk.zone.move("notes.txt", "docs/new.txt")
    if is_edited:
        desk.zone.write("docs/new.txt", b"Bob's version\n")
    for method in ("PUT", "DELETE"):  # the new file is sent first
        desk.deployment.fault(latency_ms=5000, method=method)
    desk.command("resume")
    desk.command("sync", timeout=60)
    desk.command("sync", timeout=60)
    tree = desk.zone.tree()
    (place,) = [path for path, data in tree.items() if data == b"new"]
    assert place.startswith("docs/new") and len(desk.zone.versions(place)) == 1
    if is_edited:
        assert b"Bob's version\n" in tree.values()
    elif not is_removed:
        assert tree["mine.txt"] == before


@pytest.mark.mount("refresh=1")
def test_an_append_after_a_listing_has_shown_that_the_file_is_gone(desk: Mounted) -> None:
    """The file is created again, with the appended bytes only, and this is reported."""
    path = desk.root / "notes.txt"
    with path.open("ab", buffering=0) as log:
        desk.zone.delete("notes.txt")
        eventually(lambda: not path.exists(), what="it is gone here")
        assert desk.conflicts() == []
        log.write(b"one\n")
        log.write(b"two\n")
        assert path.read_bytes() == b"one\ntwo\n"
    desk.sync()
    assert desk.zone.read("notes.txt") == b"one\ntwo\n"
    assert [conflict["path"] for conflict in desk.conflicts()] == [f"{desk.root.name}/notes.txt"]


def test_programs_append_at_once_to_a_file_that_a_coworker_has_deleted(desk: Mounted) -> None:
    """The file is created again, with the bytes of each program, and this is reported."""
    assert isinstance(desk, VirtualMount)
    path = desk.root / "big.bin"
    logs = [desk.system.open(path, os.O_WRONLY | os.O_APPEND) for _ in range(2)]
    desk.zone.delete("big.bin")

    async def append() -> None:
        async with trio.open_nursery() as nursery:
            for log in logs:
                nursery.start_soon(desk.client.kernel.write, log, b"line\n")

    desk.call(append)
    for log in logs:
        desk.system.close(log)
    desk.sync()
    assert desk.zone.read("big.bin") == b"line\nline\n"
    assert [conflict["path"] for conflict in desk.conflicts()] == [str(path)]


@pytest.mark.parametrize("how", ["read and write", "read before", "write"])
@pytest.mark.mount("refresh=0.2")
def test_a_write_to_an_open_file_that_a_coworker_has_deleted(desk: Mounted, how: str) -> None:
    """The write and the close fail with ESTALE: the bytes that it would change are gone."""
    system, path = desk.system, desk.root / "notes.txt"
    before = desk.zone.read("notes.txt")
    file = system.open(path, os.O_WRONLY if how == "write" else os.O_RDWR)
    if how == "read before":
        assert system.pread(file, 100, 0) == before
    desk.zone.delete("notes.txt")
    eventually(lambda: not path.exists(), what="it is gone here")
    with pytest.raises(OSError, check=lambda wrong: wrong.errno == errno.ESTALE):
        system.pwrite(file, b"ALICE", 0)
    with pytest.raises(OSError, check=lambda wrong: wrong.errno == errno.ESTALE):
        system.ftruncate(file, 5)
    if how == "read before":
        assert system.pread(file, 100, 0) == before
    with pytest.raises(OSError, check=lambda wrong: wrong.errno == errno.ESTALE):
        system.close(file)
    desk.sync()
    assert "notes.txt" not in desk.zone.listing()
    assert desk.conflicts() == []


@pytest.mark.parametrize("how", ["truncated", "written"])
@pytest.mark.mount("refresh=0.2")
def test_a_file_that_a_coworker_deletes_after_the_first_write(desk: Mounted, how: str) -> None:
    """The edit continues, and becomes a new file, which is reported."""
    desk.allow("deleted on the service while edited")
    path, kept = desk.root / "notes.txt", desk.zone.read("notes.txt")[5:]
    with path.open("wb" if how == "truncated" else "r+b", buffering=0) as file:
        if how == "written":
            file.write(b"ALICE")
        desk.zone.delete("notes.txt")
        desk.zone.write("later.txt", b"")
        eventually(lambda: "later.txt" in desk.names(desk.root), what="the deletion is listed")
        file.write(b" was here\n")
    desk.sync()
    expected = b" was here\n" if how == "truncated" else b"ALICE was here\n" + kept[10:]
    assert desk.zone.read("notes.txt") == path.read_bytes() == expected
    assert [conflict["path"] for conflict in desk.conflicts()] == [f"{desk.root.name}/notes.txt"]


@pytest.mark.mount("refresh=600")
def test_a_write_to_a_file_that_a_coworker_has_saved_and_moved(desk: Mounted) -> None:
    """The write fails with ESTALE, as after a save alone, and so does the close."""
    file = (desk.root / "notes.txt").open("ab", buffering=0)
    desk.zone.write("notes.txt", b"Bob's version\n")
    desk.zone.move("notes.txt", "docs/notes.txt")
    with pytest.raises(OSError, check=lambda wrong: wrong.errno == errno.ESTALE):
        file.write(b"Alice's version\n")
    with pytest.raises(OSError, check=lambda wrong: wrong.errno == errno.ESTALE):
        file.close()


@pytest.mark.parametrize("name", ["bob", "alice"])
@pytest.mark.mount("settle=0", "refresh=60")
def test_a_rename_of_a_file_with_a_version_of_equal_size_that_was_not_listed(
    desk: Mounted, name: str
) -> None:
    """An open file keeps its version, and the next open gets the new version with its attributes.

    The other machine may be the same user's.
    """
    desk.allow(SAID)
    path, new = desk.root / "notes.txt", desk.root / "renamed.txt"
    before, mtime_ns = path.read_bytes(), path.stat().st_mtime_ns
    theirs = before.upper()
    with path.open("r+b", buffering=0) as file:
        assert file.read(4) == before[:4]
        desk.deployment.person(name).zone(desk.root.name).write("notes.txt", theirs)
        path.rename(new)
        desk.sync()
        file.write(b"ALICE")
    eventually(lambda: new.read_bytes() == theirs, what="the new version shows")
    desk.sync()
    assert desk.zone.read("renamed.txt") == theirs
    assert new.stat().st_mtime_ns > mtime_ns
    assert desk.xattr(new, "user.zonedrive.modified_by") == f"{name}@acme.example"
    (copy,) = (name for name in desk.zone.listing() if "conflict" in name)
    assert desk.zone.read(copy) == before[:4] + b"ALICE" + before[9:]


@pytest.mark.parametrize("name", ["bob", "alice"])
@pytest.mark.mount("settle=0", "refresh=60")
def test_a_reader_of_a_renamed_file_gets_no_parts_of_two_versions(desk: Mounted, name: str) -> None:
    """A part that is not on this machine fails with ESTALE."""
    first, second = b"1" * (12 << 20), b"2" * (12 << 20)
    desk.zone.write("large.bin", first)
    with (desk.root / "large.bin").open("rb", buffering=0) as file:
        assert file.read(4) == first[:4]
        desk.deployment.person(name).zone(desk.root.name).write("large.bin", second)
        (desk.root / "large.bin").rename(desk.root / "renamed.bin")
        desk.sync()
        file.seek(len(first) - 4)
        with pytest.raises(OSError, check=lambda wrong: wrong.errno == errno.ESTALE):
            file.read(4)
    assert (desk.root / "renamed.bin").read_bytes() == second


def test_a_reader_of_a_deleted_file_gets_no_other_error(desk: Mounted) -> None:
    """A part that is not on this machine fails with ESTALE: read(2) never says ENOENT."""
    first = b"1" * (12 << 20)
    desk.zone.write("large.bin", first)
    with (desk.root / "large.bin").open("rb", buffering=0) as file:
        assert file.read(4) == first[:4]
        desk.zone.delete("large.bin")
        file.seek(len(first) - 4)
        with pytest.raises(OSError, check=lambda wrong: wrong.errno == errno.ESTALE):
            file.read(4)


@pytest.mark.mount("refresh=0.2")
@pytest.mark.parametrize("is_read", [False, True], ids=["append", "read and write"])
def test_a_program_writes_to_an_open_file_after_a_coworkers_move(
    desk: Mounted, is_read: bool
) -> None:
    """The first write follows the listing without the file, and goes to the file's new place."""
    before = (desk.root / "notes.txt").read_bytes()
    with (desk.root / "notes.txt").open("r+b" if is_read else "ab", buffering=0) as file:
        if is_read:
            assert file.read() == before
        desk.zone.move("notes.txt", "docs/moved.txt")
        eventually(lambda: "notes.txt" not in desk.names(desk.root), what="the move shows")
        file.write(b"more\n")
    desk.sync()
    assert "notes.txt" not in desk.zone.listing()
    assert desk.zone.read("docs/moved.txt") == before + b"more\n"
    assert (desk.root / "docs/moved.txt").read_bytes() == before + b"more\n"


@pytest.mark.parametrize("what", ["docs/report.md", "docs"])
@pytest.mark.mount("settle=60", "refresh=600")
def test_a_version_that_was_not_seen_is_not_moved_to_the_trash(desk: Mounted, what: str) -> None:
    """An unsent edit finds the coworker's version, and the entry stays."""
    desk.allow(SAID)
    trash = desk.path / f".Trash-{os.getuid()}/files"
    path = desk.root / "docs/report.md"
    path.write_bytes(b"Alice's version\n")
    desk.zone.write("docs/report.md", b"Bob's version\n")
    with pytest.raises(OSError, check=lambda wrong: wrong.errno == errno.EBUSY):
        (desk.root / what).rename(trash / "gone")
    desk.sync()
    assert desk.zone.read("docs/report.md") == b"Bob's version\n"
    (conflict,) = desk.conflicts()
    assert (desk.path / conflict["path"]).read_bytes() == b"Alice's version\n"
    (desk.root / what).rename(trash / "gone")  # both versions can be seen now
    desk.sync()
    assert desk.zone.find(what) is None


@pytest.mark.parametrize(
    "save",
    [
        pytest.param("fsync", marks=pytest.mark.mount("fsync=service")),
        pytest.param("close", marks=pytest.mark.mount("close=wait")),
    ],
)
def test_a_program_that_writes_on_after_a_conflict_keeps_its_bytes(
    desk: Mounted, save: str
) -> None:
    """Saves that wait for the upload become one conflict copy without a byte of the coworker."""
    desk.allow(SAID)
    path = desk.root / "notes.txt"
    before, theirs = path.read_bytes(), b"Bob's version, which is much longer than the other one\n"
    first, second = b"ALICE" + before[5:], b"ALICE" + before[5:6] + b"MORE" + before[10:]

    def copy() -> str:
        (name,) = [name for name in desk.zone.listing() if name.startswith("notes (")]
        return name

    with path.open("r+b", buffering=0) as file:
        file.write(b"ALICE")
        desk.zone.write("notes.txt", theirs)
        if save == "fsync":
            desk.system.fsync(file.fileno())
        else:
            desk.system.close(desk.system.dup(file.fileno()))
        assert desk.zone.read(copy()) == first
        file.seek(6)
        file.write(b"MORE")
        file.seek(0)
        assert file.read() == second
    desk.sync()
    assert desk.zone.read(copy()) == second
    assert len(desk.zone.versions(copy())) == 2
    assert desk.zone.read("notes.txt") == theirs
