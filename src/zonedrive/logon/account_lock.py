"""Lock for an account's stored logon, which consists of the account file and the secrets.

A logon, a logoff, a renewal and a daemon that creates the data key run in different processes. Each
of them holds the lock while it checks and changes the stored logon.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from zonedrive.paths import AccountPaths


@contextmanager
def locked(paths: AccountPaths) -> Iterator[None]:
    """Hold the account's lock while the `with` block runs; wait until the lock is free.

    The lock is on the account's state folder itself, because a logoff deletes all files in it. If
    the folder is missing or cannot be locked, the block runs without the lock.
    """
    descriptor = _lock(paths.state)
    try:
        yield
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _lock(folder: Path) -> int | None:
    while True:
        try:
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            with suppress(OSError):  # for example a file system without lock support
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            # The previous holder may have replaced the folder.
            if os.path.samestat(os.fstat(descriptor), folder.stat()):
                return descriptor
        except FileNotFoundError:
            pass
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
