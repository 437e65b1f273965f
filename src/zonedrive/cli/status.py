"""`zonedrive status` and `zonedrive sync`: what is on the service and what is not yet.

Must not know how the daemon finds out.
"""

import json
import sys
import time
from typing import Any

import click

from zonedrive.cli import control
from zonedrive.cli.options import Seconds, json_option, some_account_option
from zonedrive.cli.show import Progress, amount, complain, count, line, table
from zonedrive.daemon.protocol import Message
from zonedrive.errors import AlreadyRunning, ZonedriveError
from zonedrive.paths import AccountPaths

WATCH_SECONDS = 1.0

STATES = {
    "offline": "the service cannot be reached: what is cached can be read, what you write waits"
    " and is sent by itself when it is back",
    "logon-required": "the logon has ended: what is cached can be read, what you write waits;"
    " run: COMMAND",
}
"""What each state but `online` means, and what to do."""

FAILED_LINES = 5
"""So many failures are told one by one."""


@click.command()
@click.argument("path", nargs=-1)
@some_account_option
@json_option
@click.option("--watch", is_flag=True, help="Show it again whenever it changes, until Ctrl-C.")
def status(path: tuple[str, ...], account: str | None, as_json: bool, watch: bool) -> None:
    """Show the mount, what waits to be uploaded, and the cache.

    With PATH, only the uploads there.
    """
    paths, below = control.resolve(path, account)
    shown: dict[str, Any] | None = None
    while True:
        found = _status(paths, below)
        if found != shown:
            _show(found, as_json=as_json, watch=watch)
            shown = found
        if not watch:
            return
        time.sleep(WATCH_SECONDS)


def _status(paths: AccountPaths, below: list[str]) -> dict[str, Any]:
    try:
        found = control.ask(paths, {"command": "status", "paths": below}, timeout=30)
    except control.NoDaemon:
        from zonedrive.daemon import unmounted

        try:
            return unmounted.status(paths)
        except AlreadyRunning:  # it has come up just now
            found = control.ask(paths, {"command": "status", "paths": below}, timeout=30)
    del found["done"]
    return found


def _show(found: dict[str, Any], *, as_json: bool, watch: bool) -> None:
    if as_json:
        # Watched, an object a line, so that a program can tell where one ends.
        click.echo(json.dumps(found, indent=None if watch else 2))
        return
    if watch and sys.stdout.isatty():
        click.echo("\x1b[H\x1b[2J", nl=False)
    place = f"mounted at {found['mountpoint']}" if found["mountpoint"] else "not mounted"
    line(f"{found['account']}: {place}, {found['state']}", "bold")
    if found["mountpoint"] and (meaning := STATES.get(found["state"])):
        if "COMMAND" in meaning:
            meaning = meaning.replace("COMMAND", _logon_command(found))
        line(meaning)
    outbox, cache, tree = found["outbox"], found["cache"], found["tree"]
    line(f"service  {found['base_url']}")
    line(f"outbox   {_outbox(outbox)}")
    line(f"cache    {amount(cache['bytes'])} of {amount(cache['limit'])}")
    folders = count(tree["folders"], "folder")
    line(f"known    {count(tree['entries'], 'entry', 'entries')} in {folders}")
    if found.get("notice"):
        line(found["notice"])
    if found["uploads"]:
        click.echo()
        table(
            ["path", "state", "size", "sent", "error"],
            [
                [
                    one["path"],
                    one["state"],
                    amount(one["size"]),
                    amount(one["sent"]) if one["sent"] else "",
                    one["error"] or "",
                ]
                for one in found["uploads"]
            ],
            right=["size", "sent"],
        )


def _logon_command(found: dict[str, Any]) -> str:
    """What to type, the way of the last time included (a sign-on in a browser, say)."""
    from zonedrive.logon.account import Account

    try:
        return Account.load(AccountPaths(found["account"])).logon_command()
    except ZonedriveError:
        return f"zonedrive logon {found['base_url']}"


def _outbox(outbox: dict[str, int]) -> str:
    parts = [
        f"{outbox[name]} {name if name != 'conflicts' else 'in conflict'}"
        for name in ("pending", "uploading", "failed", "conflicts")
        if outbox[name]
    ]
    return f"{', '.join(parts)} ({amount(outbox['bytes'])})" if parts else "empty"


@click.command()
@click.argument("path", nargs=-1)
@some_account_option
@click.option(
    "--timeout",
    type=Seconds(),
    metavar="SECONDS",
    help="How long to wait.  [default: as long as the service answers]",
)
def sync(path: tuple[str, ...], account: str | None, timeout: float | None) -> None:
    """Wait until everything under PATH is on the service; without PATH, the whole mount.

    Exits with 0 when it is, 1 when something failed or is left, 3 when the service wants a logon,
    4 when it could not be reached in time.
    """
    paths, below = control.resolve(path, account)
    last: Message = {}
    with Progress() as progress:
        request = {"command": "sync", "paths": below, "timeout": timeout}
        for last in control.stream(paths, request):
            left = last["left"]
            progress.show(f"waiting for {count(left['files'], 'file')} ({amount(left['bytes'])})")
    for copy in last["conflicts"]:
        line(f"kept beside somebody else's version: {copy}")
    for new in last.get("anew", []):
        line(f"was deleted on the service, sent as a new file: {new}")
    for failed in last["failed"][:FAILED_LINES]:
        complain(f"{failed['path']}: {failed['error']}")
    if len(last["failed"]) > FAILED_LINES:
        more = count(len(last["failed"]) - FAILED_LINES, "more file")
        complain(f"{more} failed; see 'zonedrive status'")
    if last["exit"] and not last["failed"]:
        left = last["left"]
        said = f"{count(left['files'], 'file')} ({amount(left['bytes'])}) not on the service yet"
        reason = f": {last['reason']}" if last["reason"] else ""
        complain(f"{said}{reason}")
    click.get_current_context().exit(last["exit"])
