"""Standard streams that were closed by whoever started the process, put in place again.

Must not import anything of zonedrive: it runs before everything else.

INVARIANT: afterwards the descriptors 0, 1 and 2 are taken, so that no pipe, socket or store of
ours is ever mistaken for one of them.
"""

import os
import sys

closed: set[int] = set()
"""Those that were; what is written to them reaches nobody."""


def complete() -> None:
    """Open /dev/null on each of 0, 1 and 2 that is closed; streams that work stay as they are."""
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
