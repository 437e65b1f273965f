"""Queue of invalidations for the kernel's caches; `fuse` sends them to the kernel."""

import math
import time

import msgspec
import trio
from cachetools import TTLCache

from zonedrive.state.inode import Inode
from zonedrive.state.open_file import KernelInodes

RECENT_S = 60.0
"""Seconds after which the kernel has certainly got an invalidation."""

RECENT_NAMES = 10_000


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
        # Names that were invalidated, which the kernel may not know yet.
        self._recent = TTLCache[tuple[int, bytes], bool](RECENT_NAMES, RECENT_S, time.monotonic)

    def put(self, item: Invalidation) -> None:
        """Queue an invalidation without waiting.

        If the invalidation has the field `ino`, replace this inode number of the tree with the
        kernel inode number.
        """
        if not isinstance(item, InodeChanged):
            self._recent[item.parent, item.name] = True
        if not isinstance(item, EntryChanged) and (number := self._kernel.number(item.ino)):
            item = msgspec.structs.replace(item, ino=number)
        self._send.send_nowait(item)

    def renamed(self, parent: int, name: bytes, new_parent: int, new_name: bytes) -> None:
        """Invalidate the new name if the former name was invalidated within the last RECENT_S.

        Call this after a rename by the kernel. The kernel gives the new name the inode that it
        knows under the former name. An invalidation of the former name that arrives after the
        rename would have no effect.
        """
        if (parent, name) in self._recent:
            self.put(EntryChanged(new_parent, new_name))

    def put_pages(self, number: int) -> None:
        """Queue the invalidation of the cached pages of the kernel inode `number`."""
        self._send.send_nowait(InodeChanged(number, attr_only=False))

    def close(self) -> None:
        """Close the queue; the receiver still gets the remaining items, then EndOfChannel."""
        self._send.close()
