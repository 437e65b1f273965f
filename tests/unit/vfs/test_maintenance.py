"""Maintenance after the start: the cached content that it deletes."""

import trio

from tests.unit.state.disk import zone_of
from zonedrive.model import Revision
from zonedrive.state.inode import Kind
from zonedrive.state.local_state import LocalState
from zonedrive.state.open_file import VIRTUAL
from zonedrive.vfs.maintenance import upkeep

GONE = 900_000
"""Number that no inode has."""


async def test_only_content_without_an_inode_is_deleted(
    state: LocalState, autojump_clock: trio.abc.Clock
) -> None:
    """Former versions have no inode in the tree, and their content stays in the cache."""
    zone, version = zone_of(state), Revision("1")
    with state.transaction():
        file = state.inodes.add(zone.ino, "a", Kind.FILE, zone="z", remote_id="1", size=1)
    inos = [file.ino, GONE, VIRTUAL | 5]
    for ino in inos:
        assert state.cache.put(ino, version, b"x")
    await upkeep(state)
    kept = [state.cache.is_complete(ino, version) for ino in inos]
    assert kept == [True, False, True]
