"""Write sessions of files, each from the first write to the last close.

A commit records an intent, which tells the outbox to upload the bytes.

    begin    creates a new generation in the spool: empty, or a copy of the bytes to edit
    commit   flushes the bytes in the spool, then records the generation in inodes and intents in
             one transaction: afterwards a killed daemon loses nothing
    end      releases the intent: after the delay `settle`, the outbox may upload the bytes

    keep     commits files to which programs append for a long time without a close

This module does not use handles; `files` counts the writers of each file.
"""

import contextlib
import errno
import logging
import time

import trio

from zonedrive.causes import Cause, cause_of
from zonedrive.content.content_file import ContentFile
from zonedrive.errors import (
    Changed,
    Interrupted,
    NotFound,
    NotLoggedOn,
    ReplyLost,
    StoreError,
    Unreachable,
    ZonedriveError,
    first_of,
)
from zonedrive.failpoint import Place, reached
from zonedrive.remote.service import Service
from zonedrive.state import local_operations
from zonedrive.state.inode import NOWHERE, Inode
from zonedrive.state.intents import due_in
from zonedrive.state.invalidation import EntryGone
from zonedrive.state.local_state import LocalState
from zonedrive.state.open_file import OpenFile, Session, content_of
from zonedrive.sync.directory_cache import DirectoryCache
from zonedrive.sync.dispatcher import Dispatcher

log = logging.getLogger(__name__)

KEEP_S = 30.0  # seconds between commits of files that are appended to
SYNCS = 3  # attempts to sync a file in a thread, if programs write to the file meanwhile
CHANGES = 7  # failed attempts because of changes on the service before a waiting close fails
BREAKS = 3  # the same for connections that break during an upload
SAVING_S = 15.0  # seconds after which a waiting close fails if other programs keep saving
KEEP_NEW_S = 300.0  # seconds; a new file that is written for longer is a log, not a running copy


