"""Timer that interrupts the event loop's read of /dev/fuse if the read blocks.

The read holds the GIL. If the expected request was withdrawn in the meantime, because its process
was killed, the read would wait for the next request and freeze the daemon. The timer's signal
interrupts the read.

Starting and stopping the timer costs two system calls, so the timer is not stopped each time the
loop sleeps. If a signal of the timer has woken the sleeping loop, the timer is stopped during the
loop's next sleep.

INVARIANT: at most one signal arrives while the loop sleeps, so an idle mount causes at most one
wakeup.
"""

import signal
from types import FrameType

import trio

SECONDS = 0.5
"""Interval of the timer's signals in seconds, and the longest time for which a read can block."""


class EintrTimer(trio.abc.Instrument):
    """Context manager that sends SIGALRM at intervals, except while an idle event loop sleeps."""

    def __init__(self) -> None:
        self._before: signal._HANDLER = signal.SIG_DFL
        self._set = False
        self._asleep = False
        self._rang = False  # the last signal has woken the sleeping loop

    def __enter__(self) -> None:
        """Install the signal handler and the timer for the running loop, in the main thread."""
        self._before = signal.signal(signal.SIGALRM, self._ring)
        trio.lowlevel.add_instrument(self)
        self.after_io_wait(0)

    def __exit__(self, *_raised: object) -> None:
        """Stop the timer and restore the previous signal handler."""
        trio.lowlevel.remove_instrument(self)
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, self._before)

    def before_io_wait(self, timeout: float) -> None:
        """Stop the timer if its signal has woken the loop; called before the loop sleeps."""
        self._asleep = timeout > 0
        if self._asleep and self._rang:
            self._rang = self._set = False
            signal.setitimer(signal.ITIMER_REAL, 0)

    def after_io_wait(self, timeout: float) -> None:
        """Start the timer unless it is running; called after the loop has woken up."""
        self._asleep = False
        if not self._set:
            self._set = True
            signal.setitimer(signal.ITIMER_REAL, SECONDS, SECONDS)

    def _ring(self, number: int, frame: FrameType | None) -> None:
        """Record whether SIGALRM woke a sleeping loop; the signal itself interrupts a read."""
        self._rang = self._asleep
