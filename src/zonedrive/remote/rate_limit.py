"""Rate limit shared by several threads: a token bucket in bytes.

Knows nothing about the meaning of the bytes.

INVARIANT: over a long time at most `rate` bytes per second pass, and a burst has at most the bytes
of one second.
"""

import threading
import time
from collections.abc import Callable


class TokenBucket:
    """Limiter to `rate` bytes per second; 0 means no limit."""

    def __init__(
        self,
        rate: int,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.rate = rate
        self._clock = clock
        self._sleep = sleep
        self._lock = threading.Lock()
        self._tokens = float(rate)
        self._filled = clock()

    @property
    def piece(self) -> int:
        """Number of bytes to take at a time; small for a low rate, so that the flow is steady."""
        return max(4096, min(1 << 20, self.rate // 8)) if self.rate else 1 << 20

    def take(self, amount: int) -> None:
        """Wait until `amount` bytes may pass at the configured rate."""
        if not self.rate:
            return
        with self._lock:
            now = self._clock()
            self._tokens = min(self.rate, self._tokens + (now - self._filled) * self.rate)
            self._filled = now
            self._tokens -= amount
            debt = -self._tokens
        if debt > 0:
            self._sleep(debt / self.rate)
