"""Outcome of requests without an answer, determined before the next request for the inode.

A lost reply or a killed daemon leaves a pending request (`outbox.doubts`).  The service's state is
compared with the request.  If they match, the result is recorded as if the answer had arrived, also
for a file that was renamed or removed locally in the meantime.

INVARIANT: the service's answer, the end of the pending request and the end of the intent are stored
in one transaction.
"""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress

import msgspec
import trio

from zonedrive.errors import BadAnswer, Damaged, NotFound, Unavailable, Unreachable
from zonedrive.failpoint import Place, reached
from zonedrive.model import Entry
from zonedrive.remote.service import Service
from zonedrive.state.conflict_log import Conflict
from zonedrive.state.inode import NOWHERE, Inode
from zonedrive.state.intents import Intent, due_in
from zonedrive.state.invalidation import EntryGone
from zonedrive.state.local_state import Core
from zonedrive.state.pending_requests import Doubt
from zonedrive.sync import remote_binding
from zonedrive.sync.compare import Comparison
from zonedrive.sync.directory_cache import Folders
from zonedrive.sync.misplaced_versions import Elsewhere

log = logging.getLogger(__name__)

MAY_HAVE_ARRIVED = (Unreachable, Unavailable, BadAnswer)
"""Errors after which a request may have had an effect; other errors mean no effect."""


class Sent(msgspec.Struct, frozen=True):
    """Facts about the uploaded file."""

    taken: int  # allocated bytes on disk
    manifest: bytes  # see `ContentFile.manifest`
    content: bytes | None  # the bytes, if they are in memory


