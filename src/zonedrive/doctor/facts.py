"""Facts about the checked account, and the result type of the checks.

Each fact is determined on first use and then cached. The checks decide if a fact is a problem.
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
from zonedrive.daemon.protocol import Message
from zonedrive.errors import ConfigError, NotLoggedOn, StoreError, ZonedriveError
from zonedrive.formatting import count
from zonedrive.logon import bearer_auth, keys
from zonedrive.logon.account import Account
from zonedrive.logon.bearer_auth import Bearer, load_bearer
from zonedrive.logon.secrets import SecretStore, open_store
from zonedrive.paths import AccountPaths, config_file, is_locked, quoted
from zonedrive.remote.probe import Probe, ProbeResult
from zonedrive.translation import marked

LOGON = "zonedrive logon URL"


@dataclass(eq=False)
class DoctorFacts:
    """Facts about one account on this machine."""

    paths: AccountPaths
    # Returns the daemon's report on its health; raises ZonedriveError or OSError.
    ask: Callable[[], Message]
    folder: Path | None = None  # the mount point that the user asked about, absolute

    @cached_property
    def account(self) -> Account | None:
        """Stored account; None if there is no logon. Raises ConfigError if it cannot be loaded."""
        try:
            return Account.load(self.paths)
        except NotLoggedOn:
            return None

    @cached_property
    def settings(self) -> Settings:
        """Settings of the account. Raises ConfigError if the user's settings file is not valid."""
        return config.load(config_file(), self.paths.account)

    @cached_property
    def secrets(self) -> SecretStore:
        """Secret store with the token and the data key."""
        return open_store(self.paths)

    @cached_property
    def store_error(self) -> StoreError | None:
        """Error raised on reading the stored secrets, or None.

        The error is cached, so that a locked keyring prompts the user only once.
        """
        try:
            self.secrets.get(bearer_auth.NAME)
        except StoreError as wrong:
            return wrong
        return None

    @cached_property
    def bearer(self) -> Bearer | StoreError | None:
        """Token or session of the logon, None if there is none, or the error raised on reading."""
        if self.store_error is not None:
            return self.store_error
        try:
            return load_bearer(self.secrets)
        except StoreError as wrong:
            return wrong

    @cached_property
    def key(self) -> Literal["there", "to come", "gone", "another"] | StoreError:
        """State of the data key, or the error raised on reading the key.

        - "there": the key exists and fits the local data.
        - "to come": the key does not exist, and no local data needs it yet.
        - "gone": the key does not exist, but local data needs it.
        - "another": the key exists, but does not decrypt the local data.
        """
        if self.store_error is not None:  # do not prompt again for a locked keyring
            return self.store_error
        try:
            kept = keys.kept_key(self.secrets)
        except StoreError as wrong:
            return wrong
        if kept is None:
            return "gone" if local_data.needs_key(self.paths) else "to come"
        fits = not local_data.is_sealed(self.paths) or local_data.is_opened_by(
            self.paths, keys.names_box(kept)
        )
        return "there" if fits else "another"

    @cached_property
    def forbidden(self) -> ConfigError | None:
        """Error for an organization policy that forbids mounting the account, or None."""
        return local_data.forbidden(self.paths)

    @property
    def logon_command(self) -> str:
        """Command that repeats the last logon; "" if unknown."""
        bearer = self.bearer
        is_session = isinstance(bearer, Bearer) and bearer.kind == "session"
        return Account.logon_again(self.paths, is_session)

    @cached_property
    def holder(self) -> lock.Holder | None:
        """Current or last daemon, as recorded in the account's lock file; None if unknown."""
        return lock.holder(self.paths.lock)

    @cached_property
    def other_mountpoints(self) -> set[Path]:
        """Mount points of the current or last daemons of the user's other accounts."""
        own = self.paths.lock
        others = [each for each in own.parent.parent.glob(f"*/{own.name}") if each != own]
        return {known.mountpoint for each in others if (known := lock.holder(each)) is not None}

    @cached_property
    def running(self) -> bool:
        """True if the account's daemon is running."""
        return is_locked(self.paths.lock)

    @cached_property
    def vitals(self) -> Message | None:
        """Daemon's report on its health; None if no running daemon responds."""
        try:
            return self.ask() if self.running else None
        except (ZonedriveError, OSError):
            return None

    @cached_property
    def probe_result(self) -> ProbeResult | ZonedriveError | None:
        """Result or error of a probe of the service; None if there is no logon."""
        if self.account is None:
            return None
        try:
            with Probe(self.account) as probe:
                return probe.service()
        except ZonedriveError as wrong:
            return wrong


@dataclass(frozen=True)
class CheckResult:
    """Result of a check, with a description of the state and a remedy.

    The remedy is "" if the user has nothing to do.

    INVARIANT: `detail` and `remedy` contain no name of a person, a file, a zone or a host.
    """

    ok: bool
    detail: str
    remedy: str = ""
    here: str = ""  # remedy with names, shown to the local user only
    names: Mapping[str, object] = field(default_factory=dict)  # values of placeholders in `remedy`


Check = Callable[[DoctorFacts], CheckResult | None]


def good(detail: str, remedy: str = "") -> CheckResult:
    """Return the result of a check that found no problem."""
    return CheckResult(True, detail, remedy)


def bad(detail: str, remedy: str, here: str = "", **names: object) -> CheckResult:
    """Return the result of a check that found a problem.

    `here` is a remedy that may contain names, for the local user only. `names` contains the values
    of placeholders in `remedy`, see `local_remedy`.
    """
    return CheckResult(False, detail, remedy, here, names)


_PATHS = {"the state folder": "state", "the cache folder": "cache", "daemon.log": "log"}


def local_remedy(facts: DoctorFacts, found: CheckResult) -> str:
    """Return the remedy for the local user, with the paths, account and commands of this machine.

    The result is `found.here` if that is set. Otherwise, the result is `found.remedy` with
    placeholders and folder names replaced, and with the option `--account` added to commands if the
    account is not the default account. The result is "" if there is no remedy.
    """
    if found.here or not found.remedy:
        return found.here

    def name(word: re.Match[str]) -> str:
        """Return the replacement for a placeholder or a folder name.

        Determine only the paths that the remedy refers to, because a path cannot be determined if
        the user has no home folder.
        """
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
    """Return a duration in its largest whole unit, for example "3 hours"."""
    if seconds >= 86_400:
        return count(int(seconds // 86_400), "day")
    if seconds >= 3600:
        return count(int(seconds // 3600), "hour")
    if seconds >= 60:
        return count(int(seconds // 60), "minute")
    return marked("less than a minute")
