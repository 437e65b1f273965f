"""Record of a daemon's run, written when the mount is ready and removed at an orderly end.

If a record exists and no daemon is running, the last daemon died. The record has the reason, unless
the daemon could not write the reason, for example because of SIGKILL or a power cut.

INVARIANT: neither a change nor the removal of an existing record needs free disk space.
"""

import json
import logging
import os
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from zonedrive.errors import described, first_of
from zonedrive.formatting import local_time
from zonedrive.paths import AccountPaths, is_locked, quoted, sync_folder, write_private
from zonedrive.translation import marked

log = logging.getLogger(__name__)

SIZE = 4096  # the file has a multiple of this size in bytes, padding included: a disk block
LONGEST = 1000  # maximum length of the reason, in characters
ROOM = 1024  # minimum size in bytes of the padding, in which the reason is written later
BOOT = Path("/proc/sys/kernel/random/boot_id")
POWER = marked("the machine stopped without unmounting it: a power cut, a crash or a hard restart")
KILLED = marked("it was killed (SIGKILL)")
LOG_BYTES = 1 << 20  # number of bytes at the end of the log in which a crash is searched for
MOUNTED = b" is mounted at "
FATAL = re.compile(rb"^Fatal Python error: ([ -~]{1,200})$", re.MULTILINE)


@dataclass(frozen=True)
class Death:
    """Unexpected end of a daemon that did not unmount."""

    pid: int
    mountpoint: Path
    at: str  # ISO 8601: time of the end, or of the last activity
    exact: bool  # True if `at` is the time of the end
    why: str  # in one line
    public: str  # the reason without file names

    @property
    def line(self) -> str:
        return line_of(self.json())

    def json(self) -> dict[str, object]:
        """Return the fields for the JSON output of `status`."""
        return {
            "pid": self.pid,
            "mountpoint": os.fspath(self.mountpoint),
            "at": self.at,
            "exact": self.exact,
            "why": self.why,
        }


def line_of(died: Mapping[str, Any]) -> str:
    """Return a line of text about a daemon's death; `died` is a result of `Death.json`."""
    when = _local_time(died["at"])
    said = f"died at {when}" if died["exact"] else f"died after {when}"
    return f"the daemon of {quoted(Path(died['mountpoint']))} {said}: {died['why']}"


def _local_time(text: str) -> str:
    """Return a time in ISO 8601 as local time. Raises ValueError or OverflowError."""
    return local_time(datetime.fromisoformat(text).timestamp())


class _Record(msgspec.Struct, frozen=True, omit_defaults=True):
    pid: int
    mountpoint: str
    boot: str = ""
    seen: str = ""  # time of the last activity, recorded at the next start
    at: str = ""  # `at`, `why`, `kind`: time, reason, reason without names, if recorded
    why: str = ""
    kind: str = ""


