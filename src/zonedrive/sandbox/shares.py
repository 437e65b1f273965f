"""Shares, whose keys let an external party read one file or folder.

This module does not depend on HTTP. Only the SHA-256 hash of a key is stored. INVARIANT: the holder
of a key has at most the current permissions of the user who created the share; a key gives no
access while the shared entry is deleted.
"""

import hashlib
import secrets

from zonedrive.sandbox.clock import now_us
from zonedrive.sandbox.database import Database, Row
from zonedrive.sandbox.sessions import Scope

LIFE_MS = 300_000


class Shares:
    """Table of shares."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def make(self, zone_id: str, entry_id: str, user_id: str) -> str:
        """Create a share of an entry; return its key, of which only a hash is stored."""
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
        """Return the share with the key `key`; None if no such share exists.

        A share whose entry is in the trash is not returned.
        """
        return self._database.one(
            "SELECT shares.* FROM shares JOIN entries ON entries.id = entry_id"
            " WHERE secret = ? AND trash_id IS NULL",
            _hash(key),
        )

    def of_entry(self, entry_id: str) -> list[Row]:
        """Return the shares of an entry."""
        return self._database.all("SELECT * FROM shares WHERE entry_id = ?", entry_id)

    def end(self, entry_id: str) -> None:
        """End all shares of an entry."""
        self._database.run("DELETE FROM shares WHERE entry_id = ?", entry_id)


def scope_of(share: Row) -> Scope:
    """Return the scope of the sessions that a share's key can start.

    The scope allows only reading the shared entry and everything below it.
    """
    return Scope(
        name="share",
        permissions={"files": {"list": True, "get": True, "access": True}},
        limitations={"zones": [share["zone_id"]], "entries": [share["entry_id"]]},
    )


def _hash(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()
