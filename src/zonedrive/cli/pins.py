"""Commands `pin` and `unpin`: files that stay available offline."""

import click

from zonedrive.cli import control_client, text_output
from zonedrive.cli.options import LocalPath, json_option, some_account_option
from zonedrive.cli.sync import print_failures
from zonedrive.daemon.protocol import Message


@click.command()
@click.argument("path", type=LocalPath(), nargs=-1)
@some_account_option
@json_option
def pin(path: tuple[str, ...], account: str | None, as_json: bool) -> None:
    """Keep files and folders available offline; without PATH, list the pinned ones.

    New files in a pinned folder, and new versions, are downloaded automatically.  Waits until
    everything is downloaded; Ctrl-C ends the waiting, not the pin.  Exits with 1 if something could
    not be downloaded or does not fit, 3 if the service requires a logon, 4 if it cannot be reached;
    the pin stays in any case.

    \b
    --json, without PATH: an array of {"path", "files", "here", "bytes", "here_bytes"}
    """
    if path and as_json:
        raise click.UsageError("--json is for the list, without PATH.")
    paths, below = control_client.resolve(path, account)
    if not below:
        _list(control_client.ask(paths, {"command": "pins"})["pins"], as_json)
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
    control_client.ask(paths, {"command": "unpin", "paths": below})


def _here(one: Message) -> str:
    """Return `3 of 12 files here (1.2 of 3.4 MiB)`, or a shorter text if all are."""
    files, amount = text_output.count(one["files"], "file"), text_output.amount(one["bytes"])
    if one["here"] == one["files"]:
        return f"{files} here ({amount})"
    return f"{one['here']} of {files} here ({text_output.amount(one['here_bytes'])} of {amount})"


def _list(pins: list[Message], as_json: bool) -> None:
    rows = (
        {
            "pinned": one["path"] or ".",
            "files": str(one["files"]),
            "here": str(one["here"]),
            "size": text_output.amount(one["bytes"]),
        }
        for one in pins
    )
    right = ["files", "here", "size"]
    text_output.show(pins, rows, in_json=as_json, empty="nothing is pinned", right=right)
