"""`zonedrive logon` and `zonedrive logoff`: the terminal's side of both.

Must not know the protocol of a logon; asks for credentials, and says what came of it.

INVARIANT: a password comes from the terminal (unseen) or from the standard input, never from an
argument or the environment.
"""

import contextlib
import sys
from typing import TYPE_CHECKING

import click

from zonedrive.cli import control, show
from zonedrive.cli.browser import Seat
from zonedrive.cli.exits import NOT_LOGGED_ON
from zonedrive.cli.options import Text, account_option, timeout_option
from zonedrive.errors import CredentialsRefused, StoreError, ZonedriveError
from zonedrive.paths import AccountPaths

if TYPE_CHECKING:
    from zonedrive.logon.account import Account
    from zonedrive.logon.local import Backlog
    from zonedrive.logon.secrets import Secret, SecretStore
    from zonedrive.logon.wire import Offer

LONGEST_PASSWORD = 4096  # bytes of the line that --password-stdin reads
SYNC_SPARE = 15.0  # seconds the daemon may take beyond the timeout it is given
STOP_SECONDS = 60.0


@click.command()
@click.argument("base_url", metavar="BASE_URL")
@account_option
@click.option(
    "--username", type=Text(), metavar="USER", help="Your user name; asked for where it is missing."
)
@click.option(
    "--password-stdin",
    is_flag=True,
    help="Read the password as one line from the standard input.",
)
@click.option(
    "--code", type=Text(), metavar="CODE", help="A one-time code, where the service wants one."
)
@click.option(
    "--idp",
    type=Text(),
    metavar="NAME",
    help="Sign on in a browser, at the identity provider of that name.",
)
@click.option(
    "--personal-id",
    type=Text(),
    metavar="TYPE",
    help="Sign on in a browser, with a personal identification of that type.",
)
@click.option(
    "--no-browser",
    is_flag=True,
    help="Open no browser: show the address, for a browser on any device.",
)
@timeout_option(300.0, "for the sign-on in a browser")
@click.option(
    "--ca-file",
    metavar="PEM",
    type=click.Path(),
    help="Trust this certificate authority instead of the system's; a copy is kept.",
)
@click.option(
    "--profile",
    metavar="NAME|FILE",
    help="What the deployment offers beyond the published interface.  [default: as before, else"
    " published]",
)
@click.option(
    "--token-days",
    metavar="N",
    type=click.IntRange(1, 36500),
    default=None,
    help="How long the token shall be valid.  [default: 90]",
)
@click.option(
    "--session-only", is_flag=True, help="Keep the session, which is short, and no token."
)
@click.option(
    "--save-password",
    is_flag=True,
    help="Keep the password too, in the keyring, so that the logon is renewed by itself.",
)
def logon(
    base_url: str,
    account: str,
    username: str | None,
    password_stdin: bool,
    code: str | None,
    idp: str | None,
    personal_id: str | None,
    no_browser: bool,
    timeout: float,
    ca_file: str | None,
    profile: str | None,
    token_days: int | None,
    session_only: bool,
    save_password: bool,
) -> None:
    """Log on to the service at BASE_URL and keep a token for it.

    The password goes to the service once and is not kept, unless --save-password says so.  After
    a refusal nothing is tried again.  Logging on again to the same service keeps --ca-file and
    --profile as they were.

    A password that must be changed first is changed, where the --profile knows how: the new one is
    asked for, or read as a second line of the standard input.

    A sign-on in a browser happens where --idp or --personal-id asks for it, or the service does.
    It needs a --profile that says what the browser brings back.
    """
    import trio

    from zonedrive.daemon import backlog
    from zonedrive.logon.enrol import Enrolment, Wish
    from zonedrive.remote.address import base_url as checked

    if session_only and token_days is not None:
        raise click.UsageError("--session-only and --token-days exclude each other.")
    url = checked(base_url)
    way = _way(idp, personal_id, password_stdin)
    if password_stdin and not username:
        raise click.UsageError("--password-stdin needs --username.")
    seat = Seat(
        way,
        here=not no_browser,
        seconds=timeout,
        username=lambda: _prompt(f"User name at {url}").strip(),
    )
    wish = Wish(
        url=url,
        username=username or "",
        ca_file=ca_file,
        profile=profile,
        token_days=None if session_only else token_days or 90,
        save_password=save_password,
    )
    terminal = Terminal(password_stdin, code)
    enrolment = Enrolment(
        AccountPaths(account),
        wish,
        terminal,
        premises=backlog.PREMISES,
        tell=show.complain,
        person=None if password_stdin else seat,
        new_password=terminal.new_password,
    )
    try:
        done = trio.run(enrolment.run)
    except KeyboardInterrupt:
        if seat.asked:
            show.complain("the sign-on in the browser is given up")
        raise
    with contextlib.suppress(ZonedriveError):  # a mount that waits for this goes on at once
        control.ask(AccountPaths(account), {"command": "logged-on"}, timeout=5)
    show.say(f"logged on to {done.base_url} as {show.word(done.user_id)} ({enrolment.kept})")


