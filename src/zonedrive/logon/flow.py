"""State machine of a logon, followed by the exchange of the session for a token.

This module uses no terminal and no keyring: the caller provides credentials through a
`CredentialPrompt`.

A browser sign-on is a step like the other steps: its result is sent to the service instead of user
name and password.

    START ──200──▶ LOGGED_ON
      │ └──202──▶ PENDING ──200──▶ LOGGED_ON
      │            │  └──202──▶ PENDING (the other state)
      └──else──▶ ENDED ◀──else──┘

The first request sends the credentials that the service's requirements name. The service may ask
for the same credential again, because it checks each credential in a separate state. A wrong
credential ends the flow, so a repeated question does not mean that the credential is wrong.

INVARIANT: each pending state is answered once. A flow runs once, and nothing in this module starts
another flow.
"""

import shlex
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple, Protocol

import msgspec
import trio

from zonedrive.errors import (
    BadAnswer,
    ConfigError,
    CredentialsRefused,
    Forbidden,
    NotLoggedOn,
    PasswordChangeRequired,
    Rejected,
    RemoteError,
)
from zonedrive.logon.api import LogonApi
from zonedrive.logon.bearer_auth import Bearer
from zonedrive.logon.browser.signon import Browser, Fields
from zonedrive.logon.secrets import Secret
from zonedrive.logon.wire import Offer, Outcome, Requirements
from zonedrive.remote.profiles.load import load_profile
from zonedrive.remote.profiles.operations import Operation, Profile
from zonedrive.remote.wire.error_mapping import BLOCKED, REMEDIES, WORDS
from zonedrive.remote.wire.fields import fits_header
from zonedrive.translation import marked

PASSWORD: Final = "PASSWORDPENDING"  # noqa: S105  the state's name on the wire
CODE: Final = "VERIFICATIONCODEPENDING"
BROWSER: Final = "browser"  # not a state of the service
MAILED: Final = "ServiceMail"
GOODBYE_SECONDS = 10.0
NOT_NOW: Final = marked("it could not be ended now")

# Messages for the error codes of a rejected logon.
_REFUSALS: Final = {
    **{code: WORDS[code] for code in BLOCKED},
    "AUTHORIZATION_FAILED": "unknown user or wrong password",
    "PASSWORD_FAILURE": "the password is wrong",
    "VERIFICATIONCODE_FAILURE": "the one-time code is wrong or was used before",
    "NOT_ALLOWED": "the user may not log on this way",
    "ALREADY_LOGGED_ON": "the user is logged on already",
}

CHECK: Final = "check user name, password and code"
WRONG_WITH_CODE: Final = "logging on: unknown user, wrong password or wrong one-time code"
"""Message for AUTHORIZATION_FAILED after a password and a one-time code; either may be wrong."""


class CredentialPrompt(Protocol):
    """Source of the user's credentials for a logon."""

    def password(self) -> Secret:
        """Return the user's password.

        Raises an error if no user can be asked; the type depends on the user interface.
        """

    def code(self, kind: str) -> Secret:
        """Return a one-time code of `kind`: TOTP, HOTP, ServiceMail, or "" if the kind is unknown.

        Raises CredentialsRefused if no user can be asked.
        """

    def given_code(self, kind: str) -> Secret | None:
        """Return a one-time code of `kind` that was given before the logon, or None."""
        return None

    def require_wanted(self, *, is_last: bool = False) -> None:
        """Raise CredentialsRefused if the user has cancelled the logon.

        `is_last` is True in the last call. After the last call, the credentials are stored, and a
        cancellation is no longer possible.
        """
        return


class PasswordChange(NamedTuple):
    """Operation and callbacks for a password change that the service requires during a logon."""

    operation: Operation  # of the profile
    ask: Callable[[], Secret]  # return the new password
    tell: Callable[[str], None]  # print a line


