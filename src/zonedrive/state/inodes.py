"""Tree of inodes with its table; the inodes in use are cached in memory.

Knows nothing about the service, the outbox or the kernel; they report their changes to the tree.

INVARIANT: every change is made inside `transaction()`.  If the transaction fails (a full disk, an
exception), memory and table are restored.

INVARIANT: the names in a folder are unique, and every inode but the root has at most one name.
"""

import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Self

from zonedrive.cipher import Box
from zonedrive.db import Database
from zonedrive.errors import Damaged
from zonedrive.state import orphans
from zonedrive.state.inode import NOWHERE, ROOT, Inode, Kind
from zonedrive.state.inode_queries import InodeQueries
from zonedrive.state.inode_table import INDEXED, InodeStore, unreadable
from zonedrive.state.lookup_counts import LookupCounts
from zonedrive.state.recent_writes import RecentWrites

_PLACE_SAID = ("zone", "remote_id", "remote_parent", "remote_name")
SAID = frozenset((*_PLACE_SAID, "revision", "modified_by", "type", "sync", "attributes"))
"""Fields that mirror the service's reply; a change of one of them resets `Inode.seen`."""
_PLACE = frozenset(("parent", "name", "local"))
_UNSEALED = frozenset(("listed", "seen"))


class Inodes(InodeQueries):
    """Tree of inodes, with read and write access."""

    def __init__(self, database: Database, box: Box) -> None:
        """Create the root if it does not exist; load no other inodes yet."""
        super().__init__(database, box)
        self._database = database
        self._lookups = LookupCounts()
        self.settled = RecentWrites()  # entries changed by us; older listings of them are stale
        self._next_ino = self._store.next_ino()

    @classmethod
    def open(cls, database: Database, box: Box) -> Self:
        """Return the tree of a database for changes; create the root if it does not exist."""
        tree = cls(database, box)
        if tree.find(ROOT) is None:
            with tree.transaction():
                now = time.time_ns()
                tree._keep(Inode(ROOT, ROOT, "", Kind.ROOT, mtime_ns=now, ctime_ns=now))
            tree._next_ino = max(tree._next_ino, ROOT + 1)
        return tree

    # ---- changing ----

    def transaction(self) -> AbstractContextManager[None]:
        """Return a transaction; its changes apply to memory and table together, or not at all."""
        return self._database.transaction()

    def add(self, parent: int, name: str, kind: Kind, **fields: object) -> Inode:
        """Create an inode under a free name and write its row."""
        inode = self._new(parent, name, kind, fields)
        if parent != NOWHERE:
            self._link(inode)
        self._keep(inode)
        if inode.is_folder:
            self.note_empty(inode.ino)
            self._forget_names(inode.ino, only_back=True)
        return inode

    def draft(self, parent: int, name: str, **fields: object) -> Inode:
        """Create a new file that has no row yet; it is lost if the daemon ends.

        The row is written with the file's first bytes, or when it is moved.  Until then the new
        times of its folder may be in memory only, too.
        """
        inode = self._new(parent, name, Kind.FILE, fields)
        self._link(inode)
        self._drafts.add(inode, (parent, name))
        self._held.put(inode)
        self._database.on_rollback(lambda: self._held.drop(inode.ino))
        self._database.on_rollback(lambda: self._drafts.drop(inode.ino))
        return inode

    def note_times(self, inode: Inode, **times: int) -> None:
        """Set times of a folder in memory; they are written when its next draft gets a row."""
        before = {name: getattr(inode, name) for name in times}
        self._database.on_rollback(lambda: self._set(inode, before))
        self._changed(inode.parent)
        self._set(inode, times)
        self._drafts.behind[inode.ino] = inode

    def add_all(self, parent: int, fields: Mapping[str, Mapping[str, object]]) -> None:
        """Create inodes in a folder from their fields by name.

        The caller has checked that the names are free.
        """
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

    def note_empty(self, parent: int) -> None:
        """Cache that a folder has no names, as found by the caller."""
        if self._dirents.get(parent) is None:
            self._dirents.begin(parent, [])
            self._dirents.finish(parent)

    def update(self, inode: Inode, **changes: object) -> None:
        """Set fields other than the place, which only `move` and `unlink` change."""
        before = {name: getattr(inode, name) for name in changes}
        if before == changes:
            return
        if inode.seen and "seen" not in changes and not SAID.isdisjoint(changes):
            before["seen"], changes["seen"] = inode.seen, 0
        self._database.on_rollback(lambda: self._set(inode, before))
        self._changed(inode.parent)
        self._set(inode, changes)
        linked = inode.parent != NOWHERE or inode.remote_id is not None
        if inode.ino in self._drafts:
            if not INDEXED.isdisjoint(changes):
                self._write(inode)
        elif linked or not self._held.is_rowless(inode.ino):
            self._write(inode, changes)

    def move(self, inode: Inode, parent: int, name: str, **changes: object) -> None:
        """Move an inode to a place whose name is free, and set other fields as `update` does."""
        self._drop_link(inode)
        changes |= {"parent": parent, "name": name, "seen": 0}
        before = {name: getattr(inode, name) for name in changes}
        self._database.on_rollback(lambda: self._set(inode, before))
        self._set(inode, changes)
        self._link(inode)
        self._write(inode, changes)

    def unlink(self, inode: Inode, *, tombstone: bool = False) -> None:
        """Remove the name of an inode.

        A tombstone keeps its row until the deletion reaches the service.  Without `tombstone` the
        row is deleted, and only open handles and the kernel still refer to the inode.
        """
        self._drop_link(inode)
        self._drop_draft(inode)
        self._drafts.behind.pop(inode.ino, None)
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
        """Delete inodes whose parent folder has no row, and mark all listings as incomplete.

        Call this before other operations use the tree.
        """
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
        """Table of all inodes, for operations on all rows."""
        return self._store

    # ---- lookup counts ----

    def remember(self, ino: int, count: int = 1) -> None:
        """Add `count` to the kernel's lookup count of an inode."""
        self._lookups.add(ino, count)

    def remember_all(self, inos: Sequence[int]) -> None:
        """Add 1 to the kernel's lookup count of each inode."""
        self._lookups.add_all(inos)

    def forget(self, ino: int, count: int) -> bool:
        """Decrement the kernel's lookup count of an inode.

        Returns True if the count is now 0 and the inode has no name.
        """
        # An unmount may forget a million inodes: do not read rows for inodes that have a name.
        free = self._lookups.take(ino, count)
        return free and (inode := self._held.get(ino)) is not None and inode.parent == NOWHERE

    def remembered(self, ino: int) -> bool:
        """Return True if the kernel's lookup count of the inode is not 0."""
        return ino in self._lookups

    def release(self, ino: int) -> None:
        """Drop an unlinked inode from memory when it is no longer in use."""
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
        """Return the cached object of an inode just read.

        If the row is damaged, its folder becomes unlisted.  Raises Damaged if that folder is not on
        the service.
        """
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

    def _write(self, inode: Inode, changes: Collection[str] = INDEXED) -> None:
        """Write the row of an inode in which the fields `changes` have changed."""
        if self._held.is_rowless(inode.ino):
            self._set_rowless(inode, False)
            changes = INDEXED
        elif self._drop_draft(inode):
            changes = INDEXED
            if (folder := self._drafts.behind.get(inode.parent)) is not None:
                self._write(folder, ())
        if not INDEXED.isdisjoint(changes):
            self._store.write(inode)
        elif not _PLACE.isdisjoint(changes):
            self._store.write_place(inode)
        elif changes and _UNSEALED.issuperset(changes) and inode.ino not in self._drafts.behind:
            self._store.write_unsealed(inode)
        else:
            self._store.write_sealed(inode)
        if self._drafts.behind.pop(inode.ino, None) is not None:
            self._database.on_rollback(lambda: self._drafts.behind.update({inode.ino: inode}))

    def _drop_draft(self, inode: Inode) -> bool:
        """End the draft state of an inode; return False if it was not a draft."""
        if inode.ino not in self._drafts:
            return False
        place = self._drafts.drop(inode.ino)
        self._database.on_rollback(lambda: self._drafts.add(inode, place))
        return True

    def _set_rowless(self, inode: Inode, rowless: bool) -> None:
        before = self._held.is_rowless(inode.ino)
        self._database.on_rollback(lambda: self._held.set_rowless(inode, before))
        self._held.set_rowless(inode, rowless)

    def _changed(self, parent: int) -> None:
        """Count a change in a folder, and another one if the transaction is rolled back."""
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
        """Drop the cached names of a folder; with `only_back` only on a rollback."""
        self._database.on_rollback(lambda: self._dirents.forget(parent))
        if not only_back:
            self._dirents.forget(parent)
