"""Where things live on this machine: the XDG folders, and below them one set for each account.

Knows nothing of what is in the files.  The XDG variables are read at every call, so that two
complete instances can live side by side.  One that is no absolute path counts for nothing, as
the XDG specification wants it: it would be another folder for each program that reads it.
"""

import contextlib
import errno
import os
import re
import shlex
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path

from zonedrive.errors import ConfigError, Homeless

DEFAULT_ACCOUNT = "default"

NO_FOLDER = "the folder that you are in is not there any more: it was removed or unmounted"
GO_ELSEWHERE = "go into another one with cd, or give the whole path"
OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


def config_file() -> Path:
    """The settings file."""
    return _base("XDG_CONFIG_HOME", ".config") / "config.toml"


def state_dir() -> Path:
    """One folder for each account, with what must not be lost."""
    return _base("XDG_STATE_HOME", ".local/state")


def cache_dir() -> Path:
    """One folder for each account, with what can be fetched again."""
    return _base("XDG_CACHE_HOME", ".cache")


def runtime_dir() -> Path:
    """Sockets and ready files.

    Where the system sets no XDG_RUNTIME_DIR (a bare container, cron), or `su` left another
    user's, or others could write to it, a private folder in the state directory stands in: a
    socket in a shared /tmp could be another user's.
    """
    base = given_runtime_dir()
    return base / "zonedrive" if base is not None else state_dir() / ".run"  # no account's name


def given_runtime_dir() -> Path | None:
    """The folder that XDG_RUNTIME_DIR names, without links; None where it is not this user's."""
    given = os.environ.get("XDG_RUNTIME_DIR", "")
    with contextlib.suppress(OSError, RuntimeError):  # links in a circle
        base = Path(given).resolve()
        if given.startswith("/") and is_private(base):
            return base
    return None


def is_any_account() -> bool:
    """Whether somebody has logged on here."""
    return any(state_dir().glob("*/account.json"))


def is_private(path: Path) -> bool:
    """Return True if only this user, or root, can change `path` or put something in its place.

    `path` has no links in it.  One that is not there yet is as private as the folder that it would
    be made in.
    """
    try:
        found = path.stat()
    except FileNotFoundError:
        return path != path.parent and is_private(path.parent)
    except OSError:
        return False
    ours = found.st_uid == os.geteuid() and not found.st_mode & OTHERS_WRITE
    return ours and is_irreplaceable(path)


def is_irreplaceable(path: Path) -> bool:
    """Return True if only this user, or root, can put something else in the place of `path`.

    What is at `path` is this user's or root's, and the name has no links in it.
    """
    return all(_keeps_names(each) for each in path.parents)


def _keeps_names(folder: Path) -> bool:
    """Return True if other users cannot rename or remove what this user has in a folder."""
    with contextlib.suppress(OSError):
        found = folder.stat()
        trusted = found.st_uid in (0, os.geteuid())
        return trusted and (not found.st_mode & OTHERS_WRITE or bool(found.st_mode & stat.S_ISVTX))
    return False


def _base(variable: str, default: str) -> Path:
    """Our folder below the one that an XDG variable names, or below its default at home."""
    given = os.environ.get(variable, "")
    return (Path(given) if given.startswith("/") else home() / default) / "zonedrive"


def home() -> Path:
    """The home folder.  Raises Homeless where the system knows of none."""
    with contextlib.suppress(RuntimeError):
        found = Path.home()
        if found.is_absolute():
            return found
    raise Homeless(
        "there is no home folder for what zonedrive keeps",
        remedy="set HOME to a folder of yours",
    )


def quoted(path: Path) -> str:
    """The path as it is typed into a shell: with quotes where it has spaces or the like."""
    return shlex.quote(os.fspath(path))


def expanded(path: str) -> Path:
    """The path, with a `~` at its beginning replaced.  Raises ConfigError where it means nobody."""
    try:
        return Path(path).expanduser()
    except RuntimeError as wrong:
        raise ConfigError(f"{path}: there is no such home folder", remedy="write it out") from wrong


@dataclass(frozen=True)
class AccountPaths:
    """The files and folders of one account."""

    account: str

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[a-z0-9-]+", self.account):
            raise ConfigError(
                f"{self.account!r} is not an account name",
                remedy="use lower-case letters, digits and hyphens",
            )

    @property
    def option(self) -> str:
        """What a command line needs to mean this account, with a space before it."""
        return "" if self.account == DEFAULT_ACCOUNT else f" --account {self.account}"

    @property
    def state(self) -> Path:
        """What must not be lost."""
        return state_dir() / self.account

    @property
    def cache(self) -> Path:
        """What can be fetched again; may be emptied at any time."""
        return cache_dir() / self.account

    @property
    def account_file(self) -> Path:
        """What `logon` found out: service, user, certificate authority, profile."""
        return self.state / "account.json"

    @property
    def account_copy(self) -> Path:
        """The same once more, for where that one is damaged."""
        return self.state / "account.copy.json"

    @property
    def secrets_file(self) -> Path:
        """The fallback where there is no keyring."""
        return self.state / "secrets.json"

    @property
    def keyring_mark(self) -> Path:
        """Exists where the secrets are in a keyring, so that none is made anew beside it."""
        return self.state / "in-keyring"

    @property
    def renewal_lock(self) -> Path:
        """Held by whoever renews the logon with the kept password."""
        return self.state / "renewal.lock"

    @property
    def database(self) -> Path:
        """Tree and journal: one file, because a change and its intent are one transaction."""
        return self.state / "tree.db"

    @property
    def outgoing(self) -> Path:
        """Bytes that the service does not have yet."""
        return self.state / "outgoing"

    @property
    def content(self) -> Path:
        """Cached bytes of files on the service."""
        return self.cache / "content"

    @property
    def log(self) -> Path:
        """Where a daemon without a terminal or journal writes."""
        return self.state / "daemon.log"

    @property
    def run_record(self) -> Path:
        """There from the moment a daemon serves until it has ended in order."""
        return self.state / "daemon.run"

    @property
    def lock(self) -> Path:
        """Held by the account's daemon as long as it lives."""
        return self.state / "daemon.lock"

    @property
    def control(self) -> Path:
        """The daemon's control socket."""
        return runtime_dir() / f"{self.account}.sock"


