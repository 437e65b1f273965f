"""Renaming: all forms of rename(2), and their effect on identity and history.

A renamed entry keeps its identity on the service.  A file that is renamed over another one becomes
its next version if the bytes are local: this is how programs save.
"""

import contextlib
import errno
from collections.abc import Iterator

from zonedrive.errors import NotSupported
from zonedrive.remote.service import Service
from zonedrive.snapshot import Snapshot
from zonedrive.state import local_operations
from zonedrive.state.inode import ROOT, Inode, Kind
from zonedrive.state.local_state import LocalState
from zonedrive.sync.materialize import bring_bytes
from zonedrive.vfs.files import Files
from zonedrive.vfs.namespace import Namespace, require_changeable, require_writable

NOREPLACE, EXCHANGE = 1, 2


class Rename:
    """The operation rename(2)."""

    def __init__(
        self,
        state: LocalState,
        service: Service,
        names: Namespace,
        files: Files,
    ) -> None:
        self._state = state
        self._service = service
        self._names = names
        self._files = files

    async def rename(
        self, old_parent: int, old_name: bytes, new_parent: int, new_name: bytes, flags: int
    ) -> None:
        """Rename as rename(2), or renameat2(2) with RENAME_NOREPLACE or RENAME_EXCHANGE."""
        state = self._state
        if flags & ~(NOREPLACE | EXCHANGE):
            raise OSError(errno.EINVAL, "flags that are not supported")
        source, wanted = state.checked_name(old_name), state.checked_name(new_name)
        old_folder = await self._names.folder(old_parent)
        new_folder = await self._names.folder(new_parent)
        state.require_folders(new_folder)
        inode = self._names.named(old_folder, source)
        target = state.inodes.child(new_folder.ino, wanted)
        names = Snapshot(
            lambda: (inode.parent, inode.name, state.inodes.child(new_folder.ino, wanted))
        )
        if flags & NOREPLACE and target is not None:
            raise FileExistsError(errno.EEXIST, "the name is taken")
        if flags & EXCHANGE and target is None:
            raise FileNotFoundError(errno.ENOENT, "nothing to exchange with")
        require_writable(old_folder, new_folder, inode, *([target] if target else []))
        require_changeable(state.rules, inode, *([target] if target else []))
        if flags & EXCHANGE:
            assert target is not None
            self._require_movable(inode, new_folder, wanted, aside=True)
            self._require_movable(target, old_folder, source, aside=True)
            local_operations.exchange(state, inode, target)
        elif target is not inode:
            await self._names.cancel_upload(inode, "rename" if old_folder is new_folder else "move")
            self._require_movable(inode, new_folder, wanted)
            former = target or local_operations.removed_at(state, new_folder, wanted)
            if target is not None:
                await self._require_replaceable(inode, target)
                with self._held_back(inode):
                    await self._files.keep_readable(target)
            await bring_bytes(state, self._service, inode, former)
            if not names.is_current:
                state.revert_to_remote(inode)
                raise OSError(errno.EBUSY, "renamed by somebody else at the same time")
            local_operations.rename(state, inode, new_folder, wanted, target)

    @contextlib.contextmanager
    def _held_back(self, inode: Inode) -> Iterator[None]:
        """Delay the upload of a new file while it is about to lose its current name."""
        journal = self._state.intents
        intent = journal.get(inode.ino)
        if intent is None or intent.held or not inode.is_new or inode.is_folder:
            yield
            return
        journal.withhold(inode.ino)
        try:
            yield
        finally:
            opened = self._state.opened.get(inode.ino)
            if opened is None or opened.session is None:
                journal.let_go(inode.ino, self._state.due())

    # ---- refusals ----

    def _require_movable(
        self, inode: Inode, folder: Inode, name: str, *, aside: bool = False
    ) -> None:
        """Raise an error if the move is impossible; `aside` means via a temporary name."""
        state = self._state
        if inode.kind is Kind.ZONE or folder.ino == ROOT:
            raise PermissionError(errno.EPERM, "zones stay where they are")
        # After EXDEV programs copy and delete, as needed here.
        if folder.zone != inode.zone:
            raise OSError(errno.EXDEV, "zones are separate compartments")
        stays = state.stays_local(folder, name)
        if inode.is_folder and stays and not inode.local:
            raise OSError(errno.EXDEV, "a name that stays on this machine")
        if not inode.is_new:
            renamed = aside or name != inode.name or state.remote_name(inode) != inode.remote_name
            moved = folder.remote_id != inode.remote_parent
            if not self._service.can_place(folder=inode.is_folder, renamed=renamed, moved=moved):
                raise NotSupported("the deployment's profile cannot rename or move this")
        if inode.is_folder and inode.is_new and not (stays or self._service.can("make_folder")):
            raise OSError(errno.EXDEV, "the deployment's profile cannot make folders")
        above = folder
        while inode.is_folder and above.ino != ROOT:
            if above.ino == inode.ino:
                raise OSError(errno.EINVAL, "a folder cannot be moved into itself")
            above = self._state.inodes.get(above.parent)

    async def _require_replaceable(self, inode: Inode, target: Inode) -> None:
        if target.is_folder:
            if not inode.is_folder:
                raise IsADirectoryError(errno.EISDIR, "the target is a folder")
            self._names.require_removable(target)
            await self._names.require_empty(target)
        elif inode.is_folder:
            raise NotADirectoryError(errno.ENOTDIR, "the target is not a folder")
        elif not inode.is_new or target.is_new:
            self._names.require_removable(target)
