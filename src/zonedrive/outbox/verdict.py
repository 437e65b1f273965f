"""The verdict before a version is sent: may it follow what the service has now?

Pure.  Who calls has asked the service for its present state and acts on the verdict.
"""

from datetime import datetime
from enum import Enum, auto

from zonedrive.model import Entry, Revision


class Verdict(Enum):
    """What to do with local content."""

    SEND = auto()  # nothing came in between
    COMPARE = auto()  # the service has another version of equal size: it may be this very content
    CONFLICT = auto()  # somebody else's version came in between: keep both
    LOST = auto()  # the file is no longer there: make it anew, and say so


def on_version(base: Revision | None, size: int, found: Entry | None) -> Verdict:
    """Judge content that began from `base`, where the service now has `found`."""
    if found is None:
        return Verdict.LOST
    if found.revision == base:
        return Verdict.SEND
    return Verdict.COMPARE if found.size == size else Verdict.CONFLICT


def on_new_name(size: int, found: Entry | None) -> Verdict:
    """Judge a new file, where the service has `found` under its name."""
    if found is None:
        return Verdict.SEND
    if found.folder or found.unsure:
        return Verdict.CONFLICT
    return Verdict.COMPARE if found.size == size else Verdict.CONFLICT


def copy_mark(user: str, host: str, when: datetime) -> str:
    """What stands before the extension in the name of a conflict copy."""
    return f" (conflict, {user} on {host}, {when:%Y-%m-%d %H-%M-%S})"
