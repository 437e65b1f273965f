"""Command `zones`: list the zones of the service, mounted or not.

Knows nothing about how zones are listed; asks the daemon, or the service if no daemon is running.
"""

import click

from zonedrive.cli import control_client, text_output
from zonedrive.cli.options import account_option, json_option
from zonedrive.paths import AccountPaths

ASK_SECONDS = 90.0

WIDE = 110
"""Minimum columns of a terminal for a table with the zones' ids."""


@click.command()
@account_option
@json_option
def zones(account: str, as_json: bool) -> None:
    """List all zones, including those that cannot be mounted.

    Works without a mount.

    \b
    --json: an array of {"id", "name", "path", "accessible", "size", "users"}
      path         name of the folder in the mount, or null
      accessible   whether the zone can be used through the API
      size, users  bytes and number of users, null if unknown
    """
    paths = AccountPaths(account)
    try:
        found = control_client.ask(paths, {"command": "zones"}, timeout=ASK_SECONDS)["zones"]
    except control_client.NoDaemon:
        from zonedrive.daemon import service_commands

        found = service_commands.zones(paths)
    if as_json:
        text_output.as_json(found)
        return
    if not found:
        text_output.line("there are no zones")
        return
    # Ids are mainly for programs, so a narrow table leaves them out.
    columns = ["name", "folder", "size", "users", "id"][: 5 if text_output.width() >= WIDE else 4]
    text_output.table(
        columns,
        [
            [
                zone["name"],
                zone["path"] if zone["accessible"] else "web application only",
                text_output.amount(zone["size"]),
                "" if zone["users"] is None else str(zone["users"]),
                zone["id"],
            ][: len(columns)]
            for zone in found
        ],
        right=["size", "users"],
    )
