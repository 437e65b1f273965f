"""What the kernel is asked to do for one mount, and does not by itself.

Each of it is a matter of speed, or of who waits for whom; where the machine does not allow it the
mount works as well.

Source: the kernel's Documentation/ABI/testing/sysfs-class-bdi and filesystems/fuse.rst.
"""

import logging
import os
from pathlib import Path

log = logging.getLogger(__name__)

READ_AHEAD_KIB = 512
"""The kernel's own 128 cost four requests where one would do; only root may ask for more.  Not the
1024 of the largest request: around what is mapped into memory is read as much as this, too."""

BACKGROUND = 512
"""Reads that may be under way at once.  With the kernel's 12, a dozen programs that wait for the
service keep all others from what is here."""

_DEVICES = Path("/sys/class/bdi")
_CONNECTIONS = Path("/sys/fs/fuse/connections")


def tune(device: int) -> None:
    """Ask for all of it, for the mount of that `st_dev`."""
    _write(_DEVICES / f"{os.major(device)}:{os.minor(device)}" / "read_ahead_kb", READ_AHEAD_KIB)
    connection = _CONNECTIONS / str(os.minor(device))
    _write(connection / "max_background", BACKGROUND)
    _write(connection / "congestion_threshold", BACKGROUND * 3 // 4)


def _write(setting: Path, value: int) -> None:
    try:
        setting.write_text(str(value), "ascii")
    except OSError as refused:
        log.debug("%s stays as it is (%s)", setting.name, refused.strerror)
