"""Report about an account without a daemon, which changes nothing."""

import errno
import os
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import msgspec
import pytest

from tests.unit.state.disk import Disk, zone_of
from zonedrive.causes import Cause
from zonedrive.cipher import Clear, Sealed, new_key
from zonedrive.cli.status import verdict
from zonedrive.config import Settings
from zonedrive.content.cache import Cache
from zonedrive.content.spool import Spool
from zonedrive.db import DOCTOR, Database
from zonedrive.errors import Damaged, StoreError
from zonedrive.model import Revision
from zonedrive.state import repair
from zonedrive.state.attributes import Owner
from zonedrive.state.inode import ROOT, Kind
from zonedrive.state.inodes import Inodes
from zonedrive.state.intents import Conflict, IntentTable
from zonedrive.state.local_state import LocalState
from zonedrive.state.pending_requests import PendingRequests
from zonedrive.state.reader import StateReader
from zonedrive.state.repair import REPAIR
from zonedrive.state.schema import SCHEMAS
from zonedrive.state.status import Status
from zonedrive.views.stack import FileSystem


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a database with a saved file, a new folder, a renamed file and a removed one."""
    path = tmp_path / "tree.db"
    database = Database.open(path, SCHEMAS)
    tree, journal = Inodes.open(database, Clear()), IntentTable(database)
    with database.transaction():
        zone = tree.add(ROOT, "Zone", Kind.ZONE, zone="z", remote_id="top").ino
        saved = tree.add(zone, "saved", Kind.FILE, zone="z", size=5, generation=7)
        journal.content(saved.ino, 7, 5, base=None, held=True, due_ns=0)
        journal.place(tree.add(zone, "made", Kind.FOLDER, zone="z").ino, 0)
        old = {"zone": "z", "remote_parent": "top"}
        renamed = tree.add(zone, "new", Kind.FILE, remote_id="1", remote_name="old", **old)
        journal.place(renamed.ino, 0)
        removed = tree.add(zone, "gone", Kind.FILE, remote_id="2", remote_name="gone", **old)
        tree.unlink(removed, tombstone=True)
        journal.gone(removed.ino, 0)
    database.close()
    return path


def status(path: Path, most: int | None = None) -> dict[str, Any]:
    """Return the report without the fields that the database does not have."""
    with StateReader.open(path) as reader:
        stores = reader.stores(Clear())
        return Status(stores).answer(
            stores.intents.pending(), most, state="offline", cache=(0, 0), notices=(), lost=0
        )


def everything(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Return every file in a folder, with its time."""
    return {
        str(each): (each.stat().st_mtime_ns, each.read_bytes() if each.is_file() else b"")
        for each in sorted(folder.rglob("*"))
    }


