"""Checks of the machine: FUSE device, mount helper, AppArmor, and allow_other.

Sends no request to the service.
"""

import contextlib
import errno
import os
import pwd
import re
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

from zonedrive.doctor.facts import CheckResult, DoctorFacts, bad, good
from zonedrive.fuse import mountpoint
from zonedrive.logon.account import Account
from zonedrive.paths import config_file

DEVICE = Path("/dev/fuse")
STATUS = Path("/proc/self/status")
NUMBER = os.makedev(10, 229)  # device number of /dev/fuse on every Linux
CAP_SYS_ADMIN = 1 << 21
FSTAB = Path("/etc/fstab")
UNITS = ("/etc/systemd/user", "/usr/lib/systemd/user", "/usr/local/lib/systemd/user")

# AppArmor
ENABLED = Path("/sys/module/apparmor/parameters/enabled")
LOADED = Path("/sys/kernel/security/apparmor/profiles")
PROFILE = Path("/etc/apparmor.d/fusermount3")

_LOAD = "run 'modprobe fuse' as root; a container needs --device /dev/fuse"
_RULE = re.compile(
    r"^\s*(?:allow\s+)?mount\b(?P<how>[^#\n]*?)->\s*(?P<where>[^\s,]\S*?),?\s*$", re.M
)
_VARIABLES = {
    "@{HOME}": "{/home/*,/root}",
    "@{HOMEDIRS}": "/home/",
    "@{run}": "{/run,/var/run}",
    "@{uid}": "*",
}
_SIGNS = {"**": ".*", "*": "[^/]*", "?": "[^/]", "{": "(?:", "}": ")"}
"""AppArmor's path patterns as regular expressions."""


# ---- the FUSE device and the helper ----


def fuse_device(facts: DoctorFacts) -> CheckResult:
    """Check the FUSE device by opening it as a mount does, which changes nothing."""
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
    """Check the helper that mounts for users other than root."""
    found = shutil.which("fusermount3")
    if found is None:
        return bad("is not installed", "install the package fuse3 ('apt install fuse3' as root)")
    # Setuid root gives no more than the bounding set.
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
    """Return a capability set of this process; see capabilities(7)."""
    found = re.search(rf"^{which}:\s*([0-9a-f]+)$", STATUS.read_text(), re.M)
    return int(found[1], 16) if found else ~0


def user(facts: DoctorFacts) -> CheckResult | None:
    """Check that this user has a name, because the helper requires one."""
    number = os.getuid()
    try:
        pwd.getpwuid(number)
    except KeyError:
        return bad(
            "your user number has no name on this machine, which fusermount3 requires",
            "run 'useradd --uid NUMBER NAME' as root; in a container, run as one of its users",
            NUMBER=number,
        )
    return None


# ---- AppArmor ----


def apparmor(facts: DoctorFacts) -> CheckResult | None:
    """Check that fusermount3 may mount on this account's mount points.

    Debian 13 and Ubuntu from 24.10 on confine fusermount3: its AppArmor profile lists the folders
    below which it may mount.
    """
    if os.getuid() == 0 or not _is_confined():
        return None  # root mounts without the helper
    allowed = _allowed(PROFILE)
    local = f"{PROFILE.parent}/local/{PROFILE.name}"
    for folder in _mount_points(facts) if allowed is not None else ():
        if not any(re.fullmatch(pattern, f"{folder}/") for pattern in allowed or ()):
            return bad(
                "the profile of fusermount3 does not allow mounts in this account's folder",
                "mount on a folder in your home folder; to allow this one, put 'mount"
                f" fstype=fuse.* -> PLACE/,' and 'umount PLACE/,' into {local} and run"
                f" 'apparmor_parser -r {PROFILE}' as root",
                PLACE=folder,
            )
    if allowed is None:
        return good("on; fusermount3 is not confined")
    return good("on; fusermount3 may mount in your home folder, not everywhere")


