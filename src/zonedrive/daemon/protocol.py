"""Line format of the control socket, used by the daemon and its clients.

This module defines no command except PULSE. Each line is one JSON object. A request has a
"command". An answer is any number of progress lines and one last line with `"done": true`. If the
command failed, the last line also has "error", "remedy" and "kind".

This module uses the JSON encoder of the standard library, because a path on Linux may contain bytes
that are not UTF-8. Python represents these bytes as lone surrogates, which msgspec rejects.
"""

import errno
import json
import os
import pwd
import socket
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zonedrive import errors
from zonedrive.errors import ConfigError, ZonedriveError
from zonedrive.paths import NO_ROOM
from zonedrive.translation import marked

if TYPE_CHECKING:
    from trio.socket import SocketType

Message = dict[str, Any]

PULSE = "pulse"
"""Command that tests whether a daemon responds.

Any answer counts, even the error of a daemon version that does not know the command.
"""

MAX_LINE = 32 << 20
"""Maximum size of a request in bytes.

The paths that a shell passes to a command have up to 2 MiB. In a request, they are absolute, and a
letter such as a Cyrillic one takes six bytes.
"""

LONGEST_ADDRESS = 107  # bytes; see unix(7)

_REMEDIES = {
    **dict.fromkeys(NO_ROOM, marked("make room on that disk; pending changes are kept")),
    **errors.LIMITS,
    errno.EROFS: "see 'zonedrive doctor' for what to do about a disk that became read-only",
}


def encode(message: Mapping[str, object]) -> bytes:
    return json.dumps(message, separators=(",", ":")).encode("ascii") + b"\n"


def decode(line: bytes) -> Message:
    """Return the JSON object in a line. Raises ZonedriveError if the line has no JSON object."""
    try:
        message = json.loads(line)
    except (ValueError, RecursionError) as wrong:
        raise ZonedriveError("the request is not a line of JSON") from wrong
    if not isinstance(message, dict):
        raise ZonedriveError("the request is not an object")
    return message


UNKNOWN = "there is no command {!r}"
"""Error text of a daemon for an unknown command, for example a command of a later version.

The text must not change: the command line recognizes an older daemon by this text, which version
0.1.0 also sends.
"""


def refusal(error: Exception) -> Message:
    """Return the answer that reports `error` to the client; `raised` is the inverse function."""
    if isinstance(error, ZonedriveError):
        # Only the classes of `errors` are known to all clients.
        known = vars(errors).values()
        kind = next((each for each in type(error).__mro__ if each in known), ZonedriveError)
        return {"error": error.message, "remedy": error.remedy, "kind": kind.__name__}
    remedy = errors.REPORT
    said = marked(f"an internal error in zonedrive ({type(error).__name__})")
    if isinstance(error, OSError) and error.strerror:
        said = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
        remedy = _REMEDIES.get(error.errno or 0, "")
    return {"error": said, "remedy": remedy, "kind": "ZonedriveError"}


def raised(message: Message) -> ZonedriveError:
    """Return the exception that is described by `message`, an answer that contains "error"."""
    kind = getattr(errors, str(message.get("kind")), ZonedriveError)
    if not (isinstance(kind, type) and issubclass(kind, ZonedriveError)):
        kind = ZonedriveError
    return kind(str(message["error"]), remedy=str(message.get("remedy", "")))


@contextmanager
def address(path: Path) -> Iterator[str]:
    """Yield a short name for the socket at `path`, to use with bind(2) and connect(2).

    These calls accept at most LONGEST_ADDRESS bytes, and paths may be longer. The name is valid
    while the `with` block runs. Raises ConfigError if even the short name is too long.
    """
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        name = f"/proc/self/fd/{folder}/{path.name}"
        if len(os.fsencode(name)) > LONGEST_ADDRESS:
            raise ConfigError(
                f"the name of the socket {path} is too long",
                remedy="log off, and log on with another --account",
            )
        yield name
    finally:
        os.close(folder)


class ForeignSocketError(ZonedriveError):
    """Error raised if a program of another user is listening on the daemon's socket.

    Nothing was sent to that program.
    """

    def __init__(self, path: Path, uid: int) -> None:
        try:
            name = pwd.getpwuid(uid).pw_name
        except KeyError:
            name = str(uid)
        super().__init__(
            f"{path} is a socket of user {name}, not of yours",
            remedy="set XDG_RUNTIME_DIR to a folder of your own",
        )


def peer(connection: "socket.socket | SocketType") -> tuple[int, int]:
    """Return the pid and the user id of the process at the other end of a connection.

    The pid is 0 if the process is in a pid namespace that this process cannot see. Raises OSError.
    See SO_PEERCRED in unix(7).
    """
    found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    pid, uid, _ = struct.unpack("3i", found)
    return int(pid), int(uid)


def is_trusted(uid: int) -> bool:
    """Return True if `uid` is this process's user or root."""
    return uid in (os.getuid(), 0)


def connect(path: Path, seconds: float) -> socket.socket:
    """Connect to the daemon at `path` without waiting, and return the connection.

    `seconds` is the timeout for sending and receiving on the connection. Raises OSError if no
    process is listening at `path`, BlockingIOError if the listen queue is full, ForeignSocketError
    if the listening process belongs to another user, and ConfigError if the socket's name is too
    long (see `address`).
    """
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        connection.settimeout(seconds)
        with address(path) as name:
            connection.connect(name)
        if not is_trusted(uid := peer(connection)[1]):
            raise ForeignSocketError(path, uid)
    except BaseException:
        connection.close()
        raise
    return connection
