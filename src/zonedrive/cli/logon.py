"""Command `logon`: read credentials from the terminal, log on, and print the result.

The logon protocol is in the package `zonedrive.logon`.

INVARIANT: a password comes from the terminal (without echo) or from standard input, and a token
from standard input. Neither comes from an argument or the environment.
"""

import contextlib
import importlib
import io
import os
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import click
import trio

from zonedrive import config
from zonedrive.cli import control_client, text_output
from zonedrive.cli.browser import BrowserPrompt
from zonedrive.cli.options import (
    LocalPath,
    Text,
    WholeNumber,
    account_option,
    as_usage,
    timeout_option,
)
from zonedrive.daemon import local_data
from zonedrive.daemon.protocol import Message
from zonedrive.errors import BadOption, CredentialsRefused, ZonedriveError
from zonedrive.logon.flow import CredentialPrompt
from zonedrive.logon.logon import Logon, LogonRequest, read_certificates
from zonedrive.logon.secrets import Secret
from zonedrive.logon.wire import Offer
from zonedrive.paths import AccountPaths, quoted, require_folders, require_moved
from zonedrive.remote.profiles.load import require_profile
from zonedrive.remote.wire.fields import LONGEST_HEADER, fits_header
from zonedrive.service_address import base_url

STDIN = "-"
LONGEST_PASSWORD = 4096  # bytes of the line that --password-stdin reads
WITHOUT_TOKEN = (
    "password_stdin",
    "code",
    "idp",
    "personal_id",
    "token_days",
    "session_only",
    "save_password",
)
"""Options that cannot be combined with --token-stdin."""


@dataclass(frozen=True, kw_only=True)
class LogonOptions:
    """Values of the arguments and options of `zonedrive logon`."""

    base_url: str | None
    account: str
    username: str | None
    password_stdin: bool
    token_stdin: bool
    code: str | None = field(repr=False)
    idp: str | None
    personal_id: str | None
    no_browser: bool
    timeout: float  # seconds, for the sign-on in a browser
    ca_file: str | None
    profile: str | None
    token_days: int | None
    session_only: bool
    save_password: bool
    at_login: bool

    def checked(self) -> "LogonOptions":
        """Return the options with a normalized base URL.

        Print a line for each problem in the organization's settings that does not prevent the
        logon. Raises UsageError for options that exclude each other, BadOption for an invalid base
        URL, --ca-file or --profile, and ConfigError if the organization's policy forbids an option
        or the organization's base URL is invalid.
        """
        if self.session_only and self.token_days is not None:
            raise click.UsageError("--session-only and --token-days exclude each other.")
        if self.token_stdin:
            for name in WITHOUT_TOKEN:
                if getattr(self, name) not in (None, False):
                    option = name.replace("_", "-")
                    raise click.UsageError(f"--token-stdin and --{option} exclude each other.")
            if not self.username:
                raise click.UsageError("--token-stdin needs --username.")
        shared = config.organization(self.account)
        shared.check_logon(
            ca_file=self.ca_file, profile=self.profile, save_password=self.save_password
        )
        for problem in shared.problems:
            text_output.complain(problem.line())
        url = self.base_url or shared.base_url
        if url is None:
            raise click.UsageError("Missing argument 'BASE_URL': this computer has no default.")
        with contextlib.nullcontext() if self.base_url is None else as_usage(""):
            found = replace(self, base_url=base_url(url))
        shared.check_service(str(found.base_url))
        if self.idp is not None and self.personal_id is not None:
            raise click.UsageError("--idp and --personal-id exclude each other.")
        if self.password_stdin and not (self.idp is None and self.personal_id is None):
            raise click.UsageError("--password-stdin is not for a sign-on in a browser.")
        if self.password_stdin and not self.username:
            raise click.UsageError("--password-stdin needs --username.")
        if self.ca_file is not None:
            with as_usage("--ca-file: "):
                read_certificates(Path(self.ca_file))
        if self.profile is not None:
            with as_usage("--profile: "):
                require_profile(self.profile)
        return found

    def request(self) -> LogonRequest:
        """Return the logon request for the options, with the organization's defaults and policy."""
        return LogonRequest(
            url=str(self.base_url),
            username=self.username or "",
            ca_file=self.ca_file,
            profile=self.profile,
            token_days=None if self.session_only else self.token_days or 90,
            save_password=self.save_password,
        ).within(config.organization(self.account))

    def browser_prompt(self) -> BrowserPrompt:
        """Return the terminal dialog for a browser sign-on."""
        requested = Offer("idp", self.idp) if self.idp is not None else None
        if self.personal_id is not None:
            requested = Offer("personal-id", self.personal_id)
        return BrowserPrompt(
            requested,
            here=not self.no_browser,
            seconds=self.timeout,
            username=lambda: _prompt(f"User name at {self.base_url}").strip(),
        )


