"""What the machine must have for a mount.

Must not know accounts.
"""

import os
import shutil
import stat
from pathlib import Path

from zonedrive.daemon.checkup.finding import Finding
from zonedrive.daemon.checkup.patient import Patient

DEVICE = Path("/dev/fuse")


def fuse_device(patient: Patient) -> Finding:
    """The kernel's side of FUSE."""
    if not DEVICE.exists():
        return Finding(
            False,
            "there is no /dev/fuse",
            "run 'modprobe fuse' as root; a container needs --device /dev/fuse",
        )
    if not os.access(DEVICE, os.R_OK | os.W_OK):
        return Finding(False, "/dev/fuse is not open to you", "run 'chmod 666 /dev/fuse' as root")
    return Finding(True, "there, and open to you")


def fusermount(patient: Patient) -> Finding:
    """The helper that mounts for people who are not root."""
    found = shutil.which("fusermount3")
    if found is None:
        return Finding(False, "is not installed", "install the package fuse3")
    status = Path(found).stat()
    if os.getuid() != 0 and not (status.st_mode & stat.S_ISUID and status.st_uid == 0):
        return Finding(
            False,
            "may not mount: it is not setuid root",
            "install the package fuse3 again; in a systemd unit remove NoNewPrivileges",
        )
    return Finding(True, "installed")
