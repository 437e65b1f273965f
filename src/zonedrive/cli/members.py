"""Command `members`: list, add, change and remove the members of a zone."""

import click

from zonedrive.cli import text_output
from zonedrive.cli.options import Id, Name, Text, account_option, json_option
from zonedrive.paths import AccountPaths

LEVELS = ("Add", "Modify", "Manage")
"""Known access levels of a member; other levels of a deployment are sent unchanged."""


class ZoneGroup(click.Group):
    """Click group with `list` as the default command, so that `members ZONE` lists the members."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in self.commands:
            args = ["list", *args]
        return super().resolve_command(ctx, args)


class Level(Text):
    """Parameter type for the access level of a member.

    The known levels, see `LEVELS`, are matched case-insensitively.
    """

    name = "level"
    forbidden = ("", "None", "none")

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = super().convert(value, param, ctx)
        return text.title() if text.title() in LEVELS else text


@click.group(cls=ZoneGroup, context_settings={"ignore_unknown_options": True})
def members() -> None:
    """List, add and remove the members of a zone: 'zonedrive members ZONE'.

    ZONE is a name, folder or id that 'zonedrive zones' shows. These commands require a logon with
    a profile that defines the operations. They also work without a mount.
    """


@members.command("list")
@click.argument("zone", type=Name())
@account_option
@json_option
def list_members(zone: str, account: str, as_json: bool) -> None:
    """List the users and groups that are members of ZONE.

    The word 'list' may be left out. A user's own level in the list takes precedence over the
    level of a group.

    \b
    --json: an array of {"id", "name", "type", "level"}
      type   User or Group
      level  Add, Modify, Manage or another level of the service
    """
    # Not a static import: it takes a fraction of a second, and few commands need it.
    from zonedrive.daemon import service_commands

    found = service_commands.members(AccountPaths(account), zone)
    rows = (
        {"level": one["level"], "name": one["name"], "type": one["type"], "id": one["id"]}
        for one in found
    )
    text_output.show(found, rows, in_json=as_json, empty="the service names no members")


@members.command()
@click.argument("zone", type=Name())
@click.argument("who", type=Id())
@click.argument("level", type=Level())
@account_option
def add(zone: str, who: str, level: str, account: str) -> None:
    """Add a user or group to ZONE.

    WHO is an id, as 'zonedrive users list' shows it. LEVEL is Add, Modify, Manage or another level
    of the service.
    """
    from zonedrive.daemon import service_commands

    service_commands.change_member(AccountPaths(account), zone, who, level, new=True)
    text_output.line(f"{who} is a member of {zone} with level {level}")


@members.command("set")
@click.argument("zone", type=Name())
@click.argument("who", type=Id())
@click.argument("level", type=Level())
@account_option
def set_level(zone: str, who: str, level: str, account: str) -> None:
    """Change the level of a member of ZONE.

    WHO is an id or a name that 'zonedrive members ZONE' shows. LEVEL is Add, Modify, Manage or
    another level of the service.
    """
    from zonedrive.daemon import service_commands

    found = service_commands.change_member(AccountPaths(account), zone, who, level)
    text_output.line(f"{found} has level {level} in {zone}")


@members.command()
@click.argument("zone", type=Name())
@click.argument("who", type=Id())
@account_option
def remove(zone: str, who: str, account: str) -> None:
    """Remove a member from ZONE.

    WHO is an id or a name that 'zonedrive members ZONE' shows. A user who is also in a member
    group still has the level of the group.
    """
    from zonedrive.daemon import service_commands

    found = service_commands.change_member(AccountPaths(account), zone, who, None)
    text_output.line(f"{found} is no longer a member of {zone}")
