"""Ctrl-C wherever something is asked for or waited for: it ends, and the terminal is as before."""

import pytest

from tests.unit.cli.stand_in import StandIn
from tests.unit.cli.test_status import at_terminal

PROMPTS = {
    "Password": ["tokens", "create", "x"],
    "for good?": ["trash", "--purge", "old.txt"],
}


@pytest.mark.parametrize("asked", PROMPTS)
def test_a_prompt(stand_in: StandIn, asked: str) -> None:
    """Nothing is said, nothing was done, and the next prompt begins on a line of its own."""
    terminal = at_terminal(*PROMPTS[asked])
    terminal.until(asked)
    assert terminal.interrupt() == 130
    assert terminal.is_as_before()
    assert terminal.shown.endswith("\r\n")
    assert terminal.shown.count("\n") == 1
    assert stand_in.asked == []


@pytest.mark.parametrize("name", ["sync", "zones", "conflicts", "trash"])
def test_a_daemon_that_takes_its_time(stand_in: StandIn, name: str) -> None:
    """No word of it."""
    stand_in.answers.pop(name, None)
    terminal = at_terminal(name)
    assert stand_in.waiting.wait(30)
    assert terminal.interrupt() == 130
    assert terminal.is_as_before()
    assert not terminal.text().partition("^C")[2].strip()
    assert "Traceback" not in terminal.shown
