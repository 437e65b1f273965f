"""Command `new-credentials`, for users who cannot log on any more.

Knows nothing about the service's reaction, which is in its answer or comes by mail.
"""

import sys

import click

from zonedrive.cli import text_output
from zonedrive.cli.options import Text, account_option
from zonedrive.errors import NotLoggedOn


@click.command("new-credentials")
@click.argument("base_url", metavar="[BASE_URL]", required=False)
@account_option
@click.option(
    "--username", type=Text(), metavar="USER", help="Who.  [default: the user of the account]"
)
@click.option(
    "--ca-file",
    metavar="PEM",
    type=click.Path(),
    help="Trust this certificate authority instead of the system's.",
)
def new_credentials(
    base_url: str | None, account: str, username: str | None, ca_file: str | None
) -> None:
    """Ask the service for new credentials for somebody who cannot log on.

    BASE_URL may be left out for a service that you have logged on to.  What comes next is the
    service's matter, often a mail.  Nothing changes on this machine.
    """
    import trio

    from zonedrive.logon import Account
    from zonedrive.logon.api import open_access
    from zonedrive.paths import AccountPaths
    from zonedrive.remote.urls import base_url as checked

    known: Account | None
    try:
        known = Account.load(AccountPaths(account))
    except NotLoggedOn:
        known = None
    if base_url is not None:
        url = checked(base_url)
    elif known is not None:
        url = known.base_url
    else:
        raise click.UsageError("Missing argument 'BASE_URL', as there is no logon on this machine.")
    if known is not None and known.base_url == url:
        ca_file, username = ca_file or known.ca_file, username or known.user_id or known.username
    if not username:
        if not sys.stdin.isatty():
            raise click.UsageError("There is no terminal to ask at: use --username.")
        with text_output.asking():
            username = str(click.prompt(text_output.clean(f"User name at {url}"), err=True)).strip()
    user = username

    async def ask() -> str:
        async with open_access(url, ca_file) as access:
            return await access.new_credentials(user)

    said = trio.run(ask)
    text_output.line(f"asked {url} for new credentials for {user}")
    if said:
        text_output.line(f"the service says: {said}")
