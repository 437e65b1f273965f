"""Rollback of removals and renames that the service rejects permanently.

Without a rollback, every retry would fail, and the service's entry would stay hidden. A temporary
failure, such as an unreachable service or a lock, is not a rejection: the change is retried later.

INVARIANT: no local data is lost. Content that waits for its upload is uploaded under the former
name.
INVARIANT: a restored entry is reachable: it is neither in a removed folder nor below itself.
INVARIANT: each rolled-back change becomes a `RejectedChange`, and the user is told about it.
"""

import logging
from collections.abc import Mapping
from itertools import islice, takewhile

from zonedrive.errors import Forbidden, NotSupported, Rejected, ZonedriveError
from zonedrive.model import Entry
from zonedrive.state import conflicts, local_operations, remote_operations
from zonedrive.state.conflict_copies import copy_name, record_conflict_of_folder
from zonedrive.state.inode import ROOT, Inode
from zonedrive.state.intents import Intent
from zonedrive.state.local_state import LocalState
from zonedrive.state.names import fits, is_aside, local_name, safe
from zonedrive.sync.directory_cache import DirectoryCache
from zonedrive.translation import marked

log = logging.getLogger(__name__)

FOR_GOOD = (Forbidden, Rejected, NotSupported)
"""Errors that every retry would raise again until a user acts."""


