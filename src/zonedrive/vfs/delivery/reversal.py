"""A removal or a new name that the service refuses for good is taken back here.

Trying for ever would hide what the service has, and be a failure for ever.  What passes (the
service is away, somebody holds a lock) is not refused for good: such a change waits.

INVARIANT: nothing that is only here is lost: bytes that wait are sent under the former name.
INVARIANT: what goes back is in reach afterwards: not in a folder that was removed, nor in itself.
INVARIANT: each change that was taken back is a `Refusal`, for a person to be told of.
"""

import logging
import re

from zonedrive.errors import Forbidden, NotSupported, Rejected, ZonedriveError
from zonedrive.outbox.journal import Intent, due_in
from zonedrive.tree.inode import NOWHERE, ROOT, Inode
from zonedrive.tree.names import fits, safe
from zonedrive.vfs.core import Core
from zonedrive.vfs.invalidation import EntryChanged
from zonedrive.vfs.listings.folders import Folders

log = logging.getLogger(__name__)

FOR_GOOD = (Forbidden, Rejected, NotSupported)
"""Errors that another try would only meet again, until a person does something."""

Way = dict[int, tuple[Inode, Inode, str]]
"""By number: an inode, and the folder and the name it goes back to."""

_ASIDE = re.compile(r"\.zonedrive-\d+-\d+")


def aside_name(ino: int, seq: int) -> str:
    """What an entry is called on the service while another one takes its place."""
    return f".zonedrive-{ino}-{seq}"


def is_aside(name: str | None) -> bool:
    """Whether a name on the service is such a one, of whichever machine."""
    return bool(_ASIDE.fullmatch(name or ""))


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
        if inode.is_folder or above is None or above.parent == NOWHERE:
            self._folders.forget_all()  # also what is in it may be new
        else:
            self._folders.forget(above.ino)

    def removal(self, intent: Intent, inode: Inode, refused: ZonedriveError) -> None:
        """The service does not remove it."""
        core = self._core
        if core.overtaken(intent):
            return
        log.warning("inode %d: a removal was refused and is taken back: %s", inode.ino, refused)
        which = inode.zone, inode.remote_id or "", core.path(inode.ino)
        self.keep(inode, intent)
        said = f"it could not be removed, and is here again: {refused.line()}"
        core.refusals.add(*which, said)
        core.journal.changes.notify()

    def move(self, intent: Intent, inode: Inode, refused: ZonedriveError) -> bool:
        """The service neither renames nor moves it; False where its former place is in use."""
        core = self._core
        if core.overtaken(intent):
            return True
        above = core.tree.get(inode.parent).remote_id
        if (above, core.remote_name(inode)) == (inode.remote_parent, inode.remote_name):
            with core.transaction():
                core.journal.done(intent, place=True)  # an earlier try got through unanswered
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
                if is_aside(each.remote_name):
                    core.journal.place(each.ino, due_in(0))
                elif placed is not None:
                    core.journal.done(placed, place=True)
        for ino, (each, folder, name) in way.items():
            parent, former = before[ino]
            core.invalidations.put(EntryChanged(parent, former.encode()))
            core.invalidations.put(EntryChanged(folder.ino, name.encode()))
            again = "has its former name" if parent == folder.ino else "is in its former place"
            if is_aside(each.remote_name):
                again = "is here"
            said = f"{former!r} {again} again: {refused.line()}"
            path = core.tree.path(ino)
            core.refusals.add(each.zone, each.remote_id or "", path, said)
        core.journal.changes.notify()
        return True

    def reopen(self, inode: Inode, refused: ZonedriveError) -> list[str]:
        """Take back the removals of the folders that it was moved out of: it cannot leave them.

        The remote ids of the folders on the way to its former place, from above: once they are
        listed, `move` may take it there.  None where no such folder was removed.
        """
        core = self._core
        removed: list[tuple[Inode, Intent]] = []
        above = inode.remote_parent or ""
        while (folder := core.tree.by_remote(inode.zone, above)) is not None:
            intent = core.journal.get(folder.ino)
            if intent is None or not intent.gone or folder.ino in core.in_flight:
                break
            removed.append((folder, intent))
            above = folder.remote_parent or ""
        if not removed:
            return []
        way = [above, *(folder.remote_id or "" for folder, _ in reversed(removed))]
        for folder, intent in removed[:-1]:
            self.keep(folder, intent)
        topmost, intent = removed[-1]
        self.removal(intent, topmost, refused)
        return way

    def _way(self, inode: Inode) -> Way | None:
        """How it goes back, with others that have its place and wait for the same.

        One that stepped aside for them gets the place that becomes free: in a circle that is where
        it was.  None where one place is in use, or gone.
        """
        core, tree = self._core, self._core.tree
        if is_aside(inode.remote_name):
            return None  # another has its place by now
        way: Way = {}
        ahead = [inode]
        while ahead:
            each = ahead.pop()
            folder = tree.by_remote(each.zone, each.remote_parent or "")
            name = safe(each.remote_name or "")
            if is_aside(each.remote_name):
                folder, name = tree.find(inode.parent), inode.name
            if folder is None or not name or not fits(name):
                return None
            way[each.ino] = each, folder, name
            other = tree.child(folder.ino, name)
            if other is None or other.ino in way:
                continue
            intent = core.journal.get(other.ino)
            moved = intent is not None and intent.place and not (intent.gone or intent.parked)
            if other.is_new or not moved or other.ino in core.in_flight:
                return None
            if core.doubts.get(other.ino) is not None:
                return None  # it may be there already
            ahead.append(other)
        return way if self._leads_up(way) else None

    def _leads_up(self, way: Way) -> bool:
        """Whether from each of them the root is reached, once all are where they go."""
        for each, folder, _ in way.values():
            passed: set[int] = {each.ino}
            above: Inode | None = folder
            while above is not None and above.ino != ROOT and above.ino not in passed:
                passed.add(above.ino)
                above = (
                    way[above.ino][1] if above.ino in way else self._core.tree.find(above.parent)
                )
            if above is None or above.ino != ROOT:
                return False
        return True
