"""What can be said of a database of inodes before it is opened for use.

Must not change it, nor need its key.
"""

import contextlib
import sqlite3
from pathlib import Path

import msgspec

from zonedrive.cipher import Box, Clear
from zonedrive.db import at_rest
from zonedrive.errors import Damaged, StoreError
from zonedrive.tree.inode import ROOT, Kind
from zonedrive.tree.names import WANTED
from zonedrive.tree.store import Name, is_whole

_FOLDER = int(Kind.FOLDER)
_LOST_FOUND = f"(SELECT ino FROM inodes WHERE parent = {ROOT} AND kind = {_FOLDER} AND local)"  # noqa: S608
_LOCAL = f"local AND generation > 0 AND parent != 0 AND parent NOT IN {_LOST_FOUND}"
_WANTED = f"{_LOCAL} AND local = {WANTED}"


def is_sealed(path: Path) -> bool | None:
    """Whether the names in it are encrypted; None where there are none to be read."""
    with contextlib.suppress(sqlite3.Error, OSError):
        if (first := _first(path)) is not None:
            return not _opens(first, Clear())
    return None


def may_be_sealed(path: Path) -> bool:
    """Whether a key may be needed to read it: also where nobody can tell, as it is damaged."""
    try:
        first = _first(path)
    except FileNotFoundError:
        return False
    except (sqlite3.Error, OSError):
        return True
    return first is not None and not _opens(first, Clear())


def is_opened_by(path: Path, box: Box) -> bool:
    """Whether that box fits; true where there is nothing to try it on."""
    with contextlib.suppress(sqlite3.Error, OSError):
        first = _first(path)
        return first is None or _opens(first, box)
    return True


def lost_files(path: Path) -> int:
    """How many files are in the one folder of the root that is no zone, lost+found.

    Raises StoreError.
    """
    return _count(path, f"parent IN {_LOST_FOUND}")


def local_files(path: Path) -> int:
    """How many others never leave this machine, and have bytes here: names of `local_only`.

    Raises StoreError.
    """
    return _count(path, _LOCAL)


def wanted_files(path: Path) -> int:
    """How many of these a person means to have, see `names.stays`.  Raises StoreError."""
    return _count(path, _WANTED)


def wanted_path(path: Path, box: Box) -> str:
    """Where one of those is, below the mount; "" where names cannot be read with that box."""
    parts: dict[int, str] = {}
    wanted = f"SELECT ino, parent, sealed FROM inodes WHERE {_WANTED} ORDER BY ino"  # noqa: S608
    with contextlib.suppress(sqlite3.Error, OSError, Damaged, msgspec.MsgspecError):
        with at_rest(path) as database:
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


def _count(path: Path, condition: str) -> int:
    try:
        with at_rest(path) as database:
            if not database.execute("PRAGMA table_info(inodes)").fetchall():
                return 0
            sums = f"SELECT count(*) FROM inodes WHERE {condition}"  # noqa: S608 - of ours
            return int(database.execute(sums).fetchone()[0])
    except FileNotFoundError:
        return 0
    except (sqlite3.Error, OSError) as wrong:
        raise StoreError(
            f"{path} cannot be read ({wrong})", remedy="run 'zonedrive doctor'"
        ) from wrong


def _first(path: Path) -> tuple[int, bytes] | None:
    """Number and names of the first inode, the root; None where the database has none yet.

    Raises OSError or sqlite3.Error where it cannot be read.
    """
    with at_rest(path) as database:
        if not database.execute("PRAGMA table_info(inodes)").fetchall():
            return None
        row = database.execute("SELECT ino, sealed FROM inodes ORDER BY ino").fetchone()
    return None if row is None else (int(row[0]), bytes(row[1]))


def _opens(row: tuple[int, bytes], box: Box) -> bool:
    return is_whole({"ino": row[0], "kind": Kind.ROOT, "sealed": row[1]}, box)
