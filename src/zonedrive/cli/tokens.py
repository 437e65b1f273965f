"""Commands `tokens list`, `create` and `revoke`.

Knows nothing about requests to the service.

INVARIANT: a token's secret is written once, to standard output, and nowhere else.
"""

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from zonedrive import process_setup
from zonedrive.cli import text_output
from zonedrive.cli.api_call import ask_directory, ask_service
from zonedrive.cli.options import Id, Name, account_option, json_option
from zonedrive.cli.token_scope import scope_of, scope_options
from zonedrive.errors import ZonedriveError

if TYPE_CHECKING:
    from zonedrive.model import NewToken, Scope, Token

DAY = 86_400
DAYS = 90
KNOWN = ("id", "tokenName", "expiry")


@click.group()
def tokens() -> None:
    """List your tokens, make new ones.

    A token is a secret that acts as you, within its scope, until it expires.  Programs use it
    instead of a password.
    """


@tokens.command("list")
@account_option
@json_option
def list_tokens(account: str, as_json: bool) -> None:
    """List your tokens, also the ones that have expired.

    How the list looks is not part of the published interface: beside id, name and expiry, the
    table shows what this deployment says of each token, under its own names.

    \b
    --json: an array of {"id", "name", "expires", "expired", "record"}
      id, name  text, null where the deployment does not say
      expires   a moment such as 2026-11-21T14:03:07+00:00, or null
      expired   whether that is past, or null
      record    the token as the deployment describes it
    """
    found = ask_directory(account, lambda directory: directory.tokens())
    now_ns = time.time_ns()
    objects = [_object(token, now_ns) for token in found]
    if as_json:
        text_output.as_json(objects)
        return
    if not objects:
        text_output.line("there are no tokens")
        return
    text_output.records([_row(each) for each in objects])


@tokens.command()
@click.argument("name", type=Name())
@account_option
@click.option(
    "--days",
    type=click.IntRange(1, 36500),
    metavar="N",
    help=f"How long it shall be valid.  [default: {DAYS}]",
)
@click.option(
    "--seconds", type=click.IntRange(1), metavar="N", help="The same in seconds, for short lives."
)
@scope_options
@click.option(
    "--password-stdin",
    is_flag=True,
    help="Read your password as one line from the standard input.",
)
@json_option
def create(
    name: str,
    account: str,
    days: int | None,
    seconds: int | None,
    password_stdin: bool,
    as_json: bool,
    **scope: Any,
) -> None:
    """Make a token called NAME and print its secret, which nobody can see again.

    The service wants your password for it.  The secret alone goes to the standard output, so that
    token=$(zonedrive tokens create NAME) works; what else there is to say goes to stderr.

    Without a scope the token may do all that you may.  With --scope SCIM, which is for
    administrators, it reaches users and groups only.

    \b
    --json: {"id", "name", "token", "expires"}; token is the secret
    """
    from zonedrive.cli.logon import Terminal

    if days is not None and seconds is not None:
        raise click.UsageError("--days and --seconds exclude each other.")
    limits = scope_of(**scope)
    if 1 in process_setup.closed_streams:
        raise click.UsageError("There is no standard output that could take the secret.")
    if not password_stdin and not sys.stdin.isatty():
        raise click.UsageError("There is no terminal to ask at: use --password-stdin.")
    life = seconds or (days or DAYS) * DAY
    made = _made(account, name, life, limits, Terminal(password_stdin, None))
    until = text_output.moment(made.expires_ns)
    with _not_lost(account, name, made):
        if as_json:
            about = {"id": made.id or None, "name": name, "token": made.secret, "expires": until}
            text_output.as_json(about)
        else:
            click.echo(made.secret)
        sys.stdout.flush()
    if as_json:
        return
    text_output.remark(
        f"made the token {name}"
        + (f" ({made.id})" if made.id else "")
        + (f", valid until {text_output.when(until)}" if until else "")
        + "; this was the only time that its secret is shown"
    )


@tokens.command()
@click.argument("token", metavar="ID", type=Id())
@account_option
def revoke(token: str, account: str) -> None:
    """End the token ID before its time; 'zonedrive tokens list' shows the ids.

    The published interface does not show how, so this takes a --profile (at logon) that knows.
    """
    from zonedrive.logon import open_store
    from zonedrive.logon.account import Account
    from zonedrive.logon.bearer_auth import load_bearer
    from zonedrive.paths import AccountPaths

    paths = AccountPaths(account)
    Account.load(paths)
    own = load_bearer(open_store(paths))
    if own is not None and own.id == token:
        raise click.UsageError("That is the token of this very account: use 'zonedrive logoff'.")
    ask_service(account, lambda client: client.revoke_token(token))
    text_output.line(f"revoked {token}")


def _made(account: str, name: str, life: int, scope: "Scope | None", terminal: Any) -> "NewToken":
    """Create the token; a missing logon is reported before the password prompt."""
    from zonedrive.logon.account import Account
    from zonedrive.paths import AccountPaths

    Account.load(AccountPaths(account))
    password = terminal.password()
    return ask_directory(
        account, lambda directory: directory.create_token(name, life, password.reveal(), scope)
    )


@contextmanager
def _not_lost(account: str, name: str, made: "NewToken") -> Iterator[None]:
    """Revoke a token whose secret could not be printed, or report that it exists."""
    try:
        yield
    except OSError as wrong:
        # The rest of the buffer must not fail again or be written elsewhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        reason = wrong.strerror or type(wrong).__name__
    else:
        return
    which = f"the token {name}" + (f" ({made.id})" if made.id else "")
    lost = f"{which} was made, but its secret could not be written ({reason})"
    try:
        if not made.id:
            raise ZonedriveError("it has no id")
        ask_service(account, lambda client: client.revoke_token(made.id))
    except ZonedriveError:
        until = text_output.moment(made.expires_ns)
        till = f" until {text_output.when(until)}" if until else ""
        raise ZonedriveError(lost, remedy=f"it stays valid{till}, and nobody has it") from None
    raise ZonedriveError(f"{lost}, so it was revoked", remedy="run the command again")


def _object(token: "Token", now_ns: int) -> dict[str, Any]:
    return {
        "id": token.id or None,
        "name": token.name or None,
        "expires": text_output.moment(token.expires_ns),
        "expired": token.expires_ns <= now_ns if token.expires_ns else None,
        "record": dict(token.record),
    }


def _row(shown: dict[str, Any]) -> dict[str, Any]:
    """Return the table row: known fields first, then the deployment's own fields."""
    row: dict[str, Any] = {"name": shown["name"]}
    if shown["expires"]:
        row["expires"] = text_output.when(shown["expires"]) + (
            " (expired)" if shown["expired"] else ""
        )
    elif "expiry" in shown["record"]:
        row["expires"] = shown["record"]["expiry"]
    rest = {key: value for key, value in shown["record"].items() if key not in KNOWN}
    return row | {"id": shown["id"]} | {key: rest[key] for key in rest if key not in row}
