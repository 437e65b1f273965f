"""`python -m zonedrive.logon.again`: log on again with the kept password, in a process of its own.

The process ends at once, and the memory that held the password with it.  It takes an Order on the
standard input, and answers with an Outcome.  Must not ask a person, nor write anything else.

INVARIANT: a password that the service refused is remembered, by a digest that is made on purpose
slowly (scrypt), and never sent again: not by this account, not after a restart.
INVARIANT: while the service blocks the user, no password is sent; each block in a row is left
alone for twice as long as the one before.  So is each other no to a logon, which is about something
else than the password.
INVARIANT: an answer to a request without a password says nothing of the password.
"""

import argparse
import fcntl
import hashlib
import os
import secrets
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
from pathlib import Path
from typing import Final, Literal

import msgspec
import trio

from zonedrive import encoding, harden
from zonedrive.errors import (
    ConfigError,
    CredentialsRefused,
    NotLoggedOn,
    RemoteError,
    StoreError,
    Unavailable,
    Unreachable,
    ZonedriveError,
)
from zonedrive.logon import session
from zonedrive.logon.access import Access, open_access
from zonedrive.logon.account import Account
from zonedrive.logon.flow import (
    BLOCKED,
    Flow,
    LoggedOn,
    end_session,
    leave_session,
    obtain_token,
    revoke,
)
from zonedrive.logon.renewal import SECONDS, Order, Outcome, digest
from zonedrive.logon.secrets import PASSWORD, REFUSED, Secret, SecretStore, open_store
from zonedrive.logon.session import Bearer
from zonedrive.paths import AccountPaths, private_dir
from zonedrive.remote import load_profile
from zonedrive.remote.passwords import WRONG

BLOCK_SECONDS: Final = 900.0
LONGEST_BLOCK_SECONDS: Final = 4 * 3600.0
DAY_NS: Final = 86_400 * 10**9
TOKEN_DAYS: Final = 90
UNAUTHORIZED: Final = 401
Open = Callable[[str, str | None], AbstractAsyncContextManager[Access]]


class Mark(msgspec.Struct, frozen=True):
    """What came of a password that did not work; by `salt` and `digest`, without telling it."""

    salt: bytes
    digest: bytes
    message: str
    remedy: str
    until: float = 0.0  # seconds since the epoch, for a block or the like; 0: for good
    times: int = 0  # of those in a row

    def is_of(self, password: Secret) -> bool:
        """Whether it is about this password."""
        return secrets.compare_digest(self.digest, _scrypt(password, self.salt))


class Nobody:
    """Answers for a person who is not there: with the kept password, and nothing else."""

    def __init__(self, password: Secret) -> None:
        self._password = password

    def password(self) -> Secret:
        """See flow.Ask."""
        return self._password

    def code(self, kind: str) -> Secret:
        """See flow.Ask."""
        raise CredentialsRefused("renewing the logon: the service wants a one-time code")

    def given_code(self) -> Secret | None:
        """See flow.Ask."""
        return None


