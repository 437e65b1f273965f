"""View and operations of a user who may add to a zone, but not change existing entries.

Knows nothing of the mount.
"""

import os
import stat
from pathlib import Path

from tests.posix.calls import opens, refusal


def mode(path: Path) -> int:
    """Return the permission bits."""
    return stat.S_IMODE(path.stat().st_mode)


def modes(root: Path) -> list[int]:
    """Return the modes of a file, a folder and the zone."""
    return [mode(root / "notes.txt"), mode(root / "docs"), mode(root)]


def change_what_is_there(root: Path) -> dict[str, str]:
    """Return the outcome of each kind of change of existing entries on the service."""
    notes, new = root / "notes.txt", root / "unsent.tmp~"
    new.write_bytes(b"stays here")
    return {
        "write": opens(notes, os.O_WRONLY),
        "read and write": opens(notes, os.O_RDWR),
        "append": opens(notes, os.O_WRONLY | os.O_APPEND),
        "cut at open": opens(notes, os.O_WRONLY | os.O_TRUNC),
        "truncate": refusal(os.truncate, notes, 0),
        "make it writable": refusal(os.chmod, notes, 0o600),
        "remove": refusal(os.unlink, notes),
        "remove the folder": refusal(os.rmdir, root / "docs"),
        "rename": refusal(os.rename, notes, root / "renamed"),
        "rename the folder": refusal(os.rename, root / "docs", root / "renamed"),
        "rename over it": refusal(os.rename, new, notes),
        "read": opens(notes, os.O_RDONLY),
        "set the times": refusal(os.utime, notes, (1000, 1000)),
    }


def may(path: Path, kind: int) -> bool:
    """Return the result of access(2)."""
    return os.access(path, kind)


def add(root: Path) -> None:
    """Add a file, which is written again at once, and a folder with a file in it."""
    (root / "mine.txt").write_bytes(b"from carol\n")
    with (root / "mine.txt").open("ab") as file:
        file.write(b"and more\n")
    (root / "folder").mkdir()
    (root / "folder" / "inside.txt").write_bytes(b"too\n")
