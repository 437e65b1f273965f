"""Classification of failed changes by cause, for status, sync, logs and all other output.

Only this module converts an exception to a cause and to one line of text.

INVARIANT: a failure counts as REFUSED only if the service answered the request.
"""

import errno
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from enum import IntEnum

from zonedrive import errors
from zonedrive.translation import marked

KEPT = "the file is kept on this computer, and the upload is retried"
REFUSAL_REMEDY = f"{KEPT}; another name or folder may help, or the administrator"


class Cause(IntEnum):
    """Cause of the last failed attempt to send a change.

    The outbox stores the numeric values, so do not renumber them.
    """

    NONE = 0  # the change has not failed
    UNCLEAR = 1  # an unclear reply of the service; also every failure recorded by 0.1.0
    REFUSED = 2  # the service rejected the change
    LOCAL = 3  # this machine: a full or broken disk, damaged bytes
    SERVICE = 4  # the service cannot be reached, fails temporarily, or requires a logon
    CHANGED = 5  # the entry changed on the service or locally; the change is planned again
    UNEXPECTED = 6  # an error in zonedrive itself

    @property
    def is_failure(self) -> bool:
        """True if a change with this cause may need an action of the user."""
        return self in PHRASES


PHRASES = {
    Cause.REFUSED: marked("refused by the service"),
    Cause.LOCAL: marked("held up by a problem on this machine"),
    Cause.UNCLEAR: marked("held up by an unclear answer from the service"),
    Cause.UNEXPECTED: marked("held up by an error in zonedrive"),
}
"""Phrase that describes a failed change, by cause. Other causes need no action of the user."""

_TYPES: dict[type[BaseException], Cause] = {
    errors.Changed: Cause.CHANGED,
    errors.AmbiguousName: Cause.UNCLEAR,
    errors.ZonedriveError: Cause.LOCAL,
    errors.RemoteError: Cause.UNCLEAR,
    OSError: Cause.LOCAL,
    MemoryError: Cause.LOCAL,
}
_TYPES |= dict.fromkeys((errors.Unreachable, errors.Unavailable, errors.NotLoggedOn), Cause.SERVICE)
_TYPES |= dict.fromkeys(
    (
        *(errors.Forbidden, errors.NotFound, errors.AlreadyExists),
        *(errors.Locked, errors.TooLarge, errors.Rejected),
    ),
    Cause.REFUSED,
)

_DISK = {
    errno.ENOSPC: "the disk of the outbox is full; make room there",
    errno.EDQUOT: "the disk quota is used up; free some space",
    errno.EROFS: "the disk has become read-only; look at 'dmesg'",
    errno.EFBIG: "the daemon's limit of file sizes is reached; remove it ('ulimit -f',"
    " LimitFSIZE=), and mount again",
    errno.EIO: "the disk has an error; look at 'dmesg' and have the disk checked",
}


def cause_of(error: Exception) -> Cause:
    """Return the cause of a failed attempt to send a change, which ended with `error`.

    The cause depends on the most specific class of `error` in `_TYPES`, on the errno, and on the
    HTTP status. For an exception group, the first exception of the group decides.
    """
    error = errors.first_of(error)
    if isinstance(error, OSError) and not error.errno:
        return Cause.UNEXPECTED  # not a disk error: raised by code, without an errno
    if getattr(error, "status", 0) == errors.FULL:
        return Cause.REFUSED  # the user may have to make room
    cause = next((_TYPES[kind] for kind in type(error).__mro__ if kind in _TYPES), Cause.UNEXPECTED)
    if cause is Cause.REFUSED and getattr(error, "by_gateway", False):
        return Cause.SERVICE
    if cause is Cause.REFUSED and not getattr(error, "status", 0):
        return Cause.LOCAL  # raised without a request to the service
    return cause


def line_of(error: Exception) -> str:
    """Return one line for the user: the error message and, if known, a remedy."""
    error = errors.first_of(error)
    cause = cause_of(error)
    if isinstance(error, errors.ZonedriveError):
        remedy = error.remedy or (REFUSAL_REMEDY if cause is Cause.REFUSED else "")
        return f"{error.message}; {marked(remedy)}" if remedy else error.message
    if isinstance(error, OSError) and error.errno:
        return marked(_DISK.get(error.errno) or os.strerror(error.errno))
    if cause is Cause.LOCAL:
        return marked("this machine has no memory left; close some programs")
    return marked(
        f"an error in zonedrive ({type(error).__name__}); {KEPT}, and the log has the details"
    )


def label(cause: Cause) -> str | None:
    """Return the cause's lower-case name for the daemon's responses, or None for NONE."""
    return cause.name.lower() if cause else None


def count(causes: Iterable[Cause]) -> dict[str, int]:
    """Return the number of failed changes for each cause, keyed by the cause's label.

    `causes` has the cause of each change. Causes that are no failures (see `Cause.is_failure`) are
    left out.
    """
    found = Counter(cause for cause in causes if cause.is_failure)
    return {cause.name.lower(): number for cause, number in found.items()}


def summary(counts: Mapping[str, int], failed: int, word: str = "") -> str:
    """Return a string such as "2 refused by the service, 1 failed", or "" if `failed` is 0.

    `counts` has the number of failed changes by the label of their cause, `failed` is the total,
    and `word` is inserted after each number. Changes that `counts` does not contain, for example
    because a daemon of an earlier version does not count causes, are listed as "failed".
    """
    known = [(counts.get(cause.name.lower(), 0), phrase) for cause, phrase in PHRASES.items()]
    known.append((failed - sum(number for number, _ in known), "failed"))
    return ", ".join(f"{number} {word}{phrase}" for number, phrase in known if number > 0)
