"""Zone logs, with a message for every event in a zone.

This module checks no permissions. INVARIANT: a message is written in the transaction of the change
that it describes, so that neither exists without the other. The event kinds and message fields are
specific to the sandbox.
"""

import uuid
from typing import Any, Literal

from zonedrive.sandbox.clock import iso, now_us
from zonedrive.sandbox.database import Database, Row

Event = Literal[
    "ZoneCreated",
    "MemberChanged",
    "FolderAdded",
    "FileAdded",
    "FileModified",
    "Renamed",
    "Moved",
    "AttributesChanged",
    "Deleted",
    "Restored",
    "Removed",
    "Shared",
    "Unshared",
]


class ZoneLog:
    """Messages of all zones, in the table zone_log."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(
        self,
        zone_id: str,
        user_id: str,
        event: Event,
        message: str,
        entry_id: str | None = None,
        path: str | None = None,
    ) -> None:
        """Write one message about a change to a zone, its members or the entry `entry_id`.

        The caller must call this method in the transaction of the change. `path` is the entry's
        path in its zone after the change.
        """
        self._database.run(
            "INSERT INTO zone_log (id, zone_id, at_us, user_id, event, entry_id, message, path)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            str(uuid.uuid4()),
            zone_id,
            now_us(),
            user_id,
            event,
            entry_id,
            message,
            path,
        )

    def messages(
        self, zone_id: str, limit: int, offset: int, since_us: int = 0
    ) -> list[dict[str, Any]]:
        """Return up to `limit` messages of a zone as JSON objects, newest first.

        Messages older than `since_us` (microseconds since the epoch) are omitted. The first
        `offset` of the other messages are skipped.
        """
        rows = self._database.all(
            "SELECT * FROM zone_log WHERE zone_id = ? AND at_us >= ?"
            " ORDER BY serial DESC LIMIT ? OFFSET ?",
            zone_id,
            since_us,
            limit,
            offset,
        )
        return [_wire(row) for row in rows]


def _wire(row: Row) -> dict[str, Any]:
    answer = {
        "id": row["id"],
        "zoneId": row["zone_id"],
        "timestamp": iso(row["at_us"]),
        "userId": row["user_id"],
        "event": row["event"],
        "message": row["message"],
    }
    if row["entry_id"] is not None:
        answer["entryId"] = row["entry_id"]
    if row["path"] is not None:
        answer["path"] = row["path"]
    return answer
