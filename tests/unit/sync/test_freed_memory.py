"""Memory of listings is returned to the system."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio

from tests.unit.sync.way import Way, running
from zonedrive.state.inode import ROOT, Kind
from zonedrive.state.local_state import LocalState
from zonedrive.sync.directory_cache import DirectoryCache

ENTRIES = 3  # in each folder


class Shelves:
    """Service whose folders all have the same number of entries, none of which can be shown."""

    def __init__(self) -> None:
        self.link, self.places, self.underway = Way(), 8, 0

    async def listed(self, zone: str, folder: str) -> SimpleNamespace:
        """Simulate `Service.listed`."""
        return SimpleNamespace(
            ids=[f"{folder} {number}" for number in range(ENTRIES)],
            complete=True,
            strangers=(),
            said=lambda number: b"",
            entry=lambda number: None,
            unsure=lambda number: False,
        )


async def test_many_small_listings_count_as_one_large(
    state: LocalState, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A walk through many folders frees as much as the listing of a large one."""
    given = 0

    async def give_back() -> None:
        nonlocal given
        given += 1

    monkeypatch.setattr("zonedrive.sync.directory_cache._give_back", give_back)
    monkeypatch.setattr("zonedrive.sync.directory_cache.LARGE", 2 * ENTRIES)
    folders = DirectoryCache(state, cast(Any, Shelves()))
    with state.transaction():
        zones = [
            state.inodes.add(ROOT, name, Kind.ZONE, zone=name, remote_id=name) for name in "abcd"
        ]
    seen = []
    async with running(folders):
        for zone in zones:
            await folders.refresh(zone, 0)
            await trio.testing.wait_all_tasks_blocked()
            seen.append(given)
    assert seen == [0, 1, 1, 2]
