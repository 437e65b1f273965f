"""Retry delays: capped exponential backoff with full jitter, within a deadline.

Pure arithmetic; knows nothing about clocks, requests or the link. Only for requests that are safe
to repeat.
"""

from dataclasses import dataclass

from zonedrive.errors import Interrupted, TimedOut, Unavailable, Unreachable, Untrusted
from zonedrive.remote.wire.dates import header_seconds

# Longest delay in seconds accepted from Retry-After; for a longer one the caller decides.
LONGEST_WISH = 30.0


@dataclass(frozen=True)
class Backoff:
    """Delays of up to `first`, 2 `first`, 4 `first` … seconds, never above `cap`."""

    first: float = 0.25
    cap: float = 4.0
    attempts: int = 4

    def ceiling(self, failures: int) -> float:
        """Return the longest delay in seconds after `failures` >= 1 consecutive failures."""
        return min(self.cap, self.first * 2.0 ** min(failures - 1, 32))

    def delay(
        self, failures: int, chance: float, remaining: float, wish: float | None = None
    ) -> float | None:
        """Return the seconds to wait before the next attempt, or None to give up.

        `chance` is a random number from 0 to 1, `remaining` the seconds left, `wish` the delay from
        Retry-After.
        """
        if failures >= self.attempts:
            return None
        wait = self.ceiling(failures) * chance
        if wish is not None:
            if wish > LONGEST_WISH:
                return None
            wait = max(wait, wish)
        return wait if wait < remaining else None


def worth_another(error: Exception) -> bool:
    """Return True if a repetition of the same harmless request may succeed later."""
    if isinstance(error, Untrusted):
        return False
    return isinstance(error, Unavailable | Interrupted | TimedOut | Unreachable)


def retry_after(value: str | None, now: float) -> float | None:
    """Return the delay in seconds of a Retry-After header (number or date), or None.

    `now` is the wall clock in seconds since the epoch.
    """
    if value is None:
        return None
    value = value.strip()
    if value.isascii() and value.isdecimal():
        return float(value[:9])
    date = header_seconds(value)
    return None if date is None else max(0.0, date - now)
