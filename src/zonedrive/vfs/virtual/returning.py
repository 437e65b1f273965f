"""What a mount has to do with the service's trash: it tells of deletions, and shows what returns.

Must not know how the trash is listed.

INVARIANT: what comes back pushes nothing aside that is here, sent or not.
"""

import time

import trio

from zonedrive.errors import AlreadyExists
from zonedrive.model import Entry
from zonedrive.outbox.dispatch import Dispatcher
from zonedrive.remote.service import Service
from zonedrive.tree.inode import NOWHERE
from zonedrive.tree.names import local_name
from zonedrive.vfs.core import Core
from zonedrive.vfs.listings.folders import Folders

PATIENCE_S = 10.0  # for deletions that the service is to hear of first


class Returning:
    """The mount's side of `zonedrive trash` and `restore`."""

    def __init__(
        self, core: Core, service: Service, folders: Folders, dispatcher: Dispatcher
    ) -> None:
        self._core = core
        self._service = service
        self._folders = folders
        self._dispatcher = dispatcher

    async def told(self) -> None:
        """Have the service hear now of what was deleted here, as far as it can and takes it."""
        core = self._core

        def waiting() -> list[int]:
            now = time.time_ns()
            return [
                intent.ino
                for intent in core.journal.leaving()
                if intent.ino in self._dispatcher.running
                or (intent.gone and not (intent.failed and intent.due_ns > now))
            ]

        self._dispatcher.hurry(intent.ino for intent in core.journal.leaving() if intent.gone)
        with self._dispatcher.waited_for(), trio.move_on_after(PATIENCE_S):
            await self._dispatcher.wait_until(
                lambda: not waiting() or self._service.link.state != "online"
            )

    def require_vacant(self, entry: Entry) -> None:
        """Raise AlreadyExists where something here has the entry's name, as the service would.

        Something that the service does not know yet would have to give way otherwise.
        """
        tree = self._core.tree
        folder = tree.by_remote(entry.zone_id, entry.parent_id)
        if folder is None:
            return
        there = tree.child(folder.ino, local_name(entry.name, entry.id, ()))
        if there is not None and there.remote_id != entry.id:
            raise AlreadyExists("restoring: the name is taken")

    def folder(self, zone_id: str, entry_id: str) -> Entry | None:
        """A folder of the service as it was heard of last, None where it never was."""
        inode = self._core.tree.by_remote(zone_id, entry_id)
        if inode is None or inode.remote_parent is None or inode.remote_name is None:
            return None
        return Entry(entry_id, zone_id, inode.remote_parent, inode.remote_name, folder=True)

    async def appear(self, entry: Entry) -> str:
        """Show an entry that came back on the service, at once.

        Gives its path in the mount, or only its name where its folder was never listed.  Raises
        the service's error.
        """
        tree = self._core.tree
        folder = tree.by_remote(entry.zone_id, entry.parent_id)
        if folder is None or not folder.listed:
            return entry.name
        await self._folders.refresh(folder, time.monotonic_ns())
        inode = tree.by_remote(entry.zone_id, entry.id)
        return entry.name if inode is None or inode.parent == NOWHERE else tree.path(inode.ino)
