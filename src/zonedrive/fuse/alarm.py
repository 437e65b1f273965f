"""What frees the loop from a read of /dev/fuse that finds nothing.

The read blocks, and holds the interpreter's lock.  When the request that it was woken for has been
withdrawn meanwhile (its asker was killed) it would wait for the next one, and freeze the daemon.
A signal that does nothing interrupts it.

The timer costs two system calls, so it is not stopped at each wait: a signal that finds the loop
asleep stops it.

INVARIANT: at most one signal comes while the loop sleeps: an idle mount wakes nobody.
"""

import signal
from types import FrameType

import trio

SECONDS = 0.5
"""How long the loop may be busy, or blocked, until the signal comes, and until it comes again."""


class Alarm(trio.abc.Instrument):
    """Set whenever the loop is awake."""

    def __init__(self) -> None:
        self._before: signal._HANDLER = signal.SIG_DFL
        self._set = False
        self._asleep = False
        self._rang = False  # the loop is awake because of the signal, and for nothing else

    def __enter__(self) -> None:
        """Watch the running loop, from its main thread."""
        self._before = signal.signal(signal.SIGALRM, self._ring)
        trio.lowlevel.add_instrument(self)
        self.after_io_wait(0)

    def __exit__(self, *_raised: object) -> None:
        """Watch no longer."""
        trio.lowlevel.remove_instrument(self)
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, self._before)

    def before_io_wait(self, timeout: float) -> None:
        """The loop may sleep now, unless there is more to do."""
        self._asleep = timeout > 0
        if self._asleep and self._rang:
            self._rang = self._set = False
            signal.setitimer(signal.ITIMER_REAL, 0)

    def after_io_wait(self, timeout: float) -> None:
        """The loop is awake."""
        self._asleep = False
        if not self._set:
            self._set = True
            signal.setitimer(signal.ITIMER_REAL, SECONDS, SECONDS)

    def _ring(self, number: int, frame: FrameType | None) -> None:
        """Have the timer stopped of a loop that sleeps, once the signal has woken it.

        Of one that does not, the signal itself has interrupted what it is stuck in.
        """
        self._rang = self._asleep
