"""Renewal of a logon with the stored password, for the daemon.

This module does not read the password. The separate process `renewal_worker` reads the password,
so that the memory with the password is freed when that process exits.

INVARIANT: after a rejection, no renewal is attempted before the user has logged on again. While the
service blocks the user, no renewal is attempted.
"""

import hashlib
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Literal

import msgspec

from zonedrive import config
from zonedrive.errors import CredentialsRefused, StoreError, ZonedriveError
from zonedrive.logon.account import Account
from zonedrive.logon.bearer_auth import Bearer, load_bearer
from zonedrive.logon.secrets import PASSWORD, SecretStore, credential
from zonedrive.paths import AccountPaths

SECONDS = 25.0  # maximum duration of a renewal, with the wait for another process's renewal
# Maximum duration of the renewal process, which may have to end two new bearer tokens at the end.
PROCESS_SECONDS = SECONDS + 22
LATER_SECONDS = 15.0  # wait before the next attempt if the service did not respond


class RenewalRequest(msgspec.Struct, frozen=True):
    """Request to the separate process that renews the logon."""

    instead_of: str  # digest of the current bearer token, "" for none
    ended: bool  # True if the service has rejected the current bearer token


class Outcome(msgspec.Struct, frozen=True):
    """Result of a renewal. Contains no secret."""

    result: Literal["renewed", "refused", "blocked", "later"]
    message: str = ""
    remedy: str = ""
    seconds: float = LATER_SECONDS  # for "blocked" and "later": wait before the next attempt


Run = Callable[[AccountPaths, RenewalRequest], Outcome]


class Renewal:
    """Renewal of the logon of one account. Thread-safe.

    A renewal blocks for up to PROCESS_SECONDS; concurrent calls run one after another.
    """

    def __init__(
        self,
        paths: AccountPaths,
        store: Callable[[], SecretStore],
        run: Run | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Set the callbacks.

        `store` opens the account's current secret store, which the renewal process also uses. `run`
        renews the logon; the default is `in_a_process`. `monotonic` returns seconds.
        """
        self._paths, self._open_store = paths, store
        self._run, self._monotonic = run or in_a_process, monotonic
        self._turn = threading.Lock()
        self._not_before = 0.0
        self._former = ""  # digest of the bearer token in the last request
        self.last: Outcome | None = None

    def __call__(self, former: Bearer | None, *, ended: bool = True) -> Bearer | None:
        """Return a new bearer token to replace `former`, or None if no renewal is possible now.

        `ended` is False if the service still accepts `former`. Raises CredentialsRefused if the
        password was rejected, the user is blocked, or the new bearer token could not be stored.
        """
        with self._turn:
            if not self.is_possible():
                return None
            # With another bearer token, the user has logged on, perhaps without a message.
            was_refused = self._is_refused and self._former == digest(former)
            if not was_refused and self._monotonic() >= self._not_before:
                self._former = digest(former)
                self.last = self._run(self._paths, RenewalRequest(self._former, ended))
                self._not_before = self._monotonic() + self.last.seconds
                if self.last.result == "renewed":
                    self._not_before = 0.0
                    with suppress(StoreError):
                        return load_bearer(self._open_store())
                    return None
            if self.last is None or self.last.result == "later":
                return None
            raise CredentialsRefused(self.last.message, remedy=self.last.remedy)

    def is_possible(self) -> bool:
        """Return True if a password was stored at the logon, or systemd provides one.

        Always return False if the organization does not allow saved passwords.
        """
        if not config.organization(self._paths.account).allows_saved_password:
            return False
        if credential(self._paths.account, PASSWORD):
            return True
        try:
            return Account.load(self._paths).keeps_password
        except ZonedriveError:
            return False

    def may_succeed(self) -> bool:
        """Return True if a later call may renew the logon without the user."""
        return not self._is_refused and self.is_possible()

    @property
    def _is_refused(self) -> bool:
        return self.last is not None and self.last.result == "refused"

    def forget(self) -> None:
        """Clear the record of rejections, because the user has logged on."""
        self.last, self._not_before = None, 0.0


def digest(bearer: Bearer | None) -> str:
    """Return a hash that identifies a bearer token without revealing it; "" for None."""
    return "" if bearer is None else hashlib.sha256(bearer.secret.encode()).hexdigest()


def in_a_process(paths: AccountPaths, order: RenewalRequest) -> Outcome:
    """Run `zonedrive.logon.renewal_worker` and return its outcome.

    If the process fails or takes too long, return an outcome with the result "later".
    """
    try:
        ended = subprocess.run(  # noqa: S603
            [sys.executable, "-m", "zonedrive.logon.renewal_worker", "--account", paths.account],
            input=msgspec.json.encode(order),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # a traceback could contain a secret
            timeout=PROCESS_SECONDS,
            cwd="/",
            check=False,
        )
        return msgspec.json.decode(ended.stdout, type=Outcome)
    except (OSError, subprocess.SubprocessError, msgspec.MsgspecError) as wrong:
        return Outcome("later", f"renewing the logon failed ({type(wrong).__name__})")
