"""The tree of inodes, written through to its store; what is in use is in memory.

Must not know the service, the outbox or the kernel; they only tell it what changed.

INVARIANT: a change happens inside `transaction()`; if that fails (a full disk, an exception),
memory and table are both as they were before it.
INVARIANT: the names in a folder are unique, and every inode but the root has at most one.
"""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import islice

from zonedrive.cipher import Box
from zonedrive.db import Database
from zonedrive.errors import Damaged
from zonedrive.tree import orphans
from zonedrive.tree.changes import Changes
from zonedrive.tree.dirents import Dirents
from zonedrive.tree.held import Held
from zonedrive.tree.inode import NOWHERE, ROOT, Inode, Kind
from zonedrive.tree.lookups import Lookups
from zonedrive.tree.settled import Settled
from zonedrive.tree.store import BATCH, InodeStore, unreadable

_PLACE_SAID = ("zone", "remote_id", "remote_parent", "remote_name")
SAID = frozenset((*_PLACE_SAID, "revision", "modified_by", "type", "sync", "attributes"))
"""Fields that say what the service said: once one is changed, `Inode.seen` is over."""


class Tree:
    """Inodes by number and by name."""

    def __init__(self, database: Database, box: Box) -> None:
        """Load nothing yet."""
        self._database = database
        self._store = InodeStore(database, box)
        self._held = Held()
        self._dirents = Dirents()
        self._lookups = Lookups()
        self._changes = Changes()
        self.settled = Settled()  # a listing asked for before tells nothing of what is in it
        self._next_ino = self._store.next_ino()
        if self.find(ROOT) is None:
            with self.transaction():
                now = time.time_ns()
                self._keep(Inode(ROOT, ROOT, "", Kind.ROOT, mtime_ns=now, ctime_ns=now))
            self._next_ino = max(self._next_ino, ROOT + 1)

    # ---- reading ----

    def find(self, ino: int) -> Inode | None:
        """The inode of that number, or None where there is none (any more)."""
        inode = self._held.get(ino)
        if inode is None:
            stored = self._store.get(ino)
            return None if stored is None else self._adopt(stored)
        return inode

    def get(self, ino: int) -> Inode:
        """The inode of that number.  Raises FileNotFoundError."""
        inode = self.find(ino)
        if inode is None:
            raise FileNotFoundError(f"inode {ino}")
        return inode

    def get_all(self, inos: Iterable[int]) -> Iterator[Inode]:
        """The inodes of these numbers, in their order, without those that are no more.

        Only some of them are in memory at a time, and rows are read many at once.
        """
        rest = iter(inos)
        while batch := list(islice(rest, BATCH)):
            known = {ino: self._held.get(ino) for ino in batch}
            if missing := [ino for ino, inode in known.items() if inode is None]:
                for stored in self._store.get_all(missing):
                    known[stored.ino] = self._adopt(stored)
            yield from (inode for inode in known.values() if inode is not None)

    def children(self, parent: int) -> Mapping[str, int]:
        """Numbers by name of what is in a folder."""
        names = self._dirents.get(parent)
        while names is None:
            for _ in self.loading(parent):
                pass
            names = self._dirents.get(parent)
        return names

    def loading(self, parent: int) -> Iterator[None]:
        """Bring the names in a folder into memory in steps of some milliseconds, if need be.

        Between the steps anything may happen.  After the last one `children` is immediate.
        """
        while self._dirents.get(parent) is None:
            load = self._dirents.loading(parent)
            if load is None:
                load = self._dirents.begin(parent, self._store.numbers_in(parent))
            batch = list(islice(load.rest, BATCH))
            for ino, where, name in self._store.names(batch):
                if name.startswith("/"):
                    self.find(ino)  # which sees to it
                elif where == parent and ino != ROOT:
                    load.names[name] = ino
            if len(batch) < BATCH:
                self._dirents.finish(parent)
                return
            yield

    def child(self, parent: int, name: str) -> Inode | None:
        """The inode of that name in a folder."""
        names = self._dirents.get(parent)
        if names is None:
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
        """Whether a folder has an entry of that name."""
        names = self._dirents.get(parent)
        return self.child(parent, name) is not None if names is None else name in names

    def inodes_in(self, parent: int) -> list[Inode]:
        """What is in a folder; for a large one that is much: see `get_all`."""
        return list(self.get_all(self.children(parent).values()))

    def new_in(self, parent: int) -> list[Inode]:
        """What is in a folder and the service has never seen."""
        return [each for each in self.get_all(self._store.new_in(parent)) if each.ino != ROOT]

    def numbers_in(self, parent: int) -> list[int]:
        """Numbers of what is in a folder, in the order they came."""
        return [ino for ino in self._store.numbers_in(parent) if ino != ROOT]

    def folders_in(self, parent: int) -> list[int]:
        """Numbers of the folders in a folder that the service has, in the order they came."""
        return self._store.folders_in(parent)

    def by_remote(self, zone: str, remote_id: str) -> Inode | None:
        """The inode that stands for the service's entry."""
        ino = self._store.by_remote(zone, remote_id)
        return None if ino is None else self.find(ino)

    def by_remotes(self, zone: str, ids: Sequence[str]) -> dict[str, tuple[int, int, int]]:
        """(number, parent, `Inode.seen`) by id, of those of the entries that are known."""
        rest = iter(ids)
        batches = iter(lambda: list(islice(rest, BATCH)), [])
        rows = (row for batch in batches for row in self._store.by_remotes(zone, batch))
        return {remote_id: (ino, parent, seen) for remote_id, ino, parent, seen in rows}

    def mark(self, said: bytes) -> int:
        """What `Inode.seen` is to be after the service said that."""
        return self._store.mark(said)

    def unlinked(self) -> list[Inode]:
        """The tombstones: entries without a name here that the service still has."""
        return list(self.get_all(self._store.numbers_in(NOWHERE)))

    def path(self, ino: int) -> str:
        """The way to an inode from the mount point, without a leading slash."""
        parts: list[str] = []
        while ino not in (ROOT, NOWHERE) and (inode := self.find(ino)) is not None:
            parts.append(inode.name)
            ino = inode.parent
        return "/".join(reversed(parts))

    def below(self, ino: int) -> Iterator[Inode]:
        """An inode and everything in it."""
        inode = self.get(ino)
        yield inode
        if inode.is_folder:
            for child in self.numbers_in(ino):
                yield from self.below(child)

    def everything(self) -> Iterator[Inode]:
        """Every inode that has a row; not all of them are in memory at a time."""
        last = NOWHERE
        while numbers := self._store.numbers(last):
            last = numbers[-1]
            yield from self.get_all(numbers)

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
        return self._changes.of(parent)

    # ---- changing ----

    def transaction(self) -> AbstractContextManager[None]:
        """Everything inside takes effect, in memory and in the table, or nothing."""
        return self._database.transaction()

    def add(self, parent: int, name: str, kind: Kind, **fields: object) -> Inode:
        """A new inode under a free name."""
        inode = self._new(parent, name, kind, fields)
        if parent != NOWHERE:
            self._link(inode)
        self._keep(inode)
        return inode

    def add_all(self, parent: int, fields: Mapping[str, Mapping[str, object]]) -> None:
        """New inodes in a folder: their fields by name.  Who calls has seen the names are free."""
        if not fields:
            return
        inodes = [self._new(parent, name, None, each) for name, each in fields.items()]
        self._changed(parent)
        self._forget_names(parent, only_back=True)
        self._database.on_rollback(lambda: self._held.drop_all(inodes))
        for inode in inodes:
            self._dirents.link(parent, inode.name, inode.ino)
            self._held.put(inode)
        self._store.write_new(inodes)

    def update(self, inode: Inode, **changes: object) -> None:
        """Set fields (not the place: that is `move` and `unlink`)."""
        before = {name: getattr(inode, name) for name in changes}
        if before == changes:
            return
        if inode.seen and "seen" not in changes and not SAID.isdisjoint(changes):
            before["seen"], changes["seen"] = inode.seen, 0
        self._database.on_rollback(lambda: self._set(inode, before))
        self._changed(inode.parent)
        self._set(inode, changes)
        linked = inode.parent != NOWHERE or inode.remote_id is not None
        if linked or not self._held.is_rowless(inode.ino):
            self._write(inode)

    def move(self, inode: Inode, parent: int, name: str) -> None:
        """Give an inode another place; the name must be free."""
        self._drop_link(inode)
        before = {"parent": inode.parent, "name": inode.name, "seen": inode.seen}
        self._database.on_rollback(lambda: self._set(inode, before))
        self._set(inode, {"parent": parent, "name": name, "seen": 0})
        self._link(inode)
        self._write(inode)

    def unlink(self, inode: Inode, *, tombstone: bool = False) -> None:
        """Take the name away.

        A tombstone keeps its row, so that the deletion on the service is not forgotten; without
        one only programs that have it open, or the kernel, still know the inode.
        """
        self._drop_link(inode)
        before = {"parent": inode.parent, "remote_id": inode.remote_id, "seen": inode.seen}
        self._database.on_rollback(lambda: self._set(inode, before))
        self._set(inode, {"parent": NOWHERE, "seen": 0})
        if tombstone:
            self._write(inode)
        else:
            self._set(inode, {"remote_id": None})
            self._set_rowless(inode, True)
            self._store.delete(inode.ino)
        self._forget_names(inode.ino)

    def forget_homeless(self) -> None:
        """Drop the inodes whose folder is lost, before anything was asked for; trust no listing."""
        for ino in orphans.homeless(self._database):
            self._store.delete(ino)
            self._held.drop(ino)
        self._dirents.clear()
        self._store.distrust_listings()
        for inode in self._held.everyone():
            if not inode.local and (inode.remote_id is not None or inode.ino == ROOT):
                inode.listed, inode.seen = False, 0

    @property
    def rows(self) -> InodeStore:
        """The table, for work on all of its rows."""
        return self._store

    # ---- lookup counts ----

    def remember(self, ino: int, count: int = 1) -> None:
        """The kernel holds the inode once more."""
        self._lookups.add(ino, count)

    def remember_all(self, inos: Iterable[int]) -> None:
        """The kernel holds each of them once more."""
        self._lookups.add_all(inos)

    def forget(self, ino: int, count: int) -> bool:
        """The kernel holds it less often; True once it does not at all, and it has no name."""
        # At an unmount a million are forgotten: nothing is read for one that stays in its table.
        free = self._lookups.take(ino, count)
        return free and (inode := self._held.get(ino)) is not None and inode.parent == NOWHERE

    def remembered(self, ino: int) -> bool:
        """Whether the kernel holds the inode."""
        return ino in self._lookups

    def release(self, ino: int) -> None:
        """Drop an unlinked inode from memory: nobody can ask for it any more."""
        inode = self._held.get(ino)
        if inode is not None and inode.parent == NOWHERE and inode.remote_id is None:
            self._held.drop(ino)

    # ---- inside ----

    @staticmethod
    def _set(inode: Inode, fields: Mapping[str, object]) -> None:
        for name, value in fields.items():
            setattr(inode, name, value)

    def _new(
        self, parent: int, name: str, kind: Kind | None, fields: Mapping[str, object]
    ) -> Inode:
        now = time.time_ns()
        known = {"mtime_ns": now, "ctime_ns": now, **fields}
        if kind is not None:
            known["kind"] = kind
        inode = Inode(self._next_ino, parent, name, **known)  # type: ignore[arg-type]
        self._next_ino += 1
        return inode

    def _adopt(self, stored: Inode) -> Inode:
        """The object for an inode just read; where it could not be, its folder is listed anew."""
        inode = self._held.adopt(stored)
        if inode is stored and unreadable(inode) and inode.parent != NOWHERE:
            folder = self.find(inode.parent)
            if folder is None or (folder.is_new and folder.ino != ROOT):
                raise Damaged(f"the row of inode {inode.ino} is damaged")
            with self.transaction():
                self._store.distrust(inode.ino)
                self.update(folder, listed=False)
        return inode

    def _keep(self, inode: Inode) -> None:
        self._database.on_rollback(lambda: self._held.drop(inode.ino))
        self._held.put(inode)
        self._store.write(inode)

    def _write(self, inode: Inode) -> None:
        if self._held.is_rowless(inode.ino):
            self._set_rowless(inode, False)
        self._store.write(inode)

    def _set_rowless(self, inode: Inode, rowless: bool) -> None:
        before = self._held.is_rowless(inode.ino)
        self._database.on_rollback(lambda: self._held.set_rowless(inode, before))
        self._held.set_rowless(inode, rowless)

    def _changed(self, parent: int) -> None:
        """Count a change in a folder; another one should it be taken back."""
        self._database.on_rollback(lambda: self._changes.count(parent))
        self._changes.count(parent)

    def _link(self, inode: Inode) -> None:
        parent = inode.parent
        if self.get(parent).parent == NOWHERE:
            raise FileNotFoundError(f"inode {parent} has no name any more")
        if self.has_name(parent, inode.name):
            raise AssertionError(f"a second {inode.name!r} in one folder")
        self._changed(parent)
        self._forget_names(parent, only_back=True)
        self._dirents.link(parent, inode.name, inode.ino)

    def _drop_link(self, inode: Inode) -> None:
        if inode.parent != NOWHERE:
            self._changed(inode.parent)
            self._forget_names(inode.parent, only_back=True)
            self._dirents.unlink(inode.parent, inode.name)

    def _forget_names(self, parent: int, *, only_back: bool = False) -> None:
        """The names in a folder must be read again; or only should the change be taken back."""
        self._database.on_rollback(lambda: self._dirents.forget(parent))
        if not only_back:
            self._dirents.forget(parent)
