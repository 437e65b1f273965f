"""Per-account lock, held by at most one daemon, and functions that send signals to the holder.

The kernel releases the lock when the process ends. The lock file names the holder, for error
messages and signals. Commands send a signal to a daemon whose control socket is missing or does
not answer.

INVARIANT: a signal is sent only to a process that holds the lock, because the pid in the file of a
killed daemon may belong to another process by now.

See proc(5) for the format of /proc/PID/stat.
"""

import fcntl
import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zonedrive.config import on_this_machine
from zonedrive.errors import AlreadyRunning, MountError, ZonedriveError
from zonedrive.fuse import mountpoint
from zonedrive.fuse.mountpoint import Mount
from zonedrive.paths import is_locked, private_dir, quoted

LEAVING_SECONDS = 20.0  # maximum wait for a daemon without a mount to close its stores
TEST_SECONDS = 0.5  # maximum wait for a process that only tests the lock
POLL_SECONDS = 0.05
# Signal that makes a daemon check its control socket, and create it again if it is missing.
LISTEN = signal.SIGUSR1
KILLED_SECONDS = 10.0  # maximum wait for the end of a killed process
PROC = Path("/proc")


@dataclass(frozen=True)
class Holder:
    """Process that the lock file names as the holder of the lock."""

    pid: int
    mountpoint: Path  # the current one, or the first one if there is no mount
    control: Path | None = None  # path of its control socket; None before the socket exists
    begun: int | None = None  # start time of the process, see `_begun`; None: /proc was hidden
    # `Mount.identity` of its mount; "" after the unmount; None before the mount, after the end of
    # the process, or for a daemon of an earlier version.
    identity: str | None = None

    @property
    def is_mounted(self) -> bool:
        return mountpoint.find(self.identity, self.mountpoint) is not None

    def is_process(self, pid: int) -> bool:
        """Return True if the process `pid` is the holder.

        The processes are compared by start time, if known, because pids are reused and differ
        between containers.
        """
        begun = None if self.begun is None else _begun(pid)
        return pid == self.pid if begun is None else begun == self.begun


class Lock:
    """Lock of one account, held from `take` until `release` or until the process ends."""

    def __init__(self, path: Path, account: str) -> None:
        self._path = path
        self._account = account
        self._descriptor: int | None = None
        self._said = b""

    def take(self, folder: Path | None) -> None:
        """Take the lock for a daemon that mounts at `folder`.

        If `folder` is None, the lock only prevents daemons from starting. Wait up to
        LEAVING_SECONDS for a daemon that is ending (its mount is gone) or for commands that read
        the state. Raises AlreadyRunning if the lock is still held, MountError if the file system
        does not support locks, and OSError if the lock file cannot be written.
        """
        descriptor = self._locked()
        while not _has_name(descriptor, self._path):  # a logoff has deleted the file meanwhile
            os.close(descriptor)
            descriptor = self._locked()
        self._descriptor = descriptor
        os.ftruncate(descriptor, 0)
        if folder is not None:
            pid = os.getpid()
            self._write({"pid": pid, "mountpoint": os.fspath(folder), "begun": _begun(pid)})

    def _locked(self) -> int:
        """Open and lock the file, which is created if it is missing; return the descriptor."""
        private_dir(self._path.parent)
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            self._wait(descriptor)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def _wait(self, descriptor: int) -> None:
        begun = time.monotonic()
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError as held:
                who, is_only_read = holder(self._path), _is_only_read(descriptor)
                is_ending = who is not None and not who.is_mounted
                seconds = LEAVING_SECONDS if is_ending or is_only_read else TEST_SECONDS
                if time.monotonic() >= begun + seconds:
                    if not is_only_read:
                        raise refusal(self._account, who) from held
                    raise AlreadyRunning(  # the file names a daemon that has ended
                        f"another zonedrive command is still reading the data of account"
                        f" {self._account}",
                        remedy="end that command, for example a 'zonedrive status', and try again",
                    ) from held
            except OSError as wrong:  # for example a network file system without lock support
                raise MountError(
                    f"{self._path} cannot be locked ({wrong.strerror})",
                    remedy=on_this_machine(),
                ) from wrong
            time.sleep(POLL_SECONDS)

    def announce(self, control: Path, identity: str) -> None:
        """Write the path of this daemon's control socket and the `Mount.identity` of its mount.

        The lock must be held. Commands find the mount by `identity`, because a folder above the
        mount point may be renamed. After the unmount, `identity` is "". From this call on, other
        processes may send the signal LISTEN. The daemon must already handle this signal, because
        the default action would terminate the daemon.
        """
        who = json.loads(self._said)
        self._write({**who, "control": os.fspath(control), "identity": identity})

    def _write(self, who: dict[str, Any]) -> None:
        """Write the holder's data `who` in one call, padded to the length of the old data.

        A reader therefore gets either the old or the new data.
        """
        assert self._descriptor is not None, "take it first"
        self._said = json.dumps(who).encode("ascii").ljust(len(self._said))
        os.pwrite(self._descriptor, self._said, 0)

    def release(self) -> None:
        """Release the lock, if it is held."""
        if self._descriptor is not None:
            with suppress(OSError):  # for example on a disk that became read-only
                os.ftruncate(self._descriptor, 0)
            os.close(self._descriptor)
            self._descriptor = None


