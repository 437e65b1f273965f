"""Process setup for file name encoding, standard streams and memory protection.

This module imports no other module of zonedrive, because its code runs before all other code.

In a locale with an encoding other than UTF-8, Python would use that encoding for paths and text
files. A command and a daemon in different locales would then mean different files by the same name.

INVARIANT: after `ensure_utf8`, Python decodes paths as UTF-8, with invalid bytes as lone
surrogates.
INVARIANT: after `open_closed_streams`, the descriptors 0, 1 and 2 are in use, so that no pipe,
socket or store of zonedrive gets one of these numbers.
INVARIANT: after `replace_output`, a failed print neither ends a command nor changes its result. A
print can fail in the middle of the command's work if the reader of a pipe has exited or a disk is
full.
"""

import codecs
import contextlib
import ctypes
import io
import os
import resource
import signal
import sys
from collections.abc import Callable

FORM = ("encoding", "errors", "line_buffering", "write_through")  # of a stream

failures: list[OSError] = []
"""Error of the first failed write to standard output; empty if no write has failed.

After such an error, all later output is discarded.
"""

closed_streams: set[int] = set()
"""Descriptors of the standard streams that were closed at the start; their output is discarded."""

former_limits: list[int] = []
"""Soft limit of open files before `raise_limits` has raised the limit; empty if unchanged."""

_PR_SET_DUMPABLE = 4  # prctl(2)


def ensure_utf8() -> None:
    """Restart this process in Python's UTF-8 mode if the file system encoding is not UTF-8.

    Call this before all other code, and only in the main program.
    """
    if codecs.lookup(sys.getfilesystemencoding()).name == "utf-8" or sys.flags.utf8_mode:
        return
    with contextlib.suppress(OSError):  # without it, names that are not ASCII may not be found
        os.execv(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]])  # noqa: S606


def open_closed_streams() -> None:
    """Open /dev/null for each of the descriptors 0, 1 and 2 that is closed."""
    while (descriptor := os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)) <= 2:
        os.set_inheritable(descriptor, True)
        closed_streams.add(descriptor)
    os.close(descriptor)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            mode = "w" if number else "r"
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115


class _Output(io.TextIOWrapper):
    """Stream for standard output or standard error, whose writes raise no OSError.

    Text that cannot be written is discarded. `failures` gets the error of standard output.
    """

    def write(self, text: str) -> int:
        self._try(super().write, text)
        return len(text)

    def flush(self) -> None:
        self._try(super().flush)

    def _try(self, call: Callable[..., object], *arguments: str) -> None:
        is_output = self.fileno() == 1
        if is_output and failures:
            return
        try:
            call(*arguments)
        except OSError as wrong:
            if is_output:
                failures.append(wrong)


def replace_output() -> None:
    """Replace `sys.stdout` and `sys.stderr` by streams whose writes raise no OSError.

    Writes to the `buffer` of these streams still raise OSError. Call this only in the main program.
    """
    for name in ("stdout", "stderr"):
        old = getattr(sys, name)
        form = {key: getattr(old, key) for key in FORM}
        if codecs.lookup(old.encoding).name == "ascii":  # then click would bypass the stream
            form["encoding"] = "utf-8"
        new = _Output(old.detach(), **form)
        setattr(sys, name, new)
        setattr(sys, f"__{name}__", new)  # `shutil` finds the size of the terminal by it


def output_failure() -> OSError | None:
    """Flush standard output, and return the error of the first failed write to it, or None."""
    sys.stdout.flush()
    return failures[0] if failures else None


def receive_signals() -> None:
    """Unblock all signals, and do not ignore SIGCHLD.

    A process inherits the blocked and the ignored signals from its parent process. A blocked
    SIGTERM would not end the daemon. While SIGCHLD is ignored, the kernel keeps no exit status, and
    Python reports 0 for every child process, also for a fusermount3 that refused to unmount.
    """
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)


def forbid_dumps() -> None:
    """Disable core dumps of this process, and access by crash handlers and the user's debuggers.

    The resource limit alone is not enough, because a kernel that pipes core dumps to a program
    ignores the limit. fusermount3 is a separate program and not affected.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def raise_limits() -> None:
    """Raise the soft limits of open file descriptors and of file sizes to the hard limits.

    Files that are open in the mount need descriptors. The soft limit is low by default because
    select(2) cannot handle high descriptor numbers; the daemon does not call select(2). A shell's
    limit of file sizes would also limit the database and the content of files.
    """
    _raise_limit(resource.RLIMIT_FSIZE)
    if soft := _raise_limit(resource.RLIMIT_NOFILE):
        former_limits[:] = [soft]


def affordable_connections() -> int:
    """Return the number of concurrent requests that the open file limit allows, at least 1.

    The daemon needs about 40 descriptors for itself. There may be as many transfers as requests,
    and each connection has four descriptors.
    """
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return max(1, (limit - 48) // 8) if limit != resource.RLIM_INFINITY else sys.maxsize


def _raise_limit(which: int) -> int | None:
    """Raise a soft limit to the hard limit; return the former value, or None if it is unchanged."""
    soft, hard = resource.getrlimit(which)
    if soft == hard:
        return None
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(which, (hard, hard))
        return soft
    return None


def with_former_limit(command: list[str]) -> list[str]:
    """Return a command that runs `command` with the former soft limit of open files.

    Return `command` itself if `raise_limits` has not raised the limit.
    """
    if not former_limits:
        return command
    return ["prlimit", f"--nofile={former_limits[0]}:", *command]


def leave(number: int, frame: object) -> None:
    """Handle a signal by raising SystemExit with status 128 + `number`.

    The `finally` blocks run before the process exits.
    """
    sys.exit(128 + number)
