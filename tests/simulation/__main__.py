"""Simulate many weeks of work, or replay one.

    python -m tests.simulation --seeds 10000             # from --first on, on all cores
    python -m tests.simulation --minutes 60              # as many as fit, at most --seeds
    python -m tests.simulation --replay 17               # one seed, with its log
    python -m tests.simulation --replay failed-17.txt    # a scenario that was kept
    python -m tests.simulation --service sandbox         # all seeds on the sandbox's application
    python -m tests.simulation --variants                # of what was found before
    python -m tests.simulation --exhaustive 2            # all cases up to this length, and no seeds
    python -m tests.simulation --exhaustive 3 --share 50 # of the longest ones, one of 50
    python -m tests.simulation --planner                 # the planner alone, on all small inputs
    python -m tests.simulation --replay 'both sandbox: die 10; rewrite left/one.txt'

A failing seed is shortened and printed; `--keep DIR` keeps its scenario. The exit code is 1 if
anything was found, not if the time was over before the end.
"""

import argparse
import gc
import hashlib
import itertools
import math
import multiprocessing
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from tests.simulation import disk as disks
from tests.simulation import exhaustive, planning
from tests.simulation.run import Result, run
from tests.simulation.scenario import Scenario, draw, on_sandbox, parse
from tests.simulation.shrink import kind, shrink
from tests.simulation.variants import variant

CHUNK = 25
CHUNKS = 8  # of a process: about 300 MB
_now = time.perf_counter  # of the real clock, which a run replaces


def _on_sandbox(seed: int, drawn: Callable[[int], Scenario]) -> Scenario:
    """Return the scenario of a seed, on the sandbox."""
    scenario = drawn(seed)
    return on_sandbox(scenario) if scenario.service == "memory" else scenario


def _simulate(
    seeds: range, end_s: float, drawn: Callable[[int], Scenario]
) -> tuple[int, int, str, list[tuple[int, Result]]]:
    """Run the seeds of a chunk until a moment of `_now`; `drawn` returns the scenario of a seed.

    Return the first seed, the number of those that ran, their digest, and the failed ones.
    """
    failed, digest, ran = [], hashlib.sha256(), 0
    gc.disable()  # the process ends before it needs the memory
    for seed in seeds:
        if _now() > end_s:
            break
        result = run(drawn(seed))
        ran += 1
        digest.update(result.digest.encode())
        if result.findings:
            failed.append((seed, result))
    disks.close_left_open()
    return seeds.start, ran, digest.hexdigest(), failed


def _chunks(first: int, number: int | None, end_s: float) -> Iterator[range]:
    """Yield the seeds in chunks until a moment of `_now`; without `number`, no seed is the last."""
    for start in itertools.count(first, CHUNK):
        end = start + CHUNK if number is None else min(start + CHUNK, first + number)
        if start >= end or _now() > end_s:
            return
        yield range(start, end)


def _show(result: Result, *, log: bool) -> None:
    for finding in result.findings:
        print(f"FOUND {finding}")
    if log:
        print("\n".join(result.trace))
    print(result.scenario.text(), flush=True)


def _replay(what: str, *, shorten: float, drawn: Callable[[int], Scenario]) -> int:
    path = Path(what)
    scenario = parse(path.read_text("utf-8")) if path.exists() else drawn(int(what))
    result = run(scenario)
    if shorten and result.findings:
        result = shrink(result, shorten, _now)
    _show(result, log=True)
    print(f"digest {result.digest}, {len(result.findings)} findings")
    return bool(result.findings)


def _program() -> str:
    """Return a hash of the program's modules that are loaded; runs of one program add up."""
    modules = sorted(name for name in sys.modules if name.partition(".")[0] == "zonedrive")
    files = (Path(sys.modules[name].__file__ or os.devnull) for name in modules)
    return hashlib.sha256(b"".join(map(Path.read_bytes, files))).hexdigest()[:16]


def main() -> int:
    """Run the command."""
    if os.environ.get("PYTHONHASHSEED") != "0":  # the order of sets is part of a run
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "tests.simulation", *sys.argv[1:]])
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, help="10,000 by default, without --minutes")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=math.inf,
                        help="begin no further run after this time")  # fmt: skip
    parser.add_argument("--service", choices=("sandbox",),
                        help="run all seeds on this service")  # fmt: skip
    parser.add_argument("--variants", action="store_true",
                        help="run variants of the scenarios that were found before")  # fmt: skip
    parser.add_argument("--replay", metavar="SEED|FILE|CASE")
    parser.add_argument("--shorten", type=float, default=60.0, metavar="SECONDS",
                        help="time for shortening a failed scenario")  # fmt: skip
    parser.add_argument("--exhaustive", type=int, nargs="?", const=2, metavar="LENGTH",
                        help="run every sequence of up to so many operations")  # fmt: skip
    parser.add_argument("--planner", action="store_true", help="run all small plans")
    parser.add_argument("--share", type=int, default=1, metavar="N",
                        help="of the longest sequences, run one of N")  # fmt: skip
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep failed scenarios here")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    given = parser.parse_args()
    began = _now()
    end_s = began + given.minutes * 60
    if given.planner:
        return planning.explore_all(given.jobs)
    if given.exhaustive:
        return exhaustive.explore(given.exhaustive, given.share, given.jobs, _now, end_s)
    drawn: Callable[[int], Scenario] = variant if given.variants else draw
    if given.service:
        drawn = partial(_on_sandbox, drawn=drawn)
    if given.replay and ": " in given.replay:
        return exhaustive.replay(given.replay)
    if given.replay:
        shorten = given.shorten if "--shorten" in sys.argv else 0.0
        return _replay(given.replay, shorten=shorten, drawn=drawn)
    number = 10_000 if given.minutes == math.inf and given.seeds is None else given.seeds
    ran, kinds, shown = 0, Counter[str](), list[tuple[int, Result]]()
    digests = dict[int, str]()
    run(draw(0))  # what the processes share
    program = _program()
    gc.freeze()
    fork = multiprocessing.get_context("fork")
    with fork.Pool(given.jobs, maxtasksperchild=CHUNKS) as pool:
        chunks = _chunks(given.first, number, end_s)
        simulate = partial(_simulate, end_s=end_s, drawn=drawn)
        for first, count, digest, failed in pool.imap_unordered(simulate, chunks):
            ran += count
            digests[first] = digest
            for seed, result in failed:
                kinds[kind(result)] += 1
                print(f"seed {seed}: {kind(result)}", flush=True)
                if kinds[kind(result)] == 1:
                    shown.append((seed, result))
    for seed, result in shown:  # not before: a run replaces functions that new processes inherit
        shortest = shrink(result, given.shorten, _now)
        _show(shortest, log=False)
        if given.keep:
            given.keep.mkdir(parents=True, exist_ok=True)
            (given.keep / f"failed-{seed}.txt").write_text(shortest.scenario.text())
    if number is not None and ran < number:
        print(f"the time is over: {ran} of {number} seeds ran")
    whole = hashlib.sha256("".join(digests[each] for each in sorted(digests)).encode())
    print(f"{ran} seeds in {_now() - began:.0f} s, {kinds.total()} with findings, "
          f"digest {whole.hexdigest()[:16]}, program {program}")  # fmt: skip
    for what, times in kinds.most_common():
        print(f"{times:6} {what}")
    return bool(kinds)


if __name__ == "__main__":
    sys.exit(main())
