"""Client of the control socket, and lookup of the daemon that serves a path.

INVARIANT: a hung daemon is detected within a few seconds, whatever was requested and however long
the request may take. A busy daemon is not mistaken for a hung daemon.
INVARIANT: this module accesses no file in a mount.
"""

import os
import select
import socket
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from zonedrive.daemon import lock, protocol
from zonedrive.daemon.protocol import Message
from zonedrive.errors import (
    AlreadyRunning,
    ConfigError,
    MountEnded,
    MountError,
    NotLoggedOn,
    ZonedriveError,
)
from zonedrive.fuse import mountpoint
from zonedrive.fuse.mountpoint import Mount
from zonedrive.paths import (
    DEFAULT_ACCOUNT,
    AccountPaths,
    former_state_dirs,
    is_locked,
    not_logged_on,
    not_moved,
    quoted,
    require_folders,
    require_own_folders,
    state_dir,
)

ASK_SECONDS = 90.0
# Maximum time in seconds from a daemon's start to its first response, or from its last response to
# its end.
BETWEEN_SECONDS = 20.0
LISTEN_SECONDS = 5.0  # maximum time in seconds for a daemon to create its socket again
SLICE_SECONDS = 0.5  # length in seconds of one slice of a wait
QUIET_SECONDS = 3.0  # seconds of silence before each test whether the daemon is alive
SIGN_SECONDS = 2.0  # maximum duration of that test in seconds
# Maximum duration of that test in seconds while the daemon computes or waits for its disk.
WORKING_SECONDS = 30.0
# Longest silence in seconds of a daemon that has removed its socket and is closing its stores.
CLOSING_SECONDS = 60.0


class NoDaemon(ZonedriveError):
    """Error for an account that is not mounted."""


class NotResponding(ZonedriveError):
    """Error for a daemon that is running but does not respond."""

    def __init__(self, paths: AccountPaths) -> None:
        super().__init__(
            f"the daemon of account {paths.account} does not answer", remedy=_restart(paths)
        )


class DaemonTimeout(ZonedriveError):
    """Error for a request that a working daemon does not complete within the allowed time."""


class EarlierDaemon(ZonedriveError):
    """Error for a daemon of an earlier version that does not know the requested command."""

    def __init__(self, paths: AccountPaths) -> None:
        super().__init__(
            f"the daemon of account {paths.account} was started before an upgrade,"
            " and lacks this command",
            remedy=_restart(paths, now=False),
        )


class Unconnectable(ZonedriveError):
    """Error for a daemon that is running but cannot be reached over its socket."""


class DaemonExited(MountEnded):
    """Error for a daemon that exited before it completed the response."""


def _restart(paths: AccountPaths, *, now: bool = True) -> str:
    """Return a remedy with the commands that restart the daemon.

    With `now`, the commands do not wait for uploads.
    """
    who = lock.holder(paths.lock)
    folder = quoted(who.mountpoint) if who else "DIR"
    unmount = f"unmount{' --now' if now else ''} {folder}"
    return f"run 'zonedrive {unmount}', then 'zonedrive mount {folder}{paths.option}'"


def ask(
    paths: AccountPaths, request: Mapping[str, object], *, timeout: float | None = ASK_SECONDS
) -> Message:
    """Send a request and return the last message of the response.

    See `stream` for `timeout` (seconds) and for the errors.
    """
    *_, last = stream(paths, request, timeout=timeout)
    return last


def asked_or_stored(
    paths: AccountPaths, ask_daemon: Callable[[], Message], stored: Callable[[], Message]
) -> Message:
    """Return the daemon's response, or the result of `stored` if the account is not mounted.

    `ask_daemon` sends the request to the daemon, and `stored` uses the data on the disk instead.
    While a daemon is starting or ending, `stored` raises AlreadyRunning. Both functions are then
    called again, for up to BETWEEN_SECONDS. Raises the other errors of both functions, and
    ConfigError if the account's folders cannot be used.
    """
    end = time.monotonic() + BETWEEN_SECONDS
    while True:
        try:
            return ask_daemon()
        except (NoDaemon, MountEnded):
            require_folders(paths)
        try:
            return stored()
        except AlreadyRunning:
            if time.monotonic() > end:
                raise
        time.sleep(0.1)


