"""Facts about the checked account, each determined once on first use, and the check result.

Evaluates nothing.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Literal

from zonedrive import config
from zonedrive.config import Settings
from zonedrive.daemon import local_data, lock
from zonedrive.daemon.lock import Holder, is_held
from zonedrive.daemon.protocol import Message
from zonedrive.errors import NotLoggedOn, StoreError, ZonedriveError
from zonedrive.formatting import count
from zonedrive.logon import bearer_auth, keys
from zonedrive.logon.account import Account
from zonedrive.logon.bearer_auth import Bearer, load_bearer
from zonedrive.logon.secrets import SecretStore, open_store
from zonedrive.paths import AccountPaths, config_file, quoted
from zonedrive.remote.probe import Probe, ProbeResult

LOGON = "zonedrive logon URL"


@dataclass(eq=False)
class DoctorFacts:
    """Facts about one account on this machine."""

    paths: AccountPaths
    ask: Callable[[], Message]  # returns the daemon's health, or raises an error
    folder: Path | None = None  # the mount point that the user asked about, absolute

    @cached_property
    def account(self) -> Account | None:
        """Stored account; None if the account is not logged on. Raises ConfigError."""
        try:
            return Account.load(self.paths)
        except NotLoggedOn:
            return None

    @cached_property
    def settings(self) -> Settings:
        """Settings from the file. Raises ConfigError."""
        return config.load(config_file(), self.paths.account)

    @cached_property
    def secrets(self) -> SecretStore:
        """Store of token and key."""
        return open_store(self.paths)

    @cached_property
    def shut(self) -> StoreError | None:
        """Error from reading the secrets, or None; cached, so that a keyring prompts once."""
        try:
            self.secrets.get(bearer_auth.NAME)
        except StoreError as wrong:
            return wrong
        return None

    @cached_property
    def bearer(self) -> Bearer | StoreError | None:
        """Token or session of the logon, or the error that blocks access to it."""
        if self.shut is not None:
            return self.shut
        try:
            return load_bearer(self.secrets)
        except StoreError as wrong:
            return wrong

    @cached_property
    def key(self) -> Literal["there", "to come", "gone", "another"] | StoreError:
        """State of the data key relative to the local data, or the error of reading the key."""
        if self.shut is not None:  # do not prompt again for a locked keyring
            return self.shut
        try:
            kept = keys.kept_key(self.secrets)
        except StoreError as wrong:
            return wrong
        if kept is None:
            return "gone" if local_data.needs_key(self.paths) else "to come"
        fits = not self.settings.encrypt or local_data.is_opened_by(
            self.paths, keys.names_box(kept)
        )
        return "there" if fits else "another"

    @property
    def logon_command(self) -> str:
        """Command to log on again; "" if unknown."""
        bearer = self.bearer
        is_session = isinstance(bearer, Bearer) and bearer.kind == "session"
        return Account.logon_again(self.paths)(is_session)

    @cached_property
    def holder(self) -> Holder | None:
        """Process that is or was the account's last daemon."""
        return lock.holder(self.paths.lock)

    @cached_property
    def running(self) -> bool:
        """True if a daemon is running."""
        return is_held(self.paths.lock)

    @cached_property
    def vitals(self) -> Message | None:
        """The daemon's report on its health; None if no daemon is running or answers."""
        try:
            return self.ask() if self.running else None
        except (ZonedriveError, OSError):
            return None

    @cached_property
    def glance(self) -> ProbeResult | ZonedriveError | None:
        """Result of a probe of the service, or its error; None if the account is not logged on."""
        if self.account is None:
            return None
        try:
            with Probe(self.account) as probe:
                return probe.service()
        except ZonedriveError as wrong:
            return wrong


@dataclass(frozen=True)
class CheckResult:
    """Result of a check: the state, and a remedy if something is wrong.

    INVARIANT: detail and remedy contain no name of a person, a file, a zone or a host.
    """

    ok: bool
    detail: str
    remedy: str = ""
    here: str = ""  # another text of the remedy, with names, for the local user only
    names: Mapping[str, object] = field(default_factory=dict)  # for words of the remedy


Check = Callable[[DoctorFacts], CheckResult | None]


def good(detail: str, remedy: str = "") -> CheckResult:
    """Return the result of a check that found no problem."""
    return CheckResult(True, detail, remedy)


def bad(detail: str, remedy: str, here: str = "", **names: object) -> CheckResult:
    """Return the result of a check that found a problem."""
    return CheckResult(False, detail, remedy, here, names)


_PATHS = {"the state folder": "state", "the cache folder": "cache", "daemon.log": "log"}


def local_remedy(facts: DoctorFacts, found: CheckResult) -> str:
    """Return the remedy with the names of this machine: paths, account and logon command."""
    if found.here or not found.remedy:
        return found.here

    def name(word: re.Match[str]) -> str:
        """Look up a name only if the remedy has it: without a home folder there are no paths."""
        if word[0] in found.names:
            return str(found.names[word[0]])
        if word[0] == "DIR":
            return quoted(facts.holder.mountpoint) if facts.holder else "DIR"
        return str(getattr(facts.paths, _PATHS[word[0]]))

    words = "|".join(map(re.escape, ("DIR", *_PATHS, *found.names)))
    said = re.sub(rf"\b({words})\b", name, found.remedy)
    said = re.sub(r"'(zonedrive (?!unmount|logon)\w+)", rf"'\1{facts.paths.option}", said)
    if LOGON in said:
        said = said.replace(LOGON, facts.logon_command or f"{LOGON}{facts.paths.option}")
    return said


def age(seconds: float) -> str:
    """Return a duration in readable form."""
    for unit, length in (("day", 86_400), ("hour", 3600), ("minute", 60)):
        if seconds >= length:
            return count(int(seconds // length), unit)
    return "less than a minute"
