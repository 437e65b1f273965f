"""The account that is looked at: each fact is found out once, when the first check wants it.

Must not judge anything.
"""

from collections.abc import Callable
from functools import cached_property

from zonedrive import config
from zonedrive.config import Settings
from zonedrive.daemon.lock import is_held
from zonedrive.daemon.protocol import Message
from zonedrive.errors import NotLoggedOn, ZonedriveError
from zonedrive.logon.account import Account
from zonedrive.logon.secrets import SecretStore, open_store
from zonedrive.paths import AccountPaths, config_file
from zonedrive.remote import glance
from zonedrive.remote.glance import Glance


class Patient:
    """One account on this machine."""

    def __init__(self, paths: AccountPaths, ask: Callable[[], Message]) -> None:
        """`ask` gives the daemon's vital signs, or raises where it does not answer."""
        self.paths = paths
        self._ask = ask

    @cached_property
    def account(self) -> Account | None:
        """What the logon kept; None where there was none.  Raises ConfigError."""
        try:
            return Account.load(self.paths)
        except NotLoggedOn:
            return None

    @cached_property
    def settings(self) -> Settings:
        """Of the file.  Raises ConfigError."""
        return config.load(config_file(), self.paths.account)

    @cached_property
    def secrets(self) -> SecretStore:
        """Where token and key are."""
        return open_store(self.paths)

    @cached_property
    def running(self) -> bool:
        """Whether there is a daemon."""
        return is_held(self.paths.lock)

    @cached_property
    def vitals(self) -> Message | None:
        """What the daemon says of itself; None where there is none, or none that answers."""
        try:
            return self._ask() if self.running else None
        except (ZonedriveError, OSError):
            return None

    @cached_property
    def glance(self) -> Glance | ZonedriveError | None:
        """The service, or what keeps us from it; None without a logon."""
        if self.account is None:
            return None
        try:
            return glance.look(self.account)
        except ZonedriveError as wrong:
            return wrong
