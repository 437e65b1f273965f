"""Names on their way: folders made, entries moved and deleted on the service."""

import contextlib
import logging

from zonedrive.errors import AlreadyExists, NotFound, Rejected, StoreError
from zonedrive.model import Entry
from zonedrive.outbox.journal import Intent
from zonedrive.tree.inode import NOWHERE, ROOT, Inode
from zonedrive.vfs.conflicts import Conflicts
from zonedrive.vfs.core import Core
from zonedrive.vfs.folders import Folders

log = logging.getLogger(__name__)


class Placement:
    """Brings the service's names in step with the tree's."""

    def __init__(self, core: Core, folders: Folders, conflicts: Conflicts) -> None:
        self._core = core
        self._folders = folders
        self._conflicts = conflicts

    async def make(self, intent: Intent, inode: Inode) -> None:
        """Make a folder."""
        core = self._core
        parent = core.tree.get(inode.parent)
        if parent.remote_id is None:
            raise StoreError("its folder is not on the service yet")
        name = core.remote_name(inode)
        made = True
        try:
            entry = await core.service.make_folder(inode.zone, parent.remote_id, name)
        except AlreadyExists:
            found = await self._folder_named(parent, name)
            if found is None:
                raise
            entry, made = found, False
        with core.transaction():
            core.claim(inode, entry.id)
            core.tree.update(
                inode,
                remote_id=entry.id,
                remote_parent=parent.remote_id,
                remote_name=entry.name or name,
                revision=entry.revision,
                modified_by=entry.modified_by,
                listed=made,
            )
            core.tree.settle(inode.zone, entry.id)
            core.journal.done(intent, place=True)
            if core.journal.get(inode.ino) is None and inode.parent == NOWHERE:
                core.journal.gone(inode.ino, core.due())
        if made:
            self._folders.known_empty(inode)

    async def _folder_named(self, parent: Inode, name: str) -> Entry | None:
        """A folder the service has already: a lost reply, or somebody was faster."""
        entries = await self._core.service.listing(parent.zone, parent.remote_id or "")
        return next((each for each in entries if each.folder and each.name == name), None)

    async def move(self, intent: Intent, inode: Inode) -> None:
        """Rename, or move to another folder."""
        core = self._core
        parent = core.tree.get(inode.parent)
        if parent.remote_id is None:
            raise StoreError("its folder is not on the service yet")
        name = core.remote_name(inode)
        try:
            entry = await core.service.move(
                inode.zone, inode.remote_id or "", parent.remote_id, name
            )
        except NotFound:
            self._folders.forget(inode.parent)
            if intent.generation:
                self._conflicts.make_anew(intent, inode)
            else:
                with core.transaction():
                    core.journal.done(intent, place=True)
            return
        with core.transaction():
            self._moved(inode, parent.remote_id, entry, name)
            core.journal.done(intent, place=True)

    async def step_aside(self, intent: Intent, inode: Inode) -> None:
        """Leave the name to another; the move to the final one follows."""
        core = self._core
        above = inode.remote_parent or ""
        folder = core.tree.by_remote(inode.zone, above)
        if folder is None or core.journal.get(folder.ino) is not None:
            zone = next(each for each in core.tree.inodes_in(ROOT) if each.zone == inode.zone)
            above = zone.remote_id or ""
        name = f".zonedrive-{inode.ino}-{intent.seq}"
        entry = await core.service.move(inode.zone, inode.remote_id or "", above, name)
        with core.transaction():
            self._moved(inode, above, entry, name)

    def _moved(self, inode: Inode, above: str, entry: Entry, name: str) -> None:
        core = self._core
        core.tree.settle(inode.zone, entry.id)
        core.tree.update(inode, remote_parent=above, remote_name=entry.name or name)
        edited = core.journal.get(inode.ino)
        if inode.revision != entry.revision and inode.size == entry.size:
            if edited is not None and edited.generation:
                return  # the verdict before the upload compares
            # A move may count as a modification; the bytes are the same.
            core.tree.update(inode, revision=entry.revision)

    async def delete(self, intent: Intent, inode: Inode) -> None:
        """Delete what was removed here."""
        core = self._core
        if inode.is_folder and await self._others_in(inode):
            raise Rejected("others have put something into the folder", code="NOT_EMPTY")
        if not inode.is_folder and await self._changed_by_others(inode):
            log.warning("a file that was deleted here has a new version by somebody else: it stays")
            with core.transaction():
                core.tree.unlink(inode)
                core.journal.drop(inode.ino)
            self._folders.forget_all()
            return
        with contextlib.suppress(NotFound):
            await core.service.delete(inode.zone, inode.remote_id or "")
        core.tree.settle(inode.zone, inode.remote_id or "")
        with core.transaction():
            core.tree.unlink(inode)
            core.journal.drop(inode.ino)
        core.discard_bytes(inode, intent)
        core.reap(inode)

    async def _changed_by_others(self, inode: Inode) -> bool:
        """Whether the service has a version that was not seen here when it was deleted."""
        try:
            entry = await self._core.service.entry(inode.zone, inode.remote_id or "")
        except NotFound:
            return False
        return entry.revision != inode.revision and entry.modified_by != self._core.user

    async def _others_in(self, folder: Inode) -> bool:
        """Whether the service has something in the folder that was not removed here."""
        try:
            entries = await self._core.service.listing(folder.zone, folder.remote_id or "")
        except NotFound:
            return False
        return any(not entry.deleted for entry in entries)
