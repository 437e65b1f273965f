"""The client of the control socket, and which daemon a path belongs to.

Must not know what a command means.

INVARIANT: a daemon that hangs is found out within some seconds, whatever was asked and however long
that may take; one that is busy is not taken for it.  Nothing here looks at a file in a mount.
"""

import errno
import os
import socket
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from zonedrive.cli.patience import Patience, connect
from zonedrive.daemon import lock, process, protocol
from zonedrive.daemon.protocol import Message
from zonedrive.errors import ConfigError, MountEnded, NotLoggedOn, ZonedriveError
from zonedrive.fuse import mountpoint
from zonedrive.paths import DEFAULT_ACCOUNT, AccountPaths, quoted, require_folders, state_dir

LISTEN_SECONDS = 5.0
"""How long a daemon may take to make its socket anew."""


class NoDaemon(ZonedriveError):
    """The account is not mounted."""

    def __init__(self, account: str) -> None:
        super().__init__(
            f"account {account} is not mounted",
            remedy=f"run 'zonedrive mount DIR{AccountPaths(account).option}'",
        )


class Silent(ZonedriveError):
    """The account's daemon lives and does not answer."""

    def __init__(self, paths: AccountPaths) -> None:
        super().__init__(
            f"the daemon of account {paths.account} does not answer", remedy=anew(paths)
        )


class Slow(ZonedriveError):
    """The account's daemon is at work, and what was asked takes longer than it should."""

    def __init__(self, paths: AccountPaths, seconds: float) -> None:
        super().__init__(
            f"the daemon of account {paths.account} has not done this within {seconds:.0f} s",
            remedy=f"try again later, or see {paths.log}",
        )


class Deaf(ZonedriveError):
    """The account's daemon lives, and nothing can be said to it."""

    def __init__(self, paths: AccountPaths) -> None:
        super().__init__(
            f"the daemon of account {paths.account} lives, but cannot be reached: it is starting"
            " or ending, or its socket is gone",
            remedy=f"try again; if that does not help, {anew(paths)}",
        )


def anew(paths: AccountPaths) -> str:
    """What to do about a daemon that is of no use any more."""
    who = lock.holder(paths.lock)
    folder = quoted(who.mountpoint) if who else "DIR"
    account = "" if paths.account == DEFAULT_ACCOUNT else f" --account {paths.account}"
    return f"run 'zonedrive unmount --now {folder}', then 'zonedrive mount {folder}{account}'"


class Ended(MountEnded):
    """The daemon went away while something was asked of it."""

    def __init__(self, paths: AccountPaths) -> None:
        super().__init__(
            f"the daemon of account {paths.account} ended without an answer",
            remedy=f"see {paths.log}",
        )


def stream(
    paths: AccountPaths, request: Mapping[str, object], *, timeout: float | None = None
) -> Iterator[Message]:
    """Every line that the account's daemon answers; the last one has "done".

    `timeout` is the longest silence, in seconds, of a daemon that lives.  Raises NoDaemon
    (NotLoggedOn where the account has no logon either), Silent, Slow, Deaf, Ended,
    protocol.Stranger, or what the daemon raised.
    """
    with _connected(paths) as connection:
        patience = Patience(connection, lambda: _reached(paths), _pid(paths))
        try:
            connection.sendall(protocol.encode(request))
            for line in patience.lines(timeout):
                message = protocol.decode(line)
                if "error" in message:
                    raise protocol.raised(message)
                yield message
                if message.get("done"):
                    return
        except TimeoutError as slow:
            if patience.is_slow:
                raise Slow(paths, timeout or 0.0) from slow
            raise Silent(paths) from slow
        except ConnectionError as wrong:
            raise Ended(paths) from wrong
    raise Ended(paths)


