"""Maintenance of the database, once, some time after the start.

The work must not delay anything: rows are written a few at a time, files are checked in a thread.
"""

import logging

import trio

from zonedrive.errors import Damaged, StoreError
from zonedrive.state import repair, row_upgrade
from zonedrive.state.local_state import LocalState

log = logging.getLogger(__name__)

QUIET_S = 60.0  # seconds after the start that the disk is left to readers
PAUSE_S = 0.05  # seconds between two steps, so that programs come first


async def upkeep(state: LocalState) -> None:
    """Upgrade rows of former schemas and check for damage."""
    try:
        for _ in row_upgrade.rows(state.inodes):
            await trio.sleep(PAUSE_S)
    except (OSError, StoreError, Damaged) as wrong:
        log.warning("rows of an earlier version could not be upgraded: %s", wrong)
    await trio.sleep(QUIET_S)
    await _drop_dangling(state)
    path = state.database.path
    await trio.to_thread.run_sync(repair.inspect, path, abandon_on_cancel=True)


async def _drop_dangling(state: LocalState) -> None:
    """Delete cached content of inodes that do not exist any more."""
    inos = state.cache.inos()
    known = state.inodes.rows.known(inos)
    for ino in inos:
        if ino not in known and ino not in state.opened:
            state.cache.drop(ino)
            await trio.sleep(PAUSE_S)
