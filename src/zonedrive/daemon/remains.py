"""What keeps an account from going on where its disk takes no writing: full, or read-only."""

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
    """What keeps everything from going on here, with what to do; "" where nothing does."""
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
    """That the folder is on a disk which takes no writing, with what to do; "" where it does."""
    if folder.exists() and os.statvfs(folder).f_flag & os.ST_RDONLY:
        return f"{folder}: {READ_ONLY}"
    return ""
