"""The process that holds an account's lock, as others see it: how it is, and signals to it.

Must not know what it does, nor its socket: this is for one that has none, or does not answer.

INVARIANT: a signal goes only to a process that holds the lock: a number that is left in the file of
a killed daemon may be somebody else's by now.

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
"""Has a daemon look whether its socket is in its place, and make it anew where it is not."""

KILLED_SECONDS = 10.0
"""How long the kernel may take to end what was killed."""

LOOK_SECONDS = 0.05

PROC = Path("/proc")


def states(pid: int) -> set[str]:
    """Of the threads, a letter each: R runs, D waits for a disk, S sleeps, T is stopped; {}: gone.

    Whoever runs or waits for a disk is at work, however long it takes.
    """
    found = set()
    with suppress(OSError):
        for thread in (PROC / str(pid) / "task").iterdir():
            with suppress(OSError):
                # The name, in brackets, may hold anything.
                found.add((thread / "stat").read_bytes().rpartition(b") ")[2][:1].decode())
    return found


def is_working(pid: int) -> bool:
    """Whether silence may be no more than a long computation, or a slow disk."""
    return not {"R", "D"}.isdisjoint(states(pid))


def is_stopped(pid: int) -> bool:
    """Whether somebody has stopped it (SIGSTOP, Ctrl-Z, a debugger)."""
    found = states(pid)
    return bool(found) and found <= {"T", "t"}


def ask_to_listen(path: Path) -> bool:
    """Have the holder of the lock at `path` look after its socket; False where it cannot be told.

    One that does not know the signal (as it is just starting, or an older one) would die of it.
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
    """End the holder of the lock at `path`: in order within `seconds`, else at once.

    One that is stopped goes on for that.  Returns when the lock is free.  Raises ZonedriveError
    where it cannot be ended.
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
    """Return when the lock at `path` is free, or the time is over: whether it is free."""
    end_ = time.monotonic() + seconds
    while lock.is_held(path):
        if time.monotonic() > end_:
            return False
        time.sleep(LOOK_SECONDS)
    return True


def _held_by(path: Path) -> int | None:
    """A descriptor (pidfd_open(2)) of the process that holds the lock at `path` now."""
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
    """Whether the process holds a lock of the kind that a daemon holds, on whatever file.

    The kernel's list names files by numbers that not all file systems give to stat(2).
    """
    with suppress(OSError):
        for line in (PROC / "locks").read_bytes().splitlines():
            fields = line.split()
            if b"FLOCK" in fields and b"->" not in fields and str(pid).encode() in fields[4:5]:
                return True
    return False


def _handles(pid: int, number: signal.Signals) -> bool:
    """Whether the process has a handler of its own for the signal."""
    try:
        text = (PROC / str(pid) / "status").read_text("ascii", "replace")
    except OSError:
        return False
    found = re.search(r"^SigCgt:\s*([0-9a-f]+)$", text, re.M)
    return found is not None and bool(int(found[1], 16) >> (number - 1) & 1)
