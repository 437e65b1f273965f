"""Replacement of closed standard streams.

Imports nothing of zonedrive, because it runs before everything else.

INVARIANT: afterwards the descriptors 0, 1 and 2 are in use, so that no pipe, socket or store of
zonedrive gets one of these numbers.
"""

import os
import sys

closed: set[int] = set()
"""Descriptors that were closed; output to them is discarded."""


def complete() -> None:
    """Open /dev/null on each closed descriptor of 0, 1 and 2; leave open streams unchanged."""
    while (descriptor := os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)) <= 2:
        os.set_inheritable(descriptor, True)
        closed.add(descriptor)
    os.close(descriptor)
    if sys.stdin is None:
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
