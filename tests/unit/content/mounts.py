"""Small file systems that a test can fill up or make read-only."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def small_disk(folder: Path, size: int) -> Iterator[Path]:
    """Mount a tmpfs of `size` bytes at `folder`; fails without the right to mount."""
    folder.mkdir(exist_ok=True)
    options = f"size={size},mode=700"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def read_only(folder: Path) -> None:
    """Make a mount read-only, as the kernel does after a disk error."""
    subprocess.run(["mount", "-o", "remount,ro", folder], check=True)
