"""The table of pins: which entries a person wants to be readable at any time.

Must not know content or what is fetched for a pin.  Few rows: one for each path that somebody
pinned, not for what lies below it.  No row holds a name.
"""

import sqlite3

import msgspec

from zonedrive.db import Database


class Pin(msgspec.Struct, frozen=True):
    """One pinned entry.

    The service's id counts first: another inode may come to stand for the entry, as when a
    program saves by renaming a new file over it.  Until there is one, the inode does.
    """

    ino: int
    zone: str = ""
    remote_id: str | None = None


def create_table(connection: sqlite3.Connection) -> None:
    """A step of the schema."""
    connection.execute(
        """
        CREATE TABLE pins (
            ino INTEGER PRIMARY KEY,  -- of what was pinned
            zone TEXT NOT NULL,       -- with remote_id: the entry it stood for
            remote_id TEXT            -- NULL as long as the service has not seen it
        )
        """
    )


class PinStore:
    """The pins, in memory and in their table."""

    def __init__(self, database: Database) -> None:
        """Load all of them."""
        self._database = database
        rows = database.execute("SELECT ino, zone, remote_id FROM pins")
        self._pins = {ino: Pin(ino, zone, remote_id) for ino, zone, remote_id in rows}

    def all(self) -> list[Pin]:
        """Every pin."""
        return list(self._pins.values())

    def put(self, pin: Pin) -> None:
        """Remember a pin.  In a transaction."""
        self._note(pin.ino)
        self._database.execute(
            "INSERT OR REPLACE INTO pins (ino, zone, remote_id) VALUES (?, ?, ?)",
            (pin.ino, pin.zone, pin.remote_id),
        )
        self._pins[pin.ino] = pin

    def drop(self, ino: int) -> None:
        """Forget a pin, if there is one.  In a transaction."""
        if ino in self._pins:
            self._note(ino)
            self._database.execute("DELETE FROM pins WHERE ino = ?", (ino,))
            del self._pins[ino]

    def _note(self, ino: int) -> None:
        """Should the transaction fail, memory is again what the table is."""
        before = self._pins.get(ino)
        if before is None:
            self._database.on_rollback(lambda: self._pins.pop(ino, None))
        else:
            self._database.on_rollback(lambda: self._pins.__setitem__(ino, before))
