"""Cache of inodes in memory: inodes in use, and recently used ones.

Knows nothing about their table.

INVARIANT: while any code references an `Inode`, every lookup of its number returns that object.
All users therefore see a change at once.

INVARIANT: an inode without a row stays in memory until it is released, because no other copy
exists.
"""

from collections.abc import Iterable
from weakref import WeakValueDictionary

from zonedrive.state.inode import Inode

RECENT = 4096  # at least this many recently used inodes are cached, at most twice as many


class InodeCache:
    """Cached inodes by number."""

    def __init__(self, recent: int = RECENT) -> None:
        self._recent = recent
        # Two generations make an LRU cache without bookkeeping at each use: a used inode moves to
        # the young one.  When that is full, it becomes the old one, and the old one is dropped.
        self._young: dict[int, Inode] = {}
        self._old: dict[int, Inode] = {}
        self._alive: WeakValueDictionary[int, Inode] = WeakValueDictionary()
        self._rowless: dict[int, Inode] = {}

    def get(self, ino: int) -> Inode | None:
        """Return the inode if it is in memory, else None."""
        inode = self._young.get(ino)
        if inode is not None:
            return inode
        inode = self._old.get(ino) or self._alive.get(ino)
        if inode is not None:
            self._use(inode)
        return inode

    def adopt(self, stored: Inode) -> Inode:
        """Return the cached object of an inode just read, or cache the inode itself."""
        known = self.get(stored.ino)
        if known is not None:
            return known
        self.put(stored)
        return stored

    def put(self, inode: Inode) -> None:
        """Cache a new inode."""
        self._alive[inode.ino] = inode
        self._use(inode)

    def drop(self, ino: int) -> None:
        """Remove an inode from the cache."""
        for known in (self._young, self._old, self._alive, self._rowless):
            known.pop(ino, None)

    def drop_all(self, inodes: Iterable[Inode]) -> None:
        """Remove inodes from the cache."""
        for inode in inodes:
            self.drop(inode.ino)

    def everyone(self) -> list[Inode]:
        """Return all cached inodes."""
        return list(self._alive.values())

    # ---- those without a row ----

    def is_rowless(self, ino: int) -> bool:
        """Return True if the inode has no row in the table."""
        return ino in self._rowless

    def set_rowless(self, inode: Inode, rowless: bool) -> None:
        """Record if the inode has no row in the table."""
        if rowless:
            self._rowless[inode.ino] = inode
        else:
            self._rowless.pop(inode.ino, None)

    def _use(self, inode: Inode) -> None:
        if len(self._young) >= self._recent:
            self._old, self._young = self._young, {}
        self._young[inode.ino] = inode
