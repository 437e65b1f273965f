"""Shares: keys that let somebody outside read one file or folder.

Must not know HTTP.  Only SHA-256 of a key is kept.  INVARIANT: whoever comes with a key may do no
more than the user who shared may still do; a share ends with its entry.
"""

import hashlib
import secrets

from zonedrive.sandbox.clock import now_us
from zonedrive.sandbox.database import Database, Row
from zonedrive.sandbox.sessions import Scope

LIFE_MS = 300_000


class Shares:
    """The shares table."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def make(self, zone_id: str, entry_id: str, user_id: str) -> str:
        """Share an entry; returns the key, which nothing else keeps."""
        key = secrets.token_urlsafe(24)
        self._database.run(
            "INSERT INTO shares VALUES (?, ?, ?, ?, ?)",
            _hash(key),
            zone_id,
            entry_id,
            user_id,
            now_us(),
        )
        return key

    def find(self, key: str) -> Row | None:
        """The share of a present entry with that key."""
        return self._database.one(
            "SELECT shares.* FROM shares JOIN entries ON entries.id = entry_id"
            " WHERE secret = ? AND trash_id IS NULL",
            _hash(key),
        )


def scope_of(share: Row) -> Scope:
    """What a holder of the key may do: read what was shared, in the name of who shared it."""
    return Scope(
        name="share",
        permissions={"files": {"list": True, "get": True, "access": True}},
        limitations={"zones": [share["zone_id"]], "entries": [share["entry_id"]]},
    )


def _hash(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()
