"""A removal or a new name that the service refuses for good is taken back here.

Trying for ever would hide what the service has, and be a failure for ever.  What passes (the
service is away, somebody holds a lock) is not refused for good: such a change waits.

INVARIANT: nothing that is only here is lost: bytes that wait are sent under the former name.
INVARIANT: each change that was taken back is a `Refusal`, for a person to be told of.
"""

import logging

from zonedrive.errors import Forbidden, NotSupported, Rejected, ZonedriveError
from zonedrive.outbox.journal import Intent
from zonedrive.tree.inode import NOWHERE, Inode
from zonedrive.tree.names import fits, safe
from zonedrive.vfs.core import Core
from zonedrive.vfs.invalidation import EntryChanged
from zonedrive.vfs.listings.folders import Folders
from zonedrive.vfs.names.subtree import is_below

log = logging.getLogger(__name__)

FOR_GOOD = (Forbidden, Rejected, NotSupported)
"""Errors that another try would only meet again, until a person does something."""

Way = dict[int, tuple[Inode, Inode, str]]
"""By number: an inode, and the folder and the name it goes back to."""


class Reversal:
    """Takes changes of names back."""

    def __init__(self, core: Core, folders: Folders) -> None:
        self._core = core
        self._folders = folders

    def keep(self, inode: Inode, intent: Intent) -> None:
        """What was removed here stays on the service: the next listing shows it again."""
        core = self._core
        above = core.tree.by_remote(inode.zone, inode.remote_parent or "")
        with core.transaction():
            core.tree.unlink(inode)
            core.journal.drop(inode.ino)
        core.discard_bytes(inode, intent)
        core.reap(inode)
        if above is None or above.parent == NOWHERE:
            self._folders.forget_all()
        else:
            self._folders.forget(above.ino)

    def removal(self, intent: Intent, inode: Inode, refused: ZonedriveError) -> None:
        """The service does not remove it."""
        core = self._core
        if core.overtaken(intent):
            return
        log.warning("inode %d: a removal was refused and is taken back: %s", inode.ino, refused)
        zone, remote_id, above = inode.zone, inode.remote_id or "", inode.remote_parent or ""
        name = inode.remote_name or inode.name
        self.keep(inode, intent)
        folder = core.tree.by_remote(zone, above)
        path = f"{core.tree.path(folder.ino)}/{name}" if folder is not None else name
        said = f"it could not be removed, and is here again: {refused.line()}"
        core.refusals.add(zone, remote_id, folder.ino if folder is not None else 0, path, said)
        core.journal.changed()

    def move(self, intent: Intent, inode: Inode, refused: ZonedriveError) -> bool:
        """The service neither renames nor moves it; False where its former place is in use."""
        core = self._core
        if core.overtaken(intent):
            return True
        way = self._way(inode)
        if way is None:
            return False
        log.warning("inode %d: a rename was refused and is taken back: %s", inode.ino, refused)
        before = {ino: (each.parent, each.name) for ino, (each, _, _) in way.items()}
        with core.transaction():
            for each, _, _ in way.values():
                core.tree.move(each, each.parent, f"/{each.ino}")  # a name nobody can have
            for each, folder, name in way.values():
                core.tree.move(each, folder.ino, name)
                placed = core.journal.get(each.ino)
                if placed is not None:
                    core.journal.done(placed, place=True)
        for ino, (each, folder, name) in way.items():
            parent, former = before[ino]
            core.invalidations.put(EntryChanged(parent, former.encode()))
            core.invalidations.put(EntryChanged(folder.ino, name.encode()))
            said = f"{former!r} has its former name again: {refused.line()}"
            if parent != folder.ino:
                said = f"{former!r} is in its former place again: {refused.line()}"
            path = core.tree.path(ino)
            core.refusals.add(each.zone, each.remote_id or "", folder.ino, path, said)
        core.journal.changed()
        return True

    def _way(self, inode: Inode) -> Way | None:
        """How it goes back, with others that have its place and wait for the same.

        None where one place is in use, or gone.
        """
        core, tree = self._core, self._core.tree
        way: Way = {}
        ahead = [inode]
        while ahead:
            each = ahead.pop()
            folder = tree.by_remote(each.zone, each.remote_parent or "")
            name = safe(each.remote_name or "")
            if folder is None or folder.parent == NOWHERE or not name or not fits(name):
                return None
            if is_below(tree, folder, each):
                return None
            way[each.ino] = each, folder, name
            other = tree.child(folder.ino, name)
            if other is None or other.ino in way:
                continue
            intent = core.journal.get(other.ino)
            moved = intent is not None and intent.place and not (intent.gone or intent.parked)
            if other.is_new or not moved or core.in_flight(other.ino):
                return None
            ahead.append(other)
        return way
