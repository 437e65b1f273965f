"""With a filled, read-only or damaged cache folder, reads return the right bytes."""

import contextlib
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.behaviour.test_full_disk import small_disk
from tests.harness import world
from tests.harness.machine import Mounted
from tests.harness.waiting import eventually
from zonedrive.content.small_contents import LARGEST

MIB = 1 << 20
BIG = world.SEED["big.bin"]


def content_files(mounted: Mounted) -> list[Path]:
    """Return the files with cached content."""
    return [path for path in (mounted.machine.cache / "content").glob("[0-9]*") if path.is_file()]


def fetched(mounted: Mounted) -> int:
    """Return the number of requests for content so far."""
    requests = mounted.deployment.stats()["requests"]
    return sum(count for route, count in requests.items() if route.endswith("/content"))


def test_uploaded_bytes_are_not_downloaded(mounted: Mounted) -> None:
    """Uploaded bytes are not downloaded again; only content above the small-file limit has a
    file."""
    sent = {f"{size}.bin": os.urandom(size) for size in (1, 4096, LARGEST, LARGEST + 1, 200_000)}
    (mounted.root / "sent").mkdir()
    for name, data in sent.items():
        (mounted.root / "sent" / name).write_bytes(data)
    mounted.sync()
    before = fetched(mounted)
    for _ in range(2):
        assert {path.name: path.read_bytes() for path in (mounted.root / "sent").iterdir()} == sent
        assert len(content_files(mounted)) == 2
        mounted.restart()
    assert fetched(mounted) == before


def test_a_cache_that_is_damaged_under_the_running_daemon(mounted: Mounted) -> None:
    """After any change to the cache files, programs read the service's bytes."""
    mounted.allow("damaged|lost|fetched again|check|cache|index|wrong size")
    path = mounted.root / "big.bin"
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
        assert os.pread(descriptor, 4096, 1 * MIB) == BIG[MIB : MIB + 4096]
        content = mounted.machine.cache / "content"
        assert not list(content.glob("*-shm")), "whoever truncates a mapped file kills the daemon"
        for file in content.iterdir():
            size = file.stat().st_size
            file.write_bytes(os.urandom(min(size, 300_000)))
        for at in (1 * MIB + 8192, 2 * MIB, 40_000, 3 * MIB):
            assert os.pread(descriptor, 4096, at) == BIG[at : at + 4096]
    finally:
        os.close(descriptor)
    assert path.read_bytes() == BIG
    mounted.restart()
    assert path.read_bytes() == BIG
    assert (mounted.root / "docs/report.md").read_bytes() == world.SEED["docs/report.md"]


def test_a_cache_that_became_read_only(mounted: Mounted) -> None:
    """On a cache disk that became read-only, reading and writing continue without the cache."""
    mounted.allow("cache|Read-only|read-only|index|removed")
    mounted.unmount()
    with small_disk(mounted.machine.folders["CACHE_HOME"], 64 * MIB) as disk:
        mounted.mount()
        assert (mounted.root / "docs/report.md").read_bytes() == world.SEED["docs/report.md"]
        mounted.unmount()
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        mounted.mount()
        assert (mounted.root / "docs/report.md").read_bytes() == world.SEED["docs/report.md"]
        assert (mounted.root / "big.bin").read_bytes() == BIG
        (mounted.root / "notes.txt").write_bytes(b"written all the same\n")
        mounted.sync()
        mounted.unmount()
    assert mounted.zone.read("notes.txt") == b"written all the same\n"


@pytest.mark.parametrize("what", ["a file", "a read-only disk"])
def test_a_cache_folder_that_cannot_be_created(mounted: Mounted, what: str) -> None:
    """Mount, reads, uploads and status work without the cache; doctor names the obstacle."""
    mounted.allow("uncached")
    machine, folder = mounted.machine, mounted.machine.folders["CACHE_HOME"]
    mounted.unmount()
    shutil.rmtree(folder)
    with contextlib.ExitStack() as stack:
        if what == "a file":
            folder.touch()
        else:
            folder.mkdir()
            disk = stack.enter_context(small_disk(folder, 8 * MIB))
            subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        assert "not mounted" in machine.done("status")
        mounted.mount()
        assert (mounted.root / "big.bin").read_bytes() == BIG
        (mounted.root / "notes.txt").write_bytes(b"written all the same\n")
        mounted.sync()
        assert mounted.zone.read("notes.txt") == b"written all the same\n"
        assert ": mounted at" in machine.done("status")
        assert "BAD  cache folder: it cannot be" in machine.run("doctor").stdout
        mounted.unmount()


def test_a_cache_on_a_disk_that_other_programs_fill(mounted: Mounted) -> None:
    """If other programs fill the disk during a read, the file is complete and the cache shrinks."""
    mounted.allow("cache|No space")
    mounted.unmount()
    with small_disk(mounted.machine.folders["CACHE_HOME"], 8 * MIB) as disk:
        mounted.mount()
        descriptor = os.open(mounted.root / "big.bin", os.O_RDONLY)
        try:
            assert os.pread(descriptor, 4096, 0) == BIG[:4096]
            with (disk / "theirs").open("wb", buffering=0) as theirs:
                try:
                    while True:
                        theirs.write(bytes(65536))
                except OSError:
                    pass
            for at in range(0, len(BIG), 65536):
                assert os.pread(descriptor, 65536, at) == BIG[at : at + 65536]
        finally:
            os.close(descriptor)
        assert (mounted.root / "docs/report.md").read_bytes() == world.SEED["docs/report.md"]
        (disk / "theirs").unlink()
        assert (mounted.root / "big.bin").read_bytes() == BIG
        eventually(lambda: mounted.status()["state"] == "online", what="the daemon goes on")
        mounted.unmount()


def test_status_reports_the_effective_limit(mounted: Mounted) -> None:
    """`status` reports the lower of `cache_size` and the disk's limit, mounted or not."""

    def told() -> int:
        return int(json.loads(mounted.machine.done("status", "--json"))["cache"]["limit"])

    assert (mounted.root / "notes.txt").read_bytes() == world.SEED["notes.txt"]
    mounted.unmount()
    settings = mounted.machine.folders["CONFIG_HOME"] / "zonedrive/config.toml"
    settings.parent.mkdir(exist_ok=True)
    disk = os.statvfs(mounted.machine.cache)
    whole = disk.f_blocks * disk.f_frsize
    settings.write_text(f"cache_size = {1 << 50}\n")
    assert 0 < told() <= 0.95 * whole
    mounted.mount()
    assert 0 < told() <= 0.95 * whole
    mounted.unmount()
    settings.write_text("cache_size = 1000000\n")
    assert told() == 1000000
    mounted.mount()
    assert told() == 1000000
