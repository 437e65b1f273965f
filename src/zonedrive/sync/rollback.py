"""Rollback of removals and renames that the service rejects permanently.

Endless retries would hide the service's entry and fail each time.  A temporary failure, such as an
unreachable service or a lock, is not a rejection: the change is retried later.

INVARIANT: no local data is lost: waiting bytes are uploaded under the former name.
INVARIANT: a restored entry is reachable: it is neither in a removed folder nor below itself.
INVARIANT: each rolled-back change becomes a `RejectedChange`, which the user is told of.
"""

import logging
import re

from zonedrive.errors import Forbidden, NotSupported, Rejected, ZonedriveError
from zonedrive.state.inode import NOWHERE, ROOT, Inode
from zonedrive.state.intents import Intent, due_in
from zonedrive.state.invalidation import EntryChanged
from zonedrive.state.local_state import LocalState
from zonedrive.state.names import fits, safe
from zonedrive.sync.directory_cache import DirectoryCache

log = logging.getLogger(__name__)

FOR_GOOD = (Forbidden, Rejected, NotSupported)
"""Errors that a retry would get again until a person acts."""

Way = dict[int, tuple[Inode, Inode, str]]
"""By ino: an inode, and the folder and the name to which it returns."""

_ASIDE = re.compile(r"\.zonedrive-\d+-\d+")


def aside_name(ino: int, seq: int) -> str:
    """Return the temporary remote name of an entry while another one takes its place."""
    return f".zonedrive-{ino}-{seq}"


def is_aside(name: str | None) -> bool:
    """Return True if a remote name is a temporary name, of any machine."""
    return bool(_ASIDE.fullmatch(name or ""))


class Rollback:
    """Rollback of local name changes."""

    def __init__(self, state: LocalState, folders: DirectoryCache) -> None:
        self._state = state
        self._folders = folders

    def keep(self, inode: Inode, intent: Intent) -> None:
        """Keep a locally removed entry on the service; the next listing shows it again."""
        state = self._state
        above = state.inodes.by_remote(inode.zone, inode.remote_parent or "")
        with state.transaction():
            state.inodes.unlink(inode)
            state.intents.drop(inode.ino)
        state.discard_bytes(inode, intent)
        state.release_if_unreferenced(inode)
        if inode.is_folder or above is None or above.parent == NOWHERE:
            self._folders.forget_all()  # the folder's content may be new as well
        else:
            self._folders.forget(above.ino)

    def removal(self, intent: Intent, inode: Inode, refused: ZonedriveError) -> None:
        """Roll back a removal that the service rejects."""
        state = self._state
        if state.changed_since(intent):
            return
        log.warning("inode %d: a removal was refused and is taken back: %s", inode.ino, refused)
        which = inode.zone, inode.remote_id or "", state.path(inode.ino)
        self.keep(inode, intent)
        said = f"it could not be removed, and is here again: {refused.line()}"
        state.refusals.add(*which, said)
        state.intents.changes.notify()

    def move(self, intent: Intent, inode: Inode, refused: ZonedriveError) -> bool:
        """Roll back a rename or move; return False if the former place is in use."""
        state = self._state
        if state.changed_since(intent):
            return True
        above = state.inodes.get(inode.parent).remote_id
        if (above, state.remote_name(inode)) == (inode.remote_parent, inode.remote_name):
            with state.transaction():
                # An earlier request succeeded without an answer.
                state.intents.done(intent, place=True)
            return True
        way = self._way(inode)
        if way is None:
            return False
        log.warning("inode %d: a rename was refused and is taken back: %s", inode.ino, refused)
        before = {ino: (each.parent, each.name) for ino, (each, _, _) in way.items()}
        with state.transaction():
            for each, _, _ in way.values():
                state.inodes.move(
                    each, each.parent, f"/{each.ino}"
                )  # a name that no entry can have
            for each, folder, name in way.values():
                state.inodes.move(each, folder.ino, name)
                placed = state.intents.get(each.ino)
                if is_aside(each.remote_name):
                    state.intents.place(each.ino, due_in(0))
                elif placed is not None:
                    state.intents.done(placed, place=True)
        for ino, (each, folder, name) in way.items():
            parent, former = before[ino]
            state.invalidations.put(EntryChanged(parent, former.encode()))
            state.invalidations.put(EntryChanged(folder.ino, name.encode()))
            again = "has its former name" if parent == folder.ino else "is in its former place"
            if is_aside(each.remote_name):
                again = "is here"
            said = f"{former!r} {again} again: {refused.line()}"
            path = state.inodes.path(ino)
            state.refusals.add(each.zone, each.remote_id or "", path, said)
        state.intents.changes.notify()
        return True

    def reopen(self, inode: Inode, refused: ZonedriveError) -> list[str]:
        """Roll back the removals of the folders that the inode was moved out of.

        Return the remote ids of the folders above its former place, topmost first: after they are
        listed, `move` may move the inode back.  The list is empty if no such folder was removed.
        """
        state = self._state
        removed: list[tuple[Inode, Intent]] = []
        above = inode.remote_parent or ""
        while (folder := state.inodes.by_remote(inode.zone, above)) is not None:
            intent = state.intents.get(folder.ino)
            if intent is None or not intent.gone or folder.ino in state.in_flight:
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
        """Return how the inode returns, together with others that have its place and wait as well.

        An inode with a temporary remote name gets the place that becomes free, or in a circle its
        current one.  None if one of the places is in use or gone.
        """
        state, tree = self._state, self._state.inodes
        if is_aside(inode.remote_name):
            return None  # another entry has its place now
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
            intent = state.intents.get(other.ino)
            moved = intent is not None and intent.place and not (intent.gone or intent.parked)
            if other.is_new or not moved or other.ino in state.in_flight:
                return None
            if state.requests.get(other.ino) is not None:
                return None  # its move may have succeeded
            ahead.append(other)
        return way if self._leads_up(way) else None

    def _leads_up(self, way: Way) -> bool:
        """Return True if every moved inode is still below the root afterwards."""
        for each, folder, _ in way.values():
            passed: set[int] = {each.ino}
            above: Inode | None = folder
            while above is not None and above.ino != ROOT and above.ino not in passed:
                passed.add(above.ino)
                above = (
                    way[above.ino][1] if above.ino in way else self._state.inodes.find(above.parent)
                )
            if above is None or above.ino != ROOT:
                return False
        return True
