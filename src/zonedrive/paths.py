"""Paths of zonedrive's folders and of each account's files, below the XDG directories.

The XDG variables are read at every call, so that two complete instances can run side by side. A
variable with a relative path is ignored, as the XDG specification requires, because a relative path
would name a different folder for each program. The organization's policies state_dir and cache_dir
take precedence over the variables.
"""

import contextlib
import ctypes
import errno
import fcntl
import functools
import os
import pwd
import re
import shlex
import stat
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeGuard

from zonedrive.errors import BadOption, ConfigError, ForeignFolder, NoHomeDirectory, NotLoggedOn
from zonedrive.translation import marked

DEFAULT_ACCOUNT = "default"
LONGEST_NAME = 64  # characters of an account's name, which is part of the names of files
NO_FOLDER = "the current folder does not exist any more: it was removed or unmounted"
GO_ELSEWHERE = "change to another folder with cd, or give the absolute path"
OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
FAULTY = marked("look at 'dmesg' and have the disk checked")  # remedy for EIO
CLOSED = marked("make it and its folder readable and writable for you")  # remedy for EACCES
SMALL = 65_536  # bytes that a disk must have room for


SYSTEM_FOLDER = Path("/etc/zonedrive")
"""Administrator's folder, with config.toml and profiles/. No variable changes this path."""


def config_file() -> Path:
    """Return the path of the settings file."""
    return _base("XDG_CONFIG_HOME", ".config") / "config.toml"


def state_dir() -> Path:
    """Return the folder for durable data, with one folder for each account.

    Raises NoHomeDirectory if the home folder is needed but cannot be determined, and ForeignFolder
    if another user has created the folder.
    """
    return _by_policy("state_dir") or _base("XDG_STATE_HOME", ".local/state")


def has_accounts() -> bool:
    """Return True if the state folder has the data of an account, or cannot be read.

    In both cases, the user must not simply choose another state folder, because zonedrive would no
    longer find the data and send the pending changes.
    """
    try:
        folder = state_dir()
    except NoHomeDirectory:
        return False
    try:
        return any(_may_exist(each / "account.json") for each in folder.iterdir())
    except OSError:
        return os.path.exists(folder)  # noqa: PTH110 - False if a folder above cannot be entered


def cache_dir() -> Path:
    """Return the folder for data that can be fetched again, with one folder for each account."""
    return _by_policy("cache_dir") or _base("XDG_CACHE_HOME", ".cache")


def runtime_dir() -> Path:
    """Return the folder for sockets and lock files.

    A private folder in the state folder is used if XDG_RUNTIME_DIR is not set (in a bare container
    or cron), belongs to another user (after `su`), or is writable for others. /tmp is not used,
    because another user could create the socket there.
    """
    base = given_runtime_dir()
    return (
        base / "zonedrive" if base is not None else state_dir() / ".run"
    )  # no account has this name


def given_runtime_dir() -> Path | None:
    """Return the path in XDG_RUNTIME_DIR with links resolved, or None.

    None means that the variable has no absolute path, or that the folder is not private (see
    `is_private`).
    """
    given = os.environ.get("XDG_RUNTIME_DIR", "")
    with contextlib.suppress(OSError, RuntimeError):  # links in a cycle
        base = Path(given).resolve()
        if given.startswith("/") and is_private(base):
            return base
    return None


def is_private(path: Path) -> bool:
    """Return True if `path` belongs to this user, and no user but root can change or replace it.

    `path` must not contain links. A missing file is as private as its nearest existing parent.
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
    """Return True if only this user or root can replace `path` by another file.

    `path` must belong to this user or root, and must not contain links.
    """
    return all(_keeps_names(each) for each in path.parents)


def _keeps_names(folder: Path) -> bool:
    """Return True if other users cannot rename or remove this user's files in `folder`."""
    with contextlib.suppress(OSError):
        found = folder.stat()
        trusted = found.st_uid in (0, os.geteuid())
        return trusted and (not found.st_mode & OTHERS_WRITE or bool(found.st_mode & stat.S_ISVTX))
    return False


