"""The lines on the control socket, as both sides read and write them.

Must not know any command.  One JSON object a line.  A request has a "command"; an answer is any
number of progress lines and then one with `"done": true`, or with "error" and "kind".

Not msgspec: a path of a Linux program may hold bytes that are no UTF-8, which the standard
library's JSON carries as lone surrogates and msgspec refuses.
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
from typing import Any, Protocol

from zonedrive import errors
from zonedrive.errors import ZonedriveError

Message = dict[str, Any]

PULSE = "pulse"
"""The command that asks for a sign of life.  Whatever is answered is one, also by a version that
does not know it."""

MAX_LINE = 1 << 20
"""Bytes in a request.  Only a program that is not ours sends more."""


def encode(message: Mapping[str, object]) -> bytes:
    """One line."""
    return json.dumps(message, separators=(",", ":")).encode("ascii") + b"\n"


def decode(line: bytes) -> Message:
    """The object in a line.  Raises ZonedriveError where there is none."""
    try:
        message = json.loads(line)
    except (ValueError, RecursionError) as wrong:
        raise ZonedriveError("the request is not a line of JSON") from wrong
    if not isinstance(message, dict):
        raise ZonedriveError("the request is not an object")
    return message


def refusal(error: Exception) -> Message:
    """The answer that says what went wrong; `raised` turns it back."""
    if isinstance(error, ZonedriveError):
        return {
            "error": error.message,
            "remedy": error.remedy,
            "kind": _public_kind(type(error)).__name__,
        }
    if isinstance(error, OSError) and error.strerror:
        said = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
        return {"error": said, "remedy": _remedy(error), "kind": "ZonedriveError"}
    said = f"something unforeseen happened ({type(error).__name__})"
    return {"error": said, "remedy": "see the log", "kind": "ZonedriveError"}


def _remedy(error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "make room on that disk; what waits to be uploaded is kept"
    if error.errno == errno.EROFS:
        return "see 'zonedrive doctor' for what to do about a disk that became read-only"
    return ""


def _public_kind(kind: type[ZonedriveError]) -> type[ZonedriveError]:
    """The nearest type that the other side knows."""
    known = vars(errors).values()
    return next((each for each in kind.__mro__ if each in known), ZonedriveError)


def raised(message: Message) -> ZonedriveError:
    """The exception that a line with "error" stands for."""
    kind = getattr(errors, str(message.get("kind")), ZonedriveError)
    if not (isinstance(kind, type) and issubclass(kind, ZonedriveError)):
        kind = ZonedriveError
    return kind(str(message["error"]), remedy=str(message.get("remedy", "")))


@contextmanager
def address(path: Path) -> Iterator[str]:
    """A name for the socket at `path` that is short enough for bind(2) and connect(2).

    Those take 107 bytes at most, and folders may be nested deeper than that.
    """
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


class Stranger(ZonedriveError):
    """Somebody else's program is where our daemon should be; nothing was said to it."""

    def __init__(self, path: Path, uid: int) -> None:
        try:
            name = pwd.getpwuid(uid).pw_name
        except KeyError:
            name = str(uid)
        super().__init__(
            f"{path} is a socket of user {name}, not of yours",
            remedy="set XDG_RUNTIME_DIR to a folder of your own",
        )


class Connection(Protocol):
    """A socket, of the standard library or of trio."""

    def getsockopt(self, level: int, name: int, size: int, /) -> bytes:
        """See getsockopt(2)."""


def peer(connection: Connection) -> int:
    """The user of the process at the other end (unix(7), SO_PEERCRED).  Raises OSError."""
    return _credentials(connection)[1]


def process_of(connection: Connection) -> int:
    """The process at the other end; 0 where it is in a container that we cannot see into."""
    return _credentials(connection)[0]


def _credentials(connection: Connection) -> tuple[int, int]:
    found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    pid, uid, _ = struct.unpack("3i", found)
    return int(pid), int(uid)


def is_trusted(uid: int) -> bool:
    """Whether to speak with processes of this user: the same one, or root."""
    return uid in (os.getuid(), 0)


def connect(path: Path, seconds: float | None) -> socket.socket:
    """A connection to the daemon at `path`.

    Raises OSError where none listens, Stranger where another user does.
    """
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        connection.settimeout(seconds)
        with address(path) as name:
            connection.connect(name)
        if not is_trusted(uid := peer(connection)):
            raise Stranger(path, uid)
    except BaseException:
        connection.close()
        raise
    return connection
