"""Operations on the service's trash, for the trash folder of file managers and `zonedrive trash`.

Programs use unlink(2) and rmdir(2) for single entries and for many purposes. A deletion in this
module, in contrast, includes the content of a folder, is sent at once and can be undone. The
entries below a deleted folder keep their database rows until the service has deleted the folder, so
that these entries can be distinguished from entries that coworkers add in the meantime.

INVARIANT: only entries that are completely on the service are deleted; no local data is lost.
INVARIANT: a deleted entry keeps its identity and history, even if another entry takes its name.
INVARIANT: a restored entry replaces no local entry, uploaded or not.
"""

import errno
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass

import msgspec
import trio

from zonedrive.errors import AlreadyExists, NotFound, NotSupported, Rejected, ZonedriveError
from zonedrive.model import Entry
from zonedrive.remote.service import Service
from zonedrive.snapshot import Snapshot
from zonedrive.state import local_operations, remote_operations
from zonedrive.state.inode import NOWHERE, Inode, Kind
from zonedrive.state.invalidation import EntryChanged, InodeChanged
from zonedrive.state.local_state import LocalState
from zonedrive.state.names import local_name
from zonedrive.sync.compare import current_entry
from zonedrive.sync.directory_cache import DirectoryCache
from zonedrive.sync.dispatcher import Dispatcher
from zonedrive.sync.reconcile import MAY_HAVE_ARRIVED
from zonedrive.vfs.namespace import NOREPLACE, Namespace
from zonedrive.vfs.open_checks import require_changeable, require_unprotected

FOLDER_TRASHED = "its former folder is in the trash, too"
PATIENCE_S = 10.0  # seconds to wait for pending uploads or deletions


class TrashedEntry(msgspec.Struct, frozen=True):
    """Deleted entry, with its inode number, its name and its last known state on the service."""

    ino: int
    name: str  # in the mount
    entry: Entry  # on the service


