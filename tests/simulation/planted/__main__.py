"""Plant each fault, and search for it.

    python -m tests.simulation.planted                  # all, with up to 10,000 seeds each
    python -m tests.simulation.planted NAME --renew     # one, and keep its shortest scenario
    python -m tests.simulation.planted --kept           # only the kept scenarios, no seeds

A fault counts as found if a seed has a finding with it, and none without it. The exit code is 1 if
one is not found.
"""

import argparse
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace

from tests.simulation import planted
from tests.simulation.planted import DoesNotApply, Fault, Player
from tests.simulation.run import Result
from tests.simulation.scenario import Scenario, draw, parse
from tests.simulation.shrink import kind, shrink

OTHERS = 8  # orders of tasks in which the same steps must find nothing without the fault
_now = time.perf_counter


def _result(scenario: Scenario, findings: list[str]) -> Result:
    return Result(scenario, findings, [], "")


def play_kept(fault: Fault, unpatched: Player) -> dict[str, object]:
    """Play the kept scenario of a fault with the fault and without it."""
    try:
        scenario = fault.scenario_file.read_text("utf-8")
        player = Player(fault.patch)
    except (DoesNotApply, OSError) as wrong:
        return {"error": str(wrong), "with": [], "without": []}
    findings = player.play(scenario)
    player.close()
    return {"error": "", "with": findings, "without": unpatched.play(scenario)}


def play_all_kept(names: Iterable[str]) -> bool:
    """Play the kept scenarios, and print a line of JSON for each; return True if all are found."""
    unpatched, is_found = Player(), True
    for name in names:
        said = play_kept(Fault(name), unpatched)
        print(json.dumps({"name": name} | said), flush=True)
        is_found &= bool(said["with"]) and not said["without"]
    unpatched.close()
    return is_found


class Search:
    """Search for one fault."""

    def __init__(self, fault: Fault) -> None:
        self._with, self._without = Player(fault.patch), Player()

    def close(self) -> None:
        """End the processes."""
        self._with.close()
        self._without.close()

    def play(self, scenario: Scenario) -> Result:
        """Return the findings of a scenario that has none without the fault."""
        findings = self._with.play(scenario.text())
        if findings and self._without.play(scenario.text()):
            findings = []
        return _result(scenario, findings)

    def is_sound(self, scenario: Scenario) -> bool:
        """Return True if other orders of the tasks find nothing without the fault, either."""
        others = (replace(scenario, seed=scenario.seed + number) for number in range(1, OTHERS))
        return not any(self._without.play(other.text()) for other in others)

    def run(self, first: int, seeds: int) -> tuple[int, int, Result] | None:
        """Return the number of seeds until the first that finds the fault, that seed and result."""
        for seed in range(first, first + seeds):
            result = self.play(draw(seed))
            if result.findings and self.is_sound(result.scenario):
                return seed - first + 1, seed, result
        return None

    def from_kept(self, scenario: Scenario, tries: int) -> Result | None:
        """Return the result of the kept scenario in the first order of tasks that finds the fault.

        The product may have changed since the scenario was kept.
        """
        for number in range(tries):
            result = self.play(replace(scenario, seed=scenario.seed + number))
            if result.findings:
                return result
        return None

    def shortest(self, result: Result, seconds: float) -> Result:
        """Return the shortest scenario with the same finding."""
        return shrink(result, seconds, _now, self.play)


def search(fault: Fault, given: argparse.Namespace) -> tuple[bool, str, dict[str, object]]:
    """Search for one fault; return True if it was found, a line of the table, and a note."""
    began = _now()
    searching = Search(fault)
    try:
        after, seed, result = 0, 0, None
        if given.again and fault.scenario_file.exists():
            scenario = parse(fault.scenario_file.read_text("utf-8"))
            result = searching.from_kept(scenario, given.again)
        elif hit := searching.run(given.first, given.seeds):
            after, seed, result = hit
        if result is None:
            line = f"{fault.name:40} NOT FOUND in {given.seeds} seeds: {fault.says}"
            return False, line, {}
        if given.renew:
            shortest = searching.shortest(result, given.shorten)
            fault.scenario_file.write_text(shortest.scenario.text(), "utf-8")
        line = f"{fault.name:40} {after:6} {_now() - began:5.0f} s  {kind(result)}"
        note = {"seed": seed, "after": after, "finding": kind(result)} if after else {}
        return True, line, note
    finally:
        searching.close()


def main() -> int:
    """Run the command."""
    if os.environ.get("PYTHONHASHSEED") != "0":  # the order of sets is part of a run
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "tests.simulation.planted", *sys.argv[1:]])
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--seeds", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--kept", action="store_true",
                        help="play kept scenarios only; - reads names from stdin")  # fmt: skip
    parser.add_argument("--again", type=int, default=0, metavar="N",
                        help="try N orders of tasks of the kept scenarios, no seeds")  # fmt: skip
    parser.add_argument("--renew", action="store_true", help="keep the shortest scenario found")
    parser.add_argument("--shorten", type=float, default=60.0, metavar="SECONDS",
                        help="time for shortening a scenario")  # fmt: skip
    given = parser.parse_args()
    chosen = [fault for fault in planted.faults() if fault.name in given.names or not given.names]
    if given.kept:
        named = map(str.strip, sys.stdin) if given.names == ["-"] else (one.name for one in chosen)
        return not play_all_kept(named)
    with ProcessPoolExecutor(given.jobs, multiprocessing.get_context("fork")) as jobs:
        missed, notes = 0, planted.found()
        running = {jobs.submit(search, fault, given): fault for fault in chosen}
        for done in as_completed(running):
            is_found, line, note = done.result()
            missed += not is_found
            print(line, flush=True)
            if note:
                notes[running[done].name] = note
                text = json.dumps(dict(sorted(notes.items())), indent=1, ensure_ascii=False)
                planted.FOUND.write_text(text + "\n", "utf-8")
    print(f"{len(chosen) - missed} of {len(chosen)} planted faults found")
    return bool(missed)


if __name__ == "__main__":
    sys.exit(main())
