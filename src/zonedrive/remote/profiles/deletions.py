"""What is in a zone's trash, wire ↔ model: entries, and when each was deleted.

Must not know requests.  When is not published: a profile says where an answer tells it.
"""

import msgspec

from zonedrive.errors import BadAnswer
from zonedrive.model import Entry
from zonedrive.remote.profiles.operations import Operation
from zonedrive.remote.wire import entries as wire
from zonedrive.remote.wire.members import moment

DOING = "listing deleted entries"


class WireDeleted(msgspec.Struct, eq=False):
    """A deleted entry as it comes."""

    entry: wire.WireEntry
    at: object

    @property
    def id(self) -> object:
        """Of the entry."""
        return self.entry.id


class Deletions:
    """Reads the answers to one operation."""

    def __init__(self, operation: Operation) -> None:
        self._path = operation.fields.get("deleted_at", "")

    def items(self, value: object) -> list[WireDeleted]:
        """Those of a parsed answer.  Raises BadAnswer where it is no array."""
        if not isinstance(value, list):
            raise BadAnswer(f"{DOING}: the answer is not an array")
        entries = wire.items_of(value, wire.WireEntry, DOING)
        times = [wire.member(item, self._path) if self._path else None for item in value]
        return [WireDeleted(*each) for each in zip(entries, times, strict=True)]

    @staticmethod
    def told(found: list[WireDeleted], zone_id: str) -> list[tuple[Entry, int]]:
        """All that have an id, each with when it was deleted: nanoseconds, 0 for unknown."""
        times = {str(each.id): moment(each.at) for each in found}
        entries = wire.entries([each.entry for each in found], DOING, zone_id=zone_id)
        return [(entry, times.get(entry.id, 0)) for entry in entries]
