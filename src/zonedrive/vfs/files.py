"""Open files: their handles, reads of local or remote content, and writes.

`write_sessions` describes how written bytes are stored.
"""

import contextlib
import errno
import itertools
import logging
import os
import time

import trio
from cachetools import LRUCache

from zonedrive.content.content_file import Buffer, ContentFile
from zonedrive.content.reader import Reader
from zonedrive.errors import UNKNOWN_ZONE, Changed, NotFound, StoreError, ZonedriveError
from zonedrive.failpoint import Place, reached
from zonedrive.remote.service import Service
from zonedrive.state import local_operations
from zonedrive.state.inode import NOWHERE, Inode
from zonedrive.state.local_state import LocalState
from zonedrive.state.open_file import Handle, Opened, OpenFile, Session
from zonedrive.sync.directory_cache import DirectoryCache
from zonedrive.sync.dispatcher import Dispatcher
from zonedrive.translation import marked
from zonedrive.vfs import open_checks
from zonedrive.vfs.caller_policy import CallerPolicy
from zonedrive.vfs.write_sessions import WriteSessions

log = logging.getLogger(__name__)

UNSAVED = marked("the last change could not be stored; save the file again")

KEEP_S = 20.0
PAGED = 10_000  # files for which the version of the kernel's cached pages is remembered


