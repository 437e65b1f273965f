"""The record of a daemon's run: written once it serves, removed at its orderly end.

So a record without a living daemon belongs to one that died.  It says why where the daemon could
still write that: it cannot when it is killed, or when the machine stops.

INVARIANT: while the record is there, no room on the disk is needed to change it, and none to
remove it.
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

from zonedrive.daemon import lock
from zonedrive.errors import described, first_of
from zonedrive.paths import AccountPaths, quoted, write_private

log = logging.getLogger(__name__)

SIZE = 4096
"""Bytes of the file, blanks included: one block of a disk."""

LONGEST = 1000
"""Characters of the reason."""

BOOT = Path("/proc/sys/kernel/random/boot_id")
COUNTERS = Path("/proc/vmstat")

POWER = "the machine stopped without unmounting it: a power cut, a crash or a hard restart"
KILLED = "it was killed (SIGKILL)"

LOG_BYTES = 1 << 20
"""How much of the end of the log is searched for a crash."""

MOUNTED = b" is mounted at "
FATAL = re.compile(rb"^Fatal Python error: ([ -~]{1,200})$", re.MULTILINE)


@dataclass(frozen=True)
class Death:
    """The end of a daemon without an unmount."""

    pid: int
    mountpoint: Path
    at: str  # ISO 8601: of the end, or of the last sign of life
    exact: bool  # whether it is that of the end
    why: str  # in a line
    public: str  # the same without any name

    @property
    def line(self) -> str:
        """The daemon, the time and the reason, for people."""
        return line_of(self.json())

    def json(self) -> dict[str, object]:
        """The object that `status` gives to programs."""
        return {
            "pid": self.pid,
            "mountpoint": os.fspath(self.mountpoint),
            "at": self.at,
            "exact": self.exact,
            "why": self.why,
        }


def line_of(died: Mapping[str, Any]) -> str:
    """What `Death.json` gives, in a line."""
    when = datetime.fromisoformat(died["at"]).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    said = f"died at {when}" if died["exact"] else f"died after {when}"
    return f"the daemon of {quoted(Path(died['mountpoint']))} {said}: {died['why']}"


class Run:
    """The record of this process's own run."""

    def __init__(self, paths: AccountPaths) -> None:
        self._path = paths.run_record
        self._said: dict[str, Any] | None = None

    @property
    def is_open(self) -> bool:
        """Whether the daemon has served and has not ended."""
        return self._said is not None

    def begin(self, folder: Path) -> None:
        """The mount at `folder` serves.  A full disk only costs the record."""
        said = {
            "pid": os.getpid(),
            "mountpoint": os.fspath(folder),
            "boot": _boot(),
            "killed": _killed_for_memory(),
        }
        self._said = said
        try:
            write_private(self._path, _padded(said))
            _sync(self._path.parent)
        except OSError as wrong:
            log.info("the run cannot be recorded (%s)", wrong.strerror)

    def died(self, wrong: BaseException | str) -> None:
        """The daemon ends without an orderly end, for this reason."""
        if self._said is None:
            return
        kind = wrong
        if isinstance(wrong, BaseException):
            cause = first_of(wrong) if isinstance(wrong, Exception) else wrong
            wrong, kind = described(cause), f"an unexpected {type(cause).__name__}"
        at = datetime.now(UTC).isoformat(timespec="seconds")
        said = {**self._said, "at": at, "why": wrong[:LONGEST], "kind": kind}
        self._said = None
        try:
            _write_over(self._path, said)
        except OSError as full:
            log.info("the end cannot be recorded (%s)", full.strerror)

    def end(self) -> None:
        """The orderly end, after everything else."""
        if self._said is not None:
            self._said = None
            _remove(self._path)


def death(paths: AccountPaths) -> Death | None:
    """How the account's last daemon died; None where one runs, or the last ended in order."""
    return None if lock.is_held(paths.lock) else recorded(paths)


def recorded(paths: AccountPaths) -> Death | None:
    """The same for whoever has the account's lock, and so knows that no daemon runs."""
    said = _read(paths.run_record)
    if said is None:
        return None
    try:
        pid, folder = int(said["pid"]), Path(str(said["mountpoint"]))
        if "why" in said:
            return Death(pid, folder, str(said["at"]), True, str(said["why"]), str(said["kind"]))
        if said.get("boot") != _boot():
            why = POWER
        elif crash := _crash(paths):
            why = f"it crashed ({crash}); the log has the stack"
        else:
            why = KILLED + _for_memory(said)
        return Death(pid, folder, str(said.get("seen") or _last_sign(paths)), False, why, why)
    except (KeyError, ValueError, TypeError):
        return None


def keep_last_sign(paths: AccountPaths) -> None:
    """Record the last sign of life, before its traces are written over.  By the lock's holder."""
    said = _read(paths.run_record)
    if said is not None and "why" not in said and "seen" not in said:
        with suppress(OSError):
            _write_over(paths.run_record, {**said, "seen": _last_sign(paths)})


def clear(paths: AccountPaths) -> None:
    """A person has unmounted what a daemon that died had left."""
    if not lock.is_held(paths.lock):
        _remove(paths.run_record)


def _crash(paths: AccountPaths) -> str:
    """The error that faulthandler wrote to the log of the last run, "" for none."""
    try:
        with paths.log.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - LOG_BYTES))
            run = file.read().rpartition(MOUNTED)[2]
    except OSError:
        return ""
    found = FATAL.search(run)
    return found[1].decode("ascii") if found else ""


def _for_memory(said: Mapping[str, Any]) -> str:
    """Whether the kernel may have done it."""
    before, now = said.get("killed"), _killed_for_memory()
    if not isinstance(before, int) or now is None or now <= before:
        return ""
    return ", perhaps by the system: it has ended processes since then for want of memory"


def _last_sign(paths: AccountPaths) -> str:
    """The newest time of a file that the daemon wrote."""
    database = paths.database
    times = []
    for path in (paths.run_record, paths.log, database, Path(f"{database}-wal"), paths.outgoing):
        try:
            times.append(path.stat().st_mtime)
        except OSError:
            continue
    newest = datetime.fromtimestamp(max(times, default=time.time()), UTC)
    return newest.isoformat(timespec="seconds")


def _read(path: Path) -> dict[str, Any] | None:
    try:
        said = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return said if isinstance(said, dict) else None


def _write_over(path: Path, said: Mapping[str, Any]) -> None:
    with path.open("r+b", buffering=0) as file:
        file.write(_padded(said))
        os.fsync(file.fileno())


def _padded(said: Mapping[str, Any]) -> bytes:
    return json.dumps(said).encode("ascii").ljust(SIZE)


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
        _sync(path.parent)
    except OSError as wrong:
        log.info("the record of a run cannot be removed (%s)", wrong.strerror)


def _sync(folder: Path) -> None:
    """Make the names in a folder survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _boot() -> str:
    return BOOT.read_text("ascii").strip()


def _killed_for_memory() -> int | None:
    """How many processes the kernel has ended for want of memory since the machine began."""
    try:
        for line in COUNTERS.read_text("ascii").splitlines():
            name, _, value = line.partition(" ")
            if name == "oom_kill":
                return int(value)
    except (OSError, ValueError):
        pass
    return None
