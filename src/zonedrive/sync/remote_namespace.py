"""Changes of names on the service: creation of folders, and moves and deletions of entries."""

import logging
import time
from contextlib import suppress
from itertools import islice

import msgspec
import trio

from zonedrive.causes import Cause, cause_of
from zonedrive.errors import AlreadyExists, Changed, NotFound, Rejected, RemoteError, ZonedriveError
from zonedrive.failpoint import Place, reached
from zonedrive.model import Entry, Revision
from zonedrive.remote.service import Service
from zonedrive.snapshot import Snapshot
from zonedrive.state import (
    conflict_copies,
    conflicts,
    local_operations,
    remote_binding,
    remote_operations,
)
from zonedrive.state.inode import NOWHERE, ROOT, Inode
from zonedrive.state.intents import Failure, Intent
from zonedrive.state.local_state import LocalState
from zonedrive.state.merge import STEP
from zonedrive.state.names import aside_name, folded, is_aside, local_name, safe
from zonedrive.state.pending_requests import PendingRequest
from zonedrive.sync.compare import COMPARISONS, current_entry, require_deletion
from zonedrive.sync.directory_cache import DirectoryCache, clocks_ns
from zonedrive.sync.materialize import keep_readable
from zonedrive.sync.moved_entries import DEEPEST
from zonedrive.sync.reconcile import Reconciler
from zonedrive.sync.rollback import FOR_GOOD, Rollback

log = logging.getLogger(__name__)


PASSING = 9  # rejections by a gateway before a rename or removal is undone: about ten minutes


