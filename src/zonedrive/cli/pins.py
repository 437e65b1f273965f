"""Commands `pin` and `unpin`: files that stay available offline.

Knows nothing about how the daemon does it.
"""

import click

from zonedrive.cli import control_client, text_output
from zonedrive.cli.options import LocalPath, some_account_option
from zonedrive.daemon.protocol import Message

ASK_SECONDS = 90.0

FAILED_LINES = 5
"""Maximum number of failures printed individually."""


@click.command()
@click.argument("path", type=LocalPath(), nargs=-1)
@some_account_option
def pin(path: tuple[str, ...], account: str | None) -> None:
    """Keep files and folders on this machine; without PATH, list what is kept.

    What appears in a pinned folder later, and new versions, are fetched by themselves.  Waits
    until everything is here; Ctrl-C ends the waiting, not the pin.  Exits with 1 when something
    could not be fetched or does not fit, 3 when the service wants a logon, 4 when it cannot be
    reached: the pin is remembered all the same.
    """
    paths, below = control_client.resolve(path, account)
    if not below:
        _list(control_client.ask(paths, {"command": "pins"}, timeout=ASK_SECONDS)["pins"])
        return
    last: Message = {}
    with text_output.Progress() as progress:
        for last in control_client.stream(paths, {"command": "pin", "paths": below}):
            if not last.get("done"):
                progress.show(f"fetching: {_here(last)}")
    for given, one in zip(path, last["pinned"], strict=True):
        text_output.line(f"{given}: {_here(one)}")
    for failed in last["failed"][:FAILED_LINES]:
        text_output.complain(f"{failed['path']}: {failed['error']}")
    if len(last["failed"]) > FAILED_LINES:
        more = text_output.count(len(last["failed"]) - FAILED_LINES, "more file")
        text_output.complain(f"{more} could not be fetched")
    if last["reason"]:
        then = last.get("remedy") or "the rest is fetched when the service is back"
        text_output.complain(f"{last['reason']}; {then}")
    click.get_current_context().exit(last["exit"])


@click.command()
@click.argument("path", type=LocalPath(), nargs=-1, required=True)
@some_account_option
def unpin(path: tuple[str, ...], account: str | None) -> None:
    """Let go of pinned files and folders; they stay in the cache as long as there is room."""
    paths, below = control_client.resolve(path, account)
    control_client.ask(paths, {"command": "unpin", "paths": below}, timeout=ASK_SECONDS)


def _here(one: Message) -> str:
    """Return `3 of 12 files here (1.2 of 3.4 MiB)`, or a shorter text if all are."""
    files, amount = text_output.count(one["files"], "file"), text_output.amount(one["bytes"])
    if one["here"] == one["files"]:
        return f"{files} here ({amount})"
    return f"{one['here']} of {files} here ({text_output.amount(one['here_bytes'])} of {amount})"


def _list(pins: list[Message]) -> None:
    if not pins:
        text_output.line("nothing is pinned")
        return
    text_output.table(
        ["pinned", "files", "here", "size"],
        [
            [
                one["path"] or ".",
                str(one["files"]),
                str(one["here"]),
                text_output.amount(one["bytes"]),
            ]
            for one in pins
        ],
        right=["files", "here", "size"],
    )
