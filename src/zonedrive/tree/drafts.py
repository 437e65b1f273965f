"""New files that no program has closed yet: they have a name and no row.

Must not know their table.  Nothing is promised of a file before its first close, so a daemon that
ends forgets its drafts.

INVARIANT: a draft, and a folder whose times are newer than its row because of one, stay in memory.
"""

from collections.abc import Mapping

from zonedrive.tree.inode import Inode

_NONE: Mapping[str, int] = {}

Place = tuple[int, str]  # folder and name


class Drafts:
    """Drafts by number and by place."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Inode, Place]] = {}
        self._names: dict[int, dict[str, int]] = {}  # numbers by folder and name
        # Folders by number whose times are newer than those in their rows.
        self.behind: dict[int, Inode] = {}

    def __contains__(self, ino: int) -> bool:
        return ino in self._known

    def numbers(self) -> list[int]:
        """Return the numbers of all drafts, in the order they came."""
        return list(self._known)

    def names_in(self, parent: int) -> Mapping[str, int]:
        """Return the numbers by name of the drafts in a folder."""
        return self._names.get(parent, _NONE)

    def add(self, inode: Inode, place: Place) -> None:
        """Note that an inode is a draft with this place."""
        self._known[inode.ino] = inode, place
        self._names.setdefault(place[0], {})[place[1]] = inode.ino

    def drop(self, ino: int) -> Place:
        """Note that an inode has a row, or no name, from now on; return its place so far."""
        _, place = self._known.pop(ino)
        names = self._names[place[0]]
        del names[place[1]]
        if not names:
            del self._names[place[0]]
        return place
