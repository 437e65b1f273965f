"""Commands `tokens list`, `create` and `revoke`, and the options that limit a token.

The requests to the service are in the package `remote`. This module does not check what a scope
permits, because the service documents scopes only for SCIM.

INVARIANT: a token's secret is written once, to standard output, and nowhere else.
"""

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from zonedrive import process_setup
from zonedrive.cli import text_output
from zonedrive.cli.options import (
    Id,
    LocalPath,
    Name,
    Text,
    WholeNumber,
    account_option,
    json_option,
)
from zonedrive.cli.organization import ask_directory
from zonedrive.errors import ConfigError, NotFound, ZonedriveError
from zonedrive.formatting import count
from zonedrive.paths import AccountPaths

if TYPE_CHECKING:
    from zonedrive.model import NewToken, Scope, Token

DAY = 86_400
DAYS = 90
KNOWN = ("id", "tokenName", "expiry")
LONGEST = 1 << 20
"""Maximum size of a scope file in bytes."""

ACTIONS = ("all", "create", "list", "get", "access", "modify", "delete")


@click.group()
def tokens() -> None:
    """List, create and revoke tokens.

    A token is a secret that gives a program your rights, within its scope, until it expires. The
    program does not need your password.
    """


@tokens.command("list")
@account_option
@json_option
def list_tokens(account: str, as_json: bool) -> None:
    """List your tokens, including expired ones.

    The published API does not define the fields of a token. Besides id, name and expiry, the table
    shows the fields that this deployment sends, under their own names.

    \b
    --json: an array of {"id", "name", "expires", "expired", "this_logon", "record"}
      id, name  text, or null
      expires   a time such as 2026-11-21T14:03:07+00:00, or null
      expired   true, false or null
      this_logon  true for the token of this logon
      record    the token's fields as the deployment sends them
    """
    found = ask_directory(account, lambda directory: directory.tokens())
    now_ns = time.time_ns()
    own = _own_id(account)
    objects = [_object(token, now_ns) | {"this_logon": token.id == own} for token in found]
    if as_json:
        text_output.as_json(objects)
        return
    text_output.show_records([row_of(each) for each in objects], "no tokens")


