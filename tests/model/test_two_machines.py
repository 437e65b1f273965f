"""Two machines work in one folder over a bad network, for some rounds that are always the same."""

from collections.abc import Iterator

import pytest

from tests.model.two_machines import Run


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    """A service of its own, with a way to it for each machine."""
    running = Run()
    yield running
    running.close()


@pytest.mark.timeout(900)
@pytest.mark.parametrize("number", [2, 7], ids=["published", "sandbox"])
def test_two_machines_keep_what_they_confirmed(run: Run, number: int) -> None:
    """Each confirmed save is on the service once, nothing is overwritten unseen or made up, and no
    refusal is told that the service did not make."""
    findings = run.play(number, bursts=3, steps=6)
    assert not findings, "\n".join(findings)
