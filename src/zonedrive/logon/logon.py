"""Complete logon: local checks, the exchange with the service (`flow`), a token, and storage.

This module uses no terminal: credentials come from a `CredentialPrompt`, and messages for the user
go to the callback `tell`.

INVARIANT: nothing on this machine changes before the service has accepted the logon.
INVARIANT: pending uploads are never sent as another user or to another service.
INVARIANT: a bearer token that is not stored, or no longer stored, is invalidated at the service
(token revoked or session ended). If the invalidation fails, the user gets a message.
"""

import errno
import re
from collections.abc import Callable, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    ExitStack,
    contextmanager,
    suppress,
)
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import msgspec

from zonedrive.config import ADMINISTRATOR, Organization, profile_at
from zonedrive.errors import (
    AlreadyExists,
    BadAnswer,
    ConfigError,
    CredentialsRefused,
    NotFound,
    NotLoggedOn,
    RemoteError,
    ReplyLost,
    StoreError,
    Unreachable,
)
from zonedrive.logon import bearer_auth
from zonedrive.logon.account import Account
from zonedrive.logon.account_lock import locked
from zonedrive.logon.api import LogonApi, open_access
from zonedrive.logon.bearer_auth import Bearer
from zonedrive.logon.browser.signon import Browser, Person
from zonedrive.logon.flow import (
    CredentialPrompt,
    Flow,
    LoggedOn,
    PasswordChange,
    dismiss,
    leave_session,
    obtain_token,
    report_valid,
    require_accepted,
    use_token,
)
from zonedrive.logon.previous_account import LocalDataQueries, PreviousAccount
from zonedrive.logon.secrets import (
    PASSWORD,
    REFUSED,
    CredentialsStore,
    FileStore,
    Secret,
    SecretStore,
    open_store,
)
from zonedrive.logon.session_bus import FOREIGN, is_foreign
from zonedrive.logon.wire import Requirements
from zonedrive.paths import AccountPaths, require_file, require_room, write_private
from zonedrive.remote.profiles.load import hidden_file, load_profile
from zonedrive.remote.profiles.operations import Profile
from zonedrive.service_address import base_url
from zonedrive.translation import marked

LONGEST = 4 << 20  # maximum size of a certificate file in bytes; the system's file has 200 KB
_SECRETS = (bearer_auth.NAME, PASSWORD, REFUSED)  # of a logon
_CERTIFICATE = re.compile(rb"-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----", re.ASCII)


class LogonRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Options that the user requested for a logon, and the organization's defaults."""

    url: str
    username: str  # "": prompt, or take the name from the browser sign-on
    ca_file: str | None = None  # None: as at the last logon to the same service, else the system's
    # None: as at the last logon to the same service if that was not `published`, else the default
    profile: str | None = None
    default_ca_file: str | None = None  # the organization's CA file, if the previous logon has none
    default_profile: str = "published"
    token_days: int | None = 90  # None: keep only the session
    save_password: bool = False

    def within(self, shared: Organization) -> "LogonRequest":
        """Return the request with the organization's defaults and policy.

        A value that the policy sets replaces the user's value.
        """
        at_home = shared.is_service(self.url)
        return msgspec.structs.replace(
            self,
            ca_file=shared.ca_file if "ca_file" in shared.policy else self.ca_file,
            profile=shared.profile if "profile" in shared.policy else self.profile,
            default_ca_file=shared.ca_file if at_home else None,
            default_profile=(shared.profile if at_home else None) or "published",
        )


@dataclass(frozen=True)
class _Plan:
    """Results of the checks that a logon makes before its first request."""

    base_url: str
    previous: PreviousAccount
    profile: str
    operations: Profile  # of `profile`
    ca_file: str | None
    certificates: bytes | None  # in `ca_file`
    store: SecretStore


