"""Desktop trash: files that a file manager moves to `.Trash-UID` are in the service's trash."""

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.harness import world
from tests.harness.machine import Mounted
from tests.harness.waiting import eventually

NAME = f".Trash-{os.getuid()}"


def files(mounted: Mounted) -> Path:
    return mounted.path / NAME / "files"


def trash(mounted: Mounted, path: str, name: str = "") -> Path:
    """Trash a file as file managers do; return its new path."""
    to = files(mounted) / (name or Path(path).name)
    (mounted.root / path).rename(to)
    return to


def deleted(mounted: Mounted) -> dict[str, str]:
    """Return the ids in the service's trash of this test's zone, by name."""
    said = mounted.machine.done("trash", "--zone", mounted.root.name, "--json")
    entries: list[dict[str, str]] = json.loads(said)
    return {each["name"]: each["id"] for each in entries}


def refused(number: int, act: Callable[[], object], *, of_root: bool = False) -> None:
    """Check that the operation fails; `of_root`: other users get the error of the folder's mode
    first."""
    with pytest.raises(OSError) as caught:  # check= is younger than Debian 13's pytest
        act()
    allowed = {number, errno.EACCES} if of_root and os.getuid() else {number}
    assert caught.value.errno in allowed


def test_the_trash_folder_is_in_no_listing(mounted: Mounted) -> None:
    """The folder exists for file managers that look it up, but appears in no listing."""
    found = (mounted.path / NAME).stat()
    assert (found.st_mode & 0o7777, found.st_uid) == (0o700, os.getuid())
    assert {"files", "info"} <= set(os.listdir(mounted.path / NAME))
    assert NAME not in os.listdir(mounted.path)
    assert not (mounted.path / f".Trash-{os.getuid() + 1}").exists()
    assert not (mounted.root / NAME).exists()
    refused(errno.EROFS, lambda: (mounted.path / NAME).rmdir(), of_root=True)


def test_a_trashed_file_is_in_the_trash_of_the_service_and_comes_back(mounted: Mounted) -> None:
    """A trashed and restored file keeps its id and its history."""
    before = mounted.zone.entry_id("notes.txt")
    there = trash(mounted, "notes.txt")
    assert not (mounted.root / "notes.txt").exists()
    assert os.listdir(there.parent) == ["notes.txt"]
    assert there.stat().st_size == len(b"first line\nsecond line\n")
    eventually(lambda: mounted.zone.find("notes.txt") is None, what="the service deletes it")
    assert set(deleted(mounted)) == {"notes.txt"}
    there.rename(mounted.root / "notes.txt")
    assert (mounted.root / "notes.txt").read_bytes() == b"first line\nsecond line\n"
    assert mounted.zone.entry_id("notes.txt") == before
    assert (deleted(mounted), os.listdir(files(mounted))) == ({}, [])


def test_a_trashed_file_has_the_attributes_of_the_file(mounted: Mounted) -> None:
    """The bytes are only on the service."""
    path = mounted.root / "notes.txt"
    before = {name: os.getxattr(path, name) for name in os.listxattr(path)}
    there = trash(mounted, "notes.txt")
    eventually(lambda: mounted.zone.find("notes.txt") is None, what="the service deletes it")
    mounted.sync()
    after = {name: os.getxattr(there, name) for name in os.listxattr(there)}
    assert after == before | {"user.zonedrive.state": b"remote"}


def test_a_trashed_folder_goes_and_comes_back_as_a_whole(mounted: Mounted) -> None:
    """A trashed folder is one entry with all its content, and can be restored elsewhere."""
    before = mounted.zone.tree("docs")
    listed = mounted.zone.entry_id("docs/2026/q1.csv")
    there = trash(mounted, "docs", "docs.2")
    assert not (mounted.root / "docs").exists()
    eventually(lambda: mounted.zone.find("docs") is None, what="the service deletes it")
    assert set(deleted(mounted)) == {"docs"}
    (mounted.root / "archive").mkdir()
    mounted.sync()
    there.rename(mounted.root / "archive" / "papers")
    assert (mounted.root / "archive/papers/2026/q1.csv").read_bytes() == before["docs/2026/q1.csv"]
    mounted.sync()
    assert mounted.zone.entry_id("archive/papers/2026/q1.csv") == listed
    assert mounted.status()["outbox"]["failed"] == 0


def test_a_restored_entry_is_not_in_the_trash_folder(mounted: Mounted) -> None:
    """After `zonedrive trash restore`, the folder does not show the entry any more."""
    trash(mounted, "notes.txt")
    mounted.sync()
    mounted.machine.done("restore", deleted(mounted)["notes.txt"])
    assert (mounted.root / "notes.txt").exists()
    assert os.listdir(files(mounted)) == []


