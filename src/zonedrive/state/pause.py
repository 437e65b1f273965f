"""Pause of an account's uploads, stored in a file in the account's state folder.

This module does not stop or start uploads. The file stays when the daemon ends, and commands can
write the file while no daemon is running.

INVARIANT: a file that cannot be read counts as an indefinite pause, because the user has asked for
a pause, and a delayed upload loses no data.
INVARIANT: if the clock is set back, a running daemon does not extend a pause that has an end. A
daemon that is started later ends the pause at the latest when the pause's original length has
passed since the start of the daemon.
"""

import time
from contextlib import suppress
from pathlib import Path

import msgspec

from zonedrive.boot_clock import since_boot_ns
from zonedrive.formatting import local_time
from zonedrive.observers import Observers
from zonedrive.paths import sync_folder, write_private
from zonedrive.translation import marked

LONGEST_S = 366 * 86_400.0
"""Longest pause with an end, in seconds."""


class Pause(msgspec.Struct, frozen=True):
    """Start and end of a pause of the uploads."""

    since_ns: int  # wall clock; 0: unknown
    until_ns: int = 0  # end (wall clock); 0: only `zonedrive resume` ends it

    @property
    def is_over(self) -> bool:
        """True if the end of the pause has been reached."""
        return 0 < self.until_ns <= time.time_ns()

    @property
    def seconds_left(self) -> float:
        """Seconds until the end of the pause, or 0.0 if the pause is indefinite."""
        return max(0.0, (self.until_ns - time.time_ns()) / 1e9)

    @property
    def longest(self) -> float:
        """Length of the pause in seconds; `seconds_left` exceeds it if the clock was set back."""
        return (self.until_ns - self.since_ns) / 1e9

    @property
    def line(self) -> str:
        """Text that tells the user about the pause, with its end in the local time zone."""
        if not self.until_ns:
            return marked("uploads are paused")
        return marked(f"uploads are paused until {local_time(self.until_ns / 1e9)}")


def load(path: Path) -> Pause | None:
    """Return the pause stored in a file, or None if there is no file or the pause is over.

    A file that cannot be read counts as an indefinite pause.
    """
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Pause)
        str(found.line)  # fails if the time is out of range for `datetime`
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, msgspec.DecodeError, ValueError, OverflowError):
        found = Pause(0)
    return None if found.is_over else found


class PauseSwitch:
    """Current pause of an account's uploads, stored in a file only if a path is given."""

    def __init__(self, path: Path | None = None) -> None:
        """Load the pause from the file at `path`, if there is one."""
        self._path = path
        self._ends_at: int | None = None  # end of the pause in nanoseconds since boot; None: no end
        self._pause = load(path) if path is not None else None
        if self._pause is not None and self._pause.until_ns:
            self._count_down(min(self._pause.seconds_left, self._pause.longest))
        self.changes: Observers[[]] = Observers()
        """Observers to notify after a pause begins or ends."""

    @property
    def current(self) -> Pause | None:
        """Current pause, or None if the uploads are not paused."""
        return None if self._is_over else self._pause

    @property
    def seconds_left(self) -> float:
        """Seconds until the end of the pause, infinity if it has no end, or 0.0 without a pause."""
        pause = self.current
        if pause is None or self._ends_at is None:
            return 0.0 if pause is None else float("inf")
        return min(pause.seconds_left, max(0.0, (self._ends_at - since_boot_ns()) / 1e9))

    @property
    def _is_over(self) -> bool:
        """True if there is no pause, or if the end or the full length of the pause has passed."""
        has_passed = self._ends_at is not None and self._ends_at <= since_boot_ns()
        return self._pause is None or has_passed or self._pause.is_over

    def _count_down(self, seconds: float | None) -> None:
        self._ends_at = None if seconds is None else since_boot_ns() + int(seconds * 1e9)

    def begin(self, seconds: float | None = None) -> None:
        """Pause the uploads for `seconds`, or indefinitely if None; replace the current pause.

        Raises OSError if the pause cannot be stored; the current pause is then unchanged.
        """
        now, former = time.time_ns(), self.current
        pause = Pause(
            since_ns=now if former is None else min(now, former.since_ns),
            until_ns=0 if seconds is None else now + int(seconds * 1e9),
        )
        if self._path is not None:
            write_private(self._path, msgspec.json.encode(pause))
        self._pause = pause
        self._count_down(seconds)
        self.changes.notify()

    def end(self) -> bool:
        """End the pause; return False if there was none.

        Raises OSError if the file cannot be removed; the pause then continues.
        """
        was = self.current is not None
        if self._path is not None:
            self._path.unlink(missing_ok=True)
            with suppress(OSError):  # then a power cut may bring the pause back
                sync_folder(self._path.parent)
        self._pause = None
        self.changes.notify()
        return was

    def end_if_over(self) -> None:
        """Remove a pause whose end has been reached, and notify the observers."""
        if self._pause is None or not self._is_over:
            return
        self._pause = None
        if self._path is not None:
            with suppress(OSError):  # a remaining file is ignored, because its end has passed
                self._path.unlink(missing_ok=True)
        self.changes.notify()
