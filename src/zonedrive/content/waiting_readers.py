"""Readers that are waiting for a download, and their timeout.

Knows nothing about the bytes that are read.
"""

import trio

from zonedrive.content.download_worker import Download

LEAST = 4096  # least progress in bytes; the kernel requests a failed page twice


class WaitingReader:
    """Reader that is waiting for [start, end)."""

    def __init__(self, start: int, end: int, download: Download | None) -> None:
        """Create a waiter for a range.

        `download` will fetch the first byte; None means that no download is free.
        """
        self.start = start
        self.end = end
        self.download = download
        self.event = trio.Event()
        self.error: Exception | None = None
        self.since = trio.current_time()


class Pace:
    """Check of a waiter's progress: at least LEAST bytes in each period."""

    def __init__(self, seconds: float, came: int) -> None:
        self.seconds = seconds
        self._came = came
        self.until = trio.current_time() + seconds

    def is_too_slow(self, came: int) -> bool:
        """Return True if a period ended with too few bytes; if it ended well, begin a new one."""
        if trio.current_time() < self.until:
            return False
        if came - self._came < LEAST:
            return True
        self._came, self.until = came, trio.current_time() + self.seconds
        return False
