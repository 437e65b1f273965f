"""Timer that frees the event loop from a blocking read of /dev/fuse.

The read blocks while it holds the interpreter's lock.  If the request was withdrawn in the meantime
(its process was killed), the read would wait for the next request and freeze the daemon.  A signal
with an empty handler interrupts it.

Setting the timer costs two system calls, so it is not stopped at each wait.  It is stopped when a
signal finds the loop asleep.

INVARIANT: at most one signal arrives while the loop sleeps, so an idle mount causes no wakeups.
"""

import signal
from types import FrameType

import trio

SECONDS = 0.5
"""Seconds for which the loop may be busy or blocked before each signal."""


class EintrTimer(trio.abc.Instrument):
    """Timer that runs while the event loop is awake."""

    def __init__(self) -> None:
        self._before: signal._HANDLER = signal.SIG_DFL
        self._set = False
        self._asleep = False
        self._rang = False  # only the signal has woken the loop

    def __enter__(self) -> None:
        """Start watching the running loop, from its main thread."""
        self._before = signal.signal(signal.SIGALRM, self._ring)
        trio.lowlevel.add_instrument(self)
        self.after_io_wait(0)

    def __exit__(self, *_raised: object) -> None:
        """Stop watching the loop."""
        trio.lowlevel.remove_instrument(self)
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, self._before)

    def before_io_wait(self, timeout: float) -> None:
        """Stop the timer if nothing but its own signal woke the loop."""
        self._asleep = timeout > 0
        if self._asleep and self._rang:
            self._rang = self._set = False
            signal.setitimer(signal.ITIMER_REAL, 0)

    def after_io_wait(self, timeout: float) -> None:
        """Start the timer after the loop has woken up."""
        self._asleep = False
        if not self._set:
            self._set = True
            signal.setitimer(signal.ITIMER_REAL, SECONDS, SECONDS)

    def _ring(self, number: int, frame: FrameType | None) -> None:
        """Handle SIGALRM; record if it woke a sleeping loop, so that the timer is then stopped.

        A blocking read is interrupted by the signal itself; nothing else is necessary.
        """
        self._rang = self._asleep
