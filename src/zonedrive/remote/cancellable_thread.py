"""Blocking work in a thread that trio can cancel.

Knows nothing about the work itself.

INVARIANT: when `errand` returns, the work has ended. A result of the work of `loose` is either
returned or passed to `drop`.
"""

import threading
from collections.abc import Callable
from typing import TypeVar

import trio

ResultT = TypeVar("ResultT")


async def errand(
    work: Callable[[Callable[[], bool]], ResultT], stop: Callable[[], None] = lambda: None
) -> ResultT:
    """Run `work` in a thread and return its result or raise its error.

    On cancellation, `stop` is called, and the callable passed to `work` returns True from then on.
    `errand` still waits for the end of the work.
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
        except Exception as wrong:  # raised outside the nursery, so not in a group
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
    """Run `work` like `errand`, but on cancellation do not wait for its end.

    A result that comes after the cancellation goes to `drop`.
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
