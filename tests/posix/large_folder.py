"""Measurement of a folder with very many entries: listing it, and working in it.

    python -m tests.posix.large_folder --entries 100000

Prints times and the daemon's memory, and asserts none of them.
"""

import argparse
import os
import sqlite3
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

from tests.harness.deployment import Deployment
from tests.harness.machine import Machine, Mounted


def fill(deployment: Deployment, zone: str, folder: str, count: int) -> None:
    """Put `count` empty files into a new folder of a zone, directly in the sandbox's tables."""
    remote = deployment.person("bob").zone(zone)
    remote.make_folder(folder)
    parent = remote.entry_id(folder)
    now = time.time_ns() // 1000
    names = [
        (f"entry {number:06}.txt", uuid.uuid4().hex, uuid.uuid4().hex) for number in range(count)
    ]
    path = deployment.folder / "data" / "sandbox.db"
    with closing(sqlite3.connect(path, timeout=60)) as database, database:
        database.executemany(
            "INSERT INTO entries (id, zone_id, parent_id, name, folder, version_id, size,"
            " modified_us, modified_by) VALUES (?, ?, ?, ?, 0, ?, 0, ?, ?)",
            [
                (entry, remote.id, parent, name, version, now, "bob@acme.example")
                for name, entry, version in names
            ],
        )
        database.executemany(
            "INSERT INTO versions VALUES (?, ?, 1, 0, ?, ?)",
            [(version, entry, now, "bob@acme.example") for _, entry, version in names],
        )


def memory(pid: int) -> float:
    """Return the resident memory of a process in MB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1000
    return 0.0


def once_more(folder: Path) -> None:
    """Create, stat and remove one more entry."""
    path = folder / "one more.txt~"
    path.write_bytes(b"x")
    path.stat()
    path.unlink()


def measure(mounted: Mounted, folder: Path, count: int) -> None:
    """Print the duration of each step."""

    def timed(what: str, step: Callable[[], object]) -> None:
        began = time.monotonic()
        step()
        spent = time.monotonic() - began
        print(f"{what:42} {spent:8.3f} s   daemon {memory(mounted.pid):7.1f} MB", flush=True)

    def listing() -> None:
        assert len(os.listdir(folder)) == count

    def with_stat() -> None:
        with os.scandir(folder) as entries:
            assert sum(entry.stat().st_size for entry in entries) == 0

    def by_name() -> None:
        for number in range(0, count, max(count // 1000, 1)):
            (folder / f"entry {number:06}.txt").stat()

    def hundredfold() -> None:
        for _ in range(100):
            once_more(folder)

    print(f"{'at first':42} {'':8}     daemon {memory(mounted.pid):7.1f} MB")
    timed("listing, from the service", listing)
    timed("listing again", listing)
    timed("listing with stat of each", with_stat)
    timed("stat of 1000 by name", by_name)
    timed("create, stat, unlink of one more", lambda: once_more(folder))
    timed("100 times that", hundredfold)
    time.sleep(11)  # `refresh`: the next listing asks the service again
    timed("listing after `refresh`", listing)
    mounted.restart()
    folder.stat()
    timed("listing after a restart", listing)


def main(words: Sequence[str]) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m tests.posix.large_folder", description=__doc__)
    parser.add_argument("--entries", type=int, default=100_000)
    count = parser.parse_args(words).entries
    with tempfile.TemporaryDirectory(prefix="zd") as name:
        (Path(name) / "s").mkdir()
        deployment = Deployment(Path(name) / "s")
        machine = Machine(Path(name) / "m")
        machine.log_on(deployment, profile="sandbox")
        zone = deployment.fresh_zone()
        mounted = Mounted(machine, deployment, zone, [])
        try:
            fill(deployment, zone, "many", count)
            mounted.mount()
            measure(mounted, mounted.root / "many", count)
        finally:
            mounted.tear_down()
            deployment.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
