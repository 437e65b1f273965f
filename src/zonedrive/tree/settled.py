"""What we changed on the service ourselves a moment ago.

Must not know what the change was.
"""

import time

from cachetools import TTLCache

# How long a listing may have been under way when it still reports the time before a change of
# ours (seconds), and how many such changes are remembered.
STALE_LISTING_S = 120
RECENT = 100_000


class Settled:
    """Moments (monotonic ns) by zone and entry."""

    def __init__(self) -> None:
        self._moments: TTLCache[tuple[str, str], int] = TTLCache(RECENT, STALE_LISTING_S)
        self._latest = -1

    def add(self, zone: str, remote_id: str) -> None:
        """It was changed just now."""
        self._latest = self._moments[zone, remote_id] = time.monotonic_ns()

    def since(self, zone: str, remote_id: str, asked_ns: int) -> bool:
        """Whether it was changed after `asked_ns` (monotonic)."""
        if self._latest < asked_ns:  # which is so for nearly every entry of a listing
            return False
        return self._moments.get((zone, remote_id), -1) >= asked_ns
