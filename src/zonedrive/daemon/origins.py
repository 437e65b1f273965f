"""Where deleted entries were: the paths of their folders, as far as the service tells.

Must not know what is done with them.

INVARIANT: a trash of thousands costs few questions: a folder is asked for once, and in all MOST of
them; what is not known then is not shown.
"""

from collections.abc import Callable, Iterable
from typing import Protocol

from zonedrive.errors import ZonedriveError
from zonedrive.model import Entry, Zone

MOST = 100  # folders that are asked for
DEEP = 200  # folders in each other


class Asked(Protocol):
    """Who tells of a folder."""

    async def entry(self, zone_id: str, entry_id: str) -> Entry:
        """A file or folder, which may be a deleted one."""


class Origins:
    """The folders of one look into the trash."""

    def __init__(
        self, service: Asked, here: Callable[[str, str], Entry | None] = lambda zone, entry: None
    ) -> None:
        """`here` gives a folder, by the ids of its zone and its own, without a question."""
        self._service = service
        self._here = here
        self._known: dict[str, Entry | None] = {}
        self._asked = 0

    def know(self, entries: Iterable[Entry]) -> None:
        """What needs not be asked for: what is deleted itself."""
        self._known |= {entry.id: entry for entry in entries}

    async def folder(self, zone: Zone, entry: Entry) -> str | None:
        """The folder it was in, below its zone; None where that is not known."""
        parts: list[str] = []
        above = entry.parent_id
        for _ in range(DEEP):
            if above == zone.root_id:
                return "/".join(reversed(parts))
            found = await self._entry(zone, above)
            if found is None:
                break
            parts.append(found.name)
            above = found.parent_id
        return None

    async def path(self, zone: Zone, entry: Entry) -> str:
        """Its whole path, with `...` for what is not known."""
        folder = await self.folder(zone, entry)
        return "/".join([zone.name, *([] if folder == "" else [folder or "..."]), entry.name])

    async def _entry(self, zone: Zone, folder_id: str) -> Entry | None:
        if folder_id not in self._known:
            if (found := self._here(zone.id, folder_id)) is not None:
                self._known[folder_id] = found
                return found
            if not folder_id or self._asked == MOST:
                return None
            self._asked += 1
            try:
                self._known[folder_id] = await self._service.entry(zone.id, folder_id)
            except ZonedriveError:
                self._known[folder_id] = None
        return self._known[folder_id]
