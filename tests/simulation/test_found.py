"""Scenarios in which the product once failed (`found/`), or still fails (`unsolved/`).

Each file is named after the fault. A fault of `unsolved/` that is fixed fails its test, until the
file is in `found/`.
"""

from pathlib import Path

import pytest

from tests.simulation.run import run
from tests.simulation.scenario import draw, parse

FOUND = sorted(Path(__file__).with_name("found").glob("*.txt"))
UNSOLVED = sorted(Path(__file__).with_name("unsolved").glob("*.txt"))


@pytest.mark.parametrize("path", FOUND, ids=lambda path: path.stem)
def test_what_was_found_stays_fixed(path: Path) -> None:
    """The checker has no finding any more."""
    result = run(parse(path.read_text("utf-8")))
    assert not result.findings, "\n".join([*result.findings, *result.trace])


@pytest.mark.xfail(reason="a known fault", raises=AssertionError)
@pytest.mark.parametrize("path", UNSOLVED, ids=lambda path: path.stem)
def test_what_is_unsolved_is_found(path: Path) -> None:
    """The checker still finds the fault."""
    assert not run(parse(path.read_text("utf-8"))).findings


def test_a_seed_gives_the_same_trace_again() -> None:
    """Requests, results and log lines of two runs are equal."""
    first, second = run(draw(2)), run(draw(2))
    assert first.trace == second.trace
    assert first.digest == second.digest


def test_a_scenario_reads_its_own_text() -> None:
    """The text of a scenario describes it completely."""
    for seed in range(20):
        assert parse(draw(seed).text()) == draw(seed)
