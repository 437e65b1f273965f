"""Names on their way: folders made, entries moved and deleted on the service."""

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
from zonedrive.outbox.doubts import Doubt
from zonedrive.outbox.journal import Intent
from zonedrive.remote.service import Service
from zonedrive.tree.inode import NOWHERE, ROOT, Inode
from zonedrive.tree.names import safe
from zonedrive.vfs.core import Core
from zonedrive.vfs.delivery.conflicts import Conflicts
from zonedrive.vfs.delivery.resolution import Resolution
from zonedrive.vfs.delivery.reversal import FOR_GOOD, Reversal, aside_name, is_aside
from zonedrive.vfs.listings.folders import Folders
from zonedrive.vfs.listings.identity import claim
from zonedrive.vfs.names.subtree import folders_below, is_below, let_go

log = logging.getLogger(__name__)


class Placement:
    """Brings the service's names in step with the tree's."""

    def __init__(
        self,
        core: Core,
        service: Service,
        folders: Folders,
        conflicts: Conflicts,
        resolution: Resolution,
    ) -> None:
        self._core = core
        self._service = service
        self._folders = folders
        self._conflicts = conflicts
        self._resolution = resolution
        self._reversal = Reversal(core, folders)

    async def make(self, intent: Intent, inode: Inode) -> None:
        """Make a folder."""
        core, resolution = self._core, self._resolution
        parent = core.tree.get(inode.parent)
        if parent.remote_id is None:
            raise Changed("its folder is not on the service yet")
        name = core.remote_name(inode)
        if await resolution.wait_for(parent.remote_id, name):
            return
        doubt = Doubt(inode.ino, inode.ino, 0, 0, inode.zone, parent.remote_id, name, None)
        with resolution.sending(doubt):
            reached(Place.FOLDER_ASKED)
            try:
                with resolution.asking(doubt):
                    entry = await self._service.make_folder(inode.zone, parent.remote_id, name)
            except AlreadyExists as taken:
                await self._meet(intent, inode, await self._in_the_way(inode, name, taken))
                return
            reached(Place.FOLDER_MADE)
            await resolution.arrived(doubt, entry)  # where it cannot be noted, the doubt stays
            self._folders.known_empty(inode)

    async def _meet(self, intent: Intent, inode: Inode, found: Entry) -> None:
        """The name is taken: by a folder, which is ours from now on, or by a file."""
        core = self._core
        if core.overtaken(intent):
            return
        if not found.folder:
            self._conflicts.give_way(inode, found)
            return
        with core.transaction():
            claim(core, inode, found.id)
            core.tree.update(
                inode,
                remote_id=found.id,
                remote_parent=core.tree.get(inode.parent).remote_id,
                remote_name=found.name,
                revision=found.revision,
                modified_by=found.modified_by,
                listed=False,
            )
            core.tree.settled.add(inode.zone, found.id)
            core.journal.done(intent, place=True)

    async def _in_the_way(self, inode: Inode, name: str, taken: AlreadyExists) -> Entry:
        """What the service has under the name that the inode is to have.

        Raises Changed where that is nothing any more, or ours and about to leave.
        """
        core = self._core
        parent = core.tree.get(inode.parent)
        entries = await self._service.listing(inode.zone, parent.entry_id)
        found = next((each for each in entries if each.name == name), None)
        other = None if found is None else core.tree.by_remote(inode.zone, found.id)
        if found is None:
            raise Changed("what had this name on the service is gone") from taken
        if other is not None and other is not inode and core.journal.get(other.ino) is not None:
            if other.ino not in core.in_flight:  # that it is there was not known, or it had left
                with core.transaction():
                    core.tree.update(other, remote_parent=parent.remote_id, remote_name=name)
            raise Changed("another entry is about to leave this name") from taken
        return found

    async def move(self, intent: Intent, inode: Inode) -> None:
        """Rename, or move to another folder; where that is refused for good, take it back."""
        try:
            await self._move(intent, inode)
        except FOR_GOOD as refused:
            if not await self._take_back(intent, inode, refused):
                raise

    async def _move(self, intent: Intent, inode: Inode) -> None:
        core = self._core
        parent = core.tree.get(inode.parent)
        if parent.remote_id is None:
            raise Changed("its folder is not on the service yet")
        name = core.remote_name(inode)
        try:
            unchanged = await self._is_unchanged(intent, inode)
            if core.overtaken(intent):
                return
            if await self._resolution.wait_for(parent.remote_id, name):
                return
            reached(Place.MOVE_ASKED)
            doubt, entry = await self._tell(inode, parent.remote_id, name)
            reached(Place.MOVE_DONE)
        except AlreadyExists as taken:
            entry = await self._in_the_way(inode, name, taken)
            if core.overtaken(intent):
                return
            if entry.id != inode.remote_id:
                self._conflicts.give_way(inode, entry)
                return
            doubt = None
        except NotFound:
            if not core.overtaken(intent):
                self._conflicts.vanished(intent, inode)
            return
        with core.transaction():
            self._moved(self._whose(doubt) or inode, parent.remote_id, entry, unchanged)
            core.journal.done(intent, place=True)
        core.refusals.over(inode.zone, entry.id)
        reached(Place.MOVE_NOTED)

    async def _take_back(self, intent: Intent, inode: Inode, refused: ZonedriveError) -> bool:
        """Whether it is in its former place again, for which folders may have to come back."""
        core = self._core
        await self._locate(intent, inode)
        if self._reversal.move(intent, inode, refused):
            return True
        for each in (way := self._reversal.reopen(inode, refused)):
            folder = core.tree.by_remote(inode.zone, each)
            if folder is None or folder.parent == NOWHERE:
                return False
            try:
                await self._folders.refresh(folder, time.monotonic_ns())
            except ZonedriveError:
                return False  # the next try finds the folders there
        return bool(way) and self._reversal.move(intent, inode, refused)

    async def _locate(self, intent: Intent, inode: Inode) -> None:
        """Note where it is after a refusal: of two requests the first may have got through."""
        core = self._core
        try:
            entry = await self._service.entry(inode.zone, inode.entry_id)
        except ZonedriveError:
            return
        above = entry.parent_id or inode.remote_parent or ""
        as_noted = (above, entry.name) == (inode.remote_parent, inode.remote_name)
        if not (entry.deleted or as_noted or core.overtaken(intent)):
            with core.transaction():
                self._moved(inode, above, entry, unchanged=False)

    async def _tell(self, inode: Inode, folder: str, name: str) -> tuple[Doubt, Entry]:
        """Have an entry moved; what came of it is in doubt until the answer is noted."""
        resolution, remote_id = self._resolution, inode.entry_id
        doubt = Doubt(inode.ino, inode.ino, 0, 0, inode.zone, folder, name, remote_id)
        try:
            with resolution.sending(doubt), resolution.asking(doubt):
                entry = await self._service.move(
                    inode.zone, remote_id, folder, name, folder=inode.is_folder
                )
        except NotFound as unknown:
            if not await self._is_there(inode):
                raise
            if await self._is_folder_there(inode.zone, folder):
                raise _senseless(unknown) from unknown
            raise Changed("the folder that it is moved to is gone") from unknown
        return doubt, msgspec.structs.replace(entry, name=entry.name or name)

    async def _is_folder_there(self, zone: str, folder: str) -> bool:
        try:
            await self._service.listed(zone, folder)
        except NotFound:
            return False
        return True

    def _whose(self, sent: Doubt | None) -> Inode | None:
        """Who stands for the moved entry now; the doubt is over.  In a transaction."""
        doubt = None if sent is None else self._resolution.present(sent)
        if doubt is None:
            return None
        self._core.doubts.drop(doubt.ino)
        return self._core.tree.find(doubt.ino)

    async def _is_unchanged(self, intent: Intent, inode: Inode) -> bool:
        """Whether the service still has the version that an edit that waits began from."""
        if not intent.generation:
            return False
        found = await self._service.entry(inode.zone, inode.entry_id)
        return found.revision == intent.base

    async def step_aside(self, intent: Intent, inode: Inode) -> None:
        """Leave the name to another; the move to the final one follows."""
        try:
            await self._step_aside(intent, inode)
        except FOR_GOOD as refused:
            if not await self._take_back(intent, inode, refused):
                raise

    async def _step_aside(self, intent: Intent, inode: Inode) -> None:
        core = self._core
        above = inode.remote_parent or ""
        folder = core.tree.by_remote(inode.zone, above)
        if folder is None or core.journal.get(folder.ino) is not None:
            zone = next(each for each in core.tree.inodes_in(ROOT) if each.zone == inode.zone)
            above = zone.remote_id or ""
        name = aside_name(inode.ino, intent.seq)
        try:
            unchanged = await self._is_unchanged(intent, inode)
            if core.overtaken(intent):
                return
            reached(Place.ASIDE_ASKED)
            doubt, entry = await self._tell(inode, above, name)
            reached(Place.ASIDE_DONE)
        except NotFound:
            if not core.overtaken(intent):
                self._conflicts.vanished(intent, inode)
            return
        with core.transaction():
            self._moved(self._whose(doubt) or inode, above, entry, unchanged)
        reached(Place.ASIDE_NOTED)

    def _moved(self, inode: Inode, above: str, entry: Entry, unchanged: bool) -> None:
        core = self._core
        core.tree.settled.add(inode.zone, entry.id)
        core.tree.update(inode, remote_parent=above, remote_name=entry.name)
        edited = core.journal.get(inode.ino)
        if unchanged and edited is not None and edited.generation:
            core.journal.rebase(inode.ino, entry.revision)  # what else is new is our own move
            core.tree.update(inode, revision=entry.revision)
            return
        if inode.revision != entry.revision and inode.size == entry.size:
            if edited is not None and edited.generation:
                return  # the verdict before the upload compares
            # A move may count as a modification; the bytes are the same.
            if not inode.generation:
                core.same_bytes(inode, entry.revision)
            core.tree.update(inode, revision=entry.revision)

    async def delete(self, intent: Intent, inode: Inode) -> None:
        """Delete what was removed here; where that is refused for good, it stays."""
        try:
            await self._delete(intent, inode)
        except FOR_GOOD as refused:
            if await self._is_there(inode):
                await self._name_again(inode)
                self._reversal.removal(intent, inode, refused)
            elif not self._core.overtaken(intent):  # an earlier try got through unanswered
                await self._deleted(intent, inode)

    async def _is_there(self, inode: Inode) -> bool:
        """Whether the service has it still, for all that can be said."""
        try:
            return not (await self._service.entry(inode.zone, inode.entry_id)).deleted
        except NotFound:
            return False
        except FOR_GOOD:
            return True

    async def _delete(self, intent: Intent, inode: Inode) -> None:
        core = self._core
        if inode.is_folder:
            changed = await self._others_in(inode)
        else:
            changed = await self._has_other_version(intent, inode)
        if core.overtaken(intent):
            return  # somebody else may have taken over what the inode stood for
        if changed:
            log.warning(
                "a folder that was removed here holds something new on the service: it stays"
                if inode.is_folder
                else "a file that was deleted here has a newer version on the service: it stays"
            )
            await self._name_again(inode)
            if not core.overtaken(intent):
                self._reversal.keep(inode, intent)
            return
        reached(Place.DELETE_ASKED)
        try:
            await self._service.delete(inode.zone, inode.entry_id, folder=inode.is_folder)
        except NotFound as unknown:
            if await self._is_there(inode):
                raise _senseless(unknown) from unknown
        reached(Place.DELETE_DONE)
        await self._deleted(intent, inode)

    async def _name_again(self, inode: Inode) -> None:
        """What stays on the service does not keep the name with which it stepped aside."""
        if not is_aside(inode.remote_name):
            return
        core, above = self._core, inode.remote_parent or ""
        names = (inode.name, self._conflicts.copy_name(inode))
        for name in names:
            try:
                doubt, entry = await self._tell(inode, above, safe(name))
            except AlreadyExists:
                if name == names[-1]:
                    raise
                continue
            with core.transaction():
                self._moved(self._whose(doubt) or inode, above, entry, unchanged=False)
            return

    async def _deleted(self, intent: Intent, inode: Inode) -> None:
        """The service has it no more: nor is there anything of it here."""
        core, deleted = self._core, inode.remote_id or ""
        core.tree.settled.add(inode.zone, deleted)
        if inode.is_folder:
            await let_go(core, inode)
        with core.transaction():
            core.tree.unlink(inode)
            core.journal.drop(inode.ino)
        core.refusals.over(inode.zone, deleted)
        reached(Place.DELETE_NOTED)
        core.discard_bytes(inode, intent)
        core.reap(inode)

    async def _has_other_version(self, intent: Intent, inode: Inode) -> bool:
        """Whether the service has a version that was not seen here when it was deleted."""
        try:
            entry = await self._service.entry(inode.zone, inode.entry_id)
        except NotFound:
            return False
        if entry.revision == inode.revision:
            return False
        # One by ourselves may be what a rename of ours made of it, without other bytes.
        return entry.modified_by != self._core.user or (
            intent.base is None and entry.size != inode.size
        )

    async def _others_in(self, folder: Inode) -> bool:
        """Whether there is something in the folder that was not removed here.

        What was in it when it was removed as a whole is still there in the tree, too: then folders
        in it that were looked at here are looked at again, and files of which there is a new
        version count as well.
        """
        core, tree = self._core, self._core.tree
        if await self._news_in(folder):
            return True
        if not tree.numbers_in(folder.ino):
            return False
        for inner in folders_below(tree, folder):
            if inner.listed and await self._news_in(inner):
                return True
        pending = (tree.find(each.ino) for each in core.journal.all())
        return any(each is not folder and is_below(tree, each, folder) for each in pending)

    async def _news_in(self, folder: Inode) -> bool:
        """Whether the service has something in that folder that was not seen here."""
        core = self._core
        try:
            listed = await self._service.listed(folder.zone, folder.entry_id)
        except NotFound:
            return False
        if not listed.complete:
            return True
        present = listed.entries()
        known = core.tree.by_remotes(folder.zone, [entry.id for entry in present])
        if any(each.id not in known or known[each.id][1] != folder.ino for each in present):
            return True
        said = {known[entry.id][0]: entry for entry in present if not entry.folder}
        return any(
            said[inode.ino].revision != inode.revision
            and (said[inode.ino].modified_by != core.user or said[inode.ino].size != inode.size)
            for inode in core.tree.get_all(said)
        )


def _senseless(unknown: NotFound) -> Rejected:
    """What a 404 about things that are there means: a path that the service does not know."""
    return Rejected(
        f"{unknown.message}, but has what this is about",
        remedy="'zonedrive doctor --profile PROFILE' tells whether the service has such a request",
        status=unknown.status,
    )
