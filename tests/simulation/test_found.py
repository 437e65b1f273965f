"""Scenarios in which the product once failed (`found/`); each file is named after the fault."""

from pathlib import Path

import pytest

from tests.simulation.run import run
from tests.simulation.scenario import draw, parse
from tests.simulation.variants import variant

FOUND = sorted(Path(__file__).with_name("found").glob("*.txt"))


@pytest.mark.parametrize("path", FOUND, ids=lambda path: path.stem)
def test_what_was_found_stays_fixed(path: Path) -> None:
    """The checker has no finding any more."""
    result = run(parse(path.read_text("utf-8")))
    assert not result.findings, "\n".join([*result.findings, *result.trace])


def test_a_seed_gives_the_same_trace_again() -> None:
    """Requests, results and log lines of two runs are equal."""
    first, second = run(draw(3)), run(draw(3))
    assert first.trace == second.trace
    assert first.digest == second.digest


def test_a_scenario_reads_its_own_text() -> None:
    """The text of a scenario describes it completely."""
    for seed in range(20):
        assert parse(draw(seed).text()) == draw(seed)
        assert parse(variant(seed).text()) == variant(seed)
