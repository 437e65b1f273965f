"""Checks of restrictions on mounts: AppArmor, and allow_other in /etc/fuse.conf.

Sends no request to the service. Debian 13 and Ubuntu from 24.10 on confine fusermount3: it may
mount only below certain folders, which its profile lists.
"""

import contextlib
import os
import re
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

from zonedrive.doctor.facts import DoctorFacts
from zonedrive.doctor.result import CheckResult
from zonedrive.fuse import mountpoint
from zonedrive.paths import config_file

ENABLED = Path("/sys/module/apparmor/parameters/enabled")
LOADED = Path("/sys/kernel/security/apparmor/profiles")
PROFILE = Path("/etc/apparmor.d/fusermount3")
MESSAGES = Path("/dev/kmsg")
FSTAB = Path("/etc/fstab")
UNITS = ("/etc/systemd/user", "/usr/lib/systemd/user", "/usr/local/lib/systemd/user")

_RULE = re.compile(
    r"^\s*(?:allow\s+)?mount\b(?P<how>[^#\n]*?)->\s*(?P<where>[^\s,]\S*?),?\s*$", re.M
)
_DENIED = re.compile(r'apparmor="DENIED".*profile="(?:/usr/bin/)?fusermount3?"')
_SECONDS = 5.0


def apparmor(patient: DoctorFacts) -> CheckResult | None:
    """Check that fusermount3 may mount at this account's past, present and planned folders."""
    if os.getuid() == 0 or not _is_on():
        return None  # root mounts without the helper
    denied = _denials()
    allowed = _allowed(PROFILE)
    if allowed is None:
        return _denial() if denied else CheckResult(True, "on; fusermount3 is not confined")
    for folder in _folders(patient):
        if not any(re.fullmatch(glob, f"{folder}/") for glob in allowed):
            return CheckResult(
                False,
                "the profile of fusermount3 does not allow mounts in this account's folder",
                "mount on a folder in your home folder, or let root allow the place in"
                f" {PROFILE.parent}/local/{PROFILE.name}",
                here=f"mount on a folder in your home folder; to allow {folder}, put"
                f" 'mount fstype=fuse.* -> {folder}/,' and 'umount {folder}/,' into"
                f" {PROFILE.parent}/local/{PROFILE.name} and run 'apparmor_parser -r {PROFILE}'"
                " as root",
            )
    if denied:
        return _denial()
    return CheckResult(True, "on; fusermount3 may mount in your home folder, not everywhere")


def _denial() -> CheckResult:
    return CheckResult(
        False,
        "the kernel's log says that AppArmor kept fusermount3 from something",
        "run 'journalctl -k --grep fusermount3' as root, and mount in your home folder",
    )


def _is_on() -> bool:
    with contextlib.suppress(OSError):
        if ENABLED.read_text().strip() != "Y":
            return False
        with contextlib.suppress(OSError):  # only root may read what is loaded
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
    rules = [rule["where"] for rule in _RULE.finditer(text) if "fuse" in rule["how"]]
    return [_expression(where) for where in rules]


def _expression(glob: str) -> str:
    """Return AppArmor's path pattern as a regular expression, with its variables expanded."""
    for name, value in (("HOME", "{/home/*,/root}"), ("run", "{/run,/var/run}"), ("uid", "*"),
                        ("HOMEDIRS", "/home/")):  # fmt: skip
        glob = glob.replace(f"@{{{name}}}", value)
    glob = glob.strip('"')
    made, depth = "", 0
    for part in re.findall(r"\*\*|\*|\?|\{|\}|,|@\{\w+\}|.", glob):
        depth += (part == "{") - (part == "}")
        made += {"**": ".*", "*": "[^/]*", "?": "[^/]", "{": "(?:", "}": ")"}.get(part) or (
            "|" if part == "," and depth else ".*" if part.startswith("@{") else re.escape(part)
        )
    return made.replace("//", "/")


def _folders(patient: DoctorFacts) -> Iterator[Path]:
    """Yield the requested or current mount point, and those in /etc/fstab."""
    if patient.folder is not None:
        yield patient.folder
    elif patient.holder is not None:
        yield patient.holder.mountpoint
    account = patient.account
    if account is not None:
        yield from (Path(fields[1]) for fields in _fstab() if fields[0] == account.base_url)


def _denials() -> bool:
    """Return True if the kernel's log has a denial; False if users cannot read the log."""
    try:
        descriptor = os.open(MESSAGES, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return _in_journal()
    try:
        while record := os.read(descriptor, 8192):
            if _DENIED.search(record.decode("utf-8", "replace")):
                return True
    except OSError:  # the end of what there is
        pass
    finally:
        os.close(descriptor)
    return False


def _in_journal() -> bool:
    command = ["journalctl", "--quiet", "--dmesg", "--no-pager", "--output=cat", "--since=-1d"]
    try:
        said = subprocess.run(  # noqa: S603
            command, capture_output=True, timeout=_SECONDS, check=False
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return False
    return _DENIED.search(said.decode("utf-8", "replace")) is not None


# ---- allow_other ----


def sharing(patient: DoctorFacts) -> CheckResult | None:
    """Check if a mount with allow_other is possible, and if one is configured."""
    if os.getuid() == 0:
        return None
    wanted = _wants_sharing(patient)
    try:
        allowed = mountpoint.may_share()
    except OSError:
        return CheckResult(
            wanted is None,
            f"{wanted or 'nothing'} wants allow_other, and /etc/fuse.conf is closed to you",
            "run 'chmod a+r /etc/fuse.conf' as root",
        )
    if allowed:
        return CheckResult(True, "allowed to users")
    if wanted is None:
        return CheckResult(
            True,
            "nothing wants it; a mount with it would be refused (no user_allow_other in"
            " /etc/fuse.conf)",
            f"to let others into a mount, {mountpoint.LET_OTHERS}",
        )
    return CheckResult(
        False,
        f"{wanted} wants allow_other, which /etc/fuse.conf does not allow to users (it lacks"
        " user_allow_other)",
        f"{mountpoint.LET_OTHERS}, or leave allow_other out",
    )


def _wants_sharing(patient: DoctorFacts) -> str | None:
    """Return the configuration that asks for allow_other, or None."""
    account = patient.account
    if account is None:
        return None
    for fields in _fstab():
        if fields[0] == account.base_url and _shares(fields[3]):
            return "/etc/fstab"
    for text in _units(account.name):
        if any(_shares(options) for options in re.findall(r"OPTIONS=([^\s\"']*)", text)):
            return "the systemd unit"
    return None


def _shares(options: str) -> bool:
    return bool(mountpoint.SHARING & set(options.split(",")))


def _fstab() -> Iterable[list[str]]:
    with contextlib.suppress(OSError):
        for line in FSTAB.read_text("utf-8", "replace").splitlines():
            fields = line.split()
            if len(fields) >= 4 and fields[2] == mountpoint.KIND and fields[0][0] != "#":
                yield fields


def _units(account: str) -> Iterator[str]:
    """Yield the texts of the account's systemd unit and its drop-ins."""
    own = config_file().parent.parent / "systemd/user"
    for folder in (*map(Path, UNITS), own):
        for name in (f"zonedrive@{account}.service", "zonedrive@.service"):
            for path in (folder / name, *(folder / f"{name}.d").glob("*.conf")):
                with contextlib.suppress(OSError):
                    lines = path.read_text("utf-8", "replace").splitlines()
                    yield "\n".join(line for line in lines if not line.startswith(("#", ";")))
