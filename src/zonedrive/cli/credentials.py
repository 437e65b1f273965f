"""Commands `password` and `new-credentials`: change the password, or request new credentials.

The requests to the service are in `remote.client` and `logon.api`. This module does not depend on
how the service handles a request for new credentials.

INVARIANT: passwords come from the terminal (without echo) or from standard input, and are sent only
to the service.
"""

from typing import TYPE_CHECKING

import click

from zonedrive.cli import text_output
from zonedrive.cli.options import LocalPath, Name, account_option, as_usage
from zonedrive.errors import NotLoggedOn
from zonedrive.paths import AccountPaths

if TYPE_CHECKING:
    from zonedrive.remote.http_service import HttpService


@click.command()
@account_option
@click.option(
    "--password-stdin",
    is_flag=True,
    help="Read two lines from standard input: your password, then the new one.",
)
def password(account: str, password_stdin: bool) -> None:
    """Change your password at the service.

    This command requires a logon with a profile that defines the operation. If the service ends
    your logon when the password changes, log on again.
    """
    from zonedrive.cli.logon import Terminal
    from zonedrive.daemon import service_commands
    from zonedrive.logon import stored
    from zonedrive.logon.account import Account
    from zonedrive.logon.account_lock import locked
    from zonedrive.logon.secrets import PASSWORD, open_store
    from zonedrive.remote.profiles.load import load_profile

    paths = AccountPaths(account)
    about = Account.load(paths)
    load_profile(stored(account).profile).operation("change_password")
    if not password_stdin:
        text_output.require_terminal("--password-stdin")
    terminal = Terminal(password_stdin, None)
    old = terminal.password()
    new = terminal.new_password()
    user = about.user_id or about.username

    async def change(service: "HttpService") -> bool:
        """Change the password, and delete the old password if it is saved on this machine.

        Return True if the logon is still valid.
        """
        await service.change_password(user, old.reveal(), new.reveal())
        text_output.line(f"changed the password of {user}")
        with locked(paths):  # meanwhile, a logon cannot save another password
            store = open_store(paths)
            is_saved = store.get(PASSWORD) is not None
            if is_saved:  # the old password must not be used any more
                store.delete(PASSWORD)
        if is_saved:
            text_output.complain("deleted the saved password from this machine")
        try:
            await service.zones()
        except NotLoggedOn:
            return False
        return True

    if not service_commands.ask(paths, change):
        text_output.complain(
            f"the logon ended with the old password: run '{about.logon_command()}'"
        )


@click.command("new-credentials")
@click.argument("base_url", metavar="[BASE_URL]", required=False)
@account_option
@click.option(
    "--username", type=Name(), metavar="USER", help="User name.  [default: the user of the account]"
)
@click.option(
    "--ca-file",
    metavar="PEM",
    type=LocalPath(),
    help="Trust this certificate authority instead of the system's.",
)
def new_credentials(
    base_url: str | None, account: str, username: str | None, ca_file: str | None
) -> None:
    """Request new credentials from the service if you cannot log on.

    Without BASE_URL, the request goes to the service of the account. The service decides what
    follows, often an email. Nothing changes on this machine.
    """
    from contextlib import nullcontext
    from pathlib import Path

    import trio

    from zonedrive import config
    from zonedrive.logon.account import Account
    from zonedrive.logon.api import open_access
    from zonedrive.logon.logon import read_certificates
    from zonedrive.service_address import base_url as checked

    known: Account | None
    try:
        known = Account.load(AccountPaths(account))
    except NotLoggedOn:
        known = None
    shared = config.organization(account)
    shared.check_logon(ca_file=ca_file, profile=None, save_password=False)
    given = base_url or (known.base_url if known is not None else shared.base_url)
    if given is None:
        raise click.UsageError("Missing argument 'BASE_URL', as there is no logon on this machine.")
    with as_usage("") if base_url else nullcontext():
        url = checked(given)
    if ca_file is not None:
        with as_usage("--ca-file: "):
            read_certificates(Path(ca_file))
    shared.check_service(url, None if base_url else AccountPaths(account).option)
    if shared.is_service(url):
        ca_file = ca_file or shared.ca_file
    if known is not None and known.base_url == url:
        ca_file, username = ca_file or known.ca_file, username or known.user_id or known.username
    if not username:
        text_output.require_terminal("--username")
        with text_output.asking():
            username = str(click.prompt(text_output.clean(f"User name at {url}"), err=True)).strip()
    user = username

    async def ask() -> str:
        async with open_access(url, ca_file) as access:
            return await access.new_credentials(user)

    said = trio.run(ask)
    text_output.line(f"requested new credentials for {user} from {url}")
    if said:
        text_output.line(f"the service says: {said}")