@click.command()
@click.argument("base_url", metavar="[BASE_URL]", required=False)
@account_option
@click.option(
    "--username", type=Text(), metavar="USER", help="Your user name.  [default: asked for]"
)
@click.option(
    "--password-stdin",
    is_flag=True,
    help="Read the password from the first line of standard input.",
)
@click.option(
    "--token-stdin",
    is_flag=True,
    help="Log on with a token of the service, from the first line of standard input.",
)
@click.option(
    "--code",
    type=Text(),
    metavar="CODE",
    help="One-time code; '-' reads it from standard input.  Other users of this machine can see"
    " an argument.",
)
@click.option(
    "--idp",
    type=Text(),
    metavar="NAME",
    help="Sign on in a browser, with this identity provider.",
)
@click.option(
    "--personal-id",
    type=Text(),
    metavar="TYPE",
    help="Sign on in a browser, with this type of personal identification.",
)
@click.option(
    "--no-browser",
    is_flag=True,
    help="Show the sign-on address instead of opening a browser.",
)
@timeout_option(300.0, "for the sign-on in a browser")
@click.option(
    "--ca-file",
    metavar="PEM",
    type=LocalPath(),
    help="Trust this certificate authority instead of the system's; a copy is saved.",
)
@click.option(
    "--profile",
    metavar="NAME|FILE",
    type=LocalPath(),
    help="Deployment profile: describes operations that the published API lacks, such as making"
    " folders.  [default: the previous profile, else published]",
)
@click.option(
    "--token-days",
    metavar="N",
    type=WholeNumber(1, 36500),
    default=None,
    help="Validity of the token in days.  [default: 90]",
)
@click.option(
    "--session-only", is_flag=True, help="Save no token, only the session, which soon expires."
)
@click.option(
    "--save-password",
    is_flag=True,
    help="Also save the password in the keyring, so that the logon is renewed automatically.",
)
@click.option(
    "--at-login",
    is_flag=True,
    help="Also mount the account at each login, in ~/Zones if it is not mounted elsewhere.",
)
def logon(**options: Any) -> None:
    """Log on to the service at BASE_URL and save a token for it.

    BASE_URL is the address of the service, such as https://service.example; without it, the address
    in /etc/zonedrive/config.toml is used. The password is not saved unless --save-password is
    given. A further logon to the same service uses the previous --ca-file, and the previous
    --profile, except the profile named 'published'.

    Scripts give the password in the first line of standard input (--password-stdin), then the
    one-time code (--code -), then a new password if the service requires one. To change the
    password, a --profile must define the operation.

    With --token-stdin nothing else is asked for, and the token is checked with one request. The
    service does not say whose token it is: give the user name of its owner with --username, as the
    service writes this name. No logoff or later logon ends such a token.

    With --idp or --personal-id, you sign on in a browser. The service may also require this. A
    sign-on in a browser needs a --profile that defines the result of the sign-on.
    """
    given = LogonOptions(**options).checked()
    paths, prompt = AccountPaths(given.account), given.browser_prompt()
    require_folders(paths)
    require_moved(paths)
    terminal = Terminal(given.password_stdin, given.code)
    enrolment = Logon(
        paths,
        given.request(),
        terminal,
        queries=local_data.QUERIES,
        tell=text_output.complain,
        person=None if given.password_stdin else prompt,
        new_password=terminal.required_password,
        token=token_line() if given.token_stdin else None,
    )
    try:
        done = trio.run(enrolment.run)
    except KeyboardInterrupt:
        if prompt.asked:
            text_output.complain("the sign-on in the browser was cancelled")
        raise
    mounted: Message = {}
    with contextlib.suppress(ZonedriveError):  # a mount that waits for the logon continues at once
        mounted = control_client.ask(paths, {"command": "logged-on"}, timeout=5)
    text_output.say(
        f"logged on to {done.base_url} as {text_output.word(done.user_id)} ({enrolment.kept})"
    )
    if mounted.get("profile", "") not in ("", done.profile):
        folder = quoted(Path(mounted["mountpoint"]))
        text_output.complain(
            "the mount still uses the previous profile; for the new one, run"
            f" 'zonedrive unmount {folder}' and 'zonedrive mount {folder}{paths.option}'"
        )
    if notice := mounted.get("notice"):
        text_output.complain(notice)
    _arrange_logins(given)


