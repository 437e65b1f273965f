"""Logons in the web interface; each one runs in a thread and prompts for credentials on a page."""

import contextlib
import queue
import secrets
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import trio

from zonedrive.cli import control_client
from zonedrive.daemon import local_data
from zonedrive.errors import (
    CredentialsRefused,
    OtherHost,
    SignOnNotOffered,
    Untrusted,
    ZonedriveError,
)
from zonedrive.logon.browser.signon import Person
from zonedrive.logon.flow import CredentialPrompt
from zonedrive.logon.logon import Logon, LogonRequest
from zonedrive.logon.secrets import Secret
from zonedrive.logon.wire import Offer
from zonedrive.paths import AccountPaths, require_folders, require_moved
from zonedrive.remedies import message_in_window
from zonedrive.translation import translated as _
from zonedrive.translation import translated_line
from zonedrive.ui import problems, session_start
from zonedrive.ui.problems import Problem

ANSWER_SECONDS = 600.0  # a person may have to fetch a device that shows a code
SIGN_ON_SECONDS = 300.0


def problem_of(wrong: Exception) -> Problem:
    """Return the problem that the logon page shows for an error.

    For an untrusted certificate, the remedy names the page's field for a certificate file. For a
    sign-on method that the service does not offer, the remedy names the fields for the method.
    """
    found = replace(problems.of(wrong), buttons=())
    if isinstance(wrong, SignOnNotOffered):
        remedy = _(
            "Leave “Identity provider” and “Personal identification” under “More choices” empty, or"
            " enter what the service offers."
        )
        return replace(found, remedy=remedy)
    if isinstance(wrong, Untrusted) and not (wrong.is_renewable or isinstance(wrong, OtherHost)):
        remedy = _("Ask your IT department, or choose its certificate file under “More choices”.")
        return replace(found, remedy=remedy)
    return found


@dataclass(frozen=True)
class Question:
    """Question to the user; `kind` selects the input fields of the page."""

    kind: str  # password, code, new-password, username, choice, confirm, sign-on
    text: str
    choices: Sequence[str] = ()
    address: str = ""  # URL of a sign-on
    id: str = field(default_factory=lambda: secrets.token_urlsafe(8))


