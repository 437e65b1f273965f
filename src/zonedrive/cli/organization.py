"""Commands `users` and `groups`, for the users of the organization and for groups of users."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar, cast

import click

from zonedrive.cli import text_output
from zonedrive.cli.options import Decorated, Id, Name, Text, account_option, json_option
from zonedrive.paths import AccountPaths

if TYPE_CHECKING:
    from zonedrive.model import Group, Level
    from zonedrive.remote.directory import Directory

AnswerT = TypeVar("AnswerT")
LEVELS = ("Manage", "Access", "None")


def ask_directory(account: str, question: "Callable[[Directory], Awaitable[AnswerT]]") -> AnswerT:
    """Call `question` with the service's directory of users, groups and tokens; return the result.

    Raises the errors of `question`, and NotLoggedOn if the account is not logged on.
    """
    from zonedrive.daemon import service_commands

    return service_commands.ask(AccountPaths(account), lambda service: question(service.directory))


# ---- users ----


@click.group()
def users() -> None:
    """List the organization's users."""


@users.command("list")
@account_option
@json_option
def list_users(account: str, as_json: bool) -> None:
    """List the users of the organization.

    The published API does not define the fields of a user; the list shows the fields that this
    deployment sends, under their own names.

    \b
    --json: an array of objects with the deployment's fields
    """
    found = ask_directory(account, lambda directory: directory.users())
    if as_json:
        text_output.as_json(found)
    else:
        text_output.show_records(found, "no users")


# ---- groups ----


def _levels(
    ctx: click.Context, param: click.Parameter, given: tuple[str, ...]
) -> "dict[str, Level]":
    """Parse the values `ID=LEVEL` of an option, and return the level of each member by member id.

    Raises click.UsageError for an invalid value.
    """
    found: dict[str, Level] = {}
    for value in given:
        member_id, _, wanted = value.rpartition("=")
        if not member_id or wanted.title() not in LEVELS:
            raise click.BadParameter(
                f"{value!r}: write ID=LEVEL, the levels being {', '.join(LEVELS)}", ctx, param
            )
        if member_id in found:
            raise click.UsageError(f"--member names {member_id!r} twice.")
        found[member_id] = cast("Level", wanted.title())
    return found


def _members(help_text: str) -> Callable[[Decorated], Decorated]:
    return click.option(
        "--member",
        "members",
        metavar="ID=LEVEL",
        type=Text(),
        multiple=True,
        callback=_levels,
        help=help_text,
    )


@click.group()
def groups() -> None:
    """Create, change and delete groups of users.

    Commands name a group by its id, group.UUID@DOMAIN, which 'create' prints. Keep the id: the
    published API cannot list groups or find one by its name. Members are users or other groups,
    by id, with level Manage or Access.

    \b
    --json of create and update: {"id", "name", "description", "created", "created_by",
      "administrator_managed", "open", "may_assign_rights", "members"}; members is an
      array of {"id", "type", "name", "level", "authorization"}
    """


@groups.command()
@click.argument("name", type=Name())
@account_option
@click.option(
    "--description", type=Text(), default="", metavar="TEXT", help="Purpose of the group."
)
@_members("Member and its level, Manage or Access; repeatable.")
@json_option
def create(
    name: str, account: str, description: str, members: "dict[str, Level]", as_json: bool
) -> None:
    """Create a group called NAME."""
    made = ask_directory(
        account, lambda directory: directory.create_group(name, description, members)
    )
    _show(made, as_json)


@groups.command()
@click.argument("group", type=Id())
@account_option
@_members("Member and its level, Manage, Access or None; repeatable.")
@click.option("--absolute", is_flag=True, help="Remove all members that are not given.")
@json_option
def update(
    group: str, account: str, members: "dict[str, Level]", absolute: bool, as_json: bool
) -> None:
    """Change the members of GROUP (an id), and show the group.

    Other members stay unless --absolute is given. The level None removes a member. Without
    --member nothing changes.
    """
    if absolute and all(level == "None" for level in members.values()):
        raise click.UsageError(
            "--absolute needs a --member that stays: otherwise the group would be empty."
        )
    found = ask_directory(
        account, lambda directory: directory.update_group(group, members, relative=not absolute)
    )
    _show(found, as_json)


@groups.command()
@click.argument("group", type=Id())
@click.argument("member", type=Id())
@click.argument("level", metavar="LEVEL", type=click.Choice(LEVELS, case_sensitive=False))
@account_option
def member(group: str, member: str, level: str, account: str) -> None:
    """Set the level of one member of a group.

    GROUP and MEMBER are ids, LEVEL is Manage, Access, or None, which removes the member.
    """
    wanted = cast("Level", level)
    ask_directory(account, lambda directory: directory.set_member(group, member, wanted))
    if level == "None":
        text_output.line(f"removed {member} from {group}")
    else:
        text_output.line(f"{member} has {level} in {group}")


@groups.command()
@click.argument("group", type=Id())
@account_option
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
def delete(group: str, account: str, yes: bool) -> None:
    """Delete GROUP (an id).

    Its members lose the access to zones that the group gives them.
    """
    if not yes and not text_output.is_confirmed(
        f"Delete {group}, and the access to zones that it gives?"
    ):
        text_output.complain("nothing was removed")
        click.get_current_context().exit(1)
    ask_directory(account, lambda directory: directory.delete_group(group))
    text_output.line(f"deleted {group}")


def _show(group: "Group", as_json: bool) -> None:
    from msgspec.structs import asdict

    created = text_output.moment(group.created_ns)
    if as_json:
        shown = asdict(group) | {"created": created, "created_by": group.created_by or None}
        del shown["created_ns"]
        shown["members"] = [
            asdict(one) | {"authorization": one.authorization or None} for one in group.members
        ]
        text_output.as_json(shown)
        return
    text_output.line(group.id, "bold")
    text_output.line(f"name: {group.name}")
    if group.description:
        text_output.line(f"description: {group.description}")
    if created:
        by = f" by {group.created_by}" if group.created_by else ""
        text_output.line(f"created {text_output.when(created)}{by}")
    if group.administrator_managed:
        text_output.line("managed by the administrators")
    names = ("level", "name", "type", "authorization")
    members = [
        {"member": one.id} | {name: getattr(one, name) for name in names} for one in group.members
    ]
    text_output.show_records(members, "no members")