@dataclass(eq=False)
class TrashOperations:
    """Operations that move entries to the service's trash and restore them."""

    _state: LocalState
    _service: Service
    _folders: DirectoryCache
    _dispatcher: Dispatcher
    _names: Namespace

    def is_undoable(self) -> bool:
        """Return True if the service can delete and restore entries."""
        return self._service.can("delete") and self._service.can("restore")

    async def delete(self, parent: int, name: str) -> TrashedEntry:
        """Delete the entry `name` of the folder `parent`, and everything in the entry.

        Raises PermissionError for a zone or a protected entry, and OSError in these cases:

        - EXDEV: the entry or anything below the entry exists only locally, or has a failed upload.
          Programs then offer to delete the entry permanently.
        - EBUSY: a program is writing to the entry or to a file below the entry.
        - EBUSY: a program has just renamed the entry.
        - EBUSY: an upload has just created a conflict copy of the entry or a file below the entry.
        - ENETUNREACH: an upload is pending, and the service is unreachable.
        - EBUSY: an upload is pending after PATIENCE_S seconds, or while uploads are paused.
        """
        names = self._names
        folder = await names.folder(parent)
        named = Snapshot(lambda: names.named(folder, name))
        inode = named.value
        if inode.kind is Kind.ZONE:
            raise PermissionError(errno.EPERM, "a zone cannot be removed here")
        require_unprotected(folder, inode)
        require_changeable(self._state.rules, inode)
        if inode.is_folder:
            await self._folders.ensure(inode)
        conflicts = Snapshot(lambda: self._conflicts(inode))
        await self._all_sent(inode)
        # Again, because a user may be allowed to add a file, but not to remove it from the service.
        require_unprotected(folder, inode)
        require_changeable(self._state.rules, inode)
        names.require_removable(inode)
        if not conflicts.is_current:
            raise OSError(errno.EBUSY, "a coworker has just saved it, or a file in it")
        if not named.is_current:
            raise OSError(errno.EBUSY, "another program has just renamed it")
        gone = TrashedEntry(inode.ino, inode.name, _entry(inode))
        if inode.is_folder:
            local_operations.remove_whole(self._state, inode)
        else:
            local_operations.remove(self._state, inode, final=True)
        self._dispatcher.expedite([inode.ino])
        return gone

    def _conflicts(self, inode: Inode) -> set[int]:
        """Return the conflict copies of the entry and of everything below it."""
        state = self._state
        return {
            copy
            for copy, original in state.intents.conflicts.originals()
            if (file := state.inodes.find(original)) and state.inodes.is_below(file, inode)
        }

    async def _all_sent(self, inode: Inode) -> None:
        """Wait up to PATIENCE_S seconds until the entry and everything below it is uploaded.

        Raises OSError as described in `delete`, at once if an upload has failed again.
        """
        self._dispatcher.expedite(each.ino for each in self._unsent(inode))
        await self._wait_while(lambda: self._unsent(inode) and not self._is_refused(inode))
        if self._is_refused(inode):
            raise OSError(
                errno.EXDEV,
                "the service refused a part of the entry, which is only on this computer",
            )
        if self._unsent(inode):
            if self._service.link.state != "online":
                raise OSError(errno.ENETUNREACH, "a part of the entry is not on the service yet")
            raise OSError(errno.EBUSY, "a part of the entry is not on the service yet")

    def _is_refused(self, inode: Inode) -> bool:
        """Return True if an upload of the entry or anything below it failed and is not running."""
        intents = [self._state.intents.get(each.ino) for each in self._unsent(inode)]
        return any(
            intent.failed
            and intent.due_ns > time.time_ns()
            and intent.ino not in self._dispatcher.running
            for intent in intents
            if intent is not None
        )

    def _unsent(self, inode: Inode) -> list[Inode]:
        """Return the inodes at or below the entry that must still be uploaded.

        Raises OSError as described in `delete`.
        """
        state = self._state
        suspects = {*state.inodes.without_origin(), *(each.ino for each in state.intents.all())}
        written = {ino for ino, opened in state.opened.items() if opened.writers}
        found = [
            each
            for each in state.inodes.get_all(suspects | written)
            if state.inodes.is_below(each, inode)
        ]
        unsent = [each for each in found if not state.is_kept(each)]
        if any(each.local for each in found) or (state.is_kept(inode) and not unsent):
            raise OSError(errno.EXDEV, "a part of the entry is only on this computer")
        if any(each.ino in written for each in found):
            raise OSError(errno.EBUSY, "a program has a part of the entry open for writing")
        return unsent

    def is_back(self, gone: TrashedEntry) -> bool:
        """Return True if the deleted entry exists in the tree again."""
        return self._present(gone.entry) is not None

    def _present(self, entry: Entry) -> Inode | None:
        inode = self._state.inodes.by_remote(entry.zone_id, entry.id)
        return inode if self._state.inodes.is_here(inode) else None

    async def bring_back(self, gone: TrashedEntry, parent: int, name: str) -> None:
        """Restore the entry `gone` on the service, and move it to the folder `parent` as `name`.

        The service restores the entry in its former place; if needed, the entry is then moved.
        Raises NotSupported if the service cannot restore, the service's errors, and OSError in
        these cases:

        - EEXIST: `name` or the former name is in use.
        - ENOENT: the former folder was deleted, too.
        - EXDEV: `parent` is in another zone.
        - ENETUNREACH or EBUSY: the service has not deleted the entry yet.
        - EBUSY: the former name was taken during the restore.
        """
        state, entry = self._state, gone.entry
        folder = await self._names.folder(parent)
        if (holder := state.inodes.child(folder.ino, name)) is not None:
            if holder is self._present(entry):
                return  # an earlier attempt has restored it, but its reply was lost
            raise FileExistsError(errno.EEXIST, "the name is taken")
        if folder.zone != entry.zone_id:
            raise OSError(errno.EXDEV, "an entry cannot move to another zone")
        if not self._service.can("restore", folder=entry.folder):
            raise NotSupported("the deployment's profile cannot restore")
        above = state.inodes.by_remote(entry.zone_id, entry.parent_id)
        if above is not None and not state.inodes.is_here(above):
            raise FileNotFoundError(errno.ENOENT, FOLDER_TRASHED)
        await self._deletion_sent(entry)
        above = state.inodes.by_remote(entry.zone_id, entry.parent_id)
        is_taken = above is not None and state.inodes.child(above.ino, gone.name) is not None
        if is_taken and not self.is_back(gone):
            raise FileExistsError(errno.EEXIST, "its former name is in use")
        try:
            restored = await restore_entry(self._service, entry)
        except (NotFound, Rejected) as wrong:
            if await current_entry(self._service, entry.zone_id, entry.parent_id) is None:
                raise FileNotFoundError(errno.ENOENT, FOLDER_TRASHED) from wrong
            raise
        above = state.inodes.by_remote(entry.zone_id, restored.parent_id) or folder
        await self._folders.refresh(above, time.monotonic_ns())
        inode = self._present(entry)
        if inode is None:
            raise OSError(errno.EBUSY, "it is restored, but its name has just been taken")
        if (inode.parent, inode.name) != (folder.ino, name):
            left, former = inode.parent, inode.name.encode()
            await self._names.rename(left, former, folder.ino, name.encode(), NOREPLACE)
            # The kernel has not asked for this rename.
            state.invalidations.put(EntryChanged(left, former))
            state.invalidations.put(InodeChanged(left, attr_only=True))

    async def _deletion_sent(self, entry: Entry) -> None:
        """Wait until the service has received all pending changes that free the name of `entry`.

        These changes include the deletion of the entry. Raises OSError if the service has not
        received all of them when `_wait_while` returns: ENETUNREACH if the service is unreachable,
        else EBUSY.
        """
        state, place = self._state, (entry.zone_id, entry.parent_id, entry.name)

        def leaving() -> list[int]:
            pending = [each.ino for each in state.intents.names() if not each.parked]
            return [
                each.ino
                for each in state.inodes.get_all(pending)
                if (each.zone, each.remote_parent, each.remote_name) == place
            ]

        self._dispatcher.expedite(leaving())
        await self._wait_while(leaving)
        if leaving():
            away = self._service.link.state != "online"
            raise OSError(
                errno.ENETUNREACH if away else errno.EBUSY, "the service has not deleted it yet"
            )

    async def _wait_while(self, waiting: Callable[[], object]) -> None:
        """Wait until `waiting` returns false or the service is unreachable.

        The wait takes at most PATIENCE_S seconds. While uploads are paused, return at once.
        """
        with self._dispatcher.waited_for(), trio.move_on_after(PATIENCE_S):
            await self._dispatcher.wait_until(
                lambda: (
                    not waiting()
                    or self._service.link.state != "online"
                    or self._dispatcher.is_paused
                )
            )

    # ---- zonedrive trash and restore ----

    async def send_deletions(self) -> None:
        """Send the pending deletions to the service now, and wait up to PATIENCE_S seconds."""
        intents, dispatcher = self._state.intents, self._dispatcher

        def waiting() -> bool:
            now = time.time_ns()
            return any(
                intent.ino in dispatcher.running
                or (intent.gone and not (intent.failed and intent.due_ns > now))
                for intent in intents.names()
            )

        dispatcher.expedite(intent.ino for intent in intents.names() if intent.gone)
        await self._wait_while(waiting)

    async def end_removal(self, entry: Entry) -> None:
        """Drop the pending removal of an entry that is already in the service's trash.

        Otherwise, the removal would be sent after a restore of the entry, and would delete the
        entry again. Raises ZonedriveError if a request for the removal does not end soon.
        """
        state = self._state

        def removed() -> Inode | None:
            inode = state.inodes.by_remote(entry.zone_id, entry.id)
            if inode is None or inode.parent != NOWHERE:
                return None
            intent = state.intents.get(inode.ino)
            return inode if intent is not None and intent.gone else None

        def is_under_way() -> bool:
            return (inode := removed()) is not None and inode.ino in state.in_flight

        with trio.move_on_after(PATIENCE_S):
            await self._dispatcher.wait_until(lambda: not is_under_way())
        if is_under_way():
            raise ZonedriveError(
                f"the deletion of {entry.name!r} is still under way", remedy="try again later"
            )
        if (inode := removed()) is not None:
            remote_operations.forget_below(state, [*state.inodes.innermost_first(inode)])
            if (request := state.requests.get(inode.ino)) is not None:
                state.resolved(request)
            local_operations.forget(state, inode)

    def is_to_be_removed(self, name: str) -> bool:
        """Return True if the removal of an entry of that name waits to be sent."""
        waiting = [each.ino for each in self._state.intents.names() if each.gone]
        return any(each.name == name for each in self._state.inodes.get_all(waiting))

    def require_vacant(self, entry: Entry) -> None:
        """Raise AlreadyExists if another local entry has the name of the entry to restore.

        The service rejects the restore only if an entry on the service has the name. Without this
        check, a local entry that is not on the service yet would be renamed.
        """
        inodes = self._state.inodes
        folder = inodes.by_remote(entry.zone_id, entry.parent_id)
        if folder is None:
            return
        there = inodes.child(folder.ino, local_name(entry.name, entry.id, ()))
        is_kept = there is not None and entry.folder and self._state.is_kept(there)
        if there is not None and there.remote_id != entry.id and not is_kept:
            raise AlreadyExists("restoring: the name is taken")

    def known_folder(self, zone_id: str, entry_id: str) -> Entry | None:
        """Return the last known state of a remote folder, or None for an unknown folder."""
        inode = self._state.inodes.by_remote(zone_id, entry_id)
        if inode is None or inode.remote_parent is None or inode.remote_name is None:
            return None
        return _entry(inode)

    async def show(self, entries: Iterable[Entry]) -> dict[tuple[str, str], str]:
        """Make the mount show restored entries; return their paths, keyed by (zone id, entry id).

        The folders of the entries are listed again, each folder once. Entries are left out of the
        result if their folder was never listed, or cannot be listed now.
        """
        inodes, now_ns = self._state.inodes, time.monotonic_ns()
        paths: dict[tuple[str, str], str] = {}
        refreshed: set[int] = set()
        for entry in entries:
            folder = inodes.by_remote(entry.zone_id, entry.parent_id)
            if folder is None or not folder.listed:
                continue
            if folder.ino not in refreshed:
                refreshed.add(folder.ino)
                with suppress(ZonedriveError, OSError):  # the next listing shows the entry
                    await self._folders.refresh(folder, now_ns)
            if (inode := self._present(entry)) is not None:
                paths[entry.zone_id, entry.id] = inodes.path(inode.ino)
        return paths


def _entry(inode: Inode) -> Entry:
    """Return the entry of an inode as it was last seen on the service."""
    return Entry(
        inode.remote_id or "",
        inode.zone,
        inode.remote_parent or "",
        inode.remote_name or "",
        folder=inode.is_folder,
        size=inode.size,
        modified_ns=inode.mtime_ns,
        modified_by=inode.modified_by,
        type=inode.type,
        sync=inode.sync,
    )


async def restore_entry(service: Service, entry: Entry) -> Entry:
    """Restore an entry on the service, and return its new state.

    If the request fails but the entry is present, for example because the reply was lost, return
    the present entry. If the answer does not state the folder, it is the former folder.
    """
    try:
        restored = await service.restore(entry.zone_id, entry.id, folder=entry.folder)
    except (*MAY_HAVE_ARRIVED, Rejected):
        present = await current_entry(service, entry.zone_id, entry.id)
        if present is None:
            raise
        restored = present
    if restored.parent_id:
        return restored
    return msgspec.structs.replace(restored, parent_id=entry.parent_id)
