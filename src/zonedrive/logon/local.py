"""What of an account lies on this machine, and its destruction.

Must not talk to the service, nor look into the stores: how much waits to be uploaded is told by
whoever knows the journal.
"""

import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec

from zonedrive.amounts import unsent
from zonedrive.errors import StoreError
from zonedrive.logon import keys, session
from zonedrive.logon.secrets import PASSWORD, REFUSED, FileStore, SecretStore
from zonedrive.paths import AccountPaths


class Backlog(msgspec.Struct, frozen=True):
    """What the service does not have yet."""

    files: int = 0  # everything that waits
    bytes: int = 0
    changes: int = 0  # those of them without bytes that are only here

    def __str__(self) -> str:
        """For a sentence."""
        return unsent(msgspec.structs.asdict(self))


FindBacklog = Callable[[AccountPaths], Backlog]
"""Gives the backlog of an account whose daemon may or may not run."""


def ca_copy(paths: AccountPaths) -> Path:
    """Where the account's own copy of a certificate authority is kept."""
    return paths.state / "ca.pem"


def forget_data(paths: AccountPaths, store: SecretStore) -> None:
    """Destroy the data key, the cache, tree, journal and outgoing bytes; the logon stays."""
    store.delete(keys.NAME)
    shutil.rmtree(paths.cache, ignore_errors=True)
    shutil.rmtree(paths.outgoing, ignore_errors=True)
    paths.run_record.unlink(missing_ok=True)
    for suffix in ("", "-wal", "-shm"):
        paths.database.with_name(paths.database.name + suffix).unlink(missing_ok=True)


def destroy(paths: AccountPaths, store: SecretStore, *, lost: bool = False) -> str:
    """Destroy everything of the account, the key first: what a crash leaves is unreadable.

    Raises StoreError where the secrets cannot be destroyed, OSError where folders cannot.  With
    `lost` the rest is destroyed nevertheless, and what kept the secrets from it is given back.
    """
    wrong = ""
    try:
        _destroy_secrets(paths, store)
    except StoreError as error:
        if not lost:
            raise
        wrong = error.message
    for folder in (paths.cache, paths.state):
        if folder.exists():
            shutil.rmtree(folder)
    return wrong


def _destroy_secrets(paths: AccountPaths, store: SecretStore) -> None:
    FileStore(paths.secrets_file).destroy()
    for name in (keys.NAME, PASSWORD, session.NAME, REFUSED):
        store.delete(name)
