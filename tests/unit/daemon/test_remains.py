"""What is told of an account whose disk takes no writing."""

from pathlib import Path

import pytest

from zonedrive.cipher import Clear
from zonedrive.cli import overview
from zonedrive.config import Settings
from zonedrive.daemon import remains
from zonedrive.db import Database
from zonedrive.outbox.journal import Journal
from zonedrive.paths import AccountPaths, private_dir
from zonedrive.tree.inode import ROOT, Kind
from zonedrive.tree.tree import Tree
from zonedrive.vfs.schema import SCHEMAS


@pytest.fixture
def account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AccountPaths:
    """One with a saved file, a new folder, a renamed file and a removed one."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    paths = AccountPaths("work")
    private_dir(paths.state)
    database = Database(paths.database, SCHEMAS)
    tree, journal = Tree(database, Clear()), Journal(database)
    with database.transaction():
        zone = tree.add(ROOT, "Zone", Kind.ZONE, zone="z", remote_id="top").ino
        saved = tree.add(zone, "saved", Kind.FILE, zone="z", size=5, generation=7)
        journal.content(saved.ino, 7, 5, base=None, held=False, due_ns=0)
        journal.place(tree.add(zone, "made", Kind.FOLDER, zone="z").ino, 0)
        old = {"zone": "z", "remote_parent": "top"}
        renamed = tree.add(zone, "new", Kind.FILE, remote_id="1", remote_name="old", **old)
        journal.place(renamed.ino, 0)
        removed = tree.add(zone, "gone", Kind.FILE, remote_id="2", remote_name="gone", **old)
        tree.unlink(removed, tombstone=True)
        journal.gone(removed.ino, 0)
    database.close()
    return paths


def test_changes_of_names_are_no_files(account: AccountPaths) -> None:
    """What has bytes that are only here is told from new folders, renames and removals."""
    found = remains.status(account, Settings(), people=True)
    said = "1 file (5 bytes) and 3 changes (new folders, renames, removals)"
    assert overview.verdict(found, part=False) == f"{said} are only on this machine"
    assert {one["path"]: one["change"] for one in found["uploads"]} == {
        "Zone/saved": "content",
        "Zone/made": "folder",
        "Zone/new": "moved",
        "Zone/gone": "removed",
    }


def test_programs_are_told_what_is_promised(account: AccountPaths) -> None:
    """Nothing beside the fields that `status --json` always has."""
    found = remains.status(account, Settings())
    assert set(found["outbox"]) == {"pending", "uploading", "failed", "conflicts", "bytes"}
    assert set(found["uploads"][0]) == {"path", "state", "size", "sent", "error"}
