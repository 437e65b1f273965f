"""Command `password`: change the password at the service, if the profile supports it.

Knows nothing about requests to the service.

INVARIANT: passwords come from the terminal (without echo) or from standard input, and are sent only
to the service.
"""

import sys

import click

from zonedrive.cli import text_output
from zonedrive.cli.options import account_option


@click.command()
@account_option
@click.option(
    "--password-stdin",
    is_flag=True,
    help="Read two lines from the standard input: your password, then the new one.",
)
def password(account: str, password_stdin: bool) -> None:
    """Change your password at the service.

    The published interface does not show how, so this takes a --profile (at logon) that knows.
    Where the logon ends with the old password, log on again.
    """
    from zonedrive.cli.logon import Terminal
    from zonedrive.logon import Account, open_store, stored
    from zonedrive.logon.secrets import PASSWORD
    from zonedrive.paths import AccountPaths
    from zonedrive.remote.profiles.load import load_profile

    if not password_stdin and not sys.stdin.isatty():
        raise click.UsageError("There is no terminal to ask at: use --password-stdin.")
    paths = AccountPaths(account)
    about, credentials = Account.load(paths), stored(account)
    load_profile(credentials.profile).operation("change_password")
    terminal = Terminal(password_stdin, None)
    old = terminal.password()
    new = terminal.new_password()
    user = about.user_id or about.username

    import trio

    from zonedrive.errors import NotLoggedOn
    from zonedrive.remote import Client

    async def change() -> bool:
        """Change the password; return True if the logon is still valid."""
        async with Client(credentials) as client:
            await client.change_password(user, old.reveal(), new.reveal())
            text_output.line(f"the password of {user} is changed")
            store = open_store(paths)
            if store.get(PASSWORD) is not None:  # the old one must not be used any more
                store.delete(PASSWORD)
                text_output.remark("the password that was kept on this machine is destroyed")
            try:
                await client.zones()
            except NotLoggedOn:
                return False
            return True

    if not trio.run(change):
        text_output.remark(f"the logon ended with the old password: run '{about.logon_command()}'")
