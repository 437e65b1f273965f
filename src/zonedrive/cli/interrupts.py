"""Ctrl-C before a command begins and after its end: the process ends at once, without a word.

Must not import what takes time, hence `_signal`, the part of `signal` that is there already.  In
between, Ctrl-C raises KeyboardInterrupt, as Python has it; in the middle of an import that would be
a traceback.  Where whoever started us wants the signal to be ignored, it is.
"""

import _signal  # type: ignore[import-not-found]
import os


def quiet() -> None:
    """From now on it ends the process."""
    if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
        _signal.signal(_signal.SIGINT, _leave)


def heard() -> None:
    """From now on it is an exception again, where it was quiet."""
    if _signal.getsignal(_signal.SIGINT) is _leave:
        _signal.signal(_signal.SIGINT, _signal.default_int_handler)


def _leave(number: int, frame: object) -> None:
    os._exit(128 + number)
