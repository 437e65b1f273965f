"""Command `users list`: the users of the organization.

Knows nothing about the fields of a user, which are not published.
"""

import click

from zonedrive.cli import text_output
from zonedrive.cli.api_call import ask_directory
from zonedrive.cli.options import account_option, json_option


@click.group()
def users() -> None:
    """List the organization's users."""


@users.command("list")
@account_option
@json_option
def list_users(account: str, as_json: bool) -> None:
    """List the users of the organization.

    What the service says of a user is not part of the published interface: shown is what this
    deployment says, under its own names.

    \b
    --json: an array of objects with the deployment's fields
    """
    found = ask_directory(account, lambda directory: directory.users())
    if as_json:
        text_output.as_json([dict(user) for user in found])
        return
    if not found:
        text_output.line("there are no users to be seen")
        return
    text_output.records(found)
