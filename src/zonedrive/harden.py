"""Keeping the keys in this process out of core dumps and debuggers.

Must not know what the secrets are.  fusermount3 is a program of its own and not concerned.
"""

import ctypes
import resource

_PR_SET_DUMPABLE = 4  # prctl(2)


def no_dumps() -> None:
    """From now on no core file, no crash handler and no debugger of this user sees the memory.

    The limit alone is not enough: where the kernel pipes cores to a program, it is not obeyed.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
