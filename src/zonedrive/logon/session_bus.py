"""D-Bus session bus, used only if it belongs to this user.

This module sends and receives no messages on the bus.

`su` and `sudo -E` leave the address of another user's bus in the environment. Messages on that bus
(secrets, file names) would go to the other user.

INVARIANT: an address is returned only if the process that listens there runs as this user, and no
other user can replace the socket. An abstract socket (without a file) can be replaced after its
owner has ended, so each use checks the address again.
"""

import contextlib
import os
import re
import socket
import stat
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from jeepney.bus import parse_addresses

from zonedrive.paths import given_runtime_dir, is_irreplaceable
from zonedrive.translation import marked

VARIABLE: Final = "DBUS_SESSION_BUS_ADDRESS"
CREDENTIALS: Final = struct.Struct("=iII")  # process, user, group: unix(7), SO_PEERCRED
ODD: Final = re.compile(r"[\x00-)+,:-@\[\]^`{-\x7f]")
"""ASCII characters that the D-Bus specification requires to be percent-encoded in an address."""
FOREIGN: Final = marked("the session bus here is another user's")


def session_bus() -> str | None:
    """Return the address of a session bus that verifiably belongs to this user, or None."""
    for name in _names():
        if name.startswith("\0"):
            if _owner(name) == os.geteuid():
                return f"unix:abstract={_written(name[1:])}"
        elif (path := _own_socket(name)) is not None:
            return f"unix:path={_written(str(path))}"
    return None


def is_foreign() -> bool:
    """Return True if the environment names a session bus of another user, but no usable one."""
    owners = {_owner(name) for name in _names()} - {None, os.geteuid()}
    return bool(owners) and session_bus() is None


def own_environment() -> dict[str, str]:
    """Return the environment for a child process, without references to another user's session."""
    found = dict(os.environ)
    if is_foreign():
        found.pop(VARIABLE, None)
    with contextlib.suppress(OSError, KeyError):
        if Path(found["XDG_RUNTIME_DIR"]).stat().st_uid != os.geteuid():
            del found["XDG_RUNTIME_DIR"]  # libraries look for a bus there
    return found


def _names() -> Iterator[str]:
    """Yield the names of the local sockets where the session bus may listen.

    The name of an abstract socket begins with NUL. Addresses of other transports are left out,
    because the owner of such a bus cannot be determined.
    """
    runtime = given_runtime_dir()
    given = os.environ.get(VARIABLE)
    if not given:
        if runtime is not None:
            yield str(runtime / "bus")
        return
    try:
        addresses = list(parse_addresses(given))
    except ValueError:
        return
    for transport, fields in addresses:
        if transport != "unix":
            continue
        if "path" in fields:
            yield fields["path"]
        elif "abstract" in fields:
            yield f"\0{fields['abstract']}"
        elif "runtime" in fields and runtime is not None:
            yield str(runtime / "bus")


def _own_socket(path: str) -> Path | None:
    """Return the path of the socket at `path`, with links resolved.

    Return None if there is no socket at `path`, or if another user could have created it.
    """
    try:
        real = Path(path).resolve()
        found = real.stat()
    except (OSError, RuntimeError, ValueError):  # links in a cycle, a NUL
        return None
    ours = stat.S_ISSOCK(found.st_mode) and found.st_uid == os.geteuid()
    return real if ours and is_irreplaceable(real) and _owner(path) == os.geteuid() else None


def _owner(name: str) -> int | None:
    """Return the user id of the process that listens on the socket `name`, or None if unknown."""
    with socket.socket(socket.AF_UNIX) as bus:
        bus.setblocking(False)  # do not wait for a bus that accepts no connections
        try:
            bus.connect(name)
            answer = bus.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
        except (OSError, ValueError):
            return None
    return int(CREDENTIALS.unpack(answer)[1])


def _written(name: str) -> str:
    return ODD.sub(lambda found: f"%{ord(found[0]):02x}", name)
