"""Operations on names: lookup, listing, creation, removal and renaming.

A change takes effect locally at once and is recorded as an intent in the same transaction. A change
that the service does not support, according to its profile, fails at once with EPERM and has no
effect. An entry that was never on the service can always be changed.

A renamed entry keeps its identity on the service. A file that is renamed over another file becomes
the next version of the other file if the bytes of the renamed file are local. Many programs save
files in this way.
"""

import contextlib
import errno
import itertools
import os
from collections import Counter
from collections.abc import Iterator

import msgspec
import trio
from cachetools import LRUCache

from zonedrive.errors import NotSupported
from zonedrive.remote.service import Service
from zonedrive.snapshot import Snapshot
from zonedrive.state import local_operations
from zonedrive.state.attributes import Attr
from zonedrive.state.inode import NOWHERE, ROOT, Inode, Kind
from zonedrive.state.invalidation import EntryChanged, InodeChanged
from zonedrive.state.local_state import LocalState
from zonedrive.state.names import is_respelled
from zonedrive.state.open_file import Opened, ino_of
from zonedrive.sync.directory_cache import DirectoryCache
from zonedrive.sync.dispatcher import Dispatcher
from zonedrive.sync.materialize import bring_bytes
from zonedrive.vfs.files import Files
from zonedrive.vfs.open_checks import require_changeable, require_unprotected, require_writable

NOREPLACE, EXCHANGE = 1, 2  # flags of renameat2(2)
CALL_BACK_S = 10.0  # seconds that a rename or removal waits for the file's upload to end


DOTS = (".", "..")
READ = 50_000  # total names in the cache of recently read folders
TOGETHER = 32  # entries of a listing that are loaded into memory at once


class Listing(msgspec.Struct, eq=False):
    """State of an open directory handle."""

    folder: int
    names: list[str] | None = None  # the names when reading began
    stamp: object = None  # the folder's change stamp when reading began


class Listed(msgspec.Struct, frozen=True):
    """Names in a folder that has not changed since reading began."""

    ino: int
    names: list[str]  # "." and ".." first; the same list object while the folder is unchanged
    timeout: float  # seconds that the kernel may cache names and attributes


