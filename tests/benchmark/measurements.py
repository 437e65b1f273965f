"""Measurement of each work on one mount: the mount, the figures, the place of written data.

Knows nothing about the goals. A measurement takes a contestant and returns figures by name; a
failed one returns none and the reason. `cpu_s` is the CPU time in seconds of all processes of
the mount during the work, `service_cpu_s` that of the servers, and `proxy_cpu_s` that of the
delay proxies, which share the cores with the mount. Figures whose name begins with `landed_` end
when everything is on the service.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path

from tests.benchmark import dataset, usage
from tests.benchmark.mounts import Contestant, Place
from tests.benchmark.servers import ARRIVE_SECONDS, Late, Servers, arrived
from tests.benchmark.work import Job

WORK_SECONDS = 180.0
IDLE_SECONDS = 10.0
MANY = 20  # mounts of `idle_mounts`
SCALE_SECONDS = 1800.0

MEMORY = ("memory after it, MiB", "memory after that, MiB", "memory after a big file, MiB")
"""Figures of `scale` of which the greatest counts."""

Figures = dict[str, float]


class Failed(Exception):
    """Failed work, with a reason in one line; `figures` has the values that are known anyway."""

    def __init__(self, why: str, figures: Figures | None = None) -> None:
        super().__init__(why)
        self.figures = figures or {}


@dataclass(frozen=True)
class Bench:
    """Resources that every measurement needs."""

    servers: Servers
    big_mib: int
    rtt_ms: float
    _numbers: "count[int]"

    def fresh_name(self) -> str:
        """Return an unused name below `Out`."""
        return f"run{os.getpid()}-{next(self._numbers)}"

    def job(self, place: Place, out: str = "") -> Job:
        """Return the paths for the work."""
        source = str(self.servers.dataset / "source")
        return Job(str(place.root), out or self.fresh_name(), source, self.big_mib)


def do(name: str, job: Job, seconds: float = WORK_SECONDS) -> Figures:
    """Do the work in a separate process.  Raises Failed."""
    worker = subprocess.Popen(
        [sys.executable, "-m", "tests.benchmark.work", name, json.dumps(asdict(job))],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8", start_new_session=True,
    )  # fmt: skip
    try:
        said, complaint = worker.communicate(timeout=seconds)
    except BaseException as early:
        with suppress(ProcessLookupError):
            os.killpg(worker.pid, signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):
            worker.wait(5)  # in a hung mount, the process ends when the mount is detached
        if isinstance(early, subprocess.TimeoutExpired):
            raise Failed(f"not done in {seconds:.0f} s") from early
        raise
    if worker.returncode:
        raise Failed(complaint.strip().rpartition("\n")[2][:300] or f"exit {worker.returncode}")
    figures: Figures = json.loads(said)
    return figures


def do_on(bench: Bench, place: Place, name: str, job: Job) -> Figures:
    """Do the work, and add the CPU seconds of the mount and of the servers."""
    before = cpu_so_far(bench, place)
    figures = do(name, job)
    return figures | cpu_since(bench, place, before)


def cpu_so_far(bench: Bench, place: Place) -> Figures:
    """Return the CPU seconds of the mount, of all servers and of the delay proxies until now."""
    return {"cpu_s": usage.cpu_s(place.daemons), **bench.servers.cpu_s()}


def cpu_since(bench: Bench, place: Place, before: Figures) -> Figures:
    """Return the CPU seconds that were used since `before`, a result of `cpu_so_far`."""
    return {name: used - before[name] for name, used in cpu_so_far(bench, place).items()}


def prefixed(prefix: str, figures: Figures) -> Figures:
    """Return the same figures under names that begin with `prefix`."""
    return {f"{prefix}_{name}": value for name, value in figures.items() if name != "began"}


def landed(place: Place, wanted: Mapping[str, int], began: float) -> float:
    """Return the seconds from `began` until everything written is on the service.

    Raises Failed.
    """
    try:
        return arrived(place.shelf, wanted, time.monotonic() + ARRIVE_SECONDS) - began
    except Late as late:
        raise Failed(str(late)) from late


@contextmanager
def written_below(place: Place, out: str) -> Iterator[None]:
    """Remove the written files afterwards, so that repeated runs do not fill the disk."""
    try:
        yield
    finally:
        place.finish()
        place.shelf.remove(f"Out/{out}")


Measurement = Callable[[Bench, Contestant], Figures]


def plain(name: str, *, far: bool = False) -> Measurement:
    """Return a measurement of one work on a fresh mount."""

    def measure(bench: Bench, who: Contestant) -> Figures:
        with who.mounted(far=far) as place:
            return do_on(bench, place, name, bench.job(place))

    return measure


def written(name: str, wanted: Mapping[str, int], *, far: bool = False) -> Measurement:
    """Return a measurement of one work that writes, with the time until everything has arrived."""

    def measure(bench: Bench, who: Contestant) -> Figures:
        with who.mounted(far=far) as place:
            job = bench.job(place)
            with written_below(place, job.out):
                before = cpu_so_far(bench, place)
                figures = do_on(bench, place, name, job)
                below = {f"Out/{job.out}/{path}": size for path, size in wanted.items()}
                try:
                    figures["landed_s"] = landed(place, below, figures["began"])
                except Failed as late:
                    raise Failed(str(late), figures) from late
                return figures | prefixed("landed", cpu_since(bench, place, before))

    return measure


def sequential(bench: Bench, who: Contestant) -> Figures:
    """Read a big file from beginning to end, with the CPU seconds for each GiB."""
    figures = plain("sequential")(bench, who)
    return figures | {"cpu_s_per_gib": per_gib(bench, figures["cpu_s"])}


def per_gib(bench: Bench, cpu_s: float) -> float:
    """Return the CPU seconds for each GiB of a big file."""
    return cpu_s / bench.big_mib * 1024


def small_files(bench: Bench, who: Contestant) -> Figures:
    """Read many small files, with the CPU time for each."""
    return per_file(plain("small_files", far=True)(bench, who))


def per_file(figures: Figures) -> Figures:
    """Add the CPU time for each small file."""
    return figures | {"cpu_ms_per_file": 1e3 * figures["cpu_s"] / dataset.SMALL}


def first_bytes(bench: Bench, who: Contestant) -> Figures:
    """Measure the beginning of a big file, in milliseconds and in round trips."""
    figures = plain("first_bytes", far=True)(bench, who)
    if bench.rtt_ms:
        figures["trips"] = figures["ms"] / bench.rtt_ms
    return figures


def big_write(bench: Bench, who: Contestant) -> Figures:
    """Write one big file of this run's size."""
    return written("big_write", {"big.bin": bench.big_mib * dataset.MIB})(bench, who)


