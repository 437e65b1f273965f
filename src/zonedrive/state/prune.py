"""Removal of entries that a listing no longer names, except those with local changes.

Knows nothing about the entries that the listing names.

INVARIANT: an entry that the service does not have is never unlinked.

INVARIANT: an entry that the listing names is never unlinked, wherever it is in the local tree:
it may have been moved out of a removed folder.
"""

from collections.abc import Container, Iterator
from itertools import islice

from zonedrive.model import Revision
from zonedrive.state.inode import NOWHERE, ROOT, Inode
from zonedrive.state.inodes import Inodes
from zonedrive.state.merge_types import LocalView, Merged

STEP = 500  # entries of one transaction: some ten milliseconds


class Prune:
    """Removal of entries during one merge."""

    def __init__(
        self,
        tree: Inodes,
        folder: Inode,
        asked_ns: int,
        ours: LocalView,
        named: Container[int],
        result: Merged,
    ) -> None:
        """Prepare the removals; `named` holds the inodes that the listing is known to name.

        Removed names are added to `result`.
        """
        self._tree = tree
        self._named = named
        self._folder = folder
        self._asked_ns = asked_ns
        self._ours = ours
        self._result = result
        self._above_ours: set[int] | None = None  # inodes with local changes below them

    def begin(self) -> None:
        """Begin a step; local changes may have been added or removed since the last step."""
        self._above_ours = None

    def empty(self, left: list[int]) -> Iterator[None]:
        """Remove the entries in large folders of `left`, in steps."""
        for folder in [each for each in self._tree.get_all(left) if each.is_folder]:
            inside = self._inside(folder.ino)
            first = list(islice(inside, STEP))
            while len(first) == STEP and self._is_left(folder):
                with self._tree.transaction():
                    self.begin()
                    if self.busy(folder):
                        break
                    for child in self._tree.get_all(first):
                        if child.parent != NOWHERE:
                            self.remove(child)
                yield
                first = list(islice(inside, STEP))

    def _inside(self, folder: int) -> Iterator[int]:
        """Yield the numbers of all inodes in a folder, the innermost first."""
        for child in self._tree.get_all(self._tree.numbers_in(folder)):
            if child.is_folder:
                yield from self._inside(child.ino)
            yield child.ino

    def _is_left(self, child: Inode) -> bool:
        """Return True if the service no longer has the entry here.

        False for entries that were created, moved or changed locally since the listing was
        requested.
        """
        return not (
            child.is_new
            or child.parent != self._folder.ino
            or child.remote_parent != self._folder.remote_id  # moved here, not on the service yet
            or self._tree.settled.since(child.zone, child.remote_id or "", self._asked_ns)
        )

    def take(self, child: Inode) -> None:
        """Remove an entry that the listing no longer names, unless it contains local changes."""
        if not self._is_left(child):
            return
        if not self.busy(child):
            self.remove(child)
        elif child.is_folder:
            self._keep_ours(child)

    def _keep_ours(self, folder: Inode) -> None:
        """Keep a folder that the service no longer has, because it contains local changes."""
        for child in self._tree.get_all(self._tree.numbers_in(folder.ino)):
            if not self.busy(child):
                self.remove(child)
            elif child.is_folder and child.ino not in self._named:
                self._keep_ours(child)
        self._tree.update(
            folder, remote_id=None, remote_parent=None, remote_name=None, revision=Revision("")
        )
        self._ours.orphaned(folder.ino)

    def busy(self, inode: Inode) -> bool:
        """Return True if the inode, or one below it, has changes that the service does not have."""
        if inode.generation or self._ours.local(inode.ino):
            return True
        if not inode.is_folder:
            return False
        if self._above_ours is None:
            tree = self._tree
            self._above_ours = set()
            for ino in {*tree.with_bytes(), *self._ours.with_local_changes()}:
                each = tree.find(ino)
                while each is not None and each.ino not in self._above_ours and each.ino != ROOT:
                    if each.ino == ino and not (each.generation or self._ours.local(ino)):
                        break
                    self._above_ours.add(each.ino)
                    each = tree.find(each.parent)
        return inode.ino in self._above_ours

    def remove(self, inode: Inode) -> bool:
        """Unlink an inode and everything below it; return False if a named inode below it stays."""
        if inode.ino in self._named:
            return False
        gone = True
        if inode.is_folder:
            for child in self._tree.get_all(self._tree.numbers_in(inode.ino)):
                gone = self.remove(child) and gone
        if gone:
            self._result.gone.append((inode.parent, inode.name, inode.ino))
            self._tree.unlink(inode)
        return gone
