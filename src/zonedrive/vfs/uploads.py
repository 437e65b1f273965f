"""Content on its way: looked at first, sent, and its answer noted.

INVARIANT: before content is sent, the service's present version is compared with the one the
edit began from; so neither a lost reply nor somebody else's version is ever sent over.
INVARIANT: an answer of the service and the end of its intent are one transaction.
"""

import hashlib
import logging
import time
from collections.abc import Iterator

import trio
from cachetools import LRUCache

from zonedrive.content.file import ContentFile
from zonedrive.errors import AlreadyExists, NotFound, StoreError, Unreachable
from zonedrive.model import Entry
from zonedrive.outbox.journal import Intent
from zonedrive.outbox.verdict import Verdict, on_new_name, on_version
from zonedrive.remote.transfer import Cancelled
from zonedrive.tree.inode import NOWHERE, Inode, Kind
from zonedrive.vfs.conflicts import Conflicts
from zonedrive.vfs.core import Core
from zonedrive.vfs.folders import Folders

log = logging.getLogger(__name__)

PIECE = 1 << 20  # bytes read from the spool, and handed to the connection, at a time


class Body:
    """The bytes of one generation on their way; may be read from the start again."""

    def __init__(self, file: ContentFile, size: int) -> None:
        self._file = file
        self._size = size
        self.sent = 0  # bytes handed over so far

    def __iter__(self) -> Iterator[bytes]:
        self.sent = 0
        while self.sent < self._size:
            piece = self._file.pread(self.sent, min(PIECE, self._size - self.sent))
            if not piece:
                raise StoreError("outgoing bytes are missing")
            self.sent += len(piece)
            yield piece


def digest(file: ContentFile) -> bytes:
    """SHA-256 of a content.  Blocking."""
    known = hashlib.sha256()
    for piece in file.blocks():
        known.update(piece)
    return known.digest()


