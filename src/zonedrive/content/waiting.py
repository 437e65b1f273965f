"""Readers that wait for a download, and how long they wait for how little.

Must not know what they read.
"""

import trio

from zonedrive.content.download import Download

LEAST = 4096  # bytes that come in some time at least; the kernel asks twice for a page that failed


class Waiter:
    """A reader that waits for [start, end)."""

    def __init__(self, start: int, end: int, download: Download | None) -> None:
        """`download` is the one that is to bring the first byte, None: all are taken."""
        self.start = start
        self.end = end
        self.download = download
        self.event = trio.Event()
        self.error: Exception | None = None
        self.since = trio.current_time()


class Pace:
    """Whether enough comes for who waits: at least LEAST bytes in some time."""

    def __init__(self, seconds: float, came: int) -> None:
        self.seconds = seconds
        self._came = came
        self.until = trio.current_time() + seconds

    def is_too_slow(self, came: int) -> bool:
        """Whether the time is over and too little came; else, if it is over, it begins anew."""
        if trio.current_time() < self.until:
            return False
        if came - self._came < LEAST:
            return True
        self._came, self.until = came, trio.current_time() + self.seconds
        return False