def stream(
    paths: AccountPaths, request: Mapping[str, object], *, timeout: float | None = None
) -> Generator[Message, None, None]:
    """Send a request and yield each message of the daemon's response.

    The last message contains "done". `timeout` is the maximum time without a message, in seconds
    (None: no limit). Raises the error that the daemon reports, or one of these errors:

    - NotLoggedOn: the account is neither mounted nor logged on.
    - NoDaemon: the account is not mounted.
    - Unconnectable: a daemon is running, but cannot be reached over its socket.
    - NotResponding: a daemon is running, but does not respond.
    - DaemonTimeout: a working daemon sent no message within `timeout`.
    - EarlierDaemon: the daemon does not know the command.
    - DaemonExited: the daemon exited before the last message.
    - protocol.ForeignSocketError: a program of another user listens at the socket.
    - ConfigError: a folder of the account cannot be used, or belongs to another user.
    - ZonedriveError: the request is too long, or the socket belongs to another user.
    """
    question = protocol.encode(request)
    if len(question) > protocol.MAX_LINE:
        raise ZonedriveError("the request is too long", remedy="name fewer paths, or their folder")
    with _connected(paths) as connection:
        try:
            connection.sendall(question)
            for line in received(connection, paths, timeout):
                message = protocol.decode(line)
                if message.get("error") == protocol.UNKNOWN.format(request.get("command")):
                    raise EarlierDaemon(paths)
                if "error" in message:
                    raise protocol.raised(message)
                yield message
                if message.get("done"):
                    return
        except TimeoutError as slow:
            raise NotResponding(paths) from slow
        except ConnectionError:
            pass  # as if the daemon had closed the connection
    raise DaemonExited(
        f"the daemon of account {paths.account} ended without an answer", remedy=f"see {paths.log}"
    )


def _connected(paths: AccountPaths) -> socket.socket:
    """Connect to the account's daemon, and return the socket.

    If the socket file is missing, first ask the running daemon to create it again. Raises the
    connection errors of `stream`.
    """
    end, asked = time.monotonic() + LISTEN_SECONDS, False
    while True:
        try:
            return _reached(paths)
        except TimeoutError as slow:
            raise NotResponding(paths) from slow
        except PermissionError as wrong:
            raise ZonedriveError(
                f"{paths.control} cannot be used: it belongs to another user",
                remedy="set XDG_RUNTIME_DIR to a folder of your own",
            ) from wrong
        except OSError as wrong:
            if not running(paths):
                if not paths.is_logged_on:
                    raise _not_logged_on(paths) from wrong
                raise NoDaemon(
                    f"the account {paths.account!r} is not mounted",
                    remedy=f"run 'zonedrive mount DIR{paths.option}'",
                ) from wrong
            if time.monotonic() > end:
                if lock.is_stopped(_pid(paths) or 0):
                    raise NotResponding(paths) from wrong
                raise Unconnectable(
                    f"the daemon of account {paths.account} is running, but cannot be reached:"
                    " it is starting or ending, or its socket is gone",
                    remedy=f"try again; if that does not help, {_restart(paths)}",
                ) from wrong
        # The daemon is starting, or the end of a session has removed its socket's folder.
        asked = asked or lock.ask_to_listen(paths.lock)
        time.sleep(0.05)


def _reached(paths: AccountPaths) -> socket.socket:
    """Return a connection to the daemon that holds the account's lock.

    The lock file contains the path of the daemon's socket. If the daemon of an account with the
    same name in another XDG_STATE_HOME listens at this socket, the socket counts as missing. Raises
    OSError if the socket is missing, TimeoutError if the daemon does not accept the connection,
    ForeignFolder if the account belongs to another user, or protocol.ForeignSocketError if a
    program of another user listens at the socket.
    """
    who = daemon(paths)
    if who is None:  # no daemon has announced its socket
        raise FileNotFoundError(paths.control)
    try:
        connection = connect(who.control or paths.control, who.pid)
    except protocol.ForeignSocketError:
        require_own_folders(paths)  # if the account is of that user, another socket does not help
        raise
    other, _ = protocol.peer(connection)
    if other and not who.is_process(other):
        connection.close()
        raise FileNotFoundError(paths.control)
    return connection


def daemon(paths: AccountPaths) -> lock.Holder | None:
    """Return the account's running daemon, or None if the lock file names no running daemon."""
    return lock.holder(paths.lock) if running(paths) else None


def _pid(paths: AccountPaths) -> int | None:
    who = daemon(paths)
    return who.pid if who else None


def _not_logged_on(paths: AccountPaths) -> NotLoggedOn:
    """Return the error for an account that is not logged on.

    Raises ConfigError if the folders for the account's data cannot be used.
    """
    require_folders(paths)
    return not_logged_on(paths)


def running(paths: AccountPaths) -> bool:
    """Return True if a daemon of the account is running.

    Also returns True during a logon or logoff that prevents daemons from starting.
    """
    return is_locked(paths.lock)


