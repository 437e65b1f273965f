"""Which program is behind a request of the kernel: those on the `guard` list get no download.

Must not know files or what is cached; whoever is about to cause a download asks.  A process is
looked at each time, some 50 µs beside a request to the service: a number may by now belong to
another process, and one process may have become another program.

This protects from waste, not from attack: a program can give itself any name.
"""

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

# These run somebody else's code, which their first argument names.
RUNNERS = re.compile(
    r"python[\d.]*|perl[\d.]*|ruby[\d.]*|node|bash|dash|sh|gjs(-console)?|kioslave5|kioworker"
)
CUT = 15  # bytes of a name that the kernel keeps as `comm`
DELETED = " (deleted)"  # what the kernel adds where the program was upgraded meanwhile


class Callers:
    """Tells guarded programs from others."""

    def __init__(self, guard: Iterable[str], proc: Path = Path("/proc")) -> None:
        """`guard`: names of programs, without their folders; or PROGRAM/THREAD for one thread.

        PROGRAM/O_NOATIME: only what it opens with that flag.
        """
        guard = frozenset(guard)
        self._threads = frozenset(name for name in guard if "/" in name)
        self._guard = guard - self._threads
        self._cut = frozenset(
            name.encode()[:CUT].decode("utf-8", "replace") for name in self._guard
        )
        self._proc = proc

    def guarded(self, pid: int, flags: int = 0) -> bool:
        """Whether this process, or thread, is a program of the list where it opens with `flags`.

        `pid` 0 is a process of which this one is told nothing; one that is gone is none either.
        """
        if not (self._guard or self._threads) or pid <= 0:
            return False
        names = set(self._names(pid))
        if self._guard.isdisjoint(names) and not self._by_cut(pid, names):
            if flags & os.O_NOATIME and any(f"{name}/O_NOATIME" in self._threads for name in names):
                return True
            return bool(self._threads) and self._by_thread(pid, names)
        return True

    def _by_thread(self, pid: int, names: set[str]) -> bool:
        """Whether it is one thread of a program, on the list together with that."""
        try:
            thread = (self._proc / str(pid) / "comm").read_bytes().rstrip(b"\n")
        except OSError:
            return False
        said = thread.decode("utf-8", "replace")
        return any(f"{name}/{said}" in self._threads for name in names)

    def _names(self, pid: int) -> Iterator[str]:
        """What the program is called: as a file, by itself, and the script it runs."""
        folder = self._proc / str(pid)  # of a thread, too, these tell about its process
        file = ""
        try:
            file = (folder / "exe").readlink().name.removesuffix(DELETED)
            yield file
        except OSError:
            pass  # another user's, or gone
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            return
        yield _base(words[0])
        if RUNNERS.fullmatch(file or _base(words[0])):
            script = next((word for word in words[1:] if word and not word.startswith(b"-")), b"")
            yield _base(script)

    def _by_cut(self, pid: int, names: set[str]) -> bool:
        """Whether the name that the process has given itself, cut by the kernel, is on the list.

        Not where that is only the beginning of a longer name which is known, and is not.
        """
        try:
            folder = self._proc / str(pid)
            status = (folder / "status").read_bytes()
            found = re.search(rb"^Tgid:\s*(\d+)", status, re.MULTILINE)
            leader = self._proc / found[1].decode() if found else folder
            name = (leader / "comm").read_bytes().rstrip(b"\n").decode("utf-8", "replace")
        except OSError:
            return False
        if name in self._guard:
            return True
        longer = any(known.startswith(name) for known in names)
        return len(name.encode()) == CUT and name in self._cut and not longer


def _base(word: bytes) -> str:
    return os.fsdecode(word).rpartition("/")[2]
