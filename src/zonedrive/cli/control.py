"""The client of the control socket, and which daemon a path belongs to.

Must not know what a command means.
"""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from zonedrive.daemon import lock, protocol
from zonedrive.daemon.protocol import Message
from zonedrive.errors import ConfigError, MountEnded, NotLoggedOn, ZonedriveError
from zonedrive.fuse import mountpoint
from zonedrive.paths import DEFAULT_ACCOUNT, AccountPaths, state_dir

CONNECT_SECONDS = 10.0


class NoDaemon(ZonedriveError):
    """The account is not mounted."""

    def __init__(self, account: str) -> None:
        super().__init__(f"account {account} is not mounted", remedy="run 'zonedrive mount DIR'")


class Silent(ZonedriveError):
    """The account's daemon lives and does not answer."""

    def __init__(self, paths: AccountPaths) -> None:
        super().__init__(
            f"the daemon of account {paths.account} does not answer", remedy=f"see {paths.log}"
        )


class Deaf(ZonedriveError):
    """The account's daemon lives, and its socket is not where we look, or gone."""

    def __init__(self, paths: AccountPaths, pid: int) -> None:
        super().__init__(
            f"the daemon of account {paths.account} lives, but has no socket in"
            f" {paths.control.parent}",
            remedy="run this with XDG_RUNTIME_DIR as it was at the mount, or"
            f" 'kill {pid}', which unmounts in order",
        )


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

    `timeout` is the longest silence, in seconds.  Raises NoDaemon (NotLoggedOn where the account
    has no logon either), Silent, Ended, protocol.Stranger, or what the daemon raised.
    """
    try:
        connection = protocol.connect(paths.control, CONNECT_SECONDS)
    except TimeoutError as slow:
        raise Silent(paths) from slow
    except PermissionError as wrong:
        raise ZonedriveError(
            f"{paths.control} cannot be used: it belongs to another user",
            remedy="set XDG_RUNTIME_DIR to a folder of your own",
        ) from wrong
    except OSError as wrong:
        who = lock.holder(paths.lock)
        if who is not None and running(paths):
            raise Deaf(paths, who.pid) from wrong
        if not paths.account_file.exists():
            raise _not_logged_on(paths.account) from wrong
        raise NoDaemon(paths.account) from wrong
    with connection, connection.makefile("rb") as answers:
        connection.settimeout(timeout)
        try:
            connection.sendall(protocol.encode(request))
            for line in answers:
                message = protocol.decode(line)
                if "error" in message:
                    raise protocol.raised(message)
                yield message
                if message.get("done"):
                    return
        except TimeoutError as slow:
            raise Silent(paths) from slow
        except ConnectionError as wrong:
            raise Ended(paths) from wrong
    raise Ended(paths)


def _not_logged_on(account: str) -> NotLoggedOn:
    return NotLoggedOn(
        f"the account {account!r} is not logged on", remedy="run zonedrive logon URL"
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
        raise _not_logged_on(account or DEFAULT_ACCOUNT)


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
