"""`python -m zonedrive.logon.renewal_worker`: renew the logon with the stored password.

The renewal runs in a separate process, whose exit frees the memory with the password. The process
reads a RenewalRequest from standard input and writes an Outcome to standard output. The process
never prompts the user and writes nothing else.

INVARIANT: a password that the service rejected is recorded as a deliberately slow digest (scrypt)
and never sent again for this account, not even after a restart.
INVARIANT: while the service blocks the user, no password is sent. The wait doubles with each
consecutive block. If the service rejects a logon for another reason than the password, the
rejection is handled like a block.
INVARIANT: the response to a request without a password never counts as a rejection of the password.
INVARIANT: nothing is stored or deleted if a logon or a logoff has changed the account or its bearer
token since the renewal began.
INVARIANT: the former bearer token is invalidated (token revoked or session ended) after the new one
is stored. A new bearer token that is not stored is invalidated.
"""

import argparse
import hashlib
import os
import secrets
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal

import msgspec
import trio

from zonedrive import process_setup
from zonedrive.errors import (
    BadAnswer,
    CredentialsRefused,
    NotLoggedOn,
    RemoteError,
    StoreError,
    Unavailable,
    Unreachable,
    ZonedriveError,
)
from zonedrive.logon import bearer_auth
from zonedrive.logon.account import Account
from zonedrive.logon.account_lock import locked
from zonedrive.logon.account_profile import last_profile
from zonedrive.logon.api import LogonApi, open_access
from zonedrive.logon.bearer_auth import Bearer, token_name
from zonedrive.logon.flow import (
    CredentialPrompt,
    Flow,
    LoggedOn,
    dismiss,
    end_session,
    leave_session,
    obtain_token,
    revoke,
)
from zonedrive.logon.renewal import SECONDS, Outcome, RenewalRequest, digest
from zonedrive.logon.secrets import (
    PASSWORD,
    REFUSED,
    Secret,
    SecretStore,
    desktop_keyring,
    open_store,
)
from zonedrive.paths import AccountPaths, lock_file, require_room
from zonedrive.remote.wire.error_mapping import BLOCKED, WRONG_PASSWORD

BLOCK_SECONDS: Final = 900.0
LONGEST_BLOCK_SECONDS: Final = 4 * 3600.0
DAY_NS: Final = 86_400 * 10**9
TOKEN_DAYS: Final = 90
COST: Final = 2**14  # of scrypt: about 50 ms and 16 MiB
UNAUTHORIZED: Final = 401
CHECKS: Final = 3  # of a new session
CHECK_S: Final = 1.0  # seconds between two checks
Open = Callable[[str, str | None], AbstractAsyncContextManager[LogonApi]]


class RefusalRecord(msgspec.Struct, frozen=True):
    """Record of a rejected logon; `salt` and `digest` identify the password that was used."""

    salt: bytes
    digest: bytes
    message: str
    remedy: str
    until: float = 0.0  # end of a block, in seconds since the epoch; 0: the record does not expire
    times: int = 0  # number of consecutive blocks

    def is_of(self, password: Secret) -> bool:
        """Return True if the record concerns `password`."""
        return secrets.compare_digest(self.digest, _scrypt(password, self.salt))

    @property
    def is_blocking(self) -> bool:
        """True if this record is about a block that has not ended.

        No block is longer than LONGEST_BLOCK_SECONDS. If the recorded end is further in the future,
        the local clock was set back. The true end is then unknown, and the value is False.
        """
        return 0 < self.until - time.time() <= LONGEST_BLOCK_SECONDS

    def outcome(self, account: Account) -> Outcome:
        """Return the outcome of a renewal that this record prevents."""
        if not self.until:
            return _refusal(self.message, account)
        left = max(1.0, self.until - time.time())
        at = time.strftime("%H:%M", time.localtime(self.until))
        message = f"{self.message}; the next attempt is not before {at}"
        return Outcome("blocked", message, seconds=left)


