"""Limit of the cache's disk usage.  Fast to import, because commands use it, too."""

import contextlib
import os
from pathlib import Path

RESERVE = 0.05


def most(directory: Path, limit: int, used: int, promised: int = 0) -> int:
    """Return the maximum number of bytes to use in a directory, given the free space of the disk.

    Negative if other files take so much space that even the used bytes are too many.  `promised`
    bytes are included in `used` but not written yet.
    """
    disk = None
    for folder in (directory, *directory.parents):  # it may not be made yet
        with contextlib.suppress(OSError):
            disk = os.statvfs(folder)
            break
    if disk is None:
        return limit
    free = disk.f_bavail * disk.f_frsize - int(disk.f_blocks * disk.f_frsize * RESERVE)
    return min(limit, used + free - promised)
