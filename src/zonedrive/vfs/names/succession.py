"""Who takes over the history of a file that leaves its name: when the heir is on the service, too.

A new file at such a name takes it over by itself (`outbox.fold`).  A temporary file that was
uploaded before its program renamed it first has to become new again: its own entry is deleted, and
its bytes are the former file's next version.

That is done for one that was removed, or is a backup that others do not see; not for one that was
just renamed: then both go on with histories of their own.
"""

from zonedrive.model import Revision
from zonedrive.remote.service import Service
from zonedrive.tree.inode import Inode
from zonedrive.vfs.core import Core
from zonedrive.vfs.listings import identity
from zonedrive.vfs.materialize import materialize


class Succession:
    """Heirs, and what they take over."""

    def __init__(self, core: Core, service: Service) -> None:
        self._core = core
        self._service = service

    def former(self, folder: Inode, name: str) -> Inode | None:
        """The file that the service still has there, though it is removed or parked here."""
        for intent in self._core.journal.leaving():
            if intent.final or not (intent.gone or intent.parked):
                continue
            inode = self._core.tree.find(intent.ino)
            if inode is None or inode.is_folder or inode.remote_name != name:
                continue
            if (inode.zone, inode.remote_parent) == (folder.zone, folder.remote_id):
                return inode
        return None

    def heir(self, inode: Inode) -> Inode | None:
        """The file that was moved to where the service still has the inode."""
        core = self._core
        folder = core.tree.by_remote(inode.zone, inode.remote_parent or "")
        heir = core.tree.child(folder.ino, inode.remote_name or "") if folder else None
        if heir is None or heir is inode or heir.is_folder or heir.is_new:
            return None
        intent = core.journal.get(heir.ino)
        return heir if intent is not None and intent.place else None

    async def bring_bytes(self, heir: Inode | None, former: Inode | None) -> None:
        """Have the bytes of a file of the service as a generation of ours, if they are here."""
        if heir is None or former is None or former is heir or former.is_new:
            return
        if heir.is_new or heir.is_folder or heir.generation:
            return
        if self._core.cache.is_complete(heir.ino, heir.revision):
            await materialize(self._core, self._service, heir)

    def succeed(self, heir: Inode) -> None:
        """Become new, if the bytes are here, so that the identity can be taken over.

        In a transaction.
        """
        core = self._core
        if heir.is_new:
            identity.disown(core, heir)
        elif heir.generation:
            identity.give_up(core, heir, core.due_for_names())
            self.send_content(heir, None)

    def send_content(self, inode: Inode, base: Revision | None) -> None:
        """The bytes that are here are to follow the version `base`.  In a transaction."""
        core = self._core
        opened = core.opened.get(inode.ino)
        core.journal.content(
            inode.ino,
            inode.generation,
            inode.size,
            base=base,
            held=opened is not None and opened.session is not None,
            due_ns=core.due(),
        )
        core.journal.rebase(inode.ino, base)
