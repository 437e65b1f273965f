"""Fixed rounds of two machines that work in one folder over a bad network."""

from collections.abc import Iterator

import pytest

from tests.model.two_machines import Run


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    """Yield a separate service with a connection for each machine."""
    running = Run()
    yield running
    running.close()


@pytest.mark.timeout(900)
@pytest.mark.parametrize("number", [2, 7], ids=["published", "sandbox"])
def test_two_machines_keep_what_they_confirmed(run: Run, number: int) -> None:
    """Each confirmed save is on the service once, nothing is overwritten unseen or invented.

    Every reported refusal is an answer of the service.
    """
    findings = run.play(number, bursts=3, steps=6)
    assert not findings, "\n".join(findings)
