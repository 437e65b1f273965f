"""Mounts of the file system in memory."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.fuse.mounted import MemoryMount, Mount
from zonedrive.fuse import mountpoint


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[Mount]:
    """Yield a function that makes mounts, and remove what a test leaves."""
    made: list[MemoryMount] = []

    def make(*options: str, path: Path = tmp_path / "mnt") -> MemoryMount:
        made.append(MemoryMount(path, *options))
        return made[-1]

    yield make
    for each in made:
        if each.process.poll() is None:
            each.kill()
        while mountpoint.at(each.path):
            subprocess.run(["fusermount3", "-uz", os.fspath(each.path)], check=True)
        each.wait()


@pytest.fixture
def connections() -> Iterator[None]:
    """Return the kernel's FUSE settings, which systemd mounts; containers lack them."""
    if os.path.ismount(mountpoint.CONNECTIONS):
        yield
        return
    subprocess.run(["mount", "-t", "fusectl", "fusectl", mountpoint.CONNECTIONS], check=True)
    yield
    # Any other mount on this machine may just be looking for its settings there.
    subprocess.run(["umount", "-l", mountpoint.CONNECTIONS], check=True)
