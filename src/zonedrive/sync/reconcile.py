"""Resolution of pending requests, which determines whether an unanswered request had an effect.

A lost reply or a killed daemon leaves a pending request. Before the next request for the same
inode, the service's state is compared with the pending request. If they match, the result is
recorded as if the response had arrived. The same applies to a file that was renamed or removed
locally in the meantime.

The sent version is not always the newest version of its file, because a coworker may have saved
another version since. The sent version may also be in another file, because an upload identifies
the file by name. If a coworker has renamed the file between the check and the upload, the service
has created a new file, or a new version of another file that now has the name.

INVARIANT: the service's response, the end of the pending request and the end of the intent are
stored in one transaction.
INVARIANT: a version that is on the service is not sent again, and the user is told where the
version is.
"""

import logging
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext, suppress
from typing import Any

import msgspec
import trio

from zonedrive.errors import (
    BadAnswer,
    Changed,
    Damaged,
    Forbidden,
    Locked,
    NotFound,
    NotLoggedOn,
    NotSupported,
    Rejected,
    RemoteError,
    Unavailable,
    Unreachable,
)
from zonedrive.failpoint import Place, reached
from zonedrive.model import Entry, Revision, Version, differ_in_precision
from zonedrive.remote.service import Service
from zonedrive.single_flight import Flight, SingleFlight
from zonedrive.snapshot import Snapshot, Stale
from zonedrive.state import conflicts, remote_binding, remote_operations
from zonedrive.state.conflict_copies import UNKNOWN, record_conflict
from zonedrive.state.inode import NOWHERE, Inode
from zonedrive.state.intents import Intent
from zonedrive.state.invalidation import EntryGone
from zonedrive.state.local_state import LocalState
from zonedrive.state.names import folded, is_aside
from zonedrive.state.pending_requests import PendingRequest
from zonedrive.sync.compare import Comparer, current_entry, require_deletion
from zonedrive.sync.directory_cache import DirectoryCache
from zonedrive.sync.materialize import keep_former_version
from zonedrive.translation import marked

log = logging.getLogger(__name__)

MAY_HAVE_ARRIVED = (Unreachable, Unavailable, BadAnswer)
"""Errors after which a request may have had an effect, unless the error's `unprocessed` is true.

After any other error, the request had no effect. But if `is_partial` is true for the error, an
earlier request of the same operation had an effect.
"""

# Seconds after a connection broke in which the service may still perform a request. A check in this
# time could miss the new version, which would later count as a coworker's.
LATE_S = 1.0
LOOK_BACK = 6  # newest versions of a file among which a sent version is searched
MAY_STAY = marked("it was removed while its upload had no answer; the service may have it")
STAYS_THERE = marked("uploaded before it was renamed or removed here; it stays on the service")


class Sent(msgspec.Struct, frozen=True):
    """Facts about an uploaded file, kept so that the file need not be read again."""

    taken: int  # allocated bytes on disk
    manifest: bytes  # see `ContentFile.manifest`
    content: bytes | None  # the bytes, if they are in memory