POLICY_FOLDERS = ("state_dir", "cache_dir")
"""Policies that place folders outside the home folders, with a subfolder for each user ID."""


@functools.cache  # the folders of a running daemon do not move
def policy_folders(file: Path = SYSTEM_FOLDER / "config.toml") -> dict[str, Path]:
    """Return the folders that the policies POLICY_FOLDERS set, by name of the policy.

    A value that is not an absolute path is left out. Errors in the file are ignored here, and
    reported by `config`.
    """
    policy = _policy(file) or {}
    given = {name: policy.get(name) for name in POLICY_FOLDERS}
    return {name: Path(text) for name, text in given.items() if is_absolute(text)}


def _policy(file: Path) -> dict[str, object] | None:
    """Return the table `policy` of the administrator's file, or None if the file cannot be read.

    Return {} if the file or the table is missing.
    """
    try:
        file.lstat()
    except FileNotFoundError:
        return {}
    except OSError:
        return None
    if not os.path.isfile(file):  # noqa: PTH113  False without access
        return None
    from zonedrive import toml_input

    try:
        policy = toml_input.parse(file.read_text("utf-8-sig")).get("policy", {})
    except (OSError, ValueError):
        return None
    return policy if isinstance(policy, dict) else None


def is_absolute(value: object) -> TypeGuard[str]:
    """Return True for a string that is an absolute path."""
    return isinstance(value, str) and value.startswith("/") and "\0" not in value


def _by_policy(name: str) -> Path | None:
    """Return this user's subfolder of the folder that the policy `name` sets.

    Return None if the policy is not set. Raises ForeignFolder if another user has created the
    subfolder.
    """
    folder = policy_folders().get(name)
    return own_subfolder(folder) if folder else None


def own_subfolder(folder: Path) -> Path:
    """Return this user's subfolder of `folder`, a folder in which all users may create files.

    The subfolder need not exist. Raises ForeignFolder if the subfolder is a link or a file, or
    belongs to another user except root. Such a user could store an account there that uploads to a
    different service.
    """
    own = folder / str(os.geteuid())
    with contextlib.suppress(OSError):
        found = own.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid not in (0, os.geteuid()):
            raise ForeignFolder(
                f"{own} is not a folder of this user",
                remedy="ask the administrator to remove it",
            )
    return own


def require_policy_folders(folders: dict[str, Path]) -> None:
    """Raise ConfigError for a folder in which this user cannot have a private subfolder.

    The error is raised if the folder is missing, if users can replace each other's subfolders, or
    if this user has no subfolder and cannot create one. `folders` maps the names of policies to
    folders.
    """
    for name, folder in folders.items():
        wrong = ""
        if not folder.is_dir():
            wrong = "does not exist"
        elif not is_irreplaceable(folder.resolve() / "user"):
            wrong = "lets users replace each other's folders"
        elif not _can_have_subfolder(folder):
            wrong = "cannot have a folder of this user"
        if wrong:
            raise ConfigError(
                f"{folder}, the policy {name} of the organization, {wrong}",
                remedy=f"ask the administrator to run 'install -d -m 1777 {quoted(folder)}'",
            )


def _can_have_subfolder(folder: Path) -> bool:
    """Return True if `folder` has this user's subfolder, or if this user can create it."""
    own = folder / str(os.geteuid())
    return own.exists() or os.access(folder, os.W_OK | os.X_OK)


def _base(variable: str, default: str) -> Path:
    """Return the folder `zonedrive` in an XDG directory.

    The directory is the value of `variable` or, if that is not an absolute path, the path `default`
    in the home folder.
    """
    given = os.environ.get(variable, "")
    return (Path(given) if given.startswith("/") else home() / default) / "zonedrive"


