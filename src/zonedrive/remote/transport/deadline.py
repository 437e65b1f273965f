"""The deadline for the whole answer to a request that a thread sends.

A socket's timeout is for each read, which an answer in small pieces never meets.  Must not know
sockets.
"""

import contextlib
import time
from collections.abc import Iterator
from contextvars import ContextVar


class _Deadline:
    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.end: float | None = None  # None: the request is not sent yet


_CURRENT: ContextVar[_Deadline | None] = ContextVar("deadline", default=None)


@contextlib.contextmanager
def answer_within(seconds: float) -> Iterator[None]:
    """Let what this thread reads inside the block come within so many seconds in all.

    They count from the end of the request that is sent in the block.
    """
    token = _CURRENT.set(_Deadline(seconds))
    try:
        yield
    finally:
        _CURRENT.reset(token)


def restart() -> None:
    """A part of a request is about to be sent."""
    if (current := _CURRENT.get()) is not None:
        current.end = None


def left(timeout: float | None) -> float | None:
    """Return `timeout`, or what is left for the whole answer.  Raises TimeoutError."""
    if (current := _CURRENT.get()) is None:
        return timeout
    now = time.monotonic()
    if current.end is None:
        current.end = now + current.seconds
    if current.end <= now:
        raise TimeoutError(f"the answer takes longer than {current.seconds:g} s")
    remaining = current.end - now
    return remaining if timeout is None else min(timeout, remaining)
