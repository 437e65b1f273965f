"""Handling of Ctrl-C outside a command: the process exits at once and without output.

During a command, Ctrl-C raises KeyboardInterrupt as usual. During the import of a command,
KeyboardInterrupt would print a traceback. If the parent process has set SIGINT to be ignored,
SIGINT stays ignored.

This module imports no slow modules; `_signal` is the part of `signal` that is already loaded.
"""

import _signal  # type: ignore[import-not-found]
import os


def quiet() -> None:
    """Make Ctrl-C end the process at once, with exit code 130 and without output."""
    if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
        _signal.signal(_signal.SIGINT, _leave)


def heard() -> None:
    """Make Ctrl-C raise KeyboardInterrupt again, if `quiet` was called."""
    if _signal.getsignal(_signal.SIGINT) is _leave:
        _signal.signal(_signal.SIGINT, _signal.default_int_handler)


def _leave(number: int, frame: object) -> None:
    os._exit(128 + number)
