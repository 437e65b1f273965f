"""Protection of the keys in this process from core dumps and debuggers.

Knows nothing about the secrets.  fusermount3 is a separate program and not affected.
"""

import ctypes
import resource

_PR_SET_DUMPABLE = 4  # prctl(2)


def no_dumps() -> None:
    """Prevent core files, crash handlers and debuggers of this user from reading the memory.

    The resource limit alone is not enough, because a kernel that pipes core dumps to a program
    ignores it.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
