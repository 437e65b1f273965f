"""Log output of the daemon: to the terminal, the service manager, or a log file.

Knows nothing about the messages. Does not filter names, paths or secrets: the caller leaves secrets
out.

INVARIANT: a message is one line, and no line, including a traceback, contains control characters
for a terminal.
"""

import errno
import faulthandler
import io
import logging
import logging.handlers
import os
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from zonedrive.formatting import plain
from zonedrive.paths import private_dir

MAX_BYTES = 4 << 20
KEPT = 2

_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"

# Loggers that report every request, with its address.
_CHATTY = ("httpx", "httpcore", "pyfuse3", "keyring", "asyncio")


class _Lines(logging.Formatter):
    """Formatter with one line per message; a traceback follows on separate lines."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - of the library
        record.message = _line(record.message)
        return super().formatMessage(record)

    def formatException(self, ei: Any) -> str:  # noqa: N802 - of the library
        return "\n".join(map(_line, super().formatException(ei).split("\n")))


def _line(text: str) -> str:
    """Return `text` without control characters; bytes that are not UTF-8 stay readable."""
    return plain(text.encode("utf-8", "backslashreplace").decode())


def _is_heard(record: logging.LogRecord) -> bool:
    """Return False for the message about a reply that the kernel discarded.

    The reader was killed, or the mount has just ended.
    """
    nobody = f"fuse_reply_* failed with {os.strerror(errno.ENOENT)}"
    return nobody not in record.getMessage()


class PrivateFile(logging.handlers.RotatingFileHandler):
    """Log file with mode 0600, rotated at MAX_BYTES; it also receives descriptor 2 of C code."""

    def __init__(self, path: Path) -> None:
        private_dir(path.parent)
        super().__init__(path, maxBytes=MAX_BYTES, backupCount=KEPT, encoding="utf-8")

    def _open(self) -> io.TextIOWrapper:
        descriptor = os.open(
            self.baseFilename, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600
        )
        os.dup2(descriptor, 2)
        return os.fdopen(descriptor, "a", encoding="utf-8", errors="backslashreplace")


def to_file(path: Path, *, debug: bool = False) -> None:
    """Log to a file, for a daemon without a terminal."""
    _install(PrivateFile(path), _Lines(_FORMAT), debug)


def to_stderr(*, debug: bool = False) -> None:
    """Log to the terminal. Under a service manager the journal adds the time."""
    managed = "JOURNAL_STREAM" in os.environ
    text = "%(levelname)s %(name)s: %(message)s" if managed else _FORMAT
    _install(logging.StreamHandler(), _Lines(text), debug)


def append(path: Path, text: str) -> None:
    """Add a line to the log of a daemon that could not write it."""
    now = datetime.now().astimezone().strftime("%Y-%m-%d %H:%M:%S,%f")[:-3]
    line = f"{now} INFO zonedrive: {_line(text)}\n".encode()
    with suppress(OSError):
        private_dir(path.parent)
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.write(descriptor, line)
        finally:
            os.close(descriptor)


def _install(handler: logging.Handler, formatter: logging.Formatter, debug: bool) -> None:
    handler.setFormatter(formatter)
    root = logging.getLogger()
    for old in root.handlers[:]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(logging.DEBUG if debug else logging.INFO)
    for name in _CHATTY:
        logging.getLogger(name).setLevel(logging.WARNING)
    logging.getLogger("pyfuse3").addFilter(_is_heard)
    logging.captureWarnings(True)
    faulthandler.enable(2)  # a crash in C code writes its stack to the log
