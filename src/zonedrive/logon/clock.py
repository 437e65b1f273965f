"""What time it is for the service, whatever this machine's clock says.

Must not know what the time is needed for.

INVARIANT: moments that a logon keeps are in the service's time, so a clock here that is wrong, or
set right later, moves no expiry.
"""

import time
from collections.abc import Callable

from zonedrive.remote.wire.dates import header_seconds

AGREED_NS = 5 * 10**9  # a Date names whole seconds, and an answer was underway for a while


class Clock:
    """This machine's clock, corrected by the Date of the last answer.  Thread-safe."""

    def __init__(self, here: Callable[[], int] = time.time_ns) -> None:
        """`here` gives nanoseconds since the epoch."""
        self._here = here
        self._ahead_ns = 0  # of ours

    def heard(self, date: str | None) -> None:
        """An answer came with that Date header; none, or nonsense, changes nothing."""
        there = header_seconds(date)
        if there is None:
            return
        ahead = self._here() - int(there) * 10**9
        self._ahead_ns = 0 if abs(ahead) <= AGREED_NS else ahead

    def now_ns(self) -> int:
        """Nanoseconds since the epoch, by the service."""
        return self._here() - self._ahead_ns
