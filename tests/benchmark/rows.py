"""The rows of the table: which figure of which measurement, by whom, and what is aimed at.

Must not know how anything is measured.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from tests.benchmark import dataset, measurements
from tests.benchmark.measurements import Measurement, plain, written

EVERYBODY = ("zonedrive", "rclone", "davfs2", "sshfs")
TWO = EVERYBODY[:2]
"""Where the others take minutes and say nothing that another row does not say."""


@dataclass(frozen=True)
class Goal:
    """At least `ratio` times as good as somebody, or nothing worse than `limit`."""

    against: str = ""
    ratio: float = 0.0
    limit: float = 0.0


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    title: str
    measured: str
    figure: str
    unit: str
    goals: tuple[Goal, ...] = ()
    more_is_better: bool = False
    digits: int = 1


@dataclass(frozen=True)
class Work:
    """One thing that is measured, on everybody in turn; the best of `times` counts."""

    measure: Measurement
    who: tuple[str, ...] = EVERYBODY
    times: int = 1


SMALL = {f"f{number:03}.bin": dataset.BLOCK for number in range(dataset.SMALL)}

WORKS: Mapping[str, Work] = {
    "warm_stat": Work(plain("warm_stat"), (*EVERYBODY, "native"), 2),
    "warm_list": Work(plain("warm_list"), (*EVERYBODY, "bare", "native")),
    "find": Work(plain("find", far=True)),
    "ls_recursive": Work(plain("ls_recursive", far=True), TWO),
    "ls_large": Work(plain("ls_large", far=True), times=2),
    "first_bytes": Work(measurements.first_bytes, times=3),
    "sequential": Work(plain("sequential"), (*EVERYBODY, "bare", "curl"), 2),
    "small_files": Work(plain("small_files", far=True)),
    "random_reads": Work(measurements.random_reads),
    "reread_plain": Work(measurements.reread("encrypt=false"), ("zonedrive", "bare", "native")),
    "reread_sealed": Work(measurements.reread(), ("zonedrive",)),
    "big_write": Work(measurements.big_write, times=2),
    "small_writes": Work(written("small_writes", SMALL, far=True)),
    "git": Work(measurements.git, TWO),
    "rsync": Work(written("rsync", dataset.tree(), far=True), (*TWO, "bare")),
    "tar": Work(written("tar", dataset.tree(), far=True), (*TWO, "bare")),
    "under_load": Work(measurements.under_load, ("zonedrive", "rclone", "sshfs")),
    "memory": Work(measurements.memory, TWO),
    "scale_100k": Work(measurements.scale("100x1000"), ("zonedrive",)),
    "scale_1m": Work(measurements.scale("1000x1000"), ("zonedrive",)),
    "start": Work(measurements.start),
    "idle": Work(measurements.idle, TWO),
}

ROWS: tuple[Row, ...] = (
    Row(
        "stat, warm", "warm_stat", "per_s", "/s",
        (Goal("native", 0.8),), more_is_better=True, digits=0,
    ),
    Row(
        "list a folder of 1,000, warm", "warm_list", "per_s", "/s",
        (Goal("rclone", 3),), more_is_better=True, digits=0,
    ),
    Row("find in 1,000 folders, cold, far", "find", "s", "s", (Goal("rclone", 10),), digits=2),
    Row("ls -lR of them, cold, far", "ls_recursive", "s", "s", (Goal("rclone", 10),), digits=2),
    Row("ls -l of 10,000, cold, far", "ls_large", "s", "s", (Goal("rclone", 1),), digits=2),
    Row("first 4 KiB of a big file, cold, far", "first_bytes", "ms", "ms", (Goal("rclone", 1),)),
    Row("… in round trips", "first_bytes", "trips", "", (Goal(limit=2.5),)),
    Row(
        "big file, cold", "sequential", "mb_per_s", "MB/s",
        (Goal("curl", 0.9), Goal("rclone", 1)), more_is_better=True, digits=0,
    ),
    Row(
        "… kept in a file", "sequential", "file_mb_per_s", "MB/s", more_is_better=True, digits=0,
    ),
    Row("500 files of 4 KiB, cold, far", "small_files", "s", "s", (Goal("rclone", 5),), digits=2),
    Row(
        "random 4 KiB of a big file, cold, far", "random_reads", "per_s", "/s",
        more_is_better=True,
    ),
    Row(
        "… share of the file that was fetched", "random_reads", "fetched_share", "",
        (Goal(limit=0.1),), digits=3,
    ),
    Row(
        "big file from the cache after a restart, plain, from disk", "reread_plain",
        "disk_mb_per_s", "MB/s", (Goal("native", 0.8),), more_is_better=True, digits=0,
    ),
    Row(
        "… from memory", "reread_plain", "memory_mb_per_s", "MB/s", more_is_better=True, digits=0,
    ),
    Row(
        "… encrypted, from memory", "reread_sealed", "memory_mb_per_s", "MB/s",
        (Goal(limit=1000),), more_is_better=True, digits=0,
    ),
    Row(
        "big file written, until close", "big_write", "mb_per_s", "MB/s",
        (Goal("rclone", 1),), more_is_better=True, digits=0,
    ),
    Row("… until it is on the service", "big_write", "landed_s", "s", digits=2),
    Row(
        "500 new files of 4 KiB, until all are on the service, far", "small_writes", "landed_s",
        "s", (Goal("rclone", 8),), digits=2,
    ),
    Row("… until the last close", "small_writes", "s", "s", digits=2),
    Row("git clone of 300 files, far", "git", "clone_s", "s", (Goal("rclone", 1.5),), digits=2),
    Row("git status after it", "git", "status_s", "s", (Goal("rclone", 1.5),), digits=2),
    Row("git status, cold, far", "git", "cold_status_s", "s", (Goal("rclone", 1.5),), digits=2),
    Row("rsync -a of 1,000 files, far", "rsync", "s", "s", (Goal("rclone", 1.5),), digits=2),
    Row("… until all are on the service", "rsync", "landed_s", "s", digits=2),
    Row("tar x of 1,000 files, far", "tar", "s", "s", (Goal("rclone", 1.5),), digits=2),
    Row("… until all are on the service", "tar", "landed_s", "s", digits=2),
    Row(
        "p99 of stat while four big files come and four go", "under_load", "p99_ms", "ms",
        (Goal(limit=50),),
    ),
    Row("memory after 23,000 entries and a big file", "memory", "mib", "MiB", digits=0),
    Row("… after 100,000 entries", "scale_100k", "mib", "MiB", (Goal(limit=120),), digits=0),
    Row("… after 1,000,000 entries", "scale_1m", "mib", "MiB", (Goal(limit=450),), digits=0),
    Row("start until ls answers", "start", "fresh_s", "s", digits=2),
    Row("… with 23,000 entries known", "start", "again_s", "s", digits=2),
    Row("… with 1,000,000 entries known", "scale_1m", "start_s", "s", (Goal(limit=2),), digits=2),
    Row("idle, of a core", "idle", "cpu_percent", "%", (Goal(limit=0.5),), digits=2),
    Row("… wake-ups in 10 s", "idle", "wakeups", "", digits=0),
    Row("… requests in 10 s", "idle", "requests", "", digits=0),
)  # fmt: skip
