"""Signal that interrupts a loop that hangs in a read."""

import os
import signal

import trio

from tests.harness.waiting import eventually
from zonedrive.fuse.eintr_timer import SECONDS, EintrTimer


async def test_the_signal_comes_only_while_the_loop_is_awake() -> None:
    """A busy loop is watched; a sleeping one gets no signal, and no timer is left at the end."""

    before = signal.getsignal(signal.SIGALRM)

    def asleep() -> bool:
        return signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)

    with EintrTimer():
        for _ in range(3):
            left, again = signal.getitimer(signal.ITIMER_REAL)
            assert 0 < left <= SECONDS == again
            await trio.to_thread.run_sync(eventually, asleep)
    assert asleep()
    assert signal.getsignal(signal.SIGALRM) is before


async def test_a_loop_that_is_stuck_is_interrupted() -> None:
    """A system call that would block without an end returns after a moment."""
    reading, writing = os.pipe()
    with EintrTimer():
        # Python itself would try again after a signal: a handler that writes shows that it came.
        signal.signal(signal.SIGALRM, lambda number, _frame: os.write(writing, b"x"))
        assert os.read(reading, 1) == b"x"
    os.close(reading)
    os.close(writing)