class Resolution:
    """Resolution of pending requests, by an answer or by looking at the service."""

    def __init__(self, core: Core, service: Service, folders: Folders) -> None:
        self._core = core
        self._service = service
        self._folders = folders
        self.comparison = Comparison(core, service)
        self._elsewhere = Elsewhere(core, service, folders, self.comparison)
        self._under_way: dict[tuple[str, str], trio.Event] = {}  # by folder id and name

    # ---- one request to one place at a time ----

    async def wait_for(self, folder: str, name: str) -> bool:
        """Wait for a running request to that folder and name; return False if none runs."""
        landed = self._under_way.get((folder, name))
        if landed is None:
            return False
        await landed.wait()
        return True

    @contextmanager
    def sending(self, doubt: Doubt) -> Iterator[None]:
        """Record a pending request and keep others for the same folder and name waiting.

        Uploads, moves and new folders have an unknown outcome from here until their answer is
        recorded.
        """
        with self._core.transaction():
            self._core.doubts.note(doubt)
        self._under_way[doubt.folder, doubt.name] = trio.Event()
        try:
            yield
        finally:
            self._under_way.pop((doubt.folder, doubt.name)).set()

    @contextmanager
    def asking(self, doubt: Doubt) -> Iterator[None]:
        """Wrap the request; an error that proves no effect ends the pending request."""
        try:
            yield
        except MAY_HAVE_ARRIVED:
            raise
        except Exception:
            self._without_effect(doubt)
            raise

    def _without_effect(self, sent: Doubt) -> None:
        doubt = self.present(sent)
        if doubt is not None:
            self._core.resolved(doubt)

    def present(self, sent: Doubt) -> Doubt | None:
        """Return the current record of the pending request, which may belong to another inode.

        The same bytes may be in two pending requests: sent as a new file, which then was renamed
        over another file, and as a version of that file.
        """
        doubts = self._core.doubts
        if doubts.get(sent.ino) == sent:
            return sent
        passed_on = msgspec.structs.replace
        return next((it for it in doubts.all() if passed_on(sent, ino=it.ino) == it), None)

    # ---- looking ----

    async def settle(self, ino: int) -> bool:
        """Determine the outcome of the inode's last request; return True if plans may change."""
        core = self._core
        doubt = core.doubts.get(ino)
        if doubt is None:
            return False
        await self.wait_for(doubt.folder, doubt.name)
        inode = core.tree.find(ino)
        if core.doubts.get(ino) != doubt:
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
        if core.doubts.get(ino) != doubt:
            return True
        if inode is not None and other is not None:
            await self._arrived_elsewhere(inode, doubt, other)
            return True
        if inode is None or found is None:
            core.resolved(doubt)
            self._show(doubt)
            if inode is not None and inode.is_new and inode.parent == NOWHERE:
                self._let_go(inode)
            return inode is not None and inode.is_new
        reached(Place.DOUBT_FOUND)
        await self.arrived(doubt, found)
        return True

    async def _locate(self, doubt: Doubt) -> None:
        """Record where the service has an entry after a move without an answer."""
        core = self._core
        try:
            entry = await self._service.entry(doubt.zone, doubt.remote_id or "")
        except NotFound:
            entry = None
        inode = core.tree.find(doubt.ino)
        if core.doubts.get(doubt.ino) != doubt:
            return
        with core.transaction():
            core.doubts.drop(doubt.ino)
            if inode is None or entry is None or inode.remote_id != doubt.remote_id:
                return
            above = doubt.folder if entry.name == doubt.name else inode.remote_parent
            core.tree.update(inode, remote_parent=entry.parent_id or above, remote_name=entry.name)
            core.tree.settled.add(inode.zone, entry.id)
            intent = core.journal.get(inode.ino)
            if intent is None or not (intent.place or intent.gone):
                self.note_place(inode)
            elif not (intent.gone or intent.parked or self._is_elsewhere(inode)):
                core.journal.done(intent, place=True)

    async def _find(self, inode: Inode, doubt: Doubt) -> Entry | None:
        """Return the entry that the request created or changed, or None."""
        core = self._core
        if doubt.remote_id is not None:
            try:
                found = await self._service.entry(doubt.zone, doubt.remote_id)
            except NotFound:
                return None
            intent = core.journal.get(inode.ino)
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
            other = core.tree.by_remote(doubt.zone, found.id)
            if other is not None and other is not inode and core.in_use(other):
                return None  # a program uses that inode, so it is a separate file
        if found.folder != inode.is_folder or found.modified_by != core.user:
            return None
        if inode.is_folder:
            return found
        same = found.size == doubt.size and await self.comparison.is_what_was_sent(doubt, found.id)
        return found if same else None

    # ---- noting ----

    async def arrived(self, sent: Doubt, entry: Entry, known: Sent | None = None) -> None:
        """Record that the service has the content as a new version, file or folder.

        `known` describes the uploaded file if it has just been read.
        """
        core = self._core
        doubt = self.present(sent)
        inode = None if doubt is None else core.tree.find(doubt.ino)
        if doubt is None or inode is None:
            return
        if doubt.remote_id is not None and inode.remote_id != doubt.remote_id:
            core.resolved(doubt)
            return
        if doubt.remote_id is not None and entry.id != doubt.remote_id:
            found = await self._find(inode, doubt)  # some services answer with a different id
            if core.doubts.get(inode.ino) != doubt:
                return
            if found is None:
                await self._arrived_elsewhere(inode, doubt, entry)
                return
            entry = found
        other = core.tree.by_remote(inode.zone, entry.id)
        if other is not None and other is not inode and core.in_use(other):
            # A listing was faster, and a program uses the inode that it created.
            self._leave_to(inode, doubt)
            return
        with core.transaction():
            core.doubts.drop(doubt.ino)
            intent = core.journal.get(inode.ino)
            self._note_version(inode, doubt, entry, intent)
            left = core.journal.get(inode.ino)
            settled = (
                doubt.bytes_ino == inode.ino
                and doubt.generation != 0
                and inode.generation == doubt.generation
                and not (left and left.generation)
            )
            bytes_go = settled and not inode.local
            if bytes_go:
                core.same_bytes(inode, entry.revision)
            self._identify(inode, doubt, entry, **({"generation": 0} if bytes_go else {}))
            if intent is not None and not intent.gone:
                self.note_place(inode)
            elif intent is None and inode.parent == NOWHERE:
                core.journal.gone(inode.ino, due_in(0))
            reached(Place.ARRIVAL_INSIDE)
        reached(Place.ARRIVED)
        opened = core.opened.get(inode.ino)
        if opened is not None and opened.session is not None:
            opened.session.base = entry.revision
        if inode.parent == NOWHERE and not self._service.can("delete", folder=inode.is_folder):
            self._let_go(inode)
        if bytes_go:
            await self._to_cache(doubt, inode, entry, known)
            reached(Place.CACHED)
        else:
            core.resolved(doubt)

    async def _arrived_elsewhere(self, inode: Inode, doubt: Doubt, entry: Entry) -> None:
        """Record that an upload for one entry became another entry with its name."""
        core = self._core
        present = await self._elsewhere.present(doubt)
        if core.doubts.get(inode.ino) != doubt:
            return
        if present is not None:
            await self._elsewhere.note(inode, doubt, entry, present)
            return
        log.warning("inode %d: deleted on the service while it was sent: a new file there has the"
                    " version", inode.ino)  # fmt: skip
        made = msgspec.structs.replace(doubt, remote_id=None)
        with core.transaction():
            core.doubts.note(made)
            core.tree.update(inode, remote_id=None, remote_parent=None, remote_name=None)
            core.journal.conflicts.add(Conflict(inode.ino, inode.ino, "", time.time_ns()))
        await self.arrived(made, entry)

    def _leave_to(self, inode: Inode, doubt: Doubt) -> None:
        """Remove the inode if another inode represents the uploaded entry."""
        core = self._core
        core.resolved(doubt)
        intent = core.journal.get(inode.ino)
        if inode.parent != NOWHERE:
            if inode.is_folder or intent is None or intent.generation != doubt.generation:
                return
            self._folders.forget(inode.parent)
            core.invalidations.put(EntryGone(inode.parent, inode.name.encode(), inode.ino))
        self._let_go(inode)

    def _note_version(
        self, inode: Inode, doubt: Doubt, entry: Entry, intent: Intent | None
    ) -> None:
        """Mark the sent content as done, and base the remaining changes on the new version.

        The remaining change may be a removal: the file that takes its place is based on this
        version, too.
        """
        journal = self._core.journal
        if intent is None:
            return
        if not intent.gone:
            if doubt.bytes_ino == inode.ino and intent.generation == doubt.generation:
                journal.done(intent, content=True)
            if inode.is_folder:
                journal.done(intent, place=True)
        left = journal.get(inode.ino)
        if left is not None and not (intent.generation and not left.generation):
            journal.rebase(inode.ino, entry.revision)

    def _identify(self, inode: Inode, doubt: Doubt, entry: Entry, **changes: object) -> None:
        """Bind the inode to the service's entry."""
        core = self._core
        remote_binding.claim(core, inode, entry.id)
        if doubt.remote_id is None:
            changes |= {
                "remote_id": entry.id,
                "remote_parent": entry.parent_id or doubt.folder,
                "remote_name": entry.name or doubt.name,
            }
        elif (doubt.folder, doubt.name) != (inode.remote_parent, inode.remote_name):
            # A coworker renamed or moved the entry: the listings will tell.
            self._folders.forget_all()
        core.tree.update(
            inode,
            revision=entry.revision,
            modified_by=entry.modified_by,
            type=entry.type,
            sync=entry.sync,
            attributes=entry.attributes,
            **changes,
        )
        core.tree.settled.add(inode.zone, entry.id)

    def _show(self, doubt: Doubt) -> None:
        """Let the next listing show the entry with that name, because it is not this client's."""
        folder = self._core.tree.by_remote(doubt.zone, doubt.folder)
        if folder is not None:
            self._folders.forget(folder.ino)

    def note_place(self, inode: Inode) -> None:
        """Schedule a move if the inode was renamed while the request was running."""
        core = self._core
        intent = core.journal.get(inode.ino)
        if inode.parent == NOWHERE or (intent is not None and intent.parked):
            return
        if self._is_elsewhere(inode):
            core.journal.place(inode.ino, due_in(0))

    def _is_elsewhere(self, inode: Inode) -> bool:
        """Return True if the local folder or name differs from the service's."""
        core = self._core
        folder = core.tree.get(inode.parent)
        return (folder.remote_id, core.remote_name(inode)) != (
            inode.remote_parent,
            inode.remote_name,
        )

    def _let_go(self, inode: Inode) -> None:
        """Forget a removed inode for which the service has nothing left to do."""
        core = self._core
        if inode.remote_id is not None:
            log.warning("a file that was removed during its upload stays on the service")
            self._folders.forget_all()
        intent = core.journal.get(inode.ino)
        with core.transaction():
            core.tree.unlink(inode)
            core.journal.drop(inode.ino)
        core.discard_bytes(inode, intent)
        core.reap(inode)

    async def _to_cache(self, doubt: Doubt, inode: Inode, entry: Entry, known: Sent | None) -> None:
        """Move the uploaded bytes into the cache, as those of the service's version."""
        core, which = self._core, (inode.ino, doubt.generation)
        opened = core.opened.get(inode.ino)
        async with opened.preparing if opened else nullcontext():  # waits for a running copy
            if opened is not None:
                opened.close_local()
            if core.doubts.keeps(inode.ino, doubt.generation):
                return  # another pending request has sent the same bytes
            if opened is not None or known is None or not self._put(inode, entry, known):
                with suppress(Damaged):  # the next read fetches the content again
                    manifest = known.manifest if known else core.spool.manifest(*which)
                    await core.cache.take(
                        core.spool.path(*which),
                        inode.ino,
                        entry.revision,
                        doubt.size,
                        manifest,
                        known.taken if known else None,
                    )
            core.spool.delete(*which)

    def _put(self, inode: Inode, entry: Entry, known: Sent) -> bool:
        """Store small content in the cache of small files; return False for other content."""
        content = known.content
        return content is not None and self._core.cache.put(inode.ino, entry.revision, content)