class Logon:
    """One logon of one account."""

    def __init__(
        self,
        paths: AccountPaths,
        request: LogonRequest,
        ask: CredentialPrompt,
        *,
        queries: LocalDataQueries,
        tell: Callable[[str], None],
        store: Callable[[AccountPaths], SecretStore] = open_store,
        access: Callable[[str, str | None], AbstractAsyncContextManager[LogonApi]] = open_access,
        person: Person | None = None,
        new_password: Callable[[], Secret] | None = None,
        token: Secret | None = None,
    ) -> None:
        """Prepare the logon.

        `tell` prints a line. If `person` is None, a browser sign-on is not possible. `new_password`
        asks for a new password; if it is None, a password change is not possible. `token` replaces
        every other credential, and is stored, but never revoked, because other programs may use it.
        """
        self._person, self._new_password, self._token = person, new_password, token
        self._paths, self._request, self._ask, self._tell = paths, request, ask, tell
        self._queries, self._open_store = queries, store
        self._open_access = access
        # New bearer tokens that are not stored, each with its description for messages.
        self._unstored: dict[str, Bearer] = {}
        self.kept = ""  # set at the end: description of the stored bearer token

    async def run(self) -> Account:
        """Log on, store the account and its secrets, and return the account.

        Raises ZonedriveError, or OSError if a file cannot be written.
        """
        plan = self._prepare()
        async with self._open_access(plan.base_url, plan.ca_file) as access:
            try:
                account, signed_on = await self._sign_on(plan, access)
                account = await self._keep(plan, access, account, signed_on)
            except BaseException:
                await self._end_unstored(plan, access)
                raise
        bearer = signed_on.bearer
        self.kept = marked(f"by {bearer.kind}")
        if bearer.until:
            self.kept = marked(f"by {bearer.kind} until {bearer.until}")
        return account

    def _prepare(self) -> _Plan:
        """Make the checks that need no request, and return their results."""
        base = base_url(self._request.url)
        previous = PreviousAccount(self._paths, self._queries)
        former = previous.at(base)
        profile = self._profile(former)
        operations = load_profile(profile)
        if file := hidden_file(profile):
            self._tell(
                f"{file} is not used, because zonedrive has a profile {profile} of its own; ask the"
                " administrator of this computer to rename the file"
            )
        ca_file = self._request.ca_file or (former.ca_file if former else None)
        certificates = None if ca_file is None else read_certificates(Path(ca_file))
        if ca_file is None and self._request.default_ca_file is not None:
            ca_file, certificates = self._default_certificates(self._request.default_ca_file)
        if previous.account is not former:
            previous.refuse_takeover()
        store = self._usable_store()
        if former and self._request.username in ("", former.username):
            previous.require_key(store)
        require_room(self._paths.state)  # or the service would create a token that is not stored
        return _Plan(base, previous, profile, operations, ca_file, certificates, store)

    async def _sign_on(self, plan: _Plan, access: LogonApi) -> tuple[Account, LoggedOn]:
        """Log on at the service; return the account and the logon, both still to be stored.

        Raises ConfigError if the user must not take over the data of the previous user.
        """
        needs = await self._requirements(access, plan.base_url)
        former, username = plan.previous.at(plan.base_url), self._request.username
        known_as = former.known_as if former else lambda _username: ""
        if self._token is not None:
            signed_on = await use_token(access, self._token, known_as(username) or username)
        else:
            operations, person = plan.operations, self._person
            change = self._change(operations)
            browser = None if person is None else Browser(plan.profile, operations.sign_on, person)
            signed_on = await Flow(
                access, username, needs, self._ask, browser, change=change, known_as=known_as
            ).run()
            self._unstored["the session"] = signed_on.bearer
        username = username or signed_on.typed
        if signed_on.is_other and known_as(username):
            username = ""  # the typed name belongs to the previous user
        account = Account(
            name=self._paths.account,
            base_url=plan.base_url,
            username=username or signed_on.user_id,
            user_id=signed_on.user_id,
            organization=needs.organization,
            ca_file=None if plan.certificates is None else str(self._paths.ca_copy),
            profile=plan.profile,
            sign_on=signed_on.way,
            keeps_password=self._request.save_password and needs.can_save,
        )
        self._ask.require_wanted()  # not every profile can revoke a token
        if plan.previous.is_of(account):
            plan.previous.require_key(plan.store)
        else:
            plan.previous.refuse_takeover()
        if self._token is not None:
            return account, signed_on
        try:
            bearer = await self._bearer(plan, access, signed_on)
        except CredentialsRefused:
            self._unstored.clear()  # the service does not accept them any more
            raise
        return account, msgspec.structs.replace(signed_on, bearer=bearer)

    async def _bearer(self, plan: _Plan, access: LogonApi, signed_on: LoggedOn) -> Bearer:
        """Return a new token if a token is requested and the service creates it, else the session.

        Raises CredentialsRefused if the service rejects the session, or ends the token together
        with the session.
        """
        session, days = signed_on.bearer, self._request.token_days
        if days is None:
            await require_accepted(access)
            return session
        name = bearer_auth.token_name(self._paths.account)
        perhaps = f"a token named {name!r} may have been created"
        created = partial(self._unstored.__setitem__, "the token")
        try:
            token = await obtain_token(access, signed_on, name, days, created)
        except RemoteError as refused:
            unused = self._unstored.pop("the token", None)
            if unused is not None:
                await dismiss(access, plan.profile, unused, self._tell, "the token")
            access.carry(Secret(session.secret))
            if isinstance(refused, NotLoggedOn | BadAnswer):
                await require_accepted(access)
            if unused is not None:
                self._tell(f"the new token is not used: {refused.message}")
            elif isinstance(refused, Unreachable):
                self._tell(f"no token was created: {refused.message}")
            else:
                self._tell(f"the service did not create a token: {refused.message}")
            is_unsure = unused is None and isinstance(refused, ReplyLost | BadAnswer)
            unsure = f"; {perhaps}" if is_unsure else ""
            self._tell(f"the session is used instead; log on again after it has ended{unsure}")
            return session
        except BaseException:
            is_created, cancelled = "the token" in self._unstored, "the logon was cancelled"
            await self._end_unstored(plan, access)
            self._tell(cancelled if is_created else f"{cancelled}; {perhaps}")
            raise
        await leave_session(access, token)
        del self._unstored["the session"]
        return token

    async def _keep(
        self, plan: _Plan, access: LogonApi, account: Account, signed_on: LoggedOn
    ) -> Account:
        """Store the logon, invalidate the former bearer token, and return the account as stored."""
        bearer = signed_on.bearer
        if self._token is None:
            self._unstored = {f"the new {bearer.kind}": bearer}
        async with AsyncExitStack() as connections:
            # Until the account is locked, a renewal may store another bearer token, and a logon in
            # another terminal another account.
            with locked(self._paths):
                self._ask.require_wanted(is_last=True)
                stored = None
                with suppress(StoreError):
                    stored = bearer_auth.load_bearer(plan.store)
                replaced = stored if stored and stored.secret != bearer.secret else None
                previous = PreviousAccount(self._paths, self._queries)
                # The replaced bearer token must not be sent to a service other than its own.
                former, former_access = previous.account, None
                if previous.at(plan.base_url):
                    former_access = access
                elif former is not None and replaced is not None:
                    # Open the connection before the former CA file is replaced.
                    with suppress(ConfigError, OSError):
                        opened = self._open_access(former.base_url, former.ca_file)
                        former_access = await connections.enter_async_context(opened)
                with self._restoring(plan.store):
                    account = self._store(plan, previous, account, signed_on)
                self._unstored.clear()
            if replaced is not None:
                which = f"your previous {replaced.kind}"
                if former is None or former_access is None:
                    report_valid(access, replaced, self._tell, which)
                else:
                    knows = former_access is access and plan.operations.can("revoke_token")
                    profile = plan.profile if knows else former.profile
                    await dismiss(former_access, profile, replaced, self._tell, which)
        return account

    def _store(
        self, plan: _Plan, previous: PreviousAccount, account: Account, signed_on: LoggedOn
    ) -> Account:
        """Store the account and its secrets, and return the account as stored.

        Delete the local data of a different previous user. The caller holds the account's lock.
        """
        store, bearer = plan.store, signed_on.bearer
        with ExitStack() as stack:
            if not previous.is_of(account):
                stack.enter_context(previous.hold)
                self._tell(previous.forget(store))
                # If this process is killed now, a mount must not send the new token there.
                account.delete(self._paths)
            if plan.certificates is not None:
                write_private(self._paths.ca_copy, plan.certificates)
            bearer_auth.save_bearer(store, bearer)
            kept = self._keep_password(store, account, signed_on.password)
            if store.kind == "file":
                beside = ", the password beside it" if kept else ""
                self._tell(
                    f"no keyring is in use: the {bearer.kind} and the data key are stored in"
                    f" {self._paths.secrets_file}{beside}, readable only by you"
                    f"{f' ({FOREIGN})' if is_foreign() else ''}"
                )
            account = msgspec.structs.replace(account, keeps_password=kept)
            account.save(self._paths)
            return account

    @contextmanager
    def _restoring(self, store: SecretStore) -> Iterator[None]:
        """Restore the stored logon if the `with` block raises an error.

        If the account's files cannot be restored, delete the secrets.
        """
        paths = self._paths.ca_copy, self._paths.account_file, self._paths.account_copy
        files = {path: _content(path) for path in paths}
        secrets = {name: store.get(name) for name in _SECRETS}
        try:
            yield
        except BaseException:
            try:
                for path, content in files.items():
                    if _content(path) == content:
                        continue
                    if content is None:
                        path.unlink()
                    else:
                        write_private(path, content)
            except OSError:
                secrets = dict.fromkeys(secrets)
            for name, secret in secrets.items():
                with suppress(StoreError):
                    if secret is None:
                        store.delete(name)
                    else:
                        store.set(name, secret)
            raise

    async def _end_unstored(self, plan: _Plan, access: LogonApi) -> None:
        """Invalidate the new bearer tokens that are not stored, the newest first; never raise."""
        while self._unstored:
            which, unstored = self._unstored.popitem()
            await dismiss(access, plan.profile, unstored, self._tell, which)

    def _keep_password(self, store: SecretStore, account: Account, password: Secret | None) -> bool:
        """Store the password if requested and allowed; return True if the password is stored.

        If the password is not stored, delete an earlier password. In both cases, delete the record
        of a rejected password.
        """
        store.delete(REFUSED)
        if account.keeps_password and password is not None:
            store.set(PASSWORD, password)
            return True
        store.delete(PASSWORD)
        if self._request.save_password:
            why = "there was none" if account.keeps_password else "the organization forbids it"
            self._tell(f"the password is not saved: {why}; log on again after the logon has ended")
        return False

    def _profile(self, former: Account | None) -> str:
        # `published` may be from the time before the organization had a profile.
        used = former.profile if former and former.profile != "published" else None
        return profile_at(self._request.profile or used or self._request.default_profile, Path())

    def _default_certificates(self, ca_file: str) -> tuple[str | None, bytes | None]:
        """Return the organization's CA file and its certificates.

        If the file cannot be used, print a warning and return (None, None), because an error in the
        administrator's defaults must not prevent a logon.
        """
        try:
            return ca_file, read_certificates(Path(ca_file))
        except ConfigError as wrong:
            self._tell(ConfigError(wrong.message, remedy=ADMINISTRATOR).line())
            return None, None

    def _change(self, profile: Profile) -> PasswordChange | None:
        if self._new_password is None or not profile.can("change_password"):
            return None
        return PasswordChange(profile.operation("change_password"), self._new_password, self._tell)

    def _usable_store(self) -> SecretStore:
        """Return an accessible secret store for the new token.

        If the keyring cannot be used, return a file store. Raises StoreError if secrets of the
        account are in the unusable keyring, or if systemd provides the token.
        """
        store = self._open_store(self._paths)
        if isinstance(store, CredentialsStore) and store.gives(bearer_auth.NAME):
            raise StoreError(
                f"systemd gives the account {self._paths.account!r} its token",
                remedy="change it where the unit takes it from, or use another --account",
            )
        if store.kind == "keyring":
            try:
                store.get(bearer_auth.NAME)
            except StoreError as wrong:
                if self._paths.database.exists() or self._paths.keyring_mark.exists():
                    # The keyring contains the key of the local data, or a former logon.
                    wrong.remedy += "; if you cannot, use another --account"
                    raise
                store = FileStore(self._paths.secrets_file)
        return store

    async def _requirements(self, access: LogonApi, base: str) -> Requirements:
        try:
            return await access.requirements()
        except (NotLoggedOn, NotFound, AlreadyExists, BadAnswer) as wrong:
            if isinstance(wrong, BadAnswer):
                detail, remedy = wrong.message, wrong.remedy
            else:  # the default messages of these errors do not fit before a logon
                detail, remedy = f"HTTP {wrong.status} {wrong.code}".rstrip(), ""
            raise BadAnswer(
                f"{base} does not answer like a deployment of the service ({detail})",
                remedy=remedy or "check the base URL",
                status=wrong.status,
                code=wrong.code,
            ) from wrong


def _content(path: Path) -> bytes | None:
    with suppress(OSError):
        return path.read_bytes()
    return None


def read_certificates(path: Path) -> bytes:
    """Return the certificates in a PEM file; omit other content of the file, such as a key.

    Raises ConfigError if the file cannot be read or has no certificate.
    """
    require_file(path)
    try:
        with path.open("rb") as file:
            found = _CERTIFICATE.findall(file.read(LONGEST))
    except OSError as wrong:
        if wrong.errno == errno.ENOENT:
            raise ConfigError(f"{path} does not exist") from wrong
        raise ConfigError(f"{path} cannot be read ({wrong.strerror})") from wrong
    if not found:
        raise ConfigError(
            f"{path} holds no certificate", remedy="give a file in PEM form to --ca-file"
        )
    return b"\n".join(found) + b"\n"