@tokens.command()
@click.argument("name", type=Name())
@account_option
@click.option(
    "--days",
    type=WholeNumber(1, 36500),
    metavar="N",
    help=f"Validity in days.  [default: {DAYS}]",
)
@click.option("--seconds", type=WholeNumber(1), metavar="N", help="Validity in seconds.")
@click.option(
    "--scope",
    type=Name(),
    metavar="NAME",
    help="Limit the token to this scope; SCIM is predefined.",
)
@click.option(
    "--permission",
    "permissions",
    type=Text(),
    metavar="RESOURCE=ACTION[,ACTION...]",
    multiple=True,
    help=f"Limit it to these actions ({', '.join(ACTIONS)}) on a resource; repeatable.",
)
@click.option(
    "--client",
    "clients",
    type=Name(),
    metavar="NAME",
    multiple=True,
    help="Limit the token to this client, for example ServiceSSI; repeatable.",
)
@click.option(
    "--scope-file",
    metavar="JSON",
    type=LocalPath(),
    help="Read the scope from this file: an object with name, description, clients, permissions,"
    " limitations and extensions, any of them.",
)
@click.option(
    "--password-stdin",
    is_flag=True,
    help="Read your password from the first line of standard input.",
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
    """Create a token and print its secret.

    The secret is shown only once. NAME is shown in the list of tokens. The service requires your
    password to create a token. Only the secret is written to standard output, so that
    token=$(zonedrive tokens create NAME) works; messages go to standard error.

    Without a scope the token has all your rights. With --scope SCIM, which is for administrators,
    the token is limited to users and groups.

    \b
    --json: {"id", "name", "token", "expires"}; token is the secret
    """
    from zonedrive.cli.logon import Terminal
    from zonedrive.logon.account import Account

    if days is not None and seconds is not None:
        raise click.UsageError("--days and --seconds exclude each other.")
    limits = scope_of(**scope)
    if 1 in process_setup.closed_streams:
        raise click.UsageError("Standard output is closed, so the secret cannot be printed.")
    if not password_stdin:
        text_output.require_terminal("--password-stdin")
    life = seconds or (days or DAYS) * DAY
    Account.load(AccountPaths(account))  # report a missing logon before the prompt
    password = Terminal(password_stdin, None).password()
    made = ask_directory(
        account, lambda directory: directory.create_token(name, life, password.reveal(), limits)
    )
    until = text_output.moment(made.expires_ns)
    shown = f"the token {name}" + (f" ({made.id})" if made.id else "")
    if as_json:
        about = {"id": made.id or None, "name": name, "token": made.secret, "expires": until}
        text_output.as_json(about)
    else:
        click.echo(made.secret)
    if wrong := process_setup.output_failure():
        process_setup.failures[0] = BrokenPipeError()  # `main` reports nothing more
        raise _lost(account, shown, made, wrong)
    if as_json:
        return
    text_output.complain(
        f"created {shown}"
        + (f", valid until {text_output.when(until)}" if until else "")
        + "; its secret is not shown again"
    )


@tokens.command()
@click.argument("token", metavar="ID", type=Id())
@account_option
def revoke(token: str, account: str) -> None:
    """Revoke the token ID; 'zonedrive tokens list' shows the ids.

    This command requires a logon with a profile that defines the operation.
    """
    if _own_id(account) == token:
        raise click.UsageError("That is the token of this account: use 'zonedrive logoff'.")
    try:
        _revoke(account, token)
    except NotFound as wrong:
        raise NotFound(
            f"there is no token {token!r}", remedy="see 'zonedrive tokens list'"
        ) from wrong
    text_output.line(f"revoked {token}")


def _revoke(account: str, token_id: str) -> None:
    from zonedrive.daemon import service_commands

    service_commands.ask(AccountPaths(account), lambda service: service.revoke_token(token_id))


def _own_id(account: str) -> str | None:
    """Return the id of the logon's token, or None if there is no token or its id is unknown."""
    from zonedrive.logon.bearer_auth import load_bearer
    from zonedrive.logon.secrets import open_store

    own = load_bearer(open_store(AccountPaths(account)))
    return (own.id or None) if own is not None and own.kind == "token" else None


def _lost(account: str, token: str, made: "NewToken", wrong: OSError) -> ZonedriveError:
    """Revoke the token `made`, whose secret could not be printed; return the error to report.

    `token` describes the token in the error message. If the token cannot be revoked, the message
    says until when the token remains valid.
    """
    reason = wrong.strerror or type(wrong).__name__
    lost = f"{token} was created, but its secret could not be written ({reason})"
    try:
        if not made.id:
            raise ZonedriveError("it has no id")
        _revoke(account, made.id)
    except ZonedriveError:
        until = text_output.moment(made.expires_ns) or "its end"
        return ZonedriveError(lost, remedy=f"it remains valid until {until}")
    return ZonedriveError(f"{lost}, so it was revoked", remedy="try again")


def _object(token: "Token", now_ns: int) -> dict[str, Any]:
    return {
        "id": token.id or None,
        "name": token.name or None,
        "expires": text_output.moment(token.expires_ns),
        "expired": token.expires_ns <= now_ns if token.expires_ns else None,
        "record": dict(token.record),
    }


def row_of(shown: dict[str, Any]) -> dict[str, Any]:
    """Return the table row of a token's JSON object: known fields, then the deployment's fields."""
    row: dict[str, Any] = {"name": shown["name"]}
    if shown["expires"]:
        row["expires"] = text_output.when(shown["expires"]) + (
            " (expired)" if shown["expired"] else ""
        )
    elif "expiry" in shown["record"]:
        row["expires"] = shown["record"]["expiry"]
    if shown["this_logon"]:
        row["used by"] = "this logon"
    rest = {key: value for key, value in shown["record"].items() if key not in KNOWN}
    if isinstance(life := rest.get("validity"), int) and not isinstance(life, bool):
        rest["validity"] = _life(life)
    row["id"] = shown["id"]
    for key, value in rest.items():  # also a field whose name is that of a known column
        row[f"{key} (service)" if row.get(key) else key] = value
    return row


def _life(seconds: int) -> str:
    """Return a number of seconds as text in the largest unit that gives a whole number."""
    for length, unit in ((DAY, "day"), (3600, "hour"), (60, "minute")):
        if seconds and seconds % length == 0:
            return count(seconds // length, unit)
    return count(seconds, "second")


# ---- scopes ----


def scope_of(
    scope: str | None,
    permissions: tuple[str, ...],
    clients: tuple[str, ...],
    scope_file: str | None,
) -> "Scope | None":
    """Return the scope that the options describe, or None if none of the options is given.

    Raises click.UsageError for invalid options, ConfigError for an invalid scope file.
    """
    if scope_file is not None:
        if scope is not None or permissions or clients:
            raise click.UsageError("--scope-file excludes the other options of a scope.")
        return _read(Path(scope_file))
    if scope is None and not permissions and not clients:
        return None
    from zonedrive.model import Scope

    return Scope(name=scope or "", clients=clients, permissions=_permissions(permissions))


def _permissions(given: tuple[str, ...]) -> dict[str, dict[str, bool]]:
    found: dict[str, dict[str, bool]] = {}
    for each in given:
        resource, _, actions = each.partition("=")
        for action in actions.split(","):
            if not resource or action not in ACTIONS:
                raise click.UsageError(
                    f"--permission {each}: write RESOURCE=ACTION, the actions being"
                    f" {', '.join(ACTIONS)}."
                )
            found.setdefault(resource, {})[action] = True
    return found


def _read(path: Path) -> "Scope":
    import msgspec

    from zonedrive.model import Scope

    try:
        with path.open("rb") as file:
            data = file.read(LONGEST + 1)
        if len(data) > LONGEST:
            raise ConfigError(
                f"{path} is longer than {LONGEST} bytes", remedy="is it the right file?"
            )
        return msgspec.convert(json.loads(data), Scope)
    except OSError as wrong:
        raise ConfigError(f"{path} cannot be read ({wrong.strerror})") from wrong
    except (ValueError, RecursionError) as wrong:  # msgspec's errors are ValueErrors
        raise ConfigError(f"{path} is not a scope ({wrong})", remedy="fix the file") from wrong
