"""Local data of an account, and its deletion.

Does not talk to the service and does not read the stores: callers provide the number of pending
uploads.
"""

import shutil
from pathlib import Path

import msgspec

from zonedrive.errors import StoreError
from zonedrive.formatting import unsent
from zonedrive.logon import keys
from zonedrive.logon.secrets import PASSWORD, REFUSED, FileStore, SecretStore
from zonedrive.paths import AccountPaths


class Backlog(msgspec.Struct, frozen=True):
    """Pending changes that the service does not have yet."""

    files: int = 0  # everything that waits
    bytes: int = 0
    changes: int = 0  # those among `files` that have no content to upload

    def __str__(self) -> str:
        return unsent(msgspec.structs.asdict(self))


class LocalData(msgspec.Struct, frozen=True):
    """Data that only this machine has; `lost`, `local` and `wanted` are numbers of files."""

    backlog: Backlog = Backlog()
    lost: int = 0  # in lost+found
    local: int = 0  # with names of local_only
    wanted: int = 0  # those of `local` that are the user's, not temporary files of programs


def ca_copy(paths: AccountPaths) -> Path:
    """Return the path of the account's own copy of the CA certificate."""
    return paths.state / "ca.pem"


def forget_data(paths: AccountPaths, store: SecretStore) -> None:
    """Delete the data key, cache, database and spooled bytes; the logon stays."""
    store.delete(keys.NAME)
    shutil.rmtree(paths.cache, ignore_errors=True)
    shutil.rmtree(paths.outgoing, ignore_errors=True)
    paths.run_record.unlink(missing_ok=True)
    for suffix in ("", "-wal", "-shm"):
        paths.database.with_name(paths.database.name + suffix).unlink(missing_ok=True)


def destroy(paths: AccountPaths, store: SecretStore, *, lost: bool = False) -> str:
    """Delete everything of the account, the key first, so that data left by a crash is unreadable.

    Raises StoreError if the secrets cannot be deleted, OSError if folders cannot. With `lost`, the
    rest is deleted even if the secrets cannot be; the error message about the secrets is returned.
    """
    from zonedrive.logon import bearer_auth  # slow to import, and few commands need it

    wrong = ""
    try:
        FileStore(paths.secrets_file).destroy()
        for name in (keys.NAME, PASSWORD, bearer_auth.NAME, REFUSED):
            store.delete(name)
    except StoreError as error:
        if not lost:
            raise
        wrong = error.message
    for folder in (paths.cache, paths.state):
        if folder.exists():
            shutil.rmtree(folder)
    return wrong
