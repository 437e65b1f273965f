"""Turns for fast transfer threads, so that only one of these threads works at a time.

A fast transfer takes the interpreter lock a few thousand times a second. If several fast transfers
worked at once, the event loop, which answers the kernel, would wait too long for that lock. Slow
transfers need no turn.

INVARIANT: a transfer waits at most PATIENCE_S seconds for a turn, even if the current turn does not
end.
"""

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final

QUANTUM: Final = 2 << 20  # bytes in one turn
FAST: Final = 50e6  # bytes per second; only faster transfers take turns
PATIENCE_S: Final = 0.05  # longest time in seconds that a transfer waits for its turn


class TransferSlots:
    """Turn that only one thread can hold at a time, with a queue of waiting threads.

    The object is thread-safe.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.waiting: deque[threading.Event] = deque()
        self.is_taken = False

    def take(self) -> bool:
        """Wait up to PATIENCE_S seconds for the turn; return True if the caller got the turn."""
        with self._lock:
            if not self.is_taken:
                self.is_taken = True
                return True
            mine = threading.Event()
            self.waiting.append(mine)
        if mine.wait(PATIENCE_S):
            return True
        with self._lock:
            if mine.is_set():
                return True
            self.waiting.remove(mine)
            return False

    def pass_on(self) -> None:
        """End the caller's turn; the thread that has waited longest gets the next turn."""
        with self._lock:
            if self.waiting:
                self.waiting.popleft().set()
            else:
                self.is_taken = False


TURNS: Final = TransferSlots()


class TransferSlot:
    """State of one transfer that takes turns; only the transfer's thread may use this object."""

    def __init__(
        self, turns: TransferSlots = TURNS, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._turns, self._clock = turns, clock
        self._has_turn = False
        self._bytes = 0
        self._since = clock()

    def advance(self, count: int) -> None:
        """Add `count` to the transferred bytes; end or renew the turn after QUANTUM bytes.

        A slow transfer ends its turn. A fast transfer (see FAST) keeps its turn if no other
        transfer is waiting. Otherwise, a fast transfer ends its turn and waits for the next turn.
        """
        self._bytes += count
        if self._bytes < QUANTUM:
            return
        is_fast = self._bytes > FAST * (self._clock() - self._since)
        self._bytes = 0
        if not (self._has_turn and is_fast and not self._turns.waiting):
            self.end()
            self._has_turn = is_fast and self._turns.take()
        self._since = self._clock()

    def end(self) -> None:
        """End the transfer's turn, if the transfer has one."""
        if self._has_turn:
            self._has_turn = False
            self._turns.pass_on()
