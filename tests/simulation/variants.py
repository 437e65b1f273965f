"""Variants of the scenarios in `found`, because faults are often near others.

A variant joins parts of scenarios, and changes the times, paths and conditions of some steps. The
scenarios are short, so that most variants run fast and concern few files.
"""

import random
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

from tests.model.programs import WRITING
from tests.simulation.scenario import (
    ENDS,
    LARGER,
    MACHINES,
    SERVICE,
    WEB,
    Scenario,
    Step,
    is_file,
    parse,
)

FOUND = Path(__file__).parent / "found"
LONGEST = 40  # steps of a scenario
OFFSETS_S = (0, 0, 0.001, 0.01, 0.02, 0.3, 1, 2, 5, 30)
RIGHTS = {"level", "write_protect", "read_protect", "unprotect"}
DEATHS = {"die", "power", "restart"}
LOSSES = {"bring_back", "damage"}
NOT_WITH_LOSSES = {"power", "profile", "log_off"}


def variant(seed: int) -> Scenario:
    """Return the variant of a seed."""
    numbers = random.Random(f"variant {seed}")
    scenario = numbers.choice(_sources())
    for _ in range(numbers.choice((1, 2, 2, 3, 4, 5))):
        scenario = numbers.choice(CHANGES)(numbers, scenario)
    return _possible(replace(scenario, seed=seed))


@cache
def _sources() -> list[Scenario]:
    found = [parse(path.read_text("utf-8")) for path in sorted(FOUND.glob("*.txt"))]
    return [each for each in found if len(each.steps) <= LONGEST]


def _with_other_actor(numbers: random.Random, scenario: Scenario) -> Scenario:
    """Add what one actor of another scenario does, at another time."""
    other = numbers.choice(_sources())
    actor = numbers.choice(sorted({step.who for step in other.steps}))
    steps = [step for step in other.steps if step.who == actor]
    users = scenario.users
    if len(users) < len(other.users) and numbers.random() < 0.5:
        users = (*users, other.users[len(users)])
    who = actor
    if actor not in (WEB, SERVICE):
        who = numbers.choice(MACHINES[: len(users)]) + actor[1:]
    later_s = _moment(numbers, scenario) - steps[0].at_s
    added = [replace(step, who=who, at_s=round(max(0.0, step.at_s + later_s), 3)) for step in steps]
    planted = tuple(dict.fromkeys((*scenario.planted, *other.planted)))
    return replace(scenario, users=users, planted=planted, steps=(*scenario.steps, *added))


def _with_other_time(numbers: random.Random, scenario: Scenario) -> Scenario:
    """Let a step happen at another time."""
    return _changed(numbers, scenario, lambda step: replace(step, at_s=_moment(numbers, scenario)))


def _with_other_paths(numbers: random.Random, scenario: Scenario) -> Scenario:
    """Let a program do the same to other files."""
    paths = _paths(scenario)

    def change(step: Step) -> Step:
        if not _is_of_files(step) or len(paths) < 2:
            return step
        return replace(step, arguments=(*numbers.sample(paths, 2), *step.arguments[2:]))

    return _changed(numbers, scenario, change)


def _with_other_verb(numbers: random.Random, scenario: Scenario) -> Scenario:
    """Let a program do something else to the same files."""
    verbs = [step.verb for each in _sources() for step in each.steps if _is_of_files(step)]

    def change(step: Step) -> Step:
        return replace(step, verb=numbers.choice(verbs)) if _is_of_files(step) else step

    return _changed(numbers, scenario, change)


def _with_step_again(numbers: random.Random, scenario: Scenario) -> Scenario:
    """Let any machine do a step once more, at another time."""
    steps = [step for step in scenario.steps if _is_of_files(step)]
    if not steps:
        return scenario
    who, at_s = numbers.choice(scenario.machines), _moment(numbers, scenario)
    again = replace(numbers.choice(steps), who=who, at_s=at_s)
    return replace(scenario, steps=(*scenario.steps, again))


def _without_step(numbers: random.Random, scenario: Scenario) -> Scenario:
    if not scenario.steps:
        return scenario
    return scenario.without({numbers.randrange(len(scenario.steps))})