class Again:
    """One renewal of one account."""

    def __init__(self, paths: AccountPaths, store: SecretStore, opened: Open = open_access) -> None:
        self._paths, self._store, self._open = paths, store, opened
        self._sent: Literal["", "logon", "token"] = ""  # what the password has been sent for

    async def run(self, order: Order) -> Outcome:
        """Renew, unless it was done meanwhile or must not be tried.  Raises ZonedriveError."""
        account = Account.load(self._paths)
        bearer = session.load_bearer(self._store)
        if bearer is not None and digest(bearer) != order.instead_of:
            return Outcome("renewed")
        password = self._store.get(PASSWORD)
        mark = self._mark()
        if password is None:
            if mark is not None:
                return self._refusal(mark.message, account)
            return self._refusal("there is no kept password", account)
        if mark is not None and mark.is_of(password):
            if not mark.until:
                return self._refusal(mark.message, account)
            if time.time() < mark.until:
                return _blocked(mark)
        try:
            async with self._open(account.base_url, account.ca_file) as access:
                with trio.fail_after(SECONDS):
                    fresh = await self._fresh(access, account, bearer, password, order)
                    session.save_bearer(self._store, fresh)
                    if bearer is not None and fresh.kind == bearer.kind == "token":
                        await _revoke(access, account, bearer)
        except (Unreachable, Unavailable) as away:
            return Outcome("later", away.message)
        except trio.TooSlowError:
            return Outcome("later", "the service did not answer in time")
        except RemoteError as refused:
            return self._refused(refused, password, mark, account)
        self._store.delete(REFUSED)
        return Outcome("renewed")

    async def _fresh(
        self,
        access: Access,
        account: Account,
        bearer: Bearer | None,
        password: Secret,
        order: Order,
    ) -> Bearer:
        """A token made with the one that still holds, else what a logon gives."""
        days = _days(bearer)
        if bearer is not None and not order.ended:
            access.carry(Secret(bearer.secret))
            try:
                await access.check()
            except NotLoggedOn:
                access.carry(None)
            else:
                if bearer.kind == "token":
                    here = LoggedOn(bearer, account.user_id, password)
                    self._sent = "token"
                    return await obtain_token(access, here, _name(), days)
                return await self._session(access, account, password, former=bearer)
        fresh = await self._session(access, account, password)
        if bearer is not None and bearer.kind == "session":
            return fresh
        try:
            here = LoggedOn(fresh, account.user_id, password)
            token = await obtain_token(access, here, _name(), days)
        except RemoteError:
            return fresh  # as at a logon: a session is better than nothing
        await leave_session(access, token)
        return token

    async def _session(
        self, access: Access, account: Account, password: Secret, former: Bearer | None = None
    ) -> Bearer:
        """A new session, after which `former` is ended."""
        access.carry(None)
        needs = await access.requirements()
        self._sent = "logon"
        found = await Flow(access, account.username, needs, Nobody(password)).run()
        if former is not None:
            access.carry(Secret(former.secret))
            await end_session(access)
        access.carry(Secret(found.bearer.secret))
        return found.bearer

    def _refused(
        self, refused: RemoteError, password: Secret, mark: Mark | None, account: Account
    ) -> Outcome:
        """Remember what the service said to the password, if it did say something to it."""
        blocked = refused.code in BLOCKED
        final = not blocked and _is_final(refused, sent=bool(self._sent))
        if not final and not self._sent:
            return Outcome("later", refused.message)
        if not final and not blocked and self._sent == "token":
            return Outcome("later", refused.message, seconds=BLOCK_SECONDS)
        salt = os.urandom(16)
        until, times = 0.0, 0
        if not final:
            times = mark.times + 1 if mark is not None else 1
            until = time.time() + min(BLOCK_SECONDS * 2.0 ** (times - 1), LONGEST_BLOCK_SECONDS)
        new = Mark(salt, _scrypt(password, salt), refused.message, refused.remedy, until, times)
        self._store.set(REFUSED, Secret(msgspec.json.encode(new).decode()))
        if until:
            return _blocked(new)
        self._store.delete(PASSWORD)  # of no use any more
        return self._refusal(refused.message, account)

    def _refusal(self, message: str, account: Account) -> Outcome:
        return Outcome("refused", message, f"run {account.logon_command()}")

    def _mark(self) -> Mark | None:
        kept = self._store.get(REFUSED)
        if kept is None:
            return None
        try:
            return msgspec.json.decode(kept.reveal(), type=Mark)
        except msgspec.MsgspecError:
            raise StoreError("what is kept of an earlier refusal is damaged") from None


def _is_final(refused: RemoteError, *, sent: bool) -> bool:
    """Whether only a person can help: the password is wrong, or it takes more than a password."""
    if isinstance(refused, CredentialsRefused) and not refused.status:
        return True  # the flow's own: a code, a browser, another password is wanted
    return sent and (refused.status == UNAUTHORIZED or refused.code in WRONG)


async def _revoke(access: Access, account: Account, former: Bearer) -> None:
    """End a token that nobody uses any more, where the profile knows how; else it expires."""
    access.carry(Secret(former.secret))
    with suppress(RemoteError, ConfigError):
        await revoke(access, load_profile(account.profile), former)


def _blocked(mark: Mark) -> Outcome:
    left = max(1.0, mark.until - time.time())
    at = time.strftime("%H:%M", time.localtime(mark.until))
    return Outcome("blocked", f"{mark.message}; it is left alone until {at}", seconds=left)


def _days(bearer: Bearer | None) -> int:
    """The life of a token like `bearer`."""
    if bearer is None or bearer.kind != "token" or not 0 < bearer.began_ns < bearer.expires_ns:
        return TOKEN_DAYS
    return max(1, round((bearer.expires_ns - bearer.began_ns) / DAY_NS))


def _name() -> str:
    return f"zonedrive on {os.uname().nodename}"


def _scrypt(password: Secret, salt: bytes) -> bytes:
    return hashlib.scrypt(password.reveal().encode(), salt=salt, n=2**14, r=8, p=1)


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """One renewal at a time, whoever wants it."""
    private_dir(path.parent)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def main() -> int:
    """Carry out the order on the standard input."""
    encoding.ensure()
    harden.no_dumps()
    parser = argparse.ArgumentParser(prog="zonedrive.logon.again")
    parser.add_argument("--account", required=True)
    paths = AccountPaths(parser.parse_args().account)
    order = msgspec.json.decode(sys.stdin.buffer.read(), type=Order)
    try:
        with _alone(paths.renewal_lock):
            outcome = trio.run(Again(paths, open_store(paths)).run, order)
    except ZonedriveError as wrong:
        outcome = Outcome("later", wrong.message, wrong.remedy)
    sys.stdout.buffer.write(msgspec.json.encode(outcome))
    return 0


if __name__ == "__main__":
    sys.exit(main())
