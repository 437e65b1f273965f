"""Commands `groups`: create groups, change their members, delete them.

Knows nothing about requests to the service.
"""

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from zonedrive.cli import text_output
from zonedrive.cli.api_call import ask_directory
from zonedrive.cli.options import Id, Name, Text, account_option, json_option

if TYPE_CHECKING:
    from zonedrive.model import Group, Level, Member

Decorated = TypeVar("Decorated", bound=Callable[..., Any])
LEVELS = ("Manage", "Access", "None")


class MemberLevel(Text):
    """Parameter of the form `ID=LEVEL`."""

    name = "member"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, tuple):
            return value
        member, _, wanted = super().convert(value, param, ctx).rpartition("=")
        level = {each.lower(): each for each in LEVELS}.get(wanted.lower())
        if not member or level is None:
            self.fail(
                f"{value!r}: write ID=LEVEL, the levels being {', '.join(LEVELS)}", param, ctx
            )
        return member, level


def _members(help_text: str) -> Callable[[Decorated], Decorated]:
    return click.option(
        "--member", "members", metavar="ID=LEVEL", type=MemberLevel(), multiple=True, help=help_text
    )


@click.group()
def groups() -> None:
    """Make, change and delete groups of users.

    A group is known by its id, group.UUID@DOMAIN, which 'create' prints.  Keep it: the published
    interface can neither list groups nor find one by its name.  Members are users or other groups,
    by id, with level Manage or Access.

    \b
    --json of create and update: {"id", "name", "description", "created", "created_by",
      "administrator_managed", "open", "may_assign_rights", "members"}; members is an
      array of {"id", "type", "name", "level", "authorization"}
    """


@groups.command()
@click.argument("name", type=Name())
@account_option
@click.option("--description", type=Text(), default="", metavar="TEXT", help="What it is for.")
@_members("A member and its level, Manage or Access; repeatable.")
@json_option
def create(
    name: str, account: str, description: str, members: tuple[tuple[str, str], ...], as_json: bool
) -> None:
    """Make a group called NAME."""
    levels = _levels(members)
    _show(
        ask_directory(account, lambda directory: directory.create_group(name, description, levels)),
        as_json,
    )


@groups.command()
@click.argument("group", type=Id())
@account_option
@_members("A member and its level, Manage, Access or None; repeatable.")
@click.option(
    "--absolute",
    is_flag=True,
    help="The members given are to be all there are: everybody else is taken out.",
)
@json_option
def update(
    group: str, account: str, members: tuple[tuple[str, str], ...], absolute: bool, as_json: bool
) -> None:
    """Change who is in GROUP (an id), and show it.

    Members that are not named stay as they are, unless --absolute is given.  The level None takes
    a member out.  Without --member nothing changes, and the group is shown.
    """
    if absolute and not members:
        raise click.UsageError("--absolute needs --member: else nobody would be left.")
    levels = _levels(members)
    found = ask_directory(
        account, lambda directory: directory.update_group(group, levels, relative=not absolute)
    )
    _show(found, as_json)


@groups.command()
@click.argument("group", type=Id())
@click.argument("member", type=Id())
@click.argument("level", metavar="LEVEL", type=click.Choice(LEVELS, case_sensitive=False))
@account_option
def member(group: str, member: str, level: str, account: str) -> None:
    """Give one member of a group a level.

    GROUP and MEMBER are ids, LEVEL is Manage, Access, or None, which takes the member out.
    """
    wanted = cast("Level", level)
    ask_directory(account, lambda directory: directory.set_member(group, member, wanted))
    if level == "None":
        text_output.line(f"{member} is not in {group} any more")
    else:
        text_output.line(f"{member} has {level} in {group}")


@groups.command()
@click.argument("group", type=Id())
@account_option
@click.option("--yes", is_flag=True, help="Do not ask whether you are sure.")
def delete(group: str, account: str, yes: bool) -> None:
    """Delete GROUP (an id).

    Its members lose the access to zones that they have through it.
    """
    if not yes:
        if not sys.stdin.isatty():
            raise click.UsageError("There is no terminal to ask at: use --yes.")
        question = f"Delete {text_output.escaped(group)}, and the access to zones that it gives?"
        with text_output.asking():
            click.confirm(question, abort=True, err=True)
    ask_directory(account, lambda directory: directory.delete_group(group))
    text_output.line(f"deleted {group}")


def _levels(members: tuple[tuple[str, str], ...]) -> "dict[str, Level]":
    found: dict[str, Level] = {}
    for member_id, level in members:
        if member_id in found:
            raise click.UsageError(f"--member names {member_id!r} twice.")
        found[member_id] = cast("Level", level)
    return found


def _show(group: "Group", as_json: bool) -> None:
    if as_json:
        text_output.as_json(_object(group))
        return
    text_output.line(group.id, "bold")
    about = [f"name: {group.name}"]
    if group.description:
        about.append(f"description: {group.description}")
    if group.created_ns:
        by = f" by {group.created_by}" if group.created_by else ""
        about.append(f"made {text_output.when(text_output.moment(group.created_ns) or '')}{by}")
    if group.administrator_managed:
        about.append("managed by the administrators")
    for each in about:
        text_output.line(each)
    if group.members:
        text_output.records([_row(member) for member in group.members])
    else:
        text_output.line("nobody is in it")


def _row(member: "Member") -> dict[str, str]:
    return {
        "member": member.id,
        "level": member.level,
        "name": member.name,
        "type": member.type,
        "authorization": member.authorization,
    }


def _object(group: "Group") -> dict[str, Any]:
    return {
        "id": group.id,
        "name": group.name,
        "description": group.description,
        "created": text_output.moment(group.created_ns),
        "created_by": group.created_by or None,
        "administrator_managed": group.administrator_managed,
        "open": group.open,
        "may_assign_rights": group.may_assign_rights,
        "members": [
            {
                "id": one.id,
                "type": one.type,
                "name": one.name,
                "level": one.level,
                "authorization": one.authorization or None,
            }
            for one in group.members
        ],
    }
