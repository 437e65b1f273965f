"""Entry point of the background daemon, in the process forked by `zonedrive mount`.

Knows nothing about the fork (`ready`) or of building a daemon (`serve`).
"""

import gc
import os

from zonedrive import failpoint
from zonedrive.daemon.readiness import Pipe
from zonedrive.logon import lean_httpx
from zonedrive.paths import AccountPaths


def run(paths: AccountPaths, folder: str, options: tuple[str, ...], ready: Pipe) -> int:
    """Serve; return 0 after an unmount, 1 if the daemon failed and reported the reason."""
    failpoint.arm(os.environ)
    try:
        load()
        from zonedrive.daemon import serve

        serve.run(serve.Start(paths, folder, options), ready)
    except Exception as error:
        ready.failed(error)
        return 1
    return 0


def load() -> None:
    """Import all modules of the daemon quickly.

    The garbage collector is off during the import and ignores the modules later, because they stay
    loaded.
    """
    gc.disable()
    lean_httpx.load()
    from zonedrive.daemon import serve  # noqa: F401

    gc.freeze()
    gc.enable()