def home() -> Path:
    """Return the home folder. Raises NoHomeDirectory if the home folder cannot be determined."""
    with contextlib.suppress(RuntimeError):
        found = Path.home()
        if found.is_absolute():
            return found
    raise NoHomeDirectory(
        "there is no home folder for zonedrive's files",
        remedy="set HOME to a folder that you own",
    )


def quoted(path: Path) -> str:
    """Return the path as a shell word, quoted if necessary."""
    return shlex.quote(os.fspath(path))


def expanded(path: str) -> Path:
    """Return `path` with a leading `~` or `~USER` expanded.

    Raises ConfigError if that home folder cannot be determined.
    """
    try:
        return Path(path).expanduser()
    except RuntimeError as wrong:
        raise ConfigError(
            f"{path}: there is no such home folder", remedy="give the absolute path"
        ) from wrong


class _InState:
    """Descriptor that returns the path of a file or folder in an account's state folder."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, paths: "AccountPaths", owner: type) -> Path:
        return paths.state / self._name


def name_remedy(name: str) -> str:
    """Return the remedy for a string that is not an account name, or "" for an account name.

    The name of an account that exists already may be longer than that of a new account.
    """
    if not re.fullmatch("[a-z0-9-]+", name):
        return marked("use lower-case letters, digits and hyphens")
    if len(name) > LONGEST_NAME and not os.path.isdir(state_dir() / name):  # noqa: PTH112  as above
        return marked(f"use at most {LONGEST_NAME} characters")
    return ""


@dataclass(frozen=True)
class AccountPaths:
    """Paths of one account's files and folders. Raises BadOption for an invalid account name."""

    account: str
    # State folder of a daemon that began under another policy, as soon as it is known.
    _kept: list[Path] = field(default_factory=list, init=False, repr=False, compare=False)

    account_file = _InState("account.json")  # service, user, certificate authority and profile
    account_copy = _InState("account.copy.json")  # used if the account file is missing or damaged
    ca_copy = _InState("ca.pem")  # CA certificates that the user specified at the logon
    secrets_file = _InState("secrets.json")  # secrets of an account without a keyring
    keyring_mark = _InState("in-keyring")  # the secrets are in a keyring, by the id in this file
    renewal_lock = _InState("renewal.lock")  # held while the stored password renews the logon
    database = _InState("tree.db")  # inodes and intents, so that both change in one transaction
    outgoing = _InState("outgoing")  # folder of file contents that are not uploaded yet
    log = _InState("daemon.log")  # of a daemon without a terminal or journal
    run_record = _InState("daemon.run")  # exists from the start of a daemon until its orderly end
    pause = _InState("pause.json")  # exists while uploads are paused
    lock = _InState("daemon.lock")  # held by the account's running daemon

    def __post_init__(self) -> None:
        if remedy := name_remedy(self.account):
            raise BadOption(f"{self.account!r} is not an account name", remedy=remedy)

    @property
    def option(self) -> str:
        """Option `--account NAME` with a leading space, or "" for the default account."""
        return "" if self.account == DEFAULT_ACCOUNT else f" --account {self.account}"

    @property
    def state(self) -> Path:
        """Folder of data that must not be lost.

        If the policy `state_dir` has changed since the start of the running daemon, the result is
        the folder that the daemon uses. This object then returns the same folder even after the
        daemon has ended.
        """
        if not self._kept:
            kept = _daemons_state(self.account)
            if kept is None:
                return state_dir() / self.account
            self._kept.append(kept)
        return self._kept[0]

    @property
    def is_logged_on(self) -> bool:
        """True if the account file or its copy exists, or if it is unknown whether one exists."""
        return _may_exist(self.account_file) or _may_exist(self.account_copy)

    @property
    def cache(self) -> Path:
        """Folder of data that can be fetched again; the folder may be emptied at any time."""
        return cache_dir() / self.account

    @property
    def content(self) -> Path:
        """Folder of the cached content of remote files."""
        return self.cache / "content"

    @property
    def control(self) -> Path:
        """Control socket of the daemon."""
        base = given_runtime_dir()
        folder = self.state.parent / ".run" if base is None else base / "zonedrive"
        return folder / f"{self.account}.sock"