def _has_name(descriptor: int, path: Path) -> bool:
    """Return True if the file that is open as `descriptor` is the file at `path`."""
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(descriptor), path.stat())
    return False


def refusal(account: str, who: Holder | None) -> AlreadyRunning:
    """Return the error for an account whose lock is held by `who`.

    `who` is None if the holder is a command, or a daemon that the lock file does not name yet.
    """
    if who is None:
        return AlreadyRunning(
            f"account {account} is being mounted, logged on or logged off by another zonedrive"
            " command",
            remedy="try again when that command has ended",
        )
    if who.is_mounted:
        return AlreadyRunning(
            f"account {account} is mounted already at {who.mountpoint} (process {who.pid})",
            remedy=f"run 'zonedrive unmount {quoted(who.mountpoint)}' first",
        )
    end = f"'zonedrive unmount --now {quoted(who.mountpoint)}' ends it"
    if who.control is None:
        return AlreadyRunning(
            f"another zonedrive (process {who.pid}) is starting for account {account}",
            remedy=f"wait for it; if it hangs, {end}",
        )
    return AlreadyRunning(
        f"process {who.pid} still serves what was mounted at {who.mountpoint}: a program or a"
        " container uses it, or it hangs",
        remedy=end,
    )


def holder(path: Path) -> Holder | None:
    """Return the process that the lock file names, or None if it names none.

    The process may have ended.
    """
    try:
        found = _content(path)
        control, begun = found.get("control"), found.get("begun")
        # After the end of the process, another mount may have this identity.
        identity = found.get("identity") if is_locked(path) else None
        folder = Path(found["mountpoint"])
        mount = mountpoint.find(identity, folder)
        if mount and mount.path != folder and _is_of_another(path, mount):
            identity, mount = "", None
        return Holder(
            int(found["pid"]),
            mount.path if mount else folder,
            Path(control) if control else None,
            begun if isinstance(begun, int) else None,
            identity,
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _content(path: Path) -> dict[str, Any]:
    """Return the content of the lock file, or {} if the file is missing or damaged."""
    with suppress(OSError, ValueError):
        found = json.loads(path.read_bytes())
        if isinstance(found, dict):
            return found
    return {}


def _is_of_another(path: Path, mount: Mount) -> bool:
    """Return True if the daemon of a lock file other than `path` announced this mount.

    A daemon that hangs does not announce that its mount was detached. The next mount of another
    account can have the same identity.
    """
    wanted = {"mountpoint": os.fspath(mount.path), "identity": mount.identity}.items()
    others = path.parent.parent.glob(f"*/{path.name}")
    return any(
        each != path and wanted <= _content(each).items() and is_locked(each) for each in others
    )


def _begun(pid: int) -> int | None:
    """Return the start time of a process in ticks since boot, or None if it cannot be read.

    The start time is the same in all pid namespaces.
    """
    try:
        return int(_stat(PROC / str(pid))[19])
    except (OSError, ValueError, IndexError):
        return None


def _stat(folder: Path) -> list[str]:
    """Return the fields after the command name in the file `stat` of a process or thread."""
    return (folder / "stat").read_text("utf-8", "replace").rpartition(") ")[2].split()


@contextmanager
def reading(path: Path) -> Iterator[bool]:
    """Prevent the account's daemon from starting while the `with` block runs.

    Yield False if a daemon is already running, else True. Writes nothing, because the disk may be
    read-only. If the lock file is missing, or locks are not supported, the block runs without the
    lock.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:  # no daemon has run yet
        yield True
        return
    try:
        yield _is_shared(descriptor)
    finally:
        os.close(descriptor)


def _is_shared(descriptor: int) -> bool:
    """Lock the file in shared mode; return False if a process holds it exclusively."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # no lock support, so no daemon is running
        pass
    return True


def _is_only_read(descriptor: int) -> bool:
    """Return True if no process, and therefore no daemon, holds the lock exclusively."""
    if not _is_shared(descriptor):
        return False
    with suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_UN)
    return True


