"""Rows of the table: figures of the measurements, and the goals for them.

Must not know how a figure is measured.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.benchmark import dataset, limits, measurements
from tests.benchmark.measurements import Measurement, plain, written

EVERYBODY = ("zonedrive", "rclone", "davfs2", "sshfs")
CURL = (*EVERYBODY, "bare", "curl")
LIMITED = (*CURL, "requests")
TWO = EVERYBODY[:2]
"""Where the others take minutes and say nothing that another row does not say."""

SETTLE_S = 1.0
"""Seconds of rest after a close before zonedrive uploads: the default of the setting `settle`."""


@dataclass(frozen=True)
class Goal:
    """Goal for zonedrive: exactly one of the first three fields is given.

    `ratio`: better than `against` by this factor. `within`: at most this factor of the time that
    `against` takes, and `plus` seconds. `limit`: the worst allowed value.
    """

    against: str = ""
    ratio: float = 0.0
    limit: float = 0.0
    within: float = 0.0
    plus: float = 0.0
    figure: str = ""
    """Another figure of `against` in the same measurement."""


@dataclass(frozen=True)
class Row:
    """One line of the table; `cpu` is the figure with the CPU seconds of the client."""

    title: str
    measured: str
    figure: str
    unit: str
    goals: tuple[Goal, ...] = ()
    more_is_better: bool = False
    digits: int = 1
    cpu: str = ""


@dataclass(frozen=True)
class Work:
    """Work to measure with each contestant in turn, at most `times` times."""

    measure: Measurement
    who: tuple[str, ...] = EVERYBODY
    times: int = 5
    instead: Mapping[str, Measurement] = field(default_factory=dict)
    """The same work for those of `who` that do it in another way."""

    def measured_by(self, who: str) -> Measurement:
        """Return the measurement of this work for one contestant."""
        return self.instead.get(who, self.measure)


SMALL = {f"f{number:03}.bin": dataset.BLOCK for number in range(dataset.SMALL)}

WORKS: Mapping[str, Work] = {
    "warm_stat": Work(plain("warm_stat"), (*EVERYBODY, "native")),
    "warm_list": Work(plain("warm_list"), (*EVERYBODY, "bare", "native")),
    "find": Work(plain("find", far=True), LIMITED,
        instead={"curl": limits.listings, "requests": limits.listings_alone},
    ),
    "ls_recursive": Work(plain("ls_recursive", far=True), TWO),
    "ls_large": Work(plain("ls_large", far=True)),
    "first_bytes": Work(measurements.first_bytes),
    "sequential": Work(
        measurements.sequential, CURL, instead={"curl": limits.download}
    ),
    "small_files": Work(
        measurements.small_files, LIMITED,
        instead={"curl": limits.small_contents, "requests": limits.small_contents_alone},
    ),
    "random_reads": Work(measurements.random_reads),
    "reread_plain": Work(measurements.reread("encrypt=false"), ("zonedrive", "bare", "native")),
    "reread_sealed": Work(measurements.reread(), ("zonedrive",)),
    "big_write": Work(
        measurements.big_write, (*EVERYBODY, "curl"), instead={"curl": limits.upload}
    ),
    "small_writes": Work(
        written("small_writes", SMALL, far=True), LIMITED,
        instead={"curl": limits.small_uploads, "requests": limits.small_uploads_alone},
    ),
    "git": Work(measurements.git, (*TWO, "bare"), instead={"bare": limits.git_status}),
    "rsync": Work(written("rsync", dataset.tree(), far=True), (*TWO, "bare")),
    "tar": Work(written("tar", dataset.tree(), far=True), (*TWO, "bare")),
    "under_load": Work(
        measurements.under_load, ("zonedrive", "rclone", "sshfs", "bare", "requests"),
        instead={"requests": limits.loads_alone},
    ),
    "memory": Work(measurements.memory, TWO),
    "scale_100k": Work(measurements.scale("100x1000"), ("zonedrive",)),
    "scale_1m": Work(measurements.scale("1000x1000"), ("zonedrive",), times=1),
    "start": Work(measurements.start),
    "idle": Work(measurements.idle, TWO, times=1),
    "idle_mounts": Work(measurements.idle_mounts, TWO, times=1),
}  # fmt: skip

ROWS: tuple[Row, ...] = (
    Row(
        "stat, warm", "warm_stat", "per_s", "/s",
        (Goal("native", 0.8),), more_is_better=True, digits=0,
    ),
    Row(
        "list a folder of 1,000, warm", "warm_list", "per_s", "/s",
        (Goal("bare", 1),), more_is_better=True, digits=0,
    ),
    Row(
        "find in 1,000 folders, cold, far", "find", "s", "s",
        (Goal(limit=0.9),), digits=2, cpu="cpu_s",
    ),
    Row(
        "ls -lR of them, cold, far", "ls_recursive", "s", "s",
        (Goal("rclone", 10),), digits=2, cpu="cpu_s",
    ),
    Row(
        "ls -l of 10,000, cold, far", "ls_large", "s", "s",
        (Goal("rclone", 1),), digits=2, cpu="cpu_s",
    ),
    Row("first 4 KiB of a big file, cold, far", "first_bytes", "ms", "ms", (Goal("rclone", 1),)),
    Row("… in round trips", "first_bytes", "trips", "", (Goal(limit=2.5),)),
    Row(
        "big file, cold", "sequential", "mb_per_s", "MB/s",
        (Goal("rclone", 1.5), Goal("curl", 0.8, figure="file_mb_per_s")),
        more_is_better=True, digits=0,
    ),
    Row(
        "… kept in a file", "sequential", "file_mb_per_s", "MB/s", more_is_better=True, digits=0,
    ),
    Row(
        "… CPU of the client", "sequential", "cpu_s_per_gib", "s/GiB",
        (Goal(limit=1.5),), digits=2,
    ),
    Row("500 files of 4 KiB, cold, far", "small_files", "s", "s", (Goal(limit=0.5),), digits=2),
    Row(
        "… CPU of the client for each file", "small_files", "cpu_ms_per_file", "ms",
        (Goal(limit=0.5),), digits=2,
    ),
    Row(
        "random 4 KiB of a big file, cold, far", "random_reads", "per_s", "/s",
        more_is_better=True, cpu="cpu_s",
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
        "… from memory", "reread_plain", "memory_mb_per_s", "MB/s", more_is_better=True,
        digits=0, cpu="memory_cpu_s",
    ),
    Row(
        "… encrypted, from memory", "reread_sealed", "memory_mb_per_s", "MB/s",
        (Goal(limit=2200),), more_is_better=True, digits=0, cpu="memory_cpu_s",
    ),
    Row(
        "big file written, until close", "big_write", "mb_per_s", "MB/s",
        (Goal("rclone", 1),), more_is_better=True, digits=0, cpu="cpu_s",
    ),
    Row(
        "… until it is on the service", "big_write", "landed_s", "s",
        (Goal("curl", within=1.3, plus=SETTLE_S),), digits=2, cpu="landed_cpu_s",
    ),
    Row(
        "500 new files of 4 KiB, until all are on the service, far", "small_writes", "landed_s",
        "s", (Goal(limit=1.7),), digits=2, cpu="landed_cpu_s",
    ),
    Row("… until the last close", "small_writes", "s", "s", digits=2, cpu="cpu_s"),
    Row(
        "git clone of 300 files, far", "git", "clone_s", "s",
        (Goal("rclone", 1.5),), digits=2, cpu="clone_cpu_s",
    ),
    Row(
        "git status after it", "git", "status_s", "s",
        (Goal("rclone", 1.5),), digits=2, cpu="status_cpu_s",
    ),
    Row(
        "git status, cold, far", "git", "cold_status_s", "s",
        (Goal(limit=0.8),), digits=2, cpu="cold_status_cpu_s",
    ),
    Row(
        "rsync -a of 1,000 files, far", "rsync", "s", "s",
        (Goal("rclone", 1.6),), digits=2, cpu="cpu_s",
    ),
    Row("… until all are on the service", "rsync", "landed_s", "s", digits=2, cpu="landed_cpu_s"),
    Row(
        "tar x of 1,000 files, far", "tar", "s", "s",
        (Goal("rclone", 1.6),), digits=2, cpu="cpu_s",
    ),
    Row("… until all are on the service", "tar", "landed_s", "s", digits=2, cpu="landed_cpu_s"),
    Row(
        "p99 of stat during four big downloads and four uploads", "under_load", "p99_ms", "ms",
        (Goal(limit=10),),
    ),
    Row(
        "… CPU of the client until all of them have ended", "under_load", "landed_cpu_s", "s",
        (Goal(limit=5),), digits=2,
    ),
    Row("memory after 23,000 entries and a big file", "memory", "mib", "MiB", digits=0),
    Row(
        "… after 100,000 entries and a big file", "scale_100k", "mib", "MiB",
        (Goal(limit=100),), digits=0,
    ),
    Row(
        "… after 1,000,000 entries and a big file", "scale_1m", "mib", "MiB",
        (Goal(limit=450),), digits=0,
    ),
    Row(
        f"… of each of {measurements.MANY} idle mounts, shared pages divided", "idle_mounts",
        "most_mib", "MiB", (Goal(limit=60),), digits=0,
    ),
    Row(
        "mount until ls answers", "start", "fresh_s", "s",
        (Goal(limit=0.25),), digits=2, cpu="fresh_cpu_s",
    ),
    Row("… with 23,000 entries known", "start", "again_s", "s", digits=2, cpu="again_cpu_s"),
    Row("… with 1,000,000 entries known", "scale_1m", "start_s", "s", (Goal(limit=2),), digits=2),
    Row("idle, of a core", "idle", "cpu_percent", "%", (Goal(limit=0.5),), digits=2),
    Row("… wake-ups in 10 s", "idle", "wakeups", "", digits=0),
    Row("… requests in 10 s", "idle", "requests", "", digits=0),
)  # fmt: skip
