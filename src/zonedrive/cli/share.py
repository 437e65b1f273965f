"""Commands `share` and `unshare`, which create and remove links for people outside the zone."""

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
    """Share the file or folder PATH with people outside the zone, and print the link.

    Everybody who has the link can read the file in its newest version, or everything in the folder,
    until 'zonedrive unshare PATH'. The service decides which entries can be shared, and for how
    long. This command requires a logon with a profile that defines the operation.
    """
    from zonedrive.daemon import service_commands

    paths, place = _shareable(path, account)
    if place["waits"]:
        waits = "your latest change is not uploaded yet; the link shows it after the upload"
        text_output.complain(f"{path}: {waits}")
    entry, folder = (place["zone"], place["id"]), place["folder"]
    link = service_commands.ask(paths, lambda service: service.share(*entry, folder=folder))
    text_output.say(link)


@click.command()
@click.argument("path", type=LocalPath())
@some_account_option
def unshare(path: str, account: str | None) -> None:
    """Stop sharing the file or folder PATH, so that its links no longer work.

    This command requires a logon with a profile that defines the operation.
    """
    from zonedrive.daemon import service_commands

    paths, place = _shareable(path, account)
    entry, folder = (place["zone"], place["id"]), place["folder"]
    try:
        service_commands.ask(paths, lambda service: service.unshare(*entry, folder=folder))
    except NotFound as missing:
        raise ZonedriveError(f"{path} is not shared") from missing
    text_output.line(f"{path} is not shared any more")


def _shareable(path: str, account: str | None) -> tuple[AccountPaths, dict[str, Any]]:
    """Return the account, and the daemon's description of the entry at `path`.

    Raises ZonedriveError if the entry does not exist, is not on the service or cannot be shared.
    """
    paths, (whole,) = control_client.resolve((path,), account)
    place = control_client.ask(paths, {"command": "place", "path": whole})
    if place["missing"]:
        raise ZonedriveError(f"{path} does not exist")
    if not place["zone"]:
        raise ZonedriveError(f"{path} is the folder of all zones", remedy="share a file or folder")
    if place["virtual"]:
        file = place["path"]
        raise ZonedriveError(f"{path} cannot be shared by itself; share the file: {file}")
    if not place["id"]:
        raise ZonedriveError(
            f"{path} is not on the service: {place['unknown']}",
            remedy="" if place["stays"] else "run 'zonedrive sync', then try again",
        )
    return paths, place
