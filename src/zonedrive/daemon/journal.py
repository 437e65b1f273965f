"""Log handler for the systemd journal, with fields that `journalctl` can filter by.

A datagram to journald's socket is a list of fields (see Journal Export Formats of systemd). This
module removes nothing from a message: the caller must leave secrets out. No field contains a file
name, because journals are often sent to other computers. On this computer, the inode number
identifies the file.

INVARIANT: a record that journald cannot receive, because journald is missing or the record is too
long for a datagram, is written to descriptor 2.
"""

import contextlib
import logging
import os
import re
import socket
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path

from zonedrive.errors import RemoteError

SOCKET = Path("/run/systemd/journal/socket")
# syslog(3)
_PRIORITIES = ((logging.CRITICAL, 2), (logging.ERROR, 3), (logging.WARNING, 4), (logging.INFO, 6))
_DEBUG = 7
_INODE = "inode %d"


def is_journal(descriptor: int = 2, environment: Mapping[str, str] = os.environ) -> bool:
    """Return True if the descriptor is the journal stream that JOURNAL_STREAM names.

    The presence of JOURNAL_STREAM alone proves nothing, because the children of a service inherit
    the variable.
    """
    try:
        found = os.fstat(descriptor)
    except OSError:
        return False
    return environment.get("JOURNAL_STREAM") == f"{found.st_dev}:{found.st_ino}"


class JournalHandler(logging.Handler):
    """Log handler that sends records to journald, and adds `fields` to every record."""

    def __init__(self, fields: Mapping[str, str], path: Path = SOCKET) -> None:
        super().__init__()
        self._fields, self._path = dict(fields), path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        # A journald that does not read must not block the file system.
        self._socket.setblocking(False)

    def emit(self, record: logging.LogRecord) -> None:
        """Send the record to journald; if that fails, write its text to descriptor 2."""
        try:
            text = self.format(record)
            fields = {"MESSAGE": text, **self._fields, **dict(fields_of(record))}
            try:
                datagram = b"".join(map(encoded, fields, fields.values()))
                self._socket.sendto(datagram, os.fspath(self._path))
            except OSError:
                with contextlib.suppress(OSError):
                    os.write(2, f"{record.levelname} {text}\n".encode("utf-8", "backslashreplace"))
        except Exception:
            self.handleError(record)

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()
        super().close()


def fields_of(record: logging.LogRecord) -> Iterator[tuple[str, str]]:
    """Yield the fields of one record as (name, value), without MESSAGE."""
    priority = next((number for level, number in _PRIORITIES if record.levelno >= level), _DEBUG)
    yield "PRIORITY", str(priority)
    yield "SYSLOG_IDENTIFIER", "zonedrive"
    yield "LOGGER", record.name
    yield "CODE_FILE", record.pathname
    yield "CODE_LINE", str(record.lineno)
    yield "CODE_FUNC", record.funcName or ""
    if (number := _inode(record)) is not None:
        yield "INODE", str(number)
    if (error := _error(record)) is not None:
        yield "ERROR", type(error).__name__
        if isinstance(error, OSError) and error.errno:
            yield "ERRNO", str(error.errno)
        if isinstance(error, RemoteError) and error.status:
            yield "HTTP_STATUS", str(error.status)
            if re.fullmatch(r"\w+", error.code):
                yield "API_ERROR", error.code


def encoded(name: str, value: str) -> bytes:
    """Return a field in the journal's format; the length precedes a value with line breaks.

    A message with line breaks therefore cannot add a field.
    """
    content = value.encode("utf-8", "backslashreplace")
    if b"\n" not in content:
        return b"%s=%s\n" % (name.encode(), content)
    return b"%s\n%s%s\n" % (name.encode(), struct.pack("<Q", len(content)), content)


def _inode(record: logging.LogRecord) -> int | None:
    """Return the inode number that a record's message contains as 'inode %d', or None."""
    before, words, _ = str(record.msg).partition(_INODE)
    if words and isinstance(record.args, tuple):
        value = record.args[before.count("%")]
        return value if isinstance(value, int) else None
    return None


def _error(record: logging.LogRecord) -> BaseException | None:
    """Return the exception of a log record, or None.

    The exception is looked for in the `extra` value "error", in `exc_info`, and in the arguments of
    the message, in this order.
    """
    raised = record.exc_info[1] if record.exc_info else None
    args = record.args if isinstance(record.args, tuple) else ()
    found = (getattr(record, "error", None), raised, *args)
    return next((each for each in found if isinstance(each, BaseException)), None)
