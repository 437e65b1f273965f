"""Memory, start and listings with many entries: `python -m tests.benchmark.scale [--shape FxN]…`.

Each shape (number of folders x entries in each) is written directly into the tables of a
sandbox. Then each daemon in turn lists all folders, starts again, and lists them again. The
limit of a listing is the time that the service takes for the answers, measured with a plain
client.
"""

import argparse
import json
import sqlite3
import subprocess
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from tests.benchmark import usage
from tests.harness.deployment import Deployment
from tests.harness.machine import Machine, Mounted

SHAPES = ("1x100000", "100x1000")
BIG = ("1000x1000", "10x100000")
MIB = 1 << 20
BIG_NAME = "big.bin"
LONG = 1800.0  # seconds; only so that a hanging run ends


def main() -> None:
    """Measure, print a line for each figure, and print JSON if requested."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shape", action="append", metavar="FxN", help=f"default: {SHAPES}")
    parser.add_argument("--big", action="store_true", help=f"also {BIG}: takes some minutes")
    parser.add_argument(
        "--big-file", type=int, default=0, metavar="MIB", help="in the end, read a file that big"
    )
    parser.add_argument("--json", type=Path, metavar="FILE")
    arguments = parser.parse_args()
    figures = {}
    for shape in arguments.shape or (SHAPES + BIG if arguments.big else SHAPES):
        folders, entries = map(int, shape.split("x"))
        with tempfile.TemporaryDirectory(prefix="zonedrive-scale-") as path:
            figures[shape] = found = Figures(shape)
            Run(Path(path), folders, entries, arguments.big_file, found).measure()
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=1))


class Figures(dict[str, float]):
    """Figures with name and unit; each is printed at once."""

    def __init__(self, shape: str) -> None:
        self._shape = shape

    def __setitem__(self, what: str, value: float) -> None:
        super().__setitem__(what, value)
        print(f"{self._shape:>12}  {what:<48} {value:>10.2f}", flush=True)


class Run:
    """Measurement of one shape, with a new sandbox."""

    def __init__(
        self, path: Path, folders: int, entries: int, big_mib: int, found: Figures
    ) -> None:
        self._path = path
        self._big_mib = big_mib
        self._found = found
        self._folders = folders
        self._entries = entries

    def measure(self) -> None:
        """Measure all figures."""
        (self._path / "sandbox").mkdir()
        deployment = Deployment(self._path / "sandbox", zones=1)
        try:
            plant(self._path / "sandbox/data/sandbox.db", self._folders, self._entries)
            if self._big_mib:
                self._upload(deployment)
            machine = Machine(self._path / "machine", starts_programs=True)
            machine.log_on(deployment, profile="sandbox")
            mounted = Mounted(machine, deployment, "Zone 01", ["refresh=86400"])
            try:
                self._found["answers of the service, s"] = self._limit(deployment)
                self._look(mounted)
            finally:
                mounted.tear_down()
        finally:
            deployment.close()

    def _look(self, mounted: Mounted) -> None:
        found = self._found
        mounted.mount()
        mounted._unwatch()  # it is for tests, which are short
        daemon = mounted.pid
        mounted.root.stat()
        found["memory at first, MiB"] = usage.resident_mib([daemon])
        with stalls(mounted) as longest:
            found["first listing of everything, s"] = _list(mounted.root)
        found["another program waited at most, ms"] = longest[0] * 1000
        found["memory after it, MiB"] = usage.resident_mib([daemon])
        found["greatest memory, MiB"] = peak_mib(daemon)
        found["second listing, s"] = _list(mounted.root)
        started = time.monotonic()
        mounted.status()
        found["status, s"] = time.monotonic() - started
        found["memory then, MiB"] = usage.resident_mib([daemon])
        mounted.unmount(seconds=LONG)
        started = time.monotonic()
        mounted.mount()
        list(mounted.root.iterdir())
        found["start until an ls of the zone, s"] = time.monotonic() - started
        mounted._unwatch()
        daemon = mounted.pid
        with stalls(mounted) as longest:
            found["listing after the start, s"] = _list(mounted.root)
        found["another program waited then, ms"] = longest[0] * 1000
        found["memory after that, MiB"] = usage.resident_mib([daemon])
        if self._big_mib:
            with (mounted.root / BIG_NAME).open("rb", buffering=0) as file:
                while file.read(MIB):
                    pass
            time.sleep(1)  # a thread returns the memory of the download
            found["memory after a big file, MiB"] = usage.resident_mib([daemon])
        database = mounted.machine.state / "tree.db"
        found["database, MiB"] = database.stat().st_size / MIB
        started = time.monotonic()
        mounted.unmount(seconds=LONG)
        found["unmount, s"] = time.monotonic() - started

    def _upload(self, deployment: Deployment) -> None:
        """Upload the big file to the root folder of the zone."""
        person = deployment.person("alice")
        zone = person.zone("Zone 01")
        path = self._path / BIG_NAME
        with path.open("w+b") as file:
            file.truncate(self._big_mib * MIB)
            answer = person.http.post(
                f"/api/zones/{zone.id}/files/{zone.root_id}",
                data={"fileName": BIG_NAME}, files={"file": (BIG_NAME, file)}, timeout=LONG,
            )  # fmt: skip
        assert answer.is_success, answer.text
        path.unlink()

    def _limit(self, deployment: Deployment) -> float:
        """Return the seconds that the service takes to list all folders, from those for one."""
        person = deployment.person("alice")
        zone = person.zone("Zone 01")
        folder = zone.entry_id("folder 0000")
        started = time.monotonic()
        answer = person.http.get(f"/api/zones/{zone.id}/folder/{folder}", timeout=LONG)
        assert answer.is_success, answer.text
        return (time.monotonic() - started) * self._folders


def peak_mib(pid: int) -> float:
    """Return the peak memory of a process."""
    return int(Path(f"/proc/{pid}/status").read_text().partition("VmHWM:")[2].split()[0]) / 1024


@contextmanager
def stalls(mounted: Mounted) -> Iterator[list[float]]:
    """Measure the longest duration (s) of a stat of a missing name during the block.

    Each stat is a request to the daemon, in a folder that is listed.
    """
    longest = [0.0]
    over = threading.Event()

    def look() -> None:
        number = 0
        while not over.wait(0.002):
            number += 1
            started = time.monotonic()
            (mounted.path / f"no such {number}").exists()
            longest[0] = max(longest[0], time.monotonic() - started)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield longest
    finally:
        over.set()
        thread.join()


def _list(root: Path) -> float:
    started = time.monotonic()
    subprocess.run(
        ["find", str(root), "-printf", "%s\n"],
        stdout=subprocess.DEVNULL, check=True, timeout=LONG,
    )  # fmt: skip
    return time.monotonic() - started


def plant(path: Path, folders: int, entries: int) -> None:
    """Create folders with entries in the first zone of a sandbox."""
    with closing(sqlite3.connect(path, timeout=60)) as database:
        zone, root, user = database.execute(
            "SELECT id, root_id, created_by FROM zones WHERE name = 'Zone 01'"
        ).fetchone()
        now = time.time_ns() // 1000
        with database:
            for number in range(folders):
                folder = uuid.uuid4().hex
                rows: list[tuple[object, ...]]
                rows = [(folder, zone, root, f"folder {number:04}", 1, None, 0, now, user)]
                rows += [
                    (uuid.uuid4().hex, zone, folder, f"Quarterly report of department {n:06}.docx",
                     0, uuid.uuid4().hex, 1000 + n, now - n, user)
                    for n in range(entries)
                ]  # fmt: skip
                database.executemany(
                    "INSERT INTO entries (id, zone_id, parent_id, name, folder, version_id, size,"
                    " modified_us, modified_by) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                    rows,
                )


if __name__ == "__main__":
    main()
