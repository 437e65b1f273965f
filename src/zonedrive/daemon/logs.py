"""Log output of the daemon to the terminal, the journal, or a log file.

This module does not remove names, paths or secrets from a message: the caller must leave secrets
out. The anonymized log is always a file. It has the same messages, but "…" replaces each part that
could be a name. `doctor --report` copies the anonymized log.

INVARIANT: a message is one line. No line contains terminal control characters; this includes the
lines of a traceback.
INVARIANT: the anonymized log contains only constant texts of the source code, numbers, times, the
words in KNOWN, types of errors, and the system's texts for errnos. Log calls therefore have a
constant format string, and pass all variable parts as arguments.
"""

import errno
import faulthandler
import io
import logging
import logging.handlers
import os
import select
import stat
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, TextIO

from zonedrive.daemon import journal
from zonedrive.formatting import plain
from zonedrive.paths import private_dir

MAX_BYTES = 4 << 20
ANONYMOUS_BYTES = 256 << 10
KEPT = 2
ACCEPT_SECONDS = 60.0  # minimum interval between two records about a failed accept(2)
HIDDEN = "…"
# Values that identify no person and may therefore appear in the anonymized log.
KNOWN = frozenset({"online", "offline", "logon-required", "token", "session"})
_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
# Loggers that report every request with its URL.
_CHATTY = ("httpx", "httpcore", "pyfuse3", "keyring", "asyncio")


class _Lines(logging.Formatter):
    """Formatter with one line per message; a traceback follows on separate lines."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - of the library
        record.message = _line(record.message)
        return super().formatMessage(record)

    def formatException(self, ei: Any) -> str:  # noqa: N802 - of the library
        return "\n".join(map(_line, super().formatException(ei).split("\n")))


class _Anonymous(logging.Formatter):
    """Formatter that hides all parts of a message that could be names."""

    def format(self, record: logging.LogRecord) -> str:
        text = HIDDEN
        if record.name.startswith("zonedrive."):
            args = record.args if isinstance(record.args, tuple) else (record.args,)
            text = str(record.msg) % tuple(map(_anonymous, args)) if record.args else record.msg
        lines = [f"{self.formatTime(record)} {record.levelname} {record.name}: {text}"]
        if record.exc_info and record.exc_info[1]:
            lines += _trace(record.exc_info[1])
        return "\n".join(lines)


def _anonymous(value: object) -> object:
    if isinstance(value, OSError):
        return f"{type(value).__name__} ({os.strerror(value.errno or 0)})"
    if isinstance(value, BaseException):
        return type(value).__name__
    is_safe = isinstance(value, int | float) or (isinstance(value, str) and value in KNOWN)
    return value if is_safe else HIDDEN


def _trace(error: BaseException) -> Iterator[str]:
    """Yield lines of text about an error, its causes and the members of an exception group.

    The lines have the module and line number of each frame, and the type of each error.
    """
    if before := error.__cause__ or error.__context__:
        yield from _trace(before)
    for inner in error.exceptions if isinstance(error, BaseExceptionGroup) else ():
        yield from _trace(inner)
    for frame, line in traceback.walk_tb(error.__traceback__):
        yield f"    {frame.f_globals.get('__name__')}:{line}"
    yield f"    {type(error).__name__}"


def _line(text: str) -> str:
    """Return `text` without control characters; bytes that are not UTF-8 stay readable."""
    return plain(text.encode("utf-8", "backslashreplace").decode())


def _is_relevant(record: logging.LogRecord) -> bool:
    """Return False for pyfuse3's message about a reply that the kernel discarded.

    The kernel discards a reply if the reader was killed, or if the mount has just ended.
    """
    nobody = f"fuse_reply_* failed with {os.strerror(errno.ENOENT)}"
    return nobody not in record.getMessage()


class _FailedAccepts(logging.Filter):
    """Filter that passes one record per ACCEPT_SECONDS, without the traceback.

    While no file descriptor is free, trio logs ten failures of accept(2) per second.
    """

    _next = float("-inf")

    def filter(self, record: logging.LogRecord) -> bool:
        now = time.monotonic()
        if now < self._next:
            return False
        self._next, record.exc_info = now + ACCEPT_SECONDS, None
        return True


def opened(path: Path) -> int:
    """Open a private log file (mode 0600) for appending; return its file descriptor."""
    private_dir(path.parent)
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _is_at(path: Path, stream: TextIO) -> bool:
    with suppress(FileNotFoundError):
        return os.path.samestat(path.stat(), os.fstat(stream.fileno()))
    return False


class PrivateFile(logging.handlers.RotatingFileHandler):
    """Log file with mode 0600, rotated at `limit` bytes.

    If the file is removed or renamed, the next record creates the file again. The folder is not
    created again, because a logoff deletes it.
    """

    def __init__(self, path: Path, limit: int) -> None:
        super().__init__(path, maxBytes=limit, backupCount=KEPT, encoding="utf-8")

    def _open(self) -> io.TextIOWrapper:
        descriptor = opened(Path(self.baseFilename))
        return os.fdopen(descriptor, "a", encoding="utf-8", errors="backslashreplace")

    def shouldRollover(self, record: logging.LogRecord) -> bool:  # noqa: N802 - of the library
        path = Path(self.baseFilename)
        if self.stream is not None and path.parent.exists() and not _is_at(path, self.stream):
            former, self.stream = self.stream, self._open()
            former.close()
        return bool(super().shouldRollover(record))


class MainFile(PrivateFile):
    """Log file that also receives the output of C code to descriptor 2."""

    def _open(self) -> io.TextIOWrapper:
        stream = super()._open()
        os.dup2(stream.fileno(), 2)
        return stream


class AnonymousFile(PrivateFile):
    """Anonymized log file; errors while writing it do not appear in the other log."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - of the library
        pass