def _is_confined() -> bool:
    with contextlib.suppress(OSError):
        if ENABLED.read_text().strip() != "Y":
            return False
        with contextlib.suppress(OSError):  # only root may read the loaded profiles
            return "fusermount3 (enforce)" in LOADED.read_text()
        return PROFILE.exists()
    return False


def _allowed(profile: Path) -> list[str] | None:
    """Return the folders in a profile's mount rules as regular expressions; None: anywhere."""
    text = ""
    for path in (profile, profile.parent / "local" / profile.name):
        with contextlib.suppress(OSError):
            text += re.sub(r"(?m)(^|\s)#.*$", "", path.read_text("utf-8", "replace")) + "\n"
    if re.search(r"^\s*mount(\s+fstype=[^>\n]*)?,\s*$", text, re.M) or "mount" not in text:
        return None
    return [_expression(rule["where"]) for rule in _RULE.finditer(text) if "fuse" in rule["how"]]


def _expression(pattern: str) -> str:
    """Return an AppArmor path pattern as a regular expression."""
    for name, value in _VARIABLES.items():
        pattern = pattern.replace(name, value)
    pattern = re.sub(r"@\{\w+\}", "**", pattern.strip('"'))  # another variable
    made, depth = "", 0
    for part in re.findall(r"\*\*|.", pattern):
        depth += (part == "{") - (part == "}")
        made += "|" if part == "," and depth else _SIGNS.get(part) or re.escape(part)
    return made.replace("//", "/")


def _mount_points(facts: DoctorFacts) -> Iterator[Path]:
    """Yield the requested or current mount point, and those in /etc/fstab."""
    if facts.folder is not None:
        yield facts.folder
    elif facts.holder is not None:
        yield facts.holder.mountpoint
    if facts.account is not None:
        yield from (folder for folder, _ in _fstab(facts.account))


# ---- allow_other ----


def sharing(facts: DoctorFacts) -> CheckResult | None:
    """Check that a mount with allow_other is possible, if one is configured."""
    if os.getuid() == 0 or facts.account is None:
        return None
    if any(_shares(options) for _, options in _fstab(facts.account)):
        wanted = "/etc/fstab"
    elif any(_shares(options) for options in _unit_options(facts.account.name)):
        wanted = "the systemd unit"
    else:
        return None
    try:
        allowed = mountpoint.may_share()
    except OSError:
        return bad(
            f"{wanted} wants allow_other, but you may not read /etc/fuse.conf",
            "run 'chmod a+r /etc/fuse.conf' as root",
        )
    if allowed:
        return good("allowed to users")
    return bad(
        f"{wanted} wants allow_other, which /etc/fuse.conf does not allow (it lacks"
        " user_allow_other)",
        f"{mountpoint.LET_OTHERS}, or remove allow_other",
    )


def _shares(options: str) -> bool:
    return bool(mountpoint.SHARING & set(options.split(",")))


def _fstab(account: Account) -> Iterator[tuple[Path, str]]:
    """Yield mount point and options of the account's lines in /etc/fstab."""
    with contextlib.suppress(OSError):
        for line in FSTAB.read_text("utf-8", "replace").splitlines():
            match line.split():
                case [account.base_url, folder, mountpoint.KIND, options, *_]:
                    yield Path(folder), options


def _unit_options(account: str) -> Iterator[str]:
    """Yield the mount options in the account's systemd unit and its drop-ins."""
    for folder in (*map(Path, UNITS), config_file().parent.parent / "systemd/user"):
        for name in (f"zonedrive@{account}.service", "zonedrive@.service"):
            for path in (folder / name, *(folder / f"{name}.d").glob("*.conf")):
                with contextlib.suppress(OSError):
                    text = path.read_text("utf-8", "replace")
                    yield from re.findall(r"^[^#;\n]*\bOPTIONS=([^\s\"']*)", text, re.M)
