"""Memory for content: in large pages, and given back where the C library would keep it.

Knows glibc and Linux; elsewhere nothing is given back.
"""

import ctypes
import mmap
from collections.abc import Callable
from contextlib import suppress

LARGE = 2 << 20  # bytes of a large page


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


def large(count: int) -> memoryview:
    """Return zeros, at least `count`, in large pages where the kernel has them.

    The kernel looks up each page that goes from or to /dev/fuse: in large ones that is quicker.
    """
    size = -(-count // LARGE) * LARGE
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(OSError):
        memory.madvise(mmap.MADV_HUGEPAGE)
    return memoryview(memory)
