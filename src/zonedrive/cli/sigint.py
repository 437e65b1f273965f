"""Handling of Ctrl-C outside a command: the process exits at once and without output.

During a command, Ctrl-C raises KeyboardInterrupt as usual. During the import of a command,
KeyboardInterrupt would print a traceback. If the parent process has set SIGINT to be ignored,
SIGINT stays ignored.

Python prints and drops a KeyboardInterrupt that is raised in a finalizer or in the callback of a
weak reference, such as those of import locks. Then SIGINT is sent again, and nothing is printed.

This module imports no slow modules; `_signal` is the part of `signal` that is already loaded.
"""

import _signal  # type: ignore[import-not-found]
import _thread
import os
import sys
import time

AGAIN_S = 0.01  # time until SIGINT is sent again; the finalizer or callback has then ended


def quiet() -> None:
    """Make Ctrl-C end the process at once, with exit code 130 and without output."""
    if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
        _signal.signal(_signal.SIGINT, _leave)


def heard() -> None:
    """Make Ctrl-C raise KeyboardInterrupt again, if `quiet` was called."""
    if _signal.getsignal(_signal.SIGINT) is _leave:
        _signal.signal(_signal.SIGINT, _signal.default_int_handler)
        sys.unraisablehook = _dropped


def _leave(number: int, frame: object) -> None:
    os._exit(128 + number)


def _dropped(dropped: "sys.UnraisableHookArgs") -> None:
    if dropped.exc_type is KeyboardInterrupt:
        _thread.start_new_thread(_send_again, ())
    else:
        sys.__unraisablehook__(dropped)


def _send_again() -> None:
    time.sleep(AGAIN_S)
    os.kill(os.getpid(), _signal.SIGINT)
