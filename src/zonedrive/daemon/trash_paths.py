"""Original folders of deleted entries, to the extent that the service reports them.

Knows nothing about the use of the paths.

INVARIANT: a trash of thousands of entries needs few requests: each folder is requested once, and at
most MOST folders in total. Folders that are still unknown are not shown.
"""

from collections.abc import Callable, Iterable
from typing import Protocol

from zonedrive.errors import ZonedriveError
from zonedrive.model import Entry, Zone

MOST = 100  # folders that are asked for
DEEP = 200  # folders in each other


class Asked(Protocol):
    """Source of folder entries."""

    async def entry(self, zone_id: str, entry_id: str) -> Entry:
        """Return a file or folder, which may be deleted."""


class TrashPaths:
    """Folder lookup for one listing of the trash."""

    def __init__(
        self, service: Asked, here: Callable[[str, str], Entry | None] = lambda zone, entry: None
    ) -> None:
        """Set the sources; `here` returns a folder by zone id and folder id without a request."""
        self._service = service
        self._here = here
        self._known: dict[str, Entry | None] = {}
        self._asked = 0

    def know(self, entries: Iterable[Entry]) -> None:
        """Add deleted entries, which then need no request."""
        self._known |= {entry.id: entry for entry in entries}

    async def folder(self, zone: Zone, entry: Entry) -> str | None:
        """Return the entry's original folder, relative to its zone; None if it is unknown."""
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
        """Return the entry's whole path, with `...` for unknown folders."""
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
