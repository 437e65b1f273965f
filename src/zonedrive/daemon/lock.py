"""Advisory lock that allows one daemon per account; the kernel releases it with the process.

Knows nothing about the daemon's work. The lock file also identifies the holder, for messages.

Source: proc(5) for `stat`.
"""

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zonedrive.errors import AlreadyRunning, MountError
from zonedrive.fuse import mountpoint
from zonedrive.paths import private_dir, quoted

LEAVING_SECONDS = 20.0
"""Maximum wait in seconds for a daemon without a mount to close its stores."""

LOOK_SECONDS = 0.5
"""Maximum wait in seconds for a process that only tests the lock."""


@dataclass(frozen=True)
class Holder:
    """Process that holds the lock."""

    pid: int
    mountpoint: Path
    control: Path | None = None  # its socket; None before it has one (or an older version)
    begun: int | None = None  # when its process began, see `_begun`; None: an older version

    def is_process(self, pid: int) -> bool:
        """Return True if `pid` is the holder, although pids are reused.

        The start time decides, because a container has its own pids.
        """
        begun = None if self.begun is None else _begun(pid)
        return pid == self.pid if begun is None else begun == self.begun


class Lock:
    """Lock that is taken once and held until `release` or the end of the process."""

    def __init__(self, path: Path, account: str) -> None:
        self._path = path
        self._account = account
        self._descriptor: int | None = None
        self._said = b""

    def take(self, folder: Path | None, *, patience: float = LEAVING_SECONDS) -> None:
        """Take the lock for a mount at `folder`; with None, to keep daemons from starting.

        Waits up to `patience` seconds for a daemon that is ending (its mount is gone). Raises
        AlreadyRunning, which names process and mount point; MountError if files there cannot be
        locked.
        """
        private_dir(self._path.parent)
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        begun = time.monotonic()
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as held:
                who = holder(self._path)
                leaving = who is not None and mountpoint.at(who.mountpoint) is None
                is_only_read = _is_only_read(descriptor)
                seconds = patience if leaving or is_only_read else min(patience, LOOK_SECONDS)
                if time.monotonic() < begun + seconds:
                    time.sleep(0.05)
                    continue
                os.close(descriptor)
                if is_only_read:  # the file names a daemon that has ended
                    raise AlreadyRunning(
                        f"another zonedrive command is still reading the data of account"
                        f" {self._account}",
                        remedy="end that command, for example a 'zonedrive status', and try again",
                    ) from held
                raise refusal(self._account, who) from held
            except OSError as wrong:  # a network file system without locks
                os.close(descriptor)
                raise MountError(
                    f"{self._path} cannot be locked ({wrong.strerror})",
                    remedy="set XDG_STATE_HOME to a folder on a disk of this machine",
                ) from wrong
        self._descriptor = descriptor
        os.ftruncate(descriptor, 0)
        if folder is not None:
            pid = os.getpid()
            self._write({"pid": pid, "mountpoint": os.fspath(folder), "begun": _begun(pid)})

    def tell(self, control: Path) -> None:
        """Write the path of the holder's control socket to the file. The lock must be held."""
        self._write({**json.loads(self._said), "control": os.fspath(control)})

    def _write(self, who: dict[str, Any]) -> None:
        """Write the holder's data in one call, padded.

        Readers therefore see either the old or the new text.
        """
        assert self._descriptor is not None, "take it first"
        self._said = json.dumps(who).encode("ascii").ljust(len(self._said))
        os.pwrite(self._descriptor, self._said, 0)

    def release(self) -> None:
        """Release the lock, if it is held."""
        if self._descriptor is not None:
            os.ftruncate(self._descriptor, 0)
            os.close(self._descriptor)
            self._descriptor = None


def refusal(account: str, who: Holder | None) -> AlreadyRunning:
    """Return the error for an account whose lock `who` holds; None: not known yet, or a command."""
    if who is None:
        return AlreadyRunning(
            f"account {account} is being mounted, logged on or logged off by another zonedrive"
            " command",
            remedy="try again when that command has ended",
        )
    if mountpoint.at(who.mountpoint) is not None:
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
    """Return the process named in the lock file, which may have ended, or None."""
    try:
        found = json.loads(path.read_bytes())
        control, begun = found.get("control"), found.get("begun")
        return Holder(
            int(found["pid"]),
            Path(found["mountpoint"]),
            Path(control) if control else None,
            begun if isinstance(begun, int) else None,
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _begun(pid: int) -> int | None:
    """Return the start time of a process in ticks since boot, or None.

    The start time distinguishes processes whatever pid namespace they are seen from.
    """
    try:
        # The name, in parentheses, may contain any character.
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b") ")[2].split()
        return int(fields[19])
    except (OSError, ValueError, IndexError):
        return None


@contextmanager
def reading(path: Path) -> Iterator[bool]:
    """Keep daemons from starting inside the block; yield False if one is running.

    Nothing is written, so that it also works on a read-only disk.
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


def is_held(path: Path) -> bool:
    """Return True if a process holds the lock now."""
    with reading(path) as is_free:
        return not is_free


def _is_shared(descriptor: int) -> bool:
    """Take the lock shared with other readers; return False if a daemon holds it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks, where no daemon is
        pass
    return True


def _is_only_read(descriptor: int) -> bool:
    """Return True if only readers hold the lock, and no daemon."""
    if not _is_shared(descriptor):
        return False
    with suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_UN)
    return True
