"""How each work is measured on one mount: which mount, which figures, where writes arrived.

Must not know what is aimed at.  A measurement takes a contestant and gives figures by name; one
that fails gives none and says why.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path

from tests.benchmark import dataset
from tests.benchmark.mounts import Contestant, Place
from tests.benchmark.servers import Late, Servers, arrived
from tests.benchmark.work import Job

WORK_SECONDS = 180.0
ARRIVE_SECONDS = 120.0
IDLE_SECONDS = 10.0
SCALE_SECONDS = 1800.0

Figures = dict[str, float]


class Failed(Exception):
    """A work that did not succeed, in one line; `figures` is what is known all the same."""

    def __init__(self, why: str, figures: Figures | None = None) -> None:
        super().__init__(why)
        self.figures = figures or {}


@dataclass(frozen=True)
class Bench:
    """What every measurement needs."""

    servers: Servers
    big_mib: int
    rtt_ms: float
    _numbers: "count[int]"

    def fresh_name(self) -> str:
        """A name below `Out` that nothing has had."""
        return f"run{os.getpid()}-{next(self._numbers)}"

    def job(self, place: Place, out: str = "") -> Job:
        """The work's place."""
        source = str(self.servers.dataset / "source")
        return Job(str(place.root), out or self.fresh_name(), source, self.big_mib)


def do(name: str, job: Job, seconds: float = WORK_SECONDS) -> Figures:
    """Have the work done in a process of its own.  Raises Failed."""
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
            worker.wait(5)  # in a hung mount it ends when that is cleared away
        if isinstance(early, subprocess.TimeoutExpired):
            raise Failed(f"not done in {seconds:.0f} s") from early
        raise
    if worker.returncode:
        raise Failed(complaint.strip().rpartition("\n")[2][:300] or f"exit {worker.returncode}")
    figures: Figures = json.loads(said)
    return figures


def do_on(place: Place, name: str, job: Job) -> Figures:
    """The same, and what it cost those who serve the mount: this wanders less with the load."""
    before = sum(map(used_s, place.daemons))
    figures = do(name, job)
    return figures | {"cpu_s": sum(map(used_s, place.daemons)) - before}


def landed(place: Place, wanted: Mapping[str, int], began: float) -> float:
    """Seconds from `began` until all that was written is on the service.  Raises Failed."""
    try:
        return arrived(place.shelf, wanted, time.monotonic() + ARRIVE_SECONDS) - began
    except Late as late:
        raise Failed(str(late)) from late


Measurement = Callable[[Bench, Contestant], Figures]


def plain(name: str, *, far: bool = False, options: tuple[str, ...] = ()) -> Measurement:
    """One work on a fresh mount."""

    def measure(bench: Bench, who: Contestant) -> Figures:
        with who.mounted(*options, far=far) as place:
            return do_on(place, name, bench.job(place))

    return measure


def written(name: str, wanted: Mapping[str, int], *, far: bool = False) -> Measurement:
    """One work that writes, and the time until everything has arrived."""

    def measure(bench: Bench, who: Contestant) -> Figures:
        with who.mounted(far=far) as place:
            job = bench.job(place)
            figures = do_on(place, name, job)
            below = {f"Out/{job.out}/{path}": size for path, size in wanted.items()}
            try:
                return figures | {"landed_s": landed(place, below, figures["began"])}
            except Failed as late:
                raise Failed(str(late), figures) from late

    return measure


def first_bytes(bench: Bench, who: Contestant) -> Figures:
    """The beginning of a big file, in milliseconds and in round trips."""
    figures = plain("first_bytes", far=True)(bench, who)
    if bench.rtt_ms:
        figures["trips"] = figures["ms"] / bench.rtt_ms
    return figures


def big_write(bench: Bench, who: Contestant) -> Figures:
    """One big file; its size is that of this run."""
    return written("big_write", {"big.bin": bench.big_mib * dataset.MIB})(bench, who)


def git(bench: Bench, who: Contestant) -> Figures:
    """A clone, git status at once, when everything has arrived, and on a fresh mount."""
    repository = bench.servers.dataset / "source" / "repository"
    wanted = {
        f"src/{path.parent.name}/{path.name}": path.stat().st_size
        for path in repository.glob("src/*/*.py")
    }
    out = bench.fresh_name()
    with who.mounted(far=True) as place:
        job = bench.job(place, out)
        cloned = do("git_clone", job)
        figures = {"clone_s": cloned["s"], "status_s": do("git_status", job)["s"]}
        below = {f"Out/{out}/{path}": size for path, size in wanted.items()}
        figures["landed_s"] = landed(place, below, cloned["began"])
        wait_for_rest(bench, place, out)
    with who.mounted(far=True) as place:
        figures["cold_status_s"] = do("git_status", bench.job(place, out))["s"]
    return figures


def wait_for_rest(bench: Bench, place: Place, out: str) -> None:
    """Until what git keeps for itself is on the service too, so that another mount sees it."""
    here = {
        f"Out/{out}/.git/{name}": (place.root / "Out" / out / ".git" / name).stat().st_size
        for name in ("HEAD", "config", "index", "packed-refs")
    }
    landed(place, here, time.monotonic())


def random_reads(bench: Bench, who: Contestant) -> Figures:
    """Reads here and there, and what the service sent for them."""
    with who.mounted(far=True) as place:
        before = bench.servers.service.stats()["bytes_out"]
        figures = do_on(place, "random_reads", bench.job(place))
        sent = bench.servers.service.stats()["bytes_out"] - before
    if who.name == "zonedrive":
        figures["fetched_share"] = sent / (bench.big_mib * dataset.MIB)
    return figures


