"""Cache of the names in folders: inode numbers by name.

Knows nothing about inodes or their table.  The names of a folder are cached completely or not at
all. The least recently used folder is dropped when the cache is full.

INVARIANT: a change of a folder's names is applied to its map, also while that map is being loaded.
"""

from collections.abc import Iterator

NAMES = 150_000  # most cached names; one folder may have more

Names = dict[str, int]


class Loading:
    """Names of one folder while they are loaded; `rest` yields the numbers still to read."""

    def __init__(self, inos: list[int]) -> None:
        self.names: Names = {}
        self.rest: Iterator[int] = iter(inos)


class Dirents:
    """Maps from name to inode number, by folder."""

    def __init__(self, limit: int = NAMES) -> None:
        self._limit = limit
        self._maps: dict[int, Names] = {}  # the one used last comes last
        self._sum = 0
        self._loading: dict[int, Loading] = {}

    def get(self, parent: int) -> Names | None:
        """Return the names in a folder, or None if they are not cached."""
        names = self._maps.get(parent)
        if names is not None and len(self._maps) > 1:
            del self._maps[parent]
            self._maps[parent] = names
        return names

    def loading(self, parent: int) -> Loading | None:
        """Return the running load of a folder's names, or None."""
        return self._loading.get(parent)

    def begin(self, parent: int, inos: list[int]) -> Loading:
        """Begin to load the names of a folder from the numbers `inos`."""
        load = self._loading[parent] = Loading(inos)
        return load

    def finish(self, parent: int) -> Names:
        """End a load and cache its names."""
        names = self._maps[parent] = self._loading.pop(parent).names
        self._sum += len(names)
        while self._sum > self._limit and len(self._maps) > 1:
            self.forget(next(iter(self._maps)))
        return names

    def link(self, parent: int, name: str, ino: int) -> None:
        """Add a name to a folder."""
        names = self._maps.get(parent)
        if names is not None:
            self._sum += name not in names
            names[name] = ino
        if (load := self._loading.get(parent)) is not None:
            load.names[name] = ino

    def unlink(self, parent: int, name: str) -> None:
        """Remove a name from a folder."""
        names = self._maps.get(parent)
        if names is not None and names.pop(name, None) is not None:
            self._sum -= 1
        if (load := self._loading.get(parent)) is not None:
            load.names.pop(name, None)

    def forget(self, parent: int) -> None:
        """Drop the cached names of a folder."""
        self._sum -= len(self._maps.pop(parent, ()))
        self._loading.pop(parent, None)

    def clear(self) -> None:
        """Drop all cached names."""
        self._maps.clear()
        self._loading.clear()
        self._sum = 0
