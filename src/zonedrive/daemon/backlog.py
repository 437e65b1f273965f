"""What an account that is not mounted still has to upload, and whether its data key is needed.

Must not need a key (but to tell names), a logon or the service: a logon and a logoff ask it too.
"""

import errno
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from zonedrive.cipher import Box, Clear
from zonedrive.content.spool import files, is_any_sealed
from zonedrive.daemon import lock
from zonedrive.errors import MountError, StoreError
from zonedrive.logon.former import Premises
from zonedrive.logon.keys import kept_key, names_box
from zonedrive.logon.local import Backlog
from zonedrive.logon.secrets import SecretStore
from zonedrive.paths import AccountPaths
from zonedrive.vfs.state_reader import StateReader

UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM)


@contextmanager
def reader(paths: AccountPaths) -> Iterator[StateReader]:
    """Read the account's state; no daemon begins meanwhile.  Raises StoreError.

    A daemon that runs goes on: its commits so far are read.
    """
    with lock.reading(paths.lock), StateReader.open(paths.database) as state:
        yield state


def at_rest(paths: AccountPaths) -> Backlog:
    """Changes in the account's journal, and the bytes they hold.  Raises StoreError."""
    with reader(paths) as state:
        return Backlog(*state.waiting())


def needs_key(paths: AccountPaths) -> bool:
    """Whether something here may be encrypted: then no new key may take the place of the old."""
    try:
        with reader(paths) as state:
            sealed = state.is_sealed()
    except StoreError:
        return True
    return bool(sealed) or is_any_sealed(paths.outgoing)


def is_sealed(paths: AccountPaths) -> bool | None:
    """Whether names here are encrypted; None where there are none to be read."""
    with suppress(StoreError), reader(paths) as state:
        return state.is_sealed()
    return None


def is_opened_by(paths: AccountPaths, box: Box) -> bool:
    """Whether that box fits; true where there is nothing to try it on."""
    with suppress(StoreError), reader(paths) as state:
        return state.is_opened_by(box)
    return True


def lost(paths: AccountPaths) -> int:
    """Files in lost+found: only this machine has them, and nothing sends them.

    Where the database is gone, all outgoing bytes are what the next mount puts there.  Raises
    StoreError.
    """
    if not paths.database.exists():
        return files(paths.outgoing)
    with reader(paths) as state:
        return state.lost_files()


def local(paths: AccountPaths) -> int:
    """Files with names of `local_only`, which only this machine has by the person's own wish.

    Raises StoreError.
    """
    with reader(paths) as state:
        return state.local_files()


def wanted(paths: AccountPaths) -> int:
    """How many of these are a person's own, and nothing that programs keep beside a file.

    Raises StoreError.
    """
    with reader(paths) as state:
        return state.wanted_files()


def wanted_place(paths: AccountPaths, store: SecretStore) -> str:
    """Where one of those is, below the mount; "" where names cannot be read."""
    with suppress(StoreError):
        key = kept_key(store) if needs_key(paths) else None
        with reader(paths) as state:
            return state.wanted_path(Clear() if key is None else names_box(key))
    return ""


@contextmanager
def held(paths: AccountPaths) -> Iterator[None]:
    """No daemon of the account begins meanwhile.  Raises AlreadyRunning where there is one.

    Where there can be no lock (its disk is full, or knows none), no daemon begins either.
    """
    taken = lock.Lock(paths.lock, paths.account)
    try:
        taken.take(None)
    except MountError:
        pass
    except OSError as wrong:
        if wrong.errno not in UNWRITABLE:
            raise
    try:
        yield
    finally:
        taken.release()


def is_running(paths: AccountPaths) -> bool:
    """Whether a daemon has the account."""
    return lock.is_held(paths.lock)


PREMISES = Premises(at_rest, lost, local, wanted, is_running, needs_key, held)
