"""When to ask again: capped exponential backoff with full jitter, within a deadline.

Pure arithmetic; must not know clocks, requests or the link.  Only for requests whose repetition
does no harm.
"""

from dataclasses import dataclass

from zonedrive.errors import Interrupted, TimedOut, Unavailable, Unreachable, Untrusted
from zonedrive.remote.wire.dates import header_seconds

# The longest wait a service may impose by Retry-After; what is longer is a matter for the caller.
LONGEST_WISH = 30.0


@dataclass(frozen=True)
class Backoff:
    """Waits of up to `first`, 2 `first`, 4 `first` … seconds, never above `cap`."""

    first: float = 0.25
    cap: float = 4.0
    attempts: int = 4

    def ceiling(self, failures: int) -> float:
        """The longest wait in seconds after `failures` >= 1 in a row."""
        return min(self.cap, self.first * 2.0 ** min(failures - 1, 32))

    def delay(
        self, failures: int, chance: float, remaining: float, wish: float | None = None
    ) -> float | None:
        """Seconds to wait before the next attempt, or None: give up.

        `chance` is a random number from 0 to 1, `remaining` the seconds left, `wish` what
        Retry-After asked for.
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
    """Whether the same harmless request may succeed a little later."""
    if isinstance(error, Untrusted):
        return False
    return isinstance(error, Unavailable | Interrupted | TimedOut | Unreachable)


def retry_after(value: str | None, now: float) -> float | None:
    """Seconds that a Retry-After header asks for (a number or a date), None for none or nonsense.

    `now` is the wall clock in seconds since the epoch.
    """
    if value is None:
        return None
    value = value.strip()
    if value.isascii() and value.isdecimal():
        return float(value[:9])
    date = header_seconds(value)
    return None if date is None else max(0.0, date - now)
