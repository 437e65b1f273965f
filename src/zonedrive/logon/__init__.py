"""Logon to the service: accounts, secrets, and the bearer token of each request.

`stored` is a stable interface for other programs: see docs/PYTHON_CLIENT.md.
"""

from functools import partial
from typing import TYPE_CHECKING

from zonedrive.paths import DEFAULT_ACCOUNT, AccountPaths, config_file

if TYPE_CHECKING:
    from zonedrive.remote.client import Credentials

__all__ = ["stored"]


def stored(account: str = DEFAULT_ACCOUNT) -> "Credentials":
    """Return the credentials of `account`, with the settings of config.toml. Sends no request.

    Raises NotLoggedOn if the account is not logged on, and ConfigError if a setting or the account
    file is not valid.
    """
    # Imported here, because other modules of the package need no HTTP.
    from zonedrive import config
    from zonedrive.logon.account import Account
    from zonedrive.logon.bearer_auth import BearerAuth
    from zonedrive.logon.renewal import Renewal
    from zonedrive.logon.secrets import open_store
    from zonedrive.remote.client import Credentials

    paths = AccountPaths(account)
    found = Account.load(paths)
    shared = config.organization(account)
    shared.check_service(found.base_url, paths.option)
    settings = config.load(config_file(), account, system=shared)
    secrets = open_store(paths)
    return Credentials(
        base_url=found.base_url,
        auth=BearerAuth(
            secrets,
            Renewal(paths, lambda: secrets),
            command=partial(Account.logon_again, paths),
        ),
        ca_file=found.ca_file,
        profile=settings.profile or found.profile,
        settings=settings,
    )
