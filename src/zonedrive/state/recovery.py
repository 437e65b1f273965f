"""Recovery of the state that a former daemon left, however it ended.

| state found                             | meaning                      | action                 |
|-----------------------------------------|------------------------------|------------------------|
| an intent, its bytes in the spool       | closed, not on the service   | sent again, when due   |
| an intent that is held                  | open for writing at the end  | released and sent      |
| bytes without an inode or intent        | never closed, or sent before | deleted                |
| an intent whose bytes are missing       | the spool was tampered with  | the loss is logged     |
| a row about an inode that has no row    | a bug, or damage             | deleted; bytes that    |
|                                         |                              | only it refers to go   |
|                                         |                              | to `lost+found`        |
| an unlinked inode without an intent     | was only kept open           | deleted                |
| bytes from before a restart of the      | perhaps never on the disk    | checked before they    |
| machine                                 |                              | are sent               |

If a damaged database has lost rows, `losses` runs first.
"""

import logging
import time
from pathlib import Path

from zonedrive.failpoint import Place, reached
from zonedrive.paths import write_private
from zonedrive.state import lost_found, row_upgrade
from zonedrive.state.inode import NOWHERE
from zonedrive.state.local_state import LocalState

log = logging.getLogger(__name__)

_BOOT = Path("/proc/sys/kernel/random/boot_id")


def recover(state: LocalState) -> None:
    """Make tree, journal and spool consistent.  Runs before any request is served."""
    lost_found.restore(state)
    lost_found.rescue(state)
    row_upgrade.names(state.inodes)
    _suspect_after_power_cut(state)
    stored = set(state.spool.stored())
    with state.transaction():
        for intent in state.intents.all():
            inode = state.inodes.get(intent.ino)
            if intent.generation and (intent.ino, intent.generation) not in stored:
                log.error("the bytes of %s are gone from the outbox", state.inodes.path(intent.ino))
                state.intents.done(intent, content=True)
                state.inodes.update(inode, generation=0)
                if inode.is_new:
                    state.inodes.unlink(inode)
                    state.intents.drop(intent.ino)
            elif intent.held:
                state.intents.hold(intent.ino, False, time.time_ns())
        for inode in state.inodes.unlinked():
            if state.intents.get(inode.ino) is None:
                state.inodes.unlink(inode)
    reached(Place.RECOVERY_NOTED)
    named = state.named_bytes()
    for ino, generation in stored - named:
        state.spool.delete(ino, generation)
    reached(Place.RECOVERY_SWEPT)
    with state.transaction():
        _forget_empty(state, named, stored)
        lost_found.sweep(state)
        state.spool.drop_records()
    reached(Place.RECOVERED)


def _suspect_after_power_cut(state: LocalState) -> None:
    """Mark bytes that were not synced before a reboot, so that they are checked before the upload.

    The stored boot id is renewed only when no such bytes are waiting.
    """
    note, boot = state.database.path.with_name("boot"), _BOOT.read_text("ascii").strip()
    if note.exists() and note.read_text("ascii") == boot:
        return
    state.unverified_after_crash |= state.named_bytes() if note.exists() else set()
    if not state.unverified_after_crash:
        write_private(note, boot.encode("ascii"))


def _forget_empty(
    state: LocalState, named: set[tuple[int, int]], stored: set[tuple[int, int]]
) -> None:
    """Remove new files that were never closed, which have neither bytes nor a record."""
    for ino in state.inodes.without_origin():
        inode = state.inodes.get(ino)
        lost = inode.generation and (ino, inode.generation) in named - stored
        if inode.parent != NOWHERE and not inode.is_folder and (not inode.generation or lost):
            state.inodes.unlink(inode)
