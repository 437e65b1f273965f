"""Memory that was freed is given back to the system, where the C library would keep it.

Knows glibc; elsewhere nothing is done.
"""

import ctypes
from collections.abc import Callable


def _found() -> Callable[[int], object]:
    try:
        trim: Callable[[int], object] = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):
        return lambda pad: None
    return trim


_trim = _found()


def give_back() -> None:
    """Takes some milliseconds, without the interpreter's lock: call it in a thread."""
    _trim(0)
