"""File system that `fuse` calls, and its background tasks.

Each operation is passed to the layer that contains the entry: the virtual layer or the tree.
"""

import contextlib
import errno
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from functools import partial

import trio

from zonedrive.content.content_file import Buffer
from zonedrive.errors import ZonedriveError
from zonedrive.failpoint import Place, reached
from zonedrive.pins.fetch import PinFetcher
from zonedrive.pins.pins import Pins
from zonedrive.prefetch.files import FilePrefetch
from zonedrive.remote.service import Service
from zonedrive.state import local_operations
from zonedrive.state.attributes import MODE_BITS, Attr, allowed
from zonedrive.state.inode import NOWHERE, ROOT
from zonedrive.state.invalidation import InodeChanged
from zonedrive.state.local_state import LocalState
from zonedrive.state.open_file import VIRTUAL, Opened, ino_of
from zonedrive.supervisor import Task
from zonedrive.sync.directory_cache import DirectoryCache
from zonedrive.sync.dispatcher import Dispatcher
from zonedrive.sync.executor import Executor
from zonedrive.sync.planner import InodeViews
from zonedrive.vfs import xattrs
from zonedrive.vfs.caller_policy import CallerPolicy
from zonedrive.vfs.fetch_failures import FetchFailures
from zonedrive.vfs.files import Files
from zonedrive.vfs.maintenance import upkeep
from zonedrive.vfs.namespace import Listed, Namespace
from zonedrive.views.desktop_trash import DesktopTrash
from zonedrive.views.entry_states import EntryStates
from zonedrive.views.status_report import StatusReport
from zonedrive.views.trash import TrashOperations
from zonedrive.views.versions import Versions
from zonedrive.views.virtual import VirtualLayer, refuse
from zonedrive.views.volume_info import VolumeInfo

QUIET_S = 0.25  # seconds without a change before due changes are sent


