"""Writing: sessions, from the first write to the last close, and how they become intents.

    begin    a new generation in the spool: empty, or a copy of the bytes the edit starts from
    commit   the bytes are complete in the spool, then tree and journal name the generation, in
             one transaction: from here on a killed daemon loses nothing
    end      the intent is no longer held: after `settle` the outbox may send it

    keep     what is only appended to, for a long time, is committed now and then without a close

Must not know handles: `files` counts them.
"""

import contextlib
import errno
import logging
import os
import time

import trio

from zonedrive.content.file import ContentFile
from zonedrive.content.source import Changed
from zonedrive.errors import NotFound, NotLoggedOn, StoreError, Unreachable, ZonedriveError
from zonedrive.failpoint import Place, reached
from zonedrive.model import Revision
from zonedrive.outbox.dispatch import Dispatcher
from zonedrive.outbox.journal import due_in
from zonedrive.remote.service import Service
from zonedrive.tree.inode import NOWHERE, Inode
from zonedrive.vfs.core import Core
from zonedrive.vfs.invalidation import EntryGone, InodeChanged
from zonedrive.vfs.listings.folders import Folders
from zonedrive.vfs.open_file import OpenFile, Session, content_of

log = logging.getLogger(__name__)

KEEP_S = 30.0  # between two looks at what is being appended to
KEEP_NEW_S = 300.0  # a new file that is written for so long is a log, and no copy under way


