"""Write sessions, from the first write to the last close, and the intents they create.

    begin    creates a new generation in the spool: empty, or a copy of the bytes to edit
    commit   completes the bytes in the spool, then records the generation in tree and journal in
             one transaction: from here on a killed daemon loses nothing
    end      releases the intent: after `settle` the outbox may send it

    keep     commits files that are only appended to for a long time, without a close

Knows nothing of handles: `files` counts them.
"""

import contextlib
import errno
import logging
import os
import time

import trio

from zonedrive.content.content_file import ContentFile
from zonedrive.content.source import Changed
from zonedrive.errors import NotFound, NotLoggedOn, StoreError, Unreachable, ZonedriveError
from zonedrive.failpoint import Place, reached
from zonedrive.model import Revision
from zonedrive.remote.service import Service
from zonedrive.state.inode import NOWHERE, Inode
from zonedrive.state.intents import due_in
from zonedrive.state.invalidation import EntryGone, InodeChanged
from zonedrive.state.local_state import Core
from zonedrive.state.open_file import OpenFile, Session, content_of
from zonedrive.sync.directory_cache import Folders
from zonedrive.sync.dispatcher import Dispatcher

log = logging.getLogger(__name__)

KEEP_S = 30.0  # seconds between commits of files that are appended to
KEEP_NEW_S = 300.0  # seconds; a new file that is written for longer is a log, not a running copy


class Sessions:
    """Write sessions of open files."""

    def __init__(
        self, core: Core, service: Service, folders: Folders, dispatcher: Dispatcher
    ) -> None:
        self._core = core
        self._service = service
        self._folders = folders
        self._dispatcher = dispatcher
        self._begun = trio.Event()

    def begin_new(self, opened: OpenFile) -> None:
        """Begin the session of a file that was just created: empty, and stored at the close."""
        generation = self._core.next_generation()
        file = self._core.spool.create(opened.ino, generation)
        reached(Place.SPOOL_MADE)
        opened.session = Session(generation, file, None, time.time_ns(), opened.content)
        opened.session.changed(0)
        opened.content = generation
        self._begun.set()

    async def begin(self, opened: OpenFile, *, truncate: bool, append: bool = False) -> None:
        """Give the file a session to write in.

        The file gets no session if the service has a different version, which supersedes `opened`.
        With `append`, a file that the service no longer has is created again.
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
                base = inode.revision  # its upload may have ended during the copy
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
        """Create an empty file in the place of one that was just deleted on the service.

        Raises OSError (ESTALE) if the folder is gone or another file has the name.
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
        """Return a copy of locally saved bytes for editing."""
        core = self._core
        core.spool.require_room(inode.size)
        source = core.spool.open(inode.ino, inode.generation)
        try:
            return await trio.to_thread.run_sync(core.spool.copy, source, inode.ino, generation)
        finally:
            source.close()

    async def _copy_of_version(self, inode: Inode, generation: int) -> ContentFile:
        """Return a copy of the service's bytes for editing."""
        core = self._core
        core.spool.require_room(inode.size)
        path = core.spool.path(inode.ino, generation)
        copy = await core.cache.export(
            inode.ino, inode.revision, inode.size, core.source(inode), path
        )
        reached(Place.VERSION_COPIED)
        return core.spool.adopt(copy)

    async def catch_up(self, inode: Inode) -> None:
        """Refresh the parent's listing after the service has changed the file's version."""
        folder = self._core.tree.find(inode.parent)
        if folder is not None:
            await self._folders.refresh(folder, time.monotonic_ns())

    async def keep(self) -> None:
        """Commit sessions that only append, such as logs, at intervals.

        A session that rewrites its file is not committed: after a killed daemon, the former content
        is better than half of the new one.  Runs until cancelled.
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
        """Sync the bytes before the next commit if an earlier commit of the session is durable.

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
        """Set the size of the session's file to `size` bytes."""
        session = opened.session
        assert session is not None
        self._record_cut(opened, session, size)
        session.file.truncate(size)
        session.refused = 0
        reached(Place.BYTES_CUT)
        session.changed(size)

    def _record_cut(self, opened: OpenFile, session: Session, size: int) -> None:
        """Shrink the record before the file, because a record must not name missing bytes."""
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
        """Commit the session, unless a write of the session has failed.

        An incomplete save must not replace the former content, even if space is free again.  Raises
        OSError.
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
        """Flush the bytes, then record them in one transaction."""
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
        """End the session after the last writer has closed; the generation never changes again."""
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
        """Restore the former content after close(2) has reported that the write failed.

        A new file becomes empty.  Content that was committed during the session counts as former
        content.
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
            # A caller that waits for all uploads need not wait for this file.
            self._dispatcher.wake()

    def _empty(self, opened: OpenFile, inode: Inode) -> None:
        """Make a new file empty, as local disks do; if that fails, remove the file."""
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
        """Delete the session's bytes if they were never committed."""
        inode, intent = self._core.tree.find(ino), self._core.journal.get(ino)
        named = {inode.generation if inode else 0, intent.generation if intent else 0}
        if session.generation not in named:
            self._core.drop_bytes(ino, session.generation)

    async def delivered(self, opened: OpenFile) -> None:
        """Wait until the committed version is on the service.  Raises the upload's error."""
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
