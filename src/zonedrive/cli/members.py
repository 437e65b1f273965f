"""Command `members`: list who is in a zone."""

import click

from zonedrive.cli import text_output
from zonedrive.cli.options import Name, account_option, json_option
from zonedrive.paths import AccountPaths


@click.command()
@click.argument("zone", type=Name())
@account_option
@json_option
def members(zone: str, account: str, as_json: bool) -> None:
    """List the users and groups that are members of ZONE, with their level.

    ZONE is a name, folder or id that 'zonedrive zones' shows.  A user's own level in the list
    takes precedence over the level of a group.  Needs a profile, given at logon, that defines the
    operation.  Works without a mount.

    \b
    --json: an array of {"id", "name", "type", "level"}
      type   User or Group
      level  Add, Modify, Manage or another word of the service
    """
    # Not a static import: it is needed only here, and takes a part of a second.
    from zonedrive.daemon import service_commands

    found = service_commands.members(AccountPaths(account), zone)
    rows = (
        {"level": one["level"], "name": one["name"], "type": one["type"], "id": one["id"]}
        for one in found
    )
    text_output.show(found, rows, in_json=as_json, empty="the service names no members")