class LoggedOn(msgspec.Struct, frozen=True):
    """Result of a successful flow; `password` is used to request a token."""

    bearer: Bearer
    user_id: str
    password: Secret | None
    way: tuple[str, ...] = ()  # option that selects the same browser sign-on again
    typed: str = ""  # user name typed at the prompt
    is_other: bool = False  # the local user has confirmed a user other than the expected one


class Flow:
    """One run of the state machine for one logon; an instance runs only once."""

    def __init__(
        self,
        access: LogonApi,
        username: str,
        needs: Requirements,
        ask: CredentialPrompt,
        browser: Browser | None = None,
        *,
        change: PasswordChange | None = None,
        known_as: Callable[[str], str] = lambda _username: "",
    ) -> None:
        """Prepare the flow.

        If `username` is "", the user is asked for the name when the name is needed. `needs` are the
        service's requirements. If `browser` is None, a browser sign-on is not possible. If `change`
        is None, a password change is not possible. `known_as` takes a user name, and returns the
        service's name for the user, as recorded at the previous logon. If there was no previous
        logon, or if the previous logon was another user's, `known_as` returns "".
        """
        self._has_begun = False
        self._browser, self._change = browser, change
        self._access, self._username, self._needs, self._ask = access, username, needs, ask
        self._known_as, self._user_id = known_as, known_as(username)
        self._expected = [name for name in (username, self._user_id) if name]
        self._answered: set[str] = set()  # pending states, and BROWSER
        self._password: Secret | None = None
        self._code: Secret | None = None
        self._way: tuple[str, ...] = ()
        self._is_other = False
        self._typed = ""

    async def run(self) -> LoggedOn:
        """Run the flow to its end, and return the session and its user.

        Raises CredentialsRefused or its subclass PasswordChangeRequired if the service rejects the
        logon, other RemoteErrors if the result is unknown, and the errors of `Browser.offer`,
        `Browser.sign_on` and the credential prompt.
        """
        if self._has_begun:
            raise RuntimeError("a logon flow runs once")
        self._has_begun = True
        outcome = await self._first()
        while not outcome.logged_on:
            outcome = await self._step_on(outcome)
        began = self._access.clock.now_ns()
        if self._browser and BROWSER in self._answered:
            await self._confirm(self._browser, outcome)
        return await self._finished(outcome, began)

    async def _first(self) -> Outcome:
        if self._browser:
            offer = self._browser.offer(self._needs, named=bool(self._username))
            if offer is not None:
                return await self._sign_on(self._browser, offer)
            if not self._username:
                self._typed = self._username = self._browser.person.username()
                self._user_id = self._known_as(self._username)
        self._password = self._ask.password() if self._needs.password else None
        self._code = self._first_code()
        return await self._step(password=self._password, code=self._code)

    def _first_code(self) -> Secret | None:
        """Return the one-time code to send with the password, or None.

        The user is not asked for a code that the service sends by mail, because the mail is sent
        only after the password. However, a code that was given before the logon, for example from
        the mail of an earlier logon, is returned, because the code becomes invalid if the password
        is sent without a code.
        """
        if not self._needs.has_codes:
            return None
        if given := self._ask.given_code(self._needs.code_kind):
            return given
        if self._needs.code and self._needs.code_kind != MAILED:
            return self._ask.code(self._needs.code_kind)
        return None

    async def _step_on(self, outcome: Outcome) -> Outcome:
        wanted = outcome.pending
        if not wanted and not outcome.elsewhere:
            raise CredentialsRefused("logging on: the service refuses, without a reason")
        if not wanted:
            return await self._sign_on(self._browser, outcome.elsewhere)
        if wanted not in (PASSWORD, CODE) or not outcome.session:
            raise BadAnswer("logging on: the service asks for something unknown")
        if wanted in self._answered:
            raise CredentialsRefused(
                "logging on: the service asks again for the password"
                if wanted == PASSWORD
                else "logging on: the service asks again for the one-time code"
            )
        self._answered.add(wanted)
        # From here on use the service's own name for the user, if known.
        self._user_id = outcome.user_id or self._user_id
        self._username = outcome.user_id or self._username
        flow = Secret(outcome.session)
        if wanted == PASSWORD:
            self._password = self._password or self._ask.password()
            return await self._step(password=self._password, flow=flow)
        kind = self._needs.code_kind
        self._code = self._code or self._ask.given_code(kind) or self._ask.code(kind)
        return await self._step(code=self._code, flow=flow)

    async def _step(
        self,
        *,
        password: Secret | None = None,
        code: Secret | None = None,
        flow: Secret | None = None,
    ) -> Outcome:
        try:
            return await self._access.logon(self._username, password=password, code=code, flow=flow)
        except (NotLoggedOn, Forbidden, Rejected) as refused:
            if refused.code == "AUTHORIZATION_FAILED" and code is not None:
                raise CredentialsRefused(
                    WRONG_WITH_CODE, remedy=CHECK, status=refused.status, code=refused.code
                ) from refused
            raise _refusal(refused) from refused

    async def _sign_on(self, browser: Browser | None, where: Offer | str) -> Outcome:
        """Run the browser sign-on with `where`, an offered method or a URL from the service.

        Raises CredentialsRefused if `browser` is None, or if this flow already had a browser
        sign-on.
        """
        if browser is None:
            ways = " or ".join(shlex.join(offer.option) for offer in self._needs.offers)
            raise CredentialsRefused(
                "logging on: the service wants a sign-on in a browser",
                remedy=f"use {ways}"
                if ways
                else "run zonedrive logon in a terminal, without --password-stdin",
            )
        if BROWSER in self._answered:
            raise CredentialsRefused("logging on: the service asks again for a sign-on")
        self._answered.add(BROWSER)
        if isinstance(where, Offer):
            self._way = where.option
        self._password = None  # an earlier password does not belong to this sign-on
        logon = partial(self._by_answer, browser)
        return await browser.sign_on(self._access, self._needs, where, logon)

    async def _by_answer(self, browser: Browser, fields: Fields) -> Outcome:
        self._ask.require_wanted()  # the service creates no session, and the browser shows why
        try:
            outcome = await self._access.logon_by(fields)
        except (NotLoggedOn, Forbidden, Rejected) as refused:
            raise _refusal(refused, "sign on again") from refused
        if outcome.logged_on and not browser.person.can_confirm:
            await self._confirm(browser, outcome)  # now, so that the browser shows an error
        return outcome

    async def _confirm(self, browser: Browser, outcome: Outcome) -> None:
        """Raise CredentialsRefused for an unexpected user, unless the local user confirms the name.

        The session is ended before the error is raised. Without this check, an attacker who answers
        instead of the user's own browser could log this account on under the attacker's name, and
        would receive the user's files. At a first logon without a user name, every user is
        accepted.
        """
        found = outcome.user_id
        if not self._expected or found.casefold() in (name.casefold() for name in self._expected):
            return
        expected, person = self._expected[0], browser.person
        confirmed = False
        try:
            if person.can_confirm:
                confirmed = await person.confirm(found, expected)
        finally:
            if not confirmed:
                await self._give_back(outcome)
        if not confirmed:
            raise _not_confirmed(found, expected, asked=person.can_confirm)
        self._is_other = True

    async def _give_back(self, outcome: Outcome) -> None:
        """End the unused session of `outcome`; ignore errors of the service."""
        if fits_header(outcome.session):
            self._access.carry(Secret(outcome.session))
            with trio.move_on_after(GOODBYE_SECONDS, shield=True):
                await end_session(self._access)

    async def _finished(self, outcome: Outcome, began: int) -> LoggedOn:
        if not fits_header(outcome.session):
            raise BadAnswer("logging on: the answer holds no usable session id")
        self._access.carry(Secret(outcome.session))
        user = outcome.user_id or self._user_id or self._username
        if outcome.change_password:
            self._password = await self._changed(user)
        expires = began + outcome.life_ns if outcome.life_ns else 0
        return LoggedOn(
            Bearer(outcome.session, "session", expires, began_ns=began),
            user,
            self._password,
            self._way,
            "" if BROWSER in self._answered else self._typed,
            self._is_other,
        )

    async def _changed(self, user: str) -> Secret:
        """Change the user's password as the service requires, and return the new password.

        The request with the new password is sent once. Another request then checks that the service
        still accepts the session. If the check fails, the session is ended. If the password change
        fails, the session is not ended, because the service rejects the request to end a session
        before the password change. Raises PasswordChangeRequired if a password change is not
        possible or the old password is unknown, and RemoteError for a failed request.
        """
        access, change = self._access, self._change
        if change is None or self._password is None:
            raise PasswordChangeRequired(
                "logging on: the service wants the password to be changed first",
                remedy="change it in the service's web application, then log on again",
            )
        new = change.ask()
        await access.change_password(change.operation, user, self._password, new)
        change.tell("the password is changed")
        try:
            await access.check()
        except BaseException as wrong:
            with trio.move_on_after(GOODBYE_SECONDS, shield=True):
                await end_session(access)
            if isinstance(wrong, NotLoggedOn | Forbidden):
                raise CredentialsRefused(
                    "logging on: the password is changed, but the session ended or stays limited",
                    remedy="log on again with the new password",
                ) from wrong
            raise
        return new


