"""Complete logon: local checks, the exchange with the service (`flow`), a token, and storage.

This module knows nothing about terminals: credentials come from a `CredentialPrompt`, and messages
for the user go to the callback `tell`.

INVARIANT: nothing on this machine changes before the service has accepted the logon.
INVARIANT: pending uploads are never sent as another user or to another service.
INVARIANT: a bearer token that is not stored, or no longer stored, is invalidated at the service
(token revoked or session ended). If this fails, the user gets a message.
"""

import errno
import re
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, ExitStack, suppress
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
        self.kept = ""  # set at the end: description of the stored bearer token

    async def run(self) -> Account:
        """Log on, store the account and its secrets, and return the account.

        Raises ZonedriveError, or OSError if a file cannot be written.
        """
        base = base_url(self._request.url)
        before = PreviousAccount(self._paths, self._queries)
        former = before.account
        # The previous logon, if it was to the same service.
        alike = former if former is not None and former.base_url == base else None
        profile = self._profile(alike)
        known_profile = load_profile(profile)
        if file := hidden_file(profile):
            self._tell(
                f"{file} is not used, because zonedrive has a profile {profile} of its own; ask the"
                " administrator of this computer to rename the file"
            )
        ca_file = self._request.ca_file or (alike.ca_file if alike else None)
        certificates = None if ca_file is None else read_certificates(Path(ca_file))
        if ca_file is None and self._request.default_ca_file is not None:
            ca_file, certificates = self._default_certificates(self._request.default_ca_file)
        if former is not alike:
            before.refuse_takeover()
        store = self._usable_store()
        if alike and self._request.username in ("", alike.username):
            before.require_key(store)
        require_room(self._paths.state)  # or the service would create a token that is not stored
        async with self._open_access(base, ca_file) as access:
            needs = await self._requirements(access, base)
            known_as = alike.known_as if alike else lambda _username: ""
            browser = None
            if self._person is not None:
                browser = Browser(profile, known_profile.sign_on, self._person)
            if self._token is not None:
                user = known_as(self._request.username) or self._request.username
                signed_on = await use_token(access, self._token, user)
            else:
                signed_on = await Flow(
                    access,
                    self._request.username,
                    needs,
                    self._ask,
                    browser,
                    change=self._change(known_profile),
                    known_as=known_as,
                ).run()
            username = self._request.username or signed_on.typed
            if signed_on.is_other and known_as(username):
                username = ""  # the typed name belongs to the previous user
            account = Account(
                name=self._paths.account,
                base_url=base,
                username=username or signed_on.user_id,
                user_id=signed_on.user_id,
                organization=needs.organization,
                ca_file=None if certificates is None else str(self._paths.ca_copy),
                profile=profile,
                sign_on=signed_on.way,
                keeps_password=self._request.save_password and needs.can_save,
            )
            try:
                self._ask.require_wanted()  # not every profile can revoke a token
                if before.is_of(account):
                    before.require_key(store)
                else:
                    before.refuse_takeover()
            except (ConfigError, StoreError, CredentialsRefused):
                if self._token is None:
                    await dismiss(access, profile, signed_on.bearer, self._tell, "the session")
                raise
            bearer = await self._bearer(access, signed_on, profile)
            secrets: dict[str, Secret | None] = {}
            files: dict[Path, bytes | None] = {}
            async with AsyncExitStack() as stack:
                there = stored = None
                with ExitStack() as held:
                    try:
                        # Until here, a renewal may store another bearer token.
                        held.enter_context(locked(self._paths))
                        self._ask.require_wanted(is_last=True)
                        with suppress(StoreError):
                            stored = bearer_auth.load_bearer(store)
                        replaced = stored if stored and stored.secret != bearer.secret else None
                        # A logon in another terminal may have replaced `former`, and the stored
                        # bearer token must not be sent to another service than its own.
                        last = PreviousAccount(self._paths, self._queries).account
                        is_here = last is not None and last.base_url == base
                        if last is not None and replaced is not None:
                            # Open the connection before the former CA file is replaced.
                            there = access if is_here else await self._open_former(stack, last)
                        files = {path: _content(path) for path in self._files}
                        secrets = {name: store.get(name) for name in _SECRETS}
                        password = signed_on.password
                        account = self._keep(store, account, password, bearer, certificates)
                    except BaseException:
                        await self._undo(access, account, store, bearer, secrets, files)
                        raise
                if replaced is not None:
                    which = f"your previous {replaced.kind}"
                    if last is None or there is None:
                        report_valid(access, replaced, self._tell, which)
                    else:
                        knows = is_here and known_profile.can("revoke_token")
                        ending = profile if knows else last.profile
                        await dismiss(there, ending, replaced, self._tell, which)
        self.kept = marked(f"by {bearer.kind}")
        if bearer.until:
            self.kept = marked(f"by {bearer.kind} until {bearer.until}")
        return account

    def _keep(
        self,
        store: SecretStore,
        account: Account,
        password: Secret | None,
        bearer: Bearer,
        certificates: bytes | None,
    ) -> Account:
        """Store the account and its secrets, and return the account as stored.

        Delete the local data of a different previous user. The previous user is determined again,
        because a logon in another terminal may have finished. The caller holds the account's
        lock.
        """
        before = PreviousAccount(self._paths, self._queries)
        with ExitStack() as stack:
            if not before.is_of(account):
                stack.enter_context(before.hold)
                self._tell(before.forget(store))
                # If this process is killed now, a mount must not send the new token there.
                account.delete(self._paths)
            if certificates is not None:
                write_private(self._paths.ca_copy, certificates)
            bearer_auth.save_bearer(store, bearer)
            kept = self._keep_password(store, account, password)
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

    async def _undo(
        self,
        access: LogonApi,
        account: Account,
        store: SecretStore,
        bearer: Bearer,
        secrets: dict[str, Secret | None],
        files: dict[Path, bytes | None],
    ) -> None:
        """Restore the former logon, and invalidate `bearer`, which could not be stored.

        `secrets` has the former secrets of the logon, and `files` the former content of the
        account's files. If the files cannot be restored, delete the secrets. A token that the user
        provided is not revoked.
        """
        is_restored = _restored(files)
        for name, former in secrets.items():
            with suppress(StoreError):
                if former is None or not is_restored:
                    store.delete(name)
                else:
                    store.set(name, former)
        if self._token is not None:
            return
        which = f"the new {bearer.kind}"
        await dismiss(access, account.profile, bearer, self._tell, which)

    @property
    def _files(self) -> tuple[Path, ...]:
        """Files that `_keep` replaces."""
        return self._paths.ca_copy, self._paths.account_file, self._paths.account_copy

    async def _open_former(self, stack: AsyncExitStack, former: Account) -> LogonApi | None:
        with suppress(ConfigError, OSError):
            opened = self._open_access(former.base_url, former.ca_file)
            return await stack.enter_async_context(opened)
        return None

    def _keep_password(self, store: SecretStore, account: Account, password: Secret | None) -> bool:
        """Store the password if this was requested; return True if the password is stored.

        Delete an earlier password and the record of its rejection.
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

    def _profile(self, alike: Account | None) -> str:
        # `published` may be from the time before the organization had a profile.
        used = alike.profile if alike and alike.profile != "published" else None
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

    async def _bearer(self, access: LogonApi, signed_on: LoggedOn, profile: str) -> Bearer:
        """Return a new token if a token is requested and the service creates it, else the session.

        A token that the user provided is returned unchanged. Raises CredentialsRefused if the
        service rejects the session, or ends the token together with the session. A token that is
        not returned is revoked. If the logon is cancelled, the session is ended, too.
        """
        days = self._request.token_days
        if self._token is not None:
            return signed_on.bearer
        if days is None:
            return await self._session(access, signed_on, profile)
        name = bearer_auth.token_name(self._paths.account)
        created: list[Bearer] = []
        try:
            token = await obtain_token(access, signed_on, name, days, created.append)
        except BaseException as refused:
            for unused in created:
                await dismiss(access, profile, unused, self._tell, "the token")
            perhaps = "" if created else f"a token named {name!r} may have been created"
            access.carry(Secret(signed_on.bearer.secret))
            if not isinstance(refused, RemoteError):
                await dismiss(access, profile, signed_on.bearer, self._tell, "the session")
                cancelled = "the logon was cancelled"
                self._tell(f"{cancelled}; {perhaps}" if perhaps else cancelled)
                raise
            if isinstance(refused, NotLoggedOn | BadAnswer):
                await self._session(access, signed_on, profile)
            if created:
                self._tell(f"the new token is not used: {refused.message}")
            elif isinstance(refused, Unreachable):
                self._tell(f"no token was created: {refused.message}")
            else:
                self._tell(f"the service did not create a token: {refused.message}")
            is_unsure = perhaps and isinstance(refused, ReplyLost | BadAnswer)
            unsure = f"; {perhaps}" if is_unsure else ""
            self._tell(f"the session is used instead; log on again after it has ended{unsure}")
            return signed_on.bearer
        try:
            await leave_session(access, token)
        except CredentialsRefused:
            raise  # the token ended together with the session
        except BaseException:
            await dismiss(access, profile, token, self._tell, "the token")
            raise
        return token

    async def _session(self, access: LogonApi, signed_on: LoggedOn, profile: str) -> Bearer:
        try:
            await require_accepted(access)
        except CredentialsRefused:
            raise  # there is nothing to end
        except BaseException:
            await dismiss(access, profile, signed_on.bearer, self._tell, "the session")
            raise
        return signed_on.bearer


def _content(path: Path) -> bytes | None:
    with suppress(OSError):
        return path.read_bytes()
    return None


def _restored(files: dict[Path, bytes | None]) -> bool:
    """Give the files their former content (None: no file); return False if this fails."""
    try:
        for path, former in files.items():
            if _content(path) == former:
                continue
            if former is None:
                path.unlink()
            else:
                write_private(path, former)
    except OSError:
        return False
    return True


def read_certificates(path: Path) -> bytes:
    """Return the certificates in a PEM file without other content such as a key.

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