class Terminal:
    """Asks a person for credentials, or takes what was given beforehand."""

    def __init__(self, password_stdin: bool, code: str | None) -> None:
        self._password_stdin = password_stdin
        self._code = code

    def password(self) -> "Secret":
        """From the standard input, or typed unseen."""
        from zonedrive.logon.secrets import Secret

        if self._password_stdin:
            return Secret(_line("there is no password on the standard input"))
        return Secret(_prompt("Password", hidden=True))

    def new_password(self) -> "Secret":
        """The next line of the standard input, or typed twice, unseen."""
        from zonedrive.logon.secrets import Secret

        if self._password_stdin:
            return Secret(_line("the new password is missing: give it as a second line"))
        first = _prompt("New password", hidden=True)
        if _prompt("New password again", hidden=True) != first:
            raise CredentialsRefused("the two are not the same", remedy="nothing was changed")
        return Secret(first)

    def code(self, kind: str) -> "Secret":
        """Typed, where somebody is there to type."""
        from zonedrive.logon.secrets import Secret

        how = {"ServiceMail": " (sent to you by mail)", "": ""}.get(kind, f" ({show.word(kind)})")
        if self._password_stdin or not sys.stdin.isatty():
            raise CredentialsRefused(
                f"the service wants a one-time code{how}", remedy="give it with --code"
            )
        return Secret(_prompt(f"One-time code{how}").strip())

    def given_code(self) -> "Secret | None":
        """What --code holds."""
        from zonedrive.logon.secrets import Secret

        return Secret(self._code.strip()) if self._code else None


@click.command()
@account_option
@timeout_option(30.0, "for uploads")
@click.option("--discard", is_flag=True, help="Drop what is not uploaded by then, for ever.")
def logoff(account: str, timeout: float, discard: bool) -> None:
    """End the logon; destroy the account's key, cache and settings on this machine.

    What is not uploaded yet is waited for first.
    """
    import trio

    from zonedrive.daemon import backlog, remains
    from zonedrive.logon import keys, local, session
    from zonedrive.logon.account import Account
    from zonedrive.logon.secrets import open_store

    paths = AccountPaths(account)
    found = Account.load(paths)
    for folder in (paths.state, paths.cache):
        if said := remains.read_only(folder):
            raise ZonedriveError(f"nothing can be destroyed: {said}")
    try:
        left, remedy = _wait(paths, timeout)
    except StoreError:
        if not discard:
            raise
        left, remedy = local.Backlog(), ""  # it cannot be counted, and shall not be kept
    store = open_store(paths)
    if left.files and not discard:
        mounted = control.running(paths)
        if not mounted and backlog.needs_key(paths) and store.get(keys.NAME) is None:
            gone = keys.gone()
            raise ZonedriveError(
                f"{left} not on the service yet: {gone.message}", remedy=gone.remedy
            )
        raise _refusal(left, remedy, mounted=mounted)
    lost, kept = backlog.lost(paths), backlog.local(paths)
    if lost and not discard:
        raise ZonedriveError(
            f"{show.count(lost, 'file')} in lost+found {'is' if lost == 1 else 'are'} only on this"
            " machine",
            remedy="mount and copy what you need from there, or drop it with --discard",
        )
    if not discard:
        store.get(session.NAME)  # before anything ends: a keyring that cannot be emptied is said
    _stop_daemon(paths)
    trio.run(_end_at_service, found, store)
    if wrong := local.destroy(paths, store, lost=discard):
        show.complain(f"the account's secrets could not be destroyed: {wrong}; remove them there")
    dropped = [str(left)] if left.files else []
    dropped += [f"{show.count(lost, 'file')} in lost+found"] if lost else []
    dropped += [f"{show.count(kept, 'file')} of local_only"] if kept else []
    said = f"; dropped {' and '.join(dropped)}" if dropped else ""
    show.say(f"logged off from {found.base_url}{said}")


