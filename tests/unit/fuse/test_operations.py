"""FUSE handlers without a kernel."""

import errno
import stat
from types import SimpleNamespace
from typing import Any, cast

import pyfuse3
import pytest
import trio

from zonedrive.fuse.deadline import DEADLINE
from zonedrive.fuse.operations import Operations
from zonedrive.state.attributes import Attr
from zonedrive.views.stack import FileSystem


class FullDisk:
    """Fake file system that cannot store a new file."""

    def __init__(self) -> None:
        self.open_handles: set[int] = set()
        self.lookups = 0

    async def create(self, parent: int, name: bytes, mode: int, flags: int) -> tuple[Any, Any]:
        """Open a new file."""
        self.open_handles.add(7)
        self.lookups += 1
        return SimpleNamespace(handle=7), SimpleNamespace(ino=3)

    async def flush(self, handle: int) -> None:
        """Fail."""
        raise OSError(errno.ENOSPC, "full")

    async def release(self, handle: int) -> None:
        """Close a handle."""
        self.open_handles.remove(handle)

    def forget(self, ino: int, count: int) -> None:
        """Subtract from the lookup count of the file."""
        assert ino == 3
        self.lookups -= count


async def test_a_file_of_mknod_that_cannot_be_stored_is_released() -> None:
    """The kernel knows neither a handle nor an inode of the file, and will not release them."""
    files = FullDisk()
    operations = Operations(cast(FileSystem, files))
    with pytest.raises(pyfuse3.FUSEError) as failed:
        await operations.mknod(
            1, b"new", stat.S_IFREG | 0o600, 0, cast(pyfuse3.RequestContext, None)
        )
    assert failed.value.errno == errno.ENOSPC
    assert not files.open_handles
    assert files.lookups == 0


class Downloading:
    """Fake file system whose changes of a file begin with a long download."""

    async def write(self, handle: int, offset: int, data: bytes) -> int:
        """Write."""
        await trio.sleep(2 * DEADLINE)
        return len(data)

    async def setattr(self, ino: int, **changes: object) -> Attr:
        """Set the size, or anything else."""
        await trio.sleep(2 * DEADLINE)
        return Attr(ino, stat.S_IFREG, 1, 0, mtime_ns=0, ctime_ns=0, atime_ns=0, uid=0, gid=0)


async def test_a_change_of_a_large_file_waits_for_its_content(
    autojump_clock: trio.abc.Clock,
) -> None:
    """The download of the former content may take longer than other operations."""
    operations = Operations(cast(FileSystem, Downloading()))
    anybody = cast(pyfuse3.RequestContext, None)
    assert await operations.write(1, 0, b"new") == 3
    changed = await operations.setattr(
        2, pyfuse3.EntryAttributes(), pyfuse3.SetattrFields(), None, anybody
    )
    assert changed.st_ino == 2
