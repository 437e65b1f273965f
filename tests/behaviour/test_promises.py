"""Settings and attributes that people and scripts rely on."""

import errno
import os
import subprocess
from pathlib import Path

import pytest

from tests.harness.machine import Mounted
from tests.harness.waiting import eventually


def attribute(path: Path, name: str) -> str:
    return os.getxattr(path, f"user.zonedrive.{name}").decode()


def test_the_extended_attributes_tell_about_an_entry(mounted: Mounted) -> None:
    """getfattr shows id, zone, state, author and type of a file."""
    path = mounted.root / "notes.txt"
    entry = mounted.zone.find("notes.txt")
    assert entry is not None
    assert attribute(path, "id") == entry["id"]
    assert attribute(path, "zone") == entry["zoneId"]
    assert attribute(path, "modified_by") == entry["lastModifiedBy"]
    assert attribute(path, "sync") == entry["synchronizationStatus"]
    assert attribute(path, "state") == "remote"
    path.read_bytes()
    eventually(lambda: attribute(path, "state") == "cached", what="the file is cached")
    assert set(os.listxattr(path)) >= {"user.zonedrive.id", "user.zonedrive.state"}
    with pytest.raises(OSError, match="not supported"):
        os.setxattr(path, "user.mine", b"x")
    with pytest.raises(OSError) as missing:
        os.getxattr(path, "user.mine")
    assert missing.value.errno == errno.ENODATA


def test_the_state_follows_a_file_to_the_service(mounted: Mounted) -> None:
    """The state is pending before the upload, cached after it, and local if the file stays
    local."""
    path = mounted.root / "new.txt"
    with mounted.deployment.faulty(status=503, method="POST", path="^/api/zones/"):
        path.write_bytes(b"new\n")
        assert attribute(path, "state") in ("pending", "uploading")
    mounted.sync()
    assert attribute(path, "state") == "cached"
    backup = mounted.root / "new.txt~"
    backup.write_bytes(b"old\n")
    assert attribute(backup, "state") == "local"
    mounted.sync()
    assert "new.txt~" not in mounted.zone.listing()


@pytest.mark.mount("close=wait")
def test_close_can_wait_for_the_service(mounted: Mounted) -> None:
    """With close=wait a closed file is on the service."""
    (mounted.root / "waited.txt").write_bytes(b"there\n")
    assert mounted.zone.read("waited.txt") == b"there\n"
    with (mounted.root / "waited.txt").open("ab") as file:
        file.write(b"more\n")
    assert mounted.zone.read("waited.txt") == b"there\nmore\n"
    assert len(mounted.zone.versions("waited.txt")) == 2


@pytest.mark.mount("close=wait")
def test_close_fails_with_the_errno_of_the_refusal(mounted: Mounted) -> None:
    """With close=wait close fails with the errno of the refusal, and the file is kept."""
    mounted.allow("refused")
    with mounted.deployment.faulty(status=403, method="POST", path="^/api/zones/"):
        with pytest.raises(PermissionError):
            (mounted.root / "refused.txt").write_bytes(b"mine\n")
        assert (mounted.root / "refused.txt").read_bytes() == b"mine\n"
    mounted.sync()
    assert mounted.zone.read("refused.txt") == b"mine\n"


@pytest.mark.mount("fsync=service")
def test_fsync_can_wait_for_the_service(mounted: Mounted) -> None:
    """With fsync=service the content is on the service after fsync, while the file is still
    open."""
    with (mounted.root / "log.txt").open("wb", buffering=0) as file:
        file.write(b"one\n")
        os.fsync(file.fileno())
        assert mounted.zone.read("log.txt") == b"one\n"
        file.write(b"two\n")
        os.fsync(file.fileno())
        assert mounted.zone.read("log.txt") == b"one\ntwo\n"
    mounted.sync()
    assert mounted.zone.read("log.txt") == b"one\ntwo\n"


def test_fsynced_bytes_of_an_open_file_survive_a_kill(mounted: Mounted) -> None:
    """A file that is open for hours keeps every line that was fsynced, even after a kill."""
    log = os.open(mounted.root / "log.txt", os.O_WRONLY | os.O_CREAT)
    os.write(log, b"one\n")
    os.fsync(log)
    mounted.kill()
    with pytest.raises(OSError, match="not connected"):
        os.write(log, b"two\n")
    with pytest.raises(OSError, match="not connected"):
        os.close(log)
    mounted.mount()
    assert (mounted.root / "log.txt").read_bytes() == b"one\n"
    mounted.sync()
    assert mounted.zone.read("log.txt") == b"one\n"


def test_times_and_modes_stay(mounted: Mounted) -> None:
    """Times and modes from cp -p, touch and chmod survive the upload and a restart."""
    path = mounted.root / "kept.sh"
    path.write_bytes(b"#!/bin/sh\n")
    os.utime(path, ns=(1_600_000_000_123_456_789, 1_600_000_000_123_456_789))
    path.chmod(0o755)
    before = path.stat()
    assert (before.st_mtime_ns, before.st_mode & 0o777) == (1_600_000_000_123_456_789, 0o755)
    mounted.sync()
    assert path.stat().st_mtime_ns == before.st_mtime_ns
    mounted.restart()
    after = path.stat()
    assert (after.st_mtime_ns, after.st_mode, after.st_ino) == (
        before.st_mtime_ns,
        before.st_mode,
        before.st_ino,
    )


