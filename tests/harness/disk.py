"""A disk of a few megabytes, to be full on purpose."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def small_disk(at: Path, megabytes: int) -> Iterator[None]:
    """Mount a file system of that size on the folder `at`; needs root, or sudo without password."""
    become = [] if os.geteuid() == 0 else ["sudo", "-n"]
    options = f"size={megabytes}m,mode=0700,uid={os.getuid()},gid={os.getgid()}"
    subprocess.run([*become, "mount", "-t", "tmpfs", "-o", options, "tmpfs", at], check=True)
    try:
        yield
    finally:
        subprocess.run([*become, "umount", "-l", at], check=True)


def fill(folder: Path) -> Path:
    """Write a file that takes all the room there is; remove it to have it back."""
    path = folder / "filler"
    piece = b"\0" * 65536
    with path.open("wb", buffering=0) as file:
        for size in (len(piece), 4096, 512):
            try:
                while file.write(piece[:size]):
                    pass
            except OSError:
                continue
    return path
