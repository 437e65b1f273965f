"""Executor of the outbox, which performs the steps and records their success."""

import time
from contextlib import closing, suppress

import trio

from zonedrive.causes import Cause, cause_of
from zonedrive.errors import Forbidden, NotFound, Rejected, StoreError
from zonedrive.remote.service import Service
from zonedrive.snapshot import Snapshot
from zonedrive.state import conflicts, remote_binding
from zonedrive.state.inode import ROOT, Inode
from zonedrive.state.local_state import LocalState
from zonedrive.sync.compare import current_entry, require_deletion
from zonedrive.sync.directory_cache import DirectoryCache
from zonedrive.sync.materialize import materialize
from zonedrive.sync.planner import Action, Step
from zonedrive.sync.reconcile import Reconciler
from zonedrive.sync.remote_namespace import RemoteNamespace
from zonedrive.sync.upload import Uploader

MISTAKEN = (Cause.REFUSED, Cause.CHANGED, Cause.UNCLEAR)
"""Causes of failures after which the known remote state may be wrong."""


class Executor:
    """Client that performs the steps of the outbox on the service."""

    def __init__(self, state: LocalState, service: Service, folders: DirectoryCache) -> None:
        self._state = state
        self._service = service
        self._folders = folders
        # Inodes whose last step failed, perhaps because the known remote state is wrong.
        self._mistaken: set[int] = set()
        self._reconciler = Reconciler(state, service, folders)
        self._names = RemoteNamespace(state, service, folders, self._reconciler)
        self.uploads = Uploader(state, service, folders, self._reconciler)

    async def ready(self) -> bool:
        """Wait until the service can be reached; return True if a wait was necessary."""
        link = self._service.link
        if link.state == "online":
            return False
        await link.wait_online()
        return True

    async def carry(self, step: Step) -> None:
        """Perform one step, or return early if the step must be planned again.

        First determine the outcome of the pending requests that affect the step. If the last
        attempt failed, perhaps because the known remote state is wrong, only fetch the remote state
        again. Raises Stale if the step is outdated, and the error of the step.
        """
        inode = self._state.inodes.find(step.ino)
        if inode is None or self._state.intents.get(step.ino) is None:
            return
        for ino in (step.other, step.ino, *self._perhaps_at(inode)):
            if ino and await self._reconciler.settle(ino):
                return  # the next step is planned again
        if step.ino in self._mistaken:
            await self._refresh_remote_state(step)
            self._mistaken.discard(step.ino)
            return  # the next step is planned again
        try:
            await self._do(step, inode)
        except Exception as wrong:
            if cause_of(wrong) in MISTAKEN:
                self._mistaken.add(step.ino)
            raise

    async def _refresh_remote_state(self, step: Step) -> None:
        """Fetch the remote state again, because the last attempt may have used a stale state.

        A rejection by the service is ignored here, because the next attempt of the step reports the
        rejection with a better message.
        """
        state = self._state
        for inode in state.inodes.get_all({step.ino, step.other} - {0}):
            if inode.remote_id is not None and not inode.is_folder:
                place = self._folders.following.place(inode)
                with suppress(NotFound, Forbidden, Rejected):
                    found = await self._service.entry(inode.zone, inode.remote_id)
                    await self._folders.following.follow(inode, found, place)
            for folder in (
                state.inodes.find(inode.parent),
                state.inodes.by_remote(inode.zone, inode.remote_parent or ""),
            ):
                if folder is not None and folder.ino != ROOT:
                    with suppress(NotFound, Forbidden, Rejected):
                        await self._folders.refresh(folder, time.monotonic_ns())

    async def _do(self, step: Step, inode: Inode) -> None:
        match step.action:
            case Action.ADOPT:
                await self._adopt(step, inode)
            case Action.WITHDRAW:
                await self._withdraw(step, inode)
            case Action.MAKE:
                await self._names.make(step.intent, inode)
            case Action.MOVE | Action.ASIDE:
                await self._names.move(step.intent, inode, aside=step.action is Action.ASIDE)
            case Action.UPLOAD:
                await self._sync_copies(step, inode)
                await self.uploads.upload(step.intent, inode)
            case Action.DELETE:
                await self._sync_copies(step, inode)
                await self._names.delete(step.intent, inode)

    async def _sync_copies(self, step: Step, inode: Inode) -> None:
        """Flush to disk the local copies of content that the service is about to replace or delete.

        The copies may belong to other files. Without the sync, a power cut could undo the local
        records of the copies, but not the change on the service. Raises OSError, and Stale if the
        step is outdated.
        """
        state, spool, entry_id = self._state, self._state.spool, inode.remote_id or ""
        if not (copies := state.unsynced_copies.pop(entry_id, [])):
            return
        planned = state.intents.snapshot(step.intent)
        try:
            for ino, generation in copies:
                with (
                    suppress(FileNotFoundError, StoreError),
                    closing(spool.open(ino, generation)) as file,
                ):
                    state.durable.add((ino, generation))
                    await trio.to_thread.run_sync(file.sync)
            await trio.to_thread.run_sync(state.database.flush)
        except BaseException:
            state.unsynced_copies.setdefault(entry_id, []).extend(copies)
            raise
        planned.require()

    def _perhaps_at(self, inode: Inode) -> list[int]:
        """Return the other inodes that an unanswered move may have moved to this inode's place."""
        state = self._state
        folder = state.inodes.find(inode.parent)
        if folder is None or folder.remote_id is None:
            return []
        moves = state.requests.moved_to(folder.remote_id, state.remote_name(inode))
        return [each.ino for each in moves if each.ino != inode.ino]

    async def _withdraw(self, step: Step, parked: Inode) -> None:
        """Make a parked file local-only, because the file cannot keep its remote entry.

        A later step deletes the entry, unless a coworker has moved it. See `planner`.
        """
        state, planned = self._state, self._state.intents.snapshot(step.intent)
        base = step.intent.base or parked.revision
        if not parked.generation:
            try:
                await materialize(state, self._service, parked)
            except NotFound as missing:
                await require_deletion(self._service, parked.zone, missing)
                self._accept_deletion(parked)
                return
        if planned.is_current and parked.ino in state.moved_entries:
            remote_binding.release(state, parked)
            self._folders.forget()  # a listing shows the entry at its new place
        elif planned.is_current:
            remote_binding.withdraw(state, parked, base)
        else:
            state.revert_to_remote(parked)

    def _accept_deletion(self, inode: Inode) -> None:
        """Apply the service's deletion of an entry locally; turn an edited file into a new file."""
        intent = self._state.intents.get(inode.ino)
        if intent is not None:
            conflicts.accept_deletion(self._state, intent, inode)

    async def _adopt(self, step: Step, new: Inode) -> None:
        """Give the new file the remote entry of a file that was removed or renamed locally."""
        state = self._state
        old = state.inodes.find(step.other)
        old_intent = state.intents.get(step.other)
        if old is None or old_intent is None or old.is_new:
            return
        planned = Snapshot[object].of(
            (old_intent, step.intent),
            lambda: (state.intents.get(step.other), state.intents.get(new.ino)),
        )
        stays = not old_intent.gone
        opened = state.opened.get(old.ino)
        # Open handles continue to read the old content.
        read_on = opened is not None and opened.session is None
        base = old_intent.base or old.revision
        try:
            if (stays or read_on) and not old.generation:
                await materialize(state, self._service, old)
            there = stays or bool(await current_entry(self._service, old.zone, old.entry_id))
        except NotFound as missing:
            await require_deletion(self._service, old.zone, missing)
            there = False
        if not planned.is_current:
            state.revert_to_remote(old)
        elif there:
            remote_binding.hand_over(state, old, old_intent, new, base)
        else:  # deleted by a coworker, or by an unanswered request: the new file stays new
            self._accept_deletion(old)
