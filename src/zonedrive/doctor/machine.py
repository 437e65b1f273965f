"""Checks of the FUSE device, fusermount3, the user and AppArmor on this machine.

The checks send no request to the service.
"""

import contextlib
import errno
import os
import pwd
import re
import shutil
import stat
from pathlib import Path

from zonedrive.doctor.facts import CheckResult, DoctorFacts, bad, good

DEVICE = Path("/dev/fuse")
STATUS = Path("/proc/self/status")
NUMBER = os.makedev(10, 229)  # device number of /dev/fuse on every Linux
CAP_SYS_ADMIN = 1 << 21

# AppArmor
ENABLED = Path("/sys/module/apparmor/parameters/enabled")
LOADED = Path("/sys/kernel/security/apparmor/profiles")
PROFILE = Path("/etc/apparmor.d/fusermount3")
# Folders below which the profile of Debian and Ubuntu allows mounts.
ALLOWED = ("/home", "/root", "/mnt", "/media", "/tmp", "/run/user")  # noqa: S108

_LOAD = "run 'modprobe fuse' as root; a container needs --device /dev/fuse"


# ---- the FUSE device and the helper ----


def fuse_device(facts: DoctorFacts) -> CheckResult:
    """Check that /dev/fuse can be opened for a mount. Opening the device changes nothing."""
    try:
        with DEVICE.open("r+b", buffering=0) as device:
            found = os.fstat(device.fileno())
    except FileNotFoundError:
        return bad("there is no /dev/fuse", _LOAD)
    except OSError as wrong:
        if wrong.errno == errno.EACCES:
            return bad("/dev/fuse is not open to you", "run 'chmod 666 /dev/fuse' as root")
        if wrong.errno == errno.EPERM:
            return bad(
                "/dev/fuse exists, but this container or unit may not open it",
                "start the container with --device /dev/fuse; in a unit allow it with DeviceAllow=",
            )
        return bad(f"/dev/fuse cannot be opened ({wrong.strerror})", _LOAD)
    if not stat.S_ISCHR(found.st_mode) or found.st_rdev != NUMBER:
        return bad(
            "/dev/fuse is not the kernel's FUSE device",
            "remove it, and run 'mknod -m 666 /dev/fuse c 10 229' as root; a container needs"
            " --device /dev/fuse",
        )
    return good("can be opened")


def fusermount(facts: DoctorFacts) -> CheckResult:
    """Check that fusermount3, which mounts for all users but root, is installed and may mount."""
    found = shutil.which("fusermount3")
    if found is None:
        return bad("is not installed", "install the package fuse3 ('apt install fuse3' as root)")
    # A setuid root program gets only capabilities that are in the bounding set.
    is_root = os.getuid() == 0
    if not _capabilities("CapEff" if is_root else "CapBnd") & CAP_SYS_ADMIN:
        return bad(
            "may not mount: this container or unit removes the capability CAP_SYS_ADMIN",
            "start the container with --cap-add SYS_ADMIN; in a unit add it to"
            " CapabilityBoundingSet=",
        )
    if is_root:
        return good("installed")
    status = Path(found).stat()
    if not (status.st_mode & stat.S_ISUID and status.st_uid == 0):
        return bad(
            "may not mount: it is not setuid root",
            "run 'chown root fusermount3 && chmod u+s fusermount3' as root",
            fusermount3=found,
        )
    if os.statvfs(found).f_flag & os.ST_NOSUID:
        return bad(
            "may not mount: it is on a file system that is mounted nosuid",
            "use the one of the package fuse3, in /usr/bin",
        )
    if "NoNewPrivs:\t1" in STATUS.read_text():
        return bad(
            "may not mount: this process and its children cannot gain privileges",
            "in a systemd unit remove NoNewPrivileges= and the sandboxing options that imply it",
        )
    return good("installed, setuid root")


def _capabilities(which: str) -> int:
    """Return a capability set of this process as a bit mask, see capabilities(7).

    `which` is the name of the set in /proc/self/status. If this file does not contain the set, all
    bits are set.
    """
    found = re.search(rf"^{which}:\s*([0-9a-f]+)$", STATUS.read_text(), re.M)
    return int(found[1], 16) if found else ~0


def user(facts: DoctorFacts) -> CheckResult | None:
    """Check that the user ID has a user name, as fusermount3 requires; return None if so."""
    number = os.getuid()
    try:
        pwd.getpwuid(number)
    except KeyError:
        return bad(
            "your user ID has no name on this machine, which fusermount3 requires",
            "run 'useradd --uid NUMBER NAME' as root; in a container, run as one of its users",
            NUMBER=number,
        )
    return None


# ---- AppArmor ----


def apparmor(facts: DoctorFacts) -> CheckResult | None:
    """Check that AppArmor allows fusermount3 to mount on the account's mount point.

    The mount point is the folder that the user asked about, or else the current or last mount
    point. Debian 13 and Ubuntu 24.10 and later confine fusermount3 to some folders. If an
    administrator has added mount rules, the check assumes that they allow the mount.
    """
    if os.getuid() == 0 or not _is_confined():
        return None  # root mounts without the helper
    local = PROFILE.parent / "local" / PROFILE.name
    with contextlib.suppress(OSError):
        if re.search(r"(?m)^\s*mount\b", local.read_text("utf-8", "replace")):
            return good("on; the administrator's rules allow fusermount3 more folders")
    holder = facts.holder.mountpoint if facts.holder else None
    folder = facts.folder or holder
    if folder is not None and not any(map(folder.is_relative_to, ALLOWED)):
        return bad(
            "the profile of fusermount3 does not allow mounts in this account's folder",
            "mount on a folder in your home folder; to allow this one, put 'mount fstype=fuse.* ->"
            f" PLACE/,' and 'umount PLACE/,' into {local} and run 'apparmor_parser -r {PROFILE}'"
            " as root",
            PLACE=folder,
        )
    return good("on; fusermount3 may mount in your home folder, not everywhere")


def _is_confined() -> bool:
    with contextlib.suppress(OSError):
        if ENABLED.read_text().strip() != "Y":
            return False
        with contextlib.suppress(OSError):  # only root may read the loaded profiles
            return "fusermount3 (enforce)" in LOADED.read_text()
        return PROFILE.exists()
    return False
