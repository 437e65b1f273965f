"""Passthrough file system for a local folder, with FUSE in Python: `… bare SOURCE MOUNTPOINT`.

Shows the cost of pyfuse3, trio and the kernel alone: no cache, no service, no encryption, no
record of writes. A file system of these components cannot be much faster, so these figures are
the limit. All lookups are remembered, which is acceptable only for a measurement.
"""

import errno
import os
import stat
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyfuse3
import trio
from pyfuse3 import EntryAttributes, FileInfo, FUSEError, RequestContext, SetattrFields

from zonedrive.fuse import tuning

TRUSTED_S = 3600.0


@contextmanager
def told() -> Iterator[None]:
    """Convert OSError to the errors of FUSE."""
    try:
        yield
    except OSError as wrong:
        raise FUSEError(wrong.errno or errno.EIO) from None


class Bare(pyfuse3.Operations):
    """File system that forwards every request to the folder."""

    supports_dot_lookup = False
    enable_writeback_cache = False

    def __init__(self, source: Path) -> None:
        super().__init__()
        self._paths = {pyfuse3.ROOT_INODE: os.fspath(source)}
        self._numbers = {os.fspath(source): pyfuse3.ROOT_INODE}
        # By inode: when the folder changed, and what it has.
        self._listings: dict[int, tuple[int, list[tuple[bytes, EntryAttributes]]]] = {}

    def _number(self, path: str) -> int:
        number = self._numbers.setdefault(path, len(self._numbers) + 1)
        self._paths[number] = path
        return number

    def _entry(self, path: str) -> EntryAttributes:
        with told():
            found = os.lstat(path)
        entry = EntryAttributes()
        for name in (
            "st_mode", "st_nlink", "st_uid", "st_gid", "st_rdev", "st_size", "st_atime_ns",
            "st_mtime_ns", "st_ctime_ns", "st_blksize", "st_blocks",
        ):  # fmt: skip
            setattr(entry, name, getattr(found, name))
        entry.st_ino = self._number(path)
        entry.entry_timeout = entry.attr_timeout = TRUSTED_S
        return entry

    def _path(self, parent: int, name: bytes) -> str:
        return f"{self._paths[parent]}/{os.fsdecode(name)}"

    async def lookup(self, parent_inode: int, name: bytes, ctx: RequestContext) -> EntryAttributes:
        return self._entry(self._path(parent_inode, name))

    async def getattr(self, inode: int, ctx: RequestContext) -> EntryAttributes:
        return self._entry(self._paths[inode])

    async def setattr(
        self,
        inode: int,
        attr: EntryAttributes,
        fields: SetattrFields,
        fh: int | None,
        ctx: RequestContext,
    ) -> EntryAttributes:
        path = self._paths[inode]
        with told():
            if fields.update_size:
                os.truncate(path, attr.st_size)
            if fields.update_mode:
                Path(path).chmod(stat.S_IMODE(attr.st_mode))
            if fields.update_mtime:
                os.utime(path, ns=(attr.st_mtime_ns, attr.st_mtime_ns))
        return self._entry(path)

    async def opendir(self, inode: int, ctx: RequestContext) -> int:
        return inode

    async def readdir(self, fh: int, start_id: int, token: pyfuse3.ReaddirToken) -> None:
        folder = self._paths[fh]
        changed = Path(folder).stat().st_mtime_ns
        if self._listings.get(fh, (0, []))[0] != changed:
            names = os.listdir(folder)
            made = [(os.fsencode(name), self._entry(f"{folder}/{name}")) for name in names]
            self._listings[fh] = (changed, made)
        listing = self._listings[fh][1]
        for at in range(start_id, len(listing)):
            if not pyfuse3.readdir_reply(token, *listing[at], at + 1):
                return

    async def open(self, inode: int, flags: int, ctx: RequestContext) -> FileInfo:
        with told():
            return FileInfo(fh=os.open(self._paths[inode], flags & ~os.O_CREAT), keep_cache=False)

    async def create(
        self, parent_inode: int, name: bytes, mode: int, flags: int, ctx: RequestContext
    ) -> tuple[FileInfo, EntryAttributes]:
        path = self._path(parent_inode, name)
        with told():
            fh = os.open(path, flags | os.O_CREAT, mode)
        return FileInfo(fh=fh), self._entry(path)

    async def mkdir(
        self, parent_inode: int, name: bytes, mode: int, ctx: RequestContext
    ) -> EntryAttributes:
        path = self._path(parent_inode, name)
        with told():
            Path(path).mkdir(mode)
        return self._entry(path)

    async def rename(
        self,
        parent_inode_old: int,
        name_old: bytes,
        parent_inode_new: int,
        name_new: bytes,
        flags: int,
        ctx: RequestContext,
    ) -> None:
        old, new = self._path(parent_inode_old, name_old), self._path(parent_inode_new, name_new)
        with told():
            Path(old).rename(new)
        self._numbers[new] = number = self._numbers.pop(old)
        self._paths[number] = new

    async def read(self, fh: int, off: int, size: int) -> bytes:
        return os.pread(fh, size, off)

    async def write(self, fh: int, off: int, buf: bytes) -> int:
        return os.pwrite(fh, buf, off)

    async def release(self, fh: int) -> None:
        os.close(fh)

    async def forget(self, inode_list: Sequence[tuple[int, int]]) -> None:
        """Do nothing: all lookups are remembered."""

    async def flush(self, fh: int) -> None:
        """Do nothing."""

    async def releasedir(self, fh: int) -> None:
        """Do nothing, because no folder stays open."""


def main(source: str, mountpoint: str) -> None:
    """Serve until unmounted."""
    pyfuse3.init(Bare(Path(source)), mountpoint, {*pyfuse3.default_options, "fsname=bare"})

    async def run() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(pyfuse3.main)
            here = await trio.to_thread.run_sync(os.stat, mountpoint)
            tuning.tune(here.st_dev)

    try:
        trio.run(run)
    finally:
        pyfuse3.close(unmount=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