class Terminal(logging.StreamHandler[TextIO]):
    """Handler that writes to standard error without waiting for its reader.

    A message is cut or dropped if the reader of the pipe or terminal is too slow, for example after
    Ctrl-S.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        super().__init__(stream)
        self._descriptor = _without_waiting(self.stream.fileno())

    def emit(self, record: logging.LogRecord) -> None:
        with suppress(OSError, ValueError):  # full, or closed
            if self._descriptor is not None:
                line = self.format(record) + self.terminator
                os.write(self._descriptor, line.encode("utf-8", "backslashreplace"))
            elif select.select([], [self.stream], [], 0)[1]:
                super().emit(record)


def _without_waiting(descriptor: int) -> int | None:
    """Return a non-blocking descriptor of the same pipe or terminal, or None.

    None means that `descriptor` is neither a pipe nor a terminal, or cannot be opened again.
    O_NONBLOCK is not set on `descriptor` itself, because other programs may share it.
    """
    mode = os.fstat(descriptor).st_mode
    if not (stat.S_ISFIFO(mode) or stat.S_ISCHR(mode)):
        return None
    flags = os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    try:
        return os.open(f"/proc/self/fd/{descriptor}", flags)
    except OSError:  # for example the terminal of another user
        return None


def anonymous(path: Path) -> Path:
    """Return the path of the anonymized log beside the log file `path`."""
    return path.with_name("anonymous.log")


def to_file(path: Path, *, debug: bool = False) -> None:
    """Log to the file `path`, for a daemon without a terminal; `debug` adds debug messages."""
    _install(MainFile(path, MAX_BYTES), _Lines(_FORMAT), debug)


def add_anonymous(path: Path) -> None:
    """Also log to the anonymized log beside the log file `path`."""
    handler = AnonymousFile(anonymous(path), ANONYMOUS_BYTES)
    handler.setFormatter(_Anonymous())
    logging.getLogger().addHandler(handler)


def to_stderr(fields: Mapping[str, str], *, debug: bool = False) -> None:
    """Log to standard error.

    If standard error is a stream of the journal, log to the journal directly, with `fields`.
    `debug` adds debug messages.
    """
    if journal.is_journal():
        _install(journal.JournalHandler(fields), _Lines("%(name)s: %(message)s"), debug)
    else:
        _install(Terminal(), _Lines(_FORMAT), debug)


def append(path: Path, text: str) -> None:
    """Append `text` as one line to the log file of a daemon that cannot write the line itself.

    Ignore an OSError.
    """
    now = datetime.now().astimezone().strftime("%Y-%m-%d %H:%M:%S,%f")[:-3]
    line = f"{now} INFO zonedrive: {_line(text)}\n".encode()
    with suppress(OSError):
        descriptor = opened(path)
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
    logging.getLogger("pyfuse3").addFilter(_is_relevant)
    logging.getLogger("trio.serve_listeners").addFilter(_FailedAccepts())
    logging.captureWarnings(True)
    faulthandler.enable(2)  # a crash in C code writes its stack to the log
