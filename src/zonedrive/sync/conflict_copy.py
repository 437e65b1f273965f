"""Handling of conflicts between two versions of one file: both versions are kept."""

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
from zonedrive.state.local_state import LocalState
from zonedrive.state.merge import fields_of
from zonedrive.state.names import safe, with_mark
from zonedrive.sync.conflict_check import copy_mark
from zonedrive.sync.directory_cache import DirectoryCache

log = logging.getLogger(__name__)


class ConflictCopies:
    """Handler for the results of the conflict check that need more than an upload."""

    def __init__(self, state: LocalState, folders: DirectoryCache) -> None:
        self._state = state
        self._folders = folders

    def recreate(self, intent: Intent, inode: Inode) -> None:
        """Turn an edit of a file that was deleted on the service into a new file."""
        state = self._state
        log.warning("a file was deleted on the service while it was edited here: sent as new")
        with state.transaction():
            state.inodes.update(inode, remote_id=None, remote_parent=None, remote_name=None)
            state.intents.set_base(inode.ino, None)
            state.intents.conflicts.add(Conflict(inode.ino, inode.ino, "", time.time_ns()))
        reached(Place.MADE_ANEW)

    def vanished(self, intent: Intent, inode: Inode) -> None:
        """Handle a renamed entry that the service no longer has: keep only a local edit of it."""
        state = self._state
        self._folders.forget(inode.parent)
        if intent.generation:
            self.recreate(intent, inode)
            return
        log.info("inode %d: deleted on the service while it was renamed here", inode.ino)
        if inode.is_folder:
            with state.transaction():
                # As the service would list it: the next listing removes it, or keeps its local
                # changes.
                above = state.inodes.get(inode.parent).remote_id
                state.inodes.update(
                    inode, remote_parent=above, remote_name=state.remote_name(inode)
                )
                state.intents.done(intent, place=True)
            return
        if inode.parent != NOWHERE:
            state.invalidations.put(EntryGone(inode.parent, inode.name.encode(), inode.ino))
        with state.transaction():
            state.inodes.unlink(inode)
            state.intents.drop(inode.ino)
        state.release_if_unreferenced(inode)

    def set_aside(self, intent: Intent, inode: Inode, found: Entry) -> None:
        """Keep both versions: the coworker's under its name, the local one as a conflict copy."""
        state = self._state
        if state.is_superseded(intent):
            return  # a newer edit exists and gets its own conflict check
        opened = state.opened.get(inode.ino)
        if opened is not None and opened.session is not None and not opened.session.frozen:
            raise Changed("somebody else's version came in between, and it is still open here")
        if inode.is_new:
            self.rename_local_aside(inode, found)
            return
        log.warning("a coworker's version came in between: ours is kept as a conflict copy")
        name = self.copy_name(inode)
        now = time.time_ns()
        with state.transaction():
            copy = state.inodes.add(
                inode.parent,
                name,
                Kind.FILE,
                zone=inode.zone,
                size=intent.size,
                mtime_ns=inode.mtime_ns,
                mode=inode.mode,
                generation=intent.generation,
            )
            state.spool.link(inode.ino, intent.generation, copy.ino)
            reached(Place.COPY_LINKED)
            state.intents.content(
                copy.ino, intent.generation, intent.size, base=None, held=False, due_ns=now
            )
            state.intents.conflicts.add(Conflict(copy.ino, inode.ino, found.modified_by, now))
            state.intents.done(intent, content=True)
            state.follow(inode, found)
        reached(Place.COPY_RECORDED)
        state.invalidations.put(EntryChanged(inode.parent, name.encode()))
        state.content_changed(inode)
        state.drop_bytes(inode.ino, intent.generation)
        reached(Place.COPY_ALONE)

    def rename_local_aside(self, inode: Inode, found: Entry) -> None:
        """Rename the local entry to a conflict-copy name, because a coworker took its name."""
        state = self._state
        log.warning("a coworker took a name in between: ours is kept beside it")
        old, name = inode.name, self.copy_name(inode)
        with state.transaction():
            state.inodes.move(inode, inode.parent, name)
            theirs = None if found.unsure else self._show(found, inode.parent, old)
            state.intents.conflicts.add(
                Conflict(
                    inode.ino,
                    inode.parent if theirs is None else theirs.ino,
                    found.modified_by,
                    time.time_ns(),
                )
            )
            intent = state.intents.get(inode.ino)
            if intent is not None and inode.is_new and not inode.is_folder:
                state.intents.content(
                    inode.ino,
                    intent.generation,
                    intent.size,
                    base=None,
                    held=intent.held,
                    due_ns=time.time_ns(),
                )
            elif intent is not None:
                state.intents.place(inode.ino, time.time_ns())
        reached(Place.WAY_GIVEN)
        self._folders.forget(inode.parent)
        for changed in (old, name):
            state.invalidations.put(EntryChanged(inode.parent, changed.encode()))

    def _show(self, found: Entry, parent: int, name: str) -> Inode:
        """Make the name refer to the service's entry.  In a transaction."""
        state = self._state
        zone = state.inodes.get(parent).zone
        theirs = state.inodes.by_remote(zone, found.id)
        if theirs is None:
            return state.inodes.add(parent, name, **fields_of(found, state.inodes.get(parent)))
        if theirs.parent == parent:  # so far it was shown under a name with a mark
            state.invalidations.put(EntryGone(parent, theirs.name.encode(), theirs.ino))
            state.inodes.move(theirs, parent, name)
        return theirs

    def copy_name(self, inode: Inode) -> str:
        """Return a free name that contains the user, the host and the time."""
        state = self._state
        mark = copy_mark(state.user, state.host, datetime.now()).replace("/", "_")
        plain = safe(state.remote_name(inode))  # the local name may contain the mark of its id
        taken, name, number = state.inodes.children(inode.parent), with_mark(plain, mark), 1
        while name in taken:
            number += 1
            name = with_mark(plain, f"{mark} {number}")
        return name