def _states(pid: int) -> set[str]:
    """Return the states of a process's threads, or an empty set if the process has ended.

    R means running, D waiting for a disk or for a lock of the kernel, S sleeping, T or t stopped,
    and Z ended or killed.
    """
    found = set()
    with suppress(OSError):
        for thread in (PROC / str(pid) / "task").iterdir():
            with suppress(OSError):
                found.update(_stat(thread)[:1])
    return found


def is_working(pid: int) -> bool:
    """Return True if a thread of the process is running or waiting for a disk.

    Such a process may need a long time to answer. A killed process (Z) never answers, although one
    of its threads may still wait.
    """
    found = _states(pid)
    return "Z" not in found and not {"R", "D"}.isdisjoint(found)


def is_stopped(pid: int) -> bool:
    """Return True if all threads of the process are stopped (SIGSTOP, Ctrl-Z, a debugger)."""
    found = _states(pid)
    return bool(found) and found <= {"T", "t"}


def ask_to_listen(path: Path) -> bool:
    """Send a signal that makes the holder of the lock at `path` check its control socket.

    Return True if the signal was sent. A holder that has not yet written the path of its socket to
    the lock file gets no signal, because it may not handle the signal yet.
    """
    who = holder(path)
    if who is None or who.control is None or (descriptor := _pidfd(path, who)) is None:
        return False
    try:
        signal.pidfd_send_signal(descriptor, LISTEN)
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)


def end_holder(path: Path, seconds: float) -> None:
    """Terminate the holder of the lock at `path`, and return when the lock is free.

    Sends SIGTERM, and after `seconds` SIGKILL. SIGCONT follows each signal, because a stopped
    process does not handle SIGTERM. After SIGKILL, also abort the connection of the daemon's mount.
    Otherwise a thread that changes the kernel's cache, and a program that waits for the daemon,
    could wait for each other forever. Raises ZonedriveError if the process cannot be terminated.
    """
    who = holder(path)
    descriptor = _pidfd(path, who)
    if descriptor is None:
        if is_locked(path):
            raise ZonedriveError(
                "the daemon cannot be ended from here",
                remedy="end it where it runs: on another machine with the same home folder, in"
                " another container, or as another user",
            )
        return
    try:
        for number, patience in ((signal.SIGTERM, seconds), (signal.SIGKILL, KILLED_SECONDS)):
            signal.pidfd_send_signal(descriptor, number)
            signal.pidfd_send_signal(descriptor, signal.SIGCONT)
            if number == signal.SIGKILL:
                _abort_mount(path, who)
            if wait_until_free(path, patience):
                return
    except ProcessLookupError:
        if wait_until_free(path, KILLED_SECONDS):
            return
    except PermissionError:
        pass
    finally:
        os.close(descriptor)
    raise ZonedriveError(
        f"the daemon (process {who.pid if who else '?'}) cannot be ended",
        remedy="it may wait for a disk that does not answer, or for a mount that could not be"
        " aborted; a restart of the machine ends it",
    )


def _abort_mount(path: Path, who: Holder | None) -> None:
    """Abort the connection of the mount that the killed holder of `path` has announced, if any."""
    if who is not None and who.identity:
        mount = mountpoint.find(who.identity, who.mountpoint)
        if mount is not None and not _is_of_another(path, mount):
            mountpoint.abort(mount)


def wait_until_free(path: Path, seconds: float) -> bool:
    """Wait up to `seconds` until the lock at `path` is free; return True if it is free."""
    end = time.monotonic() + seconds
    while is_locked(path):
        if time.monotonic() > end:
            return False
        time.sleep(POLL_SECONDS)
    return True


def _pidfd(path: Path, who: Holder | None) -> int | None:
    """Return a pidfd (pidfd_open(2)) of the process `who`, which the lock file at `path` names.

    Return None if the lock is free or the process cannot be identified with certainty.
    """
    if who is None or who.begun is None:
        return None
    try:
        descriptor = os.pidfd_open(who.pid)
    except OSError:
        return None
    if _begun(who.pid) == who.begun and is_locked(path):
        return descriptor
    os.close(descriptor)
    return None