def accounts() -> list[AccountPaths]:
    """Return the accounts with a logon or a lock file on this machine, sorted by name."""
    return [paths for paths in _named() if paths.is_logged_on or paths.lock.exists()]


def unmoved_accounts() -> list[AccountPaths]:
    """Return the accounts whose state folder must be moved (see `not_moved`), sorted by name."""
    return [paths for paths in _named() if not_moved(paths)]


def _named() -> Iterator[AccountPaths]:
    """Yield the accounts with a folder in the current or a former state folder, sorted by name.

    The default account is included if the current state folder cannot be read.
    """
    names: set[str] = set()
    try:
        names |= {entry.name for entry in state_dir().iterdir()}
    except FileNotFoundError:
        pass
    except PermissionError:  # commands that need the data of the account report this
        names.add(DEFAULT_ACCOUNT)
    for folder in former_state_dirs():
        with suppress(OSError):
            names |= {entry.name for entry in folder.iterdir()}
    for name in sorted(names):
        with suppress(ConfigError):  # not a folder of zonedrive
            yield AccountPaths(name)


def _daemons() -> Iterator[tuple[lock.Holder, AccountPaths]]:
    for paths in accounts():
        if who := daemon(paths):
            yield who, paths


def serving(folder: Path) -> AccountPaths | None:
    """Return the account whose running daemon mounted `folder`, or None.

    The account is also returned if nothing is mounted at `folder` because the daemon is starting,
    or because its mount has been detached.
    """
    found = [each for each in _daemons() if each[0].mountpoint == folder]
    if mount := mountpoint.at(folder):
        # Daemons of earlier versions, and daemons that are starting, announce no identity.
        exact = [each for each in found if each[0].identity == mount.identity]
        found = exact or [each for each in found if each[0].identity is None]
    return found[0][1] if found else None


def located(path: Path) -> tuple[Mount | None, AccountPaths | None, Path]:
    """Return the mount that contains `path`, the account of the mount's daemon, and a path.

    `path` is absolute and without symbolic links. The returned path leads to the same entry in the
    daemon's own mount. The two paths differ if `path` is in a bind mount of the daemon's mount or
    of a folder in that mount. The mount is None if `path` is in no mount of zonedrive. If there is
    no mount, or no running daemon is found for the mount, the account is None and the returned path
    is `path`.
    """
    mount = mountpoint.holding(path)
    if mount is None:
        return None, None, path
    if paths := serving(mount.path):
        return mount, paths, path
    for who, paths in _daemons():
        if who.identity == mount.identity and who.is_mounted:
            below = Path(mount.root.lstrip("/"), path.relative_to(mount.path))
            return mount, paths, who.mountpoint / below
    return mount, None, path


def require_logon(account: str | None) -> None:
    """Raise NotLoggedOn if `account` is not logged on.

    If `account` is None, raise NotLoggedOn if no account is logged on.
    """
    names = [paths.account for paths in accounts() if paths.is_logged_on]
    if account not in names if account else not names:
        raise _not_logged_on(AccountPaths(account or DEFAULT_ACCOUNT))


def resolve(given: tuple[str, ...], account: str | None) -> tuple[AccountPaths, list[str]]:
    """Return the account whose mount contains all paths in `given`, and the paths in that mount.

    If `given` is empty, the account is `account` or the default account. Raises ZonedriveError if a
    path is in no mount, in the mount of an account other than `account`, or in a mount whose daemon
    died. Also raises ZonedriveError if the paths are in the mounts of several accounts.
    """
    below = list[str]()
    found: AccountPaths | None = AccountPaths(account) if account else None
    for path in map(mountpoint.absolute, given):
        mount, paths, there = located(path)
        if paths is None:
            _require_no_death(path)
            if mount is not None and mount.user == os.geteuid():
                raise unknown_daemon(mount)
            require_logon(account)
            places = " and ".join(quoted(who.mountpoint) for who, _ in _daemons())
            raise ZonedriveError(
                f"{path} is not in one of your zones",
                remedy=f"they are mounted at {places}" if places else "run 'zonedrive mount DIR'",
            )
        if found is not None and paths.account != found.account:
            raise ZonedriveError(f"{path} belongs to account {paths.account}, not {found.account}")
        found = paths
        below.append(os.fspath(there))
    return found or AccountPaths(DEFAULT_ACCOUNT), below