def git(bench: Bench, who: Contestant) -> Figures:
    """Measure a clone and git status: at once, after the upload, and on a fresh mount."""
    repository = bench.servers.dataset / "source" / "repository"
    wanted = {
        f"src/{path.parent.name}/{path.name}": path.stat().st_size
        for path in repository.glob("src/*/*.py")
    }
    out = bench.fresh_name()
    with who.mounted(far=True) as place:
        job = bench.job(place, out)
        cloned = do_on(bench, place, "git_clone", job)
        status = do_on(bench, place, "git_status", job)
        below = {f"Out/{out}/{path}": size for path, size in wanted.items()}
        landed_s = landed(place, below, cloned["began"])
        wait_for_rest(bench, place, out)
    with who.mounted(far=True) as place, written_below(place, out):
        cold = do_on(bench, place, "git_status", bench.job(place, out))
    return {
        "landed_s": landed_s, **prefixed("clone", cloned),
        **prefixed("status", status), **prefixed("cold_status", cold),
    }  # fmt: skip


def wait_for_rest(bench: Bench, place: Place, out: str) -> None:
    """Wait until git's own files are on the service, so that another mount sees them."""
    here = {
        f"Out/{out}/.git/{name}": (place.root / "Out" / out / ".git" / name).stat().st_size
        for name in ("HEAD", "config", "index", "packed-refs")
    }
    landed(place, here, time.monotonic())


def random_reads(bench: Bench, who: Contestant) -> Figures:
    """Measure random reads, and the bytes that the service sent for them."""
    with who.mounted(far=True) as place:
        before = bench.servers.service.stats()["bytes_out"]
        figures = do_on(bench, place, "random_reads", bench.job(place))
        sent = bench.servers.service.stats()["bytes_out"] - before
    if who.name == "zonedrive":
        figures["fetched_share"] = sent / (bench.big_mib * dataset.MIB)
    return figures


