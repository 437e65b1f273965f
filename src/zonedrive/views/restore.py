"""Link between the mount and the service's trash: sends deletions, shows restored entries.

Knows nothing about how the trash is listed.

INVARIANT: a restored entry replaces no local entry, uploaded or not.
"""

import time

import trio

from zonedrive.errors import AlreadyExists
from zonedrive.model import Entry
from zonedrive.remote.service import Service
from zonedrive.state.inode import NOWHERE
from zonedrive.state.local_state import LocalState
from zonedrive.state.names import local_name
from zonedrive.sync.directory_cache import DirectoryCache
from zonedrive.sync.dispatcher import Dispatcher

PATIENCE_S = 10.0  # seconds to wait for deletions to reach the service


class TrashCommands:
    """Mount's part of `zonedrive trash` and `restore`."""

    def __init__(
        self, state: LocalState, service: Service, folders: DirectoryCache, dispatcher: Dispatcher
    ) -> None:
        self._state = state
        self._service = service
        self._folders = folders
        self._dispatcher = dispatcher

    async def told(self) -> None:
        """Send the pending deletions to the service now; wait at most PATIENCE_S seconds for it."""
        state = self._state

        def waiting() -> list[int]:
            now = time.time_ns()
            return [
                intent.ino
                for intent in state.intents.leaving()
                if intent.ino in self._dispatcher.running
                or (intent.gone and not (intent.failed and intent.due_ns > now))
            ]

        self._dispatcher.expedite(intent.ino for intent in state.intents.leaving() if intent.gone)
        with self._dispatcher.waited_for(), trio.move_on_after(PATIENCE_S):
            await self._dispatcher.wait_until(
                lambda: not waiting() or self._service.link.state != "online"
            )

    def require_vacant(self, entry: Entry) -> None:
        """Raise AlreadyExists if a local entry has the entry's name, as the service would.

        Otherwise an entry that is not on the service yet would be renamed.
        """
        tree = self._state.inodes
        folder = tree.by_remote(entry.zone_id, entry.parent_id)
        if folder is None:
            return
        there = tree.child(folder.ino, local_name(entry.name, entry.id, ()))
        if there is not None and there.remote_id != entry.id:
            raise AlreadyExists("restoring: the name is taken")

    def folder(self, zone_id: str, entry_id: str) -> Entry | None:
        """Return the last known state of a remote folder, or None if it is unknown."""
        inode = self._state.inodes.by_remote(zone_id, entry_id)
        if inode is None or inode.remote_parent is None or inode.remote_name is None:
            return None
        return Entry(entry_id, zone_id, inode.remote_parent, inode.remote_name, folder=True)

    async def appear(self, entry: Entry) -> str:
        """Show an entry that was restored on the service, at once.

        Return its path in the mount, or only its name if its folder was never listed.  Raises the
        service's error.
        """
        tree = self._state.inodes
        folder = tree.by_remote(entry.zone_id, entry.parent_id)
        if folder is None or not folder.listed:
            return entry.name
        await self._folders.refresh(folder, time.monotonic_ns())
        inode = tree.by_remote(entry.zone_id, entry.id)
        return entry.name if inode is None or inode.parent == NOWHERE else tree.path(inode.ino)