@dataclass(frozen=True)
class _Start:
    """Stored logon at the start of a renewal."""

    account: Account
    bearer: Bearer | None
    has_ended: bool  # the service has rejected `bearer`
    password: Secret
    mark: RefusalRecord | None


class _Replaced(Exception):
    """Error for a stored logon that a logon or a logoff has changed since the renewal began."""


class StoredPasswordPrompt(CredentialPrompt):
    """Credential prompt that returns the stored password and never asks a user."""

    def __init__(self, password: Secret) -> None:
        self._password = password

    def password(self) -> Secret:
        return self._password

    def code(self, kind: str) -> Secret:
        raise CredentialsRefused("renewing the logon: the service wants a one-time code")


class Renewer:
    """One renewal of the logon of one account."""

    def __init__(self, paths: AccountPaths, store: SecretStore, opened: Open = open_access) -> None:
        self._paths, self._store, self._open = paths, store, opened
        self._sent: Literal["", "logon", "token"] = ""  # purpose for which the password was sent
        self._unstored: list[Bearer] = []  # new bearer tokens

    async def run(self, order: RenewalRequest, waited: float = 0.0) -> Outcome:
        """Renew the logon, store the new bearer token, and return the outcome.

        `waited` is the time in seconds that this process waited for another renewal. Send no
        request if the stored bearer token was replaced meanwhile, or if an earlier rejection
        forbids a renewal now. Raises ZonedriveError if the account or the secrets are not usable.
        """
        with locked(self._paths):
            self._begun_with = account, bearer = self._stored()
            if bearer is not None and digest(bearer) != order.instead_of:
                return Outcome("renewed")
            password = self._store.get(PASSWORD)
            mark = self._mark()
            if password is None:
                return _refusal(mark.message if mark else "no password is stored", account)
            if mark and mark.is_of(password) and (not mark.until or mark.is_blocking):
                return mark.outcome(account)
        try:
            start = _Start(account, bearer, order.ended, password, mark)
            return await self._attempt(start, SECONDS - waited)
        except _Replaced:
            return Outcome("renewed")
        except StoreError as unstored:  # the next attempt would create another bearer token
            return Outcome("blocked", unstored.message, unstored.remedy, BLOCK_SECONDS)

    async def _attempt(self, start: _Start, seconds: float) -> Outcome:
        """Renew the logon within `seconds` seconds, and return the outcome.

        Raises StoreError if the store fails, and _Replaced if the stored logon was changed.
        """
        account = start.account
        try:
            if self._store.kind != "keyring":
                require_room(self._paths.state)
            async with self._open(account.base_url, account.ca_file) as access:
                try:
                    with trio.fail_after(max(0.0, seconds)):
                        await self._renew(access, start)
                except BaseException:
                    await self._end_unstored(access, account)
                    raise
        except OSError as full:
            return Outcome("later", f"{full.filename}: {full.strerror}")
        except (Unreachable, Unavailable) as away:
            if away.by_gateway and self._sent:
                return self._refused(away, start)  # or the gateway gets the password every time
            return Outcome("later", away.message)
        except trio.TooSlowError:
            return Outcome("later", "the service did not answer in time")
        except RemoteError as refused:
            return self._refused(refused, start)
        return Outcome("renewed")

    def _stored(self) -> tuple[Account, Bearer | None]:
        return Account.load(self._paths), bearer_auth.load_bearer(self._store)

    @contextmanager
    def _unchanged(self) -> Iterator[None]:
        """Lock the stored logon while the `with` block changes it.

        Raises _Replaced if the stored logon is not the one that this renewal began with.
        """
        with locked(self._paths):
            try:
                stored = self._stored()
            except NotLoggedOn as ended:
                raise _Replaced from ended
            if stored != self._begun_with:
                raise _Replaced
            yield

    async def _renew(self, access: LogonApi, start: _Start) -> None:
        """Obtain and store a new bearer token, and then invalidate the former one.

        The new bearer token is a session if the former one is a session. Otherwise, it is a token,
        which is requested with the former token if that is still valid, or else with the session of
        a new logon. If the service creates no usable token after a new logon, the session is kept.
        Raises RemoteError if a request fails, StoreError if the store fails, and _Replaced if the
        stored logon was changed.
        """
        account, bearer = start.account, start.bearer
        if bearer is not None and not start.has_ended:
            access.carry(Secret(bearer.secret))
            try:
                await access.check()
            except NotLoggedOn:
                access.carry(None)
            else:
                if bearer.kind == "token":
                    self._sent = "token"
                    self._save(await self._token(access, start, bearer))
                    await _revoke(access, account, bearer)
                else:
                    self._save(await self._tested_session(access, start))
                    access.carry(Secret(bearer.secret))
                    await end_session(access)
                return
        if bearer is not None and bearer.kind == "session":
            self._save(await self._tested_session(access, start))
            return
        session = await self._session(access, start)
        try:
            token = await self._token(access, start, session)
        except RemoteError:
            self._save(session)  # as at a logon: keep the session if there is no token
            await self._end_unstored(access, account)
            return
        self._save(token)
        try:
            await leave_session(access, token)
        except CredentialsRefused:  # the token ended together with the session
            self._save(await self._session(access, start))
            return
        if bearer is not None:
            await _revoke(access, account, bearer)

    async def _token(self, access: LogonApi, start: _Start, bearer: Bearer) -> Bearer:
        """Return a new token, which is requested with `bearer` and the password."""
        name, days = token_name(start.account.name), _days(start.bearer)
        here = LoggedOn(bearer, start.account.user_id, start.password)
        return await obtain_token(access, here, name, days, self._unstored.append)

    async def _session(self, access: LogonApi, start: _Start) -> Bearer:
        access.carry(None)
        needs = await access.requirements()
        self._sent = "logon"
        ask = StoredPasswordPrompt(start.password)
        found = await Flow(access, start.account.username, needs, ask).run()
        self._unstored.append(found.bearer)
        return found.bearer

    async def _tested_session(self, access: LogonApi, start: _Start) -> Bearer:
        """Return a new session; raise BadAnswer if the service rejects it in all CHECKS checks.

        Without the checks, each request that the service rejects would cause another renewal, which
        sends the password. Other errors of a check are ignored.
        """
        session = await self._session(access, start)
        for left in reversed(range(CHECKS)):
            try:
                await access.check()
                break
            except NotLoggedOn as refused:
                if left == 0:
                    raise BadAnswer(
                        "renewing the logon: the service does not accept the session that it has"
                        " just given"
                    ) from refused
                await trio.sleep(CHECK_S)  # another server may not know the session yet
            except RemoteError:
                break  # this says nothing about the session
        return session

    def _save(self, fresh: Bearer) -> None:
        """Store `fresh` as the account's bearer token. Raises StoreError and _Replaced."""
        with self._unchanged():
            self._store.delete(REFUSED)
            bearer_auth.save_bearer(self._store, fresh)
            self._unstored.remove(fresh)
            self._begun_with = self._begun_with[0], fresh

    async def _end_unstored(self, access: LogonApi, account: Account) -> None:
        """Invalidate the new bearer tokens that are not stored, the newest first; never raise."""
        while self._unstored:
            unstored = self._unstored.pop()  # a renewal shows nothing to the user
            await dismiss(access, account.profile, unstored, lambda _line: None, "")

    def _refused(self, refused: RemoteError, start: _Start) -> Outcome:
        """Return the outcome for the error `refused`, and record the error if necessary.

        If only the user can help, record the password as rejected, and delete it. If the service
        rejects the logon for another reason, record the time until which no password may be sent.
        Raises _Replaced if another logon was stored meanwhile.
        """
        blocked = refused.code in BLOCKED
        final = not blocked and _is_final(refused, sent=bool(self._sent))
        if not final and not self._sent:
            return Outcome("later", refused.message)
        if not final and not blocked and self._sent == "token":
            return Outcome("later", refused.message, seconds=BLOCK_SECONDS)
        salt = os.urandom(16)
        until, times = 0.0, 0
        if not final:
            times = start.mark.times + 1 if start.mark is not None else 1
            until = time.time() + min(BLOCK_SECONDS * 2.0 ** (times - 1), LONGEST_BLOCK_SECONDS)
        new = RefusalRecord(
            salt, _scrypt(start.password, salt), refused.message, refused.remedy, until, times
        )
        with self._unchanged():
            self._store.set(REFUSED, Secret(msgspec.json.encode(new).decode()))
            if not until:
                self._store.delete(PASSWORD)  # it is never sent again
        return new.outcome(start.account)

    def _mark(self) -> RefusalRecord | None:
        kept = self._store.get(REFUSED)
        if kept is None:
            return None
        try:
            return msgspec.json.decode(kept.reveal(), type=RefusalRecord)
        except msgspec.MsgspecError:
            raise StoreError("the record of an earlier refusal is damaged") from None