def _may_exist(path: Path) -> bool:
    """Return True if `path` exists, or if that is unknown, for example without permission."""
    try:
        path.stat()
    except OSError as wrong:
        return wrong.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
    return True


def obstacle(folder: Path) -> Path | None:
    """Return the file that occupies the path of `folder` or of one of its parents, or None.

    A broken link counts, because no folder can be created in its place.
    """
    for each in (*reversed(folder.parents), folder):
        try:
            if not stat.S_ISDIR(each.stat().st_mode):
                return each
        except OSError as wrong:  # a folder without access permission is not an obstacle
            nowhere = wrong.errno in (errno.ENOENT, errno.ELOOP) and each.is_symlink()
            return each if nowhere else None
    return None


def no_folder(found: Path) -> ConfigError:
    """Return the error for `found`, a path that `obstacle` returned."""
    kind = "a file" if found.is_file() else "no folder" if found.exists() else "a broken link"
    return ConfigError(f"{found} is {kind}, where a folder is needed", remedy=_way_around(found))


def _way_around(found: Path) -> str:
    """Return a remedy for the path `found`, which makes a folder of zonedrive unusable."""
    with contextlib.suppress(NoHomeDirectory):
        if home().is_relative_to(found):
            return "set HOME, or XDG_STATE_HOME and XDG_CACHE_HOME, to folders that you own"
    bases = {
        "XDG_STATE_HOME": state_dir,
        "XDG_CACHE_HOME": cache_dir,
        "XDG_CONFIG_HOME": lambda: config_file().parent,
        "XDG_RUNTIME_DIR": runtime_dir,
    }
    for variable, base in bases.items():
        with contextlib.suppress(NoHomeDirectory):
            if found.is_relative_to(base().parent) or base().is_relative_to(found):
                return f"move it away, or set {variable} to a folder that you own"
    return "move it away"


def require_folders(paths: AccountPaths) -> None:
    """Raise ConfigError if a folder that zonedrive needs is a file or belongs to another user.

    A file in the place of the cache folder is accepted, because a mount works without a cache.
    """
    require_policy_folders(policy_folders())
    for folder in _folders(paths):
        if folder != paths.content and (found := obstacle(folder)):
            raise no_folder(found)
    require_own_folders(paths)


def require_own_folders(paths: AccountPaths) -> None:
    """Raise ForeignFolder if a folder that zonedrive needs belongs to another user."""
    for folder in _folders(paths):
        require_own_folder(folder)


def require_own_folder(folder: Path) -> None:
    """Raise ForeignFolder if `folder` belongs to another user.

    Root may own a folder. Any other owner could replace the files that this user stores there. If
    `folder` is missing or cannot be reached, the owner of its nearest reachable parent is checked.
    """
    for above in (folder, *folder.parents):
        with contextlib.suppress(OSError):
            if above.stat().st_uid not in (0, os.geteuid()):
                raise _foreign(above)
            break


def _foreign(folder: Path) -> ForeignFolder:
    """Return the error for `folder`, which belongs to another user.

    The remedy depends on the likely reason. A folder in this user's home folder probably got its
    owner from an earlier user id or a restored backup. The path of any other folder probably comes
    from the environment of another user's shell. HOME may come from that shell, too, so the home
    folder is read from the user database.
    """
    way = _way_around(folder).removeprefix("move it away, or ")
    with contextlib.suppress(KeyError):  # a user id without an entry
        own_home = Path(pwd.getpwuid(os.geteuid()).pw_dir)
        if own_home.parent != own_home and folder.is_relative_to(own_home):
            return ForeignFolder(
                f"{folder} belongs to another user",
                remedy=f"run 'sudo chown -R USER FOLDER' if the files in it are yours;"
                f" otherwise {way}",
            )
    return ForeignFolder(
        f"{folder} belongs to another user, as 'su' or 'sudo -E' leave it",
        remedy=f"log in with 'su -' or 'sudo -i', or {way}",
    )


