"""Timed works, one function each: `python -m tests.benchmark.work NAME JOB` prints the figures.

Must not know the file system that it works on. Each work is a separate process, which can be
abandoned if it hangs in a file system. The names of figures end in their unit. `began` is
CLOCK_MONOTONIC, which all processes share, so that another process can wait for the arrival of
written data.
"""

# ruff: noqa: PTH116, PTH123 - the plain calls, so that little else than the mount is timed

import json
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.benchmark import dataset
from tests.benchmark.dataset import BLOCK, MIB

WARM_SECONDS = 2.0
LOAD_SECONDS = 20.0
STAT_EVERY_SECONDS = 0.002
RANDOM_READS = 200

Figures = dict[str, float]


@dataclass(frozen=True)
class Job:
    """Paths of the work: `root` contains `Data` and `Out`, `out` is a new name below `Out`."""

    root: str
    out: str
    source: str
    big_mib: int

    def data(self, name: str) -> Path:
        """Return a folder of the data set."""
        return Path(self.root) / "Data" / name

    @property
    def target(self) -> Path:
        """Return the path of a new folder."""
        return Path(self.root) / "Out" / self.out


now = time.monotonic


# --- names -------------------------------------------------------------------------------------


def warm_stat(job: Job) -> Figures:
    """Stat 2,000 files repeatedly."""
    folder = job.data("walk")
    paths = [
        f"{folder}/d{top:02}/s{sub:02}/f{number}.txt"
        for top in range(9)
        for sub in range(dataset.SUBS)
        for number in range(dataset.EACH)
    ][:2000]
    for path in paths:
        os.stat(path)
    return {"per_s": _rate(lambda: [os.stat(path) for path in paths], len(paths))}


def warm_list(job: Job) -> Figures:
    """List a folder of 1,000 entries repeatedly."""
    folder = job.data("list1k")
    assert len(os.listdir(folder)) == dataset.LISTED
    return {"per_s": _rate(lambda: os.listdir(folder), 1)}


def _rate(work: Callable[[], object], count: int) -> float:
    began, done = now(), 0
    while now() - began < WARM_SECONDS:
        work()
        done += count
    return done / (now() - began)


def find(job: Job) -> Figures:
    """Get every size in 1,000 folders of 10 files with find."""
    began = now()
    said = _run("find", job.data("walk"), "-type", "f", "-printf", "%s\n")
    took = now() - began
    assert said.count(b"\n") == dataset.WALKED, said.count(b"\n")
    return {"s": took}


def ls_recursive(job: Job) -> Figures:
    """Get every size with ls -lR."""
    began = now()
    said = _run("ls", "-lR", job.data("walk"))
    took = now() - began
    assert said.count(b".txt\n") == dataset.WALKED, said.count(b".txt\n")
    return {"s": took}


def ls_large(job: Job) -> Figures:
    """List one folder of 10,000 entries with ls -l."""
    began = now()
    said = _run("ls", "-l", job.data("ls10k"))
    took = now() - began
    assert said.count(b".dat\n") == dataset.LARGE, said.count(b".dat\n")
    return {"s": took}


def first_look(job: Job) -> Figures:
    """List the root with ls."""
    began = now()
    assert os.listdir(job.data(""))
    return {"s": now() - began}


# --- reading -----------------------------------------------------------------------------------


def first_bytes(job: Job) -> Figures:
    """Open a big file that was seen in a listing, and read its first 4 KiB."""
    folder = job.data("big")
    (name,) = os.listdir(folder)
    began = now()
    with open(folder / name, "rb", buffering=0) as file:
        data = file.read(BLOCK)
    took = now() - began
    assert data == dataset.block(0)
    return {"ms": 1e3 * took}


def sequential(job: Job) -> Figures:
    """Read one big file from beginning to end, in reads of 1 MiB."""
    buffer = bytearray(MIB)
    began, done = now(), 0
    with open(job.data("big") / "big.bin", "rb", buffering=0) as file:
        while count := file.readinto(buffer):
            # Every piece that begins with a block is the right one.
            at = -done % BLOCK
            right = int.from_bytes(buffer[at : at + 8], "little") * BLOCK
            assert right == done + at or at + 8 > count, (done, at, right)
            done += count
    took = now() - began
    assert done == job.big_mib * MIB, done
    return {"mb_per_s": done / took / 1e6}


def small_files(job: Job) -> Figures:
    """Read 500 files of 4 KiB one after the other, in the order of the listing's names."""
    folder = job.data("small")
    began = now()
    for number, name in enumerate(sorted(os.listdir(folder))):
        with open(folder / name, "rb", buffering=0) as file:
            assert file.read(2 * BLOCK) == dataset.block(number), name
    took = now() - began
    return {"s": took, "per_s": dataset.SMALL / took}


