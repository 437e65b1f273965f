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