def test_emptying_the_trash_folder_purges_nothing(mounted: Mounted) -> None:
    """Programs can remove entries of the trash folder, also through a folder of their own; the
    service keeps them."""
    trash(mounted, "notes.txt").unlink()
    trash(mounted, "docs").rename(mounted.path / NAME / "expunged" / "123")
    (mounted.path / NAME / "expunged" / "123").rmdir()
    assert os.listdir(files(mounted)) == []
    mounted.sync()
    assert set(deleted(mounted)) == {"notes.txt", "docs"}


def test_pending_content_is_sent_before_the_deletion(mounted: Mounted) -> None:
    """A file that was just saved is in the trash with its new content."""
    (mounted.root / "notes.txt").write_bytes(b"the last word\n")
    (mounted.root / "docs" / "new.txt").write_bytes(b"just made\n")
    for name in ("notes.txt", "docs"):
        trash(mounted, name)
    mounted.sync()
    assert set(deleted(mounted)) == {"notes.txt", "docs"}
    mounted.machine.done("restore", *deleted(mounted).values())
    assert mounted.zone.read("notes.txt") == b"the last word\n"
    assert mounted.zone.read("docs/new.txt") == b"just made\n"


def test_a_local_file_cannot_be_trashed(mounted: Mounted) -> None:
    """A file that is not on the service is refused and stays, because it could not be restored."""
    (mounted.root / "notes.txt~").write_bytes(b"only here\n")
    (mounted.root / "docs" / ".~lock.report.md#").write_bytes(b"only here\n")
    refused(errno.EXDEV, lambda: trash(mounted, "notes.txt~"))  # programs offer to delete it
    refused(errno.EXDEV, lambda: trash(mounted, "docs"))
    with (mounted.root / "big.bin").open("ab"):
        refused(errno.EBUSY, lambda: trash(mounted, "big.bin"))
    with mounted.deployment.faulty(down=True):
        (mounted.root / "notes.txt").write_bytes(b"written offline\n")
        refused(errno.ENETUNREACH, lambda: trash(mounted, "notes.txt"))
        assert (mounted.root / "notes.txt").read_bytes() == b"written offline\n"
    refused(errno.EPERM, lambda: mounted.root.rename(files(mounted) / "a zone"), of_root=True)
    assert os.listdir(files(mounted)) == []


def test_local_only_files_can_be_removed_permanently(mounted: Mounted) -> None:
    """Programs get the error for local-only files, and offer to remove the file permanently."""
    mounted.allow("refused")
    path = mounted.root / "docs" / "refused.txt"
    with mounted.deployment.faulty(status=403, method="POST", path="^/api/zones/"):
        path.write_bytes(b"only here\n")
        eventually(lambda: mounted.status()["outbox"]["failed"] == 1, what="it is refused")
        refused(errno.EXDEV, lambda: trash(mounted, "docs/refused.txt"))
        refused(errno.EXDEV, lambda: trash(mounted, "docs"))
        assert path.read_bytes() == b"only here\n"
    trash(mounted, "docs/refused.txt")  # it is tried again before
    mounted.sync()
    assert set(deleted(mounted)) == {"refused.txt"}


def test_a_deletion_waits_offline(mounted: Mounted) -> None:
    """Offline, entries can be trashed; the change is sent later, also after a crash."""
    os.listdir(mounted.root / "docs")
    with mounted.deployment.faulty(down=True):
        trash(mounted, "notes.txt")
        there = trash(mounted, "docs")
        refused(errno.ENETUNREACH, lambda: there.rename(mounted.root / "docs"))
        mounted.kill()
        mounted.mount()
        assert not {"notes.txt", "docs"} & set(os.listdir(mounted.root))
    mounted.sync()
    assert set(deleted(mounted)) == {"notes.txt", "docs"}
    assert not {"notes.txt", "docs"} & set(os.listdir(mounted.root))


def test_a_new_file_in_place_of_a_trashed_one(mounted: Mounted) -> None:
    """A new file with the name of a trashed one is separate; the trashed file is restored
    unchanged."""
    path, other = mounted.root / "notes.txt", mounted.root / "docs" / "old.txt"
    before, content = mounted.zone.entry_id("notes.txt"), path.read_bytes()
    with path.open("rb"):  # also if a program still has it open
        there = trash(mounted, "notes.txt")
        path.write_bytes(b"anew\n")
        mounted.sync()
    assert set(deleted(mounted)) == {"notes.txt"}
    assert mounted.zone.entry_id("notes.txt") != before
    assert len(mounted.zone.versions("notes.txt")) == 1
    refused(errno.EEXIST, lambda: there.rename(other))
    path.rename(mounted.root / "new.txt")
    there.rename(other)
    mounted.sync()
    assert (other.read_bytes(), mounted.zone.entry_id("docs/old.txt")) == (content, before)
    assert mounted.zone.read("new.txt") == b"anew\n"


