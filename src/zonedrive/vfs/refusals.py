"""Changes of names that the service refused for good, and that were taken back here.

Nothing of them waits any more, so a person has to be told: `sync` does, once, and says 1, or the
end of the mount; until then `status` does.  In memory only: what was taken back can be seen in any
case.

Must not know how a change is taken back.
"""

from collections import deque

import msgspec

MOST = 1000  # of the newest ones; those before are forgotten


class Refusal(msgspec.Struct, frozen=True):
    """One change."""

    number: int
    zone: str
    remote_id: str
    path: str  # where it is now, or is again soon
    said: str  # what became of it, and why


class Refusals:
    """Those that no person has been told of."""

    def __init__(self) -> None:
        self._untold: deque[Refusal] = deque(maxlen=MOST)
        self._number = 0

    def add(self, zone: str, remote_id: str, path: str, said: str) -> None:
        """Another one; of an entry only the last one is of interest."""
        self.over(zone, remote_id)
        self._number += 1
        self._untold.append(Refusal(self._number, zone, remote_id, path, said))

    def over(self, zone: str, remote_id: str) -> None:
        """A change of that entry was not refused."""
        if self._untold:
            self.told(
                [one for one in self._untold if (one.zone, one.remote_id) == (zone, remote_id)]
            )

    def untold(self) -> list[Refusal]:
        """All of them, the oldest first."""
        return list(self._untold)

    def told(self, these: list[Refusal]) -> None:
        """A person knows."""
        for one in these:
            if one in self._untold:
                self._untold.remove(one)
