"""What can be said of a database of inodes before it is opened for use.

Must not change it, nor need its key.
"""

import contextlib
import sqlite3
from pathlib import Path

from zonedrive.cipher import Clear
from zonedrive.tree.inode import ROOT, Kind
from zonedrive.tree.store import is_whole


def is_sealed(path: Path) -> bool | None:
    """Whether the names in it are encrypted; None where there are none to be read."""
    if not path.exists():
        return None
    try:
        with contextlib.closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as database:
            row = database.execute("SELECT sealed FROM inodes WHERE ino = ?", (ROOT,)).fetchone()
    except sqlite3.Error:
        return None
    if row is None:
        return None
    return not is_whole({"ino": ROOT, "kind": Kind.ROOT, "sealed": row[0]}, Clear())