class FileSystem:
    """File system of one mounted account."""

    def __init__(self, state: LocalState, service: Service, title: str) -> None:
        """Create the parts of the mount without starting any task; call `recover` on `state` first.

        `title` is the name of the mount for file managers.
        """
        self._state = state
        self._service = service
        callers = CallerPolicy(state.settings.guard)
        self._folders = DirectoryCache(state, service)
        self._executor = Executor(state, service, self._folders)
        self.pins = Pins(state)
        state.cache.quota.pinned = self.pins
        self.pins.changes.add(state.cache.quota.examine_again)
        self.pin_fetcher = PinFetcher(state, service, self._folders, self.pins)
        # Metadata and content use separate connection pools; a step uses one connection at a time.
        self._dispatcher = Dispatcher(
            state,
            InodeViews(state),
            self._executor,
            state.settings.transfers,
            quiet=min(QUIET_S, state.settings.settle),
            # With an upload limit, tiny files also need threads, whose number is limited.
            most=0 if state.settings.upload_limit else state.settings.connections,
            uploads=max(2, state.settings.connections),  # one big file must not delay the others
        )
        self._file_prefetch = FilePrefetch(state, service, self._folders, callers)
        self._files = Files(state, service, self._folders, self._dispatcher, callers)
        self._names = Namespace(state, service, self._folders, self._files, self._dispatcher)
        self._versions = Versions(state, service, self._folders, callers)
        self.trash = TrashOperations(state, service, self._folders, self._dispatcher, self._names)
        self._virtual = VirtualLayer(
            state, [self._versions, DesktopTrash(state, self.trash), VolumeInfo(state, title)]
        )
        self.report = StatusReport(
            state,
            service,
            self._folders,
            self._dispatcher,
            self._executor.uploads,
            self._virtual,
            self._versions,
            FetchFailures(state.inodes, state.cache, service.link),
        )
        self.entry_states = EntryStates(state, self._dispatcher, self.pins)
        self.invalidations = state.invalidations.receive

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        async with trio.open_nursery() as nursery:
            await nursery.start(self._folders.run)
            await nursery.start(self._state.cache.run)
            await nursery.start(self._file_prefetch.run)
            nursery.start_soon(self._dispatcher.run)
            nursery.start_soon(self.pin_fetcher.run)
            keep, state = self._state.supervisor.keep, self._state
            probe = partial(self._service.link.run, self._service.probe)
            nursery.start_soon(keep, Task.CONNECTION_CHECK, probe)
            nursery.start_soon(keep, Task.CONNECTION_CHANGES, self._watch_link)
            nursery.start_soon(keep, Task.OPEN_LOGS, self._files.sessions.keep)
            nursery.start_soon(keep, Task.REPLACED_BYTES, self._files.sessions.free_superseded)
            nursery.start_soon(keep, Task.ZONE_LIST, self._list_zones_at_start)
            nursery.start_soon(keep, Task.UPKEEP, partial(upkeep, state))
            task_status.started()

    async def _list_zones_at_start(self) -> None:
        """List the zones once, to learn the connection state before a program's first request."""
        self._preconnect()
        with contextlib.suppress(ZonedriveError, OSError):
            await self._folders.refresh(self._state.inodes.get(ROOT), time.monotonic_ns())

    def _preconnect(self) -> None:
        """Open a connection for downloads in advance, because connecting takes time."""
        self._state.cache.expect(self._service.transfer.prepare)

    async def _watch_link(self) -> None:
        """Wake the dispatcher after each change of the connection state.

        The dispatcher then looks for pending changes to send.
        """
        while True:
            await self._service.link.wait_change()
            self._dispatcher.wake()

    async def aclose(self) -> None:
        """Store unsaved bytes; close all files, the cache and the connections to the service.

        Call this method after the unmount.
        """
        self._files.close_all()
        self._virtual.close_all()
        self._state.spool.tidy()
        await self._state.cache.aclose()
        await self._service.aclose()
        self._state.invalidations.close()
        reached(Place.CLOSED)

    # ---- names ----

    async def lookup(self, parent: int, name: bytes) -> Attr:
        """Return the attributes of the entry `name`, from the tree or the virtual layer."""
        if parent >= VIRTUAL:
            return await self._virtual.lookup(parent, name)
        try:
            return await self._names.lookup(parent, name)
        except FileNotFoundError:
            return await self._virtual.lookup(parent, name)

    def forget(self, ino: int, count: int) -> None:
        if ino >= VIRTUAL:
            self._virtual.forget(ino, count)
        elif self._state.inodes.forget(ino_of(ino), count):
            self._state.release_if_unreferenced(self._state.inodes.get(ino_of(ino)))

    def remember(self, inos: Sequence[int]) -> None:
        """Increment the lookup counts of inodes that the kernel received in a listing."""
        if inos and inos[0] >= VIRTUAL:
            self._virtual.remember(inos)
        elif self._state.kernel.renewals:
            self._state.inodes.remember_all([ino_of(number) for number in inos])
        else:
            self._state.inodes.remember_all(inos)

    async def opendir(self, ino: int) -> int:
        if ino >= VIRTUAL:
            return await self._virtual.opendir(ino)
        self._folders.reading(ino)
        self._preconnect()  # while the listing is on its way
        return await self._names.opendir(ino)

    async def load(self, handle: int) -> None:
        """Load the names in an open folder.

        Call this method before `listed` with `start` 0.
        """
        if handle < VIRTUAL:
            await self._names.load(handle)

    def listed(self, handle: int, start: int) -> Listed | None:
        return None if handle >= VIRTUAL else self._names.listed(handle, start)

    def readdir(self, handle: int, start: int) -> Iterator[tuple[bytes, Attr, int]]:
        return (self._virtual if handle >= VIRTUAL else self._names).readdir(handle, start)

    async def releasedir(self, handle: int) -> None:
        (self._virtual if handle >= VIRTUAL else self._names).releasedir(handle)

    async def fsyncdir(self, handle: int) -> None:
        """Flush earlier changes to directory entries to the disk."""
        await trio.to_thread.run_sync(self._state.database.flush)

    async def mkdir(self, parent: int, name: bytes, mode: int) -> Attr:
        return await self._layer(parent, name).mkdir(parent, name, mode)

    async def rmdir(self, parent: int, name: bytes) -> None:
        await self._layer(parent, name).rmdir(parent, name)

    async def unlink(self, parent: int, name: bytes) -> None:
        await self._layer(parent, name).unlink(parent, name)

    async def rename(
        self, old_parent: int, old_name: bytes, new_parent: int, new_name: bytes, flags: int
    ) -> None:
        names, virtual = (old_parent, old_name, new_parent, new_name), self._virtual
        if virtual.has(old_parent, old_name) or virtual.has(new_parent, new_name):
            await virtual.rename(*names, flags)
        else:
            await self._names.rename(*names, flags)

    def _layer(self, parent: int, name: bytes) -> VirtualLayer | Namespace:
        return self._virtual if self._virtual.has(parent, name) else self._names

    # ---- attributes ----

    async def getattr(self, ino: int) -> Attr:
        """Return the attributes for a kernel inode number.

        If the number belongs to an open former version of a file, return the attributes of that
        version.
        """
        if ino >= VIRTUAL:
            return self._virtual.getattr(ino)
        state = self._state
        if (former := state.kernel.former.get(ino)) is not None:
            return former.told
        attr = state.attr_for(ino, await self._names.getattr(ino))
        if attr.ino != ino:
            state.kernel.inode(state.inodes, ino)  # raises OSError (ESTALE)
        return attr

    async def setattr(
        self,
        ino: int,
        *,
        size: int | None = None,
        mode: int | None = None,
        mtime_ns: int | None = None,
        atime_ns: int | None = None,
        uid: int | None = None,
        gid: int | None = None,
        handle: int | None = None,
    ) -> Attr:
        """Set size, permission bits, owner and times.

        `handle` is the file handle of ftruncate(2), or None. Permission bits and times are stored
        locally (access times only until unmount), because the service cannot store them. A time
        that does not fit into 64 bits becomes the earliest or the latest time that does. Raises
        PermissionError (EPERM) for a different owner, for the mount point, and for permission bits
        that the entry's protection on the service forbids.
        """
        state = self._state
        if ino >= VIRTUAL:
            return await self._virtual.setattr(ino, size=size, mode=mode, mtime_ns=mtime_ns)
        if size is not None and handle is not None:
            self._files.require_current(handle)
        inode = state.inode_for(ino)
        owner = state.owner
        if uid not in (None, owner.uid) or gid not in (None, owner.gid):
            raise PermissionError(errno.EPERM, "the owner cannot be changed")
        if inode.ino == ROOT and (mode, mtime_ns, atime_ns) != (None, None, None):
            raise PermissionError(
                errno.EPERM, "the attributes of the mount point cannot be changed"
            )
        if size is not None:
            await self._files.truncate(inode, size, handle)
        changes: dict[str, int] = {}
        if mode is not None:
            if mode & ~allowed(inode, state.rules):
                raise PermissionError(errno.EPERM, "protected on the service")
            changes["mode"] = mode & MODE_BITS
        if atime_ns is not None:
            state.atimes[inode.ino] = _fitting(atime_ns)
        if mtime_ns is not None and not self._files.touch(inode, mtime_ns := _fitting(mtime_ns)):
            changes["mtime_ns"] = mtime_ns
        if size is None and (changes or not self._files.touch(inode)):
            changes["ctime_ns"] = time.time_ns()
        if changes:  # in one write, because programs that unpack archives set all of them
            local_operations.set_attributes(state, inode, **changes)
        if ino != state.kernel.number(inode.ino):
            state.invalidations.put(InodeChanged(inode.ino, attr_only=size is None))
        return state.attr_for(ino, self._names.attr(inode, ino))

    async def getxattr(self, ino: int, name: bytes) -> bytes:
        value = self._xattrs(ino).get(name.decode("utf-8", "replace"))
        if value is None:
            raise OSError(errno.ENODATA, "no such attribute")
        return value.encode("utf-8", "surrogatepass")

    async def listxattr(self, ino: int) -> list[bytes]:
        return [name.encode() for name in self._xattrs(ino)]

    def _xattrs(self, ino: int) -> dict[str, str]:
        if ino >= VIRTUAL:
            return self._virtual.xattrs(ino)
        inode = self._state.inodes.get(ino_of(ino))
        return xattrs.values(self._state, inode, self._versions.present(inode))

    async def setxattr(self, ino: int, name: bytes, value: bytes) -> None:
        """Raise OSError with ENOTSUP, or with EROFS for a virtual entry.

        The service cannot store extended attributes.
        """
        await self.removexattr(ino, name)

    async def removexattr(self, ino: int, name: bytes) -> None:
        """Raise the same OSError as `setxattr`."""
        if ino >= VIRTUAL:
            refuse()
        raise OSError(errno.ENOTSUP, "extended attributes cannot be changed")

    async def statfs(self) -> tuple[int, int]:
        """Return the local disk's total and free bytes, because the service reports no quota."""
        disk = shutil.disk_usage(self._state.database.path.parent)
        return disk.total, self._state.spool.room()

    # ---- files ----

    async def open(self, ino: int, flags: int, pid: int = 0) -> Opened:
        if ino >= VIRTUAL:
            return await self._virtual.open(ino, flags, pid)
        inode = self._state.kernel.inode(self._state.inodes, ino)
        if inode.parent != NOWHERE and not self._state.local(inode.ino):
            await self._folders.ensure_if_reachable(self._state.inodes.get(inode.parent))
        await self._file_prefetch.wait_for_prefetch(inode.ino)
        self._state.supersede(inode)
        self._state.kernel.inode(self._state.inodes, ino)
        if flags & os.O_ACCMODE == os.O_RDONLY:
            self._file_prefetch.opened(inode, pid, flags)
        return await self._files.open(inode, flags, pid)

    async def create(self, parent: int, name: bytes, mode: int, flags: int) -> tuple[Opened, Attr]:
        return await self._layer(parent, name).create(parent, name, mode, flags)

    def available(self, handle: int, offset: int, size: int) -> Buffer | None:
        return None if handle >= VIRTUAL else self._files.available(handle, offset, size)

    async def read(self, handle: int, offset: int, size: int) -> Buffer:
        return await self._opened(handle).read(handle, offset, size)

    async def write(self, handle: int, offset: int, data: bytes) -> int:
        return await self._opened(handle).write(handle, offset, data)

    async def flush(self, handle: int) -> None:
        await self._opened(handle).flush(handle)

    async def fsync(self, handle: int) -> None:
        await self._opened(handle).fsync(handle)

    async def release(self, handle: int) -> None:
        await self._opened(handle).release(handle)

    def _opened(self, handle: int) -> VirtualLayer | Files:
        return self._virtual if handle >= VIRTUAL else self._files


def _fitting(time_ns: int) -> int:
    """Return the time, limited to 64 bits, because SQLite stores no larger integer."""
    return min(max(time_ns, -(1 << 63)), (1 << 63) - 1)
