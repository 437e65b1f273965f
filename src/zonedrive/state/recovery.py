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
from zonedrive.state.local_state import Core

log = logging.getLogger(__name__)

_BOOT = Path("/proc/sys/kernel/random/boot_id")


def recover(core: Core) -> None:
    """Make tree, journal and spool consistent.  Runs before any request is served."""
    lost_found.restore(core)
    lost_found.rescue(core)
    row_upgrade.names(core.tree)
    _suspect_after_power_cut(core)
    stored = set(core.spool.stored())
    with core.transaction():
        for intent in core.journal.all():
            inode = core.tree.get(intent.ino)
            if intent.generation and (intent.ino, intent.generation) not in stored:
                log.error("the bytes of %s are gone from the outbox", core.tree.path(intent.ino))
                core.journal.done(intent, content=True)
                core.tree.update(inode, generation=0)
                if inode.is_new:
                    core.tree.unlink(inode)
                    core.journal.drop(intent.ino)
            elif intent.held:
                core.journal.hold(intent.ino, False, time.time_ns())
        for inode in core.tree.unlinked():
            if core.journal.get(inode.ino) is None:
                core.tree.unlink(inode)
    reached(Place.RECOVERY_NOTED)
    named = core.named_bytes()
    for ino, generation in stored - named:
        core.spool.delete(ino, generation)
    reached(Place.RECOVERY_SWEPT)
    with core.transaction():
        _forget_empty(core, named, stored)
        lost_found.sweep(core)
        core.spool.drop_records()
    reached(Place.RECOVERED)


def _suspect_after_power_cut(core: Core) -> None:
    """Mark bytes that were not synced before a reboot, so that they are checked before the upload.

    The stored boot id is renewed only when no such bytes are waiting.
    """
    note, boot = core.database.path.with_name("boot"), _BOOT.read_text("ascii").strip()
    if note.exists() and note.read_text("ascii") == boot:
        return
    core.suspect |= core.named_bytes() if note.exists() else set()
    if not core.suspect:
        write_private(note, boot.encode("ascii"))


def _forget_empty(core: Core, named: set[tuple[int, int]], stored: set[tuple[int, int]]) -> None:
    """Remove new files that were never closed, which have neither bytes nor a record."""
    for ino in core.tree.without_origin():
        inode = core.tree.get(ino)
        lost = inode.generation and (ino, inode.generation) in named - stored
        if inode.parent != NOWHERE and not inode.is_folder and (not inode.generation or lost):
            core.tree.unlink(inode)