@dataclass(eq=False)
class Dialogue(CredentialPrompt, Person):
    """Logon that runs in a thread, with its current question to the user and its result."""

    seconds = SIGN_ON_SECONDS
    here = True  # the browser with the web interface runs on this machine
    can_confirm = True

    account: str
    request: LogonRequest  # as the user requested it
    requested: Offer | None = None  # sign-on method that the user chose on the first page
    _certificate: Path | None = None  # a temporary file, removed at the end
    certificates: bytes = b""  # its content, for another attempt
    id: str = field(default_factory=lambda: secrets.token_urlsafe(16))
    question: Question | None = None
    error: Problem | None = None
    done: str = ""
    shown: bool = False  # the user has seen `done`
    notes: list[str] = field(default_factory=list)
    _is_cancelled: bool = False
    _is_decided: bool = False  # the credentials are being stored, or are stored
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _answers: "queue.Queue[Mapping[str, str]]" = field(default_factory=queue.Queue)

    def begin(self) -> None:
        """Start the logon in a daemon thread, which does not keep the process running."""
        threading.Thread(target=self._work, name="logon", daemon=True).start()

    def wait(self, seconds: float, seen: str = "") -> None:
        """Wait up to `seconds` until the property `at` differs from `seen`."""
        with self._changed:
            self._changed.wait_for(lambda: self.at != seen, seconds)

    @property
    def at(self) -> str:
        """Kind of the current question, "done", "error", or "" while the logon is in progress."""
        if self.question is not None:
            return self.question.kind
        return "done" if self.done else "error" if self.error else ""

    def answer(self, fields: Mapping[str, str]) -> None:
        """Pass the fields of a page to the logon, if the page shows the current question."""
        with self._changed:
            if self.question is not None and self.question.id == fields.get("question"):
                self.question = None
                self._answers.put(dict(fields))

    def cancel(self) -> bool:
        """Cancel the logon, so that no credential is stored; return True on success.

        Return False and do nothing if the credentials are being stored, or are already stored.
        """
        with self._changed:
            if self._is_decided:
                return False
            self._is_cancelled, self.question = True, None
            self._answers.put({})  # wake `_ask`
            return True

    def _work(self) -> None:
        try:
            done, error = self._log_on(), None
        except SignOnNotOffered as wrong:
            self.requested = None  # another attempt does not begin with it
            done, error = "", problem_of(wrong)
        except Exception as wrong:
            done, error = "", problem_of(wrong)
        finally:
            if self._certificate is not None:
                self._certificate.unlink(missing_ok=True)
        with self._changed:
            self.question, self.done, self.error = None, done, error
            self._changed.notify_all()

    def _log_on(self) -> str:
        paths = AccountPaths(self.account)
        require_folders(paths)
        require_moved(paths)
        enrolment = Logon(
            paths, self.request, self, queries=local_data.QUERIES, tell=self.warn,
            person=self, new_password=self.new_password,
        )  # fmt: skip
        is_first = not paths.is_logged_on
        found = trio.run(enrolment.run)
        if is_first:
            self._mount_at_login()
        with contextlib.suppress(ZonedriveError):  # a mount that waits for a logon continues
            mounted = control_client.ask(paths, {"command": "logged-on"}, timeout=5)
            if notice := mounted.get("notice"):
                self.warn(notice)
        return _("logged on to {url} as {user} ({kept})").format(
            url=found.base_url, user=found.user_id, kept=translated_line(enrolment.kept)
        )

    def _mount_at_login(self) -> None:
        try:
            session_start.begin(self.account)
            self.notes.append(_("This account is mounted at your next login."))
        except (ZonedriveError, OSError) as wrong:
            self.notes.append(problems.worded(wrong).text)

    def _ask(self, question: Question) -> Mapping[str, str]:
        """Show a question on the page and return the fields of the user's answer.

        Raises CredentialsRefused if the user does not answer within ANSWER_SECONDS seconds, or
        cancels the logon.
        """
        with self._changed:
            self.question = question
            self._changed.notify_all()
        try:
            answer = self._answers.get(timeout=ANSWER_SECONDS)
        except queue.Empty:
            raise CredentialsRefused("nobody answered", remedy="log on again") from None
        self.require_wanted()
        return answer

    # ---- CredentialPrompt ----

    def require_wanted(self, *, is_last: bool = False) -> None:
        with self._changed:
            if self._is_cancelled:
                raise CredentialsRefused("the logon was cancelled", remedy="log on again")
            self._is_decided = is_last

    def password(self) -> Secret:
        return Secret(self._ask(Question("password", _("Password"))).get("password", ""))

    def code(self, kind: str) -> Secret:
        text = _("One-time code, sent to you by mail") if kind == "ServiceMail" else ""
        answer = self._ask(Question("code", text or _("One-time code from your device")))
        return Secret(answer.get("code", "").strip())

    def new_password(self) -> Secret:
        """Ask the user for a new password, and return the password.

        The user types the password twice. Raises CredentialsRefused if the two inputs differ.
        """
        answer = self._ask(Question("new-password", _("The service wants a new password")))
        if answer["password"] != answer["again"]:
            raise CredentialsRefused("the two passwords differ", remedy="nothing was changed")
        return Secret(answer.get("password", ""))

    # ---- Person ----

    def username(self) -> str:
        return self._ask(Question("username", _("User name"))).get("username", "").strip()

    def choose(self, offers: Sequence[Offer]) -> Offer:
        return offers[self._chosen([offer.title for offer in offers])]

    def prefers(self, offers: Sequence[Offer]) -> Offer | None:
        ways = [_("User name and password"), *(offer.title for offer in offers)]
        chosen = self._chosen(ways)
        return offers[chosen - 1] if chosen else None

    def _chosen(self, ways: Sequence[str]) -> int:
        """Ask the user to choose one of `ways`, and return the index of the choice.

        Raises CredentialsRefused if the user chooses none.
        """
        answer = self._ask(Question("choice", _("How do you want to sign on?"), ways)).get(
            "choice", ""
        )
        if not answer.isdecimal() or int(answer) >= len(ways):
            raise CredentialsRefused("no sign-on was chosen", remedy="log on again")
        return int(answer)

    async def confirm(self, user: str, expected: str) -> bool:
        text = _("The browser signed on as {found}, not as {expected}. Keep this logon?").format(
            found=user or "?", expected=expected
        )
        question = Question("confirm", text)
        return bool((await trio.to_thread.run_sync(self._ask, question)).get("yes"))

    def warn(self, text: str) -> None:
        self.notes.append(message_in_window(text))

    async def show(self, name: str, start: str, led: Callable[[], Awaitable[None]]) -> None:
        with self._changed:
            self.question = Question("sign-on", name, address=start)
            self._changed.notify_all()
        await led()
        with self._changed:
            self.question = None
            self._changed.notify_all()

    async def guide(self, name: str, address: str, back: str, take: Callable[[str], str]) -> None:
        # Never needed, because `here` is True.
        raise CredentialsRefused("a browser of this machine is needed", remedy="log on again")
