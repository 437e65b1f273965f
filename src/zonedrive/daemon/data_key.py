"""Data key of a running mount, and its restoration if the secret store has lost the key.

The daemon has the key in memory. If the keyring is emptied or the file with the secrets is removed,
the pending changes would be unreadable after the end of the daemon.

INVARIANT: a different key in the store is never replaced, and the user is never asked to unlock a
keyring.
INVARIANT: the key is stored only for the database that the daemon has opened, never after a logoff
has deleted this database.
"""

import logging
import os
from collections.abc import Callable
from contextlib import suppress
from functools import partial

import trio

from zonedrive.errors import StoreError, described
from zonedrive.logon.account_lock import locked
from zonedrive.logon.keys import restore_key
from zonedrive.logon.secrets import (
    InsecurePermissions,
    KeyringLocked,
    SecretStore,
    desktop_keyring,
    open_store,
)
from zonedrive.paths import AccountPaths

log = logging.getLogger(__name__)

SECONDS = 4.0  # maximum duration of a check; the client of `logged-on` waits a little longer


def open_silently(paths: AccountPaths) -> SecretStore:
    """Return the account's secret store, which raises KeyringLocked instead of prompting."""
    return open_store(paths, find_keyring=partial(desktop_keyring, may_prompt=False))


class DataKey:
    """Data key of one account, and the database that the key encrypts."""

    def __init__(
        self,
        paths: AccountPaths,
        master: bytes | None,
        store: Callable[[AccountPaths], SecretStore] = open_silently,
    ) -> None:
        """Set the data key; `master` is None if nothing is encrypted.

        With a key, the database must exist. `store` returns the account's secret store. The store
        is opened at each check, because a later logon may have chosen another store.
        """
        self._paths, self._master, self._open_store = paths, master, store
        self._database = paths.database.stat() if master is not None else None
        self.problem: StoreError | None = None  # set while the store does not have the key
        # A process that is stopped while it holds the account's lock must block only one thread.
        self._limiter = trio.CapacityLimiter(1)

    async def keep(self) -> None:
        """Restore the key if the secret store lacks the key, and update `problem`.

        A check that takes longer than SECONDS continues in its thread, and does not change
        `problem`. A locked keyring, or a secrets file with unsafe permissions, does not change
        `problem` either, because both still contain the key.
        """
        with trio.move_on_after(SECONDS):
            problem = await trio.to_thread.run_sync(
                self._restored, abandon_on_cancel=True, limiter=self._limiter
            )
            if problem is not None and self.problem is None:
                log.error("the data key is not stored: %s", described(problem))
            self.problem = problem

    def _restored(self) -> StoreError | None:
        """Restore the key if the secret store lacks the key; return the new value of `problem`.

        Return None, without a check, if nothing is encrypted or the database was deleted.
        """
        if self._master is None:
            return None
        with locked(self._paths):
            if not self._has_database():
                return None
            try:
                if restore_key(self._open_store(self._paths), self._master):
                    log.warning("the data key was missing from the store, and is stored again")
            except (KeyringLocked, InsecurePermissions):
                return self.problem
            except StoreError as wrong:
                return StoreError(
                    "the account's data key is not stored, so an unmount makes the local data"
                    f" unreadable: {wrong.message}",
                    remedy=wrong.remedy,
                )
        return None

    def _has_database(self) -> bool:
        with suppress(OSError):
            found = self._paths.database.stat()
            return self._database is not None and os.path.samestat(found, self._database)
        return False
