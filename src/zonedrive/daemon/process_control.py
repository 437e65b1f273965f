"""State of the process that holds an account's lock, and signals to it.

Knows nothing about its work or its socket: this module is for a process without a socket or an
answer.

INVARIANT: a signal is sent only to a process that holds the lock, because the pid in the file of a
killed daemon may belong to another process by now.

Source: proc(5) for `stat`, `status` and `locks`.
"""

import os
import re
import signal
import time
from contextlib import suppress
from pathlib import Path

from zonedrive.daemon import lock
from zonedrive.errors import ZonedriveError

LISTEN = signal.SIGUSR1
"""Signal that makes a daemon check its control socket, and create it again if it is missing."""

KILLED_SECONDS = 10.0
"""Maximum wait in seconds for the end of a killed process."""

LOOK_SECONDS = 0.05

PROC = Path("/proc")


def states(pid: int) -> set[str]:
    """Return the states of a process's threads: R runs, D waits for a disk, S sleeps, T is stopped.

    Returns an empty set if the process is gone. A process with state R or D is working, however
    long it takes.
    """
    found = set()
    with suppress(OSError):
        for thread in (PROC / str(pid) / "task").iterdir():
            with suppress(OSError):
                # The name, in parentheses, may contain any character.
                found.add((thread / "stat").read_bytes().rpartition(b") ")[2][:1].decode())
    return found


def is_working(pid: int) -> bool:
    """Return True if the process is computing or waiting for a disk, and is therefore silent."""
    return not {"R", "D"}.isdisjoint(states(pid))


def is_stopped(pid: int) -> bool:
    """Return True if the process is stopped (SIGSTOP, Ctrl-Z, a debugger)."""
    found = states(pid)
    return bool(found) and found <= {"T", "t"}


def ask_to_listen(path: Path) -> bool:
    """Make the holder of the lock at `path` check its socket; return False if that is impossible.

    A process without a handler for the signal (during its start, or an older version) would be
    killed by it.
    """
    descriptor = _held_by(path)
    if descriptor is None:
        return False
    try:
        who = lock.holder(path)
        if who is None or not _handles(who.pid, LISTEN):
            return False
        signal.pidfd_send_signal(descriptor, LISTEN)
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)


def end(path: Path, seconds: float) -> None:
    """End the holder of the lock at `path`: with SIGTERM within `seconds`, else with SIGKILL.

    A stopped process is continued first. Returns when the lock is free. Raises ZonedriveError if
    the process cannot be ended.
    """
    descriptor = _held_by(path)
    if descriptor is None:
        if lock.is_held(path):
            raise ZonedriveError(
                "its daemon cannot be ended from here",
                remedy="end it where it runs: in another container, or as another user",
            )
        return
    try:
        for number, patience in ((signal.SIGTERM, seconds), (signal.SIGKILL, KILLED_SECONDS)):
            signal.pidfd_send_signal(descriptor, number)
            signal.pidfd_send_signal(descriptor, signal.SIGCONT)
            if wait_end(path, patience):
                return
    except ProcessLookupError:
        if wait_end(path, KILLED_SECONDS):
            return
    except PermissionError:
        pass
    finally:
        os.close(descriptor)
    who = lock.holder(path)
    raise ZonedriveError(
        f"its daemon (process {who.pid if who else '?'}) cannot be ended",
        remedy="it may wait for a disk that does not answer; a restart of the machine ends it",
    )


def wait_end(path: Path, seconds: float) -> bool:
    """Wait up to `seconds` until the lock at `path` is free; return True if it is."""
    end_ = time.monotonic() + seconds
    while lock.is_held(path):
        if time.monotonic() > end_:
            return False
        time.sleep(LOOK_SECONDS)
    return True


def _held_by(path: Path) -> int | None:
    """Return a pidfd (pidfd_open(2)) of the process that holds the lock at `path`, or None."""
    who = lock.holder(path)
    if who is None:
        return None
    try:
        descriptor = os.pidfd_open(who.pid)
    except OSError:
        return None
    if who.is_process(who.pid) and _locks(who.pid) and lock.is_held(path):
        return descriptor
    os.close(descriptor)
    return None


def _locks(pid: int) -> bool:
    """Return True if the process holds a flock(2) lock on any file.

    The kernel's list identifies files by numbers that stat(2) does not return on all file systems.
    """
    with suppress(OSError):
        for line in (PROC / "locks").read_bytes().splitlines():
            fields = line.split()
            if b"FLOCK" in fields and b"->" not in fields and str(pid).encode() in fields[4:5]:
                return True
    return False


def _handles(pid: int, number: signal.Signals) -> bool:
    """Return True if the process has a handler for the signal."""
    try:
        text = (PROC / str(pid) / "status").read_text("ascii", "replace")
    except OSError:
        return False
    found = re.search(r"^SigCgt:\s*([0-9a-f]+)$", text, re.M)
    return found is not None and bool(int(found[1], 16) >> (number - 1) & 1)