def left_by_a_kill(path: Path) -> None:
    """Have a process add a file to the database and end without closing it."""
    script = (
        "import os, sys, signal\n"
        "from pathlib import Path\n"
        "from zonedrive.cipher import Clear\n"
        "from zonedrive.db import Database\n"
        "from zonedrive.state.inode import Kind\n"
        "from zonedrive.state.inodes import Inodes\n"
        "from zonedrive.state.schema import SCHEMAS\n"
        "tree = Inodes.open(Database.open(Path(sys.argv[1]), SCHEMAS), Clear())\n"
        "with tree.transaction():\n"
        "    tree.add(2, 'in the log', Kind.FOLDER, zone='z', remote_id='x')\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    subprocess.run([sys.executable, "-c", script, path], check=False)
    assert path.with_name("tree.db-wal").stat().st_size > 0


def test_changes_of_names_are_no_files(path: Path) -> None:
    """Files with local bytes are distinguished from new folders, renames and removals."""
    found = status(path, most=10)
    said = "1 file (5 bytes) and 3 changes (new folders, renames, removals)"
    assert verdict(found, part=False) == f"{said} are only on this machine"
    assert {one["path"]: one["change"] for one in found["uploads"]} == {
        "Zone/saved": "content",
        "Zone/made": "folder",
        "Zone/new": "moved",
        "Zone/gone": "removed",
    }
    assert {one["error"] for one in found["uploads"]} == {None}, "no program has a file open now"


def test_the_report_has_the_fields_of_the_contract(path: Path) -> None:
    """The report has only the fields that `status --json` always has."""
    found = status(path)
    assert set(found) == {"state", "paused", "held", "outbox", "uploads", "cache", "tree"}
    assert (found["paused"], found["held"]) == (False, 0)
    assert set(found["outbox"]) == {"pending", "uploading", "failed", "conflicts", "bytes"}
    assert set(found["uploads"][0]) == {"path", "state", "size", "sent", "error"}


def test_a_log_that_was_left_is_read_and_stays(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log is read with or without its index, even if only the last folder accepts a copy."""
    left_by_a_kill(path)
    before = everything(path.parent)
    assert status(path)["tree"]["folders"] == 4
    assert everything(path.parent) == before
    path.with_name("tree.db-shm").unlink()
    before = everything(path.parent)
    for runtime in ("/dev/shm", "/dev/null"):
        monkeypatch.setenv("XDG_RUNTIME_DIR", runtime)
        kept = set(os.listdir("/dev/shm"))
        assert status(path)["tree"]["folders"] == 4
        assert not {each for each in set(os.listdir("/dev/shm")) - kept if "zonedrive" in each}
        assert everything(path.parent) == before
    with closing(Database.open(path, SCHEMAS)) as database:
        assert Inodes.open(database, Clear()).rows.counts()[1] == 4


def test_a_reader_writes_nothing(path: Path) -> None:
    """A write raises an error, both on the file and on a copy in memory."""

    def add_zone(database: Database) -> None:
        tree = Inodes.open(database, Clear())
        with tree.transaction():
            tree.add(ROOT, "Another", Kind.ZONE, zone="a", remote_id="a")

    for each in (path, path.with_name("missing.db")):
        with (
            closing(Database.read(each, SCHEMAS)) as database,
            pytest.raises(OSError, match="Read-only"),
        ):
            add_zone(database)


def test_a_daemon_at_work_is_read_as_well(path: Path) -> None:
    """The reader sees the committed changes, and the daemon continues."""
    database = Database.open(path, SCHEMAS)
    tree = Inodes.open(database, Clear())
    for number in range(3):
        with tree.transaction():
            tree.add(2, f"{number}", Kind.FOLDER, zone="z", remote_id=f"r{number}")
        assert status(path)["tree"]["folders"] == 4 + number
        database.checkpoint()
        assert status(path)["tree"]["folders"] == 4 + number
    database.close()


@pytest.mark.parametrize("how", ["pages", "cut", "no database", "half repaired", "row", "kind"])
def test_a_damaged_database_is_one_line(path: Path, how: str) -> None:
    """One line has the remedy, and the next mount repairs the database."""
    data = path.read_bytes()
    match how:
        case "pages":
            path.write_bytes(data[:4096] + b"\xa5" * (len(data) - 4096))
        case "cut":
            path.write_bytes(data[: len(data) // 2])
        case "no database":
            path.write_bytes(b"no database" * 500)
        case "row":  # of an entry that the service has
            with closing(sqlite3.connect(path)) as database, database:
                database.execute("UPDATE inodes SET sealed = x'00' WHERE remote_id = '1'")
        case "kind":
            with closing(sqlite3.connect(path)) as database, database:
                database.execute("UPDATE inodes SET kind = x'00' WHERE remote_id = '1'")
        case _:
            path.rename(path.with_name("tree.db.damaged-1"))
            path.with_name("tree.db.salvage").write_bytes(b"tree.db.damaged-1")
            assert repair.pending(path)
    before = everything(path.parent)
    with pytest.raises(StoreError) as refused:
        status(path)
    assert str(path) in refused.value.message
    assert refused.value.remedy == REPAIR
    assert everything(path.parent) == before


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (OSError(errno.EIO, "Input/output error"), DOCTOR),
        (sqlite3.OperationalError("database is locked"), DOCTOR),
        (
            StoreError("written by a newer zonedrive", remedy="upgrade zonedrive"),
            "upgrade zonedrive",
        ),
        (Damaged("a row fails its check"), REPAIR),
        (msgspec.DecodeError("a row has another form"), REPAIR),
    ],
)
def test_only_damage_is_repaired_by_a_mount(path: Path, error: Exception, remedy: str) -> None:
    """Every error has the remedy that helps; the database is closed."""
    with pytest.raises(StoreError) as refused, StateReader.open(path):
        raise error
    assert refused.value.remedy == remedy


def test_a_database_of_a_newer_version_is_no_damage(path: Path) -> None:
    """The remedy is an upgrade."""
    with closing(sqlite3.connect(path)) as database:
        database.execute(f"PRAGMA user_version = {len(SCHEMAS) + 1}")
    with pytest.raises(StoreError) as refused:
        status(path)
    assert refused.value.remedy == "upgrade zonedrive"


def test_pending_changes_are_counted_without_a_key(path: Path) -> None:
    """Doctor, logoff and metrics count changes, contents, failures and conflicts."""
    with closing(Database.open(path, SCHEMAS)) as database:
        tree, journal = Inodes.open(database, Clear()), IntentTable(database)
        names = tree.children(2)
        with database.transaction():
            parked = tree.add(2, "parked~", Kind.FILE, local=True, remote_id="3", generation=9)
            journal.park(parked.ino, Revision("1"))
            for ino in (names["saved"], names["new"], 900):
                journal.conflicts.add(Conflict(ino, 2, "bob", 1))
            unlinked = tree.add(2, "unlinked", Kind.FILE, remote_id="4")
            tree.unlink(unlinked, tombstone=True)
            journal.conflicts.add(Conflict(unlinked.ino, 2, "bob", 1))
        made = journal.get(names["made"])
        assert made is not None
        journal.postpone(made, 0, "denied", Cause.REFUSED)
    with StateReader.open(path) as reader:
        assert reader.waiting() == (4, 5, 3)
        assert reader.contents() == [(names["saved"], 7)]
        assert {name: number for name, number in reader.failures().items() if number} == {
            "refused": 1
        }
        assert set(reader.failures()) == {"refused", "local", "unclear", "unexpected"}
        assert reader.conflicts() == 2
        assert reader.is_sealed() is False
        reader.require_sound()


@pytest.mark.parametrize("sealed", [True, False])
def test_the_key_is_checked_with_the_first_rows(tmp_path: Path, sealed: bool) -> None:
    """A database without rows has no key; a damaged row does not hide the others."""
    path = tmp_path / "tree.db"
    box, other = (Sealed(new_key()) if sealed else Clear()), Sealed(new_key())
    with StateReader.open(path) as reader:
        assert reader.is_sealed() is None
        assert reader.is_opened_by(other)
    with closing(Database.open(path, SCHEMAS)) as database:
        tree = Inodes.open(database, box)
        with tree.transaction():
            tree.add(ROOT, "Zone", Kind.ZONE, zone="z", remote_id="z")
        database.execute("UPDATE inodes SET sealed = x'00' WHERE ino = ?", (ROOT,))
    with StateReader.open(path) as reader:
        assert reader.is_sealed() is sealed
        assert reader.is_opened_by(box)
        assert not reader.is_opened_by(other)


def test_a_large_database_is_read_at_once(tmp_path: Path) -> None:
    """With thirty thousand entries, of which the log has the last ones, no copy is made."""
    path = tmp_path / "tree.db"
    database = Database.open(path, SCHEMAS)
    tree = Inodes.open(database, Clear())
    with tree.transaction():
        zone = tree.add(ROOT, "Zone", Kind.ZONE, zone="z", remote_id="root")
        for start in range(0, 30_000, 10_000):
            batch = range(start, start + 10_000)
            fields = {"kind": Kind.FILE, "zone": "z"}
            tree.add_all(zone.ino, {f"{n:06}": {**fields, "remote_id": f"{n}"} for n in batch})
    database.close()
    left_by_a_kill(path)
    before, cpu = everything(tmp_path), time.process_time()
    assert status(path)["tree"]["entries"] == 30_003
    assert time.process_time() - cpu < 20.0
    assert everything(tmp_path) == before


@pytest.mark.parametrize("anew", [True, False], ids=["nothing yet", "after a kill"])
def test_constructors_have_no_effect_on_the_disk(tmp_path: Path, anew: bool) -> None:
    """Only a daemon calls the functions that open and repair."""
    if not anew:
        disk = Disk(tmp_path)
        state = disk.start()
        with state.transaction():
            inode = state.inodes.add(zone_of(state).ino, "a", Kind.FILE, zone="z")
        state.spool.create(inode.ino, 1).close()  # bytes that no row names
        (tmp_path / "cache" / f"{inode.ino}-0123456789ab").write_bytes(b"of no row either")
        disk.close()
    before = everything(tmp_path)
    database = Database.read(tmp_path / "tree.db", SCHEMAS)
    state = LocalState(
        database=database,
        inodes=Inodes(database, Clear()),
        intents=IntentTable(database),
        requests=PendingRequests(database, Clear()),
        spool=Spool(tmp_path / "outgoing", None, database, Clear()),
        cache=Cache(tmp_path / "cache", None, 1 << 20),
        source=lambda _: pytest.fail("nothing is read"),
        settings=Settings(),
        user="alice",
        owner=Owner(0, 0),
    )
    FileSystem(state, MagicMock(), "Acme")
    database.close()
    assert everything(tmp_path) == before


def test_damage_that_shows_at_a_later_row_is_damage(tmp_path: Path) -> None:
    """A query that fails at a later damaged page still lets a daemon repair."""
    path = tmp_path / "tree.db"
    database = Database.open(path, SCHEMAS)
    tree = Inodes.open(database, Clear())
    with tree.transaction():
        for number in range(100):
            tree.add(ROOT, f"{number:0220}", Kind.ZONE, zone=str(number), remote_id=str(number))
    database.close()
    data, page = bytearray(path.read_bytes()), 4096
    leaves = [
        start
        for start in range(page, len(data), page)
        if data[start] == 0x0D and b"0" * 200 in data[start : start + page]
    ]
    data[leaves[1] : leaves[1] + page] = b"\xff" * page
    path.write_bytes(data)
    with pytest.raises(StoreError, match="is damaged"), StateReader.open(path) as state:
        state.is_sealed()
    with pytest.raises(StoreError, match="is damaged"), StateReader.open(path) as state:
        state.require_sound()


def test_a_damaged_generation_names_no_bytes(path: Path) -> None:
    with closing(sqlite3.connect(path)) as database:
        database.execute("UPDATE inodes SET generation = 'x' WHERE ino = (SELECT ino FROM intents)")
        database.commit()
    with StateReader.open(path) as reader:
        assert {generation for _, generation in reader.named_bytes()} == {7}