def obstacle(folder: Path) -> Path | None:
    """What is no folder where this one, or one above it, belongs; None where nothing is.

    A link that leads nowhere is one: no folder can be made in its place.
    """
    for each in (*reversed(folder.parents), folder):
        try:
            if not stat.S_ISDIR(each.stat().st_mode):
                return each
        except OSError as wrong:  # one that may not be looked at is another matter
            nowhere = wrong.errno in (errno.ENOENT, errno.ELOOP) and each.is_symlink()
            return each if nowhere else None
    return None


def another_users(folder: Path) -> Path | None:
    """The nearest existing folder, this or one above it, if it is neither this user's nor root's.

    Its owner could put anything in the place of what this user keeps there.
    """
    with contextlib.suppress(OSError):
        above = next(each for each in (folder, *folder.parents) if each.exists())
        return above if above.stat().st_uid not in (0, os.geteuid()) else None
    return None


def no_folder(found: Path) -> ConfigError:
    """What to say of an `obstacle`."""
    kind = "a file" if found.is_file() else "no folder" if found.exists() else "a link to nothing"
    return ConfigError(f"{found} is {kind}, where a folder is needed", remedy=way_around(found))


def way_around(found: Path) -> str:
    """What to do about an `obstacle`."""
    with contextlib.suppress(Homeless):
        if home().is_relative_to(found):
            return "set HOME, or XDG_STATE_HOME and XDG_CACHE_HOME, to folders of yours"
    bases = {
        "XDG_STATE_HOME": state_dir,
        "XDG_CACHE_HOME": cache_dir,
        "XDG_CONFIG_HOME": lambda: config_file().parent,
        "XDG_RUNTIME_DIR": runtime_dir,
    }
    for variable, base in bases.items():
        with contextlib.suppress(Homeless):
            if found.is_relative_to(base().parent) or base().is_relative_to(found):
                return f"move it away, or set {variable} to a folder of yours"
    return "move it away"


def require_folders(paths: AccountPaths) -> None:
    """Raise ConfigError where a folder that zonedrive needs is a file, or another user's."""
    with contextlib.suppress(Homeless):  # where it matters, whoever needs one says so
        for folder in (config_file().parent, paths.outgoing, paths.content, runtime_dir()):
            if found := obstacle(folder):
                raise no_folder(found)
            if found := another_users(folder):
                raise ConfigError(
                    f"{found} belongs to another user, as 'su' or 'sudo -E' leave it",
                    remedy="log in with 'su -' or 'sudo -i', or "
                    + way_around(found).removeprefix("move it away, or "),
                )


def require_file(path: Path) -> None:
    """Raise ConfigError where a pipe or a device is: it may never end, and is read only once.

    What is not there, or a folder, is left to whoever opens it.
    """
    with contextlib.suppress(OSError):
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
            raise ConfigError(
                f"{path} is a pipe or a device", remedy="it is read again later, so name a file"
            )


def private_dir(path: Path) -> Path:
    """Make `path` a folder that only its owner can enter, and give it back.

    So are the folders above it that have to be made, as the XDG specification wants it.
    """
    if not path.parent.exists():
        private_dir(path.parent)
    path.mkdir(exist_ok=True, mode=0o700)
    if path.stat().st_mode & 0o077:
        path.chmod(0o700)
    return path


def require_room(folder: Path, size: int = 65_536) -> None:
    """Raise OSError, with `folder` in it, where `size` bytes cannot be kept there.

    A folder that is not there yet is not made: it is tried in the one that it would be made in.
    """
    above = next(each for each in (folder, *folder.parents) if each.exists())
    try:
        with tempfile.TemporaryFile(dir=above, buffering=0) as file:
            if file.write(bytes(size)) < size:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    except OSError as wrong:
        raise OSError(wrong.errno, wrong.strerror, os.fspath(folder)) from wrong


def write_private(path: Path, data: bytes) -> None:
    """Replace `path` by a 0600 file with `data`, whole or not at all, also in a power cut."""
    private_dir(path.parent)
    new = path.with_name(f".{path.name}.{os.getpid()}.new")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
    except BaseException:
        new.unlink(missing_ok=True)
        raise
