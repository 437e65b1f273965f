"""Maintenance of the cache and the database, which runs once, QUIET_S seconds after the start.

The work must not delay programs: content is deleted one inode at a time, and the database is
checked in a thread.
"""

import trio

from zonedrive.state import repair
from zonedrive.state.inode_table import batches
from zonedrive.state.local_state import LocalState
from zonedrive.state.open_file import VIRTUAL

QUIET_S = 60.0  # seconds after the start in which only programs use the disk
PAUSE_S = 0.05  # seconds after each deletion, so that programs are not delayed


async def upkeep(state: LocalState) -> None:
    """Wait QUIET_S seconds, drop cached content that has no inode, and check the database."""
    await trio.sleep(QUIET_S)
    await _drop_dangling(state)
    path = state.database.path
    await trio.to_thread.run_sync(repair.inspect, path, abandon_on_cancel=True)


async def _drop_dangling(state: LocalState) -> None:
    # Virtual entries, such as former versions, have no inode in the tree.
    inos = [ino for ino in state.cache.inos() if ino < VIRTUAL]
    for batch in batches(inos):
        known = state.inodes.rows.known(batch)
        for ino in batch:
            if ino not in known and ino not in state.opened:
                state.cache.drop(ino)
                await trio.sleep(PAUSE_S)
        await trio.lowlevel.checkpoint()
