"""What a check says.

Must not know any check.

INVARIANT: detail and remedy hold no name of a person, a file, a zone or a host; `here` may.
"""

from collections.abc import Callable
from dataclasses import dataclass

from zonedrive.amounts import count
from zonedrive.daemon.checkup.patient import Patient


@dataclass(frozen=True)
class Finding:
    """One result: a sentence on what is, and, where something is wrong, what to do.

    `here` is what to do in the words of this machine (a command with its address, a folder), for
    the person in front of it; it goes nowhere else.
    """

    ok: bool
    detail: str
    remedy: str = ""
    here: str = ""


Check = Callable[[Patient], Finding | None]


def age(seconds: float) -> str:
    """A time that has passed as a person reads it."""
    for unit, length in (("day", 86_400), ("hour", 3600), ("minute", 60)):
        if seconds >= length:
            return count(int(seconds // length), unit)
    return "less than a minute"
