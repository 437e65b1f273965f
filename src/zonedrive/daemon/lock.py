"""One daemon an account: an advisory lock that ends with the process, however it ends.

Must not know what the daemon does.  The file also says who holds the lock, for messages.
"""

import fcntl
import json
import os
import time
from dataclasses import dataclass
from pathlib import Path

from zonedrive.errors import AlreadyRunning, MountError
from zonedrive.fuse import mountpoint
from zonedrive.paths import private_dir, quoted

LEAVING_SECONDS = 20.0
"""How long a daemon whose mount is gone already may take to close its stores."""


@dataclass(frozen=True)
class Holder:
    """Who has the lock."""

    pid: int
    mountpoint: Path


class Lock:
    """Taken once, held until released or until the process ends."""

    def __init__(self, path: Path, account: str) -> None:
        self._path = path
        self._account = account
        self._descriptor: int | None = None

    def take(self, folder: Path, *, patience: float = LEAVING_SECONDS) -> None:
        """Take it, for a mount at `folder`.

        A daemon that is just leaving (its mount is gone) is waited for, `patience` seconds.
        Raises AlreadyRunning, which names process and mounting point; MountError where files
        there cannot be locked.
        """
        private_dir(self._path.parent)
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        end = time.monotonic() + patience
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as held:
                who = holder(self._path)
                leaving = who is not None and mountpoint.at(who.mountpoint) is None
                if leaving and time.monotonic() < end:
                    time.sleep(0.05)
                    continue
                os.close(descriptor)
                raise self._refusal(who) from held
            except OSError as wrong:  # a network file system without locks
                os.close(descriptor)
                raise MountError(
                    f"{self._path} cannot be locked ({wrong.strerror})",
                    remedy="set XDG_STATE_HOME to a folder on a disk of this machine",
                ) from wrong
        self._descriptor = descriptor
        text = json.dumps({"pid": os.getpid(), "mountpoint": os.fspath(folder)})
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, text.encode("ascii"), 0)

    def release(self) -> None:
        """Give it back; harmless where it is not held."""
        if self._descriptor is not None:
            os.ftruncate(self._descriptor, 0)
            os.close(self._descriptor)
            self._descriptor = None

    def _refusal(self, who: Holder | None) -> AlreadyRunning:
        if who is None:
            return AlreadyRunning(f"another zonedrive is starting for account {self._account}")
        return AlreadyRunning(
            f"account {self._account} is mounted already at {who.mountpoint} (process {who.pid})",
            remedy=f"run 'zonedrive unmount {quoted(who.mountpoint)}' first",
        )


def holder(path: Path) -> Holder | None:
    """Who wrote himself into the lock file last; alive or not is the lock's to say."""
    try:
        found = json.loads(path.read_bytes())
        return Holder(int(found["pid"]), Path(found["mountpoint"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def is_held(path: Path) -> bool:
    """Whether some process holds the lock now."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