def _is_final(refused: RemoteError, *, sent: bool) -> bool:
    """Return True if only the user can renew the logon.

    For example, the service requires another password, a one-time code or a browser sign-on. `sent`
    is True if the password was sent.
    """
    if isinstance(refused, CredentialsRefused) and not refused.status:
        return True  # raised by the flow: a code, a browser or another password is required
    is_unauthorized = refused.status == UNAUTHORIZED and not refused.by_gateway
    return sent and (is_unauthorized or refused.code in WRONG_PASSWORD)


async def _revoke(access: LogonApi, account: Account, former: Bearer) -> None:
    """Revoke the unused token `former` if the profile supports this.

    If the token cannot be revoked, it remains valid until it expires.
    """
    access.carry(Secret(former.secret))
    with suppress(RemoteError):
        await revoke(access, last_profile(account), former)


def _refusal(message: str, account: Account) -> Outcome:
    return Outcome("refused", message, f"run {account.logon_command()}")


def _days(bearer: Bearer | None) -> int:
    if bearer is None or bearer.kind != "token" or not 0 < bearer.began_ns < bearer.expires_ns:
        return TOKEN_DAYS
    return max(1, round((bearer.expires_ns - bearer.began_ns) / DAY_NS))


def _scrypt(password: Secret, salt: bytes) -> bytes:
    return hashlib.scrypt(password.reveal().encode(), salt=salt, n=COST, r=8, p=1)


def main() -> int:
    """Execute the RenewalRequest on standard input, and write the Outcome to standard output.

    Always return exit status 0.
    """
    process_setup.ensure_utf8()
    process_setup.forbid_dumps()
    parser = argparse.ArgumentParser(prog="zonedrive.logon.renewal_worker")
    parser.add_argument("--account", required=True)
    paths = AccountPaths(parser.parse_args().account)
    order = msgspec.json.decode(sys.stdin.buffer.read(), type=RenewalRequest)
    began = time.monotonic()
    try:
        with lock_file(paths.renewal_lock, wait=True):
            waited = time.monotonic() - began
            quiet = partial(desktop_keyring, may_prompt=False)
            store = open_store(paths, find_keyring=quiet)
            outcome = trio.run(Renewer(paths, store).run, order, waited)
    except ZonedriveError as wrong:
        outcome = Outcome("later", wrong.message, wrong.remedy)
    except OSError as wrong:
        outcome = Outcome("later", f"{wrong.filename}: {wrong.strerror}")
    sys.stdout.buffer.write(msgspec.json.encode(outcome))
    return 0


if __name__ == "__main__":
    sys.exit(main())