class Files:
    """Files that programs have open in a mount."""

    def __init__(
        self,
        state: LocalState,
        service: Service,
        folders: DirectoryCache,
        dispatcher: Dispatcher,
        callers: CallerPolicy,
    ) -> None:
        self._state = state
        self._callers = callers
        self.sessions = WriteSessions(state, service, folders, dispatcher)
        self._handles: dict[int, Handle] = {}
        self._numbers = itertools.count(1)  # of handles
        # Revision and generation that the kernel's cached pages of an inode were read from.
        self._paged: LRUCache[int, tuple[str, int]] = LRUCache(PAGED)

    # ---- open and close ----

    async def open(self, inode: Inode, flags: int, pid: int = 0) -> Opened:
        """Open a file for process `pid` with the `flags` of open(2), and return the handle.

        Raises IsADirectoryError, PermissionError, FileNotFoundError, OSError (ESTALE, ENOSPC), or
        the service's error.
        """
        if inode.is_folder:  # a coworker's folder may get the name after the kernel's lookup
            raise IsADirectoryError(errno.EISDIR, "is a folder")
        state = self._state
        writable = bool(flags & open_checks.WRITE_FLAGS)
        open_checks.require_reachable(state, inode)
        open_checks.require_permitted(state, inode, flags)
        if writable:
            state.require_folders(inode)
        state.supersede(inode)
        number = state.kernel.number(inode.ino)
        shown = (inode.revision, inode.generation)
        keep = self._paged.get(number) == shown
        if flags & os.O_TRUNC and not writable:
            await self.truncate(inode, 0)
            keep = False
        opened = self._attach(inode, flags, keep_cache=keep, pid=pid)
        handle = self._handles[opened.handle]
        if flags & os.O_TRUNC and not writable:
            handle.file.known_size = 0  # the kernel assumes this after the reply
        try:
            if flags & os.O_TRUNC and writable:
                handle.emptied = True
                await self._session(handle, truncate=True)
                self.sessions.cut(handle.file, 0)
                handle.file.known_size = 0  # see above
                return Opened(opened.handle)
            if inode.remote_id is not None and handle.file.content == inode.revision:
                # From now on this version stays readable, also after a rename or removal.
                reader = self._reader(handle.file, inode)
                if handle.file.session is None:
                    open_checks.require_unguarded(self._callers, handle, reader)
                    if await self._begin_reading(handle, inode, reader):
                        # The kernel's pages may be of another version of this size.
                        opened = Opened(opened.handle)
        except BaseException:
            await self.release(opened.handle)
            raise
        if handle.file.pages:
            self._paged[number] = shown
        return opened

    async def _begin_reading(self, handle: Handle, inode: Inode, reader: Reader) -> bool:
        """Fetch the first bytes if none are local; return True if a fetch was necessary.

        Many programs ignore an error of their first read, and later save the file as if it had been
        empty. So an error of the fetch is raised if the file is opened only for reading. If the
        program may also write, the error is ignored, because the program need not read the file.
        For a file that is opened only for writing, nothing is fetched. Raises OSError (ESTALE) if
        the service has a newer version, which the kernel then opens.
        """
        access, opened, content = handle.flags & os.O_ACCMODE, handle.file, handle.file.content
        if access == os.O_WRONLY:
            return False
        try:
            return await reader.begin()
        except (ZonedriveError, OSError) as wrong:
            if isinstance(wrong, Changed):
                await self.sessions.catch_up(inode)
            elif handle.file is opened and opened.content == content:
                if access == os.O_RDONLY:
                    raise
                return True
            # A listing may have shown the newer version meanwhile, and closed the reader.
            raise OSError(errno.ESTALE, "changed on the service, open it again") from wrong

    def create(self, inode: Inode, flags: int) -> Opened:
        """Open a file that was just created, with an empty write session; return the handle.

        Raises OSError if the spool cannot store the empty file.
        """
        # Always as a writer, so that the close keeps the empty file.
        opened = self._attach(inode, flags, keep_cache=False, writable=True)
        try:
            self.sessions.begin_new(self._handles[opened.handle].file)
        except OSError:
            which = self._handles.pop(opened.handle)
            which.stop_writing()
            self._detach(which)
            raise
        return opened

    async def release(self, handle: int) -> None:
        """Close a handle after its last file descriptor was closed.

        Raises OSError or StoreError if the last written bytes cannot be stored.
        """
        which = self._handles.pop(handle)
        opened = which.file
        if which.writable and which.failure is not None:
            log.info("inode %d: closed after a failed write: %s", opened.ino, which.failure)
        which.stop_writing()
        try:
            if opened.writers == 0:
                await self.sessions.sync_late_pages(opened)
        finally:  # also if the daemon ends during the sync
            session = opened.session
            try:
                if opened.writers == 0:
                    self._end(opened)
                elif which.emptied and session is not None and session.is_only_emptied:
                    await self.sessions.save(opened)
            except (OSError, StoreError):
                self._report_unsaved(opened)
                raise
            finally:
                self._detach(which)

    async def flush(self, handle: int) -> None:
        """Commit written bytes when a program calls close(2). Raises OSError or StoreError.

        Also raises the error of the last change through the handle, see `Handle.reporting`.
        With the setting `close = wait`, also wait for the upload, and raise its error.
        """
        which = self._handles[handle]
        opened, session = which.file, which.file.session
        if not which.writable:
            return
        which.require_succeeded()
        if session is None:
            return
        # A shell that redirects to a file truncates it, and closes a duplicate of the descriptor
        # before the program writes. The previous content is kept until the last close.
        if session.is_only_emptied:
            return
        await self.sessions.save(opened)
        if opened.session is None:
            return
        # The upload of a new empty file is not waited for, because the descriptor may be such a
        # duplicate.
        empty = session.size == 0 and not session.written
        if self._state.settings.close == "wait" and not empty:
            await self.sessions.delivered(opened)

    async def save_new(self, inode: Inode) -> None:
        """Commit the bytes of a new file that was never saved; ignore other files.

        A rename stores a database row for such a file, and may let the file replace another one.
        Without the commit, a crash would then lose the content of both files. A new file without a
        write session is left over if the disk was too full to store its bytes, and even to remove
        the file. Such a file is saved as the empty file that programs see. Raises OSError or
        StoreError.
        """
        if inode.is_folder or inode.generation or not inode.is_new:
            return
        opened = self._state.opened.get(inode.ino)
        if opened is not None and opened.session is not None:
            await self.sessions.save(opened)
        else:
            await self.release(self.create(inode, os.O_WRONLY).handle)

    async def fsync(self, handle: int) -> None:
        """Sync the file's bytes and their database record to the disk.

        With the setting `fsync = service`, also wait for the upload, and raise its error. Also
        raises OSError, StoreError, and the error of a change as in `flush`.
        """
        opened = self._handles[handle].file
        self._handles[handle].require_succeeded()
        if opened.session is not None:
            await self.sessions.save(opened, sync=True)
        elif (inode := self._state.inodes.find(opened.ino)) is not None:
            await self.sessions.sync_stored(inode)
        superseded = list(self._state.superseded)
        await trio.to_thread.run_sync(self._state.database.flush)
        reached(Place.RECORD_SYNCED)
        self._state.delete_superseded(superseded)
        if self._state.settings.fsync == "service":
            if opened.session is not None:  # pages of a mapping may have come during the flush
                await self.sessions.save(opened)
            if not opened.superseded:
                await self.sessions.delivered(opened)

    # ---- bytes ----

    def available(self, handle: int, offset: int, size: int) -> Buffer | None:
        """Return up to `size` bytes at `offset`, or None if they must be fetched first.

        The result is shorter only at the end of the file, and valid until the next read or the
        caller's next trio checkpoint. Raises PermissionError for a program that must not cause a
        download, StoreError, and OSError (such as ESTALE if the file has a newer version).
        """
        which = self._handles[handle]
        opened = which.file
        inode = self._state.inodes.get(opened.ino)
        if not opened.superseded:
            self._state.supersede(inode)
        if not opened.pages:
            opened.pages = True
            self._paged[opened.number] = inode.revision, inode.generation
        if opened.session is not None:
            return opened.session.file.pread(offset, size)
        if isinstance(opened.content, int):
            return self._local(opened, opened.content).pread(offset, size)
        known = opened.reader is not None or opened.superseded
        if not known and offset >= inode.size:
            return b""
        reader = self._reader(opened, inode)
        open_checks.require_unguarded(self._callers, which, reader)
        return reader.available(offset, size)

    async def read(self, handle: int, offset: int, size: int) -> Buffer:
        """Return up to `size` bytes at `offset`; fetch them from the service if needed.

        See `available` for the result. Raises the errors of `available`, OSError (ESTALE if the
        file was deleted on the service), and the service's error.
        """
        data = self.available(handle, offset, size)
        if data is not None:
            return data
        which = self._handles[handle]
        opened, inode = which.file, self._state.inodes.get(which.file.ino)
        reader = self._reader(opened, inode)
        # `available` found damaged bytes, which have to be fetched.
        open_checks.require_unguarded(self._callers, which, reader)
        try:
            return await reader.read(offset, size)
        except Changed as wrong:
            # The kernel has told the program the old size, so the new version needs a new open.
            if not opened.superseded:
                await self.sessions.catch_up(inode)
            raise OSError(errno.ESTALE, "changed on the service, open it again") from wrong
        except NotFound as wrong:
            if wrong.code == UNKNOWN_ZONE:
                raise
            raise OSError(errno.ESTALE, "removed on the service") from wrong

    async def write(self, handle: int, offset: int, data: bytes) -> int:
        """Write `data` at `offset`, or with O_APPEND at the end; return the length of `data`.

        Raises OSError: EFBIG above the largest file size, ENOSPC on a full disk, or ESTALE if the
        file has a newer version. Also raises the service's error if the previous content cannot
        be fetched.
        """
        which = self._handles[handle]
        try:
            return await self._write(which, offset, data)
        except BaseException:  # also the end of the time that the operation may take
            self._forget_pages(which)
            raise

    async def _write(self, which: Handle, offset: int, data: bytes) -> int:
        # Checked first, because a session without a change would supersede the readers' version.
        if not which.append:
            open_checks.require_fitting(offset + len(data))
        with which.reporting():
            session = await self._session(which)
        # The kernel reads each page of a mapping before a program writes to it.
        may_be_mapped, which.file.pages = which.file.pages, True
        known = offset + len(data)  # end of the file for the kernel
        numbers = {which.number, which.file.number}  # two if the kernel has a former version
        has_wrong_pages = len(numbers) > 1
        is_mapped = may_be_mapped and which.is_of_a_mapping(offset, len(data), session.size)
        if which.append and not is_mapped:
            # The kernel may not know that another writer extended the file.
            has_wrong_pages = has_wrong_pages or offset != session.size
            offset = session.size
        open_checks.require_fitting(offset + len(data))
        session.written = True
        session.changed(offset)
        with which.reporting(), session.storing():
            self._state.spool.require_room(len(data))
            session.file.pwrite(offset, data)
        session.stored()
        which.succeeded()
        which.file.told.size = session.size
        if which.number == which.file.number:
            which.file.known_size = max(which.file.known_size, known)
        if has_wrong_pages:  # the kernel has put the bytes into its pages, at the former end
            for number in sorted(numbers):
                self._state.invalidations.put_pages(number)
        reached(Place.BYTES_WRITTEN)
        return len(data)

    def require_current(self, handle: int) -> None:
        """Raise OSError (ESTALE) before ftruncate(2) if a newer version has superseded the file.

        Later closes of the handle also raise the error.
        """
        which = self._handles[handle]
        with which.reporting():
            open_checks.require_current(which.file)

    async def truncate(self, inode: Inode, size: int, handle: int | None = None) -> None:
        """Set the size of a file to `size` bytes; new bytes are zeros.

        `handle` is the handle of ftruncate(2), which the caller has checked with `require_current`,
        or None for truncate(2). Raises PermissionError, FileNotFoundError, and the errors of
        `write`.
        """
        told = None if handle is None else self._handles[handle]
        if told is not None:
            told.emptied |= not size
        await self._truncate(inode, size, told)
        if told is not None:
            told.succeeded()

    async def _truncate(self, inode: Inode, size: int, told: Handle | None) -> None:
        open_checks.require_reachable(self._state, inode)
        if told is None:  # for ftruncate(2), the open has checked this
            open_checks.require_permitted(self._state, inode, os.O_WRONLY)
        self._state.require_folders(inode)
        session = self._state.session(inode.ino)
        before = inode.size if session is None else session.size
        was_saved = session is None or not session.dirty
        open_checks.require_fitting(size)
        if size == before:  # same bytes, so no new version; the times change
            if not self.touch(inode, now := time.time_ns()):
                local_operations.set_attributes(self._state, inode, mtime_ns=now, ctime_ns=now)
            return
        writer = self._attach(inode, os.O_WRONLY, keep_cache=False).handle
        which = self._handles[writer]
        try:
            with contextlib.nullcontext() if told is None else told.reporting():
                await self._session(which, truncate=size == 0, told=told)
                self.sessions.cut(which.file, size)
            # A program that empties its open file writes next: its close saves both changes.
            if was_saved and (size or told is None):
                await self.sessions.save(which.file)
        finally:
            await self.release(writer)

    def touch(self, inode: Inode, mtime_ns: int | None = None) -> bool:
        """Set the times of a file that is being written; return True if a commit follows.

        If the file is not being written, do nothing and return False. The modification time is set
        to `mtime_ns` unless that is None. If a commit follows, the change time is set to the
        current time, and the commit stores both times. Otherwise the caller must store the times.
        """
        session = self._state.session(inode.ino)
        if session is None:
            return False
        if mtime_ns is not None:
            session.mtime_ns = mtime_ns
        if session.dirty:
            session.ctime_ns = time.time_ns()
        return session.dirty

    async def keep_readable(self, inode: Inode) -> None:
        """Fetch the missing content of a file that is open and will be replaced by another file.

        The fetch takes at most KEEP_S seconds. Later reads of content that is still missing fail
        with ESTALE.
        """
        opened = self._state.opened.get(inode.ino)
        if opened is None or opened.session or inode.generation or inode.is_new:
            return
        try:
            reader = self._reader(opened, inode)
            if not reader.complete:
                with trio.move_on_after(KEEP_S):
                    await reader.fill()
        except (ZonedriveError, OSError) as wrong:
            log.info("inode %d: replaced; its readers may get an error: %s", inode.ino, wrong)

    def close_all(self) -> None:
        """Store unsaved bytes and close all files on unmount; log errors."""
        reached(Place.CLOSING)
        for opened in [*self._state.opened.values(), *self._state.kernel.former.values()]:
            # Logged by `_end`; the other files must still be closed.
            with contextlib.suppress(Exception):
                if opened.session is not None and opened.session.is_only_emptied:
                    self._abandon(opened)
                self._end(opened)
            opened.close()

    # ---- inside ----

    async def _session(
        self, which: Handle, *, truncate: bool = False, told: Handle | None = None
    ) -> Session:
        """Return the session that the handle writes to; begin a session if there is none.

        `told` is the program's handle if `which` is a temporary one. Raises OSError (ESTALE) if the
        program may have read an earlier version, and the errors of `WriteSessions.begin`.
        """
        while True:
            # The temporary writer of ftruncate(2) follows the file, but `told` may not.
            open_checks.require_current((told or which).file)
            if (session := which.file.session) is not None and not session.frozen:
                return session
            await self.sessions.begin(which.file, truncate=truncate, append=which.append)

    def _end(self, opened: OpenFile) -> None:
        """Store written bytes after the last writer has closed the file.

        If the bytes cannot be stored, restore the previous content and raise the error. After a
        failed write, restore the previous content without an error, because the program already got
        one.
        """
        if opened.session is None:
            return
        try:
            if opened.session.refused:  # a write failed, so the content is incomplete
                self._abandon(opened)
            else:
                self.sessions.end(opened)
        except Exception as wrong:
            log.error("inode %d: the last writes could not be stored: %s", opened.ino, wrong)
            self._abandon(opened)
            raise

    def _report_unsaved(self, opened: OpenFile) -> None:
        """Report a change that could not be stored although close(2) has succeeded.

        No program sees the error of a FUSE release, so `status` and `sync` report the file.
        """
        state, inode = self._state, self._state.inodes.find(opened.ino)
        if inode is not None and inode.parent != NOWHERE:
            which = inode.zone, inode.remote_id or f"inode {inode.ino}"
            state.refusals.add(*which, state.inodes.path(inode.ino), UNSAVED)
            state.intents.changes.notify()

    def _forget_pages(self, which: Handle) -> None:
        """Make the kernel drop its cached pages of a file after a write that failed.

        The kernel keeps the pages of a mapping as the program has written them. Only a handle that
        can be read can be mapped.
        """
        if which.readable:
            self._paged.pop(which.number, None)
            self._state.invalidations.put_pages(which.number)

    def _abandon(self, opened: OpenFile) -> None:
        self._paged.pop(opened.number, None)  # the kernel may have pages of the refused write
        self.sessions.abandon(opened)

    def _attach(
        self, inode: Inode, flags: int, *, keep_cache: bool, writable: bool = False, pid: int = 0
    ) -> Opened:
        writable = writable or bool(flags & open_checks.WRITE_FLAGS)
        opened = self._state.opened.get(inode.ino) or self._state.new_open_file(inode)
        opened.pages = opened.pages or keep_cache
        opened.writers += writable
        handle = next(self._numbers)
        which = self._handles[handle] = Handle(
            opened,
            opened.number,
            writable=writable,
            readable=flags & os.O_ACCMODE != os.O_WRONLY,
            append=bool(flags & os.O_APPEND),
            pid=pid,
            flags=flags,
        )
        opened.handles.append(which)
        return Opened(handle, keep_cache=keep_cache)

    def _detach(self, which: Handle) -> None:
        """Remove a closed handle from its file; close the file if it has no other handle."""
        state, opened = self._state, which.file
        opened.handles.remove(which)
        if opened.handles:
            return
        opened.close()
        if opened.superseded:
            del state.kernel.former[opened.number]
        else:
            del state.opened[opened.ino]
        inode = state.inodes.find(opened.ino)
        if inode is None or opened.superseded:
            return
        intent = state.intents.get(opened.ino)
        if intent is not None and intent.gone and intent.held:
            state.intents.let_go(opened.ino, state.due())
        state.release_if_unreferenced(inode)

    def _local(self, opened: OpenFile, generation: int) -> ContentFile:
        if opened.local is None or opened.local[0] != generation:
            open_checks.require_current(opened)
            opened.close_local()
            inode, state = self._state.inodes.get(opened.ino), self._state
            if inode.generation == generation:
                file = state.open_bytes(inode)
            else:
                file = state.spool.open(opened.ino, generation)
            opened.local = generation, file
        return opened.local[1]

    def _reader(self, opened: OpenFile, inode: Inode) -> Reader:
        """Return a reader of the version that the file's handles see.

        If the file was deleted on the service, the handles see the last version. Raises OSError
        (ESTALE) if the file has a newer version.
        """
        if opened.reader is not None and opened.reader[0] == opened.content:
            return opened.reader[1]
        open_checks.require_current(opened)
        state = self._state
        # Otherwise a program could edit a version other than the one that it has read.
        if inode.revision != opened.content:
            raise OSError(errno.ESTALE, "changed on the service, open it again")
        opened.close()
        reader = state.cache.open(inode.ino, inode.revision, inode.size, state.source(inode))
        opened.reader = inode.revision, reader
        return reader
