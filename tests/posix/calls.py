"""System calls that Python does not provide, and the errno of a call.

Knows nothing of the tested behaviour.
"""

import contextlib
import ctypes
import errno
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

AT_FDCWD = -100
NOREPLACE, EXCHANGE, WHITEOUT = 1, 2, 4  # renameat2(2)
UTIME_NOW, UTIME_OMIT = (1 << 30) - 1, (1 << 30) - 2
FICLONE = 0x40049409

_libc = ctypes.CDLL(None, use_errno=True)


class Timespec(ctypes.Structure):
    """C structure timespec."""

    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def renameat2(old: Path, new: Path, flags: int) -> None:
    """Call renameat2(2)."""
    _checked(_libc.renameat2(AT_FDCWD, os.fsencode(old), AT_FDCWD, os.fsencode(new), flags))


def utimensat(path: Path, access: tuple[int, int], change: tuple[int, int]) -> None:
    """Call utimensat(2); times are (seconds, nanoseconds or UTIME_NOW or UTIME_OMIT)."""
    times = (Timespec * 2)(Timespec(*access), Timespec(*change))
    _checked(_libc.utimensat(AT_FDCWD, os.fsencode(path), times, 0))


def fallocate(descriptor: int, mode: int, offset: int, length: int) -> None:
    """Call fallocate(2), without the emulation of posix_fallocate(3)."""
    _checked(
        _libc.fallocate(descriptor, mode, ctypes.c_longlong(offset), ctypes.c_longlong(length))
    )


def refusal(call: Callable[..., object], *arguments: object) -> str:
    """Return the name of the errno with which a call fails; "" if it succeeds."""
    try:
        call(*arguments)
    except OSError as refused:
        assert refused.errno is not None
        return errno.errorcode[refused.errno]
    return ""


def opens(path: Path | str, flags: int) -> str:
    """Return the name of the errno of open(2); "" if it succeeds."""
    return refusal(lambda: os.close(os.open(path, flags, 0o600)))


def wrong(found: dict[str, tuple[str, str]]) -> dict[str, tuple[str, str]]:
    """Return the calls whose errno is another one than expected; both are given for each call."""
    return {call: (number, expected) for call, (number, expected) in found.items()
            if number != expected}  # fmt: skip


@contextlib.contextmanager
def descriptor(path: Path, flags: int) -> Iterator[int]:
    """Yield an open file."""
    number = os.open(path, flags, 0o600)
    try:
        yield number
    finally:
        os.close(number)


def elsewhere(code: str, *arguments: str | Path) -> str:
    """Return the output of a Python program in its own process; it must succeed."""
    ended = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.strip()
