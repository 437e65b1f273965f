"""Commands `pin` and `unpin`: files that stay available offline.

Knows nothing about how the daemon does it.
"""

import click

from zonedrive.cli import control_client, text_output
from zonedrive.cli.options import LocalPath, some_account_option
from zonedrive.cli.sync import print_failures
from zonedrive.daemon.protocol import Message

ASK_SECONDS = 90.0


@click.command()
@click.argument("path", type=LocalPath(), nargs=-1)
@some_account_option
def pin(path: tuple[str, ...], account: str | None) -> None:
    """Keep files and folders available offline; without PATH, list the pinned ones.

    New files in a pinned folder, and new versions, are downloaded automatically.  Waits until
    everything is downloaded; Ctrl-C ends the waiting, not the pin.  Exits with 1 if something could
    not be downloaded or does not fit, 3 if the service requires a logon, 4 if it cannot be reached;
    the pin stays in any case.
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
    print_failures(last["failed"], "could not be fetched")
    if last["reason"]:
        then = last.get("remedy") or "the rest is fetched when the service is back"
        text_output.complain(f"{last['reason']}; {then}")
    click.get_current_context().exit(last["exit"])


@click.command()
@click.argument("path", type=LocalPath(), nargs=-1, required=True)
@some_account_option
def unpin(path: tuple[str, ...], account: str | None) -> None:
    """Stop keeping files and folders offline; they stay in the cache while there is room."""
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
