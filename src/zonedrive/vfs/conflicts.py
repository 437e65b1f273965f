"""Two versions of one file: both are kept."""

import logging
import os
import time
from datetime import datetime

from zonedrive.errors import Unavailable
from zonedrive.model import Entry
from zonedrive.outbox.journal import Conflict, Intent
from zonedrive.outbox.verdict import copy_mark
from zonedrive.tree.inode import Inode, Kind
from zonedrive.tree.names import with_mark
from zonedrive.vfs.core import Core
from zonedrive.vfs.folders import Folders
from zonedrive.vfs.invalidation import EntryChanged, InodeChanged

log = logging.getLogger(__name__)


class Conflicts:
    """Acts on the verdicts that are no simple upload."""

    def __init__(self, core: Core, folders: Folders) -> None:
        self._core = core
        self._folders = folders

    def make_anew(self, intent: Intent, inode: Inode) -> None:
        """Deleted on the service while it was edited here: the edit becomes a new file."""
        core = self._core
        log.warning("a file was deleted on the service while it was edited here: sent as new")
        with core.transaction():
            core.tree.update(inode, remote_id=None, remote_parent=None, remote_name=None)
            core.journal.rebase(inode.ino, None)
            core.journal.add_conflict(Conflict(inode.ino, inode.ino, "", time.time_ns()))

    def set_aside(self, intent: Intent, inode: Inode, found: Entry) -> None:
        """Keep both: theirs under its name, ours beside it."""
        core = self._core
        if core.outdated(intent):
            return  # there is a newer edit; the verdict will be on that
        opened = core.opened.get(inode.ino)
        if opened is not None and opened.session is not None and not opened.session.frozen:
            raise Unavailable("somebody else's version came in between, and it is still open here")
        mark = copy_mark(core.user, core.host, datetime.now())
        name = with_mark(inode.name, mark.replace("/", "_"))
        log.warning(
            "a version by %s came in between: ours is kept as a conflict copy", found.modified_by
        )
        now = time.time_ns()
        with core.transaction():
            if inode.is_new:
                old = inode.name
                core.tree.move(inode, inode.parent, name)
                core.journal.add_conflict(Conflict(inode.ino, 0, found.modified_by, now))
                core.journal.content(
                    inode.ino, intent.generation, intent.size, base=None, held=False, due_ns=now
                )
                self._folders.forget(inode.parent)
                core.invalidations.put(EntryChanged(inode.parent, old.encode()))
            else:
                copy = core.tree.add(
                    inode.parent,
                    name,
                    Kind.FILE,
                    zone=inode.zone,
                    size=intent.size,
                    mtime_ns=inode.mtime_ns,
                    mode=inode.mode,
                    generation=intent.generation,
                )
                os.link(
                    core.spool.path(inode.ino, intent.generation),
                    core.spool.path(copy.ino, intent.generation),
                )
                core.journal.content(
                    copy.ino, intent.generation, intent.size, base=None, held=False, due_ns=now
                )
                core.journal.add_conflict(Conflict(copy.ino, inode.ino, found.modified_by, now))
                core.journal.done(intent, content=True)
                core.tree.update(
                    inode,
                    generation=0,
                    revision=found.revision,
                    size=found.size,
                    mtime_ns=found.modified_ns,
                    modified_by=found.modified_by,
                )
        core.invalidations.put(EntryChanged(inode.parent, name.encode()))
        if not inode.is_new:
            core.spool.delete(inode.ino, intent.generation)
            core.invalidations.put(InodeChanged(inode.ino, attr_only=False))
