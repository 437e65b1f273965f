"""Uploads of content: the conflict check, the transfer and the recording of the response.

A save that changed no byte is not sent, unless the setting `unchanged` is "version". The save is
recorded as if an upload had returned the service's current version.

INVARIANT: before an upload, the service's current version is compared with the base of the edit, so
a coworker's version is never overwritten.
INVARIANT: a pending request is recorded before its upload starts; see `reconcile`.
"""

import logging
import time
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, closing
from enum import Enum, auto

import msgspec
import trio

from zonedrive.content.content_file import ContentFile
from zonedrive.errors import (
    AmbiguousName,
    Changed,
    Damaged,
    NotFound,
    RemoteError,
    StoreError,
    UnusableReply,
    during,
)
from zonedrive.failpoint import Place, reached
from zonedrive.model import Entry, Revision, differ_in_precision
from zonedrive.remote.service import Service
from zonedrive.remote.transfer import Cancelled
from zonedrive.snapshot import Stale
from zonedrive.state import conflicts, remote_binding, remote_operations
from zonedrive.state.inode import NOWHERE, Inode, Local
from zonedrive.state.intents import Failure, Intent
from zonedrive.state.local_state import LocalState
from zonedrive.state.names import is_aside, may_show, safe
from zonedrive.state.pending_requests import PendingRequest
from zonedrive.sync.compare import current_entry, require_deletion
from zonedrive.sync.directory_cache import DirectoryCache
from zonedrive.sync.reconcile import Reconciler, Sent
from zonedrive.transfer_slots import TransferSlot

log = logging.getLogger(__name__)

# Age at which a listing no longer shows which names are free, in seconds and in multiples of the
# duration of its request. A coworker's new file of the same name can stay unseen for that time.
# (The service keeps all versions, and such a window exists between check and upload in any case.)
RECENT_S = 1.0
CALM = 5.0
SECOND_NS = 1_000_000_000
PIECE = 512 << 10  # bytes per read from the spool and per write to the connection
LEAST_PIECE = 4096
LOOKS_ASIDE = 6  # checks of a file with a temporary name before the upload is done anyway
TINY = 128 << 10  # bytes; a body up to this size is sent without a thread, which would cost more
STEPS = 8  # pieces per second if the upload speed is limited
SAVE_AGAIN = "save the file again, or delete it"
KEPT_HERE = "the file is kept on this computer; rename it, or see 'zonedrive doctor'"


class Decision(Enum):
    """Decision about local content, based on the service's current entry."""

    SEND = auto()  # no other version was added since
    COMPARE = auto()  # the service has another version of equal size: possibly the same content
    SAME = auto()  # that version has the same content
    UNCHANGED = auto()  # the save has changed no byte of the current version
    REBASE = auto()  # the base of the edit is the current version, under another revision
    CONFLICT = auto()  # a coworker's version was added since: keep both
    LOST = auto()  # the file was deleted on the service: create it again and report that


def decide(size: int, found: Entry | None, *, is_new: bool, base: Revision | None) -> Decision:
    """Return the decision about the local content of a file with `size` bytes.

    `base` is the version that the edit is based on. `found` is the service's current entry of the
    file or, for a new file, the entry with the same name.
    """
    if found is None:
        return Decision.SEND if is_new else Decision.LOST
    if not is_new and found.revision == base:
        return Decision.SEND
    if is_new and (found.folder or found.unsure):
        return Decision.CONFLICT
    return Decision.COMPARE if found.size == size else Decision.CONFLICT


