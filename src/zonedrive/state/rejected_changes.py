"""Name changes that the service rejected and that were rolled back.

No retry is pending for these changes, so the user must be told.  `sync` and the end of the mount
report each change once, `sync` with exit code 1; until then `status` shows it.  The list is only in
memory, because a rolled-back change is visible anyway.

Knows nothing about how a change is rolled back.
"""

from collections import deque

import msgspec

MOST = 1000  # number of newest refusals to keep


class RejectedChange(msgspec.Struct, frozen=True):
    """Name change that the service rejected."""

    number: int
    zone: str
    remote_id: str
    path: str  # path now, or soon
    said: str  # what was done, and why


class RejectedChanges:
    """Rejected changes that were not reported yet."""

    def __init__(self) -> None:
        self._untold: deque[RejectedChange] = deque(maxlen=MOST)
        self._number = 0

    def add(self, zone: str, remote_id: str, path: str, said: str) -> None:
        """Add a rejected change; only the last one of each entry is kept."""
        self.over(zone, remote_id)
        self._number += 1
        self._untold.append(RejectedChange(self._number, zone, remote_id, path, said))

    def over(self, zone: str, remote_id: str) -> None:
        """Remove the rejected changes of an entry after a successful change."""
        if self._untold:
            self.told(
                [one for one in self._untold if (one.zone, one.remote_id) == (zone, remote_id)]
            )

    def unacknowledged(self) -> list[RejectedChange]:
        """Return all unreported rejected changes, the oldest first."""
        return list(self._untold)

    def told(self, these: list[RejectedChange]) -> None:
        """Remove rejected changes that were reported to the user."""
        for one in these:
            if one in self._untold:
                self._untold.remove(one)
