"""Previous logon of an account, and the local data that belongs to the user of that logon.

This module sends no requests and does not read the database: see `LocalDataQueries`.

INVARIANT: pending uploads are never sent as another user, and never deleted without a message.
INVARIANT: while one user's data is replaced by another user's data, no daemon of the account can
start.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass

from zonedrive.errors import ConfigError, NotLoggedOn
from zonedrive.formatting import count, verb
from zonedrive.logon import keys
from zonedrive.logon.account import Account
from zonedrive.logon.account_data import LocalData, forget_data
from zonedrive.logon.secrets import SecretStore
from zonedrive.paths import AccountPaths, quoted


@dataclass(frozen=True)
class LocalDataQueries:
    """Queries about an account's current state on this machine, implemented in other packages."""

    local_data: Callable[[AccountPaths], LocalData]
    running: Callable[[AccountPaths], bool]  # True if a daemon is running
    needs_key: Callable[[AccountPaths], bool]  # True if local data is encrypted
    hold: Callable[[AccountPaths], AbstractContextManager[None]]  # prevents daemons from starting
    forbidden: Callable[[AccountPaths], ConfigError | None]  # error of a mount, by a policy


class PreviousAccount:
    """Previous logon of an account, if any, and the local data of its user."""

    def __init__(self, paths: AccountPaths, queries: LocalDataQueries) -> None:
        self._paths, self._queries = paths, queries
        self.account: Account | None = None
        with suppress(NotLoggedOn, ConfigError):
            self.account = Account.load(paths)

    def at(self, base_url: str) -> Account | None:
        """Return the previous account if its service is the one at `base_url`, else None."""
        found = self.account
        return found if found is not None and found.base_url == base_url else None

    @property
    def hold(self) -> AbstractContextManager[None]:
        """Context manager that prevents the account's daemon from starting.

        Entering the context raises AlreadyRunning if a daemon is running.
        """
        return self._queries.hold(self._paths)

    def is_of(self, account: Account) -> bool:
        """Return True if the user of `account` is the previous user, who owns the local data.

        If the previous user is unknown, return True if there is neither a database nor a file
        that waits for upload.
        """
        if self.account is None:
            has_data = self._paths.database.exists() or self._queries.local_data(self._paths).lost
            return not has_data
        return self.account.same_owner(account)

    def refuse_takeover(self) -> None:
        """Raise ConfigError if another user must not take over this account.

        The error is raised if a daemon is running, or if some data exists only on this machine.
        """
        here, running = self._queries.local_data(self._paths), self._queries.running(self._paths)
        waiting, what = here.backlog, here.kept
        if what and self.account is None:
            raise ConfigError(
                f"{self._paths.account_file} cannot be read, so the owner of {what}, which only"
                " this machine has, is unknown",
                remedy="restore it from a backup, use another --account, or delete all of it with"
                f" 'rm -r {quoted(self._paths.state)}'",
            )
        if what and not running and (policy := self._queries.forbidden(self._paths)):
            raise ConfigError(
                policy.message,
                remedy=f"{policy.remedy}; or keep both apart with --account NAME",
            )
        if waiting.files:
            option = self._paths.option
            first = "run" if running else f"run 'zonedrive mount DIR{option}' and"
            raise ConfigError(
                f"account {self._paths.account} holds {what} of {self.whose}"
                f" that {verb(waiting.files)} not uploaded yet",
                remedy=f"{first} 'zonedrive sync{option}' first, or keep both apart with --account"
                " NAME; if that service is gone, copy what you need from the mount, then run"
                f" 'zonedrive logoff --discard{option}'",
            )
        if what:
            raise ConfigError(
                f"account {self._paths.account} holds {what} of {self.whose}",
                remedy="mount it and copy what you need from there, or keep both apart with"
                " --account NAME",
            )
        if running:
            raise ConfigError(
                f"account {self._paths.account} is mounted as {self.whose}",
                remedy="unmount it first, or keep both apart with --account NAME",
            )

    def forget(self, store: SecretStore) -> str:
        """Delete the previous user's local data, and return a message for the user.

        The caller must have entered the context manager `hold`. Raises ConfigError if data that
        exists only on this machine would be lost.
        """
        here = self._queries.local_data(self._paths)
        if here.kept:  # saved after the first check
            self.refuse_takeover()
        forget_data(self._paths, store)
        also = f", and {count(here.local, 'file')} of local_only" if here.local else ""
        return f"the local data of {self.whose} is deleted: cache, names, data key{also}"

    def require_key(self, store: SecretStore) -> None:
        """Raise StoreError if the local data is encrypted and its key is missing.

        Raise no error while a daemon is running, because the daemon stores the key again. Also
        raise no error if the previous account is unknown, because the remedy, a logoff, is not
        possible.
        """
        if (
            self.account is not None
            and self._queries.needs_key(self._paths)
            and store.get(keys.NAME) is None
            and not self._queries.running(self._paths)
        ):
            raise keys.gone()

    @property
    def whose(self) -> str:
        """User and service of the previous logon, for messages."""
        if self.account is None:
            return "a former logon"
        return f"{self.account.username} at {self.account.base_url}"
