"""Mounts of zonedrive on this machine, and the sockets of their daemons."""

import os
import re
import socket
import struct
from pathlib import Path

MOUNTINFO = Path("/proc/self/mountinfo")
FSTYPE = "fuse.zonedrive"
ESCAPE = re.compile(rb"\\([0-7]{3})")


def mount_points(table: bytes) -> list[str]:
    """Return zonedrive's mount points in `table`, the content of /proc/self/mountinfo."""
    found = []
    for line in table.split(b"\n"):  # a mount point may contain other control characters
        place, _, rest = line.partition(b" - ")
        fields = place.split(b" ")
        if len(fields) > 4 and rest.split(b" ")[0] == FSTYPE.encode():
            raw = ESCAPE.sub(lambda match: bytes([int(match[1], 8)]), fields[4])
            found.append(os.fsdecode(raw))
    return found


def sockets() -> list[Path]:
    """Return the paths of this user's control sockets, including sockets of dead daemons."""
    given = os.environ.get("XDG_RUNTIME_DIR", "")
    try:
        return sorted(Path(given, "zonedrive").glob("*.sock")) if given.startswith("/") else []
    except OSError:
        return []


def connect(path: Path) -> socket.socket:
    """Connect to a daemon's socket `path` without blocking, and return the non-blocking socket.

    Raises OSError if the connection is not accepted at once, or the owner of the daemon is neither
    this user nor root.
    """
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        connection.setblocking(False)
        connection.connect(os.fspath(path))
        peer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        if struct.unpack("3i", peer)[1] not in (os.getuid(), 0):
            raise PermissionError(f"{path} belongs to another user")
    except BaseException:
        connection.close()
        raise
    return connection
