"""Why a change is not on the service yet: one classification for status, sync, logs and the rest.

An error is raised by its type; here, and nowhere else, it becomes a cause and one line of text.

INVARIANT: only an answer of the service is called a refusal.
"""

import errno
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from enum import IntEnum

from zonedrive import errors
from zonedrive.paths import NO_ROOM

KEPT = "the file stays here and is tried again"
REFUSAL_REMEDY = f"{KEPT}; another name or folder may help, or the administrator"


class Cause(IntEnum):
    """Why the last attempt to send a change failed; the numbers are kept in the outbox."""

    NONE = 0  # it did not fail
    UNCLEAR = 1  # the service cannot be understood; also every failure noted by 0.1.0
    REFUSED = 2  # the service answered that it does not take it
    LOCAL = 3  # this machine: a full or broken disk, damaged bytes
    SERVICE = 4  # the service cannot be reached, fails for now, or asks for a logon
    CHANGED = 5  # changed on the service, or here, meanwhile: it is being decided again
    UNEXPECTED = 6  # an error in zonedrive itself

    @property
    def is_failure(self) -> bool:
        """Return True if a person may have to act; the others pass by themselves."""
        return self in PHRASES


PHRASES = {
    Cause.REFUSED: "refused by the service",
    Cause.LOCAL: "held up by a problem on this machine",
    Cause.UNCLEAR: "held up by an unclear answer of the service",
    Cause.UNEXPECTED: "held up by an error in zonedrive",
}
"""What is said of changes that failed, by cause."""

_TYPES: dict[type[BaseException], Cause] = {
    errors.Changed: Cause.CHANGED,
    errors.AmbiguousName: Cause.UNCLEAR,
    errors.ZonedriveError: Cause.LOCAL,
    errors.RemoteError: Cause.UNCLEAR,
    errors.Unreachable: Cause.SERVICE,
    errors.Unavailable: Cause.SERVICE,
    errors.NotLoggedOn: Cause.SERVICE,
    errors.Forbidden: Cause.REFUSED,
    errors.NotFound: Cause.REFUSED,
    errors.AlreadyExists: Cause.REFUSED,
    errors.Locked: Cause.REFUSED,
    errors.TooLarge: Cause.REFUSED,
    errors.Rejected: Cause.REFUSED,
    OSError: Cause.LOCAL,
    MemoryError: Cause.LOCAL,
}

_DISK = {
    errno.EDQUOT: "the disk quota is used up; free some space",
    errno.EROFS: "the disk has become read-only; look at 'dmesg'",
    errno.EIO: "the disk has an error; look at 'dmesg' and have the disk checked",
}


def cause_of(error: BaseException) -> Cause:
    """Return the cause of a failed attempt; the most special type that matches decides."""
    if isinstance(error, ExceptionGroup):
        error = errors.first_of(error)
    cause = next((_TYPES[kind] for kind in type(error).__mro__ if kind in _TYPES), Cause.UNEXPECTED)
    if cause is Cause.REFUSED and not getattr(error, "status", 0):
        return Cause.LOCAL  # of such a kind, but the service was not even asked
    return cause


def line_of(error: BaseException) -> str:
    """Return the one line that a person sees: what failed, why, what to do."""
    cause = cause_of(error)
    if isinstance(error, ExceptionGroup):
        error = errors.first_of(error)
    if isinstance(error, errors.ZonedriveError):
        remedy = error.remedy or (REFUSAL_REMEDY if cause is Cause.REFUSED else "")
        return f"{error.message}; {remedy}" if remedy else error.message
    if isinstance(error, OSError):
        if error.errno in NO_ROOM:
            return _DISK.get(error.errno, "the disk of the outbox is full; make room there")
        return _DISK.get(error.errno or 0) or os.strerror(error.errno or errno.EIO)
    if cause is Cause.LOCAL:
        return "this machine has no memory left; close some programs"
    return f"an error in zonedrive ({type(error).__name__}); {KEPT}, and the log has the details"


def label(cause: Cause) -> str | None:
    """Return the cause as `status --json` has it."""
    return cause.name.lower() if cause else None


def count(causes: Iterable[Cause]) -> dict[str, int]:
    """Return how many changes failed, by the label of the cause."""
    found = Counter(cause for cause in causes if cause.is_failure)
    return {cause.name.lower(): number for cause, number in found.items()}


def summary(counts: Mapping[str, int], failed: int, word: str = "") -> str:
    """Return why `failed` changes failed, each number followed by `word`, "" for none.

    A daemon of a former version counts no causes.
    """
    known = [(counts.get(cause.name.lower(), 0), phrase) for cause, phrase in PHRASES.items()]
    known.append((failed - sum(number for number, _ in known), "failed"))
    return ", ".join(f"{number} {word}{phrase}" for number, phrase in known if number > 0)
