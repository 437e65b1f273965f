"""Names: looking them up, and making, moving and removing them.

A change takes effect here at once and becomes an intent in the same transaction.  What the
deployment's profile cannot do on the service is refused at once with EPERM and changes nothing;
what never was on the service can always be changed.
"""

import errno
import time
from collections.abc import Iterator

from zonedrive.errors import NotSupported
from zonedrive.tree.inode import NOWHERE, ROOT, Inode, Kind
from zonedrive.vfs.attributes import Attr
from zonedrive.vfs.core import Core
from zonedrive.vfs.files import Files
from zonedrive.vfs.folders import Folders
from zonedrive.vfs.open_file import Opened

NOREPLACE, EXCHANGE = 1, 2


class Namespace:
    """The verbs on names."""

    def __init__(self, core: Core, folders: Folders, files: Files) -> None:
        self._core = core
        self._folders = folders
        self._files = files
        self._listings: dict[int, list[tuple[str, int]]] = {}  # by handle
        self._folder_of: dict[int, int] = {}
        self._next_handle = 1

    # ---- finding ----

    async def folder(self, ino: int) -> Inode:
        """A folder with its listing known.  Raises NotADirectoryError, FileNotFoundError."""
        inode = self._core.tree.get(ino)
        if not inode.is_folder:
            raise NotADirectoryError(errno.ENOTDIR, "not a folder")
        if inode.parent == NOWHERE:
            raise FileNotFoundError(errno.ENOENT, "the folder has been removed")
        await self._folders.ensure(inode)
        return inode

    async def lookup(self, parent: int, name: bytes) -> Attr:
        """The entry of that name; the kernel holds it once more.  Raises FileNotFoundError."""
        core = self._core
        wanted = core.checked_name(name)
        folder = await self.folder(parent)
        inode = core.tree.child(folder.ino, wanted)
        if inode is None:
            raise FileNotFoundError(errno.ENOENT, "no such entry")
        core.tree.remember(inode.ino)
        return self.attr(inode)

    def attr(self, inode: Inode) -> Attr:
        """The stat fields, with how long the kernel may keep them."""
        return self._core.attr(inode, self._folders.trusted_for(inode.parent))

    async def getattr(self, ino: int) -> Attr:
        """The stat fields, fresh."""
        core = self._core
        inode = core.tree.get(ino)
        if inode.ino != ROOT and inode.parent != NOWHERE and not core.local(ino):
            await self._folders.ensure(core.tree.get(inode.parent))
        return self.attr(inode)

    # ---- listing ----

    async def opendir(self, ino: int) -> int:
        """A handle on the names the folder has now: they stay those while it is read."""
        folder = await self.folder(ino)
        handle, self._next_handle = self._next_handle, self._next_handle + 1
        self._listings[handle] = [
            (".", folder.ino),
            ("..", folder.parent),
            *self._core.tree.children(folder.ino).items(),
        ]
        self._folder_of[handle] = folder.ino
        return handle

    def readdir(self, handle: int, start: int) -> Iterator[tuple[bytes, Attr, int]]:
        """(name, stat fields, where to go on) from the entry number `start` on."""
        tree, core = self._core.tree, self._core
        timeout = self._folders.trusted_for(self._folder_of[handle])
        names = self._listings[handle]
        for number in range(start, len(names)):
            name, ino = names[number]
            inode = tree.find(ino)
            if inode is not None and inode.parent != NOWHERE:
                yield name.encode(), core.attr(inode, timeout), number + 1

    def releasedir(self, handle: int) -> None:
        """The handle is closed."""
        self._listings.pop(handle, None)
        self._folder_of.pop(handle, None)

    # ---- making ----

    async def create(self, parent: int, name: bytes, mode: int, flags: int) -> tuple[Opened, Attr]:
        """A new empty file, open for writing."""
        core = self._core
        folder, wanted = await self._free_place(parent, name)
        with core.transaction():
            inode = core.tree.add(
                folder.ino,
                wanted,
                Kind.FILE,
                zone=folder.zone,
                mode=mode & 0o700 if mode & 0o100 else None,
                local=core.stays_local(folder, wanted),
            )
            self._touch(folder)
        try:
            opened = self._files.create(inode, flags)
        except OSError:
            with core.transaction():
                core.tree.unlink(inode)
            raise
        core.tree.remember(inode.ino)
        return opened, self.attr(inode)

    async def mkdir(self, parent: int, name: bytes, mode: int) -> Attr:
        """A new folder."""
        core = self._core
        folder, wanted = await self._free_place(parent, name)
        local = core.stays_local(folder, wanted)
        if not local and not core.service.can("make_folder"):
            raise NotSupported("the deployment's profile cannot make folders")
        with core.transaction():
            inode = core.tree.add(
                folder.ino, wanted, Kind.FOLDER, zone=folder.zone, local=local, listed=True
            )
            self._touch(folder)
            if not local:
                core.journal.place(inode.ino, core.due())
        core.tree.remember(inode.ino)
        return self.attr(inode)

    # ---- removing ----

    async def unlink(self, parent: int, name: bytes) -> None:
        """Remove a file."""
        core = self._core
        folder = await self.folder(parent)
        inode = self._named(folder, core.checked_name(name))
        if inode.is_folder:
            raise IsADirectoryError(errno.EISDIR, "is a folder")
        self._require_removable(inode)
        with core.transaction():
            self._remove(inode)
            self._touch(folder)
        core.reap(inode)

    async def rmdir(self, parent: int, name: bytes) -> None:
        """Remove an empty folder."""
        core = self._core
        folder = await self.folder(parent)
        inode = self._named(folder, core.checked_name(name))
        if not inode.is_folder:
            raise NotADirectoryError(errno.ENOTDIR, "not a folder")
        if inode.kind is Kind.ZONE:
            raise PermissionError(errno.EPERM, "a zone cannot be removed here")
        self._require_removable(inode)
        await self._require_empty(inode)
        with core.transaction():
            self._remove(inode)
            self._touch(folder)
        core.reap(inode)

    def _remove(self, inode: Inode) -> None:
        """Take the name away; what the service has is deleted there later."""
        core = self._core
        intent = core.journal.get(inode.ino)
        core.journal.drop_conflict(inode.ino)
        if inode.is_new:
            core.tree.unlink(inode)
            core.journal.drop(inode.ino)
        else:
            core.tree.unlink(inode, tombstone=True)
            core.journal.gone(inode.ino, core.due())
            if self._files.is_open(inode.ino):
                core.journal.hold(inode.ino, True, core.due())
        if intent is not None and intent.generation and not self._files.is_open(inode.ino):
            core.discard_bytes(inode, intent)
            core.tree.update(inode, generation=0)

    # ---- renaming ----

    async def rename(
        self, old_parent: int, old_name: bytes, new_parent: int, new_name: bytes, flags: int
    ) -> None:
        """rename(2) and renameat2(2) with RENAME_NOREPLACE or RENAME_EXCHANGE."""
        core = self._core
        if flags & ~(NOREPLACE | EXCHANGE):
            raise OSError(errno.EINVAL, "flags that are not supported")
        source, wanted = core.checked_name(old_name), core.checked_name(new_name)
        old_folder = await self.folder(old_parent)
        new_folder = await self.folder(new_parent)
        inode = self._named(old_folder, source)
        target = core.tree.child(new_folder.ino, wanted)
        if flags & NOREPLACE and target is not None:
            raise FileExistsError(errno.EEXIST, "the name is taken")
        if flags & EXCHANGE:
            if target is None:
                raise FileNotFoundError(errno.ENOENT, "nothing to exchange with")
            self._require_movable(inode, new_folder)
            self._require_movable(target, old_folder)
            self._exchange(inode, target)
        elif target is not inode:
            self._require_movable(inode, new_folder)
            if target is not None:
                await self._require_replaceable(inode, target)
            with core.transaction():
                if target is not None:
                    self._replace(inode, target)
                self._place(inode, new_folder, wanted)
                self._touch(old_folder)
                self._touch(new_folder)
            if target is not None:
                core.reap(target)

    def _exchange(self, inode: Inode, target: Inode) -> None:
        core = self._core
        here, there = (inode.parent, inode.name), (target.parent, target.name)
        with core.transaction():
            core.tree.move(inode, inode.parent, f"/{inode.ino}")  # a name nobody can have
            self._place(target, core.tree.get(here[0]), here[1])
            self._place(inode, core.tree.get(there[0]), there[1])

    def _replace(self, inode: Inode, target: Inode) -> None:
        """Make way at the target's name; a new file becomes the target's next version."""
        core = self._core
        opened = core.opened.get(inode.ino)
        intent = core.journal.get(target.ino)
        takes_over = (
            inode.is_new and not inode.is_folder and not target.is_new and not target.is_folder
        )
        if not takes_over:
            self._remove(target)
            return
        identity = {
            "remote_id": target.remote_id,
            "remote_parent": target.remote_parent,
            "remote_name": target.remote_name,
            "revision": target.revision,
            "modified_by": target.modified_by,
            "type": target.type,
            "sync": target.sync,
            "attributes": target.attributes,
        }
        base = intent.base if intent is not None and intent.generation else target.revision
        moved = intent is not None and intent.place
        if intent is not None:
            core.journal.drop(target.ino)
            if not self._files.is_open(target.ino):
                core.discard_bytes(target, intent)
                core.tree.update(target, generation=0)
        core.tree.unlink(target)
        core.tree.update(inode, **identity)
        if opened is not None and opened.session is not None:
            opened.session.base = base
        if inode.generation:
            core.journal.content(
                inode.ino,
                inode.generation,
                inode.size,
                base=base,
                held=opened is not None and opened.session is not None,
                due_ns=core.due(),
            )
            core.journal.rebase(inode.ino, base)
        if moved:
            core.journal.place(inode.ino, core.due())

    def _place(self, inode: Inode, folder: Inode, name: str) -> None:
        """Move, and note what the service must hear of it."""
        core = self._core
        was_local = inode.local
        local = core.stays_local(folder, name) and inode.is_new
        core.tree.move(inode, folder.ino, name)
        core.tree.update(inode, local=local, ctime_ns=time.time_ns())
        if not inode.is_new:
            above = folder.remote_id
            if above == inode.remote_parent and core.remote_name(inode) == inode.remote_name:
                intent = core.journal.get(inode.ino)
                if intent is not None and intent.place:  # back where the service has it
                    core.journal.done(intent, place=True)
            else:
                core.journal.place(inode.ino, core.due())
        elif local and not was_local:
            core.journal.drop(inode.ino)
            for child in core.tree.below(inode.ino):
                core.tree.update(child, local=True)
                core.journal.drop(child.ino)
        elif was_local and not local:
            for child in core.tree.below(inode.ino):
                self._publish(child)

    def _publish(self, inode: Inode) -> None:
        """What was local until now goes to the service after all."""
        core = self._core
        core.tree.update(inode, local=False)
        if inode.is_folder:
            core.journal.place(inode.ino, core.due())
        elif inode.generation:
            opened = core.opened.get(inode.ino)
            core.journal.content(
                inode.ino,
                inode.generation,
                inode.size,
                base=None,
                held=opened is not None and opened.session is not None,
                due_ns=core.due(),
            )

    # ---- refusals ----

    def _named(self, folder: Inode, name: str) -> Inode:
        inode = self._core.tree.child(folder.ino, name)
        if inode is None:
            raise FileNotFoundError(errno.ENOENT, "no such entry")
        return inode

    async def _free_place(self, parent: int, name: bytes) -> tuple[Inode, str]:
        core = self._core
        wanted = core.checked_name(name)
        folder = await self.folder(parent)
        if folder.ino == ROOT:
            raise PermissionError(errno.EPERM, "zones are made on the service, not here")
        if folder.attributes.write_protected:
            raise PermissionError(errno.EACCES, "write-protected on the service")
        if core.tree.child(folder.ino, wanted) is not None:
            raise FileExistsError(errno.EEXIST, "the name is taken")
        return folder, wanted

    def _require_removable(self, inode: Inode) -> None:
        if not inode.is_new and not self._core.service.can("delete"):
            raise NotSupported("the deployment's profile cannot delete")

    async def _require_empty(self, folder: Inode) -> None:
        await self._folders.ensure(folder)
        if self._core.tree.children(folder.ino):
            raise OSError(errno.ENOTEMPTY, "the folder is not empty")

    def _require_movable(self, inode: Inode, folder: Inode) -> None:
        if inode.kind is Kind.ZONE or folder.ino == ROOT:
            raise PermissionError(errno.EPERM, "zones stay where they are")
        if folder.zone != inode.zone or (inode.is_folder and folder.local != inode.local):
            # Programs then copy and delete, which is what it takes.
            raise OSError(errno.EXDEV, "zones are separate compartments")
        if not inode.is_new and not self._core.service.can("move"):
            raise NotSupported("the deployment's profile cannot rename or move")
        above = folder
        while inode.is_folder and above.ino != ROOT:
            if above.ino == inode.ino:
                raise OSError(errno.EINVAL, "a folder cannot be moved into itself")
            above = self._core.tree.get(above.parent)

    async def _require_replaceable(self, inode: Inode, target: Inode) -> None:
        if target.is_folder:
            if not inode.is_folder:
                raise IsADirectoryError(errno.EISDIR, "the target is a folder")
            self._require_removable(target)
            await self._require_empty(target)
        elif inode.is_folder:
            raise NotADirectoryError(errno.ENOTDIR, "the target is not a folder")
        elif not inode.is_new or target.is_new:
            self._require_removable(target)
        if target.attributes.write_protected:
            raise PermissionError(errno.EACCES, "write-protected on the service")

    def _touch(self, folder: Inode) -> None:
        """A folder's times follow the names in it."""
        now = time.time_ns()
        self._core.tree.update(folder, mtime_ns=now, ctime_ns=now)
