"""Retry delays: capped exponential backoff with full jitter, within a deadline.

This module only computes delays; it reads no clock and sends no requests. Use the delays only for
requests that are safe to repeat.
"""

from dataclasses import dataclass

from zonedrive.errors import RemoteError, Unavailable, Unreachable, Untrusted

LONGEST_RETRY_AFTER = 30.0
"""Longest accepted Retry-After in seconds; `delay` gives up if the service asks for more."""


@dataclass(frozen=True)
class Backoff:
    """Exponential backoff, up to a total of `attempts` attempts.

    The delays have upper bounds of `first`, 2 `first`, 4 `first` … seconds, but at most `cap`.
    """

    first: float = 0.25
    cap: float = 4.0
    attempts: int = 4

    def ceiling(self, failures: int) -> float:
        """Return the longest delay in seconds after `failures` >= 1 consecutive failures."""
        return min(self.cap, self.first * 2.0 ** min(failures - 1, 32))

    def delay(
        self, error: RemoteError, failures: int, chance: float, remaining: float
    ) -> float | None:
        """Return the number of seconds to wait before the next attempt, or None to give up.

        `error` is the error of the last attempt, `chance` a random number from 0 to 1, `remaining`
        the seconds until the deadline.
        """
        if failures >= self.attempts or isinstance(error, Untrusted):
            return None
        if not isinstance(error, Unavailable | Unreachable):
            return None
        wait = self.ceiling(failures) * chance
        retry_after = error.retry_after if isinstance(error, Unavailable) else None
        if retry_after is not None:
            if retry_after > LONGEST_RETRY_AFTER:
                return None
            wait = max(wait, retry_after)
        return wait if wait < remaining else None
