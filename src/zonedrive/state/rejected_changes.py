"""Removals, renames and moves that the service rejected and that were rolled back locally.

The daemon does not retry these changes, so the user must be told. `sync` or the unmount reports
each change once, and `sync` then exits with code 1. Until then, `status` shows the change. The list
is only in memory, because the user can see the restored name anyway. The list also contains saved
files whose bytes were missing on the disk when the daemon started, and files whose last change
could not be stored after close(2).

This module does not roll back any change.
"""

import msgspec

MOST = 1000  # number of newest rejected changes to keep


class RejectedChange(msgspec.Struct, frozen=True):
    """Removal, rename or move that the service rejected and that was rolled back."""

    number: int
    zone: str
    remote_id: str
    path: str  # current path, or the path after the rollback
    said: str  # description of the rolled-back change, with the reason


class RejectedChanges:
    """Rejected changes that have not been reported to the user yet."""

    def __init__(self) -> None:
        self._untold: dict[tuple[str, str], RejectedChange] = {}  # by zone and remote id
        self._number = 0

    def add(self, zone: str, remote_id: str, path: str, said: str) -> None:
        """Add a rejected change, which replaces an earlier rejected change of the same entry.

        `path` is the path of the entry, and `said` describes the change and the reason.
        """
        self.over(zone, remote_id)
        self._number += 1
        self._untold[zone, remote_id] = RejectedChange(self._number, zone, remote_id, path, said)
        if len(self._untold) > MOST:
            del self._untold[next(iter(self._untold))]

    def over(self, zone: str, remote_id: str) -> None:
        """Remove the rejected change of an entry, if any, because a later change succeeded."""
        self._untold.pop((zone, remote_id), None)

    def unacknowledged(self) -> list[RejectedChange]:
        """Return all rejected changes that have not been reported to the user, oldest first."""
        return list(self._untold.values())

    def told(self, these: list[RejectedChange]) -> None:
        """Remove rejected changes that have been reported to the user."""
        for one in these:
            if self._untold.get((one.zone, one.remote_id)) == one:
                self.over(one.zone, one.remote_id)