class Namespace:
    """POSIX operations on the names in folders."""

    def __init__(
        self,
        state: LocalState,
        service: Service,
        folders: DirectoryCache,
        files: Files,
        dispatcher: Dispatcher,
    ) -> None:
        self._state = state
        self._service = service
        self._folders = folders
        self._files = files
        self._dispatcher = dispatcher
        self._listings: dict[int, Listing] = {}  # by handle
        # By folder: change stamp, names, and True if a name has a second spelling.
        self._read: LRUCache[int, tuple[object, list[str], bool]] = LRUCache(
            READ, lambda kept: len(kept[1])
        )
        self._handles = itertools.count(1)
        self._renaming: Counter[int] = Counter()  # number of running renames, by inode number

    # ---- finding ----

    async def folder(self, ino: int) -> Inode:
        """Return a folder, after fetching its listing if needed.

        Raises FileNotFoundError if the folder was removed, and the service's error if the listing
        cannot be fetched.
        """
        await self._folders.ensure(self._here(ino))
        return self._here(ino)  # perhaps removed during the wait

    def _here(self, ino: int) -> Inode:
        inode = self._state.inodes.get(ino)
        if inode.parent == NOWHERE:
            raise FileNotFoundError(errno.ENOENT, "the folder has been removed")
        return inode

    async def lookup(self, parent: int, name: bytes) -> Attr:
        """Return the stat fields of an entry, and add 1 to the kernel's lookup count of its inode.

        Raises FileNotFoundError if the entry does not exist, and the errors of `folder`. If the
        folder cannot be listed because the service gives no answer, look among the known entries.
        """
        state = self._state
        wanted = state.existing_name(name)
        unanswered = await self._folders.ensure_if_reachable(self._here(parent))
        folder = self._here(parent)
        if unanswered is not None and state.inodes.child(folder.ino, wanted) is None:
            raise unanswered
        inode = self.named(folder, wanted)
        state.inodes.remember(inode.ino)
        return self.attr(inode)

    def attr(self, inode: Inode, number: int | None = None) -> Attr:
        """Return the inode's stat fields, with the time for which the kernel may cache them.

        For `number`, see `LocalState.attr`.
        """
        return self._state.attr(inode, self._folders.trusted_for(inode.parent), number)

    async def getattr(self, number: int) -> Attr:
        """Return a kernel inode's stat fields; refresh the parent's listing first if needed."""
        state = self._state
        inode = state.inodes.get(ino_of(number))
        if inode.ino != ROOT and inode.parent != NOWHERE and not state.local(inode.ino):
            await self._folders.ensure_if_reachable(state.inodes.get(inode.parent))
        return self.attr(inode, number)

    # ---- listing ----

    async def opendir(self, ino: int) -> int:
        """Return a new handle for reading the folder's names. Raises the errors of `folder`."""
        folder = await self.folder(ino)
        handle = next(self._handles)
        self._listings[handle] = Listing(folder.ino)
        return handle

    async def load(self, handle: int) -> None:
        """Load the folder's names in steps; other operations run between two steps.

        Call this method before `listed` with `start` 0. Otherwise `listed` may load all names of a
        large folder at once.
        """
        for _ in self._state.inodes.loading(self._listings[handle].folder):
            await trio.lowlevel.checkpoint()

    def listed(self, handle: int, start: int) -> Listed | None:
        """Return the folder's names if the folder is unchanged since reading began, else None.

        If `start` is 0, the names are read again, as rewinddir(3) requires. The result is also None
        while programs write to files of the folder, because sizes change with every write, and if
        the kernel must not cache all names (see `attributes.attr_of`).
        """
        listing = self._listings[handle]
        folder = self._state.inodes.get(listing.folder)
        stamp = self._stamp(folder)
        if start == 0 or listing.names is None:
            listing.names, respelled = self._names(folder, stamp)
            listing.stamp = None if respelled else stamp
        if stamp is None or stamp != listing.stamp:
            return None
        return Listed(folder.ino, listing.names, self._folders.trusted_for(folder.ino))

    def readdir(self, handle: int, start: int) -> Iterator[tuple[bytes, Attr, int]]:
        """Yield (name, stat fields, next position) from entry number `start` on.

        The names are those that `listed` has read for the handle. Entries that were removed since
        then are left out. If another entry has taken over a name, the new entry is yielded.
        """
        inodes, state = self._state.inodes, self._state
        listing = self._listings[handle]
        folder = inodes.get(listing.folder)
        timeout = self._folders.trusted_for(folder.ino)
        names = listing.names or DOTS
        for number in range(start, min(len(DOTS), len(names))):
            ino = folder.ino if number == 0 else folder.parent or folder.ino
            yield names[number].encode(), state.attr(inodes.get(ino), timeout), number + 1
        if folder.parent == NOWHERE:
            return
        for first in range(max(start, len(DOTS)), len(names), TOGETHER):
            batch = names[first : first + TOGETHER]
            inos = inodes.numbers_of(folder.ino, batch)
            by_ino = {inode.ino: inode for inode in inodes.get_all(inos)}
            for number, (name, ino) in enumerate(zip(batch, inos, strict=True), first + 1):
                if ino in by_ino:
                    yield name.encode(), state.attr(by_ino[ino], timeout), number

    def _names(self, folder: Inode, stamp: object) -> tuple[list[str], bool]:
        """Return the folder's names, and True if a name has another spelling (see `is_respelled`).

        All readers get the same list object while the folder is unchanged.
        """
        before, names, respelled = self._read.get(folder.ino, (None, [], False))
        if stamp is None or before != stamp:
            there = self._state.inodes.children(folder.ino) if folder.parent != NOWHERE else ()
            names = [*DOTS, *there]
            respelled = is_respelled("/".join(names))
            if len(names) <= READ:
                self._read[folder.ino] = stamp, names, respelled
        return names, respelled

    def _stamp(self, folder: Inode) -> object:
        state = self._state
        for opened in state.opened.values():
            inode = state.inodes.find(opened.ino) if opened.session is not None else None
            if inode is not None and inode.parent == folder.ino:
                return None
        return state.inodes.changes(folder.ino), folder.parent, state.kernel.renewals, state.rules

    def releasedir(self, handle: int) -> None:
        """Close a directory handle."""
        self._listings.pop(handle, None)

    # ---- making ----

    async def create(self, parent: int, name: bytes, mode: int, flags: int) -> tuple[Opened, Attr]:
        """Create an empty file and open it for writing; return the handle and the stat fields.

        If the file was created since the kernel's lookup, open the existing file, or with O_EXCL
        raise FileExistsError. Also raises PermissionError if no file may be created in the folder,
        and the errors of the method `folder`, `Files.open` and `Files.create`.
        """
        state = self._state
        if not flags & os.O_EXCL:
            folder = await self.folder(parent)
            made = state.inodes.child(folder.ino, state.checked_name(name))
            if made is not None:
                opened = await self._files.open(made, flags)
                state.inodes.remember(made.ino)
                return opened, self.attr(made)
        folder, wanted = await self._free_place(parent, name)
        inode = local_operations.create_file(state, folder, wanted, mode)
        try:
            opened = self._files.create(inode, flags)
        except OSError:
            local_operations.forget(state, inode)
            # The kernel expects no change of the folder's times after an error.
            state.invalidations.put(InodeChanged(folder.ino, attr_only=True))
            raise
        state.inodes.remember(inode.ino)
        return opened, self.attr(inode)

    async def mkdir(self, parent: int, name: bytes, mode: int) -> Attr:
        """Create a folder and return its stat fields.

        Raises FileExistsError if the name is taken, PermissionError if no entry may be created in
        the parent folder, NotSupported if the profile has no operation that creates folders, and
        the errors of the method `folder`.
        """
        state = self._state
        folder, wanted = await self._free_place(parent, name)
        if not state.stays_local(folder, wanted) and not self._service.can("make_folder"):
            raise NotSupported("the deployment's profile cannot make folders")
        inode = local_operations.make_folder(state, folder, wanted, mode)
        state.inodes.remember(inode.ino)
        return self.attr(inode)

    # ---- removing ----

    async def unlink(self, parent: int, name: bytes) -> None:
        """Remove a file.

        A file with an edit that cannot be sent can always be removed, so that the user can give up
        the edit. The same holds for every file in a new folder that cannot be created. If the
        service then rejects the deletion, the outbox undoes the removal, and the file has the
        service's version and place again.

        Raises FileNotFoundError, IsADirectoryError, PermissionError, NotSupported, and OSError
        (EBUSY if the entry is being uploaded or was renamed at the same time).
        """
        state = self._state
        folder, wanted = await self.folder(parent), state.existing_name(name)
        named = Snapshot(lambda: self.named(folder, wanted))
        inode = named.value
        if inode.is_folder:
            raise IsADirectoryError(errno.EISDIR, "is a folder")
        await self.cancel_upload(inode, "delete")
        intent = state.intents.get(inode.ino)
        try:
            require_unprotected(folder, inode)
            require_changeable(state.rules, inode)
            self.require_removable(inode)
        except (OSError, NotSupported):
            if intent is None or not (
                (intent.failed and intent.generation)
                or self._dispatcher.failed_prerequisites(inode.ino)
            ):
                raise
        successor = local_operations.successor(state, inode)
        try:
            await bring_bytes(state, self._service, successor, inode)
            if not named.is_current:
                raise OSError(errno.EBUSY, "another program renamed the entry at the same time")
            local_operations.remove(state, inode)
        finally:
            if successor is not None and not self._renaming[successor.ino]:
                state.revert_to_remote(successor)  # deletes the copy if nothing needs it

    async def cancel_upload(self, inode: Inode, operation: str) -> None:
        """Cancel a new file's running upload if `operation` would be impossible after the upload.

        `operation` is "rename", "move" or "delete". An operation that the profile does not support
        is impossible after the upload. Raises OSError (EBUSY) if the upload does not end within
        CALL_BACK_S seconds. If the upload completes first, the service has the file, and the
        caller's next check rejects the operation.
        """
        state = self._state
        if not inode.is_new or inode.ino not in state.in_flight:
            return
        if self._service.can(operation, folder=inode.is_folder):
            return
        state.cancelled_uploads.add(inode.ino)
        try:
            with trio.move_on_after(CALL_BACK_S):
                await self._dispatcher.wait_until(lambda: inode.ino not in state.in_flight)
        finally:
            state.cancelled_uploads.discard(inode.ino)
        if inode.ino in state.in_flight:
            raise OSError(errno.EBUSY, "it is just being uploaded")

    async def rmdir(self, parent: int, name: bytes) -> None:
        """Remove an empty folder.

        Raises FileNotFoundError, NotADirectoryError, PermissionError, NotSupported, and OSError
        (ENOTEMPTY, or EBUSY if the entry was renamed at the same time).
        """
        state = self._state
        folder, wanted = await self.folder(parent), state.existing_name(name)
        named = Snapshot(lambda: self.named(folder, wanted))
        inode = named.value
        if not inode.is_folder:
            raise NotADirectoryError(errno.ENOTDIR, "not a folder")
        if inode.kind is Kind.ZONE:
            raise PermissionError(errno.EPERM, "a zone cannot be removed here")
        require_unprotected(folder, inode)
        require_changeable(state.rules, inode)
        self.require_removable(inode)
        await self.require_empty(inode)
        if not named.is_current:
            raise OSError(errno.EBUSY, "another program renamed the entry at the same time")
        local_operations.remove(state, inode)

    # ---- renaming ----

    async def rename(
        self, old_parent: int, old_name: bytes, new_parent: int, new_name: bytes, flags: int
    ) -> None:
        """Rename an entry as renameat2(2) does, with the same errors.

        `flags` is 0, RENAME_NOREPLACE or RENAME_EXCHANGE. Also raises NotSupported if the profile
        has no operation that renames or moves the entry on the service.
        """
        state = self._state
        source, wanted = state.existing_name(old_name), state.checked_name(new_name)
        old_folder = await self.folder(old_parent)
        new_folder = await self.folder(new_parent)
        for folder in (old_folder, new_folder):
            state.require_folders(folder)
        inode = self.named(old_folder, source)
        old_place = old_folder.ino, source.encode()
        new_place = new_folder.ino, wanted.encode()
        target = state.inodes.child(new_folder.ino, wanted)
        names = Snapshot(
            lambda: (
                inode.parent,
                inode.name,
                state.inodes.child(new_folder.ino, wanted),
                state.inodes.is_below(new_folder, inode),
                state.inodes.is_here(old_folder),
                state.inodes.is_here(new_folder),
            )
        )
        if flags & NOREPLACE and target is not None:
            raise FileExistsError(errno.EEXIST, "the name is taken")
        if flags & EXCHANGE and target is None:
            raise FileNotFoundError(errno.ENOENT, "nothing to exchange with")
        require_unprotected(old_folder, inode)
        require_writable(new_folder, *([target] if target else []))
        if flags & EXCHANGE:
            require_writable(old_folder)  # the target gets there
        require_changeable(state.rules, inode, *([target] if target else []))
        operation = "rename" if old_folder is new_folder else "move"
        if flags & EXCHANGE:
            assert target is not None
            with contextlib.ExitStack() as held_back:
                for each in (inode, target):
                    # The exchange needs a temporary name, and thus a rename, in each case.
                    for needed in ("rename", operation):
                        await self.cancel_upload(each, needed)
                    held_back.enter_context(self._held_back(each))
                self._require_movable(inode, new_folder, wanted, target, aside=True)
                self._require_movable(target, old_folder, source, inode, aside=True)
                if inode.local != target.local and not (inode.is_new or target.is_new):
                    # Each would need the place of the other's entry, and one entry would be lost.
                    raise OSError(errno.EINVAL, "the name of one stays on this machine")
                for each in (inode, target):
                    await self._files.save_new(each)
            if not names.is_current:
                raise OSError(errno.EBUSY, "another program renamed the entry at the same time")
            self._leave_lost_upload(inode, new_folder, wanted)
            self._leave_lost_upload(target, old_folder, source)
            local_operations.exchange(state, inode, target)
            state.invalidations.renamed(*new_place, *old_place)
            state.invalidations.renamed(*old_place, *new_place)
            self._expire_respelled(old_folder, source, old_name)
            self._expire_respelled(new_folder, wanted, new_name)
        elif target is not inode:
            await self.cancel_upload(inode, operation)
            self._require_movable(inode, new_folder, wanted, target)
            former = target or local_operations.removed_at(state, new_folder, wanted)
            if target is not None:
                await self._require_replaceable(inode, target)
            had_bytes = inode.generation != 0
            self._renaming[inode.ino] += 1
            try:
                await bring_bytes(state, self._service, inode, former)
                await self._files.save_new(inode)
                if target is not None:
                    with self._held_back(inode):
                        if (target.ino, target.generation) in state.durable:
                            # Otherwise a power cut could lose the content of both files.
                            await self._files.sessions.sync_stored(inode)
                        await self._files.keep_readable(target)  # which may be uploaded by now
                if not names.is_current:
                    raise OSError(errno.EBUSY, "another program renamed the entry at the same time")
                self._leave_lost_upload(inode, new_folder, wanted)
                local_operations.rename(state, inode, new_folder, wanted, target)
                state.invalidations.renamed(*old_place, *new_place)
                self._expire_respelled(new_folder, wanted, new_name)
            except BaseException:  # also the end of the time that a rename may take
                if not had_bytes and self._renaming[inode.ino] == 1:  # no other rename needs it
                    state.revert_to_remote(inode)  # deletes the copy that `bring_bytes` made
                raise
            finally:
                self._renaming[inode.ino] -= 1
                self._renaming += Counter()  # drops the zeros

    def _expire_respelled(self, folder: Inode, shown: str, name: bytes) -> None:
        """Let the kernel look up a name again if programs can also use another spelling of it."""
        if is_respelled(shown):
            self._state.invalidations.put(EntryChanged(folder.ino, name))

    def _leave_lost_upload(self, inode: Inode, folder: Inode, name: str) -> None:
        """Detach the inode of a new entry from its unanswered request, before the entry is renamed.

        The request may have created an entry on the service. If the profile has an operation that
        moves that entry to `name` in `folder`, do nothing. Otherwise the inode is sent again as a
        new entry, and the entry that the request has created, if any, is removed if possible.
        """
        state, request = self._state, self._state.requests.get(inode.ino)
        if request is None or not inode.is_new:
            return
        renamed, moved = name != request.name, folder.remote_id != request.folder
        if not self._service.can_place(folder=inode.is_folder, renamed=renamed, moved=moved):
            local_operations.leave_request(state, inode)

    @contextlib.contextmanager
    def _held_back(self, inode: Inode) -> Iterator[None]:
        """Keep the unsent bytes of a file during the `with` block, even if its upload succeeds.

        A program that has the file open may close it, or wait for its upload, during the block.
        """
        intents, ino = self._state.intents, inode.ino
        intent = intents.get(ino)
        if intent is None or not intent.generation or ino in intents.kept_back:
            yield
            return
        if not intent.held:
            intents.hold(ino)
        intents.kept_back.add(ino)
        try:
            yield
        finally:
            intents.kept_back.discard(ino)
            # The file may be removed or parked now.
            now, session = intents.get(ino), self._state.session(ino)
            if now is not None and now.generation and (session is None or session.frozen):
                intents.let_go(ino, self._state.due())

    # ---- refusals ----

    def named(self, folder: Inode, name: str) -> Inode:
        """Return the entry `name` of a folder; raise FileNotFoundError if there is none."""
        inode = self._state.inodes.child(folder.ino, name)
        if inode is None:
            raise FileNotFoundError(errno.ENOENT, "no such entry")
        return inode

    async def _free_place(self, parent: int, name: bytes) -> tuple[Inode, str]:
        state = self._state
        wanted = state.checked_name(name)
        folder = await self.folder(parent)
        if folder.ino == ROOT:
            raise PermissionError(errno.EPERM, "zones are made on the service, not here")
        if state.inodes.child(folder.ino, wanted) is not None:
            raise FileExistsError(errno.EEXIST, "the name is taken")
        require_writable(folder)
        state.require_folders(folder)
        return folder, wanted

    def require_removable(self, inode: Inode) -> None:
        """Raise NotSupported if the entry is on the service, but the profile offers no deletion."""
        if not inode.is_new and not self._service.can("delete", folder=inode.is_folder):
            raise NotSupported("the deployment's profile cannot delete")

    async def require_empty(self, folder: Inode) -> None:
        """Raise OSError (ENOTEMPTY) if the folder has entries, after fetching its listing."""
        await self._folders.ensure(folder)
        if self._state.inodes.children(folder.ino):
            raise OSError(errno.ENOTEMPTY, "the folder is not empty")

    def _require_movable(
        self,
        inode: Inode,
        folder: Inode,
        name: str,
        target: Inode | None,
        *,
        aside: bool = False,
    ) -> None:
        """Raise an error if `inode` cannot be moved to `name` in `folder`.

        `target` is the inode with the name, or None. If `aside` is true, the move goes through a
        temporary name. Raises PermissionError for a zone, or if a policy forbids uploading the
        file's bytes as the next version of `target`. Raises NotSupported if the profile has no
        operation that renames or moves the entry. Raises OSError (EINVAL for a move of a folder
        into itself, EXDEV if programs should copy the entry instead).
        """
        state = self._state
        if inode.kind is Kind.ZONE or folder.ino == ROOT:
            raise PermissionError(errno.EPERM, "zones stay where they are")
        # After EXDEV, programs copy and delete the file, which is necessary between zones.
        if folder.zone != inode.zone:
            raise OSError(errno.EXDEV, "zones are separate compartments")
        stays = local_operations.becomes_local(state, inode, folder, name, target)
        if inode.is_folder and stays and not inode.local:
            raise OSError(errno.EXDEV, "a name that stays on this machine")
        if not inode.is_new:
            if not stays and target is not None and state.is_never_uploaded(name):
                raise PermissionError(errno.EPERM, "a policy forbids uploads with this name")
            renamed = aside or name != inode.name or state.remote_name(inode) != inode.remote_name
            moved = folder.remote_id != inode.remote_parent
            if not self._service.can_place(folder=inode.is_folder, renamed=renamed, moved=moved):
                raise NotSupported("the deployment's profile cannot rename or move this")
        if inode.is_folder and inode.is_new and not (stays or self._service.can("make_folder")):
            raise OSError(errno.EXDEV, "the deployment's profile cannot make folders")
        if inode.is_folder and state.inodes.is_below(folder, inode):
            raise OSError(errno.EINVAL, "a folder cannot be moved into itself")

    async def _require_replaceable(self, inode: Inode, target: Inode) -> None:
        if target.is_folder:
            if not inode.is_folder:
                raise IsADirectoryError(errno.EISDIR, "the target is a folder")
            self.require_removable(target)
            await self.require_empty(target)
        elif inode.is_folder:
            raise NotADirectoryError(errno.ENOTDIR, "the target is not a folder")
        elif not inode.is_new or target.is_new:
            self.require_removable(target)
