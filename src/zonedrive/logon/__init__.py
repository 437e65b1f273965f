"""Identity at the service: accounts, secrets, the logon, and the bearer in each request.

`stored` is a stable interface for other programs: see docs/PYTHON_CLIENT.md. It is imported on
first use, because other modules of the package need no HTTP.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from zonedrive.logon.stored_credentials import stored

__all__ = ["stored"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = found = import_module(f"{__name__}.stored_credentials").stored
    return found
