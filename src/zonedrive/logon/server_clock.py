"""The service's time, independent of errors of the local clock.

Knows nothing about the use of the time.

INVARIANT: times stored by a logon are in the service's time, so that a wrong or later corrected
local clock changes no expiry.
"""

import time
from collections.abc import Callable

from zonedrive.remote.wire.fields import header_seconds

AGREED_NS = 5 * 10**9  # a Date names whole seconds, and an answer was underway for a while


class Clock:
    """Local clock, corrected by the Date header of the last answer. Thread-safe."""

    def __init__(self, here: Callable[[], int] = time.time_ns) -> None:
        """Set the local clock; `here` returns nanoseconds since the epoch."""
        self._here = here
        self._ahead_ns = 0  # offset of the local clock

    def heard(self, date: str | None) -> None:
        """Update the correction from a Date header; a missing or malformed one changes nothing."""
        there = header_seconds(date)
        if there is None:
            return
        ahead = self._here() - int(there) * 10**9
        self._ahead_ns = 0 if abs(ahead) <= AGREED_NS else ahead

    def now_ns(self) -> int:
        """Return the service's time in nanoseconds since the epoch."""
        return self._here() - self._ahead_ns
