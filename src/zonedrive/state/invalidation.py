"""Queue of cache invalidations from the vfs for the kernel; `fuse` sends them."""

import math

import msgspec
import trio

from zonedrive.state.open_file import KernelInodes


class InodeChanged(msgspec.Struct, frozen=True):
    """Change of an inode's attributes and, unless `attr_only`, of its cached pages."""

    ino: int
    attr_only: bool


class EntryChanged(msgspec.Struct, frozen=True):
    """Change of a name: it exists now, or refers to another inode."""

    parent: int
    name: bytes


class EntryGone(msgspec.Struct, frozen=True):
    """Removal of a name that referred to `ino`."""

    parent: int
    name: bytes
    ino: int


Invalidation = InodeChanged | EntryChanged | EntryGone


class Invalidations:
    """Unbounded queue, so that a change of the tree never waits for the kernel."""

    def __init__(self, kernel: KernelInodes) -> None:
        """Create the queue; it translates inodes of the tree to those of `kernel`."""
        self._kernel = kernel
        self._send, self.receive = trio.open_memory_channel[Invalidation](math.inf)

    def put(self, item: Invalidation) -> None:
        """Queue an invalidation."""
        if not isinstance(item, EntryChanged) and (number := self._kernel.number(item.ino)):
            item = msgspec.structs.replace(item, ino=number)
        self._send.send_nowait(item)

    def close(self) -> None:
        """Close the queue: no more items follow."""
        self._send.close()