def unknown_daemon(mount: Mount) -> MountError:
    """Return the error for a mount of this user that no account's daemon serves."""
    if mount.root != "/" or any(who.identity == mount.identity for who, _ in _daemons()):
        return MountError(
            f"{mount.path} is a bind mount of zones, not their own mount",
            remedy=f"run 'sudo umount {quoted(mount.path)}' to detach the bind mount",
        )
    return MountError(
        f"the daemon of {mount.path} is unknown: its state folder was moved or removed, or cannot"
        " be read",
        remedy="bring the folder back, set XDG_STATE_HOME as for the mount, or run"
        f" 'zonedrive unmount --now {quoted(mount.path)}' to detach the mount",
    )


def _require_no_death(path: Path) -> None:
    """Raise ZonedriveError if `path` is in the mount of an account whose last daemon died."""
    from zonedrive.daemon import last_run

    for paths in accounts():
        died = last_run.death(paths)
        if died is not None and path.is_relative_to(died.mountpoint):
            command = f"zonedrive mount {quoted(died.mountpoint)}{paths.option}"
            raise ZonedriveError(died.line, remedy=f"run '{command}'")


# ---- waiting for a silent daemon ----


def received(
    connection: socket.socket, paths: AccountPaths, longest: float | None
) -> Iterator[bytes]:
    """Yield each line that the daemon sends, until the daemon closes the connection.

    Raises DaemonTimeout if a live daemon is silent for `longest` seconds (None: no limit), and
    TimeoutError as soon as a silent daemon turns out to hang. Time is counted in slices of
    SLICE_SECONDS, so that an hour of suspend counts as one slice.
    """
    buffer, quiet, asked = b"", 0.0, 0.0
    while True:
        if _is_readable(connection):
            chunk = connection.recv(65536)
            if not chunk:
                return
            *lines, buffer = (buffer + chunk).split(b"\n")
            yield from lines
            quiet = asked = 0.0
            continue
        quiet += SLICE_SECONDS
        if quiet >= asked + QUIET_SECONDS:
            asked = quiet
            _require_life(paths, quiet)
        if longest is not None and quiet >= longest:
            raise DaemonTimeout(
                f"the daemon of account {paths.account} has not done this within {longest:.0f} s",
                remedy=f"try again later, or see {paths.log}",
            )


def _require_life(paths: AccountPaths, quiet: float) -> None:
    """Raise TimeoutError if a daemon that has been silent for `quiet` seconds no longer responds.

    The test uses a second connection, because responses on one connection arrive in order.
    """
    pid = _pid(paths)
    try:
        beside = _reached(paths)
    except TimeoutError:
        raise
    except OSError:  # the socket is gone: the daemon is ending or has ended
        if quiet >= CLOSING_SECONDS or (pid is not None and lock.is_stopped(pid)):
            raise TimeoutError from None
        return
    with beside:
        with suppress(ConnectionError):  # it has just ended; the next read detects that
            beside.sendall(protocol.encode({"command": protocol.PULSE}))
        for _ in _slices(pid):
            if _is_readable(beside):
                return


def connect(path: Path, pid: int | None) -> socket.socket:
    """Return a connection to the daemon at the socket `path`; `pid` is the daemon's process id.

    Wait for up to SIGN_SECONDS, or for up to WORKING_SECONDS while the daemon computes or waits for
    its disk. Raises OSError if no process listens at the socket, TimeoutError if the process does
    not accept the connection within this time, or protocol.ForeignSocketError if the process
    belongs to another user.
    """
    connection = None
    slices = _slices(pid)
    while connection is None:
        next(slices)
        try:
            connection = protocol.connect(path, SIGN_SECONDS)
        except BlockingIOError:  # the listen queue is full
            time.sleep(SLICE_SECONDS)
    connection.settimeout(WORKING_SECONDS)  # time limit for writing a long request
    return connection


def _slices(pid: int | None) -> Iterator[None]:
    """Divide a wait for the daemon into slices, and yield before each slice.

    After each yield, the caller waits for SLICE_SECONDS. Raises TimeoutError at the time limit. The
    limit is SIGN_SECONDS, or WORKING_SECONDS while the daemon's process `pid` computes or waits for
    its disk. If `pid` is None, the limit is always SIGN_SECONDS.
    """
    left = SIGN_SECONDS
    while left > 0:
        yield
        working = pid is not None and lock.is_working(pid)
        left -= SLICE_SECONDS * (SIGN_SECONDS / WORKING_SECONDS if working else 1.0)
    raise TimeoutError


def _is_readable(connection: socket.socket) -> bool:
    """Return True if data or the end of input arrives within SLICE_SECONDS."""
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    return bool(poll.poll(1000 * SLICE_SECONDS))