def _not_confirmed(found: str, expected: str, *, asked: bool) -> CredentialsRefused:
    found = found or "a user whom the service does not name"
    if asked:
        return CredentialsRefused(
            f"the browser signed on as {found}, not as {expected}, which was not confirmed",
            remedy="sign off there first, and sign on as yourself",
        )
    return CredentialsRefused(
        f"the browser signed on as {found}, not as {expected}",
        remedy="sign off there first, or log on in a terminal, which asks",
    )


async def require_accepted(access: LogonApi) -> None:
    """Raise CredentialsRefused if the service rejects the session that it has just created.

    Ignore other errors, because they say nothing about the session.
    """
    try:
        await access.check()
    except NotLoggedOn as refused:
        raise CredentialsRefused(
            "logging on: the service does not accept the session that it has just given",
            remedy="try again; if it fails again, tell the operator of the service",
            status=refused.status,
            code=refused.code,
        ) from refused
    except RemoteError:
        return


async def use_token(access: LogonApi, token: Secret, user: str) -> LoggedOn:
    """Test a token that was created elsewhere, and return the token as a logon of `user`.

    The service does not name the owner of a token, so `user` is not checked. Raises
    CredentialsRefused if the service rejects the token, and another RemoteError if the test fails.
    """
    access.carry(token)
    try:
        await access.check()
    except (NotLoggedOn, Forbidden) as refused:
        raise CredentialsRefused(
            "logging on: the service does not accept the token"
            if isinstance(refused, NotLoggedOn)
            else "logging on: the token gives no access to zones",
            remedy="create another one with 'zonedrive tokens create'",
            status=refused.status,
            code=refused.code,
        ) from refused
    return LoggedOn(Bearer(token.reveal(), "token"), user, None)


