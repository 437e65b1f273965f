"""What the database needs beside the work, once, some time after the start.

Must not hold up anything: rows are written a few at a time, files are looked at in a thread.
"""

import logging

import trio

from zonedrive import salvage
from zonedrive.errors import Damaged, StoreError
from zonedrive.tree import orphans, renewal
from zonedrive.vfs.core import Core

log = logging.getLogger(__name__)

QUIET_S = 60.0  # after the start the disk is left to those who read
PAUSE_S = 0.05  # between two steps, so that programs come first


async def upkeep(core: Core) -> None:
    """Bring rows of former schemas into the present form, and look for damage."""
    try:
        for _ in renewal.rows(core.tree):
            await trio.sleep(PAUSE_S)
    except (OSError, StoreError, Damaged) as wrong:
        log.warning("rows of an earlier version stay as they are for now: %s", wrong)
    await trio.sleep(QUIET_S)
    await _drop_dangling(core)
    path = core.database.path
    await trio.to_thread.run_sync(salvage.inspect, path, abandon_on_cancel=True)


async def _drop_dangling(core: Core) -> None:
    """Drop cached content of inodes that are no more: nobody can ask for it again."""
    inos = core.cache.inos()
    known = orphans.known(core.database, inos)
    for ino in inos:
        if ino not in known and ino not in core.opened:
            core.cache.drop(ino)
            await trio.sleep(PAUSE_S)
