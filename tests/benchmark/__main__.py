"""The benchmark: `python -m tests.benchmark [--quick] [--only WORK,…] [--json FILE] [--readme]`.

Measures zonedrive, what one would use instead, and what this machine could do at best, in turn for
each work, and prints a table.  `packaging/setup --benchmark` installs the peers; davfs2 needs root.
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
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from tests.benchmark import dataset, measurements, mounts, rows, table
from tests.benchmark.measurements import Bench, Failed, Figures
from tests.benchmark.mounts import Contestant
from tests.benchmark.servers import Servers, Sshd, WebDav

README = Path(__file__).parents[2] / "README.md"
QUICK_MIB = 128
SLOW = {"scale_1m"}


class Nobody:
    """The limit that is no mount."""

    name = "curl"

    @contextmanager
    def mounted(self, *options: str, far: bool = False) -> Iterator[mounts.Place]:
        """Nothing is."""
        raise Failed("this is no mount")
        yield


def contestants(servers: Servers, wanted: set[str]) -> dict[str, Contestant]:
    """Those that can be had on this machine, and the words for those that cannot."""
    found: dict[str, Contestant] = {
        "zonedrive": mounts.Zonedrive(servers),
        "bare": mounts.Bare(servers),
        "native": mounts.Native(servers),
    }
    if "curl" in wanted and has("curl"):
        found["curl"] = Nobody()
    if wanted & {"rclone", "davfs2"} and has("rclone"):
        webdav = WebDav(servers)
        found["rclone"] = mounts.Rclone(servers, webdav)
        if "davfs2" in wanted and has("mount.davfs") and os.geteuid() == 0:
            found["davfs2"] = mounts.Davfs(servers, webdav)
    if "sshfs" in wanted and has("sshfs") and has("/usr/sbin/sshd"):
        found["sshfs"] = mounts.Sshfs(servers, Sshd(servers))
    for name in sorted(wanted - set(found)):
        print(f"{name} is left out: run packaging/setup --benchmark", file=sys.stderr)
    return {name: each for name, each in found.items() if name in wanted}


def has(program: str) -> bool:
    """Whether it is installed."""
    return shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin:/sbin") is not None


def measure(
    bench: Bench, found: Mapping[str, Contestant], works: Mapping[str, rows.Work], times: int
) -> tuple[dict[str, dict[str, list[Figures]]], list[str]]:
    """All works on all who are to do them, in turn; the figures, and what failed."""
    measured: dict[str, dict[str, list[Figures]]] = {}
    failures = []
    for name, work in works.items():
        measured[name] = {}
        for _ in range(min(times, work.times)):
            for who in work.who:
                if who not in found:
                    continue
                with_it: Callable[[Bench, Contestant], Figures] = (
                    measurements.curl if who == "curl" else work.measure
                )
                began = time.monotonic()
                try:
                    figures = with_it(bench, found[who])
                except (Failed, AssertionError, OSError, subprocess.SubprocessError) as failed:
                    failures.append(f"{name}, {who}: {failed}")
                    print(failures[-1], file=sys.stderr, flush=True)
                    figures = failed.figures if isinstance(failed, Failed) else {}
                measured[name].setdefault(who, []).append(figures)
                shown = ", ".join(
                    f"{key} {value:.4g}" for key, value in figures.items() if key != "began"
                )
                took, load = time.monotonic() - began, os.getloadavg()[0]
                print(
                    f"{name}, {who}: {shown}  ({took:.1f} s, load {load:.1f})",
                    file=sys.stderr, flush=True,
                )  # fmt: skip
    return measured, failures


def arguments() -> argparse.Namespace:
    """What was asked for."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmark", description=__doc__)
    parser.add_argument("--only", metavar="WORK,…", help=f"of {', '.join(rows.WORKS)}")
    parser.add_argument(
        "--who", metavar="NAME,…", help="of zonedrive, rclone, davfs2, sshfs, bare, native, curl"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write everything here")
    parser.add_argument(
        "--rtt", type=float, default=20, metavar="MS", help="milliseconds to what is far"
    )
    parser.add_argument("--big", type=int, default=1024, metavar="MIB", help="size of a big file")
    parser.add_argument(
        "--quick", action="store_true", help=f"once each, a big file is {QUICK_MIB} MiB"
    )
    parser.add_argument("--times", type=int, default=9, metavar="N", help="at most so often each")
    parser.add_argument(
        "--keep", type=Path, metavar="DIR", help="make the data set here and leave it for the next"
    )
    parser.add_argument("--readme", action="store_true", help="put the table into the README")
    given = parser.parse_args()
    if given.quick:
        given.big, given.times = min(given.big, QUICK_MIB), 1
    unknown = set((given.only or "").split(",")) - set(rows.WORKS) - {""}
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    return given


def main() -> int:
    """The run; exit code 1 where something could not be measured."""
    given = arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    names = set(given.only.split(",")) if given.only else set(rows.WORKS)
    if given.quick and not given.only:
        names -= SLOW
    works = {name: work for name, work in rows.WORKS.items() if name in names}
    wanted = {who for work in works.values() for who in work.who}
    if given.who:
        wanted &= set(given.who.split(","))
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
            measured, failures = measure(bench, contestants(servers, wanted), works, given.times)
        finally:
            servers.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    found = table.lines(rows.ROWS, measured)
    about = (
        f"{time.strftime('%Y-%m-%d', time.gmtime())}, {table.machine()}, load "
        f"{os.getloadavg()[2]:.1f}; a big file has {given.big:,} MiB, far is a round trip of "
        f"{given.rtt:g} ms."
    )
    print(about, table.text(found), sep="\n\n")
    if given.json:
        took = round(time.monotonic() - began)
        more = {
            "rtt_ms": given.rtt, "big_mib": given.big, "seconds": took, "failures": failures,
            "load": os.getloadavg(),
        }  # fmt: skip
        given.json.write_text(json.dumps(table.as_json(found, measured, **more), indent=1))
    if given.readme:
        table.into_readme(README, table.markdown(found, about))
    return bool(failures)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
