"""Identification of calling programs, because programs on the `guard` list get no download.

The callers of this module check a program before they cause a download for it. Results are not
cached, because a process number may later belong to another process, and a process may execute
another program. An inspection takes about 50 µs, which is little compared to a request to the
service.

The check saves downloads. It does not protect against attacks, because a program can give itself
any name.
"""

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

# Interpreters and other programs that run the script named by their first argument.
RUNNERS = re.compile(
    r"python[\d.]*|perl[\d.]*|ruby[\d.]*|node|bash|dash|sh|gjs(-console)?|kioslave5|kioworker"
)
CUT = 15  # maximum bytes of a name that the kernel stores as `comm`
DELETED = " (deleted)"  # suffix from the kernel if the program was upgraded


class CallerPolicy:
    """Check of calling programs against the `guard` list."""

    def __init__(self, guard: Iterable[str], proc: Path = Path("/proc")) -> None:
        """Store the `guard` list, and use the process information below `proc`.

        An item of the list is a program name without a folder, or PROGRAM/THREAD for one thread.
        PROGRAM/O_NOATIME matches only files that the program opens with the flag O_NOATIME.
        """
        guard = frozenset(guard)
        self._threads = frozenset(name for name in guard if "/" in name)
        self._guard = guard - self._threads
        self._cut = frozenset(
            name.encode()[:CUT].decode("utf-8", "replace") for name in self._guard
        )
        self._proc = proc

    def guarded(self, pid: int, flags: int = 0) -> bool:
        """Return True if the process or thread `pid` is on the `guard` list.

        `flags` are the flags of the program's open(2). A `pid` of 0 means an unknown process.
        Unknown and ended processes are not on the list.
        """
        if not (self._guard or self._threads) or pid <= 0:
            return False
        names = set(self._names(pid))
        if not self._guard.isdisjoint(names) or self._by_cut(pid, names):
            return True
        parts = [self._comm(str(pid))] if self._threads else []
        if flags & os.O_NOATIME:
            parts.append("O_NOATIME")
        return any(f"{name}/{part}" in self._threads for name in names for part in parts)

    def _comm(self, task: str) -> str:
        """Return a thread's name, as truncated by the kernel, or "" if the thread has ended."""
        try:
            name = (self._proc / task / "comm").read_bytes()
        except OSError:
            return ""
        return name.rstrip(b"\n").decode("utf-8", "replace")

    def _names(self, pid: int) -> Iterator[str]:
        """Yield the names of the program's file, of its argv[0], and of the script that it runs."""
        folder = self._proc / str(pid)  # for a thread, these files describe its process
        file = ""
        try:
            file = (folder / "exe").readlink().name.removesuffix(DELETED)
            yield file
        except OSError:
            pass  # another user's process, or ended
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            return
        yield _base(words[0])
        if RUNNERS.fullmatch(file or _base(words[0])):
            script = next((word for word in words[1:] if word and not word.startswith(b"-")), b"")
            yield _base(script)

    def _by_cut(self, pid: int, names: set[str]) -> bool:
        """Return True if the process's own name, truncated by the kernel, is on the list.

        `names` are the other names of the process, none of which is on the list. If one of them
        begins with the truncated name, the truncated name does not count.
        """
        try:
            status = (self._proc / str(pid) / "status").read_bytes()
        except OSError:
            return False
        found = re.search(rb"^Tgid:\s*(\d+)", status, re.MULTILINE)
        name = self._comm(found[1].decode() if found else str(pid))
        if name in self._guard:
            return True
        longer = any(known.startswith(name) for known in names)
        return len(name.encode()) == CUT and name in self._cut and not longer


def _base(word: bytes) -> str:
    return os.fsdecode(word).rpartition("/")[2]
