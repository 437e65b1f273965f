"""Waiting for events: repeated checks until a deadline, never a fixed sleep."""

import errno
import time
from collections.abc import Callable
from typing import TypeVar

Value = TypeVar("Value")

GLANCE_SECONDS = 0.02

PATIENCE_SECONDS = 60.0
"""Longest time that a busy machine may take for anything."""


def eventually(
    look: Callable[[], Value], seconds: float = PATIENCE_SECONDS, *, what: str = ""
) -> Value:
    """Return the first true value that `look` gives within `seconds`.

    A failed assertion in `look`, a missing file, or one whose version changes while it is read
    (ESTALE), counts as not yet.  Raises AssertionError with the last result.
    """
    end = time.monotonic() + seconds
    while True:
        last: object
        try:
            value = look()
            if value:
                return value
            last = value
        except AssertionError as not_yet:
            last = not_yet
        except OSError as wrong:
            if wrong.errno not in (errno.ENOENT, errno.ESTALE):
                raise
            last = wrong
        if time.monotonic() > end:
            raise AssertionError(f"not within {seconds} s: {what or look} (last seen: {last!r})")
        time.sleep(GLANCE_SECONDS)
