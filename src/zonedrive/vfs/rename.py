"""Renaming: all forms of rename(2), and their effect on identity and history.

A renamed entry keeps its identity on the service.  A file that is renamed over another one becomes
its next version if the bytes are local: this is how programs save.
"""

import contextlib
import errno
import time
from collections.abc import Iterator

from zonedrive.errors import NotSupported
from zonedrive.failpoint import Place, reached
from zonedrive.remote.service import Service
from zonedrive.state.inode import ROOT, Inode, Kind
from zonedrive.state.local_state import LocalState
from zonedrive.sync import remote_binding
from zonedrive.sync.history_transfer import HistoryTransfer
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
        succession: HistoryTransfer,
    ) -> None:
        self._state = state
        self._service = service
        self._names = names
        self._files = files
        self._succession = succession

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
            self._exchange(inode, target)
        elif target is not inode:
            await self._names.cancel_upload(inode, "rename" if old_folder is new_folder else "move")
            self._require_movable(inode, new_folder, wanted)
            former = target or self._succession.former(new_folder, wanted)
            if target is not None:
                await self._require_replaceable(inode, target)
                with self._held_back(inode):
                    await self._files.keep_readable(target)
            await self._succession.bring_bytes(inode, former)
            if (inode.parent, inode.name) != (old_folder.ino, source) or target is not (
                state.inodes.child(new_folder.ino, wanted)
            ):
                state.revert_to_remote(inode)
                raise OSError(errno.EBUSY, "renamed by somebody else at the same time")
            with state.transaction():
                if not state.stays_local(new_folder, wanted):
                    state.intents.conflicts.drop(inode.ino)  # a user has handled the conflict
                if target is not None:
                    self._replace(inode, target)
                elif former not in (None, inode) and not inode.is_folder:
                    self._succession.succeed(inode)
                self._place(inode, new_folder, wanted)
                for each in {old_folder, new_folder}:
                    self._names.touch(each)
                reached(Place.RENAME_INSIDE)
            reached(Place.RENAMED)
            if target is not None:
                state.release_if_unreferenced(target)

    @contextlib.contextmanager
    def _held_back(self, inode: Inode) -> Iterator[None]:
        """Delay the upload of a new file while it is about to lose its current name."""
        journal = self._state.intents
        intent = journal.get(inode.ino)
        if intent is None or intent.held or not inode.is_new:
            yield
            return
        journal.withhold(inode.ino)
        try:
            yield
        finally:
            opened = self._state.opened.get(inode.ino)
            if opened is None or opened.session is None:
                journal.let_go(inode.ino, self._state.due())

    def _exchange(self, inode: Inode, target: Inode) -> None:
        state = self._state
        here, there = (inode.parent, inode.name), (target.parent, target.name)
        with state.transaction():
            state.inodes.move(inode, inode.parent, f"/{inode.ino}")  # a name that no entry can have
            self._place(target, state.inodes.get(here[0]), here[1])
            self._place(inode, state.inodes.get(there[0]), there[1])
        reached(Place.EXCHANGED)

    def _replace(self, inode: Inode, target: Inode) -> None:
        """Free the target's name; a new file becomes the target's next version."""
        state = self._state
        files = not inode.is_folder and not target.is_folder
        if files and inode.generation and not inode.is_new and not target.is_new:
            remote_binding.detach_and_delete_remote(state, inode, state.due_for_names())
        opened = state.opened.get(inode.ino)
        intent = state.intents.get(target.ino)
        takes_over = (
            inode.is_new and not inode.is_folder and not target.is_new and not target.is_folder
        )
        if not takes_over:
            self._names.remove(target)
            return
        taken = {
            "remote_id": target.remote_id,
            "remote_parent": target.remote_parent,
            "remote_name": target.remote_name,
            "revision": target.revision,
            "modified_by": target.modified_by,
            "type": target.type,
            "sync": target.sync,
            "attributes": target.attributes,
        }
        base = (intent.base if intent is not None else None) or target.revision
        moved = intent is not None and intent.place
        remote_binding.orphan_pending_request(state, inode)
        state.requests.pass_on(target.ino, inode.ino)
        state.intents.conflicts.pass_on(target.ino, inode.ino)
        if intent is not None:
            state.intents.drop(target.ino)
            if not self._files.is_open(target.ino):
                state.discard_bytes(target, intent)
                state.inodes.update(target, generation=0)
        self._names.note_removal(target)
        state.inodes.unlink(target)
        state.inodes.update(inode, **taken)
        if opened is not None and opened.session is not None:
            opened.session.base = base
        if inode.generation:
            self._succession.send_content(inode, base)
        if moved:
            state.intents.place(inode.ino, state.due_for_names())

    def _place(self, inode: Inode, folder: Inode, name: str) -> None:
        """Move the inode and record what has to be sent to the service."""
        state = self._state
        was_local = inode.local
        local = state.stays_local(folder, name)
        state.inodes.move(inode, folder.ino, name, local=local, ctime_ns=time.time_ns())
        if not inode.is_new and local:
            state.intents.park(inode.ino, inode.revision)
        elif not inode.is_new:
            self._unpark(inode)
            self._note_place(inode, folder)
        elif inode.is_folder and not local and not was_local:
            self._note_place(inode, folder)
        elif local and not was_local:
            for child in state.inodes.below(inode.ino):
                state.inodes.update(child, local=True)
                if child.is_new:
                    remote_binding.orphan_pending_request(state, child)
                    state.intents.drop(child.ino)
                else:
                    state.intents.park(child.ino, child.revision)
        elif was_local and not local:
            for child in state.inodes.below(inode.ino):
                self._publish(child)
        elif inode.generation and state.intents.get(inode.ino) is not None:
            # A step that was planned for the former name must not run for the new one.
            self._succession.send_content(inode, None)

    def _unpark(self, inode: Inode) -> None:
        """Resume the upload of a parked file whose new name may be sent to the service."""
        state = self._state
        intent = state.intents.get(inode.ino)
        if intent is None or not intent.parked:
            return
        state.intents.place(inode.ino, state.due_for_names())
        if inode.generation:
            self._succession.send_content(inode, intent.base)

    def _note_place(self, inode: Inode, folder: Inode) -> None:
        """Record the new place for the service, unless the service has the inode there."""
        state = self._state
        intent = state.intents.get(inode.ino)
        back = (
            not inode.is_new
            and folder.remote_id == inode.remote_parent
            and state.remote_name(inode) == inode.remote_name
        )
        doubt = state.requests.get(inode.ino)
        asked = inode.ino in state.in_flight or (doubt is not None and doubt.is_move)
        if not back or asked:  # an earlier move may have succeeded
            if inode.is_new:
                state.intents.place(inode.ino, state.due())
            else:
                state.intents.place(inode.ino, state.due_for_names(), inode.revision)
        elif intent is not None and intent.place:
            state.intents.done(intent, place=True)

    def _publish(self, inode: Inode) -> None:
        """Upload entries that were local-only, unless their own names match `local_only`."""
        state = self._state
        if state.stays_local(state.inodes.get(inode.parent), inode.name):
            return
        state.inodes.update(inode, local=False)
        if not inode.is_new:
            self._unpark(inode)
        elif inode.is_folder:
            state.intents.place(inode.ino, state.due())
        elif inode.generation:
            self._succession.send_content(inode, None)

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
