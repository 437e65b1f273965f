"""Index of the entries that pending local changes move or delete, by place on the service."""

from zonedrive.state.inode import Inode
from zonedrive.state.inodes import Inodes
from zonedrive.state.intents import IntentTable
from zonedrive.state.names import is_aside, local_name, shows

Place = tuple[str, str | None, str | None]
"""Zone, remote id of the folder, and remote or display name of an entry."""


class LeavingEntries:
    """Index, by place on the service, of the inodes whose intents concern names.

    These inodes were moved, renamed, removed or parked (see `IntentTable.park`) locally. An inode
    is found by the remote name of its entry, and by the display name (see `names`) that the entry
    had before the local change. Changes of intents and inodes only add inode numbers to
    `DueQueue.unindexed`. The next lookup updates the index for these inodes.
    """

    def __init__(self, inodes: Inodes, intents: IntentTable) -> None:
        self._inodes = inodes
        self._intents = intents
        self._places: dict[int, Place] = {}  # by inode number
        self._inos: dict[Place, set[int]] = {}
        # The same for the display names of entries, if they differ from the remote names.
        self._shown_places: dict[int, Place] = {}
        self._shown_inos: dict[Place, set[int]] = {}
        self._aside: set[int] = set()  # inodes whose entries have a temporary name
        inodes.relocated.add(self._relocated)

    def at(self, folder: Inode, name: str) -> list[Inode]:
        """Return the indexed inodes whose entries had the display name `name` in `folder`.

        An inode whose entry has the same name on the service comes first, then the inode with the
        oldest local change.
        """
        if folder.remote_id is None:
            return []
        self._update()
        place = folder.zone, folder.remote_id, name
        named, shown = self._inos.get(place, set()), self._shown_inos.get(place, set())
        same = named - self._shown_places.keys() if named else named
        return [*self._oldest_first(same), *self._oldest_first(shown)]

    def with_remote_name(self, folder: Inode, name: str) -> list[Inode]:
        """Return the indexed inodes whose entries the service calls `name`, in `folder`.

        The inode with the oldest local change comes first.
        """
        if folder.remote_id is None:
            return []
        self._update()
        return self._oldest_first(self._inos.get((folder.zone, folder.remote_id, name), set()))

    def display_name(self, ino: int) -> str | None:
        """Return the display name that the entry of an indexed inode had before the local change.

        Return None if this name is the entry's name on the service, or if the inode is not indexed.
        """
        self._update()
        place = self._shown_places.get(ino)
        return None if place is None else place[2]

    def aside(self) -> set[int]:
        """Return the numbers of the indexed inodes whose remote name was made by `aside_name`."""
        self._update()
        return self._aside

    def _oldest_first(self, inos: set[int]) -> list[Inode]:
        intents = [intent for ino in inos if (intent := self._intents.get(ino)) is not None]
        intents.sort(key=lambda intent: intent.seq)
        return [inode for each in intents if (inode := self._inodes.find(each.ino)) is not None]

    def _relocated(self, ino: int) -> None:
        if ino in self._intents.agenda.names:
            self._intents.agenda.unindexed.add(ino)

    def _update(self) -> None:
        agenda = self._intents.agenda
        if not agenda.unindexed:
            return
        places: dict[int, Place] = {}
        shown_places: dict[int, Place] = {}
        for inode in self._inodes.get_all(agenda.unindexed & agenda.names):
            places[inode.ino] = inode.zone, inode.remote_parent, inode.remote_name
            if (shown := self._shown(inode)) != inode.remote_name:
                shown_places[inode.ino] = inode.zone, inode.remote_parent, shown
        self._aside -= agenda.unindexed
        self._aside |= {ino for ino, (_, _, name) in places.items() if is_aside(name)}
        for ino in agenda.unindexed:
            _reindex(ino, places.get(ino), self._places, self._inos)
            _reindex(ino, shown_places.get(ino), self._shown_places, self._shown_inos)
        agenda.unindexed.clear()

    def _shown(self, inode: Inode) -> str | None:
        """Return the display name that an entry had before the local change, or None for no entry.

        The name is the usual display name, unless the intent has recorded another one.
        """
        name, entry_id = inode.remote_name, inode.remote_id
        if name is None or entry_id is None:
            return name
        intent = self._intents.get(inode.ino)
        if intent is not None and intent.left is not None:
            number, left = intent.left
            folder = self._inodes.find(number)
            is_its_folder = folder is not None and folder.remote_id == inode.remote_parent
            if is_its_folder and shows(left, name, entry_id):
                return left
        return local_name(name, entry_id, ())


def _reindex(
    ino: int, place: Place | None, places: dict[int, Place], inos: dict[Place, set[int]]
) -> None:
    """Replace the place of an inode in an index, or remove the inode if `place` is None."""
    if (former := places.pop(ino, None)) is not None:
        inos[former].discard(ino)
        if not inos[former]:
            del inos[former]
    if place is not None:
        places[ino] = place
        inos.setdefault(place, set()).add(ino)
