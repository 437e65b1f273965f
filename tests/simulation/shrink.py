"""Shortening of a failing scenario: removes steps as long as the same kind of finding remains."""

import re
from collections.abc import Callable
from dataclasses import replace

from tests.simulation.run import Result, run
from tests.simulation.scenario import Scenario


def kind(result: Result) -> str:
    """Return the first finding without its numbers and names, to group similar ones."""
    if not result.findings:
        return ""
    last = result.findings[0].strip().splitlines()[-1]
    return re.sub(r"\b[A-Z]\d+\b|\b\d+\b|[\w/]+\.txt|'[^']*'", "…", last)[:60]


def shrink(
    result: Result,
    seconds: float,
    now: Callable[[], float],
    play: Callable[[Scenario], Result] = run,
) -> Result:
    """Return the result of the shortest scenario found within `seconds` of the clock `now`."""
    wanted, best, end = kind(result), result, now() + seconds

    def fails(scenario: Scenario) -> bool:
        nonlocal best
        if now() > end:
            return False
        tried = play(scenario)
        if kind(tried) != wanted:
            return False
        best = tried
        return True

    for who in dict.fromkeys(step.who for step in result.scenario.steps):
        steps = enumerate(best.scenario.steps)
        fails(best.scenario.without({place for place, step in steps if step.who == who}))
    size, before = len(best.scenario.steps) // 2, 0
    while size and now() < end:
        place, before = 0, len(best.scenario.steps)
        while place < len(best.scenario.steps):
            if not fails(best.scenario.without(set(range(place, place + size)))):
                place += size
        size = max(1, size // 2) if size > 1 or len(best.scenario.steps) < before else 0
    if not fails(replace(best.scenario, planted=())):
        for path in best.scenario.planted:
            left = tuple(each for each in best.scenario.planted if each != path)
            fails(replace(best.scenario, planted=left))
    return best
