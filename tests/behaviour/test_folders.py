"""Folders and names: made, renamed, moved, removed, copied, however they are called."""

import errno
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.harness import world
from tests.harness.machine import Mounted
from tests.harness.waiting import eventually


def test_a_folder_is_made_and_removed(mounted: Mounted) -> None:
    """mkdir and rmdir reach the service."""
    (mounted.root / "plans").mkdir()
    mounted.sync()
    assert mounted.zone.listing()["plans"]["folder"] is True
    (mounted.root / "plans").rmdir()
    mounted.sync()
    assert "plans" not in mounted.zone.listing()


def test_refusals_are_those_of_a_local_folder(mounted: Mounted) -> None:
    """What a local file system refuses is refused here, and nothing changes."""
    root = mounted.root
    with pytest.raises(OSError, match="not empty") as refused:
        (root / "docs").rmdir()
    assert refused.value.errno == errno.ENOTEMPTY
    with pytest.raises(FileExistsError):
        (root / "docs").mkdir()
    with pytest.raises(IsADirectoryError):
        (root / "notes.txt").rename(root / "docs")
    with pytest.raises(NotADirectoryError):
        (root / "notes.txt").rmdir()
    with pytest.raises(OSError, match="nvalid") as refused:
        (root / "docs").rename(root / "docs/2026/docs")
    assert refused.value.errno == errno.EINVAL
    mounted.sync()
    assert mounted.zone.tree() == {**dict.fromkeys(("docs", "docs/2026")), **world.SEED}


def test_a_file_is_renamed_and_moved(mounted: Mounted) -> None:
    """mv keeps the file and its history, under its new name and in its new folder."""
    before = mounted.zone.entry_id("notes.txt")
    (mounted.root / "notes.txt").rename(mounted.root / "docs/2026/memo.txt")
    mounted.sync()
    assert mounted.zone.entry_id("docs/2026/memo.txt") == before
    assert len(mounted.zone.versions("docs/2026/memo.txt")) == 1
    assert "notes.txt" not in mounted.zone.listing()
    assert (mounted.root / "docs/2026/memo.txt").read_bytes() == world.SEED["notes.txt"]


def test_a_folder_is_renamed_with_its_content(mounted: Mounted) -> None:
    """mv of a folder takes everything below along."""
    (mounted.root / "docs").rename(mounted.root / "papers")
    mounted.sync()
    assert mounted.zone.read("papers/2026/q1.csv") == world.SEED["docs/2026/q1.csv"]
    assert (mounted.root / "papers/report.md").read_bytes() == world.SEED["docs/report.md"]
    assert not (mounted.root / "docs").exists()


def test_a_file_is_deleted(mounted: Mounted) -> None:
    """rm puts the file into the trash of the service."""
    (mounted.root / "notes.txt").unlink()
    mounted.sync()
    assert "notes.txt" not in mounted.zone.listing()
    with pytest.raises(FileNotFoundError):
        (mounted.root / "notes.txt").stat()


def test_rm_rf_leaves_nothing(mounted: Mounted) -> None:
    """rm -rf of a folder removes it on the service."""
    shutil.rmtree(mounted.root / "docs")
    mounted.sync()
    assert set(mounted.zone.listing()) == {"big.bin", "empty", "notes.txt"}


def test_a_tree_comes_back_identical(mounted: Mounted, tmp_path: Path) -> None:
    """What `cp -r` put in is read back byte for byte by a machine that has never seen it."""
    source = tmp_path / "papers"
    for number in range(40):
        path = source / f"year {number % 4}" / f"month {number % 3}" / f"paper {number}.bin"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.urandom(number * 7919))
    (source / "nothing in here").mkdir()
    subprocess.run(["cp", "-r", source, mounted.root], check=True, timeout=60)
    mounted.sync()
    mounted.unmount()
    mounted.forget_cache()
    mounted.mount()
    subprocess.run(["diff", "-r", source, mounted.root / "papers"], check=True, timeout=60)


NAMES = [
    "a b  c", "Grüße", "日本語.txt", "-rf", "'\"quotes\"'", "ends.",
    " lead", "trail ", "semi;colon&pipe|", "%2e%2e", "#frag?query=1", "x" * 255, "é", "🗂️",
]  # fmt: skip


PLANTED = ["a/b", "..", ".", "bell\x07", "nul\x00", "x" * 300, "notes.txt", "notes.txt", "\n"]


def test_names_survive_the_round_trip(mounted: Mounted) -> None:
    """A name that Linux allows reads back the same, here and on a machine that is new to it."""
    for name in NAMES:
        (mounted.root / name).write_bytes(name.encode())
    mounted.sync()
    mounted.unmount()
    mounted.forget_cache()
    mounted.mount()
    assert set(os.listdir(mounted.root)) == {*NAMES, "big.bin", "docs", "empty", "notes.txt"}
    for name in NAMES:
        assert (mounted.root / name).read_bytes() == name.encode()
    sent = mounted.zone.tree().values()
    assert all(name.encode() in sent for name in NAMES)


def test_a_name_that_is_too_long_is_refused(mounted: Mounted) -> None:
    """More than 255 bytes are ENAMETOOLONG, as everywhere."""
    with pytest.raises(OSError, match="too long") as refused:
        (mounted.root / ("ü" * 128)).write_bytes(b"")
    assert refused.value.errno == errno.ENAMETOOLONG


@pytest.mark.mount("refresh=0.3")
def test_names_that_linux_cannot_have_become_safe_ones(mounted: Mounted) -> None:
    """Whatever an entry is called, also as another one, it shows under one name and is read."""
    others = set(os.listdir(mounted.root)) - {"notes.txt"}
    for number, name in enumerate(PLANTED):
        mounted.deployment.plant(mounted.root.name, name, f"planted {number}\n")
    eventually(lambda: len(os.listdir(mounted.root)) == len(others) + 1 + len(PLANTED))
    shown = set(os.listdir(mounted.root)) - others
    for name in shown:
        assert "/" not in name
        assert name not in (".", "..")
        assert len(name.encode()) <= 255
        assert name.isprintable()
    read = {(mounted.root / name).read_bytes() for name in shown}
    wanted = {f"planted {number}\n".encode() for number in range(len(PLANTED))}
    assert read == wanted | {world.SEED["notes.txt"]}
    assert (mounted.root / "notes.txt").read_bytes() == world.SEED["notes.txt"]
    mounted.restart()
    assert set(os.listdir(mounted.root)) - others == shown
