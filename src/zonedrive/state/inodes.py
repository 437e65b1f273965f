"""Tree of inodes, stored in a table; inodes in use are cached, others are read on demand.

This module does not depend on the service, the outbox or the kernel interface. Other modules change
the tree by calling the methods of `Inodes`.

INVARIANT: every change is made inside `transaction()`. If the transaction fails (a full disk, an
exception), memory and table are restored.

INVARIANT: the names in a folder are unique. The root has no name, and every other inode has at most
one name.
"""

import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import islice
from typing import Self, TypeGuard

from cachetools import TTLCache

from zonedrive.cipher import Box
from zonedrive.db import Database
from zonedrive.errors import Damaged
from zonedrive.observers import Observers
from zonedrive.state.inode import IDENTITY, NOWHERE, ROOT, Inode, Kind
from zonedrive.state.inode_cache import Dirents, Drafts, InodeCache
from zonedrive.state.inode_table import BATCH, INDEXED, InodeTable, batches, unreadable

REPLY_FIELDS = frozenset(("zone", *IDENTITY))
"""Fields that mirror the service's reply; a change of any of these fields resets `Inode.seen`."""

REMOTE_PLACE = ("zone", "remote_parent", "remote_name")
"""Fields that describe the last known place of an entry on the service."""

STALE_LISTING_S = 2400  # longer than a listing takes; a slower listing would undo a change
RECENT = 100_000  # number of remembered changes


class RecentWrites:
    """Times of this client's changes on the service, used to detect stale listings.

    A coworker's move that this client has repeated locally counts as a change by this client.
    """

    def __init__(self) -> None:
        # Monotonic, in nanoseconds, by zone and entry.
        self._moments: TTLCache[tuple[str, str], int] = TTLCache(RECENT, STALE_LISTING_S)
        self._latest = -1

    def add(self, zone: str, remote_id: str) -> None:
        """Record that this client has just changed the entry on the service."""
        self._latest = self._moments[zone, remote_id] = time.monotonic_ns()

    def since(self, zone: str, remote_id: str, asked_ns: int) -> bool:
        """Return True if this client changed the entry at or after `asked_ns` (monotonic clock).

        Changes that are older than STALE_LISTING_S seconds are forgotten.
        """
        if self._latest < asked_ns:  # true for nearly every entry of a listing
            return False
        return self._moments.get((zone, remote_id), -1) >= asked_ns


