"""Waiting for events: repeated checks until a deadline, never a fixed sleep."""

import errno
import time
from collections.abc import Callable
from typing import TypeVar

Value = TypeVar("Value")

GLANCE_SECONDS = 0.02
"""Shortest time between two looks."""

LONGEST_GLANCE_SECONDS = 0.25

PATIENCE_SECONDS = 60.0
"""Longest time that a busy machine may take for anything."""


def eventually(
    look: Callable[[], Value], seconds: float = PATIENCE_SECONDS, *, what: str = ""
) -> Value:
    """Return the first true value that `look` gives within `seconds`.

    A failed assertion in `look`, a missing file, one whose version changes while it is read
    (ESTALE), or one in /proc of a process or thread that ends meanwhile (ESRCH), counts as not yet.
    Raises AssertionError with the last result.

    Waits between two looks for a tenth of the time so far, or twice as long as the last look took:
    looking then leaves most of the machine to what is waited for.
    """
    began = time.monotonic()
    end = began + seconds
    while True:
        last: object
        looked = time.monotonic()
        try:
            value = look()
            if value:
                return value
            last = value
        except AssertionError as not_yet:
            last = not_yet
        except OSError as wrong:
            if wrong.errno not in (errno.ENOENT, errno.ESTALE, errno.ESRCH):
                raise
            last = wrong
        now = time.monotonic()
        if now > end:
            raise AssertionError(f"not within {seconds} s: {what or look} (last seen: {last!r})")
        glance = max(GLANCE_SECONDS, (now - began) / 10, 2 * (now - looked))
        time.sleep(min(glance, LONGEST_GLANCE_SECONDS))
