"""Check before an upload: may the local version follow the service's current version?

Pure functions.  The caller has fetched the current state from the service and acts on the verdict.
"""

from datetime import datetime
from enum import Enum, auto

from zonedrive.model import Entry, Revision


class Decision(Enum):
    """Decision about local content."""

    SEND = auto()  # no other version was added since
    COMPARE = auto()  # the service has another version of equal size: possibly the same content
    CONFLICT = auto()  # a coworker's version was added since: keep both
    LOST = auto()  # the file was deleted on the service: create it again and report that


def on_version(base: Revision | None, size: int, found: Entry | None) -> Decision:
    """Return the verdict for content based on `base`; `found` is the service's current entry."""
    if found is None:
        return Decision.LOST
    if found.revision == base:
        return Decision.SEND
    return Decision.COMPARE if found.size == size else Decision.CONFLICT


def on_new_name(size: int, found: Entry | None) -> Decision:
    """Return the verdict for a new file, with `found` as the service's entry of that name."""
    if found is None:
        return Decision.SEND
    if found.folder or found.unsure:
        return Decision.CONFLICT
    return Decision.COMPARE if found.size == size else Decision.CONFLICT


def copy_mark(user: str, host: str, when: datetime) -> str:
    """Return the text before the extension in the name of a conflict copy."""
    return f" (conflict, {user} on {host}, {when:%Y-%m-%d %H-%M-%S})"
