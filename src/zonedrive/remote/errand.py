"""Blocking work in a thread that trio can cancel.

Must not know what the work is.

INVARIANT: when `errand` has ended, so has the work.  Nothing that the work of `loose` gives is
left without an owner.
"""

import threading
from collections.abc import Callable
from typing import TypeVar

import trio

ResultT = TypeVar("ResultT")


async def errand(
    work: Callable[[Callable[[], bool]], ResultT], stop: Callable[[], None] = lambda: None
) -> ResultT:
    """What `work` gives, or raises, in a thread.

    On a cancellation `stop` is called, and what was handed to `work` gives true from then on;
    then its end is waited for.
    """
    ended = unwanted = False
    done: list[ResultT] = []
    failed: list[Exception] = []

    async def watch() -> None:
        nonlocal unwanted
        try:
            await trio.sleep_forever()
        finally:
            if not ended:
                unwanted = True
                stop()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch)
        try:
            with trio.CancelScope(shield=True):
                done.append(await trio.to_thread.run_sync(work, lambda: unwanted))
        except Exception as wrong:  # raised below, where no group is made of it
            failed.append(wrong)
        ended = True
        nursery.cancel_scope.cancel()
    await trio.lowlevel.checkpoint_if_cancelled()
    if failed:
        raise failed[0]
    return done[0]


async def loose(
    work: Callable[[Callable[[], bool]], ResultT], drop: Callable[[ResultT], None] = lambda _: None
) -> ResultT:
    """As `errand`, for work that cannot be stopped at once: a cancellation does not wait for it.

    What it gives after that goes to `drop`.
    """
    lock = threading.Lock()
    unwanted = False
    done: list[ResultT] = []

    def run() -> None:
        result = work(lambda: unwanted)
        with lock:
            done.append(result)
            if unwanted:
                drop(done.pop())

    try:
        await trio.to_thread.run_sync(run, abandon_on_cancel=True)
    except trio.Cancelled:
        with lock:
            unwanted = True
            for result in done:
                drop(result)
        raise
    return done[0]
