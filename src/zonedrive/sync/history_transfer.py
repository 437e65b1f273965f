"""Transfer of a file's history to its successor when the successor is on the service, too.

A new file at the former name continues the history without this module (`sync.coalesce`).  A
temporary file that was uploaded before its program renamed it has to become new again: its own
entry is deleted, and its bytes become the former file's next version.

This is done if the former file was removed, or is a backup that coworkers do not see.  It is not
done after a plain rename: then both files continue with their own histories.
"""

from zonedrive.model import Revision
from zonedrive.remote.service import Service
from zonedrive.state.inode import Inode
from zonedrive.state.local_state import LocalState
from zonedrive.sync import remote_binding
from zonedrive.sync.materialize import materialize


class HistoryTransfer:
    """Transfer of a file's history to its successor."""

    def __init__(self, state: LocalState, service: Service) -> None:
        self._state = state
        self._service = service

    def former(self, folder: Inode, name: str) -> Inode | None:
        """Return the file that has this name on the service, but was removed or parked locally."""
        for intent in self._state.intents.leaving():
            if intent.final or not (intent.gone or intent.parked):
                continue
            inode = self._state.inodes.find(intent.ino)
            if inode is None or inode.is_folder or inode.remote_name != name:
                continue
            if (inode.zone, inode.remote_parent) == (folder.zone, folder.remote_id):
                return inode
        return None

    def heir(self, inode: Inode) -> Inode | None:
        """Return the file that was moved to the place where the service still has the inode."""
        state = self._state
        folder = state.inodes.by_remote(inode.zone, inode.remote_parent or "")
        heir = state.inodes.child(folder.ino, inode.remote_name or "") if folder else None
        if heir is None or heir is inode or heir.is_folder or heir.is_new:
            return None
        intent = state.intents.get(heir.ino)
        return heir if intent is not None and intent.place else None

    async def bring_bytes(self, heir: Inode | None, former: Inode | None) -> None:
        """Copy the cached bytes of a remote file into a local generation."""
        if heir is None or former is None or former is heir or former.is_new:
            return
        if heir.is_new or heir.is_folder or heir.generation:
            return
        if self._state.cache.is_complete(heir.ino, heir.revision):
            await materialize(self._state, self._service, heir)

    def succeed(self, heir: Inode) -> None:
        """Turn the successor into a new file if its bytes are local.

        It can then take over the identity of the file that it replaces.

        The caller holds a transaction.
        """
        state = self._state
        if heir.is_new:
            remote_binding.orphan_pending_request(state, heir)
        elif heir.generation:
            remote_binding.detach_and_delete_remote(state, heir, state.due_for_names())
            self.send_content(heir, None)

    def send_content(self, inode: Inode, base: Revision | None) -> None:
        """Schedule the upload of the local bytes on top of version `base`.  In a transaction."""
        state = self._state
        opened = state.opened.get(inode.ino)
        state.intents.content(
            inode.ino,
            inode.generation,
            inode.size,
            base=base,
            held=opened is not None and opened.session is not None,
            due_ns=state.due(),
        )
        state.intents.set_base(inode.ino, base)
