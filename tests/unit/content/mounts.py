"""Small file systems of a test's own, to be filled up and made read-only."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def small_disk(folder: Path, size: int) -> Iterator[Path]:
    """A tmpfs of `size` bytes at `folder`; needs the right to mount, and says so."""
    folder.mkdir(exist_ok=True)
    options = f"size={size},mode=700"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def read_only(folder: Path) -> None:
    """Let nobody write there any more, as a kernel does after a disk error."""
    subprocess.run(["mount", "-o", "remount,ro", folder], check=True)
