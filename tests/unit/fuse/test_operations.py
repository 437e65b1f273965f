"""FUSE handlers without a kernel."""

import errno
import stat
from types import SimpleNamespace
from typing import Any, cast

import pyfuse3
import pytest

from zonedrive.fuse.operations import Operations
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
