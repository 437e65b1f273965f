"""What an account that is not mounted still has to upload, and whether its data key is needed.

Must not need a key (but to tell names), a logon or the service: a logon and a logoff ask it too.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from zonedrive.cipher import Clear
from zonedrive.content.spool import files, is_any_sealed
from zonedrive.daemon import lock
from zonedrive.db import is_unwritable
from zonedrive.errors import MountError, StoreError
from zonedrive.logon.former import Premises
from zonedrive.logon.keys import kept_key, names_box
from zonedrive.logon.local import Backlog
from zonedrive.logon.secrets import SecretStore
from zonedrive.outbox import journal
from zonedrive.paths import AccountPaths
from zonedrive.tree.glance import (
    local_files,
    lost_files,
    may_be_sealed,
    wanted_files,
    wanted_path,
)


def at_rest(paths: AccountPaths) -> Backlog:
    """Changes in the account's journal, and the bytes they hold.  Raises StoreError."""
    return Backlog(*journal.waiting(paths.database))


def needs_key(paths: AccountPaths) -> bool:
    """Whether something here may be encrypted: then no new key may take the place of the old."""
    return may_be_sealed(paths.database) or is_any_sealed(paths.outgoing)


def lost(paths: AccountPaths) -> int:
    """Files in lost+found: only this machine has them, and nothing sends them.

    Where the database is gone, all outgoing bytes are what the next mount puts there.  Raises
    StoreError.
    """
    return lost_files(paths.database) if paths.database.exists() else files(paths.outgoing)


def local(paths: AccountPaths) -> int:
    """Files with names of `local_only`, which only this machine has by the person's own wish.

    Raises StoreError.
    """
    return local_files(paths.database)


def wanted(paths: AccountPaths) -> int:
    """How many of these are a person's own, and nothing that programs keep beside a file.

    Raises StoreError.
    """
    return wanted_files(paths.database)


def wanted_place(paths: AccountPaths, store: SecretStore) -> str:
    """Where one of those is, below the mount; "" where names cannot be read."""
    with suppress(StoreError):
        key = kept_key(store) if needs_key(paths) else None
        return wanted_path(paths.database, Clear() if key is None else names_box(key))
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
        if not is_unwritable(wrong):
            raise
    try:
        yield
    finally:
        taken.release()


def is_running(paths: AccountPaths) -> bool:
    """Whether a daemon has the account."""
    return lock.is_held(paths.lock)


PREMISES = Premises(at_rest, lost, local, wanted, is_running, needs_key, held)
