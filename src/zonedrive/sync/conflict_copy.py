"""Conflicts between two versions of one file: both are kept."""

import logging
import time
from datetime import datetime

from zonedrive.errors import Changed
from zonedrive.failpoint import Place, reached
from zonedrive.model import Entry
from zonedrive.state.conflict_log import Conflict
from zonedrive.state.inode import NOWHERE, Inode, Kind
from zonedrive.state.intents import Intent
from zonedrive.state.invalidation import EntryChanged, EntryGone
from zonedrive.state.local_state import Core
from zonedrive.state.merge import fields_of
from zonedrive.state.names import safe, with_mark
from zonedrive.sync.conflict_check import copy_mark
from zonedrive.sync.directory_cache import Folders

log = logging.getLogger(__name__)


class Conflicts:
    """Handler of conflict-check results that are not a simple upload."""

    def __init__(self, core: Core, folders: Folders) -> None:
        self._core = core
        self._folders = folders

    def make_anew(self, intent: Intent, inode: Inode) -> None:
        """Turn an edit of a file that was deleted on the service into a new file."""
        core = self._core
        log.warning("a file was deleted on the service while it was edited here: sent as new")
        with core.transaction():
            core.tree.update(inode, remote_id=None, remote_parent=None, remote_name=None)
            core.journal.rebase(inode.ino, None)
            core.journal.conflicts.add(Conflict(inode.ino, inode.ino, "", time.time_ns()))
        reached(Place.MADE_ANEW)

    def vanished(self, intent: Intent, inode: Inode) -> None:
        """Handle a renamed entry that the service no longer has: only an edit of it is kept."""
        core = self._core
        self._folders.forget(inode.parent)
        if intent.generation:
            self.make_anew(intent, inode)
            return
        log.info("inode %d: deleted on the service while it was renamed here", inode.ino)
        if inode.is_folder:
            with core.transaction():
                # As the service would list it: the next listing removes it, or keeps its local
                # changes.
                above = core.tree.get(inode.parent).remote_id
                core.tree.update(inode, remote_parent=above, remote_name=core.remote_name(inode))
                core.journal.done(intent, place=True)
            return
        if inode.parent != NOWHERE:
            core.invalidations.put(EntryGone(inode.parent, inode.name.encode(), inode.ino))
        with core.transaction():
            core.tree.unlink(inode)
            core.journal.drop(inode.ino)
        core.reap(inode)

    def set_aside(self, intent: Intent, inode: Inode, found: Entry) -> None:
        """Keep both versions: the coworker's under its name, the local one as a conflict copy."""
        core = self._core
        if core.outdated(intent):
            return  # a newer edit exists and gets its own conflict check
        opened = core.opened.get(inode.ino)
        if opened is not None and opened.session is not None and not opened.session.frozen:
            raise Changed("somebody else's version came in between, and it is still open here")
        if inode.is_new:
            self.give_way(inode, found)
            return
        log.warning("a coworker's version came in between: ours is kept as a conflict copy")
        name = self.copy_name(inode)
        now = time.time_ns()
        with core.transaction():
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
            core.spool.link(inode.ino, intent.generation, copy.ino)
            reached(Place.COPY_LINKED)
            core.journal.content(
                copy.ino, intent.generation, intent.size, base=None, held=False, due_ns=now
            )
            core.journal.conflicts.add(Conflict(copy.ino, inode.ino, found.modified_by, now))
            core.journal.done(intent, content=True)
            core.follow(inode, found)
        reached(Place.COPY_RECORDED)
        core.invalidations.put(EntryChanged(inode.parent, name.encode()))
        core.content_changed(inode)
        core.drop_bytes(inode.ino, intent.generation)
        reached(Place.COPY_ALONE)

    def give_way(self, inode: Inode, found: Entry) -> None:
        """Rename the local entry to a conflict-copy name, because a coworker took its name."""
        core = self._core
        log.warning("a coworker took a name in between: ours is kept beside it")
        old, name = inode.name, self.copy_name(inode)
        with core.transaction():
            core.tree.move(inode, inode.parent, name)
            theirs = None if found.unsure else self._show(found, inode.parent, old)
            core.journal.conflicts.add(
                Conflict(
                    inode.ino,
                    inode.parent if theirs is None else theirs.ino,
                    found.modified_by,
                    time.time_ns(),
                )
            )
            intent = core.journal.get(inode.ino)
            if intent is not None and inode.is_new and not inode.is_folder:
                core.journal.content(
                    inode.ino,
                    intent.generation,
                    intent.size,
                    base=None,
                    held=intent.held,
                    due_ns=time.time_ns(),
                )
            elif intent is not None:
                core.journal.place(inode.ino, time.time_ns())
        reached(Place.WAY_GIVEN)
        self._folders.forget(inode.parent)
        for changed in (old, name):
            core.invalidations.put(EntryChanged(inode.parent, changed.encode()))

    def _show(self, found: Entry, parent: int, name: str) -> Inode:
        """Make the name refer to the service's entry.  In a transaction."""
        core = self._core
        zone = core.tree.get(parent).zone
        theirs = core.tree.by_remote(zone, found.id)
        if theirs is None:
            return core.tree.add(parent, name, **fields_of(found, core.tree.get(parent)))
        if theirs.parent == parent:  # so far it was shown under a name with a mark
            core.invalidations.put(EntryGone(parent, theirs.name.encode(), theirs.ino))
            core.tree.move(theirs, parent, name)
        return theirs

    def copy_name(self, inode: Inode) -> str:
        """Return a free name with user, host and time."""
        core = self._core
        mark = copy_mark(core.user, core.host, datetime.now()).replace("/", "_")
        plain = safe(core.remote_name(inode))  # the local name may contain the mark of its id
        taken, name, number = core.tree.children(inode.parent), with_mark(plain, mark), 1
        while name in taken:
            number += 1
            name = with_mark(plain, f"{mark} {number}")
        return name