def _arrange_logins(given: LogonOptions) -> None:
    """Set up mounting at each login if --at-login was given.

    Otherwise, if standard output is a terminal, print how to set up mounting at each login.
    """
    if not given.at_login and not sys.stdout.isatty():
        return
    # Not a static import: the window is in a layer above the commands.
    session_start = importlib.import_module("zonedrive.ui.session_start")
    if not given.at_login:
        if advice := session_start.advice(given.account):
            text_output.say(advice)
        return
    folder = session_start.begin(given.account)
    text_output.say(f"the account is mounted at each login on {text_output.clean(str(folder))}")


class Terminal(CredentialPrompt):
    """Source of the credentials for a logon, from prompts, options and standard input."""

    def __init__(self, password_stdin: bool, code: str | None) -> None:
        """Create a source of credentials.

        With `password_stdin`, passwords are read from standard input. `code` is the one-time code,
        "-" for a code on standard input, or None if the user gave no code.
        """
        self._password_stdin = password_stdin
        self._code_stdin = code == STDIN
        self._code = None if self._code_stdin else code
        # Names of the inputs whose lines of standard input have not been read yet, in order.
        self._ahead = ["password", "new password"] if password_stdin else []
        self._passed: dict[str, str] = {}  # lines that were read before they were requested
        if self._code_stdin:
            self._ahead.insert(1 if password_stdin else 0, "code")

    def password(self) -> Secret:
        """Return the password from standard input or a prompt without echo.

        Raises BadOption or UsageError if there is no password.
        """
        if self._password_stdin:
            missing = "standard input is empty, and --password-stdin reads the password from it"
            return Secret(self._line("password", missing))
        return Secret(_prompt("Password", hidden=True))

    def new_password(self) -> Secret:
        """Return the new password from standard input, or from two prompts without echo.

        Raises CredentialsRefused if the two inputs differ, and BadOption or UsageError if there is
        no password.
        """
        if self._password_stdin:
            missing = "the new password is missing; give it as the last line of standard input"
            return Secret(self._line("new password", missing))
        first = _prompt("New password", hidden=True)
        if _prompt("New password again", hidden=True) != first:
            raise CredentialsRefused("the two passwords differ", remedy="nothing was changed")
        return Secret(first)

    def required_password(self) -> Secret:
        """Print that the service requires a new password, and return `new_password()`."""
        text_output.complain("the service wants the password to be changed first")
        return self.new_password()

    def code(self, kind: str) -> Secret:
        """Return the one-time code of type `kind`, from standard input or from a prompt.

        With --password-stdin, or without a terminal, there is no prompt. The code is then read from
        standard input if `--code -` was given. Otherwise, raises CredentialsRefused. Raises
        BadOption if standard input does not contain a code.
        """
        if self._code_stdin and (self._password_stdin or not sys.stdin.isatty()):
            missing = "standard input has no line with the one-time code"
            return Secret(self._line("code", missing).strip())
        how = {"ServiceMail": " (sent to you by mail)", "": ""}.get(
            kind, f" ({text_output.word(kind)})"
        )
        if self._password_stdin or not sys.stdin.isatty():
            raise CredentialsRefused(
                f"the service wants a one-time code{how}", remedy="give it with --code -"
            )
        return Secret(_prompt(f"One-time code{how}").strip())

    def given_code(self, kind: str) -> Secret | None:
        """Return a one-time code that the user has given before the service asks for one, or None.

        The code is the value of --code. With --password-stdin and `--code -`, the code is read from
        standard input if the service sends codes by mail (`kind` is ServiceMail) and more input
        follows the password. The user may have such a code from an earlier mail.
        """
        if self._code:
            return Secret(self._code.strip())
        is_next = self._password_stdin and self._ahead[:1] == ["code"]
        return self.code(kind) if kind == "ServiceMail" and is_next and _has_input() else None

    def _line(self, name: str, missing: str) -> str:
        """Return the line of standard input for `name`: "password", "code" or "new password".

        If lines for other inputs come first, they are stored for later calls, because the service
        chooses the order of its questions. Raises BadOption if the line is empty (with the message
        `missing`), too long or not UTF-8.
        """
        while name in self._ahead:
            self._passed[self._ahead.pop(0)] = _line()
        return _required(self._passed.pop(name, ""), missing)


