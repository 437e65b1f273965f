"""How far the kernel reads ahead of a program, and so how large its requests are.

The kernel's own 128 KiB cost four requests where one would do.  Only root may ask for more; for
others the mount works as well, with more requests.
"""

import logging
import os
from pathlib import Path

log = logging.getLogger(__name__)

KIB = 512  # not the 1024 of one request: what is mapped into memory is read so far around, too
_DEVICES = Path("/sys/class/bdi")


def widen(device: int) -> None:
    """Let the kernel read further ahead on the mount of that `st_dev`, where this may be said.

    Source: the kernel's Documentation/ABI/testing/sysfs-class-bdi.
    """
    setting = _DEVICES / f"{os.major(device)}:{os.minor(device)}" / "read_ahead_kb"
    try:
        setting.write_text(str(KIB), "ascii")
    except OSError as refused:
        log.debug("the kernel goes on to read ahead as it does (%s)", refused)
