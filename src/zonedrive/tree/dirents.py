"""The names in folders, as far as they are in memory: numbers by name.

Must not know inodes or their table.  A folder's names are here whole or not at all; what was
used longest ago goes when there are too many in all.

INVARIANT: a change of a folder's names reaches its map, and the map that is just being loaded.
"""

from collections.abc import Iterator

NAMES = 150_000  # so many are kept, or those of one folder

Names = dict[str, int]


class Loading:
    """The names of one folder on their way into memory; `rest` are the numbers still to read."""

    def __init__(self, inos: list[int]) -> None:
        self.names: Names = {}
        self.rest: Iterator[int] = iter(inos)


class Dirents:
    """Maps by folder."""

    def __init__(self, limit: int = NAMES) -> None:
        self._limit = limit
        self._maps: dict[int, Names] = {}  # the one used last comes last
        self._sum = 0
        self._loading: dict[int, Loading] = {}

    def get(self, parent: int) -> Names | None:
        """The names in a folder, if they are known."""
        names = self._maps.get(parent)
        if names is not None and len(self._maps) > 1:
            del self._maps[parent]
            self._maps[parent] = names
        return names

    def loading(self, parent: int) -> Loading | None:
        """The names on their way, if they are."""
        return self._loading.get(parent)

    def begin(self, parent: int, inos: list[int]) -> Loading:
        """Start to load."""
        load = self._loading[parent] = Loading(inos)
        return load

    def finish(self, parent: int) -> Names:
        """What was on its way has arrived."""
        names = self._maps[parent] = self._loading.pop(parent).names
        self._sum += len(names)
        while self._sum > self._limit and len(self._maps) > 1:
            self.forget(next(iter(self._maps)))
        return names

    def link(self, parent: int, name: str, ino: int) -> None:
        """A name came into a folder."""
        names = self._maps.get(parent)
        if names is not None:
            self._sum += name not in names
            names[name] = ino
        if (load := self._loading.get(parent)) is not None:
            load.names[name] = ino

    def unlink(self, parent: int, name: str) -> None:
        """A name left a folder."""
        names = self._maps.get(parent)
        if names is not None and names.pop(name, None) is not None:
            self._sum -= 1
        if (load := self._loading.get(parent)) is not None:
            load.names.pop(name, None)

    def forget(self, parent: int) -> None:
        """The names must be read again."""
        self._sum -= len(self._maps.pop(parent, ()))
        self._loading.pop(parent, None)

    def clear(self) -> None:
        """All names must be read again."""
        self._maps.clear()
        self._loading.clear()
        self._sum = 0
