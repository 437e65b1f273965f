"""Outcome of unanswered requests, which is determined before the next request for the inode.

A lost reply or a killed daemon leaves a pending request.  The service's state is compared with the
request.  If they match, the result is recorded as if the answer had arrived, also
for a file that was renamed or removed locally in the meantime.

INVARIANT: the service's answer, the end of the pending request and the end of the intent are stored
in one transaction.
"""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress

import msgspec

from zonedrive.errors import BadAnswer, Damaged, NotFound, Unavailable, Unreachable
from zonedrive.failpoint import Place, reached
from zonedrive.model import Entry
from zonedrive.remote.service import Service
from zonedrive.single_flight import Flight, SingleFlight
from zonedrive.state import remote_binding
from zonedrive.state.conflict_log import Conflict
from zonedrive.state.inode import NOWHERE, Inode
from zonedrive.state.intents import Intent, due_in
from zonedrive.state.invalidation import EntryGone
from zonedrive.state.local_state import LocalState
from zonedrive.state.pending_requests import PendingRequest
from zonedrive.sync.compare import ContentComparison
from zonedrive.sync.directory_cache import DirectoryCache
from zonedrive.sync.misplaced_versions import MisplacedVersions

log = logging.getLogger(__name__)

MAY_HAVE_ARRIVED = (Unreachable, Unavailable, BadAnswer)
"""Errors after which a request may have had an effect, unless the service turned it away.

Other errors mean no effect.
"""


class Sent(msgspec.Struct, frozen=True):
    """Facts about the uploaded file."""

    taken: int  # allocated bytes on disk
    manifest: bytes  # see `ContentFile.manifest`
    content: bytes | None  # the bytes, if they are in memory