async def obtain_token(
    access: LogonApi,
    session: LoggedOn,
    name: str,
    days: int,
    created: Callable[[Bearer], None] = lambda token: None,
) -> Bearer:
    """Create a token called `name`, valid for `days` days; test the token, and return it.

    `created` is called with the token before the test. After the test, `access` sends the session's
    bearer token again. Raises RemoteError if the service creates no usable token, and
    CredentialsRefused if `session` has no password.
    """
    if session.password is None:
        raise CredentialsRefused("it takes a password, and none was used to log on")
    token = await access.create_token(name, days * 86400, session.password)
    began = access.clock.now_ns()
    expires = token.expires_ns or began + days * 86400 * 10**9
    bearer = Bearer(token.secret, "token", expires, token.id, began)
    created(bearer)
    access.carry(Secret(token.secret))
    try:
        await access.check()
    except NotLoggedOn as refused:  # the token was rejected, not the password
        raise BadAnswer("the service does not accept the token that it has just given") from refused
    finally:
        access.carry(Secret(session.bearer.secret))
    return bearer


async def leave_session(access: LogonApi, token: Bearer) -> None:
    """End the session that `access` uses, and check that `token` remains valid.

    `access` uses `token` afterwards. Raises CredentialsRefused if the token ended together with the
    session (no valid logon remains). Ignore other errors of the check, because the service accepted
    the token before the session ended.
    """
    await end_session(access)
    access.carry(Secret(token.secret))
    try:
        await access.check()
    except NotLoggedOn as refused:
        raise CredentialsRefused(
            "logging on: the service ends the token together with the session",
            remedy="log on with --session-only",
        ) from refused
    except RemoteError:
        return


