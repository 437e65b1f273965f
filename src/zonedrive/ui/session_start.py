"""Mounting of accounts at each login, with a systemd user unit or the desktop's autostart.

The unit mounts the account on the account's default folder. If the unit file contains another
folder, a drop-in sets the default folder. If the account is mounted elsewhere, or if there is no
service manager or no unit, a file in the desktop's autostart folder is used.
"""

import errno
import os
import subprocess
import sys
from pathlib import Path

from zonedrive.paths import config_file, home
from zonedrive.ui import accounts
from zonedrive.ui.commands import Outcome

SECONDS = 60.0


def is_on(name: str) -> bool:
    """Return True if the account is mounted at each login."""
    return _entry(name).exists() or _systemctl("is-enabled", "--quiet", _unit(name)).ok


def choose(name: str, mountpoint: str, *, start: bool) -> None:
    """Set up mounting the account at each login, or undo the setup if `start` is False.

    `mountpoint` is the folder to mount on; "" means the default folder. The unit is enabled or the
    autostart file exists, never both, because an account has one mount. Raises OSError if a file or
    folder cannot be written, or if `_word` rejects the path of the folder to mount on.
    """
    folder = Path(mountpoint) if mountpoint else accounts.default_folder(name)
    if start:
        _word(folder)
    is_unit = has_unit(name)
    by_unit = start and is_unit and folder == accounts.default_folder(name)
    if is_unit:
        _set_up_unit(name)  # for a manual start; after a logoff, this removes the drop-in
        done = _systemctl("enable" if by_unit else "disable", _unit(name))
        by_unit = by_unit and done.ok
    entry = _entry(name)
    if start and not by_unit:
        if not mountpoint:  # the default folder; `zonedrive mount` does not create a folder
            folder.mkdir(parents=True, exist_ok=True)
        _replace(entry, text(name, folder))
    else:
        entry.unlink(missing_ok=True)


def begin(name: str) -> Path:
    """Set up mounting the account at each login, and return the folder to mount on.

    The folder is the account's current mount point if one is known, else the default folder. Raises
    NotLoggedOn, or the errors of `choose`.
    """
    mountpoint = accounts.view(name).mountpoint
    choose(name, mountpoint, start=True)
    return Path(mountpoint) if mountpoint else accounts.default_folder(name)


def advice(name: str) -> str:
    """Return a hint on how to mount the account at each login, or "" if this is already set up."""
    if is_on(name):
        return ""
    if has_unit(name):
        return f"to mount it at each login, run 'systemctl --user enable --now {_unit(name)}'"
    return "to mount it at each login, repeat this with --at-login, or open 'zonedrive ui'"


def has_unit(name: str) -> bool:
    """Return True if this user's service manager has the account's unit."""
    return _systemctl("cat", _unit(name)).ok


def start_unit(name: str) -> Outcome:
    """Start the account's unit, which mounts on the default folder, and return the result."""
    _set_up_unit(name)
    return _systemctl("start", _unit(name))


def _set_up_unit(name: str) -> None:
    """Make the unit mount the account on the default folder.

    Write a drop-in if the folder in the unit file differs; otherwise, remove the drop-in. Raises
    OSError if the drop-in cannot be written or removed.
    """
    folder, file = accounts.default_folder(name), _drop_in(name)
    if folder == home() / "Zones" / name:
        file.unlink(missing_ok=True)
    else:
        place = _escaped(_word(folder), '\\"').replace("%", "%%")
        _replace(file, f'[Service]\nEnvironment="MOUNTPOINT={place}"\n')
    _systemctl("daemon-reload")


def _replace(file: Path, content: str) -> None:
    """Replace the content of `file`, or of its target if `file` is a link.

    Create the file and its folder if necessary. Raises OSError; the file is then unchanged.
    """
    file = Path(os.path.realpath(file))  # also of a link to itself
    file.parent.mkdir(parents=True, exist_ok=True)
    new = file.with_name(f"{file.name}.new")  # of no type that systemd or a desktop reads
    try:
        new.write_text(content, "utf-8")
        new.replace(file)
    finally:
        new.unlink(missing_ok=True)


def _drop_in(name: str) -> Path:
    return _config() / "systemd" / "user" / f"{_unit(name)}.d" / "folder.conf"


def _unit(name: str) -> str:
    return f"zonedrive@{name}.service"


def _systemctl(*words: str) -> Outcome:
    try:
        done = subprocess.run(  # noqa: S603
            ["systemctl", "--user", *words],  # noqa: S607  found as in a shell
            stdin=subprocess.DEVNULL, capture_output=True, timeout=SECONDS, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as wrong:
        return Outcome(1, "", str(wrong))
    return Outcome(done.returncode, "", done.stderr.decode("utf-8", "replace").strip())


def _config() -> Path:
    return config_file().parents[1]  # zonedrive's own folder is below


def _entry(name: str) -> Path:
    return _config() / "autostart" / f"zonedrive-{name}.desktop"


def _escaped(word: str, special: str) -> str:
    """Return the word with a backslash before each character of `special`.

    The first character of `special` must be the backslash.
    """
    for char in special:
        word = word.replace(char, f"\\{char}")
    return word


def _word(folder: Path) -> str:
    """Return a folder's path as text for a systemd unit file or a desktop entry.

    Raises OSError if the path is not UTF-8 or contains a newline, which these files cannot contain.
    """
    word = os.fspath(folder)
    if os.fsencode(word).decode("utf-8", "replace") != word or "\n" in word:
        raise OSError(errno.EILSEQ, os.strerror(errno.EILSEQ), word)
    return word


def _quoted(word: str) -> str:
    """Return the word as the Desktop Entry Specification requires it in the line Exec."""
    escaped = _escaped(word, '\\"`$').replace("\\", "\\\\")  # escaped as a string of the file, too
    return f'"{escaped}"'.replace("%", "%%")


def _program() -> list[str]:
    """Return the command words that run this installation even if it is not in PATH."""
    started = Path(sys.argv[0])
    if started.is_absolute() and started.name == "zonedrive" and started.is_file():
        return [os.fspath(started)]
    return [sys.executable, "-P", "-m", "zonedrive"]


def text(name: str, folder: Path) -> str:
    """Return the content of the autostart file that mounts the account on `folder`."""
    program = " ".join(map(_quoted, _program()))
    return (
        "[Desktop Entry]\nType=Application\nName=Zones\nIcon=zonedrive\nNoDisplay=true\n"
        f"Exec={program} mount {_quoted(_word(folder))} --account {name}\n"
    )
