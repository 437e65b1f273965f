"""Detection of a disk that blocks an account's changes: full, or read-only."""

import os
from pathlib import Path

from zonedrive import paths as places
from zonedrive.paths import AccountPaths

READ_ONLY = (
    "its disk is read-only: one that became so by itself has an error, so look at 'dmesg', have it"
    " checked, and make it writable again; what waits is kept"
)
FULL = "its disk is full: make room there; what waits is kept"


def hindrance(paths: AccountPaths) -> str:
    """Return the problem of the state folder's disk and its remedy, "" if there is none."""
    if said := read_only(paths.state):
        return said
    if not paths.state.exists():
        return ""
    try:
        places.require_room(paths.state)
    except OSError as wrong:
        return f"{paths.state}: {FULL}" if wrong.errno in places.NO_ROOM else ""
    return ""


def read_only(folder: Path) -> str:
    """Return the problem and its remedy if the folder's disk is read-only, else ""."""
    if folder.exists() and os.statvfs(folder).f_flag & os.ST_RDONLY:
        return f"{folder}: {READ_ONLY}"
    return ""
