"""Command `zones`: list the zones of the service, mounted or not."""

import click

from zonedrive.cli import control_client, text_output
from zonedrive.cli.options import account_option, json_option
from zonedrive.paths import AccountPaths

WIDE = 110  # minimum columns of a terminal for a table with the zones' ids, which are for programs


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
        found = control_client.ask(paths, {"command": "zones"})["zones"]
    except control_client.NoDaemon:
        from zonedrive.daemon import service_commands

        found = service_commands.zones(paths)
    is_wide = text_output.width() >= WIDE
    rows = (
        {
            "name": zone["name"],
            "folder": zone["path"] if zone["accessible"] else "web application only",
            "size": text_output.amount(zone["size"]),
            "users": "" if zone["users"] is None else str(zone["users"]),
        }
        | ({"id": zone["id"]} if is_wide else {})
        for zone in found
    )
    text_output.show(
        found, rows, in_json=as_json, empty="there are no zones", right=["size", "users"]
    )
