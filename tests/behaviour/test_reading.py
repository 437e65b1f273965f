"""Ordinary tools can read the service's files below the mount."""

import contextlib
import os
import subprocess
from pathlib import Path

import pytest

from tests.harness import world
from tests.harness.machine import Mounted
from tests.harness.waiting import eventually


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
    """A zone's folder has all files, with the same bytes as on the service."""
    assert tree(mounted.root) == dict(world.SEED)


def test_sizes_and_times_are_those_of_the_service(mounted: Mounted) -> None:
    """`ls -l` shows the size and the time of the version on the service."""
    entry = mounted.zone.find("docs/report.md")
    found = (mounted.root / "docs/report.md").stat()
    assert entry is not None
    assert found.st_size == entry["size"] == len(world.SEED["docs/report.md"])
    shown = subprocess.check_output(
        ["date", "-u", "-r", mounted.root / "docs/report.md", "+%Y-%m-%dT%H:%M"], text=True
    ).strip()
    assert entry["lastModified"].startswith(shown)


@pytest.mark.parametrize("start", [0, 1, 131071, 131072, 3 * 1024 * 1024, 3 * 1024 * 1024 + 17])
def test_a_piece_of_a_file_can_be_read(mounted: Mounted, start: int) -> None:
    """A program can read at any offset; past the end there are no bytes."""
    with (mounted.root / "big.bin").open("rb") as file:
        file.seek(start)
        assert file.read(200_000) == world.SEED["big.bin"][start : start + 200_000]


def test_cached_files_stay_readable_without_the_service(mounted: Mounted) -> None:
    """A cached file can be read while the service is down, also after a remount."""
    mounted.allow("offline", "reach", "refresh")
    assert (mounted.root / "big.bin").read_bytes() == world.SEED["big.bin"]
    with mounted.deployment.faulty(down=True):
        mounted.restart()
        assert (mounted.root / "big.bin").read_bytes() == world.SEED["big.bin"]


@pytest.mark.mount("refresh=0.3")
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


def test_df_answers(mounted: Mounted) -> None:
    """`df` and file managers get an answer, and names may be 255 bytes long."""
    found = os.statvfs(mounted.path)
    assert found.f_blocks > 0
    assert found.f_namemax == 255


def test_a_missing_file_is_missing(mounted: Mounted) -> None:
    """A missing file gives an error at once."""
    with pytest.raises(FileNotFoundError):
        (mounted.root / "nowhere.txt").read_bytes()
    with pytest.raises(FileNotFoundError):
        (mounted.path / "No such zone").stat()
    with pytest.raises(NotADirectoryError):
        os.listdir(mounted.root / "notes.txt")


def read_again(path: Path) -> bytes:
    """Return the content for a program that opens the file now; nothing if it changes just then."""
    try:
        return path.read_bytes()
    except OSError:
        return b""


@pytest.mark.parametrize("grown", [-5000, 0, 5000])
def test_a_new_reader_does_not_change_the_bytes_of_others(mounted: Mounted, grown: int) -> None:
    """A reader gets the rest of its own version or ESTALE after a coworker's save.

    Another program may read the new version completely meanwhile.
    """
    path, size = mounted.root / "changing.bin", 2 << 20
    mounted.zone.write("changing.bin", b"A" * size)
    eventually(path.exists)
    with path.open("rb", buffering=0) as old:
        seen = old.read(300_000)
        mounted.zone.write("changing.bin", b"B" * (size + grown))
        for _ in range(2):
            eventually(lambda: read_again(path) == b"B" * (size + grown))
        with contextlib.suppress(OSError):
            while piece := old.read(100_000):
                seen += piece
    assert set(seen) == {ord("A")}
    assert path.read_bytes() == b"B" * (size + grown)


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
