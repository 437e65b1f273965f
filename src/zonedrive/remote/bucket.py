"""A rate limit that several threads share: a token bucket in bytes.

Must not know what the bytes are.

INVARIANT: over any long time no more than `rate` bytes a second pass, and at most one second's
worth at once.
"""

import threading
import time
from collections.abc import Callable


class TokenBucket:
    """Lets `rate` bytes a second pass, 0 for any number."""

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
        """Bytes to take at a time, so that a slow limit flows rather than jerks."""
        return max(4096, min(1 << 20, self.rate // 8)) if self.rate else 1 << 20

    def take(self, amount: int) -> None:
        """Wait until `amount` bytes may pass.  A taker goes into debt and sleeps it off alone."""
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