def test_a_restore_does_not_replace_a_file(mounted: Mounted) -> None:
    """While its former name is in use, also by a pending file, the entry stays in the trash."""
    there, folder = trash(mounted, "notes.txt"), trash(mounted, "docs")
    mounted.sync()
    with mounted.deployment.faulty(status=503, error="NOT_AVAILABLE", method="POST", path="/files"):
        for name in ("notes.txt", "docs"):
            (mounted.root / name).write_bytes(b"not sent yet\n")
        refused(errno.EEXIST, lambda: there.rename(mounted.root / "other.txt"))
        refused(errno.EEXIST, lambda: folder.rename(mounted.root / "others"))
        assert set(os.listdir(files(mounted))) == {"notes.txt", "docs"}
    mounted.sync()
    assert (mounted.root / "notes.txt").read_bytes() == b"not sent yet\n"
    assert mounted.status()["outbox"]["conflicts"] == 0
    assert set(deleted(mounted)) == {"notes.txt", "docs"}


def test_a_coworkers_new_file_keeps_the_folder(mounted: Mounted) -> None:
    """A folder with a coworker's new file comes back with all its content."""
    mounted.allow("has new entries on the service")
    for theirs in ("docs/theirs.txt", "docs/2026/theirs.txt", "docs/2026/q1.csv"):
        os.listdir(mounted.root / "docs/2026")
        with mounted.deployment.faulty(status=503, error="NOT_AVAILABLE", method="DELETE"):
            trash(mounted, "docs")
            mounted.zone.write(theirs, b"new\n")
        mounted.sync()
        there = mounted.root / theirs
        eventually(there.exists, what="it is back")
        assert there.read_bytes() == b"new\n"
        assert (deleted(mounted), os.listdir(files(mounted))) == ({}, [])


def test_nothing_can_be_written_in_a_trashed_folder(mounted: Mounted) -> None:
    """A shell that is still in a trashed folder gets an error when it writes, so that no data
    are lost."""
    inner = os.open(mounted.root / "docs/2026", os.O_RDONLY)
    known = os.open("q1.csv", os.O_RDONLY, dir_fd=inner)
    try:
        with mounted.deployment.faulty(status=503, error="NOT_AVAILABLE", method="DELETE"):
            trash(mounted, "docs")
            for call in (
                lambda: os.open("new", os.O_CREAT | os.O_WRONLY, dir_fd=inner),
                lambda: os.open("q1.csv", os.O_WRONLY, dir_fd=inner),
                lambda: os.mkdir("new", dir_fd=inner),
                lambda: os.rename(mounted.root / "notes.txt", "notes.txt", dst_dir_fd=inner),
                lambda: os.truncate(f"/proc/self/fd/{known}", 0),
            ):
                refused(errno.ENOENT, call)
            assert os.read(known, 100) == world.SEED["docs/2026/q1.csv"]
        mounted.sync()
    finally:
        os.close(known)
        os.close(inner)
    assert (mounted.root / "notes.txt").read_bytes() == world.SEED["notes.txt"]
    assert not {path for path in mounted.zone.tree() if path.startswith("docs")}


def test_notes_are_short_files_in_memory(mounted: Mounted) -> None:
    """Programs can write short files into `info`, also through a temporary file."""
    info = mounted.path / NAME / "info"
    temporary = info / ".notes.trashinfo.X1"
    temporary.write_bytes(b"[Trash Info]\nPath=Zone/notes.txt\n")
    temporary.rename(info / "notes.trashinfo")
    assert (info / "notes.trashinfo").read_bytes() == b"[Trash Info]\nPath=Zone/notes.txt\n"
    refused(errno.EEXIST, lambda: os.open(info / "notes.trashinfo", os.O_CREAT | os.O_EXCL))
    refused(errno.EFBIG, lambda: (info / "big").write_bytes(bytes(1 << 17)))
    refused(errno.EXDEV, lambda: (info / "notes.trashinfo").rename(files(mounted) / "x"))
    refused(errno.EROFS, lambda: (info / "notes.trashinfo").rename(mounted.root / "x"))
    (info / "notes.trashinfo").unlink()
    assert "notes.trashinfo" not in os.listdir(info)


@pytest.mark.mount(profile="published")
def test_without_deletion_there_is_no_trash_folder(mounted: Mounted) -> None:
    """If the profile cannot delete, programs get an error at once, and the file stays."""
    assert not (mounted.path / NAME).exists()
    refused(errno.EPERM, lambda: (mounted.path / NAME).mkdir(), of_root=True)
    assert (mounted.root / "notes.txt").read_bytes() == b"first line\nsecond line\n"