class Reconciler:
    """Resolver of pending requests, by their answers or by the current state of the service."""

    def __init__(self, state: LocalState, service: Service, folders: DirectoryCache) -> None:
        self._state = state
        self._service = service
        self._folders = folders
        self.comparison = ContentComparison(state, service)
        self._elsewhere = MisplacedVersions(state, service, folders, self.comparison)
        self._under_way: SingleFlight[tuple[str, str], Flight] = SingleFlight()  # folder id, name

    # ---- one request to one place at a time ----

    async def wait_for(self, folder: str, name: str) -> bool:
        """Wait for a running request for that folder and name; return False if none is running."""
        return await self._under_way.wait((folder, name))

    @contextmanager
    def sending(self, doubt: PendingRequest) -> Iterator[None]:
        """Record a pending request, and block other requests for the same folder and name.

        Uploads, moves and new folders have an unknown outcome from here until their answer is
        recorded.
        """
        with self._state.transaction():
            self._state.requests.note(doubt)
        with self._under_way.flying((doubt.folder, doubt.name), Flight()):
            yield

    @contextmanager
    def asking(self, doubt: PendingRequest) -> Iterator[None]:
        """Wrap the request; an error that proves no effect ends the pending request."""
        try:
            yield
        except MAY_HAVE_ARRIVED as wrong:
            if isinstance(wrong, Unavailable) and wrong.unprocessed:
                self._without_effect(doubt)
            raise
        except Exception:
            self._without_effect(doubt)
            raise

    def _without_effect(self, sent: PendingRequest) -> None:
        doubt = self.present(sent)
        if doubt is not None:
            self._state.resolved(doubt)

    def present(self, sent: PendingRequest) -> PendingRequest | None:
        """Return the current record of a pending request, or None if it is no longer pending.

        The record may belong to another inode by now.

        The same bytes may be in two pending
        requests: in the one of a new file, which was then renamed over another file, and in the one
        of a version of that file.
        """
        doubts = self._state.requests
        if doubts.get(sent.ino) == sent:
            return sent
        passed_on = msgspec.structs.replace
        return next((it for it in doubts.all() if passed_on(sent, ino=it.ino) == it), None)

    # ---- looking ----

    async def settle(self, ino: int) -> bool:
        """Determine the outcome of the inode's last request; return True if plans may change."""
        state = self._state
        doubt = state.requests.get(ino)
        if doubt is None:
            return False
        await self.wait_for(doubt.folder, doubt.name)
        inode = state.inodes.find(ino)
        if state.requests.get(ino) != doubt:
            return True
        if doubt.is_move:
            await self._locate(doubt)
            return True
        found = None if inode is None else await self._find(inode, doubt)
        other = None
        if inode is not None and found is None and doubt.remote_id is not None:
            if await self._elsewhere.is_below_another(inode, doubt):
                return True
            other = await self._elsewhere.find(doubt)
        if state.requests.get(ino) != doubt:
            return True
        if inode is not None and other is not None:
            await self._arrived_elsewhere(inode, doubt, other)
            return True
        if inode is None or found is None:
            state.resolved(doubt)
            self._show(doubt)
            if inode is not None and inode.is_new and inode.parent == NOWHERE:
                self._let_go(inode)
            return inode is not None and inode.is_new
        reached(Place.DOUBT_FOUND)
        await self.arrived(doubt, found)
        return True

    async def _locate(self, doubt: PendingRequest) -> None:
        """Record the entry's place on the service after a move that was not answered."""
        state = self._state
        try:
            entry = await self._service.entry(doubt.zone, doubt.remote_id or "")
        except NotFound:
            entry = None
        inode = state.inodes.find(doubt.ino)
        if state.requests.get(doubt.ino) != doubt:
            return
        with state.transaction():
            state.requests.drop(doubt.ino)
            if inode is None or entry is None or inode.remote_id != doubt.remote_id:
                return
            above = doubt.folder if entry.name == doubt.name else inode.remote_parent
            state.inodes.update(
                inode, remote_parent=entry.parent_id or above, remote_name=entry.name
            )
            state.inodes.settled.add(inode.zone, entry.id)
            intent = state.intents.get(inode.ino)
            if intent is None or not (intent.place or intent.gone):
                self.note_place(inode)
            elif not (intent.gone or intent.parked or self._is_elsewhere(inode)):
                state.intents.done(intent, place=True)

    async def _find(self, inode: Inode, doubt: PendingRequest) -> Entry | None:
        """Return the entry that the request created or changed, or None."""
        state = self._state
        if doubt.remote_id is not None:
            try:
                found = await self._service.entry(doubt.zone, doubt.remote_id)
            except NotFound:
                return None
            intent = state.intents.get(inode.ino)
            known = {inode.revision} | ({intent.base} if intent is not None else set())
            if found.deleted or found.revision in known:
                return None
        else:
            entries = await self._service.listing(doubt.zone, doubt.folder)
            named = [each for each in entries if each.name == doubt.name]
            if len(named) != 1:
                return None
            found = named[0]
            if found.unsure:
                raise BadAnswer("the service does not say what it has under this name")
            other = state.inodes.by_remote(doubt.zone, found.id)
            if other is not None and other is not inode and state.in_use(other):
                return None  # a program uses that inode, so it is a separate file
        if found.folder != inode.is_folder or found.modified_by != state.user:
            return None
        if inode.is_folder:
            return found
        same = found.size == doubt.size and await self.comparison.is_what_was_sent(doubt, found.id)
        return found if same else None

    # ---- noting ----

    async def arrived(self, sent: PendingRequest, entry: Entry, known: Sent | None = None) -> None:
        """Record that the service has the content as a new version, file or folder.

        `known` describes the uploaded file if it has just been read.
        """
        state = self._state
        doubt = self.present(sent)
        inode = None if doubt is None else state.inodes.find(doubt.ino)
        if doubt is None or inode is None:
            return
        if doubt.remote_id is not None and inode.remote_id != doubt.remote_id:
            state.resolved(doubt)
            return
        if doubt.remote_id is not None and entry.id != doubt.remote_id:
            found = await self._find(inode, doubt)  # some services answer with a different id
            if state.requests.get(inode.ino) != doubt:
                return
            if found is None:
                await self._arrived_elsewhere(inode, doubt, entry)
                return
            entry = found
        other = state.inodes.by_remote(inode.zone, entry.id)
        if other is not None and other is not inode and state.in_use(other):
            # A listing was faster, and a program uses the inode that it created.
            self._leave_to(inode, doubt)
            return
        with state.transaction():
            state.requests.drop(doubt.ino)
            intent = state.intents.get(inode.ino)
            self._note_version(inode, doubt, entry, intent)
            left = state.intents.get(inode.ino)
            settled = (
                doubt.bytes_ino == inode.ino
                and doubt.generation != 0
                and inode.generation == doubt.generation
                and not (left and left.generation)
            )
            bytes_go = settled and not inode.local
            if bytes_go:
                state.same_bytes(inode, entry.revision)
            self._identify(inode, doubt, entry, **({"generation": 0} if bytes_go else {}))
            if intent is not None and not intent.gone:
                self.note_place(inode)
            elif intent is None and inode.parent == NOWHERE:
                state.intents.gone(inode.ino, due_in(0))
            reached(Place.ARRIVAL_INSIDE)
        reached(Place.ARRIVED)
        opened = state.opened.get(inode.ino)
        if opened is not None and opened.session is not None:
            opened.session.base = entry.revision
        if inode.parent == NOWHERE and not self._service.can("delete", folder=inode.is_folder):
            self._let_go(inode)
        if bytes_go:
            await self._to_cache(doubt, inode, entry, known)
            reached(Place.CACHED)
        else:
            state.resolved(doubt)

    async def _arrived_elsewhere(self, inode: Inode, doubt: PendingRequest, entry: Entry) -> None:
        """Record that the upload went to another entry of the same name."""
        state = self._state
        present = await self._elsewhere.present(doubt)
        if state.requests.get(inode.ino) != doubt:
            return
        if present is not None:
            await self._elsewhere.note(inode, doubt, entry, present)
            return
        log.warning("inode %d: deleted on the service while it was sent: a new file there has the"
                    " version", inode.ino)  # fmt: skip
        made = msgspec.structs.replace(doubt, remote_id=None)
        with state.transaction():
            state.requests.note(made)
            state.inodes.update(inode, remote_id=None, remote_parent=None, remote_name=None)
            state.intents.conflicts.add(Conflict(inode.ino, inode.ino, "", time.time_ns()))
        await self.arrived(made, entry)

    def _leave_to(self, inode: Inode, doubt: PendingRequest) -> None:
        """Remove the inode if another inode represents the uploaded entry."""
        state = self._state
        state.resolved(doubt)
        intent = state.intents.get(inode.ino)
        if inode.parent != NOWHERE:
            if inode.is_folder or intent is None or intent.generation != doubt.generation:
                return
            self._folders.forget(inode.parent)
            state.invalidations.put(EntryGone(inode.parent, inode.name.encode(), inode.ino))
        self._let_go(inode)

    def _note_version(
        self, inode: Inode, doubt: PendingRequest, entry: Entry, intent: Intent | None
    ) -> None:
        """Mark the sent content as done, and base the remaining changes on the new version.

        The remaining change may be a removal: the file that takes its place is based on this
        version, too.
        """
        journal = self._state.intents
        if intent is None:
            return
        if not intent.gone:
            if doubt.bytes_ino == inode.ino and intent.generation == doubt.generation:
                journal.done(intent, content=True)
            if inode.is_folder:
                journal.done(intent, place=True)
        left = journal.get(inode.ino)
        if left is not None and not (intent.generation and not left.generation):
            journal.set_base(inode.ino, entry.revision)

    def _identify(
        self, inode: Inode, doubt: PendingRequest, entry: Entry, **changes: object
    ) -> None:
        """Bind the inode to the service's entry."""
        state = self._state
        remote_binding.claim(state, inode, entry.id)
        if doubt.remote_id is None:
            changes |= {
                "remote_id": entry.id,
                "remote_parent": entry.parent_id or doubt.folder,
                "remote_name": entry.name or doubt.name,
            }
        elif (doubt.folder, doubt.name) != (inode.remote_parent, inode.remote_name):
            # A coworker renamed or moved the entry: the listings will tell.
            self._folders.forget_all()
        state.inodes.update(
            inode,
            revision=entry.revision,
            modified_by=entry.modified_by,
            type=entry.type,
            sync=entry.sync,
            attributes=entry.attributes,
            **changes,
        )
        state.inodes.settled.add(inode.zone, entry.id)

    def _show(self, doubt: PendingRequest) -> None:
        """Mark the listing as out of date: the entry with that name is not this client's."""
        folder = self._state.inodes.by_remote(doubt.zone, doubt.folder)
        if folder is not None:
            self._folders.forget(folder.ino)

    def note_place(self, inode: Inode) -> None:
        """Schedule a move if the inode was renamed while the request was running."""
        state = self._state
        intent = state.intents.get(inode.ino)
        if inode.parent == NOWHERE or (intent is not None and intent.parked):
            return
        if self._is_elsewhere(inode):
            state.intents.place(inode.ino, due_in(0))

    def _is_elsewhere(self, inode: Inode) -> bool:
        """Return True if the local folder or name differs from the service's."""
        state = self._state
        folder = state.inodes.get(inode.parent)
        return (folder.remote_id, state.remote_name(inode)) != (
            inode.remote_parent,
            inode.remote_name,
        )

    def _let_go(self, inode: Inode) -> None:
        """Forget a removed inode that needs no further request to the service."""
        state = self._state
        if inode.remote_id is not None:
            log.warning("a file that was removed during its upload stays on the service")
            self._folders.forget_all()
        intent = state.intents.get(inode.ino)
        with state.transaction():
            state.inodes.unlink(inode)
            state.intents.drop(inode.ino)
        state.discard_bytes(inode, intent)
        state.release_if_unreferenced(inode)

    async def _to_cache(
        self, doubt: PendingRequest, inode: Inode, entry: Entry, known: Sent | None
    ) -> None:
        """Move the uploaded bytes into the cache, as the content of the service's version."""
        state, which = self._state, (inode.ino, doubt.generation)
        opened = state.opened.get(inode.ino)
        async with opened.preparing if opened else nullcontext():  # waits for a running copy
            if opened is not None:
                opened.close_local()
            if state.requests.keeps(inode.ino, doubt.generation):
                return  # another pending request has sent the same bytes
            if opened is not None or known is None or not self._put(inode, entry, known):
                with suppress(Damaged):  # the next read fetches the content again
                    manifest = known.manifest if known else state.spool.manifest(*which)
                    await state.cache.take(
                        state.spool.path(*which),
                        inode.ino,
                        entry.revision,
                        doubt.size,
                        manifest,
                        known.taken if known else None,
                    )
            state.spool.delete(*which)

    def _put(self, inode: Inode, entry: Entry, known: Sent) -> bool:
        """Store small content in the cache of small files; return False for other content."""
        content = known.content
        return content is not None and self._state.cache.put(inode.ino, entry.revision, content)
