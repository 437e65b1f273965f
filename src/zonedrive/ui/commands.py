"""Commands of `zonedrive` that the web interface runs in separate processes with a timeout.

INVARIANT: a secret is passed on standard input, never as an argument.
"""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

from zonedrive.cli import error_messages
from zonedrive.cli.control_client import DaemonTimeout
from zonedrive.daemon import protocol
from zonedrive.errors import NotLoggedOn, ZonedriveError
from zonedrive.translation import translated

READ_SECONDS = 30.0  # for lists
CHANGE_SECONDS = 120.0
CHECK_SECONDS = 120.0  # for all checks; several wait for a daemon or service without an answer


@dataclass(frozen=True)
class Outcome:
    """Result of one command."""

    code: int  # exit status
    output: str
    said: str  # lines of standard error for the user, without the name of the program
    error: ZonedriveError | None = None

    @property
    def ok(self) -> bool:
        """True if the command succeeded."""
        return self.code == 0

    @property
    def failure(self) -> ZonedriveError:
        """Error that a failed command reported, or an error with the output of the command."""
        if self.error is None and self.code == error_messages.NOT_LOGGED_ON:
            return NotLoggedOn("")  # the web interface has its own text for the logon command
        said = "\n".join(filter(None, (self.output.strip(), self.said)))
        return self.error or ZonedriveError(said or translated("It failed."))


def run(*words: str, seconds: float | None = CHANGE_SECONDS, given: str = "") -> Outcome:
    """Run `zonedrive WORDS` with `given` as standard input, and return the result.

    A command that takes more than `seconds` (None: no limit) is killed. The result then contains
    a DaemonTimeout as `error`.
    """
    # A file in memory, because the temporary folder may be full or read-only.
    with os.fdopen(os.memfd_create("error"), "w+b") as passed_on:
        descriptor = passed_on.fileno()
        try:
            done = subprocess.run(  # noqa: S603  words: constants and option values
                [sys.executable, "-P", "-m", "zonedrive", *words],
                input=given.encode(), capture_output=True, timeout=seconds, check=False,
                env={**os.environ, error_messages.DESCRIPTOR: str(descriptor)},
                pass_fds=[descriptor],
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            late = DaemonTimeout(f"there was no answer within {seconds:g} s", remedy="try again")
            return Outcome(1, "", late.line(), late)
        passed_on.seek(0)
        line = passed_on.read()
    said = [
        line.removeprefix("zonedrive: ")
        for line in done.stderr.decode("utf-8", "replace").splitlines()
    ]
    error = protocol.raised(protocol.decode(line)) if line else None
    output = done.stdout.decode("utf-8", "replace")
    return Outcome(done.returncode, output, "\n".join(said), error)


def listed(*words: str, seconds: float = READ_SECONDS) -> Any:
    """Run `zonedrive WORDS --json` for up to `seconds`, and return the decoded JSON output.

    Raises the error of the command if the output is not JSON.
    """
    return noted(*words, seconds=seconds)[0]


def noted(*words: str, seconds: float = READ_SECONDS) -> tuple[Any, str]:
    """Return the result of `listed`, and the lines of standard error, such as what is left out."""
    done = run(words[0], "--json", *words[1:], seconds=seconds)
    try:
        return json.loads(done.output), done.said
    except json.JSONDecodeError:
        raise done.failure from None
