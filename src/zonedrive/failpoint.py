"""Failpoints: named places in the code at which tests kill the daemon.

This module does not depend on the code at a place. A daemon that is started with
ZONEDRIVE_KILL_AT=NAME in its environment kills itself with SIGKILL at the place NAME. With NAME:3,
the daemon kills itself when it reaches the place for the third time. Unlike a power cut, SIGKILL
does not affect data that the kernel has received. Tests kill the daemon to show that no data is
lost at any place. In all other processes, `reached` only makes one comparison.

INVARIANT: each place occurs in exactly one call to `reached` in the sources.
"""

import logging
import os
import signal
from collections.abc import Mapping
from enum import StrEnum

from zonedrive.errors import ConfigError

log = logging.getLogger(__name__)

VARIABLE = "ZONEDRIVE_KILL_AT"


class Place(StrEnum):
    """Place at which a daemon may be killed; each comment names the durable data at that place.

    Bytes are unnamed if no row of the database refers to them. A generation is a local version of
    a file's content.
    """

    # Names
    FILE_NAMED = "file-named"  # none: before its first close, a new file exists only in memory
    FOLDER_NAMED = "folder-named"  # a new folder's inode and its intent
    NAME_REMOVED = "name-removed"  # the removal and its intent; the bytes are still there
    TRASHED = "trashed"  # a folder's removal and its intent; the rows of the entries in the folder
    RENAME_INSIDE = "rename-inside"  # the state before the rename, in full
    RENAMED = "renamed"  # the rename, what it replaced, and their intents
    EXCHANGED = "exchanged"  # the new names of both entries, and their intents
    # Bytes
    SPOOL_MADE = "spool-made"  # an unnamed empty generation
    SPOOL_EMPTIED = "spool-emptied"  # the same, in addition to the former bytes
    SPOOL_COPIED = "spool-copied"  # an unnamed copy of the former generation
    VERSION_COPIED = "version-copied"  # an unnamed copy of the service's version
    BYTES_CUT = "bytes-cut"  # an unnamed shorter generation
    BYTES_WRITTEN = "bytes-written"  # the former content; some new bytes, unnamed
    BYTES_FLUSHED = "bytes-flushed"  # the same; the new bytes are complete
    RECORD_INSIDE = "record-inside"  # the same; inode and intent are written, not committed
    RECORDED = "recorded"  # the new content and its intent; the former bytes are unnamed
    FORMER_DELETED = "former-deleted"  # the new content and its intent alone
    BYTES_SYNCED = "bytes-synced"  # fsync: the bytes, also against a power cut
    RECORD_SYNCED = "record-synced"  # fsync: bytes and record, also against a power cut
    FILE_CLOSED = "file-closed"  # the new content; its intent is still held
    INTENT_FREED = "intent-freed"  # the new content, to be sent once it is due
    # Uploads of content
    UPLOAD_TAKEN = "upload-taken"  # intent and bytes; the service was not asked anything
    UPLOAD_JUDGED = "upload-judged"  # the same; the service's current version was checked
    REQUEST_NOTED = "request-noted"  # intent, bytes, and the pending request
    BODY_BEGUN = "body-begun"  # the same; the service may have a part of the bytes
    REPLY_CAME = "reply-came"  # the same; the service has the version
    REQUEST_FOUND = "request-found"  # the same, at a later start: the service has the version
    ARRIVAL_INSIDE = "arrival-inside"  # the same; the reply is written, not committed
    ARRIVED = "arrived"  # the reply; intent and pending request are deleted; bytes unnamed
    CACHED = "cached"  # the same; the bytes are in the cache, those of small files only in memory
    # Changes of names on the service
    IDENTITY_INSIDE = "identity-inside"  # the removed file and the new one, each with its intent
    IDENTITY_ADOPTED = "identity-adopted"  # the new file is the old one's next version
    FOLDER_ASKED = "folder-asked"  # the intent and the pending request
    FOLDER_MADE = "folder-made"  # the same; the service has the folder
    MOVE_ASKED = "move-asked"  # the intent
    MOVE_DONE = "move-done"  # the same; the service has the move
    MOVE_NOTED = "move-noted"  # the reply; the intent is deleted
    ASIDE_ASKED = "aside-asked"  # the intents of all renames in a cycle
    ASIDE_DONE = "aside-done"  # the same and the request; an entry has a temporary name
    ASIDE_NOTED = "aside-noted"  # the same; the temporary name is recorded locally
    DELETE_ASKED = "delete-asked"  # the intent
    DELETE_DONE = "delete-done"  # the same; the service has deleted it
    FOLDER_EMPTIED = "folder-emptied"  # some rows below a deleted folder are deleted
    DELETE_NOTED = "delete-noted"  # the intent is deleted; the bytes are unnamed
    # Two versions of one file
    COPY_RECORDED = "copy-recorded"  # the copy, and a new inode of the coworker's version
    WAY_GIVEN = "way-given"  # the local entry has a copy's name, the coworker's the original name
    RECREATED = "recreated"  # the local file is a new file, because it was deleted on the service
    # The next start, and the end
    RECOVERY_NOTED = "recovery-noted"  # the recovered state is in the tables; unnamed bytes remain
    RECOVERY_SWEPT = "recovery-swept"  # unnamed bytes are deleted
    RECOVERED = "recovered"  # files that were never closed are deleted
    CLOSING = "closing"  # the mount has ended; files open for writing are not recorded
    CLOSED = "closed"  # everything; the database is not closed yet
    # A damaged database; see `state.repair`
    SALVAGE_FILLED = "salvage-filled"  # the damaged file in its place, and a new file with its rows
    SALVAGE_ASIDE = "salvage-aside"  # the damaged file under its new name, no file in its place
    SALVAGE_PLACED = "salvage-placed"  # the new database; unnamed bytes are not yet found
    LOST_LINKED = "lost-linked"  # the spool has a second link to the found bytes
    LOST_FOUND = "lost-found"  # found bytes are in the tree; the first link still exists


_deadly: Place | None = None
_times = 1


def arm(environment: Mapping[str, str]) -> None:
    """Set the place at which this process is killed, from ZONEDRIVE_KILL_AT in `environment`.

    Raises ConfigError for an unknown place or an invalid number.
    """
    global _deadly, _times
    name, _, times = environment.get(VARIABLE, "").partition(":")
    try:
        _deadly = Place(name) if name else None
        _times = int(times or 1)
    except ValueError as wrong:
        raise ConfigError(f"{VARIABLE}: there is no place {name}:{times}") from wrong


def reached(place: Place) -> None:
    """Kill the process at the Nth call with the place that `arm` has set; N is 1 by default."""
    if place is _deadly:
        _die(place)


def _die(place: Place) -> None:
    global _times
    _times -= 1
    if _times == 0:
        log.info("killed at %s, as the environment asks", place)
        os.kill(os.getpid(), signal.SIGKILL)
        signal.pause()  # in a thread: wait for the signal
