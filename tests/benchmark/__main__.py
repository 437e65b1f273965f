"""Benchmark: `python -m tests.benchmark [--quick] [--only WORK,…] [--json FILE] [--publish]`.

Measures zonedrive, its alternatives, and the limit of this machine, in turn for each work, five
times, and prints medians with the lowest and highest values. A slow contestant is measured less
often (--patience), and the table then says how often. `packaging/setup --benchmark` installs the
alternatives; davfs2 needs root. `python -m tests.benchmark.compare` compares two JSON files.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from tests.benchmark import dataset, mounts, rows, surroundings, table
from tests.benchmark.measurements import Bench, Failed, Figures
from tests.benchmark.mounts import Contestant
from tests.benchmark.servers import RCLONE, SSHD, Servers, Sshd, WebDav

PAGE = Path(__file__).parents[2] / "src/zonedrive/docs/PERFORMANCE.md"
QUICK_MIB = 128
SLOW = {"scale_1m"}
TIMES = 5
PATIENCE_SECONDS = 100.0

NEEDED: Mapping[str, tuple[str | Path, ...]] = {
    "rclone": (RCLONE,),
    "davfs2": ("mount.davfs", RCLONE),
    "sshfs": ("sshfs", SSHD),
    "curl": ("curl",),
}
"""Programs that each contestant needs, including those of its server."""


class NoMount:
    """Limit that needs no mount."""

    def __init__(self, name: str) -> None:
        self.name = name

    @contextmanager
    def mounted(self, *options: str, far: bool = False) -> Iterator[mounts.Place]:
        """Raise Failed, because there is no mount."""
        raise Failed("this is no mount")
        yield


def missing(wanted: set[str]) -> str:
    """Return one line about what cannot be measured on this machine, with the remedy, or ""."""
    absent = [who for who in sorted(wanted) if not all(map(has, NEEDED.get(who, ())))]
    if absent:
        return f"{', '.join(absent)}: not installed; run packaging/setup --benchmark"
    if "davfs2" in wanted and os.geteuid() != 0:
        return "davfs2 can only be mounted by root: run this as root, or leave it out with --who"
    return ""


def contestants(servers: Servers, wanted: set[str]) -> dict[str, Contestant]:
    """Return the requested contestants, with their servers started."""
    found: dict[str, Contestant] = {
        "zonedrive": mounts.Zonedrive(servers),
        "bare": mounts.Bare(servers),
        "native": mounts.Native(servers),
        "curl": NoMount("curl"),
        "requests": NoMount("requests"),
    }
    if wanted & {"rclone", "davfs2"}:
        webdav = WebDav(servers)
        found["rclone"] = mounts.Rclone(servers, webdav)
        found["davfs2"] = mounts.Davfs(servers, webdav)
    if "sshfs" in wanted:
        found["sshfs"] = mounts.Sshfs(servers, Sshd(servers))
    return {name: each for name, each in found.items() if name in wanted}


def has(program: str | Path) -> bool:
    """Return True if the contestant's programs are installed."""
    return shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin:/sbin") is not None


def measure(
    bench: Bench,
    found: Mapping[str, Contestant],
    works: Mapping[str, rows.Work],
    times: int,
    patience_s: float,
) -> tuple[dict[str, dict[str, list[Figures]]], list[str]]:
    """Measure all works by their contestants, in turn; return figures and failures.

    A contestant other than zonedrive that has taken `patience_s` for a work is not measured
    again.
    """
    measured: dict[str, dict[str, list[Figures]]] = {}
    failures = []
    for name, work in works.items():
        measured[name] = {}
        spent = dict.fromkeys(work.who, 0.0)
        for _ in range(min(times, work.times)):
            for who in work.who:
                if who not in found or (who != "zonedrive" and spent[who] >= patience_s):
                    continue
                began = time.monotonic()
                try:
                    figures = work.measured_by(who)(bench, found[who])
                except (Failed, AssertionError, OSError, subprocess.SubprocessError) as failed:
                    failures.append(f"{name}, {who}: {failed}")
                    print(failures[-1], file=sys.stderr, flush=True)
                    figures = failed.figures if isinstance(failed, Failed) else {}
                measured[name].setdefault(who, []).append(figures)
                shown = ", ".join(
                    f"{key} {value:.4g}" for key, value in figures.items() if key != "began"
                )
                took, load = time.monotonic() - began, os.getloadavg()[0]
                spent[who] += took
                print(
                    f"{name}, {who}: {shown}  ({took:.1f} s, load {load:.1f})",
                    file=sys.stderr, flush=True,
                )  # fmt: skip
    return measured, failures


