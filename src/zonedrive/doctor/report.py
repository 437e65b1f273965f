"""Report for a bug tracker, with versions, machine, settings, check results and log.

This module runs no checks and does not judge the values.

INVARIANT: the report contains no secret, and no name of a person, an account, a file, a zone or a
host. Therefore no value is copied unchecked. Each value is a number, one of a few known words, a
version, or a text that zonedrive itself defines.
"""

import importlib.metadata
import locale
import os
import platform
import re
import shutil
import ssl
import subprocess
import sys
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import zonedrive
from zonedrive.config import NAMES, Settings
from zonedrive.daemon import logs
from zonedrive.db import SQLITE
from zonedrive.doctor.facts import DoctorFacts
from zonedrive.errors import ConfigError, NoHomeDirectory
from zonedrive.fuse import mountpoint
from zonedrive.logon.session_bus import session_bus

LINES = 400  # number of lines from the end of the log
LIBRARIES = ("pyfuse3", "trio", "httpx", "msgspec", "cryptography", "keyring", "click", "rich")
VITALS = ("version", "state", "encrypt", "waiting", "failed", "held", "tries", "conflicts",
          "damaged", "lost", "unfetched")  # fmt: skip
DESKTOPS = frozenset({"GNOME", "KDE", "XFCE", "LXDE", "LXQt", "MATE", "X-Cinnamon", "Budgie",
                      "sway", "Hyprland", "Unity", "ubuntu", "Pantheon"})  # fmt: skip
FLAGS = frozenset({"ro", "rw", "allow_other", "default_permissions", "noexec", "noatime"})
_VERSION = re.compile(r"[0-9]+(?:\.[0-9]+)*(?:[-+~.][0-9]+)*")


def text(facts: DoctorFacts, checks: Sequence[Mapping[str, object]]) -> str:
    """Return the whole report; `checks` are the objects that `doctor.examine` yielded."""
    told = ["zonedrive: a report without names or secrets", ""]
    for title, found in (
        ("Versions", _versions()),
        ("Machine", _machine()),
        ("Account", _account(facts)),
        ("Settings", _settings(facts)),
        ("Daemon", _daemon(facts)),
    ):
        told += [f"## {title}", "", *(f"{name}: {value}" for name, value in found), ""]
    told += ["## Checks", ""]
    for check in checks:
        told.append(f"{'ok ' if check['ok'] else 'BAD'}  {check['name']}: {check['detail']}")
        if check["remedy"]:
            told.append(f"     {check['remedy']}")
    told += ["", "## Log", "", *_log(facts)]
    return "\n".join(told) + "\n"


def _version(found: str) -> str:
    """Return the first version number in a text, or "unknown"; omit suffixes such as "ubuntu1"."""
    number = _VERSION.search(found)
    return number[0] if number else "unknown"


def _versions() -> Iterator[tuple[str, str]]:
    yield "zonedrive", f"{zonedrive.__version__}, {_origin()}"
    yield "Python", platform.python_version()
    for name in LIBRARIES:
        try:
            yield name, _version(importlib.metadata.version(name))
        except importlib.metadata.PackageNotFoundError:
            yield name, "not installed"
    try:
        import pycurl  # imported here, so that a broken pycurl does not prevent the report
    except ImportError:
        yield "libcurl", "not installed"
    else:
        told = pycurl.version_info()
        yield "libcurl", f"{_version(told[1])} with {told[5]}"
    yield "SQLite", SQLITE
    yield "OpenSSL", _version(ssl.OPENSSL_VERSION)
    yield "fusermount3", _fusermount()


def _origin() -> str:
    """Return a description of zonedrive's installation, guessed from the path of the package."""
    path = os.fspath(Path(zonedrive.__file__))
    for part, name in (
        ("/usr/lib/zonedrive/", "the package with its libraries"),
        ("/usr/lib/python3/", "the package"),
        ("/pipx/", "by pipx"),
        ("site-packages", "by pip"),
    ):
        if part in path:
            return name
    return "a checkout"


def _fusermount() -> str:
    found = shutil.which("fusermount3")
    if found is None:
        return "not installed"
    try:
        said = subprocess.run(  # noqa: S603
            [found, "--version"], capture_output=True, timeout=10, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return "does not answer"
    return _version(said.stdout.decode("ascii", "replace").rpartition(" ")[2])


def _machine() -> Iterator[tuple[str, str]]:
    try:
        system = platform.freedesktop_os_release()
    except OSError:
        system = {}
    name = re.sub(r"[^a-z0-9]", "", system.get("ID", "unknown"))
    yield "system", f"{name} {_version(system.get('VERSION_ID', ''))}"
    yield "kernel", f"{_version(os.uname().release)} {os.uname().machine}"
    yield "user", "root" if os.getuid() == 0 else "not root"
    marks = ("/.dockerenv", "/run/.containerenv", "/run/systemd/container")
    yield "container", _yes(any(Path(mark).exists() for mark in marks))
    yield "encoding", f"{sys.getfilesystemencoding()}, locale {locale.getencoding()}"
    desktops = set(os.environ.get("XDG_CURRENT_DESKTOP", "").split(":")) & DESKTOPS
    yield "desktop", ", ".join(sorted(desktops)) or "unknown"
    yield "session bus", _yes(session_bus() is not None)
    yield "XDG_RUNTIME_DIR set", _yes(bool(os.environ.get("XDG_RUNTIME_DIR")))
    yield "mounts of zonedrive", str(sum(each.ours for each in mountpoint.mounts()))


def _yes(it_is: bool) -> str:
    return "yes" if it_is else "no"


def _account(facts: DoctorFacts) -> Iterator[tuple[str, str]]:
    try:
        account = facts.account
    except ConfigError:
        yield "logon", "damaged"
        return
    if account is None:
        yield "logon", "none"
        return
    yield "secrets", facts.secrets.kind
    yield "logon", "in a browser" if account.sign_on else "with a password"
    yield "password kept", _yes(account.keeps_password)
    yield "own certificate authority", _yes(account.ca_file is not None)
    yield "named account", _yes(account.name != "default")


def _settings(facts: DoctorFacts) -> Iterator[tuple[str, str]]:
    try:
        settings = facts.settings
    except ConfigError:
        yield "config.toml", "cannot be used"
        return
    for name in NAMES:
        value = getattr(settings, name)
        if value == getattr(Settings(), name):
            continue
        if isinstance(value, tuple):
            yield name, f"{len(value)} own values"
        else:
            yield name, "set" if name == "profile" else str(value)
    yield "all others", "default"


def _daemon(facts: DoctorFacts) -> Iterator[tuple[str, str]]:
    try:
        yield "running", _yes(facts.running)
    except NoHomeDirectory:
        yield "running", "unknown"
        return
    vitals = facts.vitals or {}
    for name in VITALS:
        value = vitals.get(name)
        if name == "version":
            yield name, _version(str(value))
        elif isinstance(value, bool | int) or value in logs.KNOWN:
            yield name, str(value).lower()
    if facts.holder is None:
        return
    for each in mountpoint.mounts():
        if each.ours and each.path == facts.holder.mountpoint:
            yield "mount options", ", ".join(sorted(FLAGS & each.options))


def _log(facts: DoctorFacts) -> Iterator[str]:
    """Yield the last LINES lines of the account's anonymized log."""
    try:
        with logs.anonymous(facts.paths.log).open(encoding="utf-8", errors="replace") as file:
            yield from map(str.rstrip, deque(file, LINES))
    except (OSError, NoHomeDirectory):
        yield "there is no log"