class Uploads:
    """Sends generations as versions."""

    def __init__(self, core: Core, folders: Folders, conflicts: Conflicts) -> None:
        self._core = core
        self._folders = folders
        self._conflicts = conflicts
        self._bodies: dict[int, Body] = {}
        self._places: dict[tuple[str, str], trio.Event] = {}  # folder id and name, under way
        # Digest of what may have arrived there: of the newest upload without an answer.
        self._doubts: LRUCache[tuple[str, str], bytes] = LRUCache(1000)

    def sent(self, ino: int) -> int:
        """Bytes of an upload under way that have been handed over."""
        body = self._bodies.get(ino)
        return body.sent if body else 0

    async def upload(self, intent: Intent, inode: Inode) -> None:
        """Make the intent's content the next version, or a new file."""
        identity = inode.remote_id
        if inode.is_new and await self._overtook(inode):
            return
        if inode.is_new:
            folder_id, name, found = await self._look_for_name(intent, inode)
            verdict = on_new_name(intent.size, found)
        else:
            found = await self._look_at(inode)
            verdict = on_version(intent.base, intent.size, found)
            folder_id = (found.parent_id if found else "") or inode.remote_parent or ""
            name = (found.name or inode.remote_name or "") if found else ""
            self._require_only_one(inode, name)
        place = (folder_id, name)
        if verdict is Verdict.COMPARE:
            assert found is not None
            if await self._same_content(inode, intent, found):
                await self._sent(intent, inode, found, identity)
                return
            verdict = Verdict.CONFLICT
        if verdict is Verdict.CONFLICT and place in self._doubts:
            assert found is not None
            if await self._was_ours(inode, found, place):
                self._follow(inode, found)
                return
        if verdict is Verdict.LOST:
            self._conflicts.make_anew(intent, inode)
        elif verdict is Verdict.CONFLICT:
            assert found is not None
            self._conflicts.set_aside(intent, inode, found)
        else:
            if place in self._places:  # another one was faster; look again after it
                await self._places[place].wait()
                return
            landed = self._places[place] = trio.Event()
            try:
                entry = await self._send(intent, inode, place, identity)
            except Cancelled:
                return
            finally:
                del self._places[place]
                landed.set()
            await self._sent(intent, inode, entry, identity)

    async def _overtook(self, inode: Inode) -> bool:
        """Whether another upload to the same name was under way: see first what came of it."""
        folder = self._core.tree.get(inode.parent)
        landed = self._places.get((folder.remote_id or "", self._core.remote_name(inode)))
        if landed is not None:
            await landed.wait()
        return landed is not None

    async def _send(
        self, intent: Intent, inode: Inode, place: tuple[str, str], identity: str | None
    ) -> Entry:
        core = self._core
        file = core.spool.open(inode.ino, intent.generation)
        body = self._bodies[inode.ino] = Body(file, intent.size)

        def cancelled() -> bool:
            return (
                core.outdated(intent)
                or inode.remote_id != identity
                or inode.ino in core.called_back
            )

        try:
            return await trio.to_thread.run_sync(
                lambda: core.service.transfer.upload(
                    inode.zone, *place, body, intent.size, cancelled=cancelled
                )
            )
        except Unreachable:
            # It may have arrived.  Should these bytes be replaced before we can look, they are
            # still to be recognised as ours.
            self._doubts[place] = await trio.to_thread.run_sync(digest, file)
            raise
        finally:
            del self._bodies[inode.ino]
            file.close()

    def _require_only_one(self, inode: Inode, name: str) -> None:
        """A version is sent under its file's name, so the folder may have that name only once."""
        siblings = self._core.tree.inodes_in(inode.parent) if inode.parent != NOWHERE else []
        if any(
            each is not inode and each.remote_name == name and each.remote_id is not None
            for each in siblings
        ):
            raise AlreadyExists(
                "the service has two entries of this name in one folder",
                remedy="rename one of them there",
            )

    async def _look_at(self, inode: Inode) -> Entry | None:
        """The file as the service has it now."""
        try:
            entry = await self._core.service.entry(inode.zone, inode.remote_id or "")
        except NotFound:
            return None
        return None if entry.deleted else entry

    async def _look_for_name(self, intent: Intent, inode: Inode) -> tuple[str, str, Entry | None]:
        """(folder id, name, what the service has there) for a new file.

        The listing was asked for after the step fell due: so after the newest change, and after
        an earlier try whose end is unknown.  One listing serves all files that wait.
        """
        core = self._core
        folder = core.tree.get(inode.parent)
        if folder.remote_id is None:
            raise StoreError("its folder is not on the service yet")
        name = core.remote_name(inode)
        since_due = max(0, time.time_ns() - intent.due_ns)
        await self._folders.refresh(folder, time.monotonic_ns() - since_due)
        return folder.remote_id, name, self._folders.hidden(folder.ino, name)

    async def _same_content(self, inode: Inode, intent: Intent, found: Entry) -> bool:
        """Whether the service's version is what we were about to send (a lost reply)."""
        core = self._core
        file = core.spool.open(inode.ino, intent.generation)

        def compare() -> bool:
            offset = 0
            with core.service.transfer.download(inode.zone, found.id) as download:
                for piece in download:
                    if file.pread(offset, len(piece)) != piece:
                        return False
                    offset += len(piece)
            return offset == intent.size

        try:
            return await trio.to_thread.run_sync(compare)
        finally:
            file.close()

    async def _was_ours(self, inode: Inode, found: Entry, place: tuple[str, str]) -> bool:
        """Whether the service's version is what an upload without an answer was about."""
        core = self._core
        doubt = self._doubts.pop(place)
        if found.folder or found.modified_by != core.user:
            return False

        def theirs() -> bytes:
            known = hashlib.sha256()
            with core.service.transfer.download(inode.zone, found.id) as download:
                for piece in download:
                    known.update(piece)
            return known.digest()

        return await trio.to_thread.run_sync(theirs) == doubt

    def _follow(self, inode: Inode, found: Entry) -> None:
        """What is to be sent follows the version that arrived without our knowing."""
        core = self._core
        with core.transaction():
            core.claim(inode, found.id)
            core.tree.update(
                inode,
                remote_id=found.id,
                remote_parent=found.parent_id or inode.remote_parent,
                remote_name=found.name,
                revision=found.revision,
            )
            core.tree.settle(inode.zone, found.id)
            core.journal.rebase(inode.ino, found.revision)
            self._note_place(inode)
        opened = core.opened.get(inode.ino)
        if opened is not None and opened.session is not None:
            opened.session.base = found.revision

    async def _sent(self, intent: Intent, inode: Inode, entry: Entry, identity: str | None) -> None:
        """The service has the generation as its newest version.

        `identity`: the entry the inode stood for when the upload began (None: a new one).
        """
        core = self._core
        if inode.remote_id != identity or (inode.parent == NOWHERE and inode.is_new):
            if identity is None:
                self._delete_stray(inode, entry)
            return
        with core.transaction():
            core.claim(inode, entry.id)
            core.tree.update(
                inode,
                remote_id=entry.id,
                remote_parent=entry.parent_id or inode.remote_parent,
                remote_name=entry.name or core.remote_name(inode),
                revision=entry.revision,
                modified_by=entry.modified_by,
                type=entry.type,
                sync=entry.sync,
                attributes=entry.attributes,
            )
            core.tree.settle(inode.zone, entry.id)
            newest = core.journal.get(inode.ino)
            if newest is not None and not newest.gone:
                core.journal.rebase(inode.ino, entry.revision)
                core.journal.done(newest if newest.seq == intent.seq else intent, content=True)
                self._note_place(inode)
            left = core.journal.get(inode.ino)
            settled = inode.generation == intent.generation and not (left and left.generation)
            if settled:
                core.tree.update(inode, generation=0)
        opened = core.opened.get(inode.ino)
        if opened is not None and opened.session is not None:
            opened.session.base = entry.revision
        if settled and opened is not None:
            async with opened.preparing:  # nobody is copying these bytes just now
                await self._to_cache(intent, inode, entry)
        elif settled:
            await self._to_cache(intent, inode, entry)
        elif inode.generation != intent.generation:
            core.spool.delete(inode.ino, intent.generation)

    async def _to_cache(self, intent: Intent, inode: Inode, entry: Entry) -> None:
        """The bytes that were sent are those of the service's version: read them from here."""
        core = self._core
        opened = core.opened.get(inode.ino)
        if opened is not None:
            opened.close_local()
        path = core.spool.path(inode.ino, intent.generation)
        await core.cache.take(path, inode.ino, entry.revision, intent.size)

    def _note_place(self, inode: Inode) -> None:
        """Renamed while its content was under way: that is still to be told."""
        core = self._core
        if inode.parent == NOWHERE:
            core.journal.gone(inode.ino, core.due())
            return
        folder = core.tree.get(inode.parent)
        if folder.remote_id != inode.remote_parent or core.remote_name(inode) != inode.remote_name:
            core.journal.place(inode.ino, core.due())

    def _delete_stray(self, inode: Inode, entry: Entry) -> None:
        """Removed, or renamed over another, while it was on its way: remove it there, too."""
        core = self._core
        if not core.service.can("delete"):
            log.warning("a file that was removed during its upload stays on the service")
            return
        with core.transaction():
            core.claim(inode, entry.id)
            ghost = core.tree.add(
                NOWHERE,
                inode.name,
                Kind.FILE,
                zone=inode.zone,
                remote_id=entry.id,
                remote_parent=entry.parent_id,
                remote_name=entry.name,
                revision=entry.revision,
            )
            core.journal.gone(ghost.ino, core.due())
