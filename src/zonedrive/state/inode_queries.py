"""Read access to the tree: inodes by number, by name and by remote id.

Changes nothing.  Inodes in use are in memory; others are read from their rows.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice

from zonedrive.cipher import Box
from zonedrive.db import Database
from zonedrive.state.change_counter import ChangeCounter
from zonedrive.state.dirents import Dirents
from zonedrive.state.drafts import Drafts
from zonedrive.state.inode import NOWHERE, ROOT, Inode
from zonedrive.state.inode_cache import InodeCache
from zonedrive.state.inode_table import BATCH, InodeStore


class InodeQueries(ABC):
    """Inodes by number and by name, read-only."""

    def __init__(self, database: Database, box: Box) -> None:
        """Prepare the caches; load no inodes yet."""
        self._store = InodeStore(database, box)
        self._held = InodeCache()
        self._dirents = Dirents()
        self._drafts = Drafts()
        self._changes = ChangeCounter()

    @abstractmethod
    def _adopt(self, stored: Inode) -> Inode:
        """Return the cached object of an inode just read."""

    def find(self, ino: int) -> Inode | None:
        """Return the inode with the given number, or None if it does not exist."""
        inode = self._held.get(ino)
        if inode is None:
            stored = self._store.get(ino)
            return None if stored is None else self._adopt(stored)
        return inode

    def get(self, ino: int) -> Inode:
        """Return the inode with the given number.  Raises FileNotFoundError."""
        inode = self.find(ino)
        if inode is None:
            raise FileNotFoundError(f"inode {ino}")
        return inode

    def get_all(self, inos: Iterable[int]) -> Iterator[Inode]:
        """Yield the inodes with the given numbers, in that order; skip missing ones.

        Rows are read in batches, and only one batch of inodes is held at a time.
        """
        rest = iter(inos)
        while batch := list(islice(rest, BATCH)):
            known = {ino: self._held.get(ino) for ino in batch}
            if missing := [ino for ino, inode in known.items() if inode is None]:
                for stored in self._store.get_all(missing):
                    known[stored.ino] = self._adopt(stored)
            yield from (inode for inode in known.values() if inode is not None)

    def children(self, parent: int) -> Mapping[str, int]:
        """Return the inode numbers in a folder by name."""
        names = self._dirents.get(parent)
        while names is None:
            for _ in self.loading(parent):
                pass
            names = self._dirents.get(parent)
        return names

    def loading(self, parent: int) -> Iterator[None]:
        """Load the names in a folder in steps of some milliseconds, if they are not loaded.

        Other operations may run between the steps.  After the last step `children` returns at once.
        """
        while self._dirents.get(parent) is None:
            load = self._dirents.loading(parent)
            if load is None:
                load = self._dirents.begin(parent, self._store.numbers_in(parent))
                load.names.update(self._drafts.names_in(parent))
            batch = list(islice(load.rest, BATCH))
            for ino, where, name in self._store.names(batch):
                if name.startswith("/"):
                    self.find(ino)  # marks its folder unlisted
                elif where == parent and ino != ROOT:
                    load.names[name] = ino
            if len(batch) < BATCH:
                self._dirents.finish(parent)
                return
            yield

    def child(self, parent: int, name: str) -> Inode | None:
        """Return the inode with the given name in a folder, or None."""
        names = self._dirents.get(parent)
        if names is None:
            if (draft := self._drafts.names_in(parent).get(name)) is not None:
                return self.get(draft)
            for stored in self._store.named(parent, name):
                inode = self._adopt(stored)
                if inode.parent == parent and inode.name == name:
                    return inode
            if not self._store.has_unmarked(parent):
                return None
            return self.get(ino) if (ino := self.children(parent).get(name)) else None
        ino = names.get(name)
        return None if ino is None else self.get(ino)

    def has_name(self, parent: int, name: str) -> bool:
        """Return True if a folder has an entry with the given name."""
        names = self._dirents.get(parent)
        return self.child(parent, name) is not None if names is None else name in names

    def inodes_in(self, parent: int) -> list[Inode]:
        """Return all inodes in a folder; for a large folder `get_all` needs less memory."""
        return list(self.get_all(self.children(parent).values()))

    def new_in(self, parent: int) -> list[Inode]:
        """Return the inodes in a folder that the service does not have."""
        numbers = [*self._store.new_in(parent), *self._drafts.names_in(parent).values()]
        return [each for each in self.get_all(numbers) if each.ino != ROOT]

    def numbers_in(self, parent: int) -> list[int]:
        """Return the inode numbers in a folder, in order of creation."""
        numbers = [*self._store.numbers_in(parent), *self._drafts.names_in(parent).values()]
        return [ino for ino in numbers if ino != ROOT]

    def folders_in(self, parent: int) -> list[int]:
        """Return the numbers of remote folders in a folder, in order of creation."""
        return self._store.folders_in(parent)

    def by_remote(self, zone: str, remote_id: str) -> Inode | None:
        """Return the inode of a remote entry, or None."""
        ino = self._store.by_remote(zone, remote_id)
        return None if ino is None else self.find(ino)

    def by_remotes(self, zone: str, ids: Sequence[str]) -> dict[str, tuple[int, int, int]]:
        """Return (number, parent, `Inode.seen`) by remote id, for the known entries only."""
        rest = iter(ids)
        batches = iter(lambda: list(islice(rest, BATCH)), [])
        rows = (row for batch in batches for row in self._store.by_remotes(zone, batch))
        return {remote_id: (ino, parent, seen) for remote_id, ino, parent, seen in rows}

    def mark(self, said: bytes) -> int:
        """Return the value of `Inode.seen` for a reply of the service."""
        return self._store.mark(said)

    def unlinked(self) -> list[Inode]:
        """Return the tombstones: inodes that have no local name, but that the service still has."""
        return list(self.get_all(self._store.numbers_in(NOWHERE)))

    def path(self, ino: int) -> str:
        """Return the path of an inode below the mount point, without a leading slash."""
        parts: list[str] = []
        while ino not in (ROOT, NOWHERE) and (inode := self.find(ino)) is not None:
            parts.append(inode.name)
            ino = inode.parent
        return "/".join(reversed(parts))

    def below(self, ino: int) -> Iterator[Inode]:
        """Yield an inode and all inodes below it."""
        inode = self.get(ino)
        yield inode
        if inode.is_folder:
            for child in self.numbers_in(ino):
                yield from self.below(child)

    def is_below(self, inode: Inode | None, folder: Inode) -> bool:
        """Return True if the inode is the folder itself or below it."""
        while inode is not None and inode is not folder:
            inode = None if inode.parent in (NOWHERE, ROOT) else self.find(inode.parent)
        return inode is folder

    def folders_below(self, folder: Inode) -> Iterator[Inode]:
        """Yield the subfolders, at any depth, that are on the service."""
        for child in self.get_all(self.folders_in(folder.ino)):
            yield child
            yield from self.folders_below(child)

    def innermost_first(self, folder: Inode) -> Iterator[Inode]:
        """Yield everything below a folder, innermost entries first."""
        for child in self.get_all(self.numbers_in(folder.ino)):
            if child.is_folder:
                yield from self.innermost_first(child)
            yield child

    def everything(self) -> Iterator[Inode]:
        """Yield all inodes; only some of them are in memory at a time."""
        yield from self.get_all(self._drafts.numbers())
        last = NOWHERE
        while numbers := self._store.numbers(last):
            last = numbers[-1]
            yield from self.get_all(numbers)

    def with_bytes(self) -> dict[int, int]:
        """Return the generation of the local bytes by inode number."""
        return self._store.with_bytes()

    def without_origin(self) -> list[int]:
        """Return the numbers of inodes that the service does not have."""
        return [*self._store.without_origin(), *self._drafts.numbers()]

    def counts(self) -> tuple[int, int]:
        """Return (all entries, folders among them)."""
        return self._store.counts()

    def changes(self, parent: int) -> int:
        """Return the folder's current change counter.

        The counter grows when a child is added, removed, renamed or updated, and when such a change
        is rolled back.
        """
        return self._changes.of(parent)
