"""Commands `share` and `unshare`: a link to a file or folder for somebody outside."""

from typing import Any

import click

from zonedrive.cli import control_client, text_output
from zonedrive.cli.options import LocalPath, some_account_option
from zonedrive.errors import NotFound, ZonedriveError
from zonedrive.paths import AccountPaths


@click.command()
@click.argument("path", type=LocalPath())
@some_account_option
def share(path: str, account: str | None) -> None:
    """Share the file or folder PATH with somebody outside, and print the link.

    Everybody who has the link can read the newest version, and everything in a folder, until
    'zonedrive unshare PATH'.  Whether an entry can be shared, and for how long, is decided by the
    service.  Works if the profile can share.
    """
    from zonedrive.daemon import service_commands

    paths, place = _shareable(path, account)
    if place["waits"]:
        waits = "your latest change is not uploaded yet; the link shows it then"
        text_output.complain(f"{path}: {waits}")
    link = service_commands.share(paths, place["zone"], place["id"], folder=place["folder"])
    text_output.say(link)


@click.command()
@click.argument("path", type=LocalPath())
@some_account_option
def unshare(path: str, account: str | None) -> None:
    """End the sharing of the file or folder PATH: its links stop working.

    Works if the profile can end sharing.
    """
    from zonedrive.daemon import service_commands

    paths, place = _shareable(path, account)
    try:
        service_commands.unshare(paths, place["zone"], place["id"], folder=place["folder"])
    except NotFound as missing:
        raise ZonedriveError(f"{path} is not shared") from missing
    text_output.line(f"{path} is not shared any more")


def _shareable(path: str, account: str | None) -> tuple[AccountPaths, dict[str, Any]]:
    """Return the account and the place of an entry that the service has."""
    paths, (whole,) = control_client.resolve((path,), account)
    place = control_client.ask(paths, {"command": "place", "path": whole})
    if place["missing"]:
        raise ZonedriveError(f"{path} does not exist")
    if not place["zone"]:
        raise ZonedriveError(f"{path} is the folder of all zones", remedy="share a file or folder")
    if place["virtual"]:
        raise ZonedriveError(
            f"{path} cannot be shared by itself", remedy=f"share the file: {place['path']}"
        )
    if not place["id"]:
        raise ZonedriveError(
            f"{path} is not on the service: {place['unknown']}",
            remedy="" if place["stays"] else "run 'zonedrive sync', then try again",
        )
    return paths, place
