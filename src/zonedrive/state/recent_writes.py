"""Record of this client's recent changes on the service, used to detect stale listings.

Knows nothing about the kind of a change.
"""

import time

from cachetools import TTLCache

# The longest time that a listing takes (seconds): a slower one might miss a change of ours.
# RECENT is the number of remembered changes.
STALE_LISTING_S = 120
RECENT = 100_000


class RecentWrites:
    """Times of changes (monotonic ns) by zone and entry."""

    def __init__(self) -> None:
        self._moments: TTLCache[tuple[str, str], int] = TTLCache(RECENT, STALE_LISTING_S)
        self._latest = -1

    def add(self, zone: str, remote_id: str) -> None:
        """Record that this client changed the entry now."""
        self._latest = self._moments[zone, remote_id] = time.monotonic_ns()

    def since(self, zone: str, remote_id: str, asked_ns: int) -> bool:
        """Return True if this client changed the entry after `asked_ns` (monotonic)."""
        if self._latest < asked_ns:  # true for nearly every entry of a listing
            return False
        return self._moments.get((zone, remote_id), -1) >= asked_ns