async def end_session(access: LogonApi) -> RemoteError | None:
    """End the session that `access` uses; return the error, or None if there was no error."""
    try:
        await access.logoff()
    except RemoteError as wrong:
        return wrong
    return None


async def revoke(access: LogonApi, profile: Profile, token: Bearer) -> bool:
    """Revoke `token`; return True if the token was revoked.

    `access` must use `token`. Return False if the token's id is unknown, or if the profile has no
    operation that revokes tokens. Raises RemoteError if the request fails.
    """
    if not token.id or not profile.can("revoke_token"):
        return False
    await access.revoke_token(profile.operation("revoke_token"), token.id)
    return True


async def dismiss(
    access: LogonApi, profile: str, bearer: Bearer, tell: Callable[[str], None], which: str
) -> None:
    """Invalidate an unused bearer token: end the session or revoke the token.

    The request is sent even if the logon is being cancelled. On failure, call `tell` with a message
    instead of raising an error. Omit the message if the service does not accept the bearer token
    any more, or if the bearer token has expired. `which` describes the bearer token for the user,
    for example "your previous token". `profile` names the deployment profile. A token is revoked
    with the profile's operation `revoke_token`, if the profile defines this operation.
    """
    access.carry(Secret(bearer.secret))
    is_ended, why = False, NOT_NOW
    with trio.move_on_after(GOODBYE_SECONDS, shield=True):
        try:
            if bearer.kind == "session":
                await access.logoff()
                is_ended = True
            else:
                known = load_profile(profile)
                if not known.can("revoke_token"):
                    why = "the deployment profile cannot revoke tokens"
                is_ended = await revoke(access, known, bearer)
                if not is_ended:
                    await access.check()  # the token may have been revoked elsewhere
        except NotLoggedOn:
            is_ended = True
        except (RemoteError, ConfigError):
            pass
    if not is_ended:
        report_valid(access, bearer, tell, which, why)


def report_valid(
    access: LogonApi, bearer: Bearer, tell: Callable[[str], None], which: str, why: str = NOT_NOW
) -> None:
    """Call `tell` with a message that an unused bearer token remains valid, unless it has expired.

    `which` describes the bearer token for the user, and `why` is the reason in the message. The
    clock of `access` shows whether the bearer token has expired.
    """
    if not 0 < bearer.expires_ns <= access.clock.now_ns():
        known_as = f" ({bearer.id[:80]})" if bearer.id else ""
        until = f" until {bearer.until}" if bearer.until else ""
        tell(f"{which}{known_as} remains valid at the service{until}, because {why}")


def _refusal(refused: RemoteError, remedy: str = CHECK) -> RemoteError:
    words = _REFUSALS.get(refused.code)
    if words is None and isinstance(refused, Rejected):
        return refused
    if refused.code == "UNSUPPORTED_VERSION":
        return Rejected(
            f"logging on: {WORDS[refused.code]}",
            remedy="update zonedrive",
        )
    if refused.code in BLOCKED:
        remedy = "wait a while before the next attempt, which could make it longer"
    elif refused.code == "ALREADY_LOGGED_ON":
        remedy = "log off where this user is logged on, or try again later"
    elif refused.code in REMEDIES:  # for example an inactive user
        remedy = REMEDIES[refused.code]
    error = CredentialsRefused(
        f"logging on: {words}" if words else refused.message,
        remedy=remedy,
        status=refused.status,
        code=refused.code,
    )
    error.by_gateway = refused.by_gateway
    return error
