"""Checks of the machine: FUSE device, mount helper, and a user known to the helper.

Knows nothing about accounts.
"""

import errno
import os
import pwd
import re
import shutil
import stat
from pathlib import Path

from zonedrive.doctor.facts import DoctorFacts
from zonedrive.doctor.result import CheckResult

DEVICE = Path("/dev/fuse")
STATUS = Path("/proc/self/status")
NUMBER = os.makedev(10, 229)  # of the device, in all of Linux
CAP_SYS_ADMIN = 1 << 21
_LOAD = "run 'modprobe fuse' as root; a container needs --device /dev/fuse"


def fuse_device(patient: DoctorFacts) -> CheckResult:
    """Check the FUSE device by opening it as a mount does, which changes nothing."""
    try:
        descriptor = os.open(DEVICE, os.O_RDWR | os.O_CLOEXEC)
        try:
            found = os.fstat(descriptor)
        finally:
            os.close(descriptor)
    except FileNotFoundError:
        return CheckResult(False, "there is no /dev/fuse", _LOAD)
    except OSError as wrong:
        if wrong.errno == errno.EACCES:
            return CheckResult(
                False, "/dev/fuse is not open to you", "run 'chmod 666 /dev/fuse' as root"
            )
        if wrong.errno == errno.EPERM:
            return CheckResult(
                False,
                "/dev/fuse is there, but this container or unit may not open it",
                "start the container with --device /dev/fuse; in a unit allow it with DeviceAllow=",
            )
        return CheckResult(False, f"/dev/fuse cannot be opened ({wrong.strerror})", _LOAD)
    if not stat.S_ISCHR(found.st_mode) or found.st_rdev != NUMBER:
        return CheckResult(False, "/dev/fuse is something else than the kernel's device",
                       "remove it, and run 'mknod -m 666 /dev/fuse c 10 229' as root; a container"
                       " needs --device /dev/fuse")  # fmt: skip
    return CheckResult(True, "there, and open to you")


def fusermount(patient: DoctorFacts) -> CheckResult:
    """Check the helper that mounts for users other than root."""
    found = shutil.which("fusermount3")
    if found is None:
        return CheckResult(False, "is not installed",
                       "install the package fuse3 ('apt install fuse3' as root)")  # fmt: skip
    # Setuid root gives no more than the bounding set.
    is_root = os.getuid() == 0
    if not _capabilities("CapEff" if is_root else "CapBnd") & CAP_SYS_ADMIN:
        return CheckResult(
            False,
            "may not mount: this container or unit takes away the right to (CAP_SYS_ADMIN)",
            "start the container with --cap-add SYS_ADMIN; in a unit add it to"
            " CapabilityBoundingSet=",
        )
    if is_root:
        return CheckResult(True, "installed")
    status = Path(found).stat()
    if not (status.st_mode & stat.S_ISUID and status.st_uid == 0):
        return CheckResult(
            False,
            "may not mount: it is not setuid root",
            "run 'apt install --reinstall fuse3' as root",
            here=f"run 'chown root {found} && chmod u+s {found}' as root",
        )
    if os.statvfs(found).f_flag & os.ST_NOSUID:
        return CheckResult(False, "may not mount: it is on a file system that is mounted nosuid",
                       "use the one of the package fuse3, in /usr/bin")  # fmt: skip
    if "NoNewPrivs:\t1" in STATUS.read_text():
        return CheckResult(
            False,
            "may not mount: this process and its children can gain no privileges",
            "in a systemd unit remove NoNewPrivileges= and the sandboxing options that imply it",
        )
    return CheckResult(True, "installed, setuid root")


def _capabilities(which: str) -> int:
    """Return a capability set of this process; see capabilities(7)."""
    found = re.search(rf"^{which}:\s*([0-9a-f]+)$", STATUS.read_text(), re.M)
    return int(found[1], 16) if found else ~0


def user(patient: DoctorFacts) -> CheckResult | None:
    """Check that this user has a name, because the helper requires one."""
    number = os.getuid()
    try:
        pwd.getpwuid(number)
    except KeyError:
        return CheckResult(
            False,
            "your user number has no name on this machine, and fusermount3 mounts for nobody else",
            "run 'useradd --uid NUMBER NAME' as root; in a container, run as a user that it has",
            here=f"run 'useradd --uid {number} NAME' as root; in a container, run as a user that"
            " it has",
        )
    return None
