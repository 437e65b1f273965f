"""What the kernel must forget: said by the vfs, told to the kernel by `fuse`."""

import math

import msgspec
import trio

from zonedrive.vfs.kernel_inodes import KernelInodes


class InodeChanged(msgspec.Struct, frozen=True):
    """Attributes, and unless `attr_only` the cached pages, are no longer right."""

    ino: int
    attr_only: bool


class EntryChanged(msgspec.Struct, frozen=True):
    """A name now leads elsewhere, or somewhere at all."""

    parent: int
    name: bytes


class EntryGone(msgspec.Struct, frozen=True):
    """A name no longer leads to `ino`."""

    parent: int
    name: bytes
    ino: int


Invalidation = InodeChanged | EntryChanged | EntryGone


class Invalidations:
    """A queue without an end: who changes the tree never waits for the kernel."""

    def __init__(self, kernel: KernelInodes) -> None:
        """Take inodes of the tree, give out `kernel`'s."""
        self._kernel = kernel
        self._send, self.receive = trio.open_memory_channel[Invalidation](math.inf)

    def put(self, item: Invalidation) -> None:
        """Tell the kernel, some time soon."""
        if not isinstance(item, EntryChanged) and (number := self._kernel.number(item.ino)):
            item = msgspec.structs.replace(item, ino=number)
        self._send.send_nowait(item)

    def close(self) -> None:
        """Nothing more will come."""
        self._send.close()