class WriteSessions:
    """Manager of the write sessions of open files."""

    def __init__(
        self, state: LocalState, service: Service, folders: DirectoryCache, dispatcher: Dispatcher
    ) -> None:
        self._state = state
        self._service = service
        self._folders = folders
        self._dispatcher = dispatcher
        self._begun = trio.Event()
        self._superseded = trio.Event()
        state.bytes_superseded.add(lambda: self._superseded.set())

    def begin_new(self, opened: OpenFile) -> None:
        """Begin the session of a file that was just created.

        The file is stored at its last close, even if it is still empty. Raises OSError if the file
        cannot be created in the spool.
        """
        generation = self._state.next_generation()
        file = self._state.spool.create(opened.ino, generation)
        reached(Place.SPOOL_MADE)
        opened.session = Session(generation, file, None, time.time_ns(), opened.content)
        opened.session.changed(0)
        opened.content = generation
        self._begun.set()

    async def begin(self, opened: OpenFile, *, truncate: bool, append: bool = False) -> None:
        """Begin a write session for the file.

        With `truncate`, the session starts empty; otherwise it starts with a copy of the current
        bytes. If the service has a version that supersedes `opened`, return without a session. With
        `append`, create the file again if it was deleted on the service. Raises OSError (such as
        ENOSPC, or ESTALE if the file was deleted or changed on the service), StoreError, or the
        service's error.
        """
        state = self._state
        try:
            await self._begin(opened, truncate)
        except (Changed, NotFound) as wrong:
            inode = state.inodes.get(opened.ino)
            place = inode.parent, inode.name
            if inode.parent == NOWHERE:  # a listing has shown the deletion before
                folder = state.inodes.by_remote(inode.zone, inode.remote_parent or "")
                place = (folder.ino if folder is not None else NOWHERE), inode.name
            await self.catch_up(inode)
            # A listing does not remove the file while another program begins a session.
            while append and not inode.is_new and opened.preparing.locked():
                async with opened.preparing:
                    pass
                await self.catch_up(inode)
            state.supersede(inode)
            if inode.parent == NOWHERE and append:
                self._make_again(opened, *place)
            elif isinstance(wrong, NotFound) and not (append and inode.is_new):
                # If the file is new, another program that appends has created it again.
                raise OSError(errno.ESTALE, "removed on the service") from wrong
            if opened.superseded:
                return
            try:
                await self._begin(opened, truncate)
            except (Changed, NotFound) as again:
                raise OSError(errno.ESTALE, "changed on the service") from again

    async def _begin(self, opened: OpenFile, truncate: bool) -> None:
        state = self._state
        async with opened.preparing:
            inode = state.inodes.get(opened.ino)
            old = opened.session
            if opened.superseded or (old is not None and not old.frozen):
                return
            if inode.parent == NOWHERE and old is None and not opened.removed_here:
                raise NotFound("the file was deleted on the service")
            generation = state.next_generation()
            base, size = inode.revision, inode.size if old is None else old.size
            if old is not None:
                old.file.flush()
            if truncate or size == 0:
                file = state.spool.create(inode.ino, generation)
                reached(Place.SPOOL_EMPTIED)
            elif old is not None:  # the inode may have a coworker's version by now
                file = await self._copy_of_local(old.file.share(), inode, generation)
            elif inode.generation:
                source = state.open_bytes(inode)
                file = await self._copy_of_local(source, inode, generation)
                # During the copy, the service may have got these bytes, and then another version.
                if isinstance(opened.content, str):
                    base = opened.content
            else:
                file = await self._copy_of_version(inode, generation)
            if old is not None:
                old.file.close()
                self._drop_unnamed(opened, old)
                base = old.base or base
            known = None if inode.remote_id is None else base
            session = Session(generation, file, known, inode.mtime_ns, opened.content)
            session.synced = (inode.ino, inode.generation) in state.durable
            session.rewritten = truncate or (old is not None and old.rewritten)
            opened.session, opened.content = session, generation
            opened.close_local()
            self._begun.set()

    def _make_again(self, opened: OpenFile, parent: int, name: str) -> None:
        """Create an empty file in place of a file that was just deleted on the service.

        Raises OSError (ESTALE) if the folder is gone or another file has the name.
        """
        state = self._state
        folder = state.inodes.find(parent)
        if not state.inodes.is_here(folder) or state.inodes.has_name(parent, name):
            raise OSError(errno.ESTALE, "removed on the service")
        local_operations.recreate_empty(state, opened, folder, name)

    async def _copy_of_local(
        self, source: ContentFile, inode: Inode, generation: int
    ) -> ContentFile:
        """Copy `source` as a new generation of the inode, and close `source`."""
        spool = self._state.spool
        with contextlib.closing(source):
            spool.require_room(source.size)
            check = trio.from_thread.check_cancelled
            copy = await trio.to_thread.run_sync(spool.copy, source, inode.ino, generation, check)
            reached(Place.SPOOL_COPIED)
            return spool.adopt(copy)

    async def _copy_of_version(self, inode: Inode, generation: int) -> ContentFile:
        state = self._state
        state.spool.require_room(inode.size)
        path = state.spool.path(inode.ino, generation)
        copy = await state.cache.export(
            inode.ino, inode.revision, inode.size, state.source(inode), path
        )
        reached(Place.VERSION_COPIED)
        return state.spool.adopt(copy)

    async def catch_up(self, inode: Inode) -> None:
        """Refresh the listing of the file's folder, because the service has another version."""
        folder = self._state.inodes.find(inode.parent)
        if folder is not None:
            await self._folders.refresh(folder, time.monotonic_ns())

    async def keep(self) -> None:
        """Commit, every KEEP_S seconds, the sessions that only append to a file, such as a log.

        A session that rewrites its file is not committed: if the daemon is killed, the previous
        content is better than half of the new content. Runs until cancelled.
        """
        while True:
            await self._begun.wait()
            await trio.sleep(KEEP_S)
            self._begun = trio.Event()
            for opened in list(self._state.opened.values()):
                if opened.session is not None:
                    self._begun.set()
                    await self._keep_safe(opened, opened.session)

    async def free_superseded(self) -> None:
        """Delete superseded bytes from the spool, always after a flush of the database.

        If a flush fails, the bytes are deleted after a later flush. Runs until cancelled.
        """
        state = self._state
        while True:
            await self._superseded.wait()
            self._superseded = trio.Event()
            which = list(state.superseded)
            try:
                await trio.to_thread.run_sync(state.database.flush)
            except OSError as wrong:
                log.warning("replaced bytes could not be deleted yet: %s", wrong)
            else:
                state.delete_superseded(which)

    async def _keep_safe(self, opened: OpenFile, session: Session) -> None:
        inode = self._state.inodes.get(opened.ino)
        if inode.is_new and inode.generation == 0 and session.age < KEEP_NEW_S:
            return
        try:
            if session.has_only_grown and session.synced:
                await self._sync(session)
            # A program may have written, saved or closed the file during the sync.
            if opened.session is session and session.has_only_grown:
                self.commit(opened)
        except (OSError, StoreError) as wrong:
            log.warning("inode %d: appended bytes are not stored yet: %s", opened.ino, wrong)

    def cut(self, opened: OpenFile, size: int) -> None:
        """Set the size of the session's file to `size` bytes.

        On failure, the recorded content stays. Raises OSError or StoreError.
        """
        session = opened.session
        assert session is not None
        inode = self._state.inodes.get(opened.ino)
        session.changed(size)
        recorded = inode.size
        with session.storing():
            local_operations.shrink_content(self._state, inode, session, size)
            try:
                session.file.truncate(size)
            except (OSError, StoreError):
                local_operations.restore_size(self._state, inode, session, recorded)
                raise
        session.stored()
        opened.told.size = size
        reached(Place.BYTES_CUT)

    async def save(self, opened: OpenFile, *, sync: bool = False) -> None:
        """Commit the session if it is dirty, on close(2) or, with `sync`, on fsync(2).

        With `sync`, the bytes are synced before the commit. Without `sync`, the bytes are synced
        only if they replace durable bytes of the file, because a power cut could leave a record
        that is newer than the bytes. After a failed write or commit, the save is refused, even if
        space is free again: an incomplete save must not replace the previous content. Raises
        OSError or StoreError.
        """
        session = opened.session
        assert session is not None
        session.require_complete()
        with session.storing() if session.dirty else contextlib.nullcontext():
            if sync or (session.dirty and session.synced):
                await self._sync(session)
                session.synced = True
                self._state.durable.add((opened.ino, session.generation))
                reached(Place.BYTES_SYNCED)
            session.require_complete()  # another program may have written during the sync
            if session.dirty and opened.session is session:
                self.commit(opened)

    async def sync_stored(self, inode: Inode) -> None:
        """Sync the recorded bytes of a file, and mark them as durable.

        A running write session then also syncs the bytes that it commits. Raises OSError or
        StoreError.
        """
        state, generation = self._state, inode.generation
        if not generation:
            return
        if (session := state.session(inode.ino)) is not None:
            session.synced = True
        state.durable.add((inode.ino, generation))
        with contextlib.closing(state.spool.open(inode.ino, generation)) as file:
            await trio.to_thread.run_sync(file.sync)

    async def _sync(self, session: Session) -> None:
        """Sync all bytes of the session, including those that programs write meanwhile.

        Raises OSError or StoreError.
        """
        with contextlib.closing(session.file.share()) as file:
            for _ in range(SYNCS):
                if await trio.to_thread.run_sync(file.sync) == file.changes:
                    return
            file.sync()  # on the event loop, where nothing is written meanwhile

    async def sync_late_pages(self, opened: OpenFile) -> None:
        """Sync bytes written after the last close(2), if the record of the file may be durable.

        The kernel writes such bytes from a shared memory mapping. Errors are left to `end`, which
        syncs the rest.
        """
        session = opened.session
        if session is not None and session.dirty and session.synced:
            with contextlib.suppress(OSError, StoreError):
                await self._sync(session)

    def commit(self, opened: OpenFile) -> None:
        """Flush the session's bytes, then record them in one transaction.

        If the bytes were synced, the next session syncs its bytes, too, because they replace synced
        bytes. Raises OSError or StoreError.
        """
        state, session = self._state, opened.session
        assert session is not None
        session.file.flush()
        reached(Place.BYTES_FLUSHED)
        inode = state.inodes.get(opened.ino)
        local_operations.commit_content(state, inode, session)
        if session.synced:
            state.durable.add((opened.ino, session.generation))

    def end(self, opened: OpenFile) -> None:
        """Commit unsaved bytes and end the session, after the last writer has closed the file.

        The bytes of the session's generation never change again. Raises the errors of `commit`.
        """
        session = opened.session
        assert session is not None
        if session.dirty:
            if session.synced:
                session.file.sync()
            self.commit(opened)
        self._close(opened, session)

    def abandon(self, opened: OpenFile) -> None:
        """End the session and restore the previous content, because a write could not be stored.

        A new file becomes empty. Content that was committed during the session counts as previous
        content.
        """
        state, session = self._state, opened.session
        if session is None:
            return
        inode = state.inodes.get(opened.ino)
        try:
            if inode.is_new and not inode.generation and inode.parent != NOWHERE:
                self._empty(opened, inode)
            elif inode.generation == session.generation and session.file.size > inode.size:
                session.file.truncate(inode.size)
        except (OSError, StoreError) as wrong:
            log.error("inode %d: failed writes could not be undone: %s", inode.ino, wrong)
        if inode.generation != session.generation:
            opened.content = session.former
        self._close(opened, session)
        state.content_changed(inode)
        # A caller that waits for all uploads need not wait for this file.
        self._dispatcher.wake()

    def _empty(self, opened: OpenFile, inode: Inode) -> None:
        """Make a new file empty, because its bytes could not be stored.

        If the change fails, remove the file and raise OSError or StoreError.
        """
        state, gone = self._state, EntryGone(inode.parent, inode.name.encode(), inode.ino)
        try:
            self.cut(opened, 0)
            self.commit(opened)
        except (OSError, StoreError):
            local_operations.forget(state, inode)
            state.invalidations.put(gone)
            raise

    def _close(self, opened: OpenFile, session: Session) -> None:
        """Close the session; from then on, its committed bytes may be uploaded.

        Errors of closing the file are ignored, because committed bytes were already flushed.
        """
        with contextlib.suppress(OSError, StoreError):
            session.file.close()
        opened.session = None
        reached(Place.FILE_CLOSED)
        self._drop_unnamed(opened, session)
        intent = self._state.intents.get(opened.ino)
        if intent is not None and intent.generation:
            self._state.intents.let_go(opened.ino, self._state.due())
            reached(Place.INTENT_FREED)

    def _drop_unnamed(self, opened: OpenFile, session: Session) -> None:
        """Delete the bytes of a session that has ended, if they are not the file's content.

        Such bytes were never committed, or were sent to another entry (`discard_sent`). Bytes that
        have become the service's version are left to the `Reconciler`, which caches them.
        """
        state, was_sent = self._state, session.frozen and isinstance(opened.content, str)
        inode, intent = state.inodes.find(opened.ino), state.intents.get(opened.ino)
        named = {inode.generation if inode else 0, intent.generation if intent else 0}
        if session.generation in named or was_sent:
            return
        if inode is not None and opened.content != content_of(inode):
            state.content_changed(inode)
        state.drop_bytes(opened.ino, session.generation)

    async def delivered(self, opened: OpenFile) -> None:
        """Wait until the committed version is on the service.

        If another program saves meanwhile, its version is sufficient, too, because it contains the
        committed one. Raises the errors of `_wait_for_upload_or_save`, and Changed if other
        programs keep saving for SAVING_S seconds and neither version reaches the service.
        """
        intent = self._state.intents.get(opened.ino)
        if intent is None or not intent.generation:
            return
        end = trio.current_time() + SAVING_S
        committed = max(intent.generation, opened.sent + 1)  # the same bytes may be sent again
        while await self._wait_for_upload_or_save(opened, committed):
            if trio.current_time() > end:
                raise Changed(
                    "other programs keep saving the file; the version stays in the outbox"
                )
            if opened.session is not None:
                await self.save(opened)

    async def _wait_for_upload_or_save(self, opened: OpenFile, committed: int) -> bool:
        """Wait for the upload of the file's newest committed version.

        Return True if another program has saved meanwhile, and the service has neither `committed`
        nor a newer generation. Return False if nothing is left to wait for. Raises the upload's
        error, and NotLoggedOn or Unreachable if the version stays in the outbox.
        """
        state, session = self._state, opened.session
        intent = state.intents.get(opened.ino)
        if intent is None or not intent.generation:
            return False
        if session is not None:
            session.frozen = True
        state.intents.let_go(opened.ino, due_in(0))
        earlier = self._dispatcher.failure(opened.ino)
        blocking = self._dispatcher.failed_prerequisites(opened.ino)
        self._dispatcher.expedite(step.ino for step in blocking)

        def failure() -> Exception | None:
            """Return the error of the last attempt since this wait began, or None.

            The first CHANGES Changed errors are ignored, because the next attempt may succeed. The
            first BREAKS broken connections are ignored, too, because the next attempt finds out
            whether the service has the version, or sends it again. Two errors are returned at once:
            an error that cannot be recorded, as on a full disk, and the failure of a step that
            must come first, such as the creation of the parent folder.
            """
            if blocked := self._dispatcher.blocking_failures({opened.ino}).get(opened.ino):
                return blocked
            now, wrong = state.intents.get(opened.ino), self._dispatcher.failure(opened.ino)
            if (
                now is None
                or wrong is None
                or (wrong is earlier and now.attempts <= intent.attempts)
            ):
                return None
            ignored = CHANGES if cause_of(wrong) is Cause.CHANGED else 0
            if isinstance(first_of(wrong), Interrupted | ReplyLost):
                ignored = BREAKS
            return wrong if now.attempts > ignored or self._dispatcher.is_unwritable else None

        def over() -> bool:
            now = state.intents.get(opened.ino)
            return (
                now is None
                or now.generation != intent.generation
                or opened.sent >= committed
                or failure() is not None
                or self._service.link.state != "online"
                or self._dispatcher.is_held_back(opened.ino)
            )

        with self._dispatcher.waited_for():
            await self._dispatcher.wait_until(over)
        now = state.intents.get(opened.ino)
        if now is None or not now.generation or opened.sent >= committed or opened.superseded:
            return False
        if now.generation == intent.generation:
            if self._service.link.state == "logon-required":
                raise NotLoggedOn("the logon has ended; the version stays in the outbox")
            if isinstance(wrong := failure(), ZonedriveError | OSError):
                raise wrong
            if self._dispatcher.is_held_back(opened.ino):
                raise Unreachable("uploads are paused; the version stays in the outbox")
            raise Unreachable("the service cannot be reached; the version stays in the outbox")
        return True
