"""Parsing of a zone's trash: entries, and the deletion time of each.

Knows nothing about requests. The member with the deletion time is not published: a profile names
it.
"""

import msgspec

from zonedrive.errors import BadAnswer
from zonedrive.model import Entry
from zonedrive.remote.profiles.operations import Operation
from zonedrive.remote.wire import entries as wire
from zonedrive.remote.wire.fields import moment

DOING = "listing deleted entries"


class WireDeleted(msgspec.Struct, eq=False):
    """JSON form of a deleted entry."""

    entry: wire.WireEntry
    at: object

    @property
    def id(self) -> object:
        """Id of the entry."""
        return self.entry.id


class Deletions:
    """Parser for the answers of the operation `deleted`."""

    def __init__(self, operation: Operation) -> None:
        self._path = operation.fields.get("deleted_at", "")

    def items(self, value: object) -> list[WireDeleted]:
        """Return the deleted entries in a parsed answer. Raises BadAnswer if it is not an array."""
        if not isinstance(value, list):
            raise BadAnswer(f"{DOING}: the answer is not an array")
        entries = wire.items_of(value, wire.WireEntry, DOING)
        times = [wire.member(item, self._path) if self._path else None for item in value]
        return [WireDeleted(*each) for each in zip(entries, times, strict=True)]

    @staticmethod
    def told(found: list[WireDeleted], zone_id: str) -> list[tuple[Entry, int]]:
        """Return all entries that have an id, with the deletion time in ns (0: unknown)."""
        times = {str(each.id): moment(each.at) for each in found}
        entries = wire.entries([each.entry for each in found], DOING, zone_id=zone_id)
        return [(entry, times.get(entry.id, 0)) for entry in entries]
