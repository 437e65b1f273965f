"""Deleted entries: which there are, and bringing them back or removing them for good.

Must not know sockets, commands or the mount.

What lay in a folder that is deleted, too, can be restored after that folder only.

INVARIANT: of several entries of one name none is taken: the person gives the id.  A zone that does
not show its trash keeps that of no other from being seen, and is named.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Protocol

from zonedrive.daemon.answers import timestamp
from zonedrive.errors import AlreadyExists, Forbidden, NotFound, RemoteError, ZonedriveError
from zonedrive.model import Entry, Zone


class Bin(Protocol):
    """What a service can do with deleted entries; `remote.Service` is one."""

    async def zones(self) -> list[Zone]:
        """All zones."""

    async def deleted(self, zone_id: str) -> list[Entry]:
        """What is in a zone's trash."""

    async def restore(self, zone_id: str, entry_id: str, *, folder: bool | None = None) -> Entry:
        """Out of the trash."""

    async def purge(self, zone_id: str, entry_id: str, *, folder: bool | None = None) -> None:
        """For good."""


class Trash:
    """The trash of all zones, or of the one of a name or id."""

    def __init__(self, service: Bin, zone: object = None) -> None:
        self._service = service
        self._zone = zone
        self._deleted: list[tuple[Zone, Entry]] = []  # when it was looked last
        self._unseen: list[str] = []  # zones that do not show theirs

    async def answer(self) -> dict[str, Any]:
        """What is in it, for a command's answer, and the zones of which that cannot be said."""
        entries = [_object(zone, entry) for zone, entry in await self._look()]
        return {"entries": entries, "unseen": self._unseen}

    async def restore(self, wanted: object, appear: Callable[[Entry], Awaitable[str]]) -> list[str]:
        """Bring back entries, each given by id or name; `appear` gives the path of each."""

        async def back(zone: Zone, entry: Entry) -> str:
            try:
                found = await self._service.restore(zone.id, entry.id, folder=entry.folder)
            except AlreadyExists as taken:
                taken.remedy = f"rename the {entry.name!r} that is there now, and restore again"
                raise
            except RemoteError as refused:
                for folder in (one for _, one in self._deleted if one.id == entry.parent_id):
                    refused.remedy = f"its folder is deleted, too: restore {folder.id} first"
                raise
            try:
                return await appear(found)
            except (ZonedriveError, OSError):
                return found.name  # it is back; it shows with the next listing

        return await self._each(wanted, back, "restored")

    async def purge(self, wanted: object) -> list[str]:
        """Remove entries for good, each given by id or name; their names."""

        async def gone(zone: Zone, entry: Entry) -> str:
            await self._service.purge(zone.id, entry.id, folder=entry.folder)
            return entry.name

        return await self._each(wanted, gone, "removed")

    async def _each(
        self, wanted: object, work: Callable[[Zone, Entry], Awaitable[str]], done: str
    ) -> list[str]:
        """Do it to all that are meant; nothing where one of them is not clear."""
        if not isinstance(wanted, list) or not wanted:
            raise ZonedriveError("the request names no entries")
        self._deleted = await self._look()
        try:
            chosen = dict.fromkeys(_choose(str(name), self._deleted) for name in wanted)
        except NotFound as missing:
            if self._unseen:
                missing.remedy += f", which does not show that of {', '.join(self._unseen)}"
            raise
        names: list[str] = []
        for zone, entry in _folders_first(chosen):
            try:
                names.append(await work(zone, entry))
            except ZonedriveError as wrong:
                if names:
                    wrong.message += f" (before that, {done}: {', '.join(names)})"
                raise
        return names

    async def _look(self) -> list[tuple[Zone, Entry]]:
        zones = [zone for zone in await self._service.zones() if zone.accessible]
        if self._zone is not None:
            zones = [zone for zone in zones if self._zone in (zone.name, zone.id)]
            if not zones:
                raise NotFound(f"there is no zone {self._zone!r}", remedy="run 'zonedrive zones'")
        found: list[tuple[Zone, Entry]] = []
        self._unseen = []
        for zone in zones:
            try:
                found += [(zone, entry) for entry in await self._service.deleted(zone.id)]
            except ZonedriveError as wrong:
                if self._zone is not None or not isinstance(wrong, Forbidden | NotFound):
                    wrong.message += f" (zone {zone.name!r})"
                    raise
                self._unseen.append(zone.name)
        return found


def _choose(name: str, deleted: Sequence[tuple[Zone, Entry]]) -> tuple[Zone, Entry]:
    """The deleted entry of that id, or else the only one of that name."""
    by_id = [pair for pair in deleted if pair[1].id == name]
    by_name = [pair for pair in deleted if pair[1].name == name]
    found = by_id or by_name
    if not found:
        raise NotFound(f"{name!r} is not in the trash", remedy="run 'zonedrive trash'")
    if len(found) > 1:
        ids = ", ".join(entry.id for _, entry in found)
        raise ZonedriveError(f"{name!r} was deleted several times", remedy=f"give an id: {ids}")
    return found[0]


def _folders_first(chosen: Iterable[tuple[Zone, Entry]]) -> list[tuple[Zone, Entry]]:
    """The same, each entry after the folder it lay in, if that is among them."""
    left = {(zone.id, entry.id): (zone, entry) for zone, entry in chosen}
    found: list[tuple[Zone, Entry]] = []
    while left:
        ready = [
            key for key, (zone, entry) in left.items() if (zone.id, entry.parent_id) not in left
        ]
        for key in ready or list(left):  # a circle is the service's to refuse
            found.append(left.pop(key))
    return found


def _object(zone: Zone, entry: Entry) -> dict[str, Any]:
    return {
        "zone": zone.name,
        "id": entry.id,
        "name": entry.name,
        "folder": entry.folder,
        "size": entry.size,
        "modified": timestamp(entry.modified_ns),
        "modified_by": entry.modified_by,
    }
