"""The inodes in memory: those in use, and some that were used lately.

Must not know the table they come from.

INVARIANT: as long as anybody holds an `Inode`, everybody who asks for its number gets that very
object; so all see a change at once.
INVARIANT: an inode without a row stays until it is let go: it exists nowhere else.
"""

from collections.abc import Iterable
from weakref import WeakValueDictionary

from zonedrive.tree.inode import Inode

RECENT = 6144  # so many that were used last stay in memory, and up to as many again


class Held:
    """Inodes by number."""

    def __init__(self, recent: int = RECENT) -> None:
        self._recent = recent
        # Two generations are an LRU without bookkeeping at each use: what is used moves into the
        # young one; when that is full, it becomes the old one, and the former old one is let go.
        self._young: dict[int, Inode] = {}
        self._old: dict[int, Inode] = {}
        self._alive: WeakValueDictionary[int, Inode] = WeakValueDictionary()
        self._rowless: dict[int, Inode] = {}

    def get(self, ino: int) -> Inode | None:
        """The inode, if it is in memory."""
        inode = self._young.get(ino)
        if inode is not None:
            return inode
        inode = self._old.get(ino) or self._alive.get(ino)
        if inode is not None:
            self._use(inode)
        return inode

    def adopt(self, stored: Inode) -> Inode:
        """The object that stands for an inode just read from its row."""
        known = self.get(stored.ino)
        if known is not None:
            return known
        self.put(stored)
        return stored

    def put(self, inode: Inode) -> None:
        """An inode that nobody has seen yet."""
        self._alive[inode.ino] = inode
        self._use(inode)

    def drop(self, ino: int) -> None:
        """Nobody can ask for it any more."""
        for known in (self._young, self._old, self._alive, self._rowless):
            known.pop(ino, None)

    def drop_all(self, inodes: Iterable[Inode]) -> None:
        """Nobody can ask for them any more."""
        for inode in inodes:
            self.drop(inode.ino)

    def everyone(self) -> list[Inode]:
        """All that are in memory."""
        return list(self._alive.values())

    # ---- those without a row ----

    def is_rowless(self, ino: int) -> bool:
        """Whether the inode is in no table."""
        return ino in self._rowless

    def set_rowless(self, inode: Inode, rowless: bool) -> None:
        """Note whether the inode is in a table."""
        if rowless:
            self._rowless[inode.ino] = inode
        else:
            self._rowless.pop(inode.ino, None)

    def _use(self, inode: Inode) -> None:
        if len(self._young) >= self._recent:
            self._old, self._young = self._young, {}
        self._young[inode.ino] = inode
