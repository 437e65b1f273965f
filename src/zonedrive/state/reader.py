"""State of an account, opened read-only while no daemon is running.

INVARIANT: nothing on the disk changes, even if the last daemon was killed. See `Database.read`.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Self

import msgspec

from zonedrive import causes
from zonedrive.cipher import Box, Clear
from zonedrive.db import DOCTOR, Database, is_damage
from zonedrive.errors import Damaged, StoreError
from zonedrive.state import repair
from zonedrive.state.inode import ROOT, Kind
from zonedrive.state.inode_table import decoded_name
from zonedrive.state.inodes import Inodes
from zonedrive.state.intents import IntentTable
from zonedrive.state.names import BY_USER
from zonedrive.state.pending_requests import PendingRequests
from zonedrive.state.schema import SCHEMAS, whole
from zonedrive.state.status import Stores

_FOLDER = int(Kind.FOLDER)
_LOST_FOUND = f"(SELECT ino FROM inodes WHERE parent = {ROOT} AND kind = {_FOLDER} AND local)"  # noqa: S608
_LOCAL = f"local AND generation > 0 AND parent != 0 AND parent NOT IN {_LOST_FOUND}"
_BY_USER = f"{_LOCAL} AND local = {BY_USER}"


class StateReader:
    """Read-only view of an account's state; most methods need no encryption key.

    Methods raise StoreError if the database cannot be read.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    @classmethod
    @contextmanager
    def open(cls, path: Path) -> Iterator[Self]:
        """Open the database at `path` for the `with` block; a missing database counts as empty.

        Raises StoreError, also from inside the block, if the database cannot be read.
        """
        if repair.pending(path):
            raise StoreError(f"{path} is damaged, and not repaired yet", remedy=repair.REPAIR)
        try:
            with closing(Database.read(path, SCHEMAS)) as database:
                yield cls(database)
        except (StoreError, msgspec.MsgspecError) as wrong:
            if isinstance(wrong, Damaged | msgspec.MsgspecError) or is_damage(wrong.__cause__):
                raise StoreError(f"{path} is damaged", remedy=repair.REPAIR) from wrong
            raise
        except sqlite3.DatabaseError as wrong:  # from reading a later row, outside `execute`
            if is_damage(wrong):
                raise StoreError(f"{path} is damaged", remedy=repair.REPAIR) from wrong
            raise StoreError(f"{path} cannot be read ({wrong})", remedy=DOCTOR) from wrong
        except OSError as wrong:
            raise StoreError(f"{path} cannot be read ({wrong.strerror})", remedy=DOCTOR) from wrong

    def require_sound(self) -> None:
        """Check the structure of the whole database. Raises Damaged if there is a fault."""
        if why := repair.structure(self._database.execute):
            raise Damaged(why)

    def waiting(self) -> tuple[int, int, int]:
        """Return the numbers of unsent changes, of bytes to send, and of changes without content.

        Parked changes (see `Intent.parked`) do not count.
        """
        sums = (
            "SELECT count(*), coalesce(sum(CASE WHEN generation THEN size END), 0),"
            " count(*) - count(nullif(generation, 0)) FROM intents WHERE NOT parked"
        )
        changes, size, without_content = map(int, self._database.execute(sums).fetchone())
        return changes, size, without_content

    def failures(self) -> dict[str, int]:
        """Return a map from cause of failure (name in lower case) to number of failed changes."""
        rows = dict(
            self._database.execute(
                "SELECT failed, count(*) FROM intents WHERE NOT parked GROUP BY failed"
            ).fetchall()
        )
        return {cause.name.lower(): int(rows.get(int(cause), 0)) for cause in causes.PHRASES}

    def contents(self) -> list[tuple[int, int]]:
        """Return (ino, generation) of each file content that still has to be uploaded."""
        select = "SELECT ino, generation FROM intents WHERE generation AND NOT parked"
        return [(int(ino), int(generation)) for ino, generation in self._database.execute(select)]

    def conflicts(self) -> int:
        """Return the number of existing conflict copies."""
        return self._count("parent != 0 AND ino IN (SELECT ino FROM conflicts)")

    def lost_files(self) -> int:
        """Return the number of files in lost+found, which are only on this machine."""
        return self._count(f"parent IN {_LOST_FOUND}")

    def named_bytes(self) -> set[tuple[int, int]]:
        """Return (ino, generation) of each spool file that a database row refers to."""
        select = (
            "SELECT ino, generation FROM inodes WHERE generation > 0"
            " UNION SELECT ino, generation FROM intents WHERE generation > 0"
            " UNION SELECT bytes_ino, generation FROM doubts WHERE generation > 0"
        )
        rows = self._database.execute(select)
        return {(ino, each) for ino, each in rows if isinstance(ino, int) and isinstance(each, int)}

    def local_files(self) -> int:
        """Return the number of local-only files that have bytes, except files in lost+found."""
        return self._count(_LOCAL)

    def files_by_user(self) -> int:
        """Return the number of the user's own files among the files that `local_files` counts.

        Temporary files of programs, which match a default pattern of `local_only`, do not count.
        """
        return self._count(_BY_USER)

    def path_by_user(self, box: Box) -> str:
        """Return the path of one file counted by `files_by_user`.

        Return "" if there is no such file or `box` cannot decrypt the path.
        """
        parts: dict[int, str] = {}
        select = "SELECT ino, parent, sealed FROM inodes WHERE"
        with suppress(Damaged, msgspec.MsgspecError):
            row = self._database.execute(f"{select} {_BY_USER} ORDER BY ino").fetchone()
            while row is not None and row[0] != ROOT:
                ino, parent, sealed = row
                if ino in parts:
                    return ""  # damaged rows form a cycle
                parts[ino] = decoded_name(box, ino, bytes(sealed))
                row = self._database.execute(f"{select} ino = ?", (parent,)).fetchone()
            return "/".join(reversed(parts.values()))
        return ""

    def is_sealed(self) -> bool | None:
        """Return True if the stored names are encrypted, False if not, None if there are none."""
        rows = self._first()
        return not _opens(rows, Clear()) if rows else None

    def is_opened_by(self, box: Box) -> bool:
        """Return True if `box` can decrypt any of the first 20 rows, or if there are no rows."""
        rows = self._first()
        return not rows or _opens(rows, box)

    def _count(self, condition: str) -> int:
        sums = f"SELECT count(*) FROM inodes WHERE {condition}"  # noqa: S608 - constants only
        return int(self._database.execute(sums).fetchone()[0])

    def _first(self) -> list[dict[str, object]]:
        """Return the rows of the first 20 inodes; some may be damaged."""
        cursor = self._database.execute("SELECT * FROM inodes ORDER BY ino LIMIT 20")
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor]

    def stores(self, box: Box) -> Stores:
        """Load and return the account's stores; `box` decrypts the names in them."""
        database = self._database
        try:
            return Stores(
                Inodes(database, box), IntentTable(database, box), PendingRequests(database, box)
            )
        except (TypeError, ValueError) as wrong:
            raise Damaged("stored bytes fail their check") from wrong


def _opens(rows: list[dict[str, object]], box: Box) -> bool:
    is_whole = whole(box)
    return any(is_whole("inodes", row) for row in rows)
