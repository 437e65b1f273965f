"""Ctrl-C before a command begins and after its end: the process ends at once, without a word.

Must not import what takes time.  In between, Ctrl-C raises KeyboardInterrupt, as Python has it; in
the middle of an import that would be a traceback.  Where whoever started us wants the signal to be
ignored, it is.
"""

import os
import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType


def quiet() -> None:
    """From now on it ends the process."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _leave)


def heard() -> None:
    """From now on it is an exception again, where it was quiet."""
    if signal.getsignal(signal.SIGINT) is _leave:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _leave(number: int, frame: "FrameType | None") -> None:
    os._exit(128 + number)
