"""Index of the entries that pending local changes move or delete, by place on the service."""

from zonedrive.state.inode import Inode
from zonedrive.state.inodes import Inodes
from zonedrive.state.intents import IntentTable
from zonedrive.state.names import is_aside

Place = tuple[str, str | None, str | None]
"""Zone, remote id of the folder, and remote name of an entry."""


class LeavingEntries:
    """Index, by place on the service, of the inodes whose intents concern names.

    These inodes were moved, renamed, removed or parked (see `IntentTable.park`) locally. Changes of
    intents and inodes only add inode numbers to `DueQueue.unindexed`. The next lookup updates the
    index for these inodes.
    """

    def __init__(self, inodes: Inodes, intents: IntentTable) -> None:
        self._inodes = inodes
        self._intents = intents
        self._places: dict[int, Place] = {}  # by inode number
        self._inos: dict[Place, set[int]] = {}
        self._aside: set[int] = set()  # inodes whose entries have a temporary name
        inodes.relocated.add(self._relocated)

    def at(self, folder: Inode, name: str) -> list[Inode]:
        """Return the indexed inodes whose last known place on the service is `name` in `folder`.

        The inode with the oldest local change comes first.
        """
        if folder.remote_id is None:
            return []
        self._update()
        inos = self._inos.get((folder.zone, folder.remote_id, name), ())
        intents = [intent for ino in inos if (intent := self._intents.get(ino)) is not None]
        intents.sort(key=lambda intent: intent.seq)
        return [inode for each in intents if (inode := self._inodes.find(each.ino)) is not None]

    def aside(self) -> set[int]:
        """Return the numbers of the indexed inodes whose remote name was made by `aside_name`."""
        self._update()
        return self._aside

    def _relocated(self, ino: int) -> None:
        if ino in self._intents.agenda.names:
            self._intents.agenda.unindexed.add(ino)

    def _update(self) -> None:
        agenda = self._intents.agenda
        if not agenda.unindexed:
            return
        places = {
            inode.ino: (inode.zone, inode.remote_parent, inode.remote_name)
            for inode in self._inodes.get_all(agenda.unindexed & agenda.names)
        }
        self._aside -= agenda.unindexed
        self._aside |= {ino for ino, (_, _, name) in places.items() if is_aside(name)}
        for ino in agenda.unindexed:
            if (former := self._places.pop(ino, None)) is not None:
                self._inos[former].discard(ino)
                if not self._inos[former]:
                    del self._inos[former]
            if (place := places.get(ino)) is not None:
                self._places[ino] = place
                self._inos.setdefault(place, set()).add(ino)
        agenda.unindexed.clear()
