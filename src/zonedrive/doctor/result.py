"""Result of a check.

Knows nothing about the checks.

INVARIANT: detail and remedy contain no name of a person, a file, a zone or a host; `here` may.
"""

from collections.abc import Callable
from dataclasses import dataclass

from zonedrive.doctor.facts import DoctorFacts
from zonedrive.formatting import count


@dataclass(frozen=True)
class CheckResult:
    """One result: a description of the state, and a remedy if something is wrong.

    `here` is the remedy with the names of this machine (a command with its address, a folder), for
    the local user only; it is never sent elsewhere.
    """

    ok: bool
    detail: str
    remedy: str = ""
    here: str = ""


Check = Callable[[DoctorFacts], CheckResult | None]


def age(seconds: float) -> str:
    """Return a duration in readable form."""
    for unit, length in (("day", 86_400), ("hour", 3600), ("minute", 60)):
        if seconds >= length:
            return count(int(seconds // length), unit)
    return "less than a minute"