class Inodes:
    """Tree of inodes, with its table, its caches and the kernel's lookup counts."""

    def __init__(self, database: Database, box: Box) -> None:
        """Prepare the caches; load no inodes yet."""
        self._database = database
        self.rows = InodeTable(database, box)
        self._cache = InodeCache()
        self._dirents = Dirents()
        self._drafts = Drafts()
        self._changes: Counter[int] = Counter()  # change counters, by folder
        self.moves = 0  # number of moves of folders into other folders
        self._lookups: Counter[int] = Counter()  # lookup counts of the kernel
        self.recent_writes = RecentWrites()
        # Notified with the ino of an inode whose place on the service (REMOTE_PLACE) has changed.
        self.relocated: Observers[[int]] = Observers()
        # Notified, within the transaction, of a file without an entry that a rename replaces:
        # its number, and that of the file that gets its name.
        self.replaced: Observers[[int, int]] = Observers()
        self._next_ino = self.rows.next_ino()

    @classmethod
    def open(cls, database: Database, box: Box) -> Self:
        """Open the tree of a database for reading and writing; create the root if necessary."""
        inodes = cls(database, box)
        if inodes.find(ROOT) is None:
            with inodes.transaction():
                now = time.time_ns()
                inodes._keep(Inode(ROOT, ROOT, "", Kind.ROOT, mtime_ns=now, ctime_ns=now))
            inodes._next_ino = max(inodes._next_ino, ROOT + 1)
        return inodes

    @property
    def next_ino(self) -> int:
        """Number of the next new inode."""
        return self._next_ino

    # ---- reading ----

    def find(self, ino: int) -> Inode | None:
        """Return the inode with the given number, or None if it does not exist."""
        inode = self._cache.get(ino)
        if inode is None:
            stored = self.rows.get(ino)
            return None if stored is None else self._adopt(stored)
        return inode

    def get(self, ino: int) -> Inode:
        """Return the inode with the given number.

        Raises FileNotFoundError if the inode does not exist.
        """
        inode = self.find(ino)
        if inode is None:
            raise FileNotFoundError(f"inode {ino}")
        return inode

    def get_all(self, inos: Iterable[int]) -> Iterator[Inode]:
        """Yield the inodes with the given numbers, in the given order; skip missing ones.

        Rows are read in batches, and only one batch of inodes is held at a time.
        """
        for batch in batches(inos):
            known = {ino: self._cache.get(ino) for ino in batch}
            if missing := [ino for ino, inode in known.items() if inode is None]:
                for stored in self.rows.get_all(missing):
                    known[stored.ino] = self._adopt(stored)
            yield from (inode for inode in known.values() if inode is not None)

    def children(self, parent: int) -> Mapping[str, int]:
        """Return the inode numbers in a folder, by name.

        The result is the cached map, so later changes of the folder also change the result.
        """
        names = self._dirents.get(parent)
        while names is None:
            for _ in self.loading(parent):
                pass
            names = self._dirents.get(parent)
        return names

    def marked(self, parent: int) -> dict[str, int]:
        """Return those names in a folder that contain a `~`, with their inode numbers."""
        names = self.children(parent)
        return {name: names[name] for name in self._dirents.marked(parent)}

    def loading(self, parent: int) -> Iterator[None]:
        """Load the names in a folder in steps, if they are not cached, and yield between the steps.

        A step takes a few milliseconds, and other operations may run between two steps. After the
        last step, `children` returns at once.
        """
        while self._dirents.get(parent) is None:
            load = self._dirents.loading(parent)
            if load is None:
                load = self._dirents.begin(parent, self.rows.numbers_in(parent))
                load.names.update(self._drafts.names_in(parent))
            batch = list(islice(load.rest, BATCH))
            for ino, where, name in self.rows.names(batch):
                if name.startswith("/"):
                    self.find(ino)  # marks its folder unlisted
                elif where == parent and ino != ROOT:
                    load.names[name] = ino
            if len(batch) < BATCH:
                self._dirents.finish(parent)
                return
            yield

    def child(self, parent: int, name: str) -> Inode | None:
        """Return the inode with the given name in a folder, or None if there is none."""
        names = self._dirents.get(parent)
        if names is None:
            if (draft := self._drafts.names_in(parent).get(name)) is not None:
                return self.get(draft)
            for stored in self.rows.named(parent, name):
                inode = self._adopt(stored)
                if inode.parent == parent and inode.name == name:
                    return inode
            return None
        ino = names.get(name)
        return None if ino is None else self.get(ino)

    def numbers_of(self, parent: int, names: Sequence[str]) -> list[int]:
        """Return the inode number for each name in a folder, or NOWHERE if no entry has the name.

        If the folder's names are not cached, look up only the given names.
        """
        known = self._dirents.get(parent)
        if known is not None:
            return [known.get(name, NOWHERE) for name in names]
        found = (self.child(parent, name) for name in names)
        return [NOWHERE if inode is None else inode.ino for inode in found]

    def has_name(self, parent: int, name: str) -> bool:
        """Return True if a folder has an entry with the given name."""
        names = self._dirents.get(parent)
        return self.child(parent, name) is not None if names is None else name in names

    def inodes_in(self, parent: int) -> list[Inode]:
        """Return all inodes in a folder; for a large folder `get_all` needs less memory."""
        return list(self.get_all(self.children(parent).values()))

    def new_in(self, parent: int) -> list[Inode]:
        """Return the inodes in a folder that have no entry on the service."""
        numbers = [*self.rows.new_in(parent), *self._drafts.names_in(parent).values()]
        return [each for each in self.get_all(numbers) if each.ino != ROOT]

    def numbers_in(self, parent: int) -> list[int]:
        """Return the numbers of the inodes in a folder, in order of creation.

        Drafts, which are new files without a database row, come last.
        """
        numbers = [*self.rows.numbers_in(parent), *self._drafts.names_in(parent).values()]
        return [ino for ino in numbers if ino != ROOT]

    def by_remote(self, zone: str, remote_id: str) -> Inode | None:
        """Return the inode of a remote entry, or None if the entry has no inode."""
        ino = self.rows.by_remote(zone, remote_id)
        return None if ino is None else self.find(ino)

    def by_remotes(self, zone: str, ids: Sequence[str]) -> dict[str, tuple[int, int, int]]:
        """Return (ino, parent, seen) by remote id, for the entries that have an inode."""
        rows = (row for batch in batches(ids) for row in self.rows.by_remotes(zone, batch))
        return {remote_id: (ino, parent, seen) for remote_id, ino, parent, seen in rows}

    def unlinked(self) -> list[Inode]:
        """Return the unlinked inodes that have a row, mostly tombstones of unsent deletions."""
        return list(self.get_all(self.rows.numbers_in(NOWHERE)))

    def path(self, ino: int) -> str:
        """Return the path of an inode relative to the mount point, without a leading slash."""
        parts: list[str] = []
        while ino not in (ROOT, NOWHERE) and (inode := self.find(ino)) is not None:
            parts.append(inode.name)
            ino = inode.parent
        return "/".join(reversed(parts))

    def and_above(self, inode: Inode | None) -> Iterator[Inode]:
        """Yield the inode, if not None, and then the folders above it up to the root.

        The folder above an unlinked inode is the folder that contains its entry on the service.
        If the last known places of unlinked folders form a cycle, yield each of them once.
        """
        passed = set[int]()
        while inode is not None and inode.ino not in passed:
            yield inode
            passed.add(inode.ino)
            if inode.parent == NOWHERE:
                inode = self.by_remote(inode.zone, inode.remote_parent or "")
            else:
                inode = self.find(inode.parent)

    def above_on_service(self, inode: Inode) -> Iterator[Inode]:
        """Yield the folders above the inode's entry on the service, nearest first.

        If the last known places form a cycle, yield each folder once.
        """
        passed, folder = set[int](), self.by_remote(inode.zone, inode.remote_parent or "")
        while folder is not None and folder.ino not in passed:
            yield folder
            passed.add(folder.ino)
            folder = self.by_remote(folder.zone, folder.remote_parent or "")

    def below(self, ino: int) -> Iterator[Inode]:
        """Yield an inode and all inodes below it."""
        ahead = [ino]
        while ahead:
            inode = self.get(ahead.pop())
            yield inode
            if inode.is_folder:
                ahead += reversed(self.numbers_in(inode.ino))

    def is_below(self, inode: Inode | None, folder: Inode) -> bool:
        """Return True if `inode` is `folder` itself or below `folder`."""
        while inode is not None and inode is not folder:
            is_top = inode.ino == ROOT or inode.parent == NOWHERE
            inode = None if is_top else self.find(inode.parent)
        return inode is folder

    def is_here(self, inode: Inode | None) -> TypeGuard[Inode]:
        """Return True if neither the inode nor a folder above it was removed.

        Return False for None.
        """
        return self.is_below(inode, self.get(ROOT))

    def folders_below(self, folder: Inode) -> Iterator[Inode]:
        """Yield the folders below a folder, at any depth, if they exist on the service."""
        ahead = [self.get_all(self.rows.folders_in(folder.ino))]
        while ahead:
            if (child := next(ahead[-1], None)) is None:
                ahead.pop()
                continue
            yield child
            ahead.append(self.get_all(self.rows.folders_in(child.ino)))

    def innermost_first(self, folder: Inode) -> Iterator[Inode]:
        """Yield all inodes below a folder; the inodes in a subfolder come before the subfolder."""
        ahead = [(folder, self.get_all(self.numbers_in(folder.ino)))]
        while ahead:
            inner, inside = ahead[-1]
            if (child := next(inside, None)) is None:
                ahead.pop()
                if ahead:
                    yield inner
            elif child.is_folder:
                ahead.append((child, self.get_all(self.numbers_in(child.ino))))
            else:
                yield child

    def everything(self) -> Iterator[Inode]:
        """Yield all inodes; only some of them are in memory at a time."""
        yield from self.get_all(self._drafts.numbers())
        last = NOWHERE
        while numbers := self.rows.numbers(last):
            last = numbers[-1]
            yield from self.get_all(numbers)

    def without_origin(self) -> list[int]:
        """Return the numbers of the files and folders that have no entry on the service."""
        return [*self.rows.without_origin(), *self._drafts.numbers()]

    def changes(self, parent: int) -> int:
        """Return the folder's current change counter.

        The counter grows when a child is added, removed, renamed or updated, and when such a change
        is rolled back.
        """
        return self._changes[parent]

    # ---- changing ----

    def transaction(self) -> AbstractContextManager[None]:
        """Return a transaction; its changes apply to memory and table together, or not at all."""
        return self._database.transaction()

    def add(self, parent: int, name: str, kind: Kind, **fields: object) -> Inode:
        """Create an inode under a free name, write its row and return the inode.

        `fields` gives values for other fields of the inode. Raises FileNotFoundError if the parent
        folder is unlinked or a file.
        """
        inode = self._new(parent, name, kind, fields)
        if parent != NOWHERE:
            self._link(inode)
        self._keep(inode)
        if inode.is_folder:
            self.note_empty(inode.ino)
            self._forget_names(inode.ino, only_back=True)
        return inode

    def draft(self, parent: int, name: str, **fields: object) -> Inode:
        """Create and return a new file that has no row yet, and is lost if the daemon ends.

        The row is written when the file's first bytes are recorded, or when the file is moved.
        Raises FileNotFoundError if the parent folder is unlinked.
        """
        inode = self._new(parent, name, Kind.FILE, fields)
        self._link(inode)
        self._drafts.add(inode, (parent, name))
        self._cache.put(inode)
        self._database.on_rollback(lambda: self._cache.drop(inode.ino))
        self._database.on_rollback(lambda: self._drafts.drop(inode.ino))
        return inode

    def note_times(self, inode: Inode, **times: int) -> None:
        """Set times of a folder in memory, without writing the folder's row.

        The row is written when a new file in the folder (see `draft`) gets a row.
        """
        self._changed(inode.parent)
        self._set(inode, times)

    def add_all(self, parent: int, fields: Mapping[str, Mapping[str, object]]) -> None:
        """Create inodes in a folder; `fields` maps each name to the fields of its inode.

        The caller has checked that the names are free.
        """
        if not fields:
            return
        inodes = [self._new(parent, name, None, each) for name, each in fields.items()]
        self._changed(parent)
        self._forget_names(parent, only_back=True)

        def drop() -> None:
            for inode in inodes:
                self._cache.drop(inode.ino)

        self._database.on_rollback(drop)
        for inode in inodes:
            self._dirents.link(parent, inode.name, inode.ino)
            self._cache.put(inode)
        self.rows.write_new(inodes)

    def note_empty(self, parent: int) -> None:
        """Record in the cache that a folder is empty, as the caller has checked."""
        if self._dirents.get(parent) is None:
            self._dirents.begin(parent, [])
            self._dirents.finish(parent)

    def update(self, inode: Inode, **changes: object) -> None:
        """Set fields of an inode, and write its row if the inode has one.

        A draft (see `draft`) gets a row if a field in INDEXED changes. Only `move` and `unlink`
        change `parent` and `name`.
        """
        if all(getattr(inode, name) == value for name, value in changes.items()):
            return
        if inode.seen and "seen" not in changes and not REPLY_FIELDS.isdisjoint(changes):
            changes["seen"] = 0
        self._changed(inode.parent)
        self._set(inode, changes)
        linked = inode.parent != NOWHERE or inode.remote_id is not None
        if inode.ino in self._drafts:
            if not INDEXED.isdisjoint(changes):
                self._write(inode)
        elif linked:
            self._write(inode, changes)
        elif self._cache.get(inode.ino) is inode and not self._cache.is_rowless(inode.ino):
            self._write(inode, changes)  # else the inode is released, or has no row

    def move(self, inode: Inode, parent: int, name: str, **changes: object) -> None:
        """Move an inode to a free name in a folder, and set the other fields in `changes`.

        Raises FileNotFoundError if the folder is unlinked or a file.
        """
        self._drop_link(inode)
        self.moves += inode.is_folder and inode.parent != parent
        changes |= {"parent": parent, "name": name, "seen": 0}
        self._set(inode, changes)
        self._link(inode)
        self._write(inode, changes)

    def unlink(self, inode: Inode, *, tombstone: bool = False) -> None:
        """Remove the name of an inode.

        With `tombstone`, the row of the inode is kept until the deletion reaches the service.
        Otherwise the row is deleted, and only open handles and the kernel refer to the inode.
        """
        self._drop_link(inode)
        self._drop_draft(inode)
        self._set(inode, {"parent": NOWHERE, "seen": 0})
        if tombstone:
            self._write(inode)
        else:
            self._set(inode, {"remote_id": None})
            self._set_rowless(inode, True)
            self.rows.delete(inode.ino)
        self._forget_names(inode.ino)

    def delete_unreachable(self) -> None:
        """Delete the inodes that `InodeTable.unreachable` returns, and mark listings incomplete.

        Call this method before other operations use the tree.
        """
        for ino in self.rows.unreachable():
            self.rows.delete(ino)
            self._cache.drop(ino)
        self._dirents.clear()
        self.rows.mark_listings_stale()
        for inode in self._cache.all():
            if not inode.local and (inode.remote_id is not None or inode.ino == ROOT):
                inode.listed, inode.seen = False, 0

    # ---- lookup counts ----

    def remember(self, ino: int) -> None:
        """Add 1 to the kernel's lookup count of an inode."""
        self._lookups[ino] += 1

    def remember_all(self, inos: Sequence[int]) -> None:
        """Add 1 to the kernel's lookup count of each inode."""
        self._lookups.update(inos)

    def forget(self, ino: int, count: int) -> bool:
        """Subtract `count` from the kernel's lookup count of an inode.

        Return True if the lookup count is now 0 and the inode has no name.
        """
        if self._lookups[ino] > count:
            self._lookups[ino] -= count
            return False
        self._lookups.pop(ino, None)
        # An unmount may forget a million inodes: do not read rows for inodes that have a name.
        return (inode := self._cache.get(ino)) is not None and inode.parent == NOWHERE

    def remembered(self, ino: int) -> bool:
        """Return True if the kernel's lookup count of the inode is not 0."""
        return ino in self._lookups

    def release(self, ino: int) -> None:
        """Drop an inode from memory if it is unlinked and has no entry on the service.

        The caller has checked that neither a program nor the kernel uses the inode.
        """
        inode = self._cache.get(ino)
        if inode is not None and inode.parent == NOWHERE and inode.remote_id is None:
            self._cache.drop(ino)
            self._changes.pop(ino, None)

    # ---- internal ----

    def _set(self, inode: Inode, fields: Mapping[str, object]) -> None:
        """Set fields of an inode; a rollback of the transaction restores their values."""
        place = [getattr(inode, name) for name in REMOTE_PLACE]
        self._database.assign(inode, **fields)
        if place != [getattr(inode, name) for name in REMOTE_PLACE]:
            self._database.on_rollback(lambda: self.relocated.notify(inode.ino))
            self.relocated.notify(inode.ino)

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
        """Return the cached object of an inode that was just read from the table.

        If the row is damaged, mark the inode's folder as not listed, so that the next listing
        restores the row. Raises Damaged if the folder does not exist on the service, or if the
        database is read-only.
        """
        inode = self._cache.adopt(stored)
        if inode is stored and unreadable(inode) and inode.parent != NOWHERE:
            folder = self.find(inode.parent)
            if folder is None or folder.is_new or self._database.is_read_only:
                raise Damaged(f"the row of inode {inode.ino} is damaged")
            with self.transaction():
                self.rows.reset_seen(inode.ino)
                self.update(folder, listed=False)
        return inode

    def _keep(self, inode: Inode) -> None:
        self._database.on_rollback(lambda: self._cache.drop(inode.ino))
        self._cache.put(inode)
        self.rows.write(inode)

    def _write(self, inode: Inode, changes: Collection[str] = INDEXED) -> None:
        """Write the row of an inode; `changes` are the names of the changed fields."""
        if self._cache.is_rowless(inode.ino):
            self._set_rowless(inode, False)
            changes = INDEXED
        elif self._drop_draft(inode):
            changes = INDEXED
            folder = self._cache.get(inode.parent)
            if folder is not None and folder.parent != NOWHERE:
                self._write(folder, ())
        if INDEXED.isdisjoint(changes):
            self.rows.write_sealed(inode)
        else:
            self.rows.write(inode)

    def _drop_draft(self, inode: Inode) -> bool:
        """End the draft state of an inode; return False if the inode was not a draft."""
        if inode.ino not in self._drafts:
            return False
        place = self._drafts.drop(inode.ino)
        self._database.on_rollback(lambda: self._drafts.add(inode, place))
        return True

    def _set_rowless(self, inode: Inode, rowless: bool) -> None:
        before = self._cache.is_rowless(inode.ino)
        self._database.on_rollback(lambda: self._cache.set_rowless(inode, before))
        self._cache.set_rowless(inode, rowless)

    def _changed(self, parent: int) -> None:
        """Increment the change counter of a folder, and again if the transaction is rolled back."""
        self._database.on_rollback(lambda: self._changes.update([parent]))
        self._changes[parent] += 1

    def _link(self, inode: Inode) -> None:
        parent = inode.parent
        folder = self.get(parent)
        if folder.parent == NOWHERE or not folder.is_folder:
            raise FileNotFoundError(f"inode {parent} is not a folder, or has no name any more")
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
        """Drop a folder's cached names now, and again if the transaction is rolled back.

        If `only_back` is set, drop them only on a rollback.
        """
        self._database.on_rollback(lambda: self._dirents.forget(parent))
        if not only_back:
            self._dirents.forget(parent)