def random_reads(job: Job) -> Figures:
    """Read random blocks of 4 KiB in a big file."""
    chance, blocks = random.Random(7), job.big_mib * MIB // BLOCK
    began = now()
    fd = os.open(job.data("big") / "big.bin", os.O_RDONLY)
    for _ in range(RANDOM_READS):
        number = chance.randrange(blocks)
        assert os.pread(fd, BLOCK, number * BLOCK) == dataset.block(number)
    took = now() - began
    os.close(fd)
    return {"per_s": RANDOM_READS / took}


# --- writing -----------------------------------------------------------------------------------


def big_write(job: Job) -> Figures:
    """Write a big file in pieces of 1 MiB, until close."""
    piece = random.Random(5).randbytes(MIB)
    job.target.mkdir()
    began = now()
    fd = os.open(job.target / "big.bin", os.O_WRONLY | os.O_CREAT, 0o644)
    for _ in range(job.big_mib):
        assert os.write(fd, piece) == MIB
    os.close(fd)
    took = now() - began
    return {"mb_per_s": job.big_mib * MIB / took / 1e6, "began": began}


def small_writes(job: Job) -> Figures:
    """Write 500 new files of 4 KiB."""
    began = now()
    job.target.mkdir()
    for number in range(dataset.SMALL):
        with open(job.target / f"f{number:03}.bin", "xb", buffering=0) as file:
            file.write(dataset.block(number))
    return {"s": now() - began, "began": began}


def tar(job: Job) -> Figures:
    """Unpack 1,000 files in 20 folders."""
    job.target.mkdir()
    began = now()
    _run("tar", "-x", "-C", job.target, "-f", f"{job.source}/tree.tar", "--strip-components=1")
    return {"s": now() - began, "began": began}


def rsync(job: Job) -> Figures:
    """Copy 1,000 files in 20 folders with their times."""
    began = now()
    _run("rsync", "-a", f"{job.source}/tree/", f"{job.target}/")
    return {"s": now() - began, "began": began}


def git_clone(job: Job) -> Figures:
    """Clone 300 files with their repository; then run git status."""
    began = now()
    _run("git", "-c", "gc.auto=0", "clone", "-q", f"file://{job.source}/repository", job.target)
    return {"s": now() - began, "began": began}


def git_status(job: Job) -> Figures:
    """Run git status in the clone, which has no changes."""
    began = now()
    said = _run("git", "-c", "safe.directory=*", "-C", job.target, "status", "--short")
    assert not said, said
    return {"s": now() - began}


# --- concurrent transfers ------------------------------------------------------------------


def stat_under_load(job: Job) -> Figures:
    """Stat names for the first time, during the upload and download of four big files each."""
    names = [f"{job.data('ls10k')}/entry-{number:05}.dat" for number in range(dataset.LARGE)]
    random.Random(3).shuffle(names)
    os.stat(names.pop())  # whoever asks for the whole listing at first has done so
    job.target.mkdir()
    load = threading.Thread(target=_load, args=(job,))
    took: list[float] = []
    began = now()
    load.start()
    while load.is_alive() and now() - began < LOAD_SECONDS and names:
        before = now()
        os.stat(names.pop())
        took.append(now() - before)
        time.sleep(STAT_EVERY_SECONDS)
    load.join()
    took.sort()
    return {
        "p99_ms": 1e3 * took[len(took) * 99 // 100],
        "median_ms": 1e3 * took[len(took) // 2],
        "max_ms": 1e3 * took[-1],
        "stats": len(took),
        "load_s": now() - began,
        "began": began,
    }


def _load(job: Job) -> None:
    writers = [
        subprocess.Popen(["cp", f"{job.source}/load.bin", job.target / f"load{number}.bin"])
        for number in range(dataset.LOADS)
    ]
    for each in writers:
        each.wait()
    time.sleep(1)  # until what was closed is being sent
    readers = [
        subprocess.Popen(["cat", job.data("load") / f"load{number}.bin"], stdout=subprocess.DEVNULL)
        for number in range(dataset.LOADS)
    ]
    assert not any(each.wait() for each in [*writers, *readers])


def _run(*command: str | Path) -> bytes:
    environment = dict(os.environ, LC_ALL="C")
    ended = subprocess.run(command, capture_output=True, env=environment, check=False)
    assert ended.returncode == 0, (command, ended.returncode, ended.stderr[-300:])
    return ended.stdout


WORK: dict[str, Callable[[Job], Figures]] = {
    each.__name__: each
    for each in (
        warm_stat, warm_list, find, ls_recursive, ls_large, first_look, first_bytes, sequential,
        small_files, random_reads, big_write, small_writes, tar, rsync, git_clone, git_status,
        stat_under_load,
    )
}  # fmt: skip


if __name__ == "__main__":
    print(json.dumps(WORK[sys.argv[1]](Job(**json.loads(sys.argv[2])))))
