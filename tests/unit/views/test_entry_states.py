"""Computation of the states of many entries."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import cast

import pytest
import trio

from tests.unit.state.disk import zone_of
from zonedrive.observers import Observers
from zonedrive.pins.pins import Pins
from zonedrive.state.inode import Inode, Kind
from zonedrive.state.local_state import LocalState
from zonedrive.sync.dispatcher import Dispatcher
from zonedrive.views.entry_states import STEP, EntryStates


async def test_programs_go_on_while_the_folders_of_many_changes_are_marked(
    state: LocalState, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thousands of changes may wait after a week offline."""
    zone, turns, marked = zone_of(state), 0, list[int]()
    with state.transaction():
        for number in range(9 * STEP):
            folder = state.inodes.add(zone.ino, f"{number}", Kind.FOLDER, zone="z")
            state.intents.place(folder.ino, 0)
    above = state.inodes.and_above

    async def work() -> None:
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1

    def and_above(inode: Inode | None) -> Iterator[Inode]:
        marked.append(turns)
        return above(inode)

    monkeypatch.setattr(state.inodes, "and_above", and_above)
    changes = SimpleNamespace(changes=Observers())
    states = EntryStates(state, cast(Dispatcher, changes), Pins(state))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(work)
        found = await states.unsynced()
        nursery.cancel_scope.cancel()
    assert found.counts["pending"] == 9 * STEP
    assert found.states[zone.ino] == "pending"
    assert marked[-1] >= marked[0] + 7
