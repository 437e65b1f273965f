"""Recent logon attempts, which tests can read, and temporary blocks after too many failures.

This module does not check passwords. INVARIANT: unknown user names are blocked like known names, so
that a block does not reveal which users exist. A restart deletes all attempts and blocks.
"""

import time
from collections import deque
from typing import Any, NamedTuple

from zonedrive.sandbox.clock import iso, now_us

MOST_NAMES = 10_000
MOST_KEPT = 1000
LONGEST_ADDRESS = 100


class Attempt(NamedTuple):
    """Logon attempt. `outcome` is OK, PENDING, or the error name in the response."""

    at_us: int
    user: str
    address: str
    outcome: str


class Attempts:
    """Recent logon attempts, and the failure counts and blocks of user names."""

    def __init__(self, most: int, seconds: float) -> None:
        """Create an empty record; `most` consecutive failures block a user name for `seconds`."""
        self._most = most
        self._seconds = seconds
        self._failures: dict[str, int] = {}
        self._blocked: dict[str, float] = {}  # name -> end of its block in monotonic seconds
        self._kept: deque[Attempt] = deque(maxlen=MOST_KEPT)

    def blocked(self, user: str) -> bool:
        """Return True if the name `user` is blocked now."""
        until = self._blocked.get(user.lower())
        if until is not None and until <= time.monotonic():
            del self._blocked[user.lower()]
            until = None
        return until is not None

    def failed(self, user: str) -> None:
        """Count a failed attempt; block the name after too many consecutive failures."""
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
        """Reset the failure count of the user name `user`."""
        self._failures.pop(user.lower(), None)

    def unblock(self, user: str) -> bool:
        """Unblock a user; return False if the user was not blocked."""
        there = self.blocked(user)
        self._blocked.pop(user.lower(), None)
        return there

    def keep(self, user: str, address: str, outcome: str) -> None:
        """Record the outcome of a logon request."""
        self._kept.append(Attempt(now_us(), user, address[:LONGEST_ADDRESS], outcome))

    def wire(self, user: str | None) -> list[dict[str, Any]]:
        """Return the recent attempts of `user` (None: all users) as JSON objects, oldest first."""
        return [
            {"at": iso(one.at_us), "user": one.user, "address": one.address, "outcome": one.outcome}
            for one in self._kept
            if user is None or one.user.lower() == user.lower()
        ]
