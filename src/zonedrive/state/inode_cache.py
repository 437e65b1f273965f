"""Caches of the tree: inodes, the names in folders, and new files without a database row.

This module does not read or write the database.

INVARIANT: while any code references an `Inode`, every lookup of the inode's number returns the same
object. All users therefore see a change at once.

INVARIANT: an inode without a row stays in memory until it is released, because no other copy
exists.

INVARIANT: a change of the names in a folder is applied to the folder's map of names, even while
that map is being loaded.
"""

from collections.abc import Iterable, Iterator, Mapping
from weakref import WeakValueDictionary

from zonedrive.state.inode import Inode

RECENT = 4096  # at least this many recently used inodes are cached, at most twice as many
NAMES = 50_000  # maximum number of cached names; a single folder may have more

Names = dict[str, int]
Place = tuple[int, str]  # folder and name

_NONE: Mapping[str, int] = {}


class InodeCache:
    """Cache of inodes by number."""

    def __init__(self) -> None:
        # Two generations make an LRU cache without bookkeeping at each use: a used inode moves to
        # the young generation. When the young generation is full, the old generation is dropped,
        # and the young generation becomes the old one.
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
        """Return the cached inode that has the same number as `stored`.

        If there is none, cache and return `stored`, which was just read from the database.
        """
        known = self.get(stored.ino)
        if known is not None:
            return known
        self.put(stored)
        return stored

    def put(self, inode: Inode) -> None:
        """Add an inode to the cache."""
        self._alive[inode.ino] = inode
        self._use(inode)

    def drop(self, ino: int) -> None:
        """Remove an inode from the cache."""
        for known in (self._young, self._old, self._alive, self._rowless):
            known.pop(ino, None)

    def all(self) -> list[Inode]:
        """Return all inodes that are in memory."""
        return list(self._alive.values())

    # ---- inodes without a row ----

    def is_rowless(self, ino: int) -> bool:
        """Return True if the inode has no row in the database."""
        return ino in self._rowless

    def set_rowless(self, inode: Inode, rowless: bool) -> None:
        """Record whether the inode has no row.

        An inode without a row stays in memory.
        """
        if rowless:
            self._rowless[inode.ino] = inode
        else:
            self._rowless.pop(inode.ino, None)

    def _use(self, inode: Inode) -> None:
        if len(self._young) >= RECENT:
            self._old, self._young = self._young, {}
        self._young[inode.ino] = inode


class Loading:
    """Partly loaded names of one folder; `rest` yields the inode numbers still to read."""

    def __init__(self, inos: list[int]) -> None:
        self.names: Names = {}
        self.rest: Iterator[int] = iter(inos)


class Dirents:
    """Cached maps from name to inode number, by folder; each map is complete."""

    def __init__(self, limit: int = NAMES) -> None:
        self._limit = limit
        self._maps: dict[int, Names] = {}  # least recently used first
        self._marked: dict[int, dict[str, None]] = {}  # for each of the maps, its names with a `~`
        self._sum = 0
        self._loading: dict[int, Loading] = {}

    def get(self, parent: int) -> Names | None:
        """Return the inode numbers in a folder by name, or None if they are not cached."""
        names = self._maps.get(parent)
        if names is not None and len(self._maps) > 1:
            del self._maps[parent]
            self._maps[parent] = names
        return names

    def marked(self, parent: int) -> Iterable[str]:
        """Return the names with a `~` in a folder whose names are cached."""
        return self._marked[parent]

    def loading(self, parent: int) -> Loading | None:
        """Return the unfinished load of a folder's names, or None."""
        return self._loading.get(parent)

    def begin(self, parent: int, inos: list[int]) -> Loading:
        """Begin to load the names of a folder; `inos` are the numbers of the inodes to read."""
        load = self._loading[parent] = Loading(inos)
        return load

    def finish(self, parent: int) -> Names:
        """End the load of a folder; cache and return the inode numbers by name.

        If the cached names then exceed the limit, drop the names of the least recently used
        folders.
        """
        names = self._maps[parent] = self._loading.pop(parent).names
        self._marked[parent] = {name: None for name in names if "~" in name}
        self._sum += len(names)
        while self._sum > self._limit and len(self._maps) > 1:
            self.forget(next(iter(self._maps)))
        return names

    def link(self, parent: int, name: str, ino: int) -> None:
        """Add a name to the folder's map, if the map is cached or being loaded."""
        names = self._maps.get(parent)
        if names is not None:
            self._sum += name not in names
            names[name] = ino
            if "~" in name:
                self._marked[parent][name] = None
        if (load := self._loading.get(parent)) is not None:
            load.names[name] = ino

    def unlink(self, parent: int, name: str) -> None:
        """Remove a name from the folder's map, if the map is cached or being loaded."""
        names = self._maps.get(parent)
        if names is not None and names.pop(name, None) is not None:
            self._sum -= 1
            self._marked[parent].pop(name, None)
        if (load := self._loading.get(parent)) is not None:
            load.names.pop(name, None)

    def forget(self, parent: int) -> None:
        """Drop the cached names of a folder, and cancel an unfinished load."""
        self._sum -= len(self._maps.pop(parent, ()))
        self._marked.pop(parent, None)
        self._loading.pop(parent, None)

    def clear(self) -> None:
        """Drop all cached names, and cancel all unfinished loads."""
        self._maps.clear()
        self._marked.clear()
        self._loading.clear()
        self._sum = 0


class Drafts:
    """Drafts, by inode number and by place (folder and name).

    A draft is a new file that has a name but no database row yet, usually because no program has
    closed the file. Drafts are lost when the daemon ends.
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[Inode, Place]] = {}
        self._names: dict[int, dict[str, int]] = {}  # numbers by folder and name

    def __contains__(self, ino: int) -> bool:
        return ino in self._known

    def numbers(self) -> list[int]:
        """Return the numbers of all drafts, in order of creation."""
        return list(self._known)

    def names_in(self, parent: int) -> Mapping[str, int]:
        """Return the inode numbers of the drafts in a folder, by name."""
        return self._names.get(parent, _NONE)

    def add(self, inode: Inode, place: Place) -> None:
        """Add a draft with its place (folder and name)."""
        self._known[inode.ino] = inode, place
        self._names.setdefault(place[0], {})[place[1]] = inode.ino

    def drop(self, ino: int) -> Place:
        """Remove a file from the drafts; return the place with which the file was added."""
        _, place = self._known.pop(ino)
        names = self._names[place[0]]
        del names[place[1]]
        if not names:
            del self._names[place[0]]
        return place