def token_line() -> Secret:
    """Return the token in the first line of standard input.

    Raises BadOption if the line is empty or not a token.
    """
    missing = "standard input is empty, and --token-stdin reads the token from it"
    text = _required(_line(LONGEST_HEADER), missing).strip()
    if not fits_header(text):
        raise BadOption("the first line of standard input is not a token")
    return Secret(text)


def _line(longest: int = LONGEST_PASSWORD) -> str:
    """Return the next line of standard input, which contains a secret, without the line break.

    Return "" at the end of standard input. Raises BadOption if the line is longer than `longest`
    bytes or not UTF-8.
    """
    line = sys.stdin.buffer.readline(longest + 1)
    if len(line) > longest:
        raise BadOption("a line of standard input is too long")
    try:
        return line.decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        # The decoder's exception is dropped because it contains the line.
        raise BadOption("a line of standard input is not UTF-8 text") from None


def _required(line: str, missing: str) -> str:
    """Return `line`; raise BadOption with the message `missing` if it is empty."""
    if not line:
        raise BadOption(missing)
    return line


def _has_input() -> bool:
    """Return True if bytes can be read from standard input without waiting."""
    descriptor = sys.stdin.fileno()
    is_blocking = os.get_blocking(descriptor)
    os.set_blocking(descriptor, False)
    try:
        return bool(cast(io.BufferedReader, sys.stdin.buffer).peek())
    finally:
        os.set_blocking(descriptor, is_blocking)


def _prompt(text: str, *, hidden: bool = False) -> str:
    """Prompt the user with `text` and return the input; with `hidden`, do not echo the input.

    Raises UsageError if standard input is not a terminal, ZonedriveError for Ctrl-D, and
    click.Abort for Ctrl-C.
    """
    text_output.require_terminal("--password-stdin")
    try:
        return str(click.prompt(text_output.clean(text), hide_input=hidden, err=True))
    except click.Abort as given_up:
        if not hidden:  # for hidden input click has ended the line
            click.echo(err=True)
        if not isinstance(given_up.__context__, EOFError):
            raise
        raise ZonedriveError("no answer") from None