class RemoteNamespace:
    """Client that applies local folder creations, moves and deletions to the service."""

    def __init__(
        self, state: LocalState, service: Service, folders: DirectoryCache, reconciler: Reconciler
    ) -> None:
        self._state = state
        self._service = service
        self._folders = folders
        self._reconciler = reconciler
        self._comparer = reconciler.comparer
        self._rollback = Rollback(state, folders)

    async def make(self, intent: Intent, inode: Inode) -> None:
        """Create a folder on the service, or adopt the remote folder that already has the name.

        If a remote file has the name, rename the local folder to a conflict-copy name. Raises
        Changed if the parent folder has just been deleted on the service.
        """
        state, reconciler = self._state, self._reconciler
        planned = state.intents.snapshot(intent)
        parent = self._folders.require_remote_id(self._state.inodes.get(inode.parent))
        name = state.remote_name(inode)
        if await reconciler.wait_for(parent, name):
            return
        request = PendingRequest(inode.ino, inode.ino, 0, 0, inode.zone, parent, name, None)
        asked_ns = clocks_ns()
        with reconciler.sending(request):
            reached(Place.FOLDER_ASKED)
            try:
                with reconciler.asking(request):
                    entry = await self._service.make_folder(inode.zone, parent, name)
            except AlreadyExists as taken:
                found = await self._in_the_way(inode, name, taken)
                planned.require()
                if found.folder:
                    await self._adopt(intent, inode, found)
                else:
                    conflicts.rename_local_aside(state, inode, found)
                    await reconciler.make_durable()
                return
            except NotFound as missing:
                if await self._is_folder_there(inode.zone, parent):
                    raise
                await self._accept_deletions_above(inode.zone, parent)
                raise Changed("the folder above was deleted on the service") from missing
            reached(Place.FOLDER_MADE)
            # If the response cannot be stored, the pending request stays.
            await reconciler.arrived(request, entry)
            if self._state.is_own(entry.modified_by):  # otherwise it may be a coworker's folder
                self._folders.known_empty(inode, asked_ns)

    async def _adopt(self, intent: Intent, inode: Inode, found: Entry) -> None:
        """Bind a new folder to the remote folder `found`.

        If `found` is an ancestor of the new folder in the local tree, list the ancestors again,
        because they were moved on the service, and raise Changed.
        """
        try:
            remote_binding.adopt_folder(self._state, intent, inode, found)
            self._folders.forget(inode.parent)  # `found` may have another form of the name
        except Changed:
            above = list(self._state.inodes.and_above(inode))
            for folder in reversed(above[1:-1]):
                await self._folders.refresh(folder, time.monotonic_ns())
            raise

    async def _in_the_way(self, inode: Inode, name: str, taken: AlreadyExists) -> Entry:
        """Return the service's entry with the name that the inode should get.

        The first time that the service does not list the name, the entry may have been deleted
        meanwhile. After that, also accept a name that differs only in case or Unicode
        normalization. Raises Changed if the entry is gone, or if a local change is about to move
        the entry away. Raises `taken` if COMPARISONS earlier listings have not had the name either.
        """
        state = self._state
        parent = state.inodes.get(inode.parent)
        entries = await self._service.listing(inode.zone, parent.entry_id)
        found = next((each for each in entries if each.name == name), None)
        intent = state.intents.get(inode.ino)
        missed = 0
        if found is None and intent is not None:
            missed = state.intents.count_failure(intent, Failure.UNLISTED_NAME)
        if missed > 1:
            found = next((each for each in entries if folded(each.name) == folded(name)), None)
            state.unites_spellings |= found is not None
        other = None if found is None else state.inodes.by_remote(inode.zone, found.id)
        if found is None:
            if missed > COMPARISONS:
                raise taken
            raise Changed("the entry with this name is gone on the service") from taken
        if other is None or other is inode:
            return found
        change = state.intents.get(other.ino)
        if change is not None and (change.place or change.gone):
            if other.ino not in state.in_flight:  # its place was unknown, or has changed
                remote_operations.record_blocking_place(state, other, parent.entry_id, found.name)
            raise Changed("another entry still has this name and is moved first") from taken
        return found

    async def move(self, intent: Intent, inode: Inode, *, aside: bool = False) -> None:
        """Move the entry on the service; if the service rejects the move, undo it locally.

        If `aside` is true, only move the entry to a temporary name, which frees its current name
        for another entry. A later step moves the entry to its final name. Raises the rejection if
        the rollback is not possible. Raises Changed instead if a coworker has moved the target
        folder, or a folder above it, into `inode`, and that folder is to be moved here as well.
        Also raises Changed if a folder above the target was moved at the same time, and Stale if
        the intent has changed.
        """
        above = self._places_above(inode)
        try:
            await (self._step_aside if aside else self._move)(intent, inode)
        except FOR_GOOD as refused:
            await self._require_lasting(intent, inode, refused)
            is_cycle = isinstance(refused, Rejected) and await self._is_above_target(inode)
            self._state.intents.snapshot(intent).require()
            if self._places_above(inode) == above:
                if await self._roll_back(intent, inode, refused, is_cycle=is_cycle):
                    return
                if self._places_above(inode) == above:
                    raise
            raise Changed("a folder above was moved meanwhile") from refused

    def _places_above(self, inode: Inode) -> list[tuple[str | None, str | None]]:
        """Return the places on the service of the target folder and of those above it, if known.

        Return [] for a file.
        """
        if not inode.is_folder:
            return []
        target = self._state.inodes.get(inode.parent)
        above = self._state.inodes.above_on_service(target)
        return [(folder.remote_parent, folder.remote_name) for folder in (target, *above)]

    async def _require_lasting(self, intent: Intent, inode: Inode, refused: ZonedriveError) -> None:
        """Raise `refused` if a gateway has rejected the change at most PASSING times.

        The user may be in another network for a while. After that, the service must answer another
        request; else raises the error of that request.
        """
        if not (isinstance(refused, RemoteError) and refused.by_gateway):
            return
        if self._state.intents.count_failure(intent, Failure.GATEWAY) <= PASSING:
            raise refused
        await current_entry(self._service, inode.zone, inode.entry_id)

    async def _move(self, intent: Intent, inode: Inode) -> None:
        state, planned = self._state, self._state.intents.snapshot(intent)
        folder, name = state.inodes.get(inode.parent), state.remote_name(inode)
        request = None
        try:
            if folder.remote_id is None:  # the entry may be deleted as well
                await self._service.entry(inode.zone, inode.entry_id)
                if not self._service.can("make_folder"):
                    await self._name_again(inode)  # the entry may stay in its folder
                    # A move that can never succeed is undone.
                    self._service.profile.operation("move", folder=inode.is_folder)
            planned.require()
            parent = self._folders.require_remote_id(folder)
            await self._wait_for_uploads_to(inode)
            former = await self._revision(inode)
            planned.require()
            if await self._reconciler.wait_for(parent, name):
                return
            reached(Place.MOVE_ASKED)
            request, entry = await self._relocate(inode, parent, name)
            reached(Place.MOVE_DONE)
        except AlreadyExists as taken:
            await self._locate(intent, inode)  # a coworker may have moved it
            is_blocked = await self._is_way_blocked(inode, parent, name)
            try:
                other = None if is_blocked else await self._in_the_way(inode, name, taken)
            except (AlreadyExists, Changed):
                if not (planned.is_current and self._is_place_wanted(inode)):
                    raise
                other = None
            planned.require()
            if other is None:  # a temporary name lets both get their places
                await self._step_aside(intent, inode)
                return
            if other.id != inode.remote_id:
                conflicts.rename_local_aside(state, inode, other)
                await self._reconciler.make_durable()
                return
            entry = other  # an earlier request succeeded
        except NotFound as missing:
            await require_deletion(self._service, inode.zone, missing)
            planned.require()
            conflicts.accept_deletion(state, intent, inode)
            return
        before = await self._comparer.unchanged_by_move(intent, inode, former, entry)
        remote_operations.record_move(
            state, inode, parent, entry, before=before, request=request, done=intent
        )
        state.refusals.over(inode.zone, entry.id)
        reached(Place.MOVE_NOTED)

    async def _wait_for_uploads_to(self, inode: Inode) -> None:
        """Wait until no upload is running that the service may store as a version of the entry.

        The upload is that of a new file whose name differs only in case or Unicode normalization.
        If the entry was deleted or moved at the same time, the new version would be, too.
        """
        place = inode.remote_parent or "", inode.remote_name or ""
        await self._reconciler.wait_for_spellings(*place)

    async def _is_way_blocked(self, inode: Inode, parent: str, name: str) -> bool:
        """Return True if the entry needs a temporary name before it can get `name` in `parent`.

        With some profiles, a move under a new name takes two requests. The entry cannot be renamed
        first if its folder has another entry `name`. The entry cannot be moved first if the target
        folder has an entry with the former name. Return True if both are the case, and `name` is
        free in the target folder. Names that differ only in case or Unicode normalization count as
        equal.
        """
        above, former = inode.remote_parent, inode.remote_name
        if not above or not former or is_aside(former) or above == parent or former == name:
            return False
        there = {folded(each.name) for each in await self._service.listing(inode.zone, parent)}
        if folded(name) in there or folded(former) not in there:
            return False
        here = await self._service.listing(inode.zone, above)
        return any(folded(each.name) == folded(name) for each in here)

    def _is_place_wanted(self, inode: Inode) -> bool:
        """Return True if another entry is to be moved to this entry's current place on the service.

        Names that differ only in case or Unicode normalization count as equal. The two entries may
        wait for each other, in a cycle that the planner does not see.
        """
        state, former = self._state, folded(inode.remote_name or "")
        folder = state.inodes.by_remote(inode.zone, inode.remote_parent or "")
        moving = state.inodes.get_all({each.ino for each in state.intents.names() if each.place})
        return folder is not None and any(
            each.parent == folder.ino and each is not inode and folded(each.name) == former
            for each in moving
        )

    async def _step_aside(self, intent: Intent, inode: Inode) -> None:
        state, planned = self._state, self._state.intents.snapshot(intent)
        above = inode.remote_parent or ""
        folders = [*state.inodes.above_on_service(inode)]
        if not folders or any(state.intents.get(each.ino) is not None for each in folders):
            zone = next(each for each in state.inodes.inodes_in(ROOT) if each.zone == inode.zone)
            above = zone.remote_id or ""
        try:
            former = await self._revision(inode)
            planned.require()
            reached(Place.ASIDE_ASKED)
            name = aside_name(inode.ino, intent.seq)
            try:
                request, entry = await self._relocate(inode, above, name)
            except AlreadyExists:  # another machine, possibly off, has given an entry this name
                planned.require()
                name = aside_name(inode.ino, time.time_ns())
                request, entry = await self._relocate(inode, above, name)
            reached(Place.ASIDE_DONE)
        except NotFound as missing:
            await require_deletion(self._service, inode.zone, missing)
            planned.require()
            conflicts.accept_deletion(state, intent, inode)
            return
        before = await self._comparer.unchanged_by_move(intent, inode, former, entry)
        remote_operations.record_move(state, inode, above, entry, before=before, request=request)
        reached(Place.ASIDE_NOTED)

    async def _revision(self, inode: Inode) -> Revision:
        """Return the revision that the inode's entry has on the service before a move.

        For a folder, return the last known revision.
        """
        if inode.is_folder:
            return inode.revision
        return (await self._service.entry(inode.zone, inode.entry_id)).revision

    async def _is_above_target(self, inode: Inode) -> bool:
        """Return True if the target folder is below the folder `inode` on the service.

        No listing may have shown that. If a folder in between is to be moved, its place may be new;
        then record it and raise Changed, because that folder can be moved first.
        """
        state, is_new_place = self._state, False
        target = state.inodes.find(inode.parent) if inode.is_folder else None
        if target is None:  # a file, or a folder that was removed meanwhile
            return False
        above = target.remote_id
        for _ in range(DEEPEST):
            if not above or above == inode.remote_id:
                break
            try:
                entry = await self._service.entry(inode.zone, above)
            except ZonedriveError:
                return False
            folder = state.inodes.by_remote(inode.zone, above)
            intent = None if folder is None else state.intents.get(folder.ino)
            if folder is not None and intent is not None and intent.place:
                before = folder.remote_parent
                await self._locate(intent, folder)
                is_new_place |= folder.remote_parent != before
            above = entry.parent_id
        is_above = bool(above) and above == inode.remote_id
        if is_above and is_new_place:
            raise Changed("the target folder is still below the folder to move")
        return is_above

    async def _roll_back(
        self, intent: Intent, inode: Inode, refused: ZonedriveError, *, is_cycle: bool = False
    ) -> bool:
        """Undo a rejected move locally, and return True on success.

        If folders above the former place were removed locally, restore these folders first. For
        `is_cycle`, see `Rollback.move`; then also find the folder of the former place, if no
        listing has shown that folder or its new place.
        """
        state = self._state
        await self._locate(intent, inode)
        if is_cycle:
            with suppress(ZonedriveError):
                await self._folders.following.folder(inode.zone, inode.remote_parent or "")
                await self._find_above(inode)
        if self._rollback.move(intent, inode, refused, is_cycle=is_cycle):
            return True
        for each in (way := self._rollback.reopen(inode, refused)):
            folder = state.inodes.by_remote(inode.zone, each)
            if folder is None or folder.parent == NOWHERE:
                return False
            try:
                await self._folders.refresh(folder, time.monotonic_ns())
            except ZonedriveError:
                return False  # the next attempt finds the folders
        return bool(way) and self._rollback.move(intent, inode, refused, is_cycle=is_cycle)

    async def _find_above(self, inode: Inode) -> None:
        """Find the folders above the inode's former place that a coworker has moved.

        The tree may still show them below the inode. Raises the service's error.
        """
        state, above = self._state, inode.remote_parent
        for _ in range(DEEPEST):
            folder = state.inodes.by_remote(inode.zone, above or "")
            if folder is None or above is None:
                return
            found = (await self._service.entry(inode.zone, above)).parent_id
            intent = state.intents.get(folder.ino)
            if found and found != folder.remote_parent and not (intent and intent.place):
                await self._folders.find(inode.zone, above, time.monotonic_ns())
            above = found

    async def _locate(self, intent: Intent, inode: Inode) -> None:
        """Record the place that the entry has on the service after a failed move.

        A move may take two requests, and the first request may have had an effect.
        """
        planned = self._state.intents.snapshot(intent)
        try:
            entry = await self._service.entry(inode.zone, inode.entry_id)
        except ZonedriveError:
            return
        above = entry.parent_id or inode.remote_parent or ""
        as_noted = (above, entry.name) == (inode.remote_parent, inode.remote_name)
        if planned.is_current and not (entry.deleted or as_noted):
            remote_operations.record_move(self._state, inode, above, entry)

    async def _relocate(self, inode: Inode, folder: str, name: str) -> tuple[PendingRequest, Entry]:
        """Move an entry on the service; return the request and the moved entry.

        The request stays pending until the caller records the response. A request for a temporary
        name is recorded durably before it is sent, because nothing else tells which entry has the
        name. Raises Changed if the target folder is gone, and the other errors of the request.
        """
        reconciler, remote_id = self._reconciler, inode.entry_id
        request = PendingRequest(inode.ino, inode.ino, 0, 0, inode.zone, folder, name, remote_id)
        try:
            with reconciler.sending(request):
                if is_aside(name):
                    await reconciler.make_durable()
                with reconciler.asking(request):
                    entry = await self._service.move(
                        inode.zone, remote_id, folder, name, folder=inode.is_folder
                    )
        except NotFound as unknown:
            if not await self._is_there(inode):
                raise
            if await self._is_folder_there(inode.zone, folder):
                raise _unsupported_endpoint_error(unknown) from unknown
            await self._accept_deletions_above(inode.zone, folder)
            raise Changed("the target folder of the move is gone") from unknown
        return request, msgspec.structs.replace(entry, name=entry.name or name)

    async def _accept_deletions_above(self, zone: str, remote_id: str) -> None:
        """End the pending move of a folder that was deleted remotely, and of such folders above it.

        Such a pending move may wait for another entry's move into the folder `remote_id`, or for
        the creation of a folder in it. That other step always fails, because the folder is gone.
        """
        state = self._state
        target = state.inodes.by_remote(zone, remote_id)
        for folder in [] if target is None else list(state.inodes.and_above(target)):
            intent = state.intents.get(folder.ino)
            if folder.remote_id is None or intent is None or not intent.place or intent.gone:
                continue
            planned = state.intents.snapshot(intent)
            if not await self._is_folder_there(zone, folder.remote_id) and planned.is_current:
                conflicts.accept_deletion(state, intent, folder)

    async def _is_folder_there(self, zone: str, folder: str) -> bool:
        try:
            await self._service.listed(zone, folder)
        except NotFound as missing:
            await require_deletion(self._service, zone, missing)
            return False
        return True

    async def delete(self, intent: Intent, inode: Inode) -> None:
        """Delete a removed entry on the service; undo the removal if the service rejects it."""
        planned = self._state.intents.snapshot(intent)
        try:
            await self._delete(intent, inode, planned)
        except FOR_GOOD as refused:
            await self._require_lasting(intent, inode, refused)
            if await self._is_there(inode):
                entry = None
                with suppress(NotFound, *FOR_GOOD):
                    entry = await self._named_entry(inode)
                if _has_temporary_name(inode):
                    raise  # no other step would rename or delete the entry later
                self._rollback.removal(intent, inode, refused, entry)
            elif planned.is_current:  # an earlier request succeeded without a response
                await self._deleted(inode)

    async def _is_there(self, inode: Inode) -> bool:
        """Return True if the service still has the entry, or if the service rejects the query."""
        try:
            return await current_entry(self._service, inode.zone, inode.entry_id) is not None
        except FOR_GOOD:
            return True

    async def _delete(self, intent: Intent, inode: Inode, planned: Snapshot[object]) -> None:
        await self._keep_readable(intent, inode)
        await self._wait_for_uploads_to(inode)
        planned.require()
        reason = await self._reason_to_keep(intent, inode)
        planned.require()  # another inode may represent the entry now
        if reason:
            log.warning("inode %d: %s: kept there", inode.ino, reason)
            entry = await self._named_entry(inode)
            planned.require()
            self._rollback.keep(inode, entry)
            return
        # The name is only shown in the trash, and after a restore.
        with suppress(NotFound, AlreadyExists, Changed, *FOR_GOOD):
            await self._name_again(inode, local_name(inode.name, inode.entry_id, (inode.name,)))
        planned.require()
        reached(Place.DELETE_ASKED)
        try:
            await self._service.delete(inode.zone, inode.entry_id, folder=inode.is_folder)
        except NotFound as unknown:
            if await self._is_there(inode):
                raise _unsupported_endpoint_error(unknown) from unknown
        reached(Place.DELETE_DONE)
        await self._deleted(inode)

    async def _keep_readable(self, intent: Intent, inode: Inode) -> None:
        """Copy the content of files that programs have open, see `keep_readable`.

        After COMPARISONS failed copies, the entry is deleted without the copies: its place may be
        needed, and some errors recur in every attempt. A copy that fails during an outage of the
        service does not count.
        """
        try:
            await keep_readable(self._state, self._service, inode)
        except (ZonedriveError, OSError) as wrong:
            if cause_of(wrong) is Cause.SERVICE:
                await current_entry(self._service, inode.zone, inode.entry_id)
            if self._state.intents.count_failure(intent, Failure.COPY) <= COMPARISONS:
                raise
            log.info("inode %d: removed; its readers may get an error: %s", inode.ino, wrong)

    async def _named_entry(self, inode: Inode) -> Entry | None:
        """Return an entry as the service has it, after `_name_again`; None if it was deleted."""
        entry = await self._name_again(inode)
        return entry or await current_entry(self._service, inode.zone, inode.entry_id)

    async def _name_again(self, inode: Inode, instead: str = "") -> Entry | None:
        """Give an entry with a temporary name its local name, or `instead` if that name is taken.

        `instead` is by default the name of a conflict copy. Return the renamed entry, or None if
        the entry has no temporary name. Raises AlreadyExists if both names are taken.
        """
        if not _has_temporary_name(inode):
            return None
        state, above = self._state, inode.remote_parent or ""
        names = (inode.name, instead or conflict_copies.copy_name(state, inode))
        for name in names:
            former = await self._revision(inode)
            while await self._reconciler.wait_for(above, safe(name)):
                former = await self._revision(inode)
            try:
                request, entry = await self._relocate(inode, above, safe(name))
            except AlreadyExists:
                if name == names[-1]:
                    raise
                continue
            intent, before = state.intents.get(inode.ino), None
            if intent is not None:
                before = await self._comparer.unchanged_by_move(intent, inode, former, entry)
            remote_operations.record_move(
                state, inode, above, entry, before=before, request=request
            )
            return entry
        return None

    async def _deleted(self, inode: Inode) -> None:
        """Remove the inode and all inodes below it, because the service has deleted the entry."""
        state, deleted = self._state, inode.remote_id or ""
        state.inodes.recent_writes.add(inode.zone, deleted)
        while below := list(islice(state.inodes.innermost_first(inode), STEP)):
            remote_operations.forget_below(state, below)
            await trio.lowlevel.checkpoint()
        remote_operations.end_removal(state, inode)
        state.refusals.over(inode.zone, deleted)

    async def _reason_to_keep(self, intent: Intent, inode: Inode) -> str:
        """Return the reason to keep the removed entry on the service, or "" if there is none."""
        if inode.is_folder:
            has_others = await self._others_in(inode)
            return "a removed folder has new entries on the service" if has_others else ""
        moved = local_operations.successor(self._state, inode)
        if moved and not await current_entry(self._service, moved.zone, moved.entry_id):
            return "a file was renamed over another one, and was deleted on the service"
        # Last, because a version may be saved while the request before is repeated.
        if await self._has_other_version(intent, inode):
            return "a removed file has a newer version on the service"
        return ""

    async def _has_other_version(self, intent: Intent, inode: Inode) -> bool:
        """Return True if the service has a version that was not known at the removal.

        The author does not matter: the user may have saved the version on another machine.
        """
        entry = await current_entry(self._service, inode.zone, inode.entry_id)
        if entry is None or entry.revision in (inode.revision, intent.base):
            return False
        return not await self._comparer.is_known(intent, inode, inode.revision, entry)

    async def _others_in(self, folder: Inode) -> bool:
        """Return True if the remote folder holds entries that were not removed locally.

        A new version of an entry counts as such an entry. If the folder was removed as a whole, its
        entries are still in the local tree. In this case, the subfolders are also listed again, and
        unsent changes of entries below the folder also count.
        """
        state, inodes = self._state, self._state.inodes
        if await self._news_in(folder):
            return True
        if not inodes.numbers_in(folder.ino):
            return False
        for inner in inodes.folders_below(folder):
            if inner.listed and await self._news_in(inner):
                return True
        pending = (inodes.find(each.ino) for each in state.intents.all())
        return any(each is not folder and inodes.is_below(each, folder) for each in pending)

    async def _news_in(self, folder: Inode) -> bool:
        """Return True if the remote folder holds entries or versions that are unknown locally.

        Also return True if the listing is incomplete.
        """
        state = self._state
        try:
            listed = await self._service.listed(folder.zone, folder.entry_id)
        except NotFound as missing:
            await require_deletion(self._service, folder.zone, missing)
            return False
        if not listed.complete:
            return True
        present = listed.entries()
        known = state.inodes.by_remotes(folder.zone, [entry.id for entry in present])
        if any(each.id not in known or known[each.id][1] != folder.ino for each in present):
            return True
        said = {known[entry.id][0]: entry for entry in present if not entry.folder}
        return any(
            said[inode.ino].revision != inode.revision for inode in state.inodes.get_all(said)
        )


def _has_temporary_name(inode: Inode) -> bool:
    """Return True if this client has given the entry a temporary name.

    An entry with another client's temporary name has the same name in the local tree.
    """
    return is_aside(inode.remote_name) and not is_aside(inode.name)


def _unsupported_endpoint_error(unknown: NotFound) -> Rejected:
    """Return the error for an endpoint that the service lacks.

    `unknown` is the service's 404 response to a request for entries that exist.
    """
    rejected = Rejected(
        f"{unknown.message}, but has what this is about",
        remedy="'zonedrive doctor --profile PROFILE' tells whether the service has such a request",
        status=unknown.status,
    )
    rejected.by_gateway = unknown.by_gateway
    return rejected