class Reconciler:
    """Resolver that determines the outcome of pending requests.

    The outcome comes from the response to a request, or from the service's current state.
    """

    def __init__(self, state: LocalState, service: Service, folders: DirectoryCache) -> None:
        self._state = state
        self._service = service
        self._folders = folders
        self.comparer = Comparer(state, service)
        self._under_way: SingleFlight[tuple[str, str], Flight] = SingleFlight()  # folder id, name
        # Times (`time.monotonic`) at which requests failed with unknown effect, by the ino and
        # generation of the sent bytes. Both stay the same if another inode gets the request.
        self._failed_s: dict[tuple[int, int], float] = {}

    # ---- one request at a time per folder and name ----

    async def wait_for(self, folder: str, name: str) -> bool:
        """Wait until the running request for this folder (remote id) and name ends; return True.

        Return False at once if no such request is running.
        """
        return await self._under_way.wait((folder, name))

    async def wait_for_spellings(self, folder: str, name: str) -> None:
        """Wait until no request is running for this folder (remote id) and any spelling of `name`.

        The spellings of a name differ only in case or Unicode normalization.
        """
        for key in self._under_way:
            if key[0] == folder and folded(key[1]) == folded(name):
                await self._under_way.wait(key)

    @contextmanager
    def sending(self, request: PendingRequest) -> Iterator[None]:
        """Record a request as pending; `wait_for` waits until the `with` block ends.

        The outcome of the request is unknown until its response is recorded.
        """
        with self._under_way.flying((request.folder, request.name), Flight()):
            self._state.record_request(request)
            yield

    @contextmanager
    def asking(self, request: PendingRequest) -> Iterator[None]:
        """End the pending request if the `with` block fails and the request had no effect.

        The block sends the request. After an error that leaves the effect unknown, the request
        stays pending. Every error is re-raised.
        """
        try:
            yield
        except MAY_HAVE_ARRIVED as wrong:
            if isinstance(wrong, Unavailable) and wrong.unprocessed and not wrong.is_partial:
                self._without_effect(request)
            else:
                now = time.monotonic()
                late = {one: at for one, at in self._failed_s.items() if now - at < LATE_S}
                self._failed_s = late | {(request.bytes_ino, request.generation): now}
            raise
        except (Locked, NotLoggedOn) as wrong:
            if not wrong.is_partial:
                self._without_effect(request)
            raise
        except Exception:
            self._without_effect(request)
            raise

    async def make_durable(self) -> None:
        """Flush the database, so that a power cut cannot undo the newest records.

        If the record of a conflict were lost, the conflict would be detected again. The content
        would then be sent again, to a second conflict copy. During an exchange of two names, only
        the record tells the final name of the entry with the temporary name. An OSError is logged.
        """
        try:
            await trio.to_thread.run_sync(self._state.database.flush)
        except OSError as wrong:
            log.warning("a power cut may undo a record that others need: %s", wrong)

    def _without_effect(self, sent: PendingRequest) -> None:
        request = self._state.requests.present(sent)
        if request is not None:
            self._state.resolved(request)

    # ---- resolving ----

    async def settle(self, ino: int) -> bool:
        """Determine the outcome of the inode's pending request, if there is one.

        First wait until LATE_S seconds after the request failed. Return True if the steps of the
        inode must be planned again. Raises Stale if the request has changed meanwhile.
        """
        state = self._state
        request = state.requests.get(ino)
        if request is None:
            return False
        pending = state.requests.snapshot(request)
        await self.wait_for(request.folder, request.name)
        sent = request.bytes_ino, request.generation
        # After a start of the daemon, there is no wait: no listing may come before the outcome.
        if (failed_s := self._failed_s.get(sent)) is not None:
            await trio.sleep(max(0.0, failed_s + LATE_S - time.monotonic()))
        inode = state.inodes.find(ino)
        pending.require()
        try:
            return await self._settle(request, pending, inode)
        except Forbidden:
            # A refused rename is undone, and the next listing shows whether the rename had an
            # effect. Only the request tells which entry has a temporary name.
            is_given_up = inode is None or inode.parent == NOWHERE
            if not (is_given_up or (request.is_move and not is_aside(request.name))):
                raise
            pending.require()
            path = state.path(ino)
            if inode is not None and request.is_move and is_aside(request.name):
                state.names_to_return[request.remote_id or ""] = inode.remote_name or inode.name
            state.resolved(request)
            if inode is not None and inode.is_new and inode.parent == NOWHERE:
                state.refusals.add(request.zone, f"inode {ino}", path, MAY_STAY)
                self._forget(inode)
            return True

    async def _settle(
        self, request: PendingRequest, pending: Snapshot[Any], inode: Inode | None
    ) -> bool:
        state = self._state
        if request.is_move:
            entry = await self._entry(request)
            before = await self.comparer.revision_before_move(inode, entry)
            if before is not None and await self._entry(request) != entry:
                raise Changed("the file has changed on the service meanwhile")
            pending.require()
            remote_operations.record_location(state, request, entry, before)
            return True
        found = None if inode is None else await self._find(inode, request)
        other = None
        if inode is not None and found is None and request.remote_id is not None:
            other = await self._find_elsewhere(request)
        pending.require()
        if inode is not None and other is not None:
            await self._arrived_elsewhere(inode, request, other)
            return True
        if inode is None or found is None:
            state.resolved(request)
            folder = state.inodes.by_remote(request.zone, request.folder)
            if folder is not None:  # if an entry has this name, another client has created it
                self._folders.forget(folder.ino)
            if inode is not None and inode.is_new and inode.parent == NOWHERE:
                self._forget(inode)
            return inode is not None and inode.is_new
        reached(Place.REQUEST_FOUND)
        await self.arrived(request, found)
        return True

    async def _entry(self, request: PendingRequest) -> Entry | None:
        return await current_entry(self._service, request.zone, request.remote_id or "")

    async def _entries(self, request: PendingRequest) -> list[Entry]:
        """Return the entries of the request's folder, or [] if the folder was deleted meanwhile."""
        try:
            return await self._service.listing(request.zone, request.folder)
        except NotFound as missing:
            await require_deletion(self._service, request.zone, missing)
            return []

    async def _find(self, inode: Inode, request: PendingRequest) -> Entry | None:
        """Return the entry that the request created or changed, or None."""
        state = self._state
        if request.remote_id is not None:
            found = await self._entry(request)
            intent = state.intents.get(inode.ino)
            known = {inode.revision} | ({intent.base} if intent is not None else set())
            # Without a time, two versions of the same size have the same revision.
            if found is None or (found.revision in known and found.modified_ns):
                return None
        else:
            entries = await self._entries(request)
            named = [each for each in entries if each.name == request.name]
            named = named or [one for one in entries if self._may_have_replaced(request, one)]
            if len(named) != 1:
                return None
            found = named[0]
            if found.unsure:
                raise BadAnswer("the service sends no valid id, kind or size of this entry")
            other = state.inodes.by_remote(request.zone, found.id)
            if other is not None and other is not inode:
                if state.in_use(other):
                    return None  # a program uses that inode, so it is a separate file
                if state.inodes.is_below(inode, other):
                    return None  # the user has moved that folder here on another computer
        if found.folder != inode.is_folder:
            return None
        if inode.is_folder:
            return found if state.is_own(found.modified_by) else None
        if state.is_own(found.modified_by) or not found.modified_by:
            has_sent = await self._has_sent(request, found.size, found.id)
            is_lost = has_sent is None and self._is_waiting_for(inode, request)
            is_certain = bool(found.modified_ns and found.modified_by)  # else it may be the base
            if has_sent or (is_lost and is_certain):
                return found
        if request.remote_id is not None:
            return None
        below = await self.version_below(request, found.id)
        return None if below is None else self._as_it_was(request, found, below)

    def _is_waiting_for(self, inode: Inode, request: PendingRequest) -> bool:
        """Return True if the inode still has to upload the bytes of the request.

        If these bytes are missing or damaged, `_find` accepts an entry with the same name, size and
        user, because the bytes can be neither compared nor sent again.
        """
        intent = self._state.intents.get(inode.ino)
        return intent is not None and intent.generation == request.generation

    def _as_it_was(self, request: PendingRequest, found: Entry, version: Version) -> Entry:
        """Return the entry of a new file as it was when `version` was its newest version.

        `found` is the current entry. Also mark the listing of the folder as out of date.
        """
        folder = self._state.inodes.by_remote(request.zone, request.folder)
        if folder is not None:  # its next listing shows the newer version
            self._folders.forget(folder.ino)
        return msgspec.structs.replace(
            found,
            revision=version.revision,
            size=version.size,
            modified_ns=version.modified_ns,
            modified_by=version.modified_by,
        )

    async def _has_sent(
        self, request: PendingRequest, size: int, file_id: str, version: str | None = None
    ) -> bool | None:
        """Return True if a version on the service has the bytes that the request sent.

        `size` is the size of the version in bytes. `version` is the id of the version, by default
        of the current one. Return None if the sizes are equal, but the sent bytes are damaged or
        missing in the spool.
        """
        if size != request.size:
            return False
        try:
            file = self._state.spool.open(request.bytes_ino, request.generation)
        except (FileNotFoundError, Damaged):
            return None
        with closing(file), suppress(Damaged):
            return await self.comparer.same_bytes(
                file, request.size, request.zone, file_id, version
            )
        return None

    async def _find_elsewhere(self, request: PendingRequest) -> Entry | None:
        """Return another remote file that has the request's name and the sent bytes, or None."""
        for entry in await self._entries(request):
            if entry.name != request.name or entry.id == request.remote_id:
                continue
            if not self._state.is_own(entry.modified_by) or entry.folder or entry.unsure:
                continue
            if await self._has_sent(request, entry.size, entry.id):
                return entry
        return None

    async def was_sent(
        self, inode: Inode, intent: Intent, request: PendingRequest, found: Entry
    ) -> bool:
        """Return True if the service already has the content to upload, as an older version.

        In that case, record the upload as done, so that the file gets the newer version. Raises
        Stale if the intent has changed.

        The service has the content if the response was lost, or if a power cut has undone the
        records of the request and the response. The newer version may be a coworker's or this
        client's. The search ends at the base of the edit, because older versions cannot contain the
        edit. The base itself matches if the save has changed no byte. A match of the base counts
        only if the setting `unchanged` is "skip", and no program waits for the upload. A waiting
        program may write more, based on the former version. Return False while a program writes to
        the file.
        """
        state, planned = self._state, self._state.intents.snapshot(intent)
        is_base = intent.base is not None and differ_in_precision(intent.base, found.revision)
        if found.folder or found.unsure or is_base:
            return False
        try:
            below = await self.version_below(request, found.id, intent.base)
        except BadAnswer:
            raise
        except RemoteError as wrong:
            await self.comparer.require_unreadable(intent, found, wrong)
            below = None  # a conflict copy is safe in any case
        planned.require()
        session = state.session(inode.ino)
        if below is None or intent.held:
            return False
        if session is not None and (not session.frozen or below.revision == intent.base):
            return False
        log.info("inode %d: the content is on the service, below a newer version", inode.ino)
        state.record_request(request)
        if request.remote_id is None:
            await self.arrived(request, self._as_it_was(request, found, below))
        else:
            remote_operations.discard_sent(state, inode, request, found)
        return True

    async def version_below(
        self, request: PendingRequest, file_id: str, base: Revision | None = None
    ) -> Version | None:
        """Return an older version that has the bytes of the request, or None.

        Coworkers or another machine of this user may have added the newer versions. The search
        covers the newest LOOK_BACK versions except the newest one, and ends at the version `base`.
        Only versions by this user count. The version `base` may have any author, but counts only if
        the setting `unchanged` is "skip".
        """
        if not (self._service.can("versions") and self._service.can("version_content")):
            return None
        try:
            versions = await self._service.versions(request.zone, file_id)
        except NotFound as missing:
            await require_deletion(self._service, request.zone, missing)
            return None
        for version in versions[1:LOOK_BACK]:
            is_base = base is not None and version.revision == base
            skips = self._state.settings.unchanged == "skip"
            may_match = skips if is_base else self._state.is_own(version.modified_by)
            if may_match and await self._has_sent(request, version.size, file_id, version.version):
                return version
            if is_base:
                return None
        return None

    # ---- recording ----

    async def arrived(
        self,
        sent: PendingRequest,
        entry: Entry,
        known: Sent | None = None,
        *,
        is_cached: bool = False,
    ) -> None:
        """Record that a request has succeeded: the service has the new version or entry `entry`.

        `known` describes the uploaded file if the file has just been read. `is_cached` is true if
        the cache already has the sent bytes as the content of the version. Raises Stale if the
        request has changed meanwhile.
        """
        state = self._state
        request = state.requests.present(sent)
        inode = None if request is None else state.inodes.find(request.ino)
        if request is None or inode is None:
            return
        if request.remote_id not in (None, inode.remote_id):
            state.resolved(request)  # the inode has lost the entry since
            return
        if request.remote_id not in (None, entry.id):
            pending = state.requests.snapshot(request)
            found = await self._find(inode, request)  # some services answer with a different id
            pending.require()
            if found is None:
                await self._arrived_elsewhere(inode, request, entry)
                return
            entry = found
        other = state.inodes.by_remote(inode.zone, entry.id)
        if other not in (None, inode) and await self._is_left_to(other, inode, request, entry):
            return
        bytes_go = remote_operations.record_arrival(state, inode, request, entry)
        can_delete = self._service.can("delete", folder=inode.is_folder)
        if inode.parent == NOWHERE and not can_delete and not self._has_successor(request):
            self._forget(inode, entry)
        if bytes_go:
            await self._to_cache(request, inode, entry, known, is_cached=is_cached)
            reached(Place.CACHED)
        else:
            state.resolved(request)
        if remote_operations.entry_has_other_name(state, request, entry):
            await self.make_durable()

    async def _is_left_to(
        self, other: Inode, inode: Inode, request: PendingRequest, entry: Entry
    ) -> bool:
        """Return True, and end the request, if the inode `other` keeps `entry`.

        Return False if `inode` can take over the entry. Raises Stale if the request has changed
        meanwhile.
        """
        state, pending = self._state, self._state.requests.snapshot(request)
        has_other_name = remote_operations.entry_has_other_name(state, request, entry)
        unseen_author = ""
        if self._can_hand_over(other):
            opened = state.opened.get(other.ino)
            if other.parent != NOWHERE or (opened is not None and opened.session is None):
                await keep_former_version(state, self._service, other)
            if has_other_name:
                unseen_author = await self._unseen_author(other, entry)
            pending.require()
            if state.inodes.by_remote(inode.zone, entry.id) is not other:
                raise Stale
        is_here = remote_operations.is_at_place(state, inode, request)
        if has_other_name and not (is_here and self._can_hand_over(other)):
            return await self._leave_to_other_name(inode, request, other, entry)
        intent = state.intents.get(other.ino)
        if inode.parent != NOWHERE and intent is not None and (intent.parked or intent.gone):
            # The service has made the new file the next version of a removed or parked file.
            remote_binding.hand_over(state, other, intent, inode, entry.revision)
            if unseen_author:
                record_conflict(state, inode.ino, inode.ino, unseen_author)
        elif state.in_use(other):
            # A listing came first, and a program uses the inode that its merge created.
            self._leave_to(inode, request)
            return True
        return False

    def _can_hand_over(self, other: Inode) -> bool:
        """Return True if a new file can take over the entry of `other` at once.

        `other` is a parked file, or a removed one whose deletion is not being sent.
        """
        intent = self._state.intents.get(other.ino)
        if intent is None or other.is_folder:
            return False
        return intent.parked or (intent.gone and other.ino not in self._state.in_flight)

    async def _unseen_author(self, other: Inode, entry: Entry) -> str:
        """Return the author of a coworker's version that an upload has replaced, or "".

        Return "" if `other`, whose entry it was, has shown that version. `entry` is the uploaded
        version. If the service does not list the versions, the author of the shown version counts.
        """
        state, intent = self._state, self._state.intents.get(other.ino)
        author = other.modified_by or UNKNOWN
        if versions := await self._listed_versions(other.zone, entry.id):
            known = {other.revision} | ({intent.base} if intent is not None else set())
            revisions = [each.revision for each in versions]
            at = revisions.index(entry.revision) if entry.revision in revisions else 0
            below = versions[at + 1 : at + 2]
            authors = (each.modified_by for each in below if each.revision not in known)
            author = next((each or UNKNOWN for each in authors), "")
        return "" if state.is_own(author) else author

    def _has_successor(self, request: PendingRequest) -> bool:
        """Return True if a new local file can take over the remote entry of the request.

        Such a file is in the request's folder, under the request's name or its display name.
        """
        inodes = self._state.inodes
        folder = inodes.by_remote(request.zone, request.folder)
        name = self._state.leaving.display_name(request.ino) or request.name
        found = None if folder is None else inodes.child(folder.ino, name)
        return found is not None and found.is_new and not found.is_folder

    async def _arrived_elsewhere(self, inode: Inode, request: PendingRequest, entry: Entry) -> None:
        """Record that an upload went to `entry`, another entry with the same name.

        If the original entry is deleted, the inode becomes the inode of `entry`, unless the inode
        was removed and `entry` is a coworker's file; then that file stays, and the user is told. If
        the original entry is not deleted, the inode keeps it, see `discard_sent`. But if it had a
        temporary name, and the upload has created the file `entry` of this name, delete `entry` and
        send the content again.
        """
        state = self._state
        pending = state.requests.snapshot(request)
        current = await self._entry(request)
        pending.require()
        if current is None:
            log.warning("inode %d: deleted on the service during the upload: the version is in a"
                        " new file there", inode.ino)  # fmt: skip
            made = msgspec.structs.replace(request, remote_id=None)
            versions = list[Version]()
            if inode.parent == NOWHERE:
                versions = await self._listed_versions(request.zone, entry.id)
                pending.require()
            path = state.path(inode.ino)
            conflicts.recreate(state, inode, made)
            if len(versions) > 1:  # a coworker has made the new file
                state.refusals.add(request.zone, entry.id, path, STAYS_THERE)
                self._folders.forget()
                self._leave_to(inode, made)
            else:
                await self.arrived(made, entry)
            return
        is_stray = is_aside(request.name) and not is_aside(current.name)
        is_stray = is_stray and await self._is_only_version(request.zone, entry)
        pending.require()
        if is_stray and remote_operations.send_again(state, request, entry):
            log.info("inode %d: lost its temporary name during the upload: sent again", inode.ino)
            return
        log.warning("inode %d: renamed by a coworker during the upload: the version is in"
                    " another file of the former name", inode.ino)  # fmt: skip
        remote_operations.discard_sent(state, inode, request, current, sent_to=entry)
        self._folders.forget()
        folder = state.inodes.by_remote(request.zone, request.folder)
        if folder is not None:
            await self._folders.refresh(folder, time.monotonic_ns())

    async def _is_only_version(self, zone: str, entry: Entry) -> bool:
        """Return True if the file has no version before `entry`, and the service can delete it.

        Return False if the service does not list the versions.
        """
        if not self._service.can("delete"):
            return False
        return len(await self._listed_versions(zone, entry.id)) == 1

    async def _listed_versions(self, zone: str, file_id: str) -> list[Version]:
        """Return the versions of a file, newest first, or [] if the service does not list them."""
        if self._service.can("versions"):
            with suppress(Forbidden, NotFound, NotSupported, Rejected):
                return await self._service.versions(zone, file_id)
        return []

    async def _leave_to_other_name(
        self, inode: Inode, request: PendingRequest, other: Inode, entry: Entry
    ) -> bool:
        """Leave the entry to `other` and return True; return False if `inode` can take it over.

        The service treats the names of both inodes as equal, so the request has changed the entry
        of `other`. A later rename or removal of `inode` must not affect that entry; a renamed
        `inode` is sent as a new entry.
        """
        state = self._state
        is_moved = not remote_operations.is_at_place(state, inode, request)
        if not (is_moved or state.in_use(other)):
            return False
        if other.parent != NOWHERE:
            remote_operations.record_replaced(state, other, other, request, entry)
        self._folders.forget()
        if is_moved and inode.parent != NOWHERE:
            state.resolved(request)
        else:
            self._leave_to(inode, request)
        await self.make_durable()
        return True

    def _may_have_replaced(self, request: PendingRequest, entry: Entry) -> bool:
        """Return True if the service may have stored the request's file as a version of `entry`.

        Some services do so if the names differ only in case or Unicode normalization.
        """
        if entry.folder or folded(entry.name) != folded(request.name):
            return False
        known = self._state.inodes.by_remote(request.zone, entry.id)
        if known is None:  # stored under another form of the name; the caller compares the bytes
            return request.remote_id is None
        return known.revision != entry.revision and not differ_in_precision(
            known.revision, entry.revision
        )

    def _leave_to(self, inode: Inode, request: PendingRequest) -> None:
        """End the request, because another inode represents the uploaded entry.

        Also remove `inode`. But a folder, or a file that was edited since the request, stays if its
        name was not removed.
        """
        state = self._state
        state.resolved(request)
        intent = state.intents.get(inode.ino)
        if inode.parent != NOWHERE:
            if inode.is_folder or intent is None or intent.generation != request.generation:
                return
            self._folders.forget(inode.parent)
            state.invalidations.put(EntryGone(inode.parent, inode.name.encode(), inode.ino))
        self._forget(inode)

    def _forget(self, inode: Inode, entry: Entry | None = None) -> None:
        """Remove an inode that needs no further request to the service.

        If the inode has an entry, the entry stays on the service, and the user is told. `entry` is
        the entry as the service has it now; it is shown at once, because the next listing may be
        far away if the connection is lost.
        """
        if inode.remote_id is not None:
            log.warning("inode %d: removed during the upload: stays on the service", inode.ino)
            self._state.refusals.add(
                inode.zone, inode.remote_id, self._state.path(inode.ino), STAYS_THERE
            )
            self._folders.forget()
        folder_id = (entry and entry.parent_id) or inode.remote_parent or ""
        folder = self._state.inodes.by_remote(inode.zone, folder_id)
        conflicts.show_kept(self._state, inode, folder, entry)

    async def _to_cache(
        self,
        request: PendingRequest,
        inode: Inode,
        entry: Entry,
        known: Sent | None,
        *,
        is_cached: bool,
    ) -> None:
        """Move the uploaded bytes into the cache, as the content of the service's version.

        If `is_cached` is true, the cache already has the bytes, so only delete them from the spool.
        Keep the bytes if another pending request has sent the same ones.
        """
        state, which = self._state, (inode.ino, request.generation)
        opened = state.opened.get(inode.ino)
        async with opened.preparing if opened else nullcontext():  # waits for a running copy
            if opened is not None:
                opened.close_local()
            if state.requests.keeps(inode.ino, request.generation):
                return  # another pending request has sent the same bytes
            small = known.content if known is not None and opened is None else None
            if not is_cached and small is not None:
                is_cached = state.cache.put(inode.ino, entry.revision, small)
            if not is_cached:
                with suppress(Damaged):  # the next read fetches the content again
                    manifest = known.manifest if known else state.spool.manifest(*which)
                    await state.cache.add_file(
                        state.spool.path(*which),
                        inode.ino,
                        entry.revision,
                        request.size,
                        manifest,
                        known.taken if known else None,
                    )
            state.durable.discard(which)
            state.spool.delete(*which)
