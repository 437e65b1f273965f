"""CPU time, memory and wake-ups of a process and its descendants, from /proc.

A client may have several processes: sshfs starts an ssh, a daemon may have helpers. Only the
processes of the mount count, not the service or the programs that use the mount.
"""

import os
import resource
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

PROC = Path("/proc")
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Moment:
    """Time, and the CPU seconds of all commands that this process has waited for so far."""

    time_s: float
    commands_cpu_s: float

    @classmethod
    def now(cls) -> Self:
        """Return the present moment."""
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return cls(time.monotonic(), used.ru_utime + used.ru_stime)

    def since(self, earlier: "Moment") -> "Moment":
        """Return the elapsed seconds and the CPU seconds since an earlier moment."""
        cpu_s = self.commands_cpu_s - earlier.commands_cpu_s
        return Moment(self.time_s - earlier.time_s, cpu_s)


def tree(roots: Iterable[int], proc: Path = PROC) -> list[int]:
    """Return the living processes among `roots` and all their descendants."""
    parents = {}
    for path in proc.glob("[0-9]*/stat"):
        with suppress(OSError):  # the process ended meanwhile
            parents[int(path.parent.name)] = int(_fields(path)[1])
    found = [pid for pid in dict.fromkeys(roots) if pid in parents]
    for pid in found:  # the list grows while it is walked
        found.extend(
            child for child, parent in parents.items() if parent == pid and child not in found
        )
    return found


def cpu_s(roots: Iterable[int], proc: Path = PROC) -> float:
    """Return the user and system seconds of a process tree, including ended children.

    A child that has ended counts once its parent has waited for it.
    """
    ticks = 0
    for pid in tree(roots, proc):
        with suppress(OSError):
            ticks += sum(map(int, _fields(proc / str(pid) / "stat")[11:15]))
    return ticks / TICKS_PER_S


def precise_cpu_s(roots: Iterable[int]) -> float:
    """Return the CPU seconds of the living threads of a process tree, to the nanosecond."""
    return sum(int(path.read_text().split()[0]) / 1e9 for path in _threads(roots, "schedstat"))


def wakeups(roots: Iterable[int]) -> int:
    """Return how often the threads of a process tree were woken."""
    return sum(
        int(path.read_text().partition("\nvoluntary_ctxt_switches:")[2].split()[0])
        for path in _threads(roots, "status")
    )


def resident_mib(roots: Iterable[int]) -> float:
    """Return the resident memory of a process tree; pages that two of them share count twice."""
    return sum(
        int((PROC / str(pid) / "status").read_text().partition("VmRSS:")[2].split()[0]) / 1024
        for pid in tree(roots)
    )


def proportional_mib(roots: Iterable[int]) -> float:
    """Return the memory of a process tree; a page that n processes share counts for 1/n."""
    return sum(
        int((PROC / str(pid) / "smaps_rollup").read_text().partition("\nPss:")[2].split()[0]) / 1024
        for pid in tree(roots)
    )


def busy_cores(before: str, after: str, seconds: float) -> float:
    """Return how many cores worked between two readings of the first line of /proc/stat."""
    ticks = [sum(map(int, _working(line))) for line in (before, after)]
    return (ticks[1] - ticks[0]) / TICKS_PER_S / seconds


def _working(line: str) -> list[str]:
    user, nice, system, _idle, _wait, *interrupts_and_stolen = line.split()[1:9]
    return [user, nice, system, *interrupts_and_stolen]


def _fields(path: Path) -> list[str]:
    """Return the fields of a stat file after the name, which may contain anything."""
    return path.read_text().rpartition(")")[2].split()


def _threads(roots: Iterable[int], name: str) -> Iterator[Path]:
    for pid in tree(roots):
        yield from (PROC / str(pid) / "task").glob(f"*/{name}")
