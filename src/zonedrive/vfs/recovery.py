"""What a daemon that ended, in whatever way, left behind.

| state found                             | what it means                | what is done           |
|-----------------------------------------|------------------------------|------------------------|
| an intent, its bytes in the spool       | closed, not on the service   | sent again, when due   |
| an intent that is held                  | open for writing at the end  | no longer held, sent   |
| bytes that no inode and no intent names | never closed, or sent before | deleted                |
| an intent whose bytes are missing       | the spool was tampered with  | the loss is named      |
| an unlinked inode without an intent     | was only kept open           | deleted                |
"""

import logging
import time

from zonedrive.failpoint import Place, reached
from zonedrive.tree.inode import NOWHERE
from zonedrive.vfs.core import Core

log = logging.getLogger(__name__)


def recover(core: Core) -> None:
    """Bring tree, journal and spool to where work can go on.  Before anything is served."""
    stored = set(core.spool.stored())
    with core.transaction():
        for intent in core.journal.all():
            inode = core.tree.find(intent.ino)
            if inode is None:
                core.journal.drop(intent.ino)
            elif intent.generation and (intent.ino, intent.generation) not in stored:
                log.error("the bytes of %s are gone from the outbox", core.tree.path(intent.ino))
                core.journal.done(intent, content=True)
                core.tree.update(inode, generation=0)
                if inode.is_new:
                    core.tree.unlink(inode)
                    core.journal.drop(intent.ino)
            elif intent.held:
                core.journal.hold(intent.ino, False, time.time_ns())
        for doubt in core.doubts.all():
            if core.tree.find(doubt.ino) is None:
                core.doubts.drop(doubt.ino)
        for inode in core.tree.unlinked():
            if core.journal.get(inode.ino) is None:
                core.tree.unlink(inode)
    reached(Place.RECOVERY_NOTED)
    named = set(core.tree.with_bytes().items())
    named |= {(each.ino, each.generation) for each in core.journal.all() if each.generation}
    named |= {(each.bytes_ino, each.generation) for each in core.doubts.all()}
    for ino, generation in stored - named:
        core.spool.delete(ino, generation)
    reached(Place.RECOVERY_SWEPT)
    with core.transaction():
        _forget_empty(core, named, stored)
    reached(Place.RECOVERED)


def _forget_empty(core: Core, named: set[tuple[int, int]], stored: set[tuple[int, int]]) -> None:
    """New files that were made but never closed have neither bytes nor a record."""
    for ino in core.tree.without_origin():
        inode = core.tree.get(ino)
        lost = inode.generation and (ino, inode.generation) in named - stored
        if inode.parent != NOWHERE and not inode.is_folder and (not inode.generation or lost):
            core.tree.unlink(inode)