def test_a_deleted_file_that_is_open_can_be_read_and_written(mounted: Mounted) -> None:
    """An open file that was deleted keeps its bytes until the last close, as on other file
    systems."""
    with (mounted.root / "temporary").open("w+b", buffering=0) as file:
        file.write(b"scratch")
        (mounted.root / "temporary").unlink()
        file.write(b" paper")
        file.seek(0)
        assert file.read() == b"scratch paper"
        assert os.fstat(file.fileno()).st_nlink == 0
    with (mounted.root / "notes.txt").open("rb", buffering=0) as file:
        (mounted.root / "notes.txt").unlink()
        assert file.read() == b"first line\nsecond line\n"
    mounted.sync()
    assert "temporary" not in mounted.zone.listing()
    assert "notes.txt" not in mounted.zone.listing()


def test_a_replaced_file_that_is_open_keeps_its_content_for_the_reader(mounted: Mounted) -> None:
    """A reader reads the old file to its end after another file was renamed over it."""
    with (mounted.root / "notes.txt").open("rb", buffering=0) as file:
        (mounted.root / "new").write_bytes(b"replaced\n")
        (mounted.root / "new").rename(mounted.root / "notes.txt")
        assert file.read() == b"first line\nsecond line\n"
    assert (mounted.root / "notes.txt").read_bytes() == b"replaced\n"


def test_files_and_folders_that_are_protected_refuse(mounted: Mounted) -> None:
    """writeProtected and readProtected on the service become permissions in the mount."""
    mounted.deployment.tell(
        {"protect": {"zone": mounted.root.name, "path": "notes.txt", "writeProtected": True}}
    )
    path = mounted.root / "notes.txt"
    assert path.stat().st_mode & 0o777 == 0o400
    with pytest.raises(PermissionError):
        path.write_bytes(b"no\n")
    assert path.read_bytes() == mounted.zone.read("notes.txt")


def run(words: list[str | Path]) -> str:
    """Return the output of a command that must succeed."""
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


def test_common_tools_work(mounted: Mounted, tmp_path: Path) -> None:
    """rsync, tar and git work on the mount as on a local disk."""
    source = tmp_path / "source"
    for number in range(20):
        path = source / f"d{number % 3}" / f"file {number}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"content {number}\n" * number)
    target = mounted.root / "rsynced"
    run(["rsync", "-a", f"{source}/", f"{target}/"])
    assert run(["rsync", "-ai", f"{source}/", f"{target}/"]) == ""
    run(["tar", "cf", tmp_path / "t.tar", "-C", source, "."])
    (mounted.root / "untarred").mkdir()
    run(["tar", "xf", tmp_path / "t.tar", "-C", mounted.root / "untarred"])
    run(["diff", "-r", source, mounted.root / "untarred"])
    repo = mounted.root / "repo"
    git: list[str | Path] = ["git", "-C", repo, "-c", "user.name=a", "-c", "user.email=a@localhost"]
    run(["git", "init", "-q", repo])
    (repo / "a.txt").write_text("a\n")
    run([*git, "add", "."])
    run([*git, "commit", "-qm", "one"])
    assert run([*git, "status", "--short"]) == ""
    mounted.sync()
    run([*git, "fsck", "--strict"])
    assert "repo/.git/index.lock" not in mounted.zone.tree("repo")


def test_programs_that_copy_attributes(mounted: Mounted, tmp_path: Path) -> None:
    """cp, tar and rsync copy files with attributes into the mount and out of it, as documented."""
    source, there, back = tmp_path / "source", mounted.root / "there", tmp_path / "back"
    source.mkdir()
    (source / "a.txt").write_text("a\n")
    ours = ["rsync", "-aAX", "--filter=-x user.zonedrive.*"]
    for _ in range(2):
        run([*ours, f"{source}/", there])
    refused = subprocess.run(
        ["rsync", "-aX", f"{source}/", there], capture_output=True, check=False
    )
    assert refused.returncode == 23
    run([*ours, f"{there}/", back])
    assert os.listxattr(back / "a.txt") == []
    os.setxattr(source / "a.txt", "user.mine", b"1")
    run(["rsync", "-aX", "--filter=-x user.*", f"{source}/", there])
    run(["cp", "-a", there, tmp_path / "copied"])
    assert "user.zonedrive.id" in os.listxattr(tmp_path / "copied/a.txt")
    run(["cp", "-a", tmp_path / "copied", source, mounted.root])
    run(["tar", "--xattrs", "-C", mounted.root, "-cf", tmp_path / "t.tar", "there"])
    (mounted.root / "new").mkdir()
    run(["tar", "--xattrs", "-C", mounted.root / "new", "-xf", tmp_path / "t.tar"])
    for each in ("there", "copied", "source", "new/there"):
        assert (mounted.root / each / "a.txt").read_text() == "a\n"
    mounted.sync()
