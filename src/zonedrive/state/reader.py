"""State of an account, opened read-only while no daemon is running.

INVARIANT: nothing on the disk changes, whatever state a daemon left.  See `Database.read`.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

import msgspec

from zonedrive.cipher import Box
from zonedrive.db import DOCTOR, Database, is_damage
from zonedrive.errors import Damaged, StoreError
from zonedrive.state import inspect, intents, repair
from zonedrive.state.inodes import Inodes
from zonedrive.state.intents import Intent, IntentTable
from zonedrive.state.pending_requests import PendingRequests
from zonedrive.state.schema import SCHEMAS

REPAIR = "run 'zonedrive mount DIR', which repairs it; what waits is kept"


class StateReader:
    """Facts that can be read without the key."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @classmethod
    @contextmanager
    def open(cls, path: Path) -> Iterator[Self]:
        """Open the database at `path`; a missing one counts as empty.

        Raises StoreError, also from inside the block, if the database cannot be read.
        """
        if repair.pending(path):
            raise StoreError(f"{path} is damaged, and not repaired yet", remedy=REPAIR)
        try:
            database = Database.read(path, SCHEMAS)
            try:
                yield cls(database)
            finally:
                database.close()
        except (StoreError, msgspec.MsgspecError) as wrong:
            if isinstance(wrong, Damaged | msgspec.MsgspecError) or is_damage(wrong.__cause__):
                raise StoreError(f"{path} is damaged", remedy=REPAIR) from wrong
            raise
        except sqlite3.DatabaseError as wrong:  # of a later row, which `execute` does not see
            if is_damage(wrong):
                raise StoreError(f"{path} is damaged", remedy=REPAIR) from wrong
            raise StoreError(f"{path} cannot be read ({wrong})", remedy=DOCTOR) from wrong
        except OSError as wrong:
            raise StoreError(f"{path} cannot be read ({wrong.strerror})", remedy=DOCTOR) from wrong

    def require_sound(self) -> None:
        """Read the whole database. Raises Damaged for a fault."""
        if why := repair.structure(self._database.execute):
            raise Damaged(why)

    def waiting(self) -> tuple[int, int, int]:
        """Return the numbers of pending changes, of their bytes, and of changes without bytes."""
        return intents.waiting(self._database)

    def lost_files(self) -> int:
        """Count the files in lost+found."""
        return inspect.lost_files(self._database)

    def local_files(self) -> int:
        """Count the files that are never uploaded."""
        return inspect.local_files(self._database)

    def wanted_files(self) -> int:
        """Count the files of `local_files` that belong to the user."""
        return inspect.wanted_files(self._database)

    def wanted_path(self, box: Box) -> str:
        """Return the path of one file of `wanted_files`, or "" if it cannot be read."""
        return inspect.wanted_path(self._database, box)

    def is_sealed(self) -> bool | None:
        """Return True if the stored names are encrypted, or None if there are no names."""
        return inspect.is_sealed(self._database)

    def is_opened_by(self, box: Box) -> bool:
        """Return True if the box can decrypt the names, or if there are no names."""
        return inspect.is_opened_by(self._database, box)

    def stores(self, box: Box) -> "Stores":
        """Load the tables."""
        return Stores(self._database, box)


class Stores:
    """Stores of an account, with decrypted names."""

    def __init__(self, database: Database, box: Box) -> None:
        self.inodes = Inodes(database, box)
        self.intents = IntentTable(database, box)
        self.requests = PendingRequests(database, box)

    def pending(self) -> list[Intent]:
        """Return the pending changes; none of their files is open, because no daemon is running."""
        return [msgspec.structs.replace(one, held=False) for one in self.intents.pending()]
