"""Each planted fault is found by its kept scenario, in which the product itself has no fault."""

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.simulation.planted import faults

RENEW = "python -m tests.simulation.planted {} --renew"


class Playing:
    """Process that plays kept scenarios, with the order of sets that a run needs."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "tests.simulation.planted", "--kept", "-"]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, bufsize=1)

    def play(self, name: str) -> dict[str, list[str]]:
        """Play one."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(f"{name}\n")
        found: dict[str, list[str]] = json.loads(self.process.stdout.readline())
        return found


@pytest.fixture(scope="module")
def playing() -> Iterator[Playing]:
    started = Playing()
    with started.process:
        yield started


@pytest.mark.parametrize("name", [fault.name for fault in faults()])
def test_a_planted_fault_is_found(name: str, playing: Playing) -> None:
    said, renew = playing.play(name), RENEW.format(name)
    assert not said["error"], f"renew the patch or its scenario ({renew}): {said['error']}"
    assert not said["without"], "the product has a fault without the patch"
    assert said["with"], f"nothing is found any more: search again ({renew})"


def test_there_are_enough_faults() -> None:
    assert len(faults()) >= 30