def _folders(paths: AccountPaths) -> Iterator[Path]:
    """Yield the folders that zonedrive needs, except those whose paths are unknown.

    Raises ForeignFolder if another user created this user's folder below the folder of a policy.
    """
    finders: tuple[Callable[[], Path], ...] = (
        lambda: config_file().parent,
        lambda: paths.outgoing,
        lambda: paths.content,
        runtime_dir,
    )
    for find in finders:
        try:
            folder = find()
        except ForeignFolder:
            raise
        except NoHomeDirectory:  # raised by code that needs the folder
            continue
        yield folder


def note_state_dir() -> None:
    """Add the folder of the policy `state_dir` to the user's list of such folders.

    `not_moved` needs the list once the policy has another value. Without a policy, or if the home
    folder cannot be written, nothing is done.
    """
    folder = policy_folders().get("state_dir")
    with contextlib.suppress(OSError, NoHomeDirectory):
        noted = _noted_state_dirs()
        if folder is not None and folder not in noted:
            lines = b"".join(os.fsencode(each) + b"\0" for each in (folder, *noted))
            write_private(_home_state_dir() / _NOTED, lines)


def _noted_state_dirs() -> list[Path]:
    with contextlib.suppress(OSError):
        names = (_home_state_dir() / _NOTED).read_bytes().split(b"\0")
        return [Path(os.fsdecode(each)) for each in names if each.startswith(b"/")]
    return []


def _home_state_dir() -> Path:
    return _base("XDG_STATE_HOME", ".local/state")


_NOTED = ".state-dirs"  # no account has this name


def former_state_dirs() -> list[Path]:
    """Return the folders that `state_dir` may have returned before the policy was set or changed.

    The first of them is the folder that is used if no policy is set. The result is empty if there
    is no home folder.
    """
    found: list[Path] = []
    with contextlib.suppress(NoHomeDirectory):
        found.append(_home_state_dir())
        for folder in _noted_state_dirs():
            with contextlib.suppress(NoHomeDirectory):  # another user has created it
                found.append(own_subfolder(folder))
    return found


def _is_policy_readable() -> bool:
    """Return True if the policy `state_dir` is not set, or is set to an absolute path."""
    policy = _policy(SYSTEM_FOLDER / "config.toml")
    return policy is not None and ("state_dir" not in policy or is_absolute(policy["state_dir"]))


def _daemons_state(account: str) -> Path | None:
    """Return the state folder of a daemon that started before the policy `state_dir` changed.

    Return None if the account's daemon uses the current folder, or is not running.
    """
    today = state_dir() / account
    if _may_exist(today / "account.json"):
        return None
    for folder in former_state_dirs():
        if folder != today.parent and is_locked(folder / account / "daemon.lock"):
            return folder / account
    return None


def is_locked(lock: Path) -> bool:
    """Return True if a process, such as the account's daemon, holds the lock exclusively."""
    try:
        with lock.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        pass
    return False


def not_moved(paths: AccountPaths) -> NotLoggedOn | None:
    """Return the error for an account whose state folder must be moved, or None.

    The folder must be moved if it is still at a path that was used before the policy `state_dir`
    was set, changed or removed. If the user logged on again instead, the pending changes in the
    former folder would never be sent.
    """
    if paths.is_logged_on:
        return None
    # A policy that cannot be read may name any of the folders with another policy.
    candidates = former_state_dirs()[: None if _is_policy_readable() else 1]
    for former in (folder / paths.account for folder in candidates):
        with contextlib.suppress(PermissionError):  # closed by the administrator
            if former != paths.state and (former / "account.json").exists():
                break
    else:
        return None
    return NotLoggedOn(
        f"the account {paths.account!r} is in {former}, and the computer keeps accounts in"
        f" {paths.state.parent}",
        remedy=f"run 'mkdir -p -m 700 {quoted(paths.state.parent)} && mv {quoted(former)}"
        f" {quoted(paths.state)}', without a mount of the account",
    )


