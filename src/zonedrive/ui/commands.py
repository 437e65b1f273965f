"""Commands of `zonedrive`, run by the window in separate processes with a deadline.

INVARIANT: a secret is passed on standard input, never as an argument.
"""

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

READ_SECONDS = 30.0  # for lists
CHANGE_SECONDS = 120.0


@dataclass(frozen=True)
class Outcome:
    """Result of one command."""

    code: int  # as the shell sees it
    output: str
    said: str  # lines for the person, without the name of the program

    @property
    def ok(self) -> bool:
        """True if the command succeeded."""
        return self.code == 0


def run(*words: str, seconds: float = CHANGE_SECONDS, given: str = "") -> Outcome:
    """Run `zonedrive WORDS` and return its result; `given` is its standard input."""
    try:
        done = subprocess.run(  # noqa: S603  the words are ours or options' values
            [sys.executable, "-P", "-m", "zonedrive", *words],
            input=given.encode(), capture_output=True, timeout=seconds, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return Outcome(1, "", f"there was no answer within {seconds:g} s; try again")
    said = [
        line.removeprefix("zonedrive: ")
        for line in done.stderr.decode("utf-8", "replace").splitlines()
    ]
    return Outcome(done.returncode, done.stdout.decode("utf-8", "replace"), "\n".join(said))


def listed(*words: str) -> tuple[Any, str]:
    """Return the output of `zonedrive WORDS --json`, and "" or the error for the user."""
    done = run(words[0], "--json", *words[1:], seconds=READ_SECONDS)
    try:
        return json.loads(done.output), ""
    except json.JSONDecodeError:
        return None, done.said or "the command gave no answer"


def option(account: str) -> Sequence[str]:
    """Return the option that selects the account."""
    return "--account", account
