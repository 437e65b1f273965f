"""Credentials of a logged-on account, for use by a program.

Knows nothing about the program. Sends no request.
"""

from zonedrive import config
from zonedrive.logon.account import Account
from zonedrive.logon.bearer_auth import BearerAuth
from zonedrive.logon.renewal import Renewal
from zonedrive.logon.secrets import open_store
from zonedrive.paths import DEFAULT_ACCOUNT, AccountPaths, config_file
from zonedrive.remote.client import Credentials


def stored(account: str = DEFAULT_ACCOUNT) -> Credentials:
    """Return the credentials of `account`, with the settings of config.toml.

    Raises NotLoggedOn if there was no logon, ConfigError for an invalid setting.
    """
    paths = AccountPaths(account)
    found = Account.load(paths)
    shared = config.organization(account)
    shared.check_service(found.base_url)
    settings = config.load(config_file(), account, system=shared)
    secrets = open_store(paths)
    return Credentials(
        base_url=found.base_url,
        auth=BearerAuth(secrets, Renewal(paths, secrets), command=Account.logon_again(paths)),
        ca_file=found.ca_file,
        profile=settings.profile or found.profile,
        settings=settings,
    )
