"""`zonedrive password`: another password at the service, where the profile knows how.

Must not know how the service is asked.

INVARIANT: passwords come from the terminal (unseen) or from the standard input, and go to the
service alone.
"""

import sys

import click

from zonedrive.cli import show
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
    from zonedrive.remote import load_profile

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
        """Whether the logon outlives it."""
        async with Client(credentials) as client:
            await client.change_password(user, old.reveal(), new.reveal())
            show.line(f"the password of {user} is changed")
            store = open_store(paths)
            if store.get(PASSWORD) is not None:  # nobody shall try the old one
                store.delete(PASSWORD)
                show.remark("the password that was kept on this machine is destroyed")
            try:
                await client.zones()
            except NotLoggedOn:
                return False
            return True

    if not trio.run(change):
        show.remark(f"the logon ended with the old password: run '{about.logon_command()}'")