def not_logged_on(paths: AccountPaths) -> NotLoggedOn:
    """Return the error for an account that is not logged on; its remedy names the other accounts.

    If the account was logged on before the policy `state_dir` was set, changed or removed, the
    remedy is to move the account's state folder.
    """
    if moved := not_moved(paths):
        return moved
    names = sorted(each.parent.name for each in state_dir().glob("*/account.json"))
    there = f" (accounts on this computer: {', '.join(names)})" if names else ""
    return NotLoggedOn(
        f"the account {paths.account!r} is not logged on",
        remedy=f"run zonedrive logon URL{paths.option}{there}",
    )


def require_moved(paths: AccountPaths) -> None:
    """Raise NotLoggedOn if the account's folder must be moved before a logon; see `not_moved`."""
    with contextlib.suppress(NoHomeDirectory):
        if moved := not_moved(paths):
            raise moved


def require_file(path: Path) -> None:
    """Raise ConfigError if `path` is a pipe or a device, whose data may never end.

    A missing file or a folder is reported by the code that opens it.
    """
    with contextlib.suppress(OSError):
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
            raise ConfigError(
                f"{path} is a pipe or a device", remedy="name a file, because it is read repeatedly"
            )


def private_dir(path: Path) -> Path:
    """Create the folder `path` with mode 0700, or restrict an existing folder; return `path`.

    Missing parent folders are created with the same mode, as the XDG specification requires.
    """
    if not path.parent.exists():
        private_dir(path.parent)
    path.mkdir(exist_ok=True, mode=0o700)
    if path.stat().st_mode & 0o077:
        path.chmod(0o700)
    return path


def nearest_existing(path: Path) -> Path:
    """Return `path` or its nearest parent that exists and can be reached."""
    return next(each for each in (path, *path.parents) if os.path.exists(each))  # noqa: PTH110


def require_room(folder: Path) -> None:
    """Raise OSError if no file of SMALL bytes can be written in `folder`.

    The error names `folder`. A missing folder is not created; its nearest existing parent is
    tested.
    """
    try:
        with tempfile.TemporaryFile(dir=nearest_existing(folder), buffering=0) as file:
            left = SMALL
            while left:  # a write of fewer bytes does not tell the cause, but the next write does
                left -= file.write(bytes(left))
    except OSError as wrong:
        raise OSError(wrong.errno, wrong.strerror, os.fspath(folder)) from wrong


def sync_folder(folder: Path) -> None:
    """Flush changes to the directory entries of `folder` to the disk. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_file_system(folder: Path) -> None:
    """Flush all files of the file system of `folder` to the disk. This is slow. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if ctypes.CDLL(None, use_errno=True).syncfs(descriptor):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), os.fspath(folder))
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def lock_file(path: Path, *, wait: bool) -> Iterator[bool]:
    """Lock the file `path`, which is created if necessary, while the `with` block runs.

    Yield True when this process holds the lock. If another process holds the lock, wait for the
    lock if `wait` is True, and yield False if `wait` is False. Raises OSError if the folder of the
    file is missing.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(descriptor)


def write_private(path: Path, data: bytes) -> None:
    """Replace the file at `path` atomically by a file with `data` and mode 0600.

    After a power cut during the call, the file has either the old or the new content. A power cut
    after the call does not affect the new content. The parent folder gets mode 0700. Raises
    OSError.
    """
    private_dir(path.parent)
    new = path.with_name(f".{path.name}.{os.getpid()}.new")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
        sync_folder(path.parent)
    except BaseException:
        new.unlink(missing_ok=True)
        raise
