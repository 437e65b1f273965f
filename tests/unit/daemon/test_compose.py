"""Stores of a daemon, opened and recovered."""

import os
from pathlib import Path

import pytest

from tests.crash import damage
from tests.unit.state.disk import SILENT
from zonedrive.cipher import Clear
from zonedrive.config import Settings
from zonedrive.daemon.compose import open_state
from zonedrive.errors import StoreError
from zonedrive.paths import AccountPaths
from zonedrive.state import repair
from zonedrive.state.inode import ROOT, Kind
from zonedrive.state.local_state import LocalState
from zonedrive.state.repair import REPAIR


@pytest.mark.parametrize("what", ["page", "row"])
def test_damage_that_a_recovery_meets_is_repaired_by_the_next_mount(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """A large database is not checked completely before the mount."""
    for name in ("CONFIG_HOME", "CACHE_HOME", "STATE_HOME"):
        monkeypatch.setenv(f"XDG_{name}", os.fspath(tmp_path))
    monkeypatch.setattr(repair, "SMALL", 0)
    paths = AccountPaths("default")

    def mounted() -> LocalState:
        return open_state(paths, Settings(), SILENT, (Clear(), None), "alice")

    state = mounted()
    with state.transaction():
        zone = state.inodes.add(ROOT, "Zone", Kind.ZONE, zone="z", remote_id="root")
        for number in range(200):
            folder = state.inodes.add(
                zone.ino, f"{number}", Kind.FOLDER, zone="z", remote_id=f"{number}"
            )
            file = state.inodes.add(folder.ino, "a", Kind.FILE, zone="z", remote_id=f"{number}-a")
        if what == "row":  # above a change that waits
            state.inodes.update(file, generation=7)  # whose bytes are missing
            state.send_content(file, None, due_ns=0)
            state.database.execute("UPDATE inodes SET kind = 77 WHERE ino = ?", (folder.ino,))
    state.cache._index.close()
    state.database.close()
    if what == "page":
        damage.flatten(paths.database)
        pages = damage.pages_of(paths.database, "inodes")
        damage.overwrite(paths.database, *pages[len(pages) // 2])
    with pytest.raises(StoreError, match="is damaged") as refused:
        mounted()
    assert refused.value.remedy == REPAIR
    state = mounted()
    assert len(state.inodes.children(zone.ino)) > 100
    assert not repair.has_fault(paths.database)
    state.cache._index.close()
    state.database.close()
