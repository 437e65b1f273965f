"""Status of an account without a daemon."""

import os
from pathlib import Path

import pytest

from zonedrive.cipher import Box, Clear
from zonedrive.content.spool import Spool
from zonedrive.daemon import local_data
from zonedrive.daemon.lock import Lock
from zonedrive.errors import AlreadyRunning
from zonedrive.logon.account import Account
from zonedrive.logon.keys import data_box
from zonedrive.logon.secrets import open_store
from zonedrive.paths import AccountPaths, config_file, private_dir
from zonedrive.state import repair
from zonedrive.state.inode import ROOT, Kind
from zonedrive.state.inodes import Inodes
from zonedrive.state.intents import Conflict, IntentTable
from zonedrive.state.schema import SCHEMAS, whole


@pytest.fixture
def paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AccountPaths:
    """Return the paths of a logged-on account that was mounted before."""
    for name in ("CONFIG_HOME", "CACHE_HOME", "STATE_HOME"):
        monkeypatch.setenv(f"XDG_{name}", os.fspath(tmp_path))
    found = AccountPaths("default")
    Account(name="default", base_url="https://zones.example", username="alice").save(found)
    last = Lock(found.lock, found.account)
    last.take(tmp_path)
    last.release()
    return found


@pytest.mark.parametrize("how", ["missing", "empty", "without its log"])
def test_outgoing_bytes_that_no_row_names_are_only_here(paths: AccountPaths, how: str) -> None:
    """The next mount shows them in lost+found, so they are counted as files in it."""
    database = repair.open_sound(paths.database, SCHEMAS, whole(Clear()))
    spool = Spool(private_dir(paths.outgoing), None)
    tree = Inodes.open(database, Clear())
    with tree.transaction():
        zone = tree.add(ROOT, "Zone", Kind.ZONE, zone="z", remote_id="root")
        named = tree.add(zone.ino, "named", Kind.FILE, zone="z", generation=5)
    for ino in (named.ino, 900):
        spool.create(ino, 5).close()
    here = local_data.only_here(paths)
    assert (here.lost, here.kept) == (0, "")
    database.close()
    expected = 2
    match how:
        case "missing":
            paths.database.unlink()
        case "empty":
            paths.database.write_bytes(b"")
        case _:
            paths.database.with_name("tree.db.logged").touch()
            expected = 1
    here = local_data.only_here(paths)
    assert (here.lost, bool(here.kept)) == (expected, True)
    assert local_data.outbox(paths)["lost"] == expected
    found = local_data.status(paths)
    assert found["lost"] == expected
    assert "lost+found" in found["notice"]


def test_a_mount_can_start_while_status_waits_for_the_keyring(
    paths: AccountPaths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The account's lock is free while the user unlocks the keyring."""

    def waits(paths: AccountPaths) -> Box:
        daemon = Lock(paths.lock, paths.account)
        daemon.take(tmp_path)
        daemon.release()
        return Clear()

    monkeypatch.setattr(local_data, "box_of", waits)
    assert local_data.status(paths)["state"] == "offline"


def test_status_does_not_use_the_keyring_while_a_daemon_starts(
    paths: AccountPaths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The daemon asks for the key itself."""

    def asks(paths: AccountPaths) -> Box:
        raise AssertionError("the user would be asked twice")

    monkeypatch.setattr(local_data, "box_of", asks)
    daemon = Lock(paths.lock, paths.account)
    daemon.take(tmp_path)
    with pytest.raises(AlreadyRunning):
        local_data.status(paths)
    daemon.release()


@pytest.mark.parametrize("encrypt", [True, False])
def test_names_are_read_as_they_were_stored(paths: AccountPaths, encrypt: bool) -> None:
    """The mount may have had another value of `encrypt` than config.toml."""
    box, _ = data_box(open_store(paths), encrypt)
    database = repair.open_sound(paths.database, SCHEMAS, whole(box))
    tree, intents = Inodes.open(database, box), IntentTable(database, box)
    with tree.transaction():
        zone = tree.add(ROOT, "Zone", Kind.ZONE, zone="z", remote_id="root")
        copy = tree.add(zone.ino, "copy", Kind.FILE, zone="z", remote_id="f")
        intents.conflicts.add(Conflict(copy.ino, copy.ino, "bob", 1))
    database.close()
    config_file().parent.mkdir(parents=True, exist_ok=True)
    config_file().write_text(f"encrypt = {str(not encrypt).lower()}\n", "utf-8")
    assert [one["path"] for one in local_data.conflicts(paths)] == ["Zone/copy"]
    assert local_data.status(paths)["outbox"]["conflicts"] == 1
