"""Queue of invalidations for the kernel's caches; `fuse` sends them to the kernel."""

import math

import msgspec
import trio

from zonedrive.state.inode import Inode
from zonedrive.state.open_file import KernelInodes


class InodeChanged(msgspec.Struct, frozen=True):
    """Change of an inode's attributes and, unless `attr_only` is set, of its content."""

    ino: int
    attr_only: bool


class EntryChanged(msgspec.Struct, frozen=True):
    """Change of a name in the folder `parent`; the kernel then looks the name up again."""

    parent: int
    name: bytes


class EntryGone(msgspec.Struct, frozen=True):
    """Removal of a name from the folder `parent`; the name referred to the inode `ino`."""

    parent: int
    name: bytes
    ino: int


Invalidation = InodeChanged | EntryChanged | EntryGone


def name_left(parent: int, inode: Inode) -> Invalidation:
    """Return the invalidation for the former name of an inode that stays in the tree.

    A folder is not reported as removed. Otherwise, while a program uses the folder, the kernel
    would show the folder as empty, even under its new name.
    """
    name = inode.name.encode()
    return EntryChanged(parent, name) if inode.is_folder else EntryGone(parent, name, inode.ino)


class Invalidations:
    """Unbounded queue of invalidations, so that a change of the tree never waits for the kernel."""

    def __init__(self, kernel: KernelInodes) -> None:
        """Create the queue; `kernel` maps inode numbers of the tree to kernel inode numbers."""
        self._kernel = kernel
        self._send, self.receive = trio.open_memory_channel[Invalidation](math.inf)

    def put(self, item: Invalidation) -> None:
        """Queue an invalidation without waiting.

        If the invalidation has the field `ino`, replace this inode number of the tree with the
        kernel inode number.
        """
        if not isinstance(item, EntryChanged) and (number := self._kernel.number(item.ino)):
            item = msgspec.structs.replace(item, ino=number)
        self._send.send_nowait(item)

    def put_pages(self, number: int) -> None:
        """Queue the invalidation of the cached pages of the kernel inode `number`."""
        self._send.send_nowait(InodeChanged(number, attr_only=False))

    def close(self) -> None:
        """Close the queue; the receiver still gets the remaining items, then EndOfChannel."""
        self._send.close()
