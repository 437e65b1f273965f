"""The tree of inodes in memory, written through to its store.

Must not know the service, the outbox or the kernel; they only tell it what changed.

INVARIANT: a change happens inside `transaction()`; if that fails (a full disk, an exception),
memory and table are both as they were before it.
INVARIANT: the names in a folder are unique, and every inode but the root has at most one.
"""

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager

from cachetools import TTLCache

from zonedrive.cipher import Box
from zonedrive.db import Database
from zonedrive.tree.inode import NOWHERE, ROOT, Inode, Kind
from zonedrive.tree.store import InodeStore

# How long a listing may have been under way when it still reports the time before a change of
# ours (seconds), and how many such changes are remembered.
STALE_LISTING_S = 120
RECENT = 100_000
CHANGED_FOLDERS = 20_000  # so many folders have a count of changes of their own


class Tree:
    """Inodes by number and by name."""

    def __init__(self, database: Database, box: Box) -> None:
        """Load nothing yet: folders come into memory when they are first asked for."""
        self._database = database
        self._store = InodeStore(database, box)
        self._inodes: dict[int, Inode] = {}
        self._children: dict[int, dict[str, int]] = {}
        self._lookups: Counter[int] = Counter()
        self._changes: dict[int, int] = {}  # by folder; what is not there changed at `_floor`
        self._floor = self._latest = 0
        # When an entry was last changed on the service by ourselves (monotonic ns).
        self._settled: TTLCache[tuple[str, str], int] = TTLCache(RECENT, STALE_LISTING_S)
        self._next_ino = self._store.next_ino()
        if self.find(ROOT) is None:
            with self.transaction():
                now = time.time_ns()
                self._keep(Inode(ROOT, ROOT, "", Kind.ROOT, mtime_ns=now, ctime_ns=now))
            self._next_ino = max(self._next_ino, ROOT + 1)

    # ---- reading ----

    def find(self, ino: int) -> Inode | None:
        """The inode of that number, or None where there is none (any more)."""
        inode = self._inodes.get(ino)
        if inode is None:
            inode = self._store.get(ino)
            if inode is not None:
                self._inodes[ino] = inode
        return inode

    def get(self, ino: int) -> Inode:
        """The inode of that number.  Raises FileNotFoundError."""
        inode = self.find(ino)
        if inode is None:
            raise FileNotFoundError(f"inode {ino}")
        return inode

    def children(self, parent: int) -> Mapping[str, int]:
        """Numbers by name of what is in a folder."""
        known = self._children.get(parent)
        if known is None:
            known = {}
            for stored in self._store.children(parent):
                if stored.ino == ROOT:
                    continue
                inode = self._inodes.setdefault(stored.ino, stored)
                if inode.parent == parent:
                    known[inode.name] = inode.ino
            self._children[parent] = known
        return known

    def child(self, parent: int, name: str) -> Inode | None:
        """The inode of that name in a folder."""
        ino = self.children(parent).get(name)
        return None if ino is None else self.get(ino)

    def inodes_in(self, parent: int) -> list[Inode]:
        """What is in a folder."""
        return [self.get(ino) for ino in self.children(parent).values()]

    def by_remote(self, zone: str, remote_id: str) -> Inode | None:
        """The inode that stands for the service's entry."""
        ino = self._store.by_remote(zone, remote_id)
        return None if ino is None else self.find(ino)

    def unlinked(self) -> list[Inode]:
        """The tombstones: entries without a name here that the service still has."""
        return [self.get(inode.ino) for inode in self._store.children(NOWHERE)]

    def path(self, ino: int) -> str:
        """The way to an inode from the mount point, without a leading slash."""
        parts = []
        inode = self.get(ino)
        while inode.ino != ROOT:
            parts.append(inode.name)
            if inode.parent == NOWHERE:
                break
            inode = self.get(inode.parent)
        return "/".join(reversed(parts))

    def below(self, ino: int) -> Iterator[Inode]:
        """An inode and everything in it."""
        inode = self.get(ino)
        yield inode
        if inode.is_folder:
            for child in list(self.children(ino).values()):
                yield from self.below(child)

    def everything(self) -> list[Inode]:
        """Every inode that has a row."""
        return [self.get(ino) for ino in self._store.numbers()]

    def with_bytes(self) -> dict[int, int]:
        """Generation of the local bytes by ino, of those that have any."""
        return self._store.with_bytes()

    def without_origin(self) -> list[int]:
        """Numbers of what the service has never seen."""
        return self._store.without_origin()

    def counts(self) -> tuple[int, int]:
        """(all entries, folders among them)."""
        return self._store.counts()

    def changes(self, parent: int) -> int:
        """A number that grows with every change of what is in a folder.

        A child that is added, removed, renamed or updated, and one that was and is not after all.
        """
        return self._changes.get(parent, self._floor)

    # ---- changing ----

    def transaction(self) -> AbstractContextManager[None]:
        """Everything inside takes effect, in memory and in the table, or nothing."""
        return self._database.transaction()

    def add(self, parent: int, name: str, kind: Kind, **fields: object) -> Inode:
        """A new inode under a free name."""
        now = time.time_ns()
        fields.setdefault("mtime_ns", now)
        inode = Inode(self._next_ino, parent, name, kind, ctime_ns=now, **fields)  # type: ignore[arg-type]
        self._next_ino += 1
        if parent != NOWHERE:
            self._link(inode)
        self._keep(inode)
        return inode

    def update(self, inode: Inode, **changes: object) -> None:
        """Set fields (not the place: that is `move` and `unlink`)."""
        before = {name: getattr(inode, name) for name in changes}
        if before == changes:
            return
        self._database.on_rollback(lambda: self._set(inode, before))
        self._changed(inode.parent)
        self._set(inode, changes)
        if inode.parent != NOWHERE or inode.remote_id is not None:
            self._store.write(inode)

    def move(self, inode: Inode, parent: int, name: str) -> None:
        """Give an inode another place; the name must be free."""
        self._drop_link(inode)
        before = {"parent": inode.parent, "name": inode.name}
        self._database.on_rollback(lambda: self._set(inode, before))
        self._set(inode, {"parent": parent, "name": name})
        self._link(inode)
        self._store.write(inode)

    def unlink(self, inode: Inode, *, tombstone: bool = False) -> None:
        """Take the name away.

        A tombstone keeps its row, so that the deletion on the service is not forgotten; without
        one only programs that have it open, or the kernel, still know the inode.
        """
        self._drop_link(inode)
        before = {"parent": inode.parent, "remote_id": inode.remote_id}
        self._database.on_rollback(lambda: self._set(inode, before))
        self._set(inode, {"parent": NOWHERE})
        if tombstone:
            self._store.write(inode)
        else:
            self._set(inode, {"remote_id": None})
            self._store.delete(inode.ino)
        children = self._children.pop(inode.ino, None)
        if children is not None:
            self._database.on_rollback(lambda: self._children.__setitem__(inode.ino, children))

    def forget_row(self, ino: int) -> None:
        """Drop an inode whose folder is lost, before anything of that folder was asked for."""
        self._store.delete(ino)
        self._inodes.pop(ino, None)
        self._children.clear()

    # ---- lookup counts ----

    def remember(self, ino: int, count: int = 1) -> None:
        """The kernel holds the inode once more."""
        self._lookups[ino] += count

    def remember_all(self, inos: Iterable[int]) -> None:
        """The kernel holds each of them once more."""
        self._lookups.update(inos)

    def forget(self, ino: int, count: int) -> bool:
        """The kernel holds it less often; True once it does not at all."""
        left = self._lookups[ino] - count
        if left > 0:
            self._lookups[ino] = left
            return False
        del self._lookups[ino]
        return True

    def remembered(self, ino: int) -> bool:
        """Whether the kernel holds the inode."""
        return self._lookups[ino] > 0

    def release(self, ino: int) -> None:
        """Drop an unlinked inode from memory: nobody can ask for it any more."""
        inode = self._inodes.get(ino)
        if inode is not None and inode.parent == NOWHERE and inode.remote_id is None:
            del self._inodes[ino]

    # ---- what we changed on the service ourselves ----

    def settle(self, zone: str, remote_id: str) -> None:
        """Listings asked for before now tell nothing about this entry."""
        self._settled[zone, remote_id] = time.monotonic_ns()

    def settled_since(self, zone: str, remote_id: str, asked_ns: int) -> bool:
        """Whether we changed the entry on the service after `asked_ns` (monotonic)."""
        return self._settled.get((zone, remote_id), -1) >= asked_ns

    # ---- inside ----

    @staticmethod
    def _set(inode: Inode, fields: Mapping[str, object]) -> None:
        for name, value in fields.items():
            setattr(inode, name, value)

    def _keep(self, inode: Inode) -> None:
        self._database.on_rollback(lambda: self._inodes.pop(inode.ino, None))
        self._inodes[inode.ino] = inode
        self._store.write(inode)

    def _changed(self, parent: int) -> None:
        """Count a change in a folder; another one should it be taken back."""
        self._database.on_rollback(lambda: self._count(parent))
        self._count(parent)

    def _count(self, parent: int) -> None:
        self._latest += 1
        if len(self._changes) >= CHANGED_FOLDERS and parent not in self._changes:
            self._changes.clear()
            self._floor = self._latest
        self._changes[parent] = self._latest

    def _link(self, inode: Inode) -> None:
        siblings = self._loaded(inode.parent)
        if inode.name in siblings:
            raise AssertionError(f"a second {inode.name!r} in one folder")
        parent, name = inode.parent, inode.name
        self._changed(parent)
        self._database.on_rollback(lambda: self._loaded(parent).pop(name, None))
        siblings[inode.name] = inode.ino

    def _drop_link(self, inode: Inode) -> None:
        if inode.parent == NOWHERE:
            return
        siblings, name = self._loaded(inode.parent), inode.name
        self._changed(inode.parent)
        if siblings.get(name) == inode.ino:
            self._database.on_rollback(lambda: siblings.__setitem__(name, inode.ino))
            del siblings[name]

    def _loaded(self, parent: int) -> dict[str, int]:
        self.children(parent)
        return self._children[parent]