def _connected(paths: AccountPaths) -> socket.socket:
    """A connection to the account's daemon, wherever its socket is, or was.  Raises as `stream`."""
    end, asked = time.monotonic() + LISTEN_SECONDS, False
    while True:
        try:
            return _reached(paths)
        except TimeoutError as slow:
            raise Silent(paths) from slow
        except PermissionError as wrong:
            raise ZonedriveError(
                f"{paths.control} cannot be used: it belongs to another user",
                remedy="set XDG_RUNTIME_DIR to a folder of your own",
            ) from wrong
        except OSError as wrong:
            if not running(paths):
                if not paths.account_file.exists():
                    raise _not_logged_on(paths) from wrong
                raise NoDaemon(paths.account) from wrong
            if time.monotonic() > end:
                stopped = process.is_stopped(_pid(paths) or 0)
                raise (Silent(paths) if stopped else Deaf(paths)) from wrong
        # It is starting; or the end of a session has removed the folder that its socket was in.
        asked = asked or process.ask_to_listen(paths.lock)
        time.sleep(0.05)


def _reached(paths: AccountPaths) -> socket.socket:
    """A connection to the daemon that holds the account's lock, where that says that it listens.

    There may be the daemon of another XDG_STATE_HOME by now, with an account of the same name.
    Raises OSError, TimeoutError where it is there and nobody takes the connection.
    """
    who = lock.holder(paths.lock)
    if who is None or not running(paths):  # nobody said yet, or any more, that he listens
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(paths.control))
    connection = connect(who.control or paths.control, who.pid)
    other = protocol.process_of(connection)
    if other and not who.is_process(other):
        connection.close()
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(paths.control))
    return connection


def _pid(paths: AccountPaths) -> int | None:
    who = lock.holder(paths.lock)
    return who.pid if who else None


def _not_logged_on(paths: AccountPaths) -> NotLoggedOn:
    """What to say of it.  Raises ConfigError where nothing can be kept, a logon neither."""
    require_folders(paths)
    return NotLoggedOn(
        f"the account {paths.account!r} is not logged on",
        remedy=f"run zonedrive logon URL{paths.option}",
    )


def ask(
    paths: AccountPaths, request: Mapping[str, object], *, timeout: float | None = None
) -> Message:
    """The last line of the answer.  Raises as `stream` does."""
    *_, last = stream(paths, request, timeout=timeout)
    return last


def running(paths: AccountPaths) -> bool:
    """Whether a daemon serves the account."""
    return lock.is_held(paths.lock)


def accounts() -> list[AccountPaths]:
    """Every account of which there is anything on this machine."""
    try:
        names = sorted(entry.name for entry in state_dir().iterdir() if entry.is_dir())
    except FileNotFoundError:
        return []
    found = []
    for name in names:
        try:
            paths = AccountPaths(name)
        except ConfigError:
            continue  # not a folder of ours
        if paths.account_file.exists() or paths.lock.exists():
            found.append(paths)
    return found


def serving(folder: Path) -> AccountPaths | None:
    """The account whose living daemon has its mount at `folder`."""
    for paths in accounts():
        who = lock.holder(paths.lock)
        if who is not None and who.mountpoint == folder and running(paths):
            return paths
    return None


def require_logon(account: str | None) -> None:
    """Raise NotLoggedOn where `account`, or for None every account, has no logon."""
    if not any(
        paths.account_file.exists() and account in (None, paths.account) for paths in accounts()
    ):
        raise _not_logged_on(AccountPaths(account or DEFAULT_ACCOUNT))


def resolve(given: tuple[str, ...], account: str | None) -> tuple[AccountPaths, list[str]]:
    """The account that PATH arguments are about, and the paths as a daemon takes them.

    Without paths it is `account`, or the default one.  Raises ZonedriveError for a path that is
    in no mount, or in that of another account than the others.
    """
    absolute = [mountpoint.absolute(path) for path in given]
    found: AccountPaths | None = AccountPaths(account) if account else None
    for path in absolute:
        mount = mountpoint.holding(path)
        paths = serving(mount.path) if mount else None
        if paths is None:
            require_logon(account)
            raise ZonedriveError(f"{path} is not in a mount of zonedrive")
        if found is not None and paths.account != found.account:
            raise ZonedriveError(f"{path} belongs to account {paths.account}, not {found.account}")
        found = paths
    return found or AccountPaths(DEFAULT_ACCOUNT), [os.fspath(path) for path in absolute]
