"""Desktop trash: files that a file manager moves to `.Trash-UID` are in the service's trash."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.harness.machine import Mounted
from tests.harness.waiting import eventually

NAME = f".Trash-{os.getuid()}"


def files(desk: Mounted) -> Path:
    return desk.path / NAME / "files"


def trash(desk: Mounted, path: str, name: str = "") -> Path:
    """Trash a file as file managers do; return its new path."""
    to = files(desk) / (name or Path(path).name)
    (desk.root / path).rename(to)
    return to


def deleted(desk: Mounted) -> dict[str, str]:
    """Return the ids in the service's trash of this test's zone, by name."""
    return {each["name"]: each["id"] for each in desk.command("trash")["entries"]}


def refused(number: int, act: Callable[[], object]) -> None:
    """Check that the operation fails with this errno."""
    with pytest.raises(OSError) as caught:  # check= is younger than Debian 13's pytest
        act()
    assert caught.value.errno == number


def test_the_trash_folder_is_in_no_listing(desk: Mounted) -> None:
    """The folder exists for file managers that look it up, but appears in no listing."""
    found = (desk.path / NAME).stat()
    assert (found.st_mode & 0o7777, found.st_uid) == (0o700, os.getuid())
    assert {"files", "info"} <= set(desk.names(desk.path / NAME))
    assert NAME not in desk.names(desk.path)
    assert not (desk.path / f".Trash-{os.getuid() + 1}").exists()
    assert not (desk.root / NAME).exists()
    refused(errno.EROFS, lambda: (desk.path / NAME).rmdir())


def test_a_trashed_file_is_in_the_trash_of_the_service_and_comes_back(desk: Mounted) -> None:
    """A trashed and restored file keeps its id and its history."""
    before = desk.zone.entry_id("notes.txt")
    there = trash(desk, "notes.txt")
    assert not (desk.root / "notes.txt").exists()
    assert desk.names(there.parent) == ["notes.txt"]
    assert there.stat().st_size == len(b"first line\nsecond line\n")
    eventually(lambda: desk.zone.find("notes.txt") is None, what="the service deletes it")
    assert set(deleted(desk)) == {"notes.txt"}
    there.rename(desk.root / "notes.txt")
    assert (desk.root / "notes.txt").read_bytes() == b"first line\nsecond line\n"
    assert desk.zone.entry_id("notes.txt") == before
    assert (deleted(desk), desk.names(files(desk))) == ({}, [])


def test_a_trashed_file_has_the_attributes_of_the_file(desk: Mounted) -> None:
    """The bytes are only on the service."""
    path = desk.root / "notes.txt"
    names = [f"user.zonedrive.{name}" for name in ("id", "zone", "modified_by", "type", "sync")]
    before = [desk.xattr(path, name) for name in names]
    there = trash(desk, "notes.txt")
    eventually(lambda: desk.zone.find("notes.txt") is None, what="the service deletes it")
    desk.sync()
    assert [desk.xattr(there, name) for name in names] == before
    assert desk.xattr(there, "user.zonedrive.state") == "remote"


def test_a_trashed_folder_goes_and_comes_back_as_a_whole(desk: Mounted) -> None:
    """A trashed folder is one entry with all its content, and can be restored elsewhere."""
    before = desk.zone.tree("docs")
    listed = desk.zone.entry_id("docs/2026/q1.csv")
    there = trash(desk, "docs", "docs.2")
    assert not (desk.root / "docs").exists()
    eventually(lambda: desk.zone.find("docs") is None, what="the service deletes it")
    assert set(deleted(desk)) == {"docs"}
    (desk.root / "archive").mkdir()
    desk.sync()
    there.rename(desk.root / "archive" / "papers")
    assert (desk.root / "archive/papers/2026/q1.csv").read_bytes() == before["docs/2026/q1.csv"]
    desk.sync()
    assert desk.zone.entry_id("archive/papers/2026/q1.csv") == listed
    assert desk.status()["outbox"]["failed"] == 0


def test_a_restored_entry_is_not_in_the_trash_folder(desk: Mounted) -> None:
    """After `zonedrive trash restore`, the folder does not show the entry any more."""
    trash(desk, "notes.txt")
    desk.sync()
    desk.command("restore", entries=[deleted(desk)["notes.txt"]])
    assert (desk.root / "notes.txt").exists()
    assert desk.names(files(desk)) == []


def test_emptying_the_trash_folder_purges_nothing(desk: Mounted) -> None:
    """Programs can remove entries of the trash folder, also through a folder of their own; the
    service keeps them."""
    trash(desk, "notes.txt").unlink()
    trash(desk, "docs").rename(desk.path / NAME / "expunged" / "123")
    (desk.path / NAME / "expunged" / "123").rmdir()
    assert desk.names(files(desk)) == []
    desk.sync()
    assert set(deleted(desk)) == {"notes.txt", "docs"}


def test_pending_content_is_sent_before_the_deletion(desk: Mounted) -> None:
    """A file that was just saved is in the trash with its new content."""
    (desk.root / "notes.txt").write_bytes(b"the last word\n")
    (desk.root / "docs" / "new.txt").write_bytes(b"just made\n")
    for name in ("notes.txt", "docs"):
        trash(desk, name)
    desk.sync()
    assert set(deleted(desk)) == {"notes.txt", "docs"}
    desk.command("restore", entries=[*deleted(desk).values()])
    assert desk.zone.read("notes.txt") == b"the last word\n"
    assert desk.zone.read("docs/new.txt") == b"just made\n"


def test_a_local_file_cannot_be_trashed(desk: Mounted) -> None:
    """A file that is not on the service is refused and stays, because it could not be restored."""
    (desk.root / "notes.txt~").write_bytes(b"only here\n")
    (desk.root / "docs" / ".~lock.report.md#").write_bytes(b"only here\n")
    refused(errno.EXDEV, lambda: trash(desk, "notes.txt~"))  # programs offer to delete it
    refused(errno.EXDEV, lambda: trash(desk, "docs"))
    with (desk.root / "big.bin").open("ab"):
        refused(errno.EBUSY, lambda: trash(desk, "big.bin"))
    with desk.deployment.faulty(down=True):
        (desk.root / "notes.txt").write_bytes(b"written offline\n")
        refused(errno.ENETUNREACH, lambda: trash(desk, "notes.txt"))
        assert (desk.root / "notes.txt").read_bytes() == b"written offline\n"
    refused(errno.EPERM, lambda: desk.root.rename(files(desk) / "a zone"))
    assert desk.names(files(desk)) == []


def test_local_only_files_can_be_removed_permanently(desk: Mounted) -> None:
    """Programs get the error for local-only files, and offer to remove the file permanently."""
    desk.allow("refused")
    path = desk.root / "docs" / "refused.txt"
    with desk.deployment.faulty(status=403, method="POST", path="^/api/zones/"):
        path.write_bytes(b"only here\n")
        eventually(lambda: desk.status()["outbox"]["failed"] == 1, what="it is refused")
        refused(errno.EXDEV, lambda: trash(desk, "docs/refused.txt"))
        refused(errno.EXDEV, lambda: trash(desk, "docs"))
        assert path.read_bytes() == b"only here\n"
    trash(desk, "docs/refused.txt")  # it is tried again before
    desk.sync()
    assert set(deleted(desk)) == {"refused.txt"}


def test_a_deletion_waits_offline(desk: Mounted) -> None:
    """Offline, entries can be trashed; the change is sent later, also after a crash."""
    desk.names(desk.root / "docs")
    with desk.deployment.faulty(down=True):
        trash(desk, "notes.txt")
        there = trash(desk, "docs")
        refused(errno.ENETUNREACH, lambda: there.rename(desk.root / "docs"))
        desk.kill()
        desk.mount()
        assert not {"notes.txt", "docs"} & set(desk.names(desk.root))
    desk.sync()
    assert set(deleted(desk)) == {"notes.txt", "docs"}
    assert not {"notes.txt", "docs"} & set(desk.names(desk.root))


def test_a_new_file_in_place_of_a_trashed_one(desk: Mounted) -> None:
    """A new file with the name of a trashed one is separate; the trashed file is restored
    unchanged."""
    path, other = desk.root / "notes.txt", desk.root / "docs" / "old.txt"
    before, content = desk.zone.entry_id("notes.txt"), path.read_bytes()
    with path.open("rb"):  # also if a program still has it open
        there = trash(desk, "notes.txt")
        path.write_bytes(b"anew\n")
        desk.sync()
    assert set(deleted(desk)) == {"notes.txt"}
    assert desk.zone.entry_id("notes.txt") != before
    assert len(desk.zone.versions("notes.txt")) == 1
    refused(errno.EEXIST, lambda: there.rename(other))
    path.rename(desk.root / "new.txt")
    there.rename(other)
    desk.sync()
    assert (other.read_bytes(), desk.zone.entry_id("docs/old.txt")) == (content, before)
    assert desk.zone.read("new.txt") == b"anew\n"


def test_a_restore_does_not_replace_a_file(desk: Mounted) -> None:
    """While its former name is in use, also by a pending file, the entry stays in the trash."""
    there, folder = trash(desk, "notes.txt"), trash(desk, "docs")
    desk.sync()
    with desk.deployment.faulty(status=503, error="NOT_AVAILABLE", method="POST", path="/files"):
        for name in ("notes.txt", "docs"):
            (desk.root / name).write_bytes(b"not sent yet\n")
        refused(errno.EEXIST, lambda: there.rename(desk.root / "other.txt"))
        refused(errno.EEXIST, lambda: folder.rename(desk.root / "others"))
        assert set(desk.names(files(desk))) == {"notes.txt", "docs"}
    desk.sync()
    assert (desk.root / "notes.txt").read_bytes() == b"not sent yet\n"
    assert desk.status()["outbox"]["conflicts"] == 0
    assert set(deleted(desk)) == {"notes.txt", "docs"}


def test_a_coworkers_new_file_keeps_the_folder(desk: Mounted) -> None:
    """A folder with a coworker's new file comes back with all its content."""
    desk.allow("has new entries on the service")
    for theirs in ("docs/theirs.txt", "docs/2026/theirs.txt", "docs/2026/q1.csv"):
        desk.names(desk.root / "docs/2026")
        with desk.deployment.faulty(status=503, error="NOT_AVAILABLE", method="DELETE"):
            trash(desk, "docs")
            desk.zone.write(theirs, b"new\n")
        desk.sync()
        there = desk.root / theirs
        eventually(there.exists, what="it is back")
        assert there.read_bytes() == b"new\n"
        assert (deleted(desk), desk.names(files(desk))) == ({}, [])


def test_notes_are_short_files_in_memory(desk: Mounted) -> None:
    """Programs can write short files into `info`, also through a temporary file."""
    info = desk.path / NAME / "info"
    temporary = info / ".notes.trashinfo.X1"
    temporary.write_bytes(b"[Trash Info]\nPath=Zone/notes.txt\n")
    temporary.rename(info / "notes.trashinfo")
    assert (info / "notes.trashinfo").read_bytes() == b"[Trash Info]\nPath=Zone/notes.txt\n"
    refused(
        errno.EEXIST, lambda: desk.system.open(info / "notes.trashinfo", os.O_CREAT | os.O_EXCL)
    )
    refused(errno.EFBIG, lambda: (info / "big").write_bytes(bytes(1 << 17)))
    refused(errno.EXDEV, lambda: (info / "notes.trashinfo").rename(files(desk) / "x"))
    refused(errno.EROFS, lambda: (info / "notes.trashinfo").rename(desk.root / "x"))
    (info / "notes.trashinfo").unlink()
    assert "notes.trashinfo" not in desk.names(info)