def reread(*options: str) -> Measurement:
    """A big file that is all in the cache on disk, after a restart, from disk and from memory."""

    def measure(bench: Bench, who: Contestant) -> Figures:
        with who.mounted(*options) as place:
            job = bench.job(place)
            do("sequential", job)
            figures: Figures = {}
            # From the disk more than once: what was just written, a host's disk gives slower.
            for name in ("disk", "disk", "disk", "memory"):
                if place.restart is not None:
                    place.restart()
                if name == "disk":
                    forget_pages(place.cache or place.root / "Data" / "big")
                rate, figure = do("sequential", job)["mb_per_s"], f"{name}_mb_per_s"
                figures[figure] = max(rate, figures.get(figure, 0))
            return figures

    return measure


def forget_pages(folder: Path) -> None:
    """Have the kernel forget the content of these files, so that it is read from the disk."""
    for path in folder.rglob("*"):
        if path.is_file():
            fd = os.open(path, os.O_RDONLY)
            os.fsync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(fd)


def memory(bench: Bench, who: Contestant) -> Figures:
    """What the daemons hold after everything was listed and a big file was read."""
    with who.mounted() as place:
        job = bench.job(place)
        for name in ("find", "ls_large", "sequential", "small_writes"):
            do(name, job)
        return {"mib": sum(map(resident_mib, place.daemons))}


def resident_mib(pid: int) -> float:
    """The resident memory of a process."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


def start(bench: Bench, who: Contestant) -> Figures:
    """From the command until an ls is answered: fresh, and with what was seen before."""
    began = time.monotonic()
    with who.mounted() as place:
        do("first_look", bench.job(place))
        figures = {"fresh_s": time.monotonic() - began}
        if place.restart is not None:
            do("find", bench.job(place))
            do("ls_large", bench.job(place))
            began = time.monotonic()
            place.restart()
            figures["again_s"] = time.monotonic() - began
        return figures


def idle(bench: Bench, who: Contestant) -> Figures:
    """What a mount that nobody uses costs, after a listing and its time of being fresh."""
    with who.mounted() as place:
        do("ls_large", bench.job(place))
        time.sleep(12)
        before, cpu = bench.servers.service.stats()["requests"], sum(map(cpu_s, place.daemons))
        woken = sum(map(wakeups, place.daemons))
        time.sleep(IDLE_SECONDS)
        used = sum(map(cpu_s, place.daemons)) - cpu
        asked = bench.servers.service.stats()["requests"]
        figures = {
            "cpu_percent": 100 * used / IDLE_SECONDS,
            "wakeups": sum(map(wakeups, place.daemons)) - woken,
        }
        if who.name == "zonedrive":
            figures["requests"] = sum(asked.values()) - sum(before.values())
        return figures


def used_s(pid: int) -> float:
    """Seconds of a core that a process has used, in steps of 10 ms."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def cpu_s(pid: int) -> float:
    """Seconds of a core that the threads of a process have used, to the nanosecond."""
    return sum(
        int(path.read_text().split()[0]) / 1e9
        for path in Path(f"/proc/{pid}/task").glob("*/schedstat")
    )


def wakeups(pid: int) -> int:
    """How often all threads of a process have waited for something and gone on."""
    return sum(
        int(path.read_text().partition("\nvoluntary_ctxt_switches:")[2].split()[0])
        for path in Path(f"/proc/{pid}/task").glob("*/status")
    )


def under_load(bench: Bench, who: Contestant) -> Figures:
    """Stats while big files come and go, until the last of them has come."""
    size = bench.big_mib // dataset.LOADS * dataset.MIB
    sent = {f"load{number}.bin": size for number in range(dataset.LOADS)}
    return written("stat_under_load", sent)(bench, who)


def scale(shape: str) -> Measurement:
    """So many folders times so many entries: what a daemon holds then, and how it starts."""

    def measure(bench: Bench, who: Contestant) -> Figures:
        found = bench.servers.folder / f"{shape}.json"
        ended = subprocess.run(
            [sys.executable, "-m", "tests.benchmark.scale", "--shape", shape, "--json", found],
            capture_output=True, encoding="utf-8", timeout=SCALE_SECONDS, check=False,
        )  # fmt: skip
        if ended.returncode:
            raise Failed(ended.stderr.strip().rpartition("\n")[2][:300])
        said: Figures = json.loads(found.read_bytes())[shape]
        return {
            "mib": max(said["memory after it, MiB"], said["memory after that, MiB"]),
            "start_s": said["start until an ls of the zone, s"],
        }

    return measure


def curl(bench: Bench, who: Contestant) -> Figures:
    """The limit: the same URL on the same service, by curl, into nothing and into a file."""
    kept = bench.servers.folder / "downloaded"
    try:
        return {
            "mb_per_s": _curl(bench, Path("/dev/null")),
            "file_mb_per_s": _curl(bench, kept),
        }
    finally:
        kept.unlink(missing_ok=True)


def _curl(bench: Bench, target: Path) -> float:
    person = bench.servers.service.person("alice")
    zone = person.zone("Data")
    path = f"/api/zones/{zone.id}/files/{zone.entry_id('big/big.bin')}/content"
    url = bench.servers.service.base_url + path
    ended = subprocess.run(
        [
            "curl", "-sS", "--fail", "-o", target, "-w", "%{speed_download} %{size_download}",
            "--cacert", bench.servers.service.ca_file, "-K", "-", url,
        ],
        input=f'header = "Authorization: {person.http.headers["Authorization"]}"\n',
        capture_output=True, encoding="utf-8", timeout=WORK_SECONDS, check=False,
    )  # fmt: skip
    if ended.returncode:
        raise Failed(ended.stderr.strip()[:300])
    speed, size = map(float, ended.stdout.split())
    assert size == bench.big_mib * dataset.MIB, size
    return speed / 1e6
