"""Identity at the service: accounts, secrets, the logon, and the bearer in each request.

Each name is imported on first use, because an account alone needs no HTTP.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from zonedrive.logon.account import Account
    from zonedrive.logon.bearer_auth import BearerAuth
    from zonedrive.logon.keys import data_box
    from zonedrive.logon.secrets import Secret, SecretStore, open_store
    from zonedrive.logon.stored_credentials import stored

__all__ = ["Account", "BearerAuth", "Secret", "SecretStore", "data_box", "open_store", "stored"]

_HOMES = {
    "account": ("Account",),
    "stored_credentials": ("stored",),
    "keys": ("data_box",),
    "secrets": ("Secret", "SecretStore", "open_store"),
    "bearer_auth": ("BearerAuth",),
}
"""Names by module; no module has the same name as one of them."""


def __getattr__(name: str) -> object:
    home = next((each for each, names in _HOMES.items() if name in names), "")
    if not home:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(f"{__name__}.{home}"), name)
    return found
