"""Deletion of an account's local data, and the amount of data that would be lost.

This module sends no requests and does not read the database.
"""

import os
import shutil
from pathlib import Path

import msgspec

from zonedrive.db import LOG_MARK
from zonedrive.errors import StoreError, ZonedriveError
from zonedrive.formatting import count, unsent
from zonedrive.logon import keys
from zonedrive.logon.secrets import PASSWORD, REFUSED, FileStore, SecretStore
from zonedrive.paths import AccountPaths
from zonedrive.translation import marked


class Backlog(msgspec.Struct, frozen=True):
    """Number and size of the pending changes, which the service does not have yet."""

    files: int = 0  # number of pending changes of all kinds
    bytes: int = 0
    changes: int = 0  # number of the changes in `files` that have no content to upload

    def __str__(self) -> str:
        return unsent(msgspec.structs.asdict(self))


class LocalData(msgspec.Struct, frozen=True):
    """Amount of data that exists only on this machine."""

    backlog: Backlog = Backlog()
    lost: int = 0  # files in lost+found
    local: int = 0  # local-only files (names that match the setting local_only)
    wanted: int = 0  # files in `local`, except temporary files of programs

    @property
    def kept(self) -> str:
        """Text about the data that a logoff without --discard must not delete; "" if none exists.

        The text names only the first kind of data that exists: pending changes, files in
        lost+found, or local-only files (without temporary files of programs).
        """
        if self.backlog.files:
            return str(self.backlog)
        if self.lost:
            return marked(f"{count(self.lost, 'file')} in lost+found")
        return marked(f"{count(self.wanted, 'file')} of local_only") if self.wanted else ""


def forget_data(paths: AccountPaths, store: SecretStore) -> None:
    """Delete the account's data key, cache, database and pending uploads, but not the logon.

    Raises StoreError if the key cannot be deleted, and OSError if the database cannot be deleted.
    """
    store.delete(keys.NAME)
    shutil.rmtree(paths.cache, ignore_errors=True)
    shutil.rmtree(paths.outgoing, ignore_errors=True)
    paths.run_record.unlink(missing_ok=True)
    _delete_database(paths)


def _delete_database(paths: AccountPaths) -> None:
    for suffix in ("", "-wal", "-shm", LOG_MARK):
        paths.database.with_name(paths.database.name + suffix).unlink(missing_ok=True)


def require_deletable(paths: AccountPaths) -> None:
    """Raise ZonedriveError if permissions prevent `destroy` from deleting the account's folders."""
    for folder in (paths.state, paths.cache):
        if folder.exists() and (closed := _closed(folder)) is not None:
            raise ZonedriveError(
                f"nothing can be destroyed: you may not delete what is in {closed}",
                remedy="make it and the folders in it readable and writable for you, and try again",
            )


def _closed(folder: Path) -> Path | None:
    """Return a folder in which the user may not list or delete entries, or None.

    Checks the parent of `folder`, `folder`, and all folders below `folder`.
    """
    unlisted: list[OSError] = []
    below = (Path(name) for name, _, _ in os.walk(folder, onerror=unlisted.append))
    for each in (folder.parent, *below):
        if not os.access(each, os.W_OK | os.X_OK) and each.exists():
            return each
    return next((Path(e.filename) for e in unlisted if isinstance(e, PermissionError)), None)


def destroy(paths: AccountPaths, store: SecretStore, *, lost: bool = False) -> str:
    """Delete the account's secrets, then the account's folders; return "" on success.

    Raises StoreError if the secrets cannot be deleted. If `lost` is True, the folders are deleted
    nevertheless, and the message of the StoreError is returned. Raises OSError if the folders
    cannot be deleted.
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
    # Without the key, files that a crash leaves behind are unreadable. The account file is deleted
    # late, so that the logoff can be repeated. A database without its key would prevent a logon.
    for folder in (paths.cache, paths.outgoing):
        if folder.exists():
            shutil.rmtree(folder)
    _delete_database(paths)
    if paths.state.exists():
        shutil.rmtree(paths.state)
    return wrong