def reread(*options: str) -> Measurement:
    """Return a measurement of a big file that is completely in the cache on disk, after a restart.

    The file is read from the disk, then from memory.
    """

    def measure(bench: Bench, who: Contestant) -> Figures:
        with who.mounted(*options) as place:
            job = bench.job(place)
            do("sequential", job)
            figures: Figures = {}
            # The first look at the disk does not count: disks of hosts give slowly what was just
            # written.
            for name in ("first", "disk", "memory"):
                place.restart()
                if name != "memory":
                    forget_pages(place.cache or place.root / "Data" / "big")
                found = do_on(bench, place, "sequential", job)
                figures[f"{name}_mb_per_s"] = found["mb_per_s"]
                figures[f"{name}_cpu_s"] = found["cpu_s"]
            return figures

    return measure


def forget_pages(folder: Path) -> None:
    """Let the kernel drop the content of these files, so that they are read from the disk."""
    for path in folder.rglob("*"):
        if path.is_file():
            fd = os.open(path, os.O_RDONLY)
            os.fsync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(fd)


def memory(bench: Bench, who: Contestant) -> Figures:
    """Measure the memory of the mount after everything was listed and a big file was read."""
    with who.mounted() as place:
        job = bench.job(place)
        with written_below(place, job.out):
            for name in ("find", "ls_large", "sequential", "small_writes"):
                do(name, job)
            time.sleep(1)  # as in `scale`
            return {"mib": usage.resident_mib(place.daemons)}


def start(bench: Bench, who: Contestant) -> Figures:
    """Measure from the command to the answer of an ls: fresh, and with 23,000 known entries."""
    with who.mounted() as place:
        figures = look(place, "fresh")
        if place.mount is not None:
            job = bench.job(place)
            do("find", job)
            do("ls_large", job)
            place.restart()
            figures |= look(place, "again")
        return figures


def look(place: Place, name: str) -> Figures:
    """List the root: the time since the start of the mount command, and the CPU seconds.

    The CPU seconds are those of the commands that have ended and of the processes of the mount.
    """
    ls = ["ls", str(place.root)]
    subprocess.run(ls, stdout=subprocess.DEVNULL, check=True, timeout=WORK_SECONDS)
    took = usage.Moment.now().since(place.began)
    return {
        f"{name}_s": took.time_s,
        f"{name}_cpu_s": took.commands_cpu_s + usage.cpu_s(place.daemons),
    }


def idle(bench: Bench, who: Contestant) -> Figures:
    """Measure the cost of an unused mount, after a listing and its refresh time."""
    with who.mounted() as place:
        do("ls_large", bench.job(place))
        time.sleep(12)
        before, cpu = bench.servers.service.stats()["requests"], usage.precise_cpu_s(place.daemons)
        woken = usage.wakeups(place.daemons)
        time.sleep(IDLE_SECONDS)
        used = usage.precise_cpu_s(place.daemons) - cpu
        asked = bench.servers.service.stats()["requests"]
        figures = {
            "cpu_percent": 100 * used / IDLE_SECONDS,
            "wakeups": usage.wakeups(place.daemons) - woken,
        }
        if who.name == "zonedrive":
            figures["requests"] = sum(asked.values()) - sum(before.values())
        return figures


def idle_mounts(bench: Bench, who: Contestant) -> Figures:
    """Measure the memory of many unused mounts on one machine, as on a terminal server."""
    with ExitStack() as stack:
        places = [stack.enter_context(who.mounted()) for _ in range(MANY)]
        for place in places:
            do("warm_list", bench.job(place))
        time.sleep(12)
        each = [usage.proportional_mib(place.daemons) for place in places]
        return {"most_mib": max(each), "mean_mib": sum(each) / MANY}


def under_load(bench: Bench, who: Contestant) -> Figures:
    """Measure stats during transfers of big files, until the last of them has ended."""
    size = bench.big_mib // dataset.LOADS * dataset.MIB
    sent = {f"load{number}.bin": size for number in range(dataset.LOADS)}
    return written("stat_under_load", sent)(bench, who)


def scale(shape: str) -> Measurement:
    """Return a measurement of a daemon with the given numbers of folders and entries."""

    def measure(bench: Bench, who: Contestant) -> Figures:
        found = bench.servers.folder / f"{shape}.json"
        ended = subprocess.run(
            [
                sys.executable, "-m", "tests.benchmark.scale", "--shape", shape,
                "--big-file", str(bench.big_mib), "--json", found,
            ],
            capture_output=True, encoding="utf-8", timeout=SCALE_SECONDS, check=False,
        )  # fmt: skip
        if ended.returncode:
            raise Failed(ended.stderr.strip().rpartition("\n")[2][:300])
        said: Figures = json.loads(found.read_bytes())[shape]
        return {
            "mib": max(value for name, value in said.items() if name in MEMORY),
            "start_s": said["start until an ls of the zone, s"],
        }

    return measure
