"""Attempts to show a password or a code: kept for a look, and the block after too many failures.

Must not know passwords.  INVARIANT: names that there are not are blocked like those that there
are, so that a block tells nobody who exists.  A restart forgets everything.
"""

import time
from collections import deque
from typing import Any, NamedTuple

from zonedrive.sandbox.clock import iso, now_us

MOST_NAMES = 10_000
MOST_KEPT = 1000
LONGEST_ADDRESS = 100


class Attempt(NamedTuple):
    """One attempt; `outcome` is OK or the error's name."""

    at_us: int
    user: str
    address: str
    outcome: str


class Attempts:
    """Counts failures in a row by whom they were meant for."""

    def __init__(self, most: int, seconds: float) -> None:
        """After `most` failures in a row a name is blocked for so many seconds."""
        self._most = most
        self._seconds = seconds
        self._failures: dict[str, int] = {}
        self._blocked: dict[str, float] = {}  # name -> end of its block, monotonic
        self._kept: deque[Attempt] = deque(maxlen=MOST_KEPT)

    def blocked(self, user: str) -> bool:
        """Whether a name is blocked now."""
        until = self._blocked.get(user.lower())
        if until is not None and until <= time.monotonic():
            del self._blocked[user.lower()]
            until = None
        return until is not None

    def failed(self, user: str) -> None:
        """One more failure in a row; the last one that is let pass begins the block."""
        name = user.lower()
        count = self._failures.pop(name, 0) + 1
        if count >= self._most:
            self._blocked[name] = time.monotonic() + self._seconds
        else:
            self._failures[name] = count
        for names in (self._failures, self._blocked):
            if len(names) > MOST_NAMES:
                del names[next(iter(names))]

    def succeeded(self, user: str) -> None:
        """The failures before do not count any more."""
        self._failures.pop(user.lower(), None)

    def unblock(self, user: str) -> bool:
        """End a block now; False where there is none."""
        there = self.blocked(user)
        self._blocked.pop(user.lower(), None)
        return there

    def keep(self, user: str, address: str, outcome: str) -> None:
        """Note how a request to log on ended."""
        self._kept.append(Attempt(now_us(), user, address[:LONGEST_ADDRESS], outcome))

    def wire(self, user: str | None) -> list[dict[str, Any]]:
        """The last attempts of one user, or of all (None), oldest first."""
        return [
            {"at": iso(one.at_us), "user": one.user, "address": one.address, "outcome": one.outcome}
            for one in self._kept
            if user is None or one.user.lower() == user.lower()
        ]
