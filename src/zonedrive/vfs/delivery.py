"""Carrying the outbox's steps to the service, and its answers into the tree.

INVARIANT: before content is sent, the service's present version is compared with the one the
edit began from; so neither a lost reply nor somebody else's version is ever sent over.
INVARIANT: an answer of the service and the end of its intent are one transaction.
"""

import contextlib
import logging
import os
import time
from collections.abc import Iterator
from datetime import datetime

import trio

from zonedrive.content.file import ContentFile
from zonedrive.errors import AlreadyExists, NotFound, Rejected, StoreError
from zonedrive.model import Entry
from zonedrive.outbox.fold import Action, Step, Subject
from zonedrive.outbox.journal import Conflict, Intent
from zonedrive.outbox.verdict import Verdict, copy_mark, on_new_name, on_version
from zonedrive.remote.transfer import Cancelled
from zonedrive.tree.inode import NOWHERE, ROOT, Inode, Kind
from zonedrive.tree.names import with_mark
from zonedrive.vfs.core import Core
from zonedrive.vfs.folders import Folders
from zonedrive.vfs.invalidation import EntryChanged, InodeChanged

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


class Delivery:
    """The outbox's carrier."""

    def __init__(self, core: Core, folders: Folders) -> None:
        self._core = core
        self._folders = folders
        self._bodies: dict[int, Body] = {}

    def sent(self, ino: int) -> int:
        """Bytes of an upload under way that have been handed over."""
        body = self._bodies.get(ino)
        return body.sent if body else 0

    # ---- the carrier's side of the outbox ----

    def describe(self, ino: int) -> Subject | None:
        """What folding needs to know of an inode."""
        core = self._core
        inode = core.tree.find(ino)
        if inode is None or (inode.parent == NOWHERE and inode.is_new):
            return None
        inside = [folder.ino for folder in self._remote_folders(inode)]
        origin = (inside[0], inode.remote_name) if inside and inode.remote_name else None
        return Subject(
            ino=ino,
            folder=inode.is_folder,
            new=inode.is_new,
            place=(inode.parent, core.remote_name(inode)),
            origin=origin,
            inside=tuple(inside),
        )

    def _remote_folders(self, inode: Inode) -> Iterator[Inode]:
        """The folders that an inode is in on the service, nearest first."""
        above: Inode | None = inode
        while above is not None and above.remote_parent is not None:
            above = self._core.tree.by_remote(inode.zone, above.remote_parent)
            if above is not None:
                yield above

    async def ready(self) -> bool:
        """Wait until the service can be reached; True if it could not."""
        link = self._core.service.link
        if link.state == "online":
            return False
        await link.wait_online()
        return True

    async def carry(self, step: Step) -> None:
        """Do one step."""
        inode = self._core.tree.find(step.ino)
        if inode is None or self._core.journal.get(step.ino) is None:
            return
        match step.action:
            case Action.ADOPT:
                await self._adopt(step, inode)
            case Action.MAKE:
                await self._make(step.intent, inode)
            case Action.MOVE:
                await self._move(step.intent, inode)
            case Action.ASIDE:
                await self._step_aside(step.intent, inode)
            case Action.UPLOAD:
                await self._upload(step.intent, inode)
            case Action.DELETE:
                await self._delete(step.intent, inode)

    # ---- content ----

    async def _upload(self, intent: Intent, inode: Inode) -> None:
        core = self._core
        if inode.is_new:
            folder_id, name, found = await self._look_for_name(intent, inode)
            verdict = on_new_name(intent.size, found)
        else:
            found = await self._look_at(inode)
            verdict = on_version(intent.base, intent.size, found)
            folder_id = (found.parent_id if found else "") or inode.remote_parent or ""
            name = found.name if found else ""
        if verdict is Verdict.COMPARE:
            assert found is not None
            if await self._same_content(inode, intent, found):
                await self._sent(intent, inode, found)
                return
            verdict = Verdict.CONFLICT
        if verdict is Verdict.LOST:
            self._make_anew(intent, inode)
        elif verdict is Verdict.CONFLICT:
            assert found is not None
            self._set_aside(intent, inode, found)
        else:
            file = core.spool.open(inode.ino, intent.generation)
            body = self._bodies[inode.ino] = Body(file, intent.size)
            try:
                entry = await trio.to_thread.run_sync(
                    lambda: core.service.transfer.upload(
                        inode.zone,
                        folder_id,
                        name,
                        body,
                        intent.size,
                        cancelled=lambda: self._outdated(intent),
                    )
                )
            except Cancelled:
                return
            finally:
                del self._bodies[inode.ino]
                file.close()
            await self._sent(intent, inode, entry)

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

    async def _sent(self, intent: Intent, inode: Inode, entry: Entry) -> None:
        """The service has the generation as its newest version."""
        core = self._core
        if inode.parent == NOWHERE and inode.is_new:
            self._delete_stray(inode, entry)
            return
        with core.transaction():
            core.tree.update(
                inode,
                remote_id=entry.id,
                remote_parent=entry.parent_id or inode.remote_parent,
                remote_name=entry.name,
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
        """The file was removed here while it was on its way: remove it there, too."""
        core = self._core
        if not core.service.can("delete"):
            log.warning("a file that was removed during its upload stays on the service")
            return
        with core.transaction():
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

    def _outdated(self, intent: Intent) -> bool:
        """Whether newer bytes, or a removal, have overtaken an upload (asked from a thread)."""
        now = self._core.journal.get(intent.ino)
        return now is None or now.generation != intent.generation

    # ---- conflicts ----

    def _make_anew(self, intent: Intent, inode: Inode) -> None:
        """Deleted on the service while it was edited here: the edit becomes a new file."""
        core = self._core
        log.warning("a file was deleted on the service while it was edited here: sent as new")
        with core.transaction():
            core.tree.update(inode, remote_id=None, remote_parent=None, remote_name=None)
            core.journal.rebase(inode.ino, None)
            core.journal.add_conflict(Conflict(inode.ino, inode.ino, "", time.time_ns()))

    def _set_aside(self, intent: Intent, inode: Inode, found: Entry) -> None:
        """Keep both: theirs under its name, ours beside it."""
        core = self._core
        if self._outdated(intent) or (inode.ino in core.opened and core.opened[inode.ino].session):
            return  # there is a newer edit; the verdict will be on that
        mark = copy_mark(core.user, core.host, datetime.now())
        name = with_mark(inode.name, mark.replace("/", "_"))
        log.warning(
            "a version by %s came in between: ours is kept as a conflict copy", found.modified_by
        )
        now = time.time_ns()
        with core.transaction():
            if inode.is_new:
                old = inode.name
                core.tree.move(inode, inode.parent, name)
                core.journal.add_conflict(Conflict(inode.ino, 0, found.modified_by, now))
                core.journal.content(
                    inode.ino, intent.generation, intent.size, base=None, held=False, due_ns=now
                )
                self._folders.forget(inode.parent)
                core.invalidations.put(EntryChanged(inode.parent, old.encode()))
            else:
                copy = core.tree.add(
                    inode.parent,
                    name,
                    Kind.FILE,
                    zone=inode.zone,
                    size=intent.size,
                    mtime_ns=inode.mtime_ns,
                    mode=inode.mode,
                    generation=intent.generation,
                )
                os.link(
                    core.spool.path(inode.ino, intent.generation),
                    core.spool.path(copy.ino, intent.generation),
                )
                core.journal.content(
                    copy.ino, intent.generation, intent.size, base=None, held=False, due_ns=now
                )
                core.journal.add_conflict(Conflict(copy.ino, inode.ino, found.modified_by, now))
                core.journal.done(intent, content=True)
                core.tree.update(
                    inode,
                    generation=0,
                    revision=found.revision,
                    size=found.size,
                    mtime_ns=found.modified_ns,
                    modified_by=found.modified_by,
                )
        core.invalidations.put(EntryChanged(inode.parent, name.encode()))
        if not inode.is_new:
            core.spool.delete(inode.ino, intent.generation)
            core.invalidations.put(InodeChanged(inode.ino, attr_only=False))

    # ---- places ----

    async def _make(self, intent: Intent, inode: Inode) -> None:
        core = self._core
        parent = core.tree.get(inode.parent)
        if parent.remote_id is None:
            raise StoreError("its folder is not on the service yet")
        name = core.remote_name(inode)
        made = True
        try:
            entry = await core.service.make_folder(inode.zone, parent.remote_id, name)
        except AlreadyExists:
            found = await self._folder_named(parent, name)
            if found is None:
                raise
            entry, made = found, False
        with core.transaction():
            core.tree.update(
                inode,
                remote_id=entry.id,
                remote_parent=parent.remote_id,
                remote_name=entry.name,
                revision=entry.revision,
                modified_by=entry.modified_by,
                listed=made,
            )
            core.tree.settle(inode.zone, entry.id)
            core.journal.done(intent, place=True)
            if core.journal.get(inode.ino) is None and inode.parent == NOWHERE:
                core.journal.gone(inode.ino, core.due())
        if made:
            self._folders.known_empty(inode)

    async def _folder_named(self, parent: Inode, name: str) -> Entry | None:
        """A folder the service has already: a lost reply, or somebody was faster."""
        entries = await self._core.service.listing(parent.zone, parent.remote_id or "")
        return next((each for each in entries if each.folder and each.name == name), None)

    async def _move(self, intent: Intent, inode: Inode) -> None:
        core = self._core
        parent = core.tree.get(inode.parent)
        if parent.remote_id is None:
            raise StoreError("its folder is not on the service yet")
        name = core.remote_name(inode)
        try:
            entry = await core.service.move(
                inode.zone, inode.remote_id or "", parent.remote_id, name
            )
        except NotFound:
            self._folders.forget(inode.parent)
            if intent.generation:
                self._make_anew(intent, inode)
            else:
                with core.transaction():
                    core.journal.done(intent, place=True)
            return
        with core.transaction():
            self._moved(inode, parent.remote_id, entry)
            core.journal.done(intent, place=True)

    async def _step_aside(self, intent: Intent, inode: Inode) -> None:
        """Leave the name to another; the move to the final one follows."""
        core = self._core
        above = inode.remote_parent or ""
        folder = core.tree.by_remote(inode.zone, above)
        if folder is None or core.journal.get(folder.ino) is not None:
            zone = next(each for each in core.tree.inodes_in(ROOT) if each.zone == inode.zone)
            above = zone.remote_id or ""
        name = f".zonedrive-{inode.ino}-{intent.seq}"
        entry = await core.service.move(inode.zone, inode.remote_id or "", above, name)
        with core.transaction():
            self._moved(inode, above, entry)

    def _moved(self, inode: Inode, above: str, entry: Entry) -> None:
        core = self._core
        core.tree.settle(inode.zone, entry.id)
        core.tree.update(inode, remote_parent=above, remote_name=entry.name)
        edited = core.journal.get(inode.ino)
        if inode.revision != entry.revision and inode.size == entry.size:
            if edited is not None and edited.generation:
                return  # the verdict before the upload compares
            # A move may count as a modification; the bytes are the same.
            core.tree.update(inode, revision=entry.revision)

    async def _delete(self, intent: Intent, inode: Inode) -> None:
        core = self._core
        if inode.is_folder and await self._others_in(inode):
            raise Rejected("others have put something into the folder", code="NOT_EMPTY")
        with contextlib.suppress(NotFound):
            await core.service.delete(inode.zone, inode.remote_id or "")
        core.tree.settle(inode.zone, inode.remote_id or "")
        with core.transaction():
            core.tree.unlink(inode)
            core.journal.drop(inode.ino)
        core.discard_bytes(inode, intent)
        core.reap(inode)

    async def _others_in(self, folder: Inode) -> bool:
        """Whether the service has something in the folder that was not removed here."""
        try:
            entries = await self._core.service.listing(folder.zone, folder.remote_id or "")
        except NotFound:
            return False
        return any(not entry.deleted for entry in entries)

    # ---- identities ----

    async def _adopt(self, step: Step, new: Inode) -> None:
        """The new file takes the place of one that was deleted or renamed away."""
        core = self._core
        old = core.tree.find(step.other)
        old_intent = core.journal.get(step.other)
        if old is None or old_intent is None or old.is_new:
            return
        stays = not old_intent.gone
        if stays and not old.generation:
            await self._keep_bytes(old)
        if core.journal.get(step.other) != old_intent or core.journal.get(new.ino) != step.intent:
            return
        base = old_intent.base if old_intent.generation else old.revision
        identity = {
            name: getattr(old, name)
            for name in ("remote_id", "remote_parent", "remote_name", "revision", "type", "sync")
        }
        with core.transaction():
            if stays:
                core.tree.update(old, remote_id=None, remote_parent=None, remote_name=None)
            else:
                core.tree.unlink(old)
                core.journal.drop(old.ino)
            core.tree.update(new, **identity)
            core.journal.rebase(new.ino, base)
            if stays:
                core.journal.done(old_intent, place=True)
                local = core.stays_local(core.tree.get(old.parent), old.name)
                core.tree.update(old, local=local)
                if local:
                    core.journal.drop(old.ino)
                else:
                    core.journal.content(
                        old.ino, old.generation, old.size, base=None, held=False, due_ns=core.due()
                    )
        core.reap(old)

    async def _keep_bytes(self, inode: Inode) -> None:
        """Bring the service's bytes into the spool: the entry is about to become another's."""
        core = self._core
        generation = core.next_generation()
        path = core.spool.path(inode.ino, generation)
        file = await core.cache.export(
            inode.ino, inode.revision, inode.size, core.source(inode), path
        )
        file.close()
        with core.transaction():
            core.tree.update(inode, generation=generation)
