"""Ordinary tools can read the service's files below the mount."""

import contextlib
import os
import subprocess
from pathlib import Path

import pytest

from tests.harness import world
from tests.harness.machine import Mounted
from tests.harness.waiting import eventually

QUICK = pytest.mark.mount("refresh=0.3")


def tree(root: Path) -> dict[str, bytes]:
    """Return the content of the files below a local folder."""
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def test_zones_are_folders(mounted: Mounted) -> None:
    """Every accessible zone is a folder; an inaccessible one is missing."""
    names = set(os.listdir(mounted.path))
    assert mounted.root.name in names
    assert "Closed" not in names
    assert len(names) == world.ZONES


def test_a_zone_has_its_files(mounted: Mounted) -> None:
    """A zone's folder has all files, with the bytes, sizes and times of the service."""
    assert tree(mounted.root) == dict(world.SEED)
    entry = mounted.zone.find("docs/report.md")
    found = (mounted.root / "docs/report.md").stat()
    assert entry is not None
    assert found.st_size == entry["size"] == len(world.SEED["docs/report.md"])
    shown = subprocess.check_output(
        ["date", "-u", "-r", mounted.root / "docs/report.md", "+%Y-%m-%dT%H:%M"], text=True
    ).strip()
    assert entry["lastModified"].startswith(shown)


def test_a_piece_of_a_file_can_be_read(mounted: Mounted) -> None:
    """A program can read at any offset; past the end there are no bytes."""
    data = world.SEED["big.bin"]
    starts = (3 * 1024 * 1024, 131_071, 1, 131_072, 0, len(data))
    for start in starts:  # each in a file that was not read before
        mounted.zone.write(f"from {start}", data)
    for start in starts:
        eventually((mounted.root / f"from {start}").exists)
        with (mounted.root / f"from {start}").open("rb") as file:
            file.seek(start)
            assert file.read(200_000) == data[start : start + 200_000], start


def test_cached_files_stay_readable_without_the_service(mounted: Mounted) -> None:
    """A cached file can be read while the service is down, also after a remount."""
    mounted.allow("offline", "reach", "refresh")
    assert (mounted.root / "big.bin").read_bytes() == world.SEED["big.bin"]
    with mounted.deployment.faulty(down=True):
        mounted.restart()
        assert (mounted.root / "big.bin").read_bytes() == world.SEED["big.bin"]


@QUICK
def test_changes_by_coworkers_show_up(mounted: Mounted) -> None:
    """New files, new versions and deletions by coworkers are visible within the refresh time."""
    notes = mounted.root / "notes.txt"
    assert notes.read_bytes() == world.SEED["notes.txt"]
    mounted.zone.write("notes.txt", b"rewritten by bob, and longer than before\n")
    mounted.zone.write("from bob.txt", b"hello\n")
    mounted.zone.delete("empty")
    eventually(lambda: notes.read_bytes() == b"rewritten by bob, and longer than before\n")
    eventually(lambda: (mounted.root / "from bob.txt").exists())
    assert (mounted.root / "from bob.txt").read_bytes() == b"hello\n"
    eventually(lambda: not (mounted.root / "empty").exists())
    assert sorted(os.listdir(mounted.root)) == ["big.bin", "docs", "from bob.txt", "notes.txt"]


def read_again(path: Path) -> bytes:
    """Return the content for a program that opens the file now; nothing if it changes just then."""
    try:
        return path.read_bytes()
    except OSError:
        return b""


@QUICK
def test_a_new_reader_does_not_change_the_bytes_of_others(mounted: Mounted) -> None:
    """A reader gets the rest of its own version or ESTALE after a coworker's save.

    Another program may read the new version completely meanwhile.
    """
    size = 2 << 20
    for grown in (-5000, 0, 5000):
        path, new = mounted.root / f"{grown}.bin", b"B" * (size + grown)
        mounted.zone.write(path.name, b"A" * size)
        eventually(path.exists)
        with path.open("rb", buffering=0) as old:
            seen = old.read(300_000)
            mounted.zone.write(path.name, new)
            for _ in range(2):
                eventually(lambda path=path, new=new: read_again(path) == new)  # type: ignore[misc]
            with contextlib.suppress(OSError):
                while piece := old.read(100_000):
                    seen += piece
        assert set(seen) == {ord("A")}, grown
        assert path.read_bytes() == new


@QUICK
def test_a_reader_of_a_cached_file_gets_one_version(mounted: Mounted) -> None:
    """A cached file is read again in two halves, with a coworker's save between them."""
    path, size = mounted.root / "changing.bin", 1 << 20
    mounted.zone.write("changing.bin", b"A" * size)
    eventually(lambda: read_again(path) == b"A" * size)
    with path.open("rb", buffering=0) as old:
        seen = old.read(size // 2)
        mounted.zone.write("changing.bin", b"B" * size)
        eventually(lambda: read_again(path) == b"B" * size)
        with contextlib.suppress(OSError):
            while piece := old.read(100_000):
                seen += piece
    assert set(seen) == {ord("A")}


def test_local_saves_are_visible_in_open_files(mounted: Mounted) -> None:
    """A save is visible to a program that has the file open, before and after the upload."""
    path = mounted.root / "notes.txt"
    with path.open("rb", buffering=0) as reader:
        assert reader.read(1)
        path.write_bytes(b"mine")
        assert os.pread(reader.fileno(), 10, 0) == b"mine"
        mounted.sync()
        assert os.pread(reader.fileno(), 10, 0) == b"mine"
    with path.open("rb", buffering=0) as reader:  # opened before, and read after the upload
        path.with_name("other.txt").write_bytes(b"new")
        path.with_name("other.txt").replace(path)
        mounted.sync()
        assert os.pread(reader.fileno(), 10, 0) == b"mine"
        assert path.read_bytes() == b"new"