def arguments() -> argparse.Namespace:
    """Return the arguments of the command."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmark", description=__doc__)
    parser.add_argument("--only", metavar="WORK,…", help=f"of {', '.join(rows.WORKS)}")
    parser.add_argument(
        "--who",
        metavar="NAME,…",
        help="of zonedrive, rclone, davfs2, sshfs, native, bare, curl, requests",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write everything here")
    parser.add_argument(
        "--markdown", type=Path, metavar="FILE", help="also write the table here, as on the page"
    )
    parser.add_argument(
        "--rtt", type=float, default=20, metavar="MS", help="milliseconds to what is far"
    )
    parser.add_argument("--big", type=int, default=1024, metavar="MIB", help="size of a big file")
    parser.add_argument(
        "--quick", action="store_true", help=f"once each, a big file is {QUICK_MIB} MiB"
    )
    parser.add_argument("--times", type=int, default=TIMES, metavar="N", help="so often each")
    parser.add_argument(
        "--patience",
        type=float,
        default=PATIENCE_SECONDS,
        metavar="SECONDS",
        help="whoever but zonedrive has taken so long for a work is not measured again",
    )
    parser.add_argument(
        "--keep", type=Path, metavar="DIR", help="make the data set here and leave it for the next"
    )
    parser.add_argument(
        "--publish", action="store_true", help="write the table to docs/PERFORMANCE.md"
    )
    given = parser.parse_args()
    if given.times < 1:
        parser.error("--times is at least 1")
    if given.quick:
        given.big, given.times = min(given.big, QUICK_MIB), 1
    unknown = set((given.only or "").split(",")) - set(rows.WORKS) - {""}
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    return given


def main() -> int:
    """Run the benchmark; exit code 1 if something could not be measured."""
    given = arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    names = set(given.only.split(",")) if given.only else set(rows.WORKS)
    if given.quick and not given.only:
        names -= SLOW
    works = {name: work for name, work in rows.WORKS.items() if name in names}
    wanted = {who for work in works.values() for who in work.who}
    if given.who:
        wanted &= set(given.who.split(","))
    if lacking := missing(wanted):
        print(lacking, file=sys.stderr)
        return 2
    busy = surroundings.busy()
    folder = Path(tempfile.mkdtemp(prefix="zdbench"))
    try:
        kept = (given.keep or folder) / f"{given.big} MiB"
        files = kept / "files"
        files.mkdir(parents=True, exist_ok=True)
        print("making the data set and the servers", file=sys.stderr, flush=True)
        dataset.make(files, given.big)
        servers = Servers(folder, kept / "service", files, given.rtt)
        try:
            bench = Bench(servers, given.big, given.rtt, count())
            began = time.monotonic()
            measured, failures = measure(
                bench, contestants(servers, wanted), works, given.times, given.patience
            )
        finally:
            servers.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    found = table.lines(rows.ROWS, measured, given.times)
    versions = surroundings.versions(wanted)
    about = (
        f"{time.strftime('%Y-%m-%d %H:%M', time.gmtime())} UTC, commit {surroundings.commit()}, "
        f"{surroundings.machine()}; {', '.join(' '.join(each) for each in versions.items())}; "
        f"other programs used {busy:.1f} cores at the beginning. Medians of {given.times} "
        f"(lowest–highest); a big file has {given.big:,} MiB, far is a round trip of "
        f"{given.rtt:g} ms; CPU is that of the processes of the mount."
    )
    block = table.markdown(found, about)
    print(about, table.text([table.HEADS, *map(table.cells, found)]), sep="\n\n")
    if given.json:
        more = {
            "about": about, "commit": surroundings.commit(), "machine": surroundings.machine(),
            "versions": versions, "busy_cores": busy, "times": given.times,
            "rtt_ms": given.rtt, "big_mib": given.big,
            "seconds": round(time.monotonic() - began), "failures": failures,
        }  # fmt: skip
        given.json.write_text(json.dumps(table.as_json(found, measured, more), indent=1))
    if given.markdown:
        given.markdown.write_text(block, "utf-8")
    if given.publish:
        table.publish(PAGE, block)
    return bool(failures)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
