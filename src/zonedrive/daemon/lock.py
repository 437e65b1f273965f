"""One daemon an account: an advisory lock that ends with the process, however it ends.

Must not know what the daemon does.  The file also says who holds the lock, for messages.

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
"""How long a daemon whose mount is gone already may take to close its stores."""

LOOK_SECONDS = 0.5
"""How long somebody may be in the way who only looks whether it is held."""


@dataclass(frozen=True)
class Holder:
    """Who has the lock."""

    pid: int
    mountpoint: Path
    control: Path | None = None  # its socket; None as long as it has none (or an older version)
    begun: int | None = None  # when its process began, see `_begun`; None: an older version

    def is_process(self, pid: int) -> bool:
        """Whether the process of that number is it: numbers are used again, and containers have
        numbers of their own."""
        begun = None if self.begun is None else _begun(pid)
        return pid == self.pid if begun is None else begun == self.begun


class Lock:
    """Taken once, held until released or until the process ends."""

    def __init__(self, path: Path, account: str) -> None:
        self._path = path
        self._account = account
        self._descriptor: int | None = None
        self._said = b""

    def take(self, folder: Path | None, *, patience: float = LEAVING_SECONDS) -> None:
        """Take it, for a mount at `folder`, or for None to keep daemons from beginning.

        A daemon that is just leaving (its mount is gone) is waited for, `patience` seconds.
        Raises AlreadyRunning, which names process and mounting point; MountError where files
        there cannot be locked.
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
                waits = leaving or _is_only_read(descriptor)
                seconds = patience if waits else min(patience, LOOK_SECONDS)
                if time.monotonic() < begun + seconds:
                    time.sleep(0.05)
                    continue
                os.close(descriptor)
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
        """Say in the file where the holder listens; once it is taken."""
        self._write({**json.loads(self._said), "control": os.fspath(control)})

    def _write(self, who: dict[str, Any]) -> None:
        """Whoever reads meanwhile finds the former text or this one, with blanks behind it."""
        assert self._descriptor is not None, "take it first"
        self._said = json.dumps(who).encode("ascii").ljust(len(self._said))
        os.pwrite(self._descriptor, self._said, 0)

    def release(self) -> None:
        """Give it back; harmless where it is not held."""
        if self._descriptor is not None:
            os.ftruncate(self._descriptor, 0)
            os.close(self._descriptor)
            self._descriptor = None


def refusal(account: str, who: Holder | None) -> AlreadyRunning:
    """Return what to say of the account's other daemon."""
    if who is None:
        return AlreadyRunning(f"another zonedrive is starting for account {account}")
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
    """Who wrote himself into the lock file last; alive or not is the lock's to say."""
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
    """When a process began, in ticks since the machine did; None where there is none.

    With it a process is told from every other one, whatever number it is seen by.
    """
    try:
        # The name, in brackets, may hold anything.
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b") ")[2].split()
        return int(fields[19])
    except (OSError, ValueError, IndexError):
        return None


@contextmanager
def reading(path: Path) -> Iterator[bool]:
    """Keep daemons from beginning inside the block; gives False where one has begun.

    Nothing is written, so that also a disk which takes no writing can be looked at.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:  # there was no daemon yet
        yield True
        return
    try:
        yield _is_shared(descriptor)
    finally:
        os.close(descriptor)


def is_held(path: Path) -> bool:
    """Whether some process holds the lock now."""
    with reading(path) as is_free:
        return not is_free


def _is_shared(descriptor: int) -> bool:
    """Take the lock with all others who read; False where a daemon has it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks, where no daemon is
        pass
    return True


def _is_only_read(descriptor: int) -> bool:
    """Return True if no daemon has the lock, only who reads what one left."""
    if not _is_shared(descriptor):
        return False
    with suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_UN)
    return True
