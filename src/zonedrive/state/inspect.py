"""Queries on the inodes of a database; most of them need no key.

Changes nothing.
"""

from contextlib import suppress

import msgspec

from zonedrive.cipher import Box, Clear
from zonedrive.db import Database
from zonedrive.errors import Damaged
from zonedrive.state.inode import ROOT, Kind
from zonedrive.state.inode_table import Name, is_whole
from zonedrive.state.names import WANTED

_FOLDER = int(Kind.FOLDER)
_LOST_FOUND = f"(SELECT ino FROM inodes WHERE parent = {ROOT} AND kind = {_FOLDER} AND local)"  # noqa: S608
_LOCAL = f"local AND generation > 0 AND parent != 0 AND parent NOT IN {_LOST_FOUND}"
_WANTED = f"{_LOCAL} AND local = {WANTED}"
_TRIED = 20  # rows, as some of them may be damaged


def is_sealed(database: Database) -> bool | None:
    """Return True if the names are encrypted, None if there are no names.  Raises StoreError."""
    rows = _first(database)
    return not _opens(rows, Clear()) if rows else None


def is_opened_by(database: Database, box: Box) -> bool:
    """Return True if the box decrypts a row, or if there are no rows.  Raises StoreError."""
    rows = _first(database)
    return not rows or _opens(rows, box)


def lost_files(database: Database) -> int:
    """Return the number of files in lost+found."""
    return _count(database, f"parent IN {_LOST_FOUND}")


def local_files(database: Database) -> int:
    """Return the number of local-only files with bytes outside lost+found."""
    return _count(database, _LOCAL)


def wanted_files(database: Database) -> int:
    """Return the number of local-only files that the user wants; see `names.stays`."""
    return _count(database, _WANTED)


def wanted_path(database: Database, box: Box) -> str:
    """Return the path of one wanted local-only file, or "" if the box cannot decrypt it."""
    parts: dict[int, str] = {}
    wanted = f"SELECT ino, parent, sealed FROM inodes WHERE {_WANTED} ORDER BY ino"  # noqa: S608
    with suppress(Damaged, msgspec.MsgspecError):
        row = database.execute(wanted).fetchone()
        while row is not None and row[0] != ROOT:
            ino, parent, sealed = row
            if ino in parts:
                return ""  # a damaged row leads in a circle
            named = box.open(bytes(sealed), b"inode %d" % ino)
            parts[ino] = msgspec.msgpack.decode(named, type=Name).name
            above = "SELECT ino, parent, sealed FROM inodes WHERE ino = ?"
            row = database.execute(above, (parent,)).fetchone()
        return "/".join(reversed(parts.values()))
    return ""


def _count(database: Database, condition: str) -> int:
    sums = f"SELECT count(*) FROM inodes WHERE {condition}"  # noqa: S608 - of ours
    return int(database.execute(sums).fetchone()[0])


def _first(database: Database) -> list[tuple[int, bytes]]:
    """Return number and encrypted names of the first inodes."""
    some = f"SELECT ino, sealed FROM inodes ORDER BY ino LIMIT {_TRIED}"  # noqa: S608 - of ours
    return [(int(ino), bytes(sealed)) for ino, sealed in database.execute(some)]


def _opens(rows: list[tuple[int, bytes]], box: Box) -> bool:
    return any(is_whole({"ino": ino, "kind": Kind.ROOT, "sealed": sealed}, box)
               for ino, sealed in rows)  # fmt: skip
