"""Maintenance after the start: the cached content that it deletes."""

import pytest
import trio

from tests.unit.state.disk import zone_of
from zonedrive.model import Revision
from zonedrive.state.inode import Kind
from zonedrive.state.inode_table import BATCH
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


async def test_programs_go_on_while_much_cached_content_is_examined(
    state: LocalState, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cache may have the content of a million small files."""
    turns, examined = 0, list[list[int]]()

    async def work() -> None:
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1

    def known(inos: list[int]) -> set[int]:
        examined.append(inos)
        return set(inos)

    monkeypatch.setattr("zonedrive.vfs.maintenance.QUIET_S", 0)
    monkeypatch.setattr(state.cache, "inos", lambda: list(range(1, 3 * BATCH + 1)))
    monkeypatch.setattr(state.inodes.rows, "known", known)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(work)
        await upkeep(state)
        nursery.cancel_scope.cancel()
    assert len(examined) == 3
    assert turns >= 2
