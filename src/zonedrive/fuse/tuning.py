"""Kernel settings for one mount that differ from the kernel's defaults.

The settings affect the speed, and how long programs wait for each other. The mount also works on
machines that do not allow these settings.

Source: the kernel's Documentation/ABI/testing/sysfs-class-bdi and filesystems/fuse.rst.
"""

import logging
import os
from pathlib import Path

from zonedrive.fuse.mountpoint import CONNECTIONS

log = logging.getLogger(__name__)

READ_AHEAD_KIB = 512
"""Read-ahead of the kernel in KiB.

With the kernel's default of 128, the kernel sends four requests instead of one. The maximum request
size of 1024 KiB is not used, because each page fault in a mapped file would also read this much.
Only root may set a value above the default.
"""

BACKGROUND = 512
"""Maximum number of background requests, such as reads, at the same time.

With the kernel's default of 12, a dozen programs that wait for the service prevent all other
programs from reading local data.
"""

_DEVICES = Path("/sys/class/bdi")


def tune(device: int) -> None:
    """Set read-ahead and background requests of one mount, as far as the machine permits that.

    `device` is the `st_dev` of the mount.
    """
    _write(_DEVICES / f"{os.major(device)}:{os.minor(device)}" / "read_ahead_kb", READ_AHEAD_KIB)
    connection = CONNECTIONS / str(os.minor(device))
    _write(connection / "max_background", BACKGROUND)
    _write(connection / "congestion_threshold", BACKGROUND * 3 // 4)


def _write(setting: Path, value: int) -> None:
    try:
        setting.write_text(str(value), "ascii")
    except OSError as refused:
        log.debug("cannot set %s (%s)", setting.name, refused.strerror)
