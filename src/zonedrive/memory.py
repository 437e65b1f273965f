"""Memory for file content: allocation in huge pages, and return of free memory to the system.

This module requires Linux. Without glibc, `give_back` only frees unused buffers.
"""

import ctypes
import mmap
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

LARGE = 2 << 20  # bytes of a huge page


def _found() -> Callable[[int], object]:
    try:
        trim: Callable[[int], object] = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):
        return lambda pad: None
    return trim


_trim = _found()


def give_back() -> None:
    """Return free memory to the operating system.

    Call this in a thread, because it takes some milliseconds. The interpreter lock is released
    meanwhile.
    """
    for buffers in _all_buffers:
        buffers.free()
    _trim(0)


def large(count: int) -> memoryview:
    """Return new memory of at least `count` zero bytes, in huge pages if the kernel provides them.

    The kernel looks up every page that is copied from or to /dev/fuse. Huge pages need fewer
    lookups.
    """
    size = -(-count // LARGE) * LARGE
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(OSError):
        memory.madvise(mmap.MADV_HUGEPAGE)
    return memoryview(memory)


class Buffers:
    """Thread-safe pool of buffers of one size; `give_back` frees the unused buffers."""

    def __init__(self, size: int) -> None:
        self._size = size  # bytes
        self._unused: deque[memoryview] = deque(maxlen=4)
        _all_buffers.append(self)

    @contextmanager
    def lend(self) -> Iterator[memoryview]:
        """Yield a buffer for use in the `with` block; the buffer may contain old bytes."""
        try:
            lent = self._unused.pop()
        except IndexError:
            lent = large(self._size)
        try:
            yield lent
        finally:
            self._unused.append(lent)

    def free(self) -> None:
        """Free the unused buffers."""
        self._unused.clear()


_all_buffers: list[Buffers] = []