class Body:
    """Body of an upload: one generation of a file's local bytes.

    Each iteration reads the bytes from the start.
    """

    def __init__(self, file: ContentFile, size: int, limit: int) -> None:
        """Create the body; `limit` is in bytes per second, or 0 for no limit."""
        self._file = file
        self._size = size
        self._piece = max(LEAST_PIECE, min(PIECE, limit // STEPS)) if limit else PIECE
        self.sent = 0  # bytes that have passed the speed limit and were accepted by the connection

    def __iter__(self) -> Iterator[bytes]:
        self.sent, turn = 0, TransferSlot()
        memory = memoryview(bytearray(min(self._piece, self._size)))
        try:
            while self.sent < self._size:
                count = self._file.read_into(self.sent, memory[: self._size - self.sent])
                if not count:
                    raise StoreError("bytes to upload are missing", remedy=SAVE_AGAIN)
                yield bytes(memory[:count])
                self.sent += count  # the request for the next piece shows that this piece was sent
                reached(Place.BODY_BEGUN)
                turn.advance(count)
        finally:
            turn.end()


class Uploader:
    """Uploader of local content, as new versions or new files."""

    def __init__(
        self, state: LocalState, service: Service, folders: DirectoryCache, reconciler: Reconciler
    ) -> None:
        self._state = state
        self._service = service
        self._folders = folders
        self._reconciler = reconciler
        self._comparer = reconciler.comparer
        self._bodies: dict[int, Body] = {}

    def sent(self, ino: int) -> int:
        """Return the number of bytes that the inode's running upload has sent so far.

        The result is 0 if no upload is running, or if a small file is sent in one piece.
        """
        body = self._bodies.get(ino)
        return body.sent if body else 0

    async def upload(self, intent: Intent, inode: Inode) -> None:
        """Upload the intent's content as the next version or as a new file.

        After a crash, first check the bytes to upload. Raises Damaged if they are damaged or
        incomplete.
        """
        reached(Place.UPLOAD_TAKEN)
        state, which = self._state, (intent.ino, intent.generation)
        with ExitStack() as stack:
            try:
                file = stack.enter_context(closing(state.spool.open(*which)))
                if file.size < intent.size:
                    raise Damaged("bytes to upload are missing")
                if which in state.unverified_after_crash:
                    await trio.to_thread.run_sync(lambda: deque(file.blocks(), maxlen=0))
                    state.unverified_after_crash.discard(which)
            except FileNotFoundError as wrong:
                state.intents.content_snapshot(intent).require()
                raise StoreError("the bytes to upload are missing", remedy=SAVE_AGAIN) from wrong
            except Damaged as wrong:
                raise _damaged(wrong) from wrong
            await self._upload(intent, inode, file)

    async def _upload(self, intent: Intent, inode: Inode, file: ContentFile) -> None:
        """Decide whether to upload the file or to make a conflict copy, and carry out the decision.

        The decision compares the service's version with the base of the edit. Raises Stale if the
        intent has changed meanwhile, for example by a rename. After such a change, this client's
        own version could be taken for a coworker's version.
        """
        state, planned = self._state, self._state.intents.snapshot(intent)
        if inode.is_new:
            above = state.inodes.get(inode.parent).remote_id or ""
            if await self._reconciler.wait_for(above, state.remote_name(inode)):
                return
            folder_id, name, found = await self._look_for_name(intent, inode)
        else:
            place = self._folders.following.place(inode)
            found = await self._look_at(inode) or await self._under_another_id(intent, inode)
            folder_id = (found.parent_id if found else "") or inode.remote_parent or ""
            name = (found.name or inode.remote_name or "") if found else ""
            if is_aside(name):
                looks = state.intents.count_failure(intent, Failure.TEMPORARY_NAME)
                if looks <= LOOKS_ASIDE:
                    raise Changed("the file has a temporary name while two files exchange names")
            if found is not None:
                try:
                    await self._folders.following.follow(inode, found, place)
                except NotFound as missing:
                    # A coworker has moved the entry to a folder, and deleted the folder. Some
                    # services do not mark the content of a deleted folder as deleted.
                    await require_deletion(self._service, inode.zone, missing)
                    found = None
                else:
                    await self._require_only_one(inode, folder_id, name)
        planned.require()
        request = PendingRequest(
            ino=inode.ino,
            bytes_ino=inode.ino,
            generation=intent.generation,
            size=intent.size,
            zone=inode.zone,
            folder=folder_id,
            name=name,
            remote_id=inode.remote_id,
        )
        decision = await self._decide(intent, inode, file, found)
        planned.require()
        match decision, found:
            case Decision.SEND, _:
                if not await self._reconciler.wait_for(folder_id, name):
                    await self._send(intent, inode, request, file)
            case Decision.LOST, _:
                self._recreate(inode)
            case Decision.REBASE, Entry():
                remote_operations.record_revision(state, inode, intent, found.revision)
            case Decision.SAME | Decision.UNCHANGED, Entry():
                is_unchanged = decision is Decision.UNCHANGED
                is_cached = is_unchanged and state.cache.is_complete(inode.ino, found.revision)
                state.record_request(request)
                await self._reconciler.arrived(request, found, is_cached=is_cached)
            case Decision.CONFLICT, Entry():
                if not await self._reconciler.was_sent(inode, intent, request, found):
                    self._keep_both(inode, found)
                    await self._reconciler.make_durable()

    async def _decide(
        self, intent: Intent, inode: Inode, file: ContentFile, found: Entry | None
    ) -> Decision:
        """Return the decision about the local content in `file`, after the necessary comparisons.

        `found` is the service's current entry; see `decide`. Raises Stale if the intent changes.
        """
        decision = decide(intent.size, found, is_new=inode.is_new, base=intent.base)
        if found is not None and decision is not Decision.SEND and not inode.is_new:
            is_base = await self._comparer.is_known(intent, inode, intent.base, found)
            self._state.intents.snapshot(intent).require()
            if is_base:
                return Decision.REBASE
        reached(Place.UPLOAD_JUDGED)
        if found is None or decision is Decision.CONFLICT or found.size != intent.size:
            return decision
        if decision is Decision.COMPARE:
            is_same = await self._comparer.is_same(intent, file, found)
            return Decision.SAME if is_same else Decision.CONFLICT
        is_unchanged = await self._comparer.is_unchanged(intent, inode, file, found)
        return Decision.UNCHANGED if is_unchanged else Decision.SEND

    def _keep_both(self, inode: Inode, found: Entry) -> None:
        """Keep both versions: turn the local version into a conflict copy.

        The coworker's version `found` keeps the original name. Raises Changed while a program is
        writing or about to write to the file, or while a local rename of the file is in progress.
        """
        session, now = self._state.session(inode.ino), self._state.intents.get(inode.ino)
        is_opening = bool(self._state.local(inode.ino) & Local.OPENING)
        is_held = now is not None and now.held
        if is_opening or is_held or (session is not None and not session.frozen):
            raise Changed("a coworker saved a version while a program writes to the file")
        if inode.is_new:
            conflicts.rename_local_aside(self._state, inode, found)
        else:
            conflicts.keep_both_versions(self._state, inode, found)

    async def _send(
        self, intent: Intent, inode: Inode, request: PendingRequest, file: ContentFile
    ) -> None:
        """Send the bytes and record the response.

        Raises Stale if the intent or the inode's remote id has changed, StoreError if a policy
        forbids the upload, and Changed if the folder has just been deleted on the service.
        """
        reconciler = self._reconciler
        names = request.name, self._state.remote_name(inode)
        if any(map(self._state.is_never_uploaded, names)):
            raise StoreError("the organization's policy forbids this upload", remedy=KEPT_HERE)
        self._state.intents.content_snapshot(intent).require()
        if inode.remote_id != request.remote_id:
            raise Stale
        with reconciler.sending(request):
            reached(Place.REQUEST_NOTED)
            try:
                with reconciler.asking(request):
                    entry, content = await self._transfer(intent, inode, request, file)
            except Cancelled:
                return
            except NotFound as missing:
                if await current_entry(self._service, request.zone, request.folder) is None:
                    await self._release_from_deleted_folder(intent, inode, request)
                    raise Changed("the folder was deleted on the service") from missing
                raise
            reached(Place.REPLY_CAME)
            if entry.size != request.size:
                await self._note_other_size(request, entry)
                sent = request.size
                stored = f"the service stored {entry.size} bytes instead of {sent}"
                raise UnusableReply(during("uploading", stored))
            if not (entry.modified_ns % SECOND_NS and entry.modified_by):
                entry = await self._precise(request, entry, file)
            # If the response cannot be recorded, the pending request stays.
            known = Sent(file.allocated, file.manifest(final=True), content)
            await reconciler.arrived(request, entry, known if file.size == intent.size else None)

    async def _release_from_deleted_folder(
        self, intent: Intent, inode: Inode, request: PendingRequest
    ) -> None:
        """Turn the file into a new file if its entry is gone or in the request's deleted folder.

        Some services mark only the folder as deleted, and still return its entries. If the returned
        entry has a different folder or none, do nothing: a coworker may have moved the entry.
        """
        if request.remote_id is None:
            return
        planned = self._state.intents.snapshot(intent)
        found = await self._look_at(inode)
        if (found is None or found.parent_id == request.folder) and planned.is_current:
            self._recreate(inode)

    def _recreate(self, inode: Inode) -> None:
        log.warning("inode %d: deleted on the service while edited: uploaded as new", inode.ino)
        conflicts.recreate(self._state, inode)

    async def _note_other_size(self, request: PendingRequest, entry: Entry) -> None:
        """Handle an upload's response `entry` whose size differs from the size of the sent bytes.

        If the current version is by this user and has the size of `entry`, the service has changed
        the sent bytes. Then record this version as known, so that the next attempt sends the bytes
        as the next version. Otherwise leave the request pending. Also leave the request pending if
        an older version has the sent bytes, because another machine of this user may then have
        saved the current version.
        """
        state = self._state
        found = await current_entry(self._service, request.zone, entry.id)
        if found is None or found.size != entry.size or not state.is_own(found.modified_by):
            return
        if await self._reconciler.version_below(request, found.id) is not None:
            return
        now = state.requests.present(request)
        inode = None if now is None else state.inodes.find(now.ino)
        if now is None or inode is None or now.remote_id not in (None, entry.id):
            return
        if state.inodes.by_remote(inode.zone, entry.id) in (None, inode):
            without_content = msgspec.structs.replace(now, generation=0)
            remote_operations.record_arrival(state, inode, without_content, found)

    async def _precise(self, request: PendingRequest, entry: Entry, file: ContentFile) -> Entry:
        """Return `entry`, the answer to an upload, with the revision that later answers will have.

        `entry` may have the time in whole seconds, or no time or author. The bytes are compared,
        because the version that is found may come from another machine of this user, which saved it
        in the same second. If the time or the author is missing, any user may have saved that
        version. If the comparison fails or is not possible, return `entry`; a later save is then
        compared with the cached version.
        """
        is_partial = not (entry.modified_ns and entry.modified_by)
        try:
            found = await current_entry(self._service, request.zone, entry.id)
            if found is None or found.revision == entry.revision or found.size != request.size:
                return entry
            if not (is_partial or differ_in_precision(entry.revision, found.revision)):
                return entry
            if not await self._comparer.same_bytes(file, found.size, request.zone, entry.id):
                return entry
        except (Changed, RemoteError, StoreError):
            return entry
        return msgspec.structs.replace(
            entry,
            revision=found.revision,
            modified_ns=found.modified_ns,
            modified_by=found.modified_by,
        )

    async def _transfer(
        self, intent: Intent, inode: Inode, request: PendingRequest, file: ContentFile
    ) -> tuple[Entry, bytes | None]:
        """Send the bytes; return the new entry, and the bytes if they are in memory, else None.

        Raises Cancelled if the upload is interrupted, for example by a pause or a newer change.
        """
        state = self._state
        body = Body(file, intent.size, state.settings.upload_limit)
        content, pending = state.intents.content_snapshot(intent), state.requests.snapshot(request)

        def cancelled() -> bool:
            is_current = content.is_current and pending.is_current
            put_back = inode.ino in state.cancelled_uploads or inode.ino in state.paused_uploads
            return put_back or not is_current

        try:
            if intent.size <= TINY and not state.settings.upload_limit:
                data = b"".join(body)
                entry = await self._service.upload(inode.zone, request.folder, request.name, data)
                return entry, data
            self._bodies[inode.ino] = body
            entry = await trio.to_thread.run_sync(
                lambda: self._service.transfer.upload(
                    inode.zone, request.folder, request.name, body, intent.size, cancelled=cancelled
                )
            )
            return entry, None
        except Damaged as wrong:  # found during the transfer: the service got an incomplete body
            raise _damaged(wrong) from wrong
        finally:
            self._bodies.pop(inode.ino, None)

    async def _require_only_one(self, inode: Inode, folder_id: str, name: str) -> None:
        """Check that no other entry in the remote folder has the name.

        An upload identifies its file by name, so two entries with one name are ambiguous. Raises
        AmbiguousName if another entry has the name. Raises Changed if the file was moved on the
        service, or if a local change is about to move or delete the other entry.
        """
        state = self._state
        folder = state.inodes.by_remote(inode.zone, folder_id)
        if folder is None or folder.parent == NOWHERE:
            return
        if folder.listed and not await self._others_named(inode, folder, name):
            return
        await self._folders.refresh(folder, time.monotonic_ns())  # entries may have been renamed
        others = await self._others_staying(inode, folder, name)
        for each in others:
            # In this order, because the name may pass from the other inode to `inode`.
            for one in (each, inode):
                found = await self._look_at(one)
                if found is None or not _is_at(found, folder_id, name):
                    break
            else:
                raise AmbiguousName(
                    "the folder has two entries of this name on the service",
                    remedy="rename one of them there",
                )
            if one is inode:
                raise Changed("the file was moved on the service")

    async def _others_staying(self, inode: Inode, folder: Inode, name: str) -> list[Inode]:
        """Return the other inodes with this remote name, as `_others_named` does.

        Raises Changed if one of these inodes is to be moved or deleted. A parked file (see
        `planner`) causes this error only if `inode` is a new file, because a new file takes over
        the entry of the parked file.
        """
        others = await self._others_named(inode, folder, name)
        for each in others:
            local = self._state.local(each.ino)
            is_staying = local & Local.PARKED and not inode.is_new
            if local & (Local.PLACE | Local.GONE) and not is_staying:
                raise Changed("another file still has this name and is moved first")
        return others

    async def _others_named(self, inode: Inode, folder: Inode, name: str) -> list[Inode]:
        """Return the other inodes with this name in the remote folder, wherever they are locally.

        A coworker may have given the name to an entry that was moved or removed locally.
        """
        inodes, fits = self._state.inodes, may_show(name)
        if folder.parent == NOWHERE:
            return []
        for _ in inodes.loading(folder.ino):
            await trio.lowlevel.checkpoint()
        # Inodes whose local name may have the suffix `~` and hash, and the inode without a suffix.
        inos = {ino for local, ino in inodes.marked(folder.ino).items() if fits(local)}
        inos.add(inodes.children(folder.ino).get(safe(name), inode.ino))
        inos |= {each.ino for each in self._state.leaving.with_remote_name(folder, name)}
        place = folder.remote_id, name
        moved = {ino for ino, shown in self._state.moved_entries.items() if shown == place}
        return [
            each
            for each in inodes.get_all((inos | moved) - {inode.ino})
            if each.zone == folder.zone
            and (each.ino in moved or (each.remote_parent, each.remote_name) == place)
            and each.remote_id is not None
        ]

    async def _look_at(self, inode: Inode) -> Entry | None:
        return await current_entry(self._service, inode.zone, inode.entry_id)

    async def _under_another_id(self, intent: Intent, inode: Inode) -> Entry | None:
        """Find the entry of a file whose inode has a wrong remote id, and correct that id.

        Return the entry, or None. The entry is identified by its name in the remote folder, and by
        the revision that the edit is based on.
        """
        folder, name = inode.remote_parent or "", inode.remote_name
        planned = self._state.intents.snapshot(intent)
        if not intent.base or not folder:
            return None
        try:
            entries = await self._service.listing(inode.zone, folder)
        except NotFound as missing:
            await require_deletion(self._service, inode.zone, missing)
            return None
        found = [one for one in entries if one.name == name and one.revision == intent.base]
        planned.require()
        if len(found) != 1 or found[0].folder:
            return None
        log.warning("inode %d: the id in the listing differs from the id in the reply", inode.ino)
        remote_binding.adopt_id(self._state, inode, found[0].id)
        return found[0]

    async def _look_for_name(self, intent: Intent, inode: Inode) -> tuple[str, str, Entry | None]:
        """Return (folder id, name, the service's entry with this name or None) for a new file.

        The folder is listed again unless a recent listing was requested after the step became due.
        A step becomes due after the newest local change, and again after an attempt whose outcome
        is unknown. One listing serves all waiting files.

        Raises NotFound if the service does not have the folder. Raises Changed instead if a rename
        of the folder, or of a folder above it, was pending at the start or is pending now, because
        the rename must run first. If such a rename has failed, raises NotFound.
        """
        state = self._state
        folder = state.inodes.get(inode.parent)
        name = state.remote_name(inode)
        since_due_ns = time.time_ns() - intent.due_ns
        recent_ns = int(max(RECENT_S, CALM * self._folders.took_s(folder.ino)) * 1e9)
        age_ns = max(0, min(since_due_ns, recent_ns))
        moving = self._renames_above(folder)
        try:
            await self._folders.refresh(folder, time.monotonic_ns() - age_ns)
        except NotFound as missing:
            await require_deletion(self._service, folder.zone, missing)
            waiting = moving or self._renames_above(folder)
            if waiting and not any(each.failed for each in waiting):
                raise Changed("the parent folder is gone, and its rename comes first") from missing
            raise
        folder_id = self._folders.require_remote_id(folder)
        found = self._folders.hidden(folder.ino, name) or await self._known_by(inode, folder, name)
        return folder_id, name, found

    def _renames_above(self, folder: Inode) -> list[Intent]:
        """Return the pending renames of a folder and of the folders above it."""
        state = self._state
        above = (state.intents.get(each.ino) for each in state.inodes.and_above(folder))
        return [each for each in above if each is not None and each.place]

    async def _known_by(self, inode: Inode, folder: Inode, name: str) -> Entry | None:
        """Return the remote entry `name` in `folder` if another inode represents it, or None.

        That inode may have another name or folder locally.
        """
        for other in await self._others_staying(inode, folder, name):
            found = await self._look_at(other)
            if found is not None and _is_at(found, folder.entry_id, name):
                return found
        return None


def _is_at(found: Entry, folder_id: str, name: str) -> bool:
    """Return True if an entry has this name and may be in this remote folder.

    If the answer does not tell the entry's folder, only the name counts: the last listing has shown
    the entry in the folder.
    """
    return found.name == name and found.parent_id in ("", folder_id)


def _damaged(wrong: Damaged) -> Damaged:
    return Damaged(f"the bytes to upload are damaged ({wrong.message})", remedy=SAVE_AGAIN)
