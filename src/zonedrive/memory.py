"""Memory for content: allocated in large pages, and returned to the system when free.

Requires glibc and Linux; on other systems no memory is returned.
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
    """Return free memory to the system.

    Takes some milliseconds without the interpreter lock: call it in a thread.
    """
    _trim(0)


def large(count: int) -> memoryview:
    """Return at least `count` zero bytes, in large pages if the kernel has them.

    The kernel looks up every page that is copied from or to /dev/fuse, which is faster for large
    pages.
    """
    size = -(-count // LARGE) * LARGE
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(OSError):
        memory.madvise(mmap.MADV_HUGEPAGE)
    return memoryview(memory)
