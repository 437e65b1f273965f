"""FUSE handlers, which decode a request, call `views.stack.FileSystem` and encode the answer.

Names are byte strings, times are in nanoseconds, sizes are in bytes, and inode 1 is the root. The
handlers make no decisions. They run many times a second, so values that can be computed once are
not computed here.
"""

import errno
import os
import stat
from collections.abc import Sequence

import pyfuse3
from pyfuse3 import EntryAttributes, FileInfo, FUSEError, RequestContext

from zonedrive.fuse.deadline import LONG_DEADLINE, Gate, guarded
from zonedrive.fuse.errno_table import errno_of
from zonedrive.fuse.readdir_cache import Listings
from zonedrive.state.attributes import Attr
from zonedrive.state.open_file import Opened
from zonedrive.views.stack import FileSystem

Buffer = bytes | bytearray | memoryview
RENAME_FLAGS = 1 | 2  # RENAME_NOREPLACE, RENAME_EXCHANGE of renameat2(2)
BLOCK = 4096
NAME_MAX = 255


class Operations(pyfuse3.Operations):
    """Handlers for the kernel's requests to one file system."""

    supports_dot_lookup = False
    enable_writeback_cache = False  # the kernel would keep an old size after a remote change
    enable_acl = False

    def __init__(self, files: FileSystem) -> None:
        super().__init__()
        self._files = files
        self._listings = Listings(files, encode)
        self.gate = Gate()

    # ---- names ----

    @guarded()
    async def lookup(self, parent_inode: int, name: bytes, ctx: RequestContext) -> EntryAttributes:
        return encode(await self._files.lookup(parent_inode, name))

    async def forget(self, inode_list: Sequence[tuple[int, int]]) -> None:
        for ino, count in inode_list:
            try:
                self._files.forget(ino, count)
            # The kernel expects no reply, and the other inodes must be processed.
            except Exception as error:
                errno_of(error)

    @guarded()
    async def mkdir(
        self, parent_inode: int, name: bytes, mode: int, ctx: RequestContext
    ) -> EntryAttributes:
        return encode(await self._files.mkdir(parent_inode, name, mode))

    @guarded()
    async def rmdir(self, parent_inode: int, name: bytes, ctx: RequestContext) -> None:
        await self._files.rmdir(parent_inode, name)

    @guarded()
    async def unlink(self, parent_inode: int, name: bytes, ctx: RequestContext) -> None:
        await self._files.unlink(parent_inode, name)

    @guarded()
    async def rename(
        self,
        parent_inode_old: int,
        name_old: bytes,
        parent_inode_new: int,
        name_new: bytes,
        flags: int,
        ctx: RequestContext,
    ) -> None:
        if flags & ~RENAME_FLAGS or flags == RENAME_FLAGS:
            raise FUSEError(errno.EINVAL)
        await self._files.rename(parent_inode_old, name_old, parent_inode_new, name_new, flags)

    async def symlink(
        self, parent_inode: int, name: bytes, target: bytes, ctx: RequestContext
    ) -> EntryAttributes:
        raise FUSEError(errno.EPERM)  # as POSIX requires of a file system without links

    async def link(
        self, inode: int, new_parent_inode: int, new_name: bytes, ctx: RequestContext
    ) -> EntryAttributes:
        raise FUSEError(errno.EPERM)

    @guarded()
    async def mknod(
        self, parent_inode: int, name: bytes, mode: int, rdev: int, ctx: RequestContext
    ) -> EntryAttributes:
        if not stat.S_ISREG(mode):
            raise FUSEError(errno.EPERM)
        opened, attr = await self._files.create(parent_inode, name, mode, os.O_EXCL)
        try:
            try:
                await self._files.flush(opened.handle)
            finally:
                await self._files.release(opened.handle)
        except BaseException:
            self._files.forget(attr.ino, 1)  # after an error, the kernel never forgets the inode
            raise
        return encode(attr)

    # ---- attributes ----

    @guarded()
    async def getattr(self, inode: int, ctx: RequestContext) -> EntryAttributes:
        return encode(await self._files.getattr(inode))

    @guarded(LONG_DEADLINE)
    async def setattr(
        self,
        inode: int,
        attr: EntryAttributes,
        fields: pyfuse3.SetattrFields,
        fh: int | None,
        ctx: RequestContext,
    ) -> EntryAttributes:
        changed = await self._files.setattr(
            inode,
            size=attr.st_size if fields.update_size else None,
            mode=stat.S_IMODE(attr.st_mode) if fields.update_mode else None,
            mtime_ns=attr.st_mtime_ns if fields.update_mtime else None,
            atime_ns=attr.st_atime_ns if fields.update_atime else None,
            uid=attr.st_uid if fields.update_uid else None,
            gid=attr.st_gid if fields.update_gid else None,
            handle=fh,
        )
        return encode(changed)

    @guarded(None)
    async def getxattr(self, inode: int, name: bytes, ctx: RequestContext) -> bytes:
        # The kernel asks for security.capability before every write. `ls -l` asks for ACLs and
        # labels; after this errno, it does not ask again for other files.
        if not name.startswith(b"user."):
            raise FUSEError(errno.ENOTSUP)
        return await self._files.getxattr(inode, name)

    @guarded(None)
    async def listxattr(self, inode: int, ctx: RequestContext) -> Sequence[bytes]:
        return await self._files.listxattr(inode)

    @guarded()
    async def setxattr(self, inode: int, name: bytes, value: bytes, ctx: RequestContext) -> None:
        await self._files.setxattr(inode, name, value)

    @guarded()
    async def removexattr(self, inode: int, name: bytes, ctx: RequestContext) -> None:
        await self._files.removexattr(inode, name)

    @guarded(None)
    async def statfs(self, ctx: RequestContext) -> pyfuse3.StatvfsData:
        total, free = await self._files.statfs()
        data = pyfuse3.StatvfsData()
        data.f_bsize = data.f_frsize = BLOCK
        data.f_blocks = total // BLOCK
        data.f_bfree = data.f_bavail = free // BLOCK
        data.f_files = data.f_ffree = data.f_favail = 0  # no limit: inodes are created on demand
        data.f_namemax = NAME_MAX
        return data

    # ---- folders ----

    @guarded()
    async def opendir(self, inode: int, ctx: RequestContext) -> int:
        return await self._files.opendir(inode)

    @guarded(None)
    async def readdir(self, fh: int, start_id: int, token: pyfuse3.ReaddirToken) -> None:
        if start_id == 0:
            await self._load(fh)
        self._listings.reply(token, fh, start_id)

    @guarded()
    async def _load(self, fh: int) -> None:
        await self._files.load(fh)

    @guarded(None)
    async def releasedir(self, fh: int) -> None:
        await self._files.releasedir(fh)

    @guarded()
    async def fsyncdir(self, fh: int, datasync: bool) -> None:
        await self._files.fsyncdir(fh)

    # ---- files ----

    @guarded()
    async def open(self, inode: int, flags: int, ctx: RequestContext) -> FileInfo:
        return _info(await self._files.open(inode, flags, ctx.pid))

    @guarded()
    async def create(
        self, parent_inode: int, name: bytes, mode: int, flags: int, ctx: RequestContext
    ) -> tuple[FileInfo, EntryAttributes]:
        opened, attr = await self._files.create(parent_inode, name, mode, flags)
        return _info(opened), encode(attr)

    @guarded(None)
    async def read(  # type: ignore[override]  # any buffer is accepted
        self, fh: int, off: int, size: int
    ) -> Buffer:
        # The kernel gets the data before the next checkpoint, so the memory may be reused later.
        data = self._files.available(fh, off, size)
        return await self._fetch(fh, off, size) if data is None else data

    @guarded()
    async def _fetch(self, fh: int, off: int, size: int) -> Buffer:
        return await self._files.read(fh, off, size)

    @guarded(LONG_DEADLINE)
    async def write(self, fh: int, off: int, buf: bytes) -> int:
        return await self._files.write(fh, off, buf)

    @guarded(LONG_DEADLINE)
    async def flush(self, fh: int) -> None:
        await self._files.flush(fh)

    @guarded(LONG_DEADLINE)
    async def fsync(self, fh: int, datasync: bool) -> None:
        await self._files.fsync(fh)

    @guarded(None)
    async def release(self, fh: int) -> None:
        await self._files.release(fh)


def encode(attr: Attr) -> EntryAttributes:
    """Return `attr` in pyfuse3's format for the kernel."""
    entry = EntryAttributes()
    entry.entry_timeout = attr.entry_timeout
    entry.st_ino = attr.ino
    if not attr.ino:  # a negative dentry: only its timeout counts
        return entry
    entry.attr_timeout = attr.attr_timeout
    entry.st_mode = attr.mode
    entry.st_nlink = attr.nlink
    entry.st_uid = attr.uid
    entry.st_gid = attr.gid
    entry.st_size = size = attr.size
    entry.st_blocks = (size + 511) >> 9  # always units of 512 bytes
    entry.st_blksize = BLOCK
    entry.st_atime_ns = attr.atime_ns
    entry.st_mtime_ns = attr.mtime_ns
    entry.st_ctime_ns = attr.ctime_ns
    return entry


def _info(opened: Opened) -> FileInfo:
    return FileInfo(
        fh=opened.handle,
        direct_io=False,  # shared mappings need pages in the kernel
        keep_cache=opened.keep_cache,
        nonseekable=False,
    )