def _with_death(numbers: random.Random, scenario: Scenario) -> Scenario:
    """Let a machine die or lose its power."""
    who, verb = f"{numbers.choice(scenario.machines)}!", numbers.choice(("die", "die", "power"))
    count = int(numbers.expovariate(1 / numbers.choice((3, 10, 30))))
    death = Step(who, verb, _moment(numbers, scenario), (str(count),))
    return replace(scenario, steps=(*scenario.steps, death))


def _with_other_conditions(numbers: random.Random, scenario: Scenario) -> Scenario:
    """Take the users, settings or the kernel of another scenario."""
    other = numbers.choice(_sources())
    match numbers.choice(("users", "options", "kernel")):
        case "users":
            users = numbers.choices(other.users, k=len(scenario.users))
            return replace(scenario, users=tuple(users))
        case "options":
            return replace(scenario, options=other.options)
        case _:
            return replace(scenario, kernel=other.kernel)


def _with_larger_files(numbers: random.Random, scenario: Scenario) -> Scenario:
    """Let files have some chunks, which are fetched in small pieces."""

    def change(step: Step) -> Step:
        if not _is_of_files(step) or step.verb not in WRITING:
            return step
        verb = "patch" if numbers.random() < 0.3 else step.verb
        size = str(numbers.choice(LARGER))
        return replace(step, verb=verb, arguments=(*step.arguments[:2], size))

    steps = tuple(map(change, scenario.steps))
    return replace(scenario, steps=steps, pieces="small")


CHANGES: tuple[Callable[[random.Random, Scenario], Scenario], ...] = (
    _with_other_actor, _with_other_actor, _with_other_actor, _with_other_time, _with_other_time,
    _with_other_paths, _with_other_verb, _with_step_again, _without_step, _with_death,
    _with_other_conditions, _with_larger_files,
)  # fmt: skip


def _changed(
    numbers: random.Random, scenario: Scenario, change: Callable[[Step], Step]
) -> Scenario:
    """Change one step."""
    if not scenario.steps:
        return scenario
    steps = [*scenario.steps]
    place = numbers.randrange(len(steps))
    steps[place] = change(steps[place])
    return replace(scenario, steps=tuple(steps))


def _is_of_files(step: Step) -> bool:
    """Return True for a step of a program that concerns files."""
    is_of_program = step.who[0] in MACHINES and step.who[1:] in ("", "+")
    return is_of_program and len(step.arguments) == 3 and all(map(is_file, step.arguments[:2]))


def _paths(scenario: Scenario) -> list[str]:
    steps = (step for step in scenario.steps if _is_of_files(step))
    return sorted({*scenario.planted, *(path for step in steps for path in step.arguments[:2])})


def _moment(numbers: random.Random, scenario: Scenario) -> float:
    """Return a time near that of a step, because most faults need things that happen at once."""
    near_s = numbers.choice([step.at_s for step in scenario.steps] or [0.0])
    return round(max(0.0, near_s + numbers.choice((1, 1, -1)) * numbers.choice(OFFSETS_S)), 3)


def _possible(scenario: Scenario) -> Scenario:
    """Return the scenario without the steps that the simulation cannot combine.

    The steps of each actor get the order of their times, and what begins also ends.
    """
    steps = [*scenario.steps]
    verbs = {step.verb for step in steps}
    left_out = NOT_WITH_LOSSES if verbs & LOSSES else set[str]()
    if "zone_gone" in verbs:
        left_out = left_out | RIGHTS
    full = {step.who for step in steps if step.verb == "full"}
    failing = {step.who for step in steps if step.verb == "failing"}
    steps = [
        step
        for step in steps
        if step.verb not in left_out
        and not (step.who in full | failing and step.verb in DEATHS)
        and not (step.who in full and step.verb in ("failing", "sound"))
    ]
    last_s = max((step.at_s for step in steps), default=0.0)
    actors = dict.fromkeys(step.who for step in steps)
    for who in actors:
        done = {step.verb for step in steps if step.who == who}
        steps += [Step(who, ENDS[each], last_s) for each in sorted(done & ENDS.keys())]
    ordered = [
        step
        for who in actors
        for step in sorted((each for each in steps if each.who == who), key=lambda each: each.at_s)
    ]
    return replace(scenario, steps=tuple(ordered))
