"""Drafts: new files that no program has closed yet; they have a name but no row.

Knows nothing about the table.  A file is not durable before its first close, so drafts are lost
when the daemon ends.

INVARIANT: a draft stays in memory, and so does a folder with newer times than its row because of a
draft.
"""

from collections.abc import Mapping

from zonedrive.state.inode import Inode

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
        """Return the numbers of all drafts, in order of creation."""
        return list(self._known)

    def names_in(self, parent: int) -> Mapping[str, int]:
        """Return the numbers of the drafts in a folder by name."""
        return self._names.get(parent, _NONE)

    def add(self, inode: Inode, place: Place) -> None:
        """Add a draft with its place."""
        self._known[inode.ino] = inode, place
        self._names.setdefault(place[0], {})[place[1]] = inode.ino

    def drop(self, ino: int) -> Place:
        """Remove a draft that now has a row or no longer has a name; return its former place."""
        _, place = self._known.pop(ino)
        names = self._names[place[0]]
        del names[place[1]]
        if not names:
            del self._names[place[0]]
        return place