class Rollback:
    """Rollback of local removals and moves."""

    def __init__(self, state: LocalState, folders: DirectoryCache) -> None:
        self._state = state
        self._folders = folders

    def keep(self, inode: Inode, entry: Entry | None = None) -> None:
        """Undo the local removal of an entry.

        `entry` is the entry as the service has it now; it is shown at once, because the next
        listing may be far away if the connection is lost. Without `entry`, the next listing shows
        it. For a folder, drop the local content that was copied from the service before the
        deletion.
        """
        state = self._state
        if inode.is_folder:
            for each in state.inodes.get_all(state.inodes.rows.with_bytes()):
                if state.inodes.is_below(each, inode):
                    state.revert_to_remote(each)
        parent = (entry and entry.parent_id) or inode.remote_parent or ""
        above = state.inodes.by_remote(inode.zone, parent)
        has_content = inode.is_folder and bool(state.inodes.numbers_in(inode.ino))
        if has_content and state.inodes.is_here(above):
            local_operations.put_back(state, inode, above)
        else:
            conflicts.show_kept(state, inode, above, entry)
        if inode.is_folder or not state.inodes.is_here(above):
            self._folders.forget()  # the folder's content may be new as well
        else:
            self._folders.forget(above.ino)

    def removal(
        self, intent: Intent, inode: Inode, refused: ZonedriveError, entry: Entry | None = None
    ) -> None:
        """Roll back a removal that the service rejects, and record the rejection for the user.

        Also roll back the rename of another entry to the place of the removed one, if possible. For
        `entry`, see `keep`. Raises Stale if the intent has changed.
        """
        state = self._state
        state.intents.snapshot(intent).require()
        log.warning("inode %d: removal refused and rolled back: %s", inode.ino, refused)
        which = inode.zone, inode.remote_id or "", state.path(inode.ino)
        above = state.inodes.by_remote(inode.zone, inode.remote_parent or "")
        name = safe(inode.remote_name or "")
        other = None if above is None else state.inodes.child(above.ino, name)
        moved = self._movable(other)
        if other is not None and moved is not None:
            self.move(moved, other, refused)
        self.keep(inode, entry)
        said = f"{marked('the removal was undone')}: {refused.line()}"
        state.refusals.add(*which, said)
        state.intents.changes.notify()

    def move(
        self, intent: Intent, inode: Inode, refused: ZonedriveError, *, is_cycle: bool = False
    ) -> bool:
        """Roll back a rename or move that the service rejects, and return True.

        If `is_cycle` is true, the target folder is below the folder `inode` on the service, so that
        no later attempt can succeed. Then also roll back the moves of other folders that would
        otherwise be below themselves, and let a new inode keep the former name of `inode`.

        Return False if the former place is in use or gone. If an earlier request has already moved
        the entry, roll nothing back, but also return True. Raises Stale if the intent has changed.
        """
        state = self._state
        state.intents.snapshot(intent).require()
        if not state.is_elsewhere(inode):
            # An earlier request succeeded, but its response was lost.
            remote_operations.end_move(state, intent, inode)
            return True
        way = self._way(inode, is_cycle=is_cycle)
        if way is None:
            return False
        log.warning("inode %d: rename refused and rolled back: %s", inode.ino, refused)
        former = {ino: (each.parent, each.name) for ino, (each, _, _) in way.items()}
        remote_operations.move_back(state, way)
        for each, _, _ in way.values():
            if is_aside(each.remote_name):  # it may get the conflict-copy name that `inode` had
                record_conflict_of_folder(state, each)
        for ino, (each, folder, _) in way.items():
            parent, name = former[ino]
            said = marked(f"the rename to {name!r} was undone")
            if parent != folder.ino:
                said = marked(f"the move of {name!r} was undone")
            said = f"{said}: {refused.line()}"
            state.refusals.add(each.zone, each.remote_id or "", state.inodes.path(ino), said)
        state.intents.changes.notify()
        return True

    def reopen(self, inode: Inode, refused: ZonedriveError) -> list[str]:
        """Roll back the removals of the folders that the inode was moved out of.

        Return the remote ids of the folders to list before `move` may succeed, topmost first: from
        the folder above the topmost removed one down to the inode's former place. Return [] if no
        such folder was removed, or if a removal is being sent.
        """
        state = self._state
        above = [*state.inodes.above_on_service(inode)]
        gone = takewhile(lambda folder: not state.inodes.is_here(folder), above)
        intents = [state.intents.get(folder.ino) for folder in gone]
        removals = [each for each in intents if each is not None and each.gone]
        if not removals or any(each.ino in state.in_flight for each in removals):
            return []
        *others, topmost = removals
        number = intents.index(topmost)
        way = [each.entry_id for each in above[: number + 2]]
        for each in others:
            self.keep(state.inodes.get(each.ino))
        self.removal(topmost, above[number], refused)
        return way[::-1]

    def _way(
        self, inode: Inode, *, is_cycle: bool = False
    ) -> dict[int, tuple[Inode, Inode, str]] | None:
        """Return the moves that bring the inode back to its former place.

        The moves include those of other inodes that now occupy a former place. If `is_cycle` (see
        `move`), they also include those of folders that would be below themselves, but not renames
        within a folder. The result maps each inode number to the inode, its target folder and its
        target name. An occupant with a temporary remote name gets the place that `inode` leaves.
        Any other inode with a temporary remote name keeps its local name, in the folder in which
        the service has the entry, or becomes a conflict copy if the name is in use (only if
        `is_cycle`). Any other name gets a hash suffix (see `names`) if an entry that stays there
        has it. Return None if a place is in use or gone.
        """
        inodes = self._state.inodes
        if is_aside(inode.remote_name) and not is_cycle:
            return None  # another entry has its place now
        way: dict[int, tuple[Inode, Inode, str]] = {}
        ahead, occupants = [inode], set[int]()
        while ahead:
            each = ahead.pop()
            folder = inodes.by_remote(each.zone, each.remote_parent or "")
            name = ""
            if folder is not None and each.remote_name:
                shown = safe(each.remote_name)
                other = inodes.child(folder.ino, shown)
                stays = (
                    other is not None
                    and other is not each
                    and (self._stays(other) or (is_cycle and other.is_new))
                )
                name = local_name(each.remote_name, each.entry_id, {shown} if stays else ())
            if is_aside(each.remote_name) and each.ino in occupants:
                folder, name = inodes.find(inode.parent), inode.name
            elif is_aside(each.remote_name) and folder is not None:
                is_taken = inodes.child(folder.ino, each.name) not in (None, each)
                name = copy_name(self._state, each, folder.ino) if is_taken else each.name
            if folder is None or not folder.is_folder or not name or not fits(name):
                return None
            way[each.ino] = each, folder, name
            other = inodes.child(folder.ino, name)
            if other is not None and other.ino not in way:
                if other.is_new or self._movable(other) is None:
                    return None
                ahead.append(other)
                occupants.add(other.ino)
            if is_cycle and not ahead:  # folders that would be below themselves
                loop = (one for one in self._loop(way) if one.ino not in way)
                ahead = [*islice((one for one in loop if self._is_moved(one)), 1)]
        return None if self._loop(way) else way

    def _is_moved(self, inode: Inode) -> bool:
        """Return True if the inode's move to another folder was certainly not sent yet."""
        above = self._state.inodes.by_remote(inode.zone, inode.remote_parent or "")
        is_elsewhere = above is None or above.ino != inode.parent
        return is_elsewhere and self._movable(inode) is not None

    def _stays(self, inode: Inode) -> bool:
        """Return True if the service shows the inode's entry under the inode's name."""
        intent = self._state.intents.get(inode.ino)
        return not inode.is_new and (intent is None or not intent.concerns_name)

    def _movable(self, inode: Inode | None) -> Intent | None:
        """Return the intent of an inode whose move was certainly not sent yet, or None."""
        state = self._state
        intent = None if inode is None else state.intents.get(inode.ino)
        if intent is None or not intent.place or intent.gone or intent.parked:
            return None
        is_sent = intent.ino in state.in_flight or state.requests.get(intent.ino) is not None
        return None if is_sent else intent

    def _loop(self, way: Mapping[int, tuple[Inode, Inode, str]]) -> list[Inode]:
        """Return a moved inode that would not be below the root, then the folders above it.

        The result is empty if every moved inode is still below the root after the moves. `way`
        maps each inode number to the inode, its target folder and its target name.
        """
        for each, folder, _ in way.values():
            passed = {each.ino: each}
            above: Inode | None = folder
            while above is not None and above.ino != ROOT and above.ino not in passed:
                passed[above.ino] = above
                above = (
                    way[above.ino][1] if above.ino in way else self._state.inodes.find(above.parent)
                )
            if above is None or above.ino != ROOT:
                return [*passed.values()]
        return []
