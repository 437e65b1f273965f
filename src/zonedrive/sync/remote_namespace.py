"""Changes of names on the service: creates folders, and moves and deletes entries."""

import logging
import time

import msgspec

from zonedrive.errors import (
    AlreadyExists,
    Changed,
    NotFound,
    Rejected,
    ZonedriveError,
)
from zonedrive.failpoint import Place, reached
from zonedrive.model import Entry
from zonedrive.remote.service import Service
from zonedrive.state.inode import NOWHERE, ROOT, Inode
from zonedrive.state.intents import Intent
from zonedrive.state.local_state import LocalState
from zonedrive.state.names import safe
from zonedrive.state.pending_requests import PendingRequest
from zonedrive.state.remote_binding import claim
from zonedrive.sync.conflict_copy import ConflictCopies
from zonedrive.sync.directory_cache import DirectoryCache
from zonedrive.sync.reconcile import Reconciler
from zonedrive.sync.rollback import FOR_GOOD, Rollback, aside_name, is_aside
from zonedrive.sync.subtree import folders_below, is_below, let_go

log = logging.getLogger(__name__)


class RemoteNamespace:
    """Sender of local name changes to the service."""

    def __init__(
        self,
        state: LocalState,
        service: Service,
        folders: DirectoryCache,
        conflicts: ConflictCopies,
        resolution: Reconciler,
    ) -> None:
        self._state = state
        self._service = service
        self._folders = folders
        self._conflicts = conflicts
        self._resolution = resolution
        self._reversal = Rollback(state, folders)

    async def make(self, intent: Intent, inode: Inode) -> None:
        """Create a folder on the service."""
        state, resolution = self._state, self._resolution
        parent = state.inodes.get(inode.parent)
        if parent.remote_id is None:
            raise Changed("its folder is not on the service yet")
        name = state.remote_name(inode)
        if await resolution.wait_for(parent.remote_id, name):
            return
        doubt = PendingRequest(inode.ino, inode.ino, 0, 0, inode.zone, parent.remote_id, name, None)
        with resolution.sending(doubt):
            reached(Place.FOLDER_ASKED)
            try:
                with resolution.asking(doubt):
                    entry = await self._service.make_folder(inode.zone, parent.remote_id, name)
            except AlreadyExists as taken:
                await self._meet(intent, inode, await self._in_the_way(inode, name, taken))
                return
            reached(Place.FOLDER_MADE)
            # If this cannot be stored, the pending request stays.
            await resolution.arrived(doubt, entry)
            self._folders.known_empty(inode)

    async def _meet(self, intent: Intent, inode: Inode, found: Entry) -> None:
        """Handle a taken name: adopt a folder with that name, or step aside for a file."""
        state = self._state
        if state.changed_since(intent):
            return
        if not found.folder:
            self._conflicts.rename_local_aside(inode, found)
            return
        with state.transaction():
            claim(state, inode, found.id)
            state.inodes.update(
                inode,
                remote_id=found.id,
                remote_parent=state.inodes.get(inode.parent).remote_id,
                remote_name=found.name,
                revision=found.revision,
                modified_by=found.modified_by,
                listed=False,
            )
            state.inodes.settled.add(inode.zone, found.id)
            state.intents.done(intent, place=True)

    async def _in_the_way(self, inode: Inode, name: str, taken: AlreadyExists) -> Entry:
        """Return the service's entry with the name that the inode should get.

        Raises Changed if that entry is gone, or is a local inode that is about to be moved away.
        """
        state = self._state
        parent = state.inodes.get(inode.parent)
        entries = await self._service.listing(inode.zone, parent.entry_id)
        found = next((each for each in entries if each.name == name), None)
        other = None if found is None else state.inodes.by_remote(inode.zone, found.id)
        if found is None:
            raise Changed("what had this name on the service is gone") from taken
        if other is not None and other is not inode and state.intents.get(other.ino) is not None:
            if other.ino not in state.in_flight:  # its place was not known, or it has left
                with state.transaction():
                    state.inodes.update(other, remote_parent=parent.remote_id, remote_name=name)
            raise Changed("another entry is about to leave this name") from taken
        return found

    async def move(self, intent: Intent, inode: Inode) -> None:
        """Rename or move the entry; roll the local change back if the service rejects it."""
        try:
            await self._move(intent, inode)
        except FOR_GOOD as refused:
            if not await self._take_back(intent, inode, refused):
                raise

    async def _move(self, intent: Intent, inode: Inode) -> None:
        state = self._state
        parent = state.inodes.get(inode.parent)
        if parent.remote_id is None:
            raise Changed("its folder is not on the service yet")
        name = state.remote_name(inode)
        try:
            unchanged = await self._is_unchanged(intent, inode)
            if state.changed_since(intent):
                return
            if await self._resolution.wait_for(parent.remote_id, name):
                return
            reached(Place.MOVE_ASKED)
            doubt, entry = await self._tell(inode, parent.remote_id, name)
            reached(Place.MOVE_DONE)
        except AlreadyExists as taken:
            entry = await self._in_the_way(inode, name, taken)
            if state.changed_since(intent):
                return
            if entry.id != inode.remote_id:
                self._conflicts.rename_local_aside(inode, entry)
                return
            doubt = None
        except NotFound:
            if not state.changed_since(intent):
                self._conflicts.vanished(intent, inode)
            return
        with state.transaction():
            self._moved(self._whose(doubt) or inode, parent.remote_id, entry, unchanged)
            state.intents.done(intent, place=True)
        state.refusals.over(inode.zone, entry.id)
        reached(Place.MOVE_NOTED)

    async def _take_back(self, intent: Intent, inode: Inode, refused: ZonedriveError) -> bool:
        """Roll a move back and return True on success; this may restore former folders."""
        state = self._state
        await self._locate(intent, inode)
        if self._reversal.move(intent, inode, refused):
            return True
        for each in (way := self._reversal.reopen(inode, refused)):
            folder = state.inodes.by_remote(inode.zone, each)
            if folder is None or folder.parent == NOWHERE:
                return False
            try:
                await self._folders.refresh(folder, time.monotonic_ns())
            except ZonedriveError:
                return False  # the next attempt finds the folders
        return bool(way) and self._reversal.move(intent, inode, refused)

    async def _locate(self, intent: Intent, inode: Inode) -> None:
        """Record the entry's place after a refusal: the first of two requests may have worked."""
        state = self._state
        try:
            entry = await self._service.entry(inode.zone, inode.entry_id)
        except ZonedriveError:
            return
        above = entry.parent_id or inode.remote_parent or ""
        as_noted = (above, entry.name) == (inode.remote_parent, inode.remote_name)
        if not (entry.deleted or as_noted or state.changed_since(intent)):
            with state.transaction():
                self._moved(inode, above, entry, unchanged=False)

    async def _tell(self, inode: Inode, folder: str, name: str) -> tuple[PendingRequest, Entry]:
        """Move an entry on the service; the request stays pending until the answer is recorded."""
        resolution, remote_id = self._resolution, inode.entry_id
        doubt = PendingRequest(inode.ino, inode.ino, 0, 0, inode.zone, folder, name, remote_id)
        try:
            with resolution.sending(doubt), resolution.asking(doubt):
                entry = await self._service.move(
                    inode.zone, remote_id, folder, name, folder=inode.is_folder
                )
        except NotFound as unknown:
            if not await self._is_there(inode):
                raise
            if await self._is_folder_there(inode.zone, folder):
                raise _unsupported_endpoint_error(unknown) from unknown
            raise Changed("the folder that it is moved to is gone") from unknown
        return doubt, msgspec.structs.replace(entry, name=entry.name or name)

    async def _is_folder_there(self, zone: str, folder: str) -> bool:
        try:
            await self._service.listed(zone, folder)
        except NotFound:
            return False
        return True

    def _whose(self, sent: PendingRequest | None) -> Inode | None:
        """Return the inode of the moved entry, and end the pending request.  In a transaction."""
        doubt = None if sent is None else self._resolution.present(sent)
        if doubt is None:
            return None
        self._state.requests.drop(doubt.ino)
        return self._state.inodes.find(doubt.ino)

    async def _is_unchanged(self, intent: Intent, inode: Inode) -> bool:
        """Return True if the service still has the version that a pending edit is based on."""
        if not intent.generation:
            return False
        found = await self._service.entry(inode.zone, inode.entry_id)
        return found.revision == intent.base

    async def step_aside(self, intent: Intent, inode: Inode) -> None:
        """Move the entry to a temporary name, so that another can get its name.

        The move to the final name follows.
        """
        try:
            await self._step_aside(intent, inode)
        except FOR_GOOD as refused:
            if not await self._take_back(intent, inode, refused):
                raise

    async def _step_aside(self, intent: Intent, inode: Inode) -> None:
        state = self._state
        above = inode.remote_parent or ""
        folder = state.inodes.by_remote(inode.zone, above)
        if folder is None or state.intents.get(folder.ino) is not None:
            zone = next(each for each in state.inodes.inodes_in(ROOT) if each.zone == inode.zone)
            above = zone.remote_id or ""
        name = aside_name(inode.ino, intent.seq)
        try:
            unchanged = await self._is_unchanged(intent, inode)
            if state.changed_since(intent):
                return
            reached(Place.ASIDE_ASKED)
            doubt, entry = await self._tell(inode, above, name)
            reached(Place.ASIDE_DONE)
        except NotFound:
            if not state.changed_since(intent):
                self._conflicts.vanished(intent, inode)
            return
        with state.transaction():
            self._moved(self._whose(doubt) or inode, above, entry, unchanged)
        reached(Place.ASIDE_NOTED)

    def _moved(self, inode: Inode, above: str, entry: Entry, unchanged: bool) -> None:
        state = self._state
        state.inodes.settled.add(inode.zone, entry.id)
        state.inodes.update(inode, remote_parent=above, remote_name=entry.name)
        edited = state.intents.get(inode.ino)
        if unchanged and edited is not None and edited.generation:
            # The new revision comes from this client's own move.
            state.intents.set_base(inode.ino, entry.revision)
            state.inodes.update(inode, revision=entry.revision)
            return
        if inode.revision != entry.revision and inode.size == entry.size:
            if edited is not None and edited.generation:
                return  # the conflict check before the upload compares the versions
            # A move may count as a modification; the bytes are the same.
            if not inode.generation:
                state.same_bytes(inode, entry.revision)
            state.inodes.update(inode, revision=entry.revision)

    async def delete(self, intent: Intent, inode: Inode) -> None:
        """Delete a removed entry on the service; if the service rejects it, restore the entry."""
        try:
            await self._delete(intent, inode)
        except FOR_GOOD as refused:
            if await self._is_there(inode):
                await self._name_again(inode)
                self._reversal.removal(intent, inode, refused)
            elif not self._state.changed_since(
                intent
            ):  # an earlier request succeeded without an answer
                await self._deleted(intent, inode)

    async def _is_there(self, inode: Inode) -> bool:
        """Return True if the service still has the entry, or rejects the query."""
        try:
            return not (await self._service.entry(inode.zone, inode.entry_id)).deleted
        except NotFound:
            return False
        except FOR_GOOD:
            return True

    async def _delete(self, intent: Intent, inode: Inode) -> None:
        state = self._state
        if inode.is_folder:
            changed = await self._others_in(inode)
        else:
            changed = await self._has_other_version(intent, inode)
        if state.changed_since(intent):
            return  # another inode may stand for the entry now
        if changed:
            log.warning(
                "a folder that was removed here holds something new on the service: it stays"
                if inode.is_folder
                else "a file that was deleted here has a newer version on the service: it stays"
            )
            await self._name_again(inode)
            if not state.changed_since(intent):
                self._reversal.keep(inode, intent)
            return
        reached(Place.DELETE_ASKED)
        try:
            await self._service.delete(inode.zone, inode.entry_id, folder=inode.is_folder)
        except NotFound as unknown:
            if await self._is_there(inode):
                raise _unsupported_endpoint_error(unknown) from unknown
        reached(Place.DELETE_DONE)
        await self._deleted(intent, inode)

    async def _name_again(self, inode: Inode) -> None:
        """Rename an entry that stays on the service from its temporary name to a regular one."""
        if not is_aside(inode.remote_name):
            return
        state, above = self._state, inode.remote_parent or ""
        names = (inode.name, self._conflicts.copy_name(inode))
        for name in names:
            try:
                doubt, entry = await self._tell(inode, above, safe(name))
            except AlreadyExists:
                if name == names[-1]:
                    raise
                continue
            with state.transaction():
                self._moved(self._whose(doubt) or inode, above, entry, unchanged=False)
            return

    async def _deleted(self, intent: Intent, inode: Inode) -> None:
        """Forget the inode after the service has deleted its entry."""
        state, deleted = self._state, inode.remote_id or ""
        state.inodes.settled.add(inode.zone, deleted)
        if inode.is_folder:
            await let_go(state, inode)
        with state.transaction():
            state.inodes.unlink(inode)
            state.intents.drop(inode.ino)
        state.refusals.over(inode.zone, deleted)
        reached(Place.DELETE_NOTED)
        state.discard_bytes(inode, intent)
        state.release_if_unreferenced(inode)

    async def _has_other_version(self, intent: Intent, inode: Inode) -> bool:
        """Return True if the service has a version that was unknown at the removal."""
        try:
            entry = await self._service.entry(inode.zone, inode.entry_id)
        except NotFound:
            return False
        if entry.revision == inode.revision:
            return False
        # A version by this user may result from a rename, without other bytes.
        return entry.modified_by != self._state.user or (
            intent.base is None and entry.size != inode.size
        )

    async def _others_in(self, folder: Inode) -> bool:
        """Return True if the remote folder holds entries that were not removed locally.

        Entries of a folder that was removed as a whole are still in the tree.  In that case,
        subfolders that were listed before are listed again, and a new version of a file counts as
        well.
        """
        state, tree = self._state, self._state.inodes
        if await self._news_in(folder):
            return True
        if not tree.numbers_in(folder.ino):
            return False
        for inner in folders_below(tree, folder):
            if inner.listed and await self._news_in(inner):
                return True
        pending = (tree.find(each.ino) for each in state.intents.all())
        return any(each is not folder and is_below(tree, each, folder) for each in pending)

    async def _news_in(self, folder: Inode) -> bool:
        """Return True if the remote folder holds entries or versions that are unknown locally."""
        state = self._state
        try:
            listed = await self._service.listed(folder.zone, folder.entry_id)
        except NotFound:
            return False
        if not listed.complete:
            return True
        present = listed.entries()
        known = state.inodes.by_remotes(folder.zone, [entry.id for entry in present])
        if any(each.id not in known or known[each.id][1] != folder.ino for each in present):
            return True
        said = {known[entry.id][0]: entry for entry in present if not entry.folder}
        return any(
            said[inode.ino].revision != inode.revision
            and (said[inode.ino].modified_by != state.user or said[inode.ino].size != inode.size)
            for inode in state.inodes.get_all(said)
        )


def _unsupported_endpoint_error(unknown: NotFound) -> Rejected:
    """Return the error for a 404 about existing entries: the service lacks that endpoint."""
    return Rejected(
        f"{unknown.message}, but has what this is about",
        remedy="'zonedrive doctor --profile PROFILE' tells whether the service has such a request",
        status=unknown.status,
    )
