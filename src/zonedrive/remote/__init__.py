"""Typed client of the service over HTTPS; hides URLs and HTTP statuses from other packages.

The names in `__all__` are a stable interface for other programs: see docs/PYTHON_CLIENT.md. Each
name is imported on first use, because importing the client is slow.
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
    from zonedrive.remote.directory import Directory

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

_MODULES = {"Client": "client", "Credentials": "client", "Directory": "directory"}
"""Submodule of each exported name that is not defined in `zonedrive.model`."""


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = f"{__name__}.{_MODULES[name]}" if name in _MODULES else "zonedrive.model"
    found = globals()[name] = getattr(import_module(module), name)
    return found
