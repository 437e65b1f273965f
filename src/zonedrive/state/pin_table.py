"""Table of pins: entries that the user wants to read offline.

The table has one row for each pinned file or folder, and no rows for the entries below a pinned
folder. No row contains a name. This module does not depend on content or downloads.
"""

import sqlite3
from collections.abc import Iterable

import msgspec

from zonedrive.db import Database


class Pin(msgspec.Struct, frozen=True):
    """Pinned file or folder.

    The zone and the remote id identify the entry if they are known, because another inode may later
    represent the entry. Otherwise the inode number identifies the entry.
    """

    ino: int
    zone: str = ""
    remote_id: str | None = None

    @property
    def is_former(self) -> bool:
        """True if the pin's inode number now belongs to another pin; this pin's one is negative."""
        return self.ino < 0


def create_table(connection: sqlite3.Connection) -> None:
    """Create the table `pins` of the fourth schema."""
    connection.execute(
        """
        CREATE TABLE pins (
            ino INTEGER PRIMARY KEY,  -- inode that is pinned
            zone TEXT NOT NULL,       -- with `remote_id`: its remote entry
            remote_id TEXT            -- NULL: no remote entry yet
        )
        """
    )


class PinStore:
    """Pins, held in memory and in a SQLite table."""

    def __init__(self, database: Database) -> None:
        """Load all pins."""
        self._database = database
        rows = database.execute("SELECT ino, zone, remote_id FROM pins")
        self._pins = {ino: Pin(ino, zone, remote_id) for ino, zone, remote_id in rows}

    def all(self) -> list[Pin]:
        """Return all pins."""
        return list(self._pins.values())

    def get(self, ino: int) -> Pin | None:
        """Return the pin with this inode number, or None."""
        return self._pins.get(ino)

    def entries(self) -> set[tuple[str, str | None]]:
        """Return the zones and remote ids of the pinned entries whose remote id is known."""
        return {(pin.zone, pin.remote_id) for pin in self.all() if pin.remote_id}

    def put(self, *pins: Pin) -> None:
        """Store pins; each replaces the pin with the same inode number, if there is one."""
        with self._database.transaction():
            for pin in pins:
                self._database.restore_on_rollback(self._pins, pin.ino)
                self._database.execute(
                    "INSERT OR REPLACE INTO pins (ino, zone, remote_id) VALUES (?, ?, ?)",
                    (pin.ino, pin.zone, pin.remote_id),
                )
                self._pins[pin.ino] = pin

    def replace_all(self, pins: dict[int, Pin]) -> None:
        """Store `pins`, given by inode number, and delete all other pins, in one transaction."""
        if pins == self._pins:
            return
        with self._database.transaction():
            self.drop(self._pins.keys() - pins.keys())
            self.put(*(pin for ino, pin in pins.items() if self._pins.get(ino) != pin))

    def drop(self, inos: Iterable[int]) -> None:
        """Delete the pins with the given inode numbers, all of which must exist."""
        with self._database.transaction():
            for ino in inos:
                self._database.restore_on_rollback(self._pins, ino)
                self._database.execute("DELETE FROM pins WHERE ino = ?", (ino,))
                del self._pins[ino]
