"""Transition tables of the outbox, for the states of local changes and of their requests.

Each inode has one change (its row in `intents`) and at most one request without a response (its row
in the table of `pending_requests`). The code that changes these two tables checks every transition
against this module. A transition that is missing here is logged as an error, which makes tests
fail.

A transition is one part of a transaction. After a crash, a new daemon continues from the new state
if the transaction was committed, otherwise from the old state.
"""

import logging
from enum import StrEnum

import msgspec

log = logging.getLogger(__name__)


class Change(StrEnum):
    """State of an inode's local change."""

    NONE = "none"
    OPEN = "open"
    SAVED = "saved"
    MOVED = "moved"
    OPEN_MOVED = "open and moved"
    SAVED_MOVED = "saved and moved"
    PARKED = "parked"
    REMOVED = "removed"
    REMOVED_IN_USE = "removed, in use"
    DELETED = "deleted permanently"


class Event(StrEnum):
    """Event that causes a transition of an inode's local change."""

    FLUSH = "flush"  # content is saved while a program has the file open
    SAVE = "save"  # content is saved, or is to be sent again
    OPEN = "open"  # a program opens the file, or a rename begins: sending has to wait
    CLOSE = "close"  # the last program closes the file, or the daemon starts again
    MOVE = "move"  # the entry is renamed, moved or created as a folder
    PARK = "park"  # the file gets a name that matches the setting `local_only`
    REMOVE = "remove"  # the entry is removed
    DELETE = "delete permanently"  # the entry is moved into the trash
    FAIL = "fail"  # an attempt to send the change failed, and is repeated later
    CONTENT_SENT = "content sent"  # the service has the content
    PLACE_SENT = "place sent"  # the service has the name and folder, or a rejected move is undone
    END = "end"  # the service has deleted the entry, or the change is undone or part of another one


class Request(StrEnum):
    """Kind of an inode's pending request; NONE if there is no pending request."""

    NONE = "no request"
    UPLOAD = "upload"
    NEW_FOLDER = "new folder"
    RELOCATION = "relocation"


class Facts(msgspec.Struct, frozen=True):
    """Description of a state of a local change, for the user documentation."""

    meaning: str
    durable: str  # data on this machine once the transaction has committed
    sends: str  # data or request that is sent to the service next


STATES: dict[Change, Facts] = {
    Change.NONE: Facts("nothing to send", "-", "-"),
    Change.OPEN: Facts(
        "the file was saved (`fsync`, one of several `close`, appends), and a program has it open",
        "the saved bytes; the name; the version that the edit began from",
        "nothing until the last close, or the next start of the daemon",
    ),
    Change.SAVED: Facts(
        "the file has new content",
        "the saved bytes; the name; the version that the edit began from",
        "a version, a new file or a conflict copy",
    ),
    Change.MOVED: Facts(
        "a new folder, or another name or folder of an entry",
        "the new place; the place that the service knows",
        "a new folder, or a rename or move",
    ),
    Change.OPEN_MOVED: Facts(
        "both: moved, and saved while a program has it open",
        "the saved bytes; both places; the version that the edit began from",
        "a rename or move; nothing else until the last close",
    ),
    Change.SAVED_MOVED: Facts(
        "both: new content, and another name or folder",
        "the saved bytes; both places; the version that the edit began from",
        "a rename or move, then a version",
    ),
    Change.PARKED: Facts(
        "the file has a name of `local_only`, the service keeps the entry",
        "the new name; the place and the version that the service knows",
        "nothing; a deletion if something else needs the former name,"
        " or a new file there is removed or renamed",
    ),
    Change.REMOVED: Facts(
        "the entry was removed; a new file with its name continues its history",
        "the removal; the place and the version that the service knows",
        "a deletion, or the new file as the next version",
    ),
    Change.REMOVED_IN_USE: Facts(
        "the same, while a program still reads the file",
        "the removal; the place and the version that the service knows",
        "nothing until the close, unless another entry needs the place",
    ),
    Change.DELETED: Facts(
        "the entry was moved into the trash; a new file with its name is a new entry",
        "the removal; the place and the version that the service knows",
        "a deletion; if a program still reads the file, after the close, or when another entry"
        " needs the place",
    ),
}

_REMOVAL = {Event.REMOVE: Change.REMOVED, Event.DELETE: Change.DELETED}

