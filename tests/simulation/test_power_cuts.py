"""A power cut after fsync(2): the synced content or a later one is on the service in the end."""

from collections.abc import Iterator

import pytest

from tests.simulation.disk import close_left_open
from tests.simulation.run import run
from tests.simulation.scenario import Scenario, Step

LATER = (
    "look", "append", "save", "save_within", "save_over", "save_slowly", "write_on", "save_synced",
    "save_renamed_open", "save_unchanged", "save_emptied",
)  # fmt: skip
SEEDS = (0, 4, 7)  # each also says after how many writes the power fails


@pytest.fixture(autouse=True)
def _files_closed() -> Iterator[None]:
    """Close the files of killed machines, of which hundreds would stay open otherwise."""
    yield
    close_left_open()


@pytest.mark.parametrize("is_restarted", [False, True], ids=["same mount", "next mount"])
@pytest.mark.parametrize("later", LATER)
@pytest.mark.parametrize("first", ["save_synced", "write_on", "save_and_sync"])
def test_synced_content_survives_a_later_save(first: str, later: str, is_restarted: bool) -> None:
    """A save that was not synced does not take the synced content with it."""
    restart = (Step("A!", "restart", 2.0),) if is_restarted else ()
    for seed in SEEDS:
        steps = (
            Step("A", first, 1.0, ("one.txt", "two.txt", "20")),
            *restart,
            Step("A", later, 10.0, ("one.txt", "two.txt", "8")),
            Step("A!", "power", 10.0, (str(5 * seed),)),
            Step("A", "look", 100.0, ("one.txt", "two.txt", "0")),
        )
        scenario = Scenario(seed, users=("alice",), options=("settle=30",), steps=steps)
        _check(scenario)


@pytest.mark.parametrize("writes", range(10, 30))
@pytest.mark.parametrize("padding", [20, 5000, 150_000])
def test_synced_content_survives_the_next_write_of_the_same_descriptor(
    padding: int, writes: int
) -> None:
    """The power fails after some writes: before, during or after the line that is not synced."""
    for seed in range(4):
        steps = (
            Step("A!", "power", 0.9, (str(writes),)),
            Step("A", "write_on", 1.0, ("one.txt", "two.txt", str(padding))),
            Step("A", "look", 100.0, ("one.txt", "two.txt", "0")),
        )
        _check(Scenario(seed, users=("alice",), options=("settle=30",), steps=steps))


def _check(scenario: Scenario) -> None:
    found = run(scenario)
    assert not found.findings, "\n".join([*found.findings, *found.trace])