def _way(idp: str | None, personal_id: str | None, password_stdin: bool) -> "Offer | None":
    """The sign-on in a browser that is asked for."""
    from zonedrive.logon.wire import Offer

    if idp is None and personal_id is None:
        return None
    if idp is not None and personal_id is not None:
        raise click.UsageError("--idp and --personal-id exclude each other.")
    if password_stdin:
        raise click.UsageError("--password-stdin is not for a sign-on in a browser.")
    return Offer("idp", idp) if idp is not None else Offer("personal-id", personal_id or "")


def _line(missing: str) -> str:
    """A password from the standard input.  Raises CredentialsRefused."""
    line = sys.stdin.buffer.readline(LONGEST_PASSWORD + 1)
    if len(line) > LONGEST_PASSWORD:
        raise CredentialsRefused("the line on the standard input is no password: too long")
    try:
        text = line.decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        # Without the decoder's words: its exception holds the line.
        raise CredentialsRefused("the password is not UTF-8 text") from None
    if not text:
        raise CredentialsRefused(missing)
    return text


def _prompt(text: str, *, hidden: bool = False) -> str:
    """What a person types.

    Raises UsageError without a terminal, ZonedriveError for Ctrl-D, click.Abort for Ctrl-C.
    """
    if not sys.stdin.isatty():
        raise click.UsageError("There is no terminal to ask at: use --password-stdin.")
    try:
        return str(click.prompt(show.clean(text), hide_input=hidden, err=True))
    except click.Abort as given_up:
        if not hidden:  # there click has ended the line
            click.echo(err=True)
        if not isinstance(given_up.__context__, EOFError):
            raise
        raise ZonedriveError("no answer") from None


def _wait(paths: AccountPaths, timeout: float) -> "tuple[Backlog, str]":
    """What is not on the service after `timeout` seconds, and what a person can do about it, if
    more than wait; without a daemon nobody can send."""
    from zonedrive.daemon import backlog
    from zonedrive.logon.local import Backlog

    request = {"command": "sync", "paths": [], "timeout": timeout}
    try:
        ended = control.ask(paths, request, timeout=timeout + SYNC_SPARE)
    except control.NoDaemon:
        return backlog.at_rest(paths), ""
    left, alone = ended["left"], ended["exit"] == NOT_LOGGED_ON
    waits = Backlog(int(left["files"]), int(left["bytes"]))
    return waits, str(ended.get("remedy", "")) if alone else ""


def _refusal(left: "Backlog", remedy: str, *, mounted: bool) -> ZonedriveError:
    are, them = ("is", "it") if left.files == 1 else ("are", "them")
    if remedy:
        return ZonedriveError(
            f"{left} {are} not on the service yet, and the logon has ended",
            remedy=f"{remedy} first, or drop {them} with --discard",
        )
    if mounted:
        return ZonedriveError(
            f"{left} {are} not on the service yet",
            remedy="see 'zonedrive status', give it more time with --timeout, or drop"
            f" {them} with --discard",
        )
    return ZonedriveError(
        f"{left} {are} not on the service yet, and nothing is sent while it is not mounted",
        remedy=f"mount it first, or drop {them} with --discard",
    )


def _stop_daemon(paths: AccountPaths) -> None:
    try:
        control.ask(paths, {"command": "unmount", "timeout": 0, "now": True}, timeout=STOP_SECONDS)
    except control.NoDaemon:
        if control.running(paths):
            raise ZonedriveError(
                f"the daemon of account {paths.account} does not answer", remedy=f"see {paths.log}"
            ) from None


async def _end_at_service(account: "Account", store: "SecretStore") -> None:
    """Tell the service; where it cannot be told, the logon still ends here, and a person hears."""
    from zonedrive.logon.access import open_access
    from zonedrive.logon.flow import end_session, revoke
    from zonedrive.logon.secrets import Secret
    from zonedrive.logon.session import load_bearer
    from zonedrive.remote import load_profile

    failure: ZonedriveError | None
    bearer = None
    try:
        bearer = load_bearer(store)
        if bearer is None:
            return
        async with open_access(account.base_url, account.ca_file) as access:
            access.carry(Secret(bearer.secret))
            if await revoke(access, load_profile(account.profile), bearer):
                return
            failure = await end_session(access)
    except ZonedriveError as wrong:
        failure = wrong
    if failure is not None:
        show.complain(f"the service was not told: {failure.message}")
    if bearer is not None and bearer.kind == "token":
        show.complain(
            f"the token{f' {show.word(bearer.id)}' if bearer.id else ''} stays valid at the service"
            f"{f' until {bearer.until}' if bearer.until else ''}; its secret is destroyed here"
        )