class Run:
    """Record of this daemon's run."""

    def __init__(self, paths: AccountPaths) -> None:
        self._path = paths.run_record
        self._record: _Record | None = None

    @property
    def is_open(self) -> bool:
        """True from `begin` until `died` or `end`."""
        return self._record is not None

    def begin(self, folder: Path) -> None:
        """Write the record of the mount at `folder`; only log an error, such as a full disk."""
        self._record = _Record(os.getpid(), os.fspath(folder), _boot())
        try:
            data = _encoded(self._record)
            write_private(self._path, data.ljust(-(-(len(data) + ROOM) // SIZE) * SIZE))
        except OSError as wrong:
            log.info("the run cannot be recorded (%s)", wrong.strerror)

    def died(self, wrong: Exception | str) -> None:
        """Record `wrong` as the reason why the daemon exits without unmounting."""
        if self._record is None:
            return
        why = kind = str(wrong)
        if isinstance(wrong, Exception):
            cause = first_of(wrong)
            name = type(cause).__name__
            why, kind = described(cause), marked(f"an unexpected {name}")
        at = datetime.now(UTC).isoformat(timespec="seconds")
        ended = msgspec.structs.replace(self._record, at=at, why=why[:LONGEST], kind=kind)
        self._record = None
        try:
            _write_over(self._path, ended)
        except OSError as full:
            log.info("the end of the run cannot be recorded (%s)", full.strerror)

    def end(self) -> None:
        if self._record is not None:
            self._record = None
            _remove(self._path)


def death(paths: AccountPaths) -> Death | None:
    """Return the death of the account's last daemon, or None.

    None means that a daemon is running or that the last daemon ended normally.
    """
    return None if is_locked(paths.lock) else recorded(paths)


def recorded(paths: AccountPaths) -> Death | None:
    """Return the death of the account's last daemon, or None if that daemon ended normally.

    The caller must hold the account's lock; otherwise a running daemon counts as dead.
    """
    last = _read(paths.run_record)
    if last is None:
        return None
    folder = Path(last.mountpoint)
    if last.why:
        return Death(last.pid, folder, last.at, True, last.why, last.kind)
    if last.boot != _boot():
        why = POWER
    elif crash := _crash(paths):
        why = marked(f"it crashed ({crash}); the log has the stack")
    else:
        why = KILLED
    return Death(last.pid, folder, last.seen or _last_sign(paths), False, why, why)


def keep_last_sign(paths: AccountPaths) -> None:
    """Store the time of a dead daemon's last activity in the record of its run.

    This time is the newest modification time of the daemon's files, so call this function before
    the next daemon writes to these files. The caller must hold the account's lock, at least shared.
    """
    last = _read(paths.run_record)
    if last is not None and not last.why and not last.seen:
        with suppress(OSError):
            _write_over(paths.run_record, msgspec.structs.replace(last, seen=_last_sign(paths)))


def clear(paths: AccountPaths) -> None:
    """Remove the record of a dead daemon whose mount the user has unmounted.

    Do nothing while a daemon is running.
    """
    if not is_locked(paths.lock):
        _remove(paths.run_record)


def _crash(paths: AccountPaths) -> str:
    """Return the error that faulthandler wrote to the log of the last run, or ""."""
    try:
        with paths.log.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - LOG_BYTES))
            run = file.read().rpartition(MOUNTED)[2]
    except OSError:
        return ""
    found = FATAL.search(run)
    return found[1].decode("ascii") if found else ""


def _last_sign(paths: AccountPaths) -> str:
    """Return the newest modification time of the daemon's files, in ISO 8601."""
    database, times = paths.database, []
    for path in (paths.run_record, paths.log, database, Path(f"{database}-wal"), paths.outgoing):
        with suppress(OSError):
            times.append(path.stat().st_mtime)
    newest = datetime.fromtimestamp(max(times, default=time.time()), UTC)
    return newest.isoformat(timespec="seconds")


def _read(path: Path) -> _Record | None:
    """Return the record in the file at `path`, or None if there is none or it is damaged."""
    try:
        record = msgspec.convert(json.loads(path.read_bytes()), _Record)
        if record.why or record.seen:
            _local_time(record.at if record.why else record.seen)
        return record
    except (OSError, ValueError, OverflowError):  # includes msgspec's errors
        return None


def _encoded(record: _Record) -> bytes:
    """Return the record as JSON.

    Use the encoder of the standard library, because msgspec rejects a path that is not UTF-8.
    """
    return json.dumps(msgspec.to_builtins(record)).encode("ascii")


def _write_over(path: Path, record: _Record) -> None:
    """Replace the record in the file at `path`, without changing the size of the file.

    A reason that is too long for that size is shortened.
    """
    with path.open("r+b", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        while len(data := _encoded(record)) > size and record.why:
            record = msgspec.structs.replace(record, why=record.why[: len(record.why) * 3 // 4])
        file.write(data.ljust(size))
        os.fsync(file.fileno())


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
        sync_folder(path.parent)
    except OSError as wrong:
        log.info("the record of a run cannot be removed (%s)", wrong.strerror)


def _boot() -> str:
    return BOOT.read_text("ascii").strip()