class Sessions:
    """The write sessions of open files."""

    def __init__(
        self, core: Core, service: Service, folders: Folders, dispatcher: Dispatcher
    ) -> None:
        self._core = core
        self._service = service
        self._folders = folders
        self._dispatcher = dispatcher
        self._begun = trio.Event()

    def begin_new(self, opened: OpenFile) -> None:
        """The session of a file that has just been made: empty, and to be kept."""
        generation = self._core.next_generation()
        file = self._core.spool.create(opened.ino, generation)
        reached(Place.SPOOL_MADE)
        opened.session = Session(generation, file, None, time.time_ns(), opened.content)
        opened.session.changed(0)
        opened.content = generation
        self._begun.set()

    async def begin(self, opened: OpenFile, *, truncate: bool, append: bool = False) -> None:
        """Give the file a session to write in.

        None where the service has another version by now and `opened` is superseded by it.  To
        `append` to a file that the service no longer has makes it again.
        """
        core = self._core
        try:
            await self._begin(opened, truncate)
        except (Changed, NotFound) as wrong:
            inode = core.tree.get(opened.ino)
            place = inode.parent, inode.name
            await self.catch_up(inode)
            core.supersede(inode)
            if inode.parent == NOWHERE and append:
                self._make_again(opened, inode, *place)
            elif isinstance(wrong, NotFound):
                raise OSError(errno.ESTALE, "removed on the service") from wrong
            if not opened.superseded:
                await self._begin_again(opened, truncate)

    async def _begin_again(self, opened: OpenFile, truncate: bool) -> None:
        try:
            await self._begin(opened, truncate)
        except Changed as wrong:
            raise OSError(errno.ESTALE, "changed on the service") from wrong

    async def _begin(self, opened: OpenFile, truncate: bool) -> None:
        core = self._core
        async with opened.preparing:
            inode = core.tree.get(opened.ino)
            old = opened.session
            if opened.superseded or (old is not None and not old.frozen):
                return
            if inode.parent == NOWHERE and old is None and not opened.removed_here:
                raise OSError(errno.ESTALE, "removed on the service")
            generation = core.next_generation()
            base = inode.revision
            if old is not None:
                old.file.flush()
            if truncate or inode.size == 0:
                file = core.spool.create(inode.ino, generation)
                reached(Place.SPOOL_EMPTIED)
            elif inode.generation:
                file = await self._copy_of_generation(inode, generation)
                reached(Place.SPOOL_COPIED)
                base = inode.revision  # its upload may have ended meanwhile
            else:
                file = await self._copy_of_version(inode, generation)
            if old is not None:
                old.file.close()
                base = old.base or base
            known = None if inode.remote_id is None else base
            session = Session(generation, file, known, inode.mtime_ns, opened.content)
            session.rewritten = truncate or (old is not None and old.rewritten)
            opened.session, opened.content = session, generation
            opened.close_local()
            self._begun.set()

    def _make_again(self, opened: OpenFile, inode: Inode, parent: int, name: str) -> None:
        """Let an empty file have the place of one that others have just removed.

        Raises OSError (ESTALE) where the folder is gone, or the name somebody else's.
        """
        core = self._core
        folder = core.tree.find(parent)
        if folder is None or folder.parent == NOWHERE or core.tree.has_name(parent, name):
            raise OSError(errno.ESTALE, "removed on the service")
        with core.transaction():
            core.tree.move(inode, parent, name)
            core.tree.update(
                inode, size=0, revision=Revision(""), remote_parent=None, remote_name=None
            )
        opened.close()
        opened.content = content_of(inode)
        core.invalidations.put(InodeChanged(inode.ino, attr_only=False))

    async def _copy_of_generation(self, inode: Inode, generation: int) -> ContentFile:
        """Bytes that were saved here, to be changed."""
        core = self._core
        core.spool.require_room(inode.size)
        source = core.spool.open(inode.ino, inode.generation)
        try:
            return await trio.to_thread.run_sync(core.spool.copy, source, inode.ino, generation)
        finally:
            source.close()

    async def _copy_of_version(self, inode: Inode, generation: int) -> ContentFile:
        """The service's bytes, to be changed."""
        core = self._core
        core.spool.require_room(inode.size)
        path = core.spool.path(inode.ino, generation)
        copy = await core.cache.export(
            inode.ino, inode.revision, inode.size, core.source(inode), path
        )
        reached(Place.VERSION_COPIED)
        return core.spool.adopt(copy)

    async def catch_up(self, inode: Inode) -> None:
        """The version we know is no longer the service's: hear which one is."""
        folder = self._core.tree.find(inode.parent)
        if folder is not None:
            await self._folders.refresh(folder, time.monotonic_ns())

    async def keep(self) -> None:
        """Commit sessions that only grow, for as long as there are any: a log, for instance.

        A session that rewrites its file is left alone: a killed daemon should rather bring back
        the former content than half of the new one.  Runs until cancelled.
        """
        while True:
            await self._begun.wait()
            await trio.sleep(KEEP_S)
            self._begun = trio.Event()
            for opened in list(self._core.opened.values()):
                session = opened.session
                if session is None:
                    continue
                self._begun.set()
                if session.dirty and not (session.rewritten or session.frozen or session.refused):
                    await self._keep_safe(opened, session)

    async def sync_again(self, session: Session) -> None:
        """Make the bytes durable before another record of them, where a former record is durable.

        Otherwise a power cut could leave a record that is newer than the bytes.  Raises OSError.
        """
        if session.synced:
            await trio.to_thread.run_sync(session.file.sync)

    async def _keep_safe(self, opened: OpenFile, session: Session) -> None:
        inode = self._core.tree.get(opened.ino)
        if inode.is_new and inode.generation == 0 and session.age < KEEP_NEW_S:
            return
        try:
            await self.sync_again(session)
            if opened.session is session and not session.refused:
                self.commit(opened, held=True)
        except (OSError, StoreError) as wrong:
            log.warning("what is being appended to inode %d is not safe yet: %s", opened.ino, wrong)

    def cut(self, opened: OpenFile, size: int) -> None:
        """Make the session's file `size` bytes long."""
        session = opened.session
        assert session is not None
        self._record_cut(opened, session, size)
        session.file.truncate(size)
        session.refused = 0
        reached(Place.BYTES_CUT)
        session.changed(size)

    def _record_cut(self, opened: OpenFile, session: Session, size: int) -> None:
        """A record must never name more bytes than there are, so it is the first to shrink."""
        core = self._core
        inode = core.tree.get(opened.ino)
        if inode.generation != session.generation or inode.size <= size:
            return
        with core.transaction():
            core.tree.update(inode, size=size)
            intent = core.journal.get(opened.ino)
            if intent is not None and intent.generation == session.generation:
                core.journal.content(
                    opened.ino,
                    session.generation,
                    size,
                    base=session.base,
                    held=True,
                    due_ns=core.due(),
                )
            core.spool.record(opened.ino, session.generation, session.file, size=size)

    def keep_all(self, opened: OpenFile) -> None:
        """Commit, unless a part of what was written has been refused.

        Half of a save must not replace the former content, also where room has come back since.
        Raises OSError.
        """
        session = opened.session
        assert session is not None
        if session.refused:
            raise OSError(session.refused, os.strerror(session.refused))
        try:
            self.commit(opened, held=True)
        except (OSError, StoreError) as wrong:
            session.refused = getattr(wrong, "errno", 0) or errno.EIO
            raise

    def commit(self, opened: OpenFile, *, held: bool) -> None:
        """Bytes first, then, in one transaction, the record that names them."""
        core, session = self._core, opened.session
        assert session is not None
        session.file.flush()
        reached(Place.BYTES_FLUSHED)
        inode = core.tree.get(opened.ino)
        former = inode.generation
        with core.transaction():
            core.tree.update(
                inode,
                generation=session.generation,
                size=session.size,
                mtime_ns=session.mtime_ns,
                ctime_ns=max(inode.ctime_ns, session.ctime_ns),
            )
            core.spool.record(inode.ino, session.generation, session.file)
            if not inode.local and inode.parent != NOWHERE:
                core.journal.content(
                    inode.ino,
                    session.generation,
                    session.size,
                    base=session.base,
                    held=held,
                    due_ns=core.due(),
                )
            reached(Place.RECORD_INSIDE)
        reached(Place.RECORDED)
        session.dirty, session.refused = False, 0
        if former and former != session.generation:
            core.drop_bytes(inode.ino, former)
            reached(Place.FORMER_DELETED)

    def end(self, opened: OpenFile) -> None:
        """The last writer is gone: from now on the generation never changes."""
        core, session = self._core, opened.session
        assert session is not None
        if session.dirty:
            self.commit(opened, held=True)
        session.file.close()
        opened.session = None
        reached(Place.FILE_CLOSED)
        self._drop_unnamed(opened.ino, session)
        intent = core.journal.get(opened.ino)
        if intent is not None and intent.generation:
            core.journal.let_go(opened.ino, core.due())
            reached(Place.INTENT_FREED)

    def abandon(self, opened: OpenFile) -> None:
        """What was written cannot be kept, and close(2) said so: the former content stays.

        That of a new file is none; what was made safe on the way counts as former.
        """
        core, session = self._core, opened.session
        if session is None:
            return
        inode = core.tree.get(opened.ino)
        try:
            if inode.is_new and not inode.generation and inode.parent != NOWHERE:
                self._empty(opened, inode)
            elif inode.generation == session.generation:
                if session.file.size > inode.size:
                    session.file.truncate(inode.size)
                session.dirty = False
                self.end(opened)
        except (OSError, StoreError) as wrong:
            log.error("what was refused of inode %d could not be taken back: %s", inode.ino, wrong)
        finally:
            opened.session = None
            with contextlib.suppress(OSError):
                session.file.close()
            self._drop_unnamed(inode.ino, session)
            if inode.generation != session.generation:
                opened.content = session.former
            core.content_changed(inode)
            self._dispatcher.wake()  # who waits until everything is sent waits for this no longer

    def _empty(self, opened: OpenFile, inode: Inode) -> None:
        """Keep the name of a new file, as any disk does; where not even that can be, it goes."""
        core, gone = self._core, EntryGone(inode.parent, inode.name.encode(), inode.ino)
        try:
            self.cut(opened, 0)
            self.end(opened)
        except (OSError, StoreError):
            with core.transaction():
                core.tree.unlink(inode)
            core.invalidations.put(gone)
            raise

    def _drop_unnamed(self, ino: int, session: Session) -> None:
        """Bytes that were never committed: nothing names them."""
        inode, intent = self._core.tree.find(ino), self._core.journal.get(ino)
        named = {inode.generation if inode else 0, intent.generation if intent else 0}
        if session.generation not in named:
            self._core.drop_bytes(ino, session.generation)

    async def delivered(self, opened: OpenFile) -> None:
        """Wait until the service has what was committed.  Raises its refusal."""
        core, session = self._core, opened.session
        intent = core.journal.get(opened.ino)
        if session is None or intent is None or not intent.generation:
            return
        session.frozen = True
        with core.transaction():
            core.journal.hold(opened.ino, False, due_in(0))

        def over() -> bool:
            now = core.journal.get(opened.ino)
            return (
                now is None
                or now.generation != intent.generation
                or now.attempts > 0
                or self._service.link.state != "online"
            )

        with self._dispatcher.waited_for():
            await self._dispatcher.wait_until(over)
        now = core.journal.get(opened.ino)
        if now is not None and now.generation == intent.generation:
            if self._service.link.state == "logon-required":
                raise NotLoggedOn("the logon has ended; the version stays in the outbox")
            failure = self._dispatcher.failure(opened.ino)
            if isinstance(failure, ZonedriveError | OSError):
                raise failure
            raise Unreachable("the service cannot be reached; the version stays in the outbox")
