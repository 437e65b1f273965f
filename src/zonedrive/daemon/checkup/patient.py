"""The account that is looked at: each fact is found out once, when the first check wants it.

Must not judge anything.
"""

from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Literal

from zonedrive import config
from zonedrive.config import Settings
from zonedrive.daemon import backlog, lock
from zonedrive.daemon.lock import Holder, is_held
from zonedrive.daemon.protocol import Message
from zonedrive.errors import NotLoggedOn, StoreError, ZonedriveError
from zonedrive.logon import keys, session
from zonedrive.logon.account import Account
from zonedrive.logon.secrets import SecretStore, open_store
from zonedrive.logon.session import Bearer, load_bearer
from zonedrive.paths import AccountPaths, config_file
from zonedrive.remote import glance
from zonedrive.remote.glance import Glance


class Patient:
    """One account on this machine."""

    def __init__(
        self, paths: AccountPaths, ask: Callable[[], Message], folder: Path | None = None
    ) -> None:
        """`ask` gives the daemon's vital signs, or raises where it does not answer.

        `folder` (absolute) is where a person wants to mount, if that is said.
        """
        self.paths, self.folder = paths, folder
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
    def shut(self) -> StoreError | None:
        """What keeps us from the secrets; a keyring asks a person once."""
        try:
            self.secrets.get(session.NAME)
        except StoreError as wrong:
            return wrong
        return None

    @cached_property
    def bearer(self) -> Bearer | StoreError | None:
        """The logon's token or session, or what keeps us from it."""
        if self.shut is not None:
            return self.shut
        try:
            return load_bearer(self.secrets)
        except StoreError as wrong:
            return wrong

    @cached_property
    def key(self) -> Literal["there", "to come", "gone", "another"] | StoreError:
        """The data key, as what is kept here needs it, or what keeps us from it."""
        if self.shut is not None:  # a locked keyring is asked once
            return self.shut
        try:
            kept = keys.kept_key(self.secrets)
        except StoreError as wrong:
            return wrong
        if kept is None:
            return "gone" if backlog.needs_key(self.paths) else "to come"
        fits = not self.settings.encrypt or backlog.is_opened_by(self.paths, keys.names_box(kept))
        return "there" if fits else "another"

    @property
    def logon_command(self) -> str:
        """What to type to log on again; "" where that is not known."""
        bearer = self.bearer
        alone = isinstance(bearer, Bearer) and bearer.kind == "session"
        return self.account.logon_command(session_only=alone) if self.account else ""

    @cached_property
    def holder(self) -> Holder | None:
        """The account's daemon, or the last one there was."""
        return lock.holder(self.paths.lock)

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
