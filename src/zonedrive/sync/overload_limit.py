"""Limit on concurrent steps of the outbox while the service reports an overload (429, 503).

This module only computes the limit and the pauses; the dispatcher applies them. Without an
overload, the limit is at its maximum, and there are no pauses.

A rejection halves the number of concurrent steps, and no step starts until a pause has passed. The
pause grows with each rejection in a row, with jitter, and is at least as long as the service asks
for. Each round of successful steps adds one step to the limit.

INVARIANT: a step that began before the last counted rejection does not change the limit when it
succeeds or is rejected. Its rejection can only prolong the pause, if the service asks for a longer
pause. Concurrent rejections therefore count as one.

INVARIANT: the limit is at least one, and a pause takes at most LONGEST_RETRY_AFTER seconds.
"""

import random
from collections.abc import Callable

import trio

from zonedrive.remote.retry import LONGEST_RETRY_AFTER, Backoff

PAUSE = Backoff(first=0.5, cap=4.0)


class OverloadLimit:
    """Adaptive limit on concurrent steps."""

    def __init__(
        self,
        most: int,
        *,
        clock: Callable[[], float] = trio.current_time,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """Start with the limit `most`; `chance` returns numbers from 0 to 1 for the jitter."""
        self._most = most
        self._clock = clock
        self._chance = chance
        self._rejected_at = self._closed_until = float("-inf")
        self._limit = float(most)
        self.rejections = 0  # in a row

    @property
    def allowed(self) -> int:
        """Number of steps that may run at the same time."""
        return int(self._limit)

    def now(self) -> float:
        """Return the current time in seconds, to record when a step begins."""
        return self._clock()

    def time_left(self) -> float:
        """Return the number of seconds until a step may start, or 0 if it may start now."""
        return max(0.0, self._closed_until - self._clock())

    def rejected(self, began: float, running: int, retry_after: float | None) -> None:
        """Record that the service rejected a step because of overload.

        The step began at `began` (see `now`). `running` is the number of running steps, including
        this step. `retry_after` is the pause in seconds that the service asks for, or None.
        """
        now, pause = self._clock(), min(retry_after or 0.0, LONGEST_RETRY_AFTER)
        if began >= self._rejected_at:
            self._rejected_at = now
            self.rejections += 1
            self._limit = max(1.0, min(self._limit, running) // 2)
            jitter = 0.5 + self._chance() / 2
            pause = max(pause, PAUSE.ceiling(self.rejections) * jitter)
        self._closed_until = max(self._closed_until, now + pause)

    def succeeded(self, began: float) -> None:
        """Record that a step that began at `began` (see `now`) succeeded."""
        if began >= self._rejected_at:
            self.rejections = 0
            self._limit = min(self._most, self._limit + 1 / self._limit)
