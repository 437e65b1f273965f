"""Summary of an unmounted account's pending changes, and of what still needs its data key.

Works without a key (except for names), a logon or the service, because logon and logoff use it too.
"""

import errno
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

from zonedrive.cipher import Box, Clear
from zonedrive.config import Settings
from zonedrive.content.spool import files, is_any_sealed
from zonedrive.daemon import lock
from zonedrive.errors import MountError, StoreError
from zonedrive.logon.account_data import Backlog
from zonedrive.logon.keys import data_box, kept_key, names_box
from zonedrive.logon.previous_account import LocalDataQueries
from zonedrive.logon.secrets import KeyringTimeout, SecretStore, open_store
from zonedrive.paths import AccountPaths
from zonedrive.state.reader import StateReader

UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM)

UNLOCK_SECONDS = 90.0
"""Time in seconds for the user to unlock a keyring; the start timeout is longer."""

Found = TypeVar("Found")


@contextmanager
def reader(paths: AccountPaths) -> Iterator[StateReader]:
    """Open the account's state for reading; no daemon can start meanwhile. Raises StoreError.

    A running daemon continues, and its commits so far are visible.
    """
    with lock.reading(paths.lock), StateReader.open(paths.database) as state:
        yield state


def at_rest(paths: AccountPaths) -> Backlog:
    """Return the number and bytes of the changes in the account's journal. Raises StoreError."""
    with reader(paths) as state:
        return Backlog(*state.waiting())


def needs_key(paths: AccountPaths) -> bool:
    """Return True if local data may be encrypted; a new key must then not replace the old one."""
    try:
        with reader(paths) as state:
            sealed = state.is_sealed()
    except StoreError:
        return True
    return bool(sealed) or is_any_sealed(paths.outgoing)


def is_sealed(paths: AccountPaths) -> bool | None:
    """Return True if local names are encrypted; None if there are no readable names."""
    with suppress(StoreError), reader(paths) as state:
        return state.is_sealed()
    return None


def is_opened_by(paths: AccountPaths, box: Box) -> bool:
    """Return True if `box` decrypts the local names, or if there are no names to test."""
    with suppress(StoreError), reader(paths) as state:
        return state.is_opened_by(box)
    return True


def lost(paths: AccountPaths) -> int:
    """Return the number of files in lost+found, which exist only locally and are not uploaded.

    Without a database, this is the number of spooled files, because the next mount moves them to
    lost+found. Raises StoreError.
    """
    if not paths.database.exists():
        return files(paths.outgoing)
    with reader(paths) as state:
        return state.lost_files()


def local(paths: AccountPaths) -> int:
    """Return the number of `local_only` files, which the user wants to keep local.

    Raises StoreError.
    """
    with reader(paths) as state:
        return state.local_files()


def wanted(paths: AccountPaths) -> int:
    """Return the number of the user's `local_only` files, excluding temporary files of programs.

    Raises StoreError.
    """
    with reader(paths) as state:
        return state.wanted_files()


def wanted_place(paths: AccountPaths, store: SecretStore) -> str:
    """Return the path of one file of `wanted` in the mount; "" if names cannot be decrypted."""
    with suppress(StoreError):
        key = kept_key(store) if needs_key(paths) else None
        with reader(paths) as state:
            return state.wanted_path(Clear() if key is None else names_box(key))
    return ""


def box_of(paths: AccountPaths, settings: Settings) -> Box:
    """Return the box that decrypts the local names.  Raises StoreError."""
    if not needs_key(paths):
        return Clear()
    secrets = open_store(paths)
    return patiently(lambda: data_box(secrets, settings.encrypt, make=False))[0]


def patiently(look: Callable[[], Found]) -> Found:
    """Return the result of `look`; retry while the user has to unlock the keyring."""
    end = time.monotonic() + UNLOCK_SECONDS
    while True:
        try:
            return look()
        except KeyringTimeout:
            if time.monotonic() >= end:
                raise
        time.sleep(1)


def unreadable(paths: AccountPaths, settings: Settings) -> StoreError:
    """Return the error for local data that the account's key or `encrypt` setting does not fit."""
    sealed = is_sealed(paths)
    if sealed is not None and sealed != settings.encrypt:
        was = str(sealed).lower()
        return StoreError(
            f"what account {paths.account} keeps was made with encrypt = {was}",
            remedy=f"set encrypt = {was} again; to change it, 'zonedrive sync', then 'zonedrive"
            " logoff', change it, and log on",
        )
    return StoreError(
        f"{paths.database} cannot be read with the key of this account",
        remedy="was the keyring emptied, or another one opened?",
    )


@contextmanager
def held(paths: AccountPaths) -> Iterator[None]:
    """Keep daemons of the account from starting. Raises AlreadyRunning if one is running.

    If the lock file cannot be locked (full disk, no lock support), no daemon can start anyway.
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
    """Return True if a daemon is serving the account."""
    return lock.is_held(paths.lock)


PREMISES = LocalDataQueries(at_rest, lost, local, wanted, is_running, needs_key, held)
