"""Typed access to the service over HTTPS. Other packages see no HTTP status and no URL.

The names in `__all__` are a stable interface for other programs: see docs/PYTHON_CLIENT.md. The
other names are internal, for the daemon.

Each name is imported on first use, so that a command that needs only an address does not load the
client, which is slow to import.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from zonedrive.model import (
        Attributes,
        Entry,
        Group,
        Level,
        Member,
        NewToken,
        Scope,
        Token,
        Version,
        Zone,
    )
    from zonedrive.remote.client import Client, Credentials
    from zonedrive.remote.connectivity import Connectivity as Connectivity
    from zonedrive.remote.connectivity import State as State
    from zonedrive.remote.directory import Directory
    from zonedrive.remote.profiles.load import Profile as Profile
    from zonedrive.remote.profiles.load import load_profile as load_profile
    from zonedrive.remote.service import HttpService as HttpService
    from zonedrive.remote.service import Service as Service
    from zonedrive.remote.service import open_service as open_service
    from zonedrive.remote.transfer import Cancelled as Cancelled
    from zonedrive.remote.transfer import Download as Download
    from zonedrive.remote.transfer import Transfer as Transfer

__all__ = [
    "Attributes",
    "Client",
    "Credentials",
    "Directory",
    "Entry",
    "Group",
    "Level",
    "Member",
    "NewToken",
    "Scope",
    "Token",
    "Version",
    "Zone",
]

_HOMES = {
    "client": ("Client", "Credentials"),
    "directory": ("Directory",),
    "connectivity": ("Connectivity", "State"),
    "profiles.load": ("Profile", "load_profile"),
    "service": ("HttpService", "Service", "open_service"),
    "transfer": ("Cancelled", "Download", "Transfer"),
}
"""Module of each name; the other names in `__all__` are in zonedrive.model."""


def __getattr__(name: str) -> object:
    home = next((f"{__name__}.{each}" for each, names in _HOMES.items() if name in names), "")
    if not home and name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(home or "zonedrive.model"), name)
    return found
