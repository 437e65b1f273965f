"""The daemon in the background, in the process that `zonedrive mount` has forked for it.

Must not know how that process came to be (`ready`), nor how a daemon is built (`serve`).
"""

import gc
import os

from zonedrive import failpoint
from zonedrive.daemon.ready import Pipe
from zonedrive.logon import lean_httpx
from zonedrive.paths import AccountPaths


def run(paths: AccountPaths, folder: str, options: tuple[str, ...], ready: Pipe) -> int:
    """Serve; return 0 after an unmount, 1 if the daemon failed (the reason was said)."""
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
    """Import everything that a daemon needs, quickly.

    The modules stay for good, so the collector of garbage neither looks for any among them
    meanwhile nor afterwards.
    """
    gc.disable()
    lean_httpx.load()
    from zonedrive.daemon import serve  # noqa: F401

    gc.freeze()
    gc.enable()