TRANSITIONS: dict[Change, dict[Event, Change]] = {
    Change.NONE: {
        **_REMOVAL,
        Event.FLUSH: Change.OPEN,
        Event.SAVE: Change.SAVED,
        Event.MOVE: Change.MOVED,
        Event.PARK: Change.PARKED,
    },
    Change.OPEN: {
        **_REMOVAL,
        Event.FLUSH: Change.OPEN,
        Event.CLOSE: Change.SAVED,
        Event.MOVE: Change.OPEN_MOVED,
        Event.PARK: Change.PARKED,
        Event.FAIL: Change.OPEN,
        Event.END: Change.NONE,
    },
    Change.SAVED: {
        **_REMOVAL,
        Event.FLUSH: Change.OPEN,
        Event.SAVE: Change.SAVED,
        Event.OPEN: Change.OPEN,
        Event.CLOSE: Change.SAVED,
        Event.MOVE: Change.SAVED_MOVED,
        Event.PARK: Change.PARKED,
        Event.FAIL: Change.SAVED,
        Event.CONTENT_SENT: Change.NONE,
        Event.END: Change.NONE,
    },
    Change.MOVED: {
        **_REMOVAL,
        Event.FLUSH: Change.OPEN_MOVED,
        Event.SAVE: Change.SAVED_MOVED,
        Event.MOVE: Change.MOVED,
        Event.PARK: Change.PARKED,
        Event.FAIL: Change.MOVED,
        Event.PLACE_SENT: Change.NONE,
        Event.END: Change.NONE,
    },
    Change.OPEN_MOVED: {
        **_REMOVAL,
        Event.FLUSH: Change.OPEN_MOVED,
        Event.CLOSE: Change.SAVED_MOVED,
        Event.MOVE: Change.OPEN_MOVED,
        Event.PARK: Change.PARKED,
        Event.FAIL: Change.OPEN_MOVED,
        Event.PLACE_SENT: Change.OPEN,
        Event.END: Change.NONE,
    },
    Change.SAVED_MOVED: {
        **_REMOVAL,
        Event.FLUSH: Change.OPEN_MOVED,
        Event.OPEN: Change.OPEN_MOVED,
        Event.CLOSE: Change.SAVED_MOVED,
        Event.MOVE: Change.SAVED_MOVED,
        Event.PARK: Change.PARKED,
        Event.FAIL: Change.SAVED_MOVED,
        Event.CONTENT_SENT: Change.MOVED,
        Event.PLACE_SENT: Change.SAVED,
        Event.END: Change.NONE,
    },
    Change.PARKED: {
        **_REMOVAL,
        Event.MOVE: Change.MOVED,
        Event.FAIL: Change.PARKED,
        Event.END: Change.NONE,
    },
    Change.REMOVED: {
        Event.OPEN: Change.REMOVED_IN_USE,
        Event.FAIL: Change.REMOVED,
        Event.END: Change.NONE,
    },
    Change.REMOVED_IN_USE: {
        Event.CLOSE: Change.REMOVED,
        Event.FAIL: Change.REMOVED_IN_USE,
        Event.END: Change.NONE,
    },
    Change.DELETED: {
        Event.OPEN: Change.DELETED,
        Event.CLOSE: Change.DELETED,
        Event.FAIL: Change.DELETED,
        Event.END: Change.NONE,
    },
}

REQUESTS: dict[Request, set[Request]] = {
    Request.NONE: {Request.UPLOAD, Request.NEW_FOLDER, Request.RELOCATION},
    # If the entry was deleted during the upload, the upload of a new file replaces the request.
    Request.UPLOAD: {Request.NONE, Request.UPLOAD},
    Request.NEW_FOLDER: {Request.NONE},
    Request.RELOCATION: {Request.NONE},
}
"""Permitted next states of a request, by current state.

The next state is NONE when the request is resolved or passed on to another inode.
"""


def check(before: Change, event: Event, after: Change) -> None:
    """Log an error if this transition of a change is not in TRANSITIONS."""
    if TRANSITIONS[before].get(event) is not after:
        log.error("outbox: unknown transition %r, %r, %r", before.value, event.value, after.value)


def check_request(before: Request, after: Request) -> None:
    """Log an error if this transition of a request is not in REQUESTS."""
    if after not in REQUESTS[before]:
        log.error("request: unknown transition %r, %r", before.value, after.value)
