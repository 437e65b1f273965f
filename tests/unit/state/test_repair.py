"""Large databases: used at once, checked in the background, repaired at the next start."""

import errno
import os
import re
import shutil
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import cast

import msgspec
import pytest

from tests.crash import damage
from zonedrive.cipher import Box, Clear, Sealed, new_key
from zonedrive.db import Connection, Database
from zonedrive.errors import Damaged, StoreError
from zonedrive.state import intents, repair
from zonedrive.state.inode import ROOT, Kind
from zonedrive.state.inodes import Inodes
from zonedrive.state.schema import ONLY_HERE, SCHEMAS, whole


@pytest.fixture(autouse=True)
def _large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Treat every database as a large one."""
    monkeypatch.setattr(repair, "SMALL", 0)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tree.db"


@pytest.fixture
def box() -> Box:
    return Sealed(new_key())


def opened(path: Path, box: Box) -> Database:
    return repair.open_sound(path, SCHEMAS, whole(box), only_here=ONLY_HERE)


def filled(path: Path, box: Box) -> dict[str, int]:
    """Create a thousand copies and a local file; return the inode numbers by name."""
    database = opened(path, box)
    tree = Inodes.open(database, box)
    with tree.transaction():
        zone = tree.add(ROOT, "Zone", Kind.ZONE, zone="z", remote_id="root")
        copies = {
            f"{number:04}": {"kind": Kind.FILE, "zone": "z", "remote_id": f"{number}"}
            for number in range(1000)
        }
        tree.add_all(zone.ino, copies)
        tree.add(zone.ino, "ours", Kind.FILE, zone="z", generation=5)
    found = dict(tree.children(zone.ino))
    database.close()
    return found


def spoil(path: Path, ino: int, change: str = "sealed = x'00'") -> None:
    """Damage a row so that its check fails."""
    database = Database.open(path, SCHEMAS)
    database.execute(f"UPDATE inodes SET {change} WHERE ino = ?", (ino,))
    database.close()


def test_a_damaged_copy_does_not_keep_a_mount_waiting(path: Path, box: Box) -> None:
    """Rows that can be listed again are not checked before the mount, however many there are."""
    inos = filled(path, box)
    spoil(path, inos["0500"])
    database = opened(path, box)
    assert not repair.pending(path)
    names = Inodes.open(database, box).children(2)
    assert set(names) == set(inos) - {"0500"}
    database.close()


def test_rows_with_local_bytes_are_checked_before_the_mount(path: Path, box: Box) -> None:
    """A damaged row with local bytes is detected at once, and the bytes are found again."""
    inos = filled(path, box)
    spoil(path, inos["ours"])
    database = opened(path, box)
    assert repair.pending(path)
    assert set(Inodes.open(database, box).children(2)) == set(inos) - {"ours"}
    database.close()


@pytest.mark.parametrize("size", ["large", "small"])
@pytest.mark.parametrize("last", [2, 0, -1, 1 << 62, 3.5, "x", None])
def test_a_new_file_never_gets_the_number_of_an_existing_one(
    path: Path, box: Box, monkeypatch: pytest.MonkeyPatch, last: object, size: str
) -> None:
    """The number of the last inode is damaged; a new row would replace a file with local bytes."""
    if size == "small":
        monkeypatch.setattr(repair, "SMALL", 1 << 30)
    inos = filled(path, box)
    damage.flatten(path)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE sqlite_sequence SET seq = ?", (last,))
    database = opened(path, box)
    tree = Inodes.open(database, box)
    with tree.transaction():
        new = tree.add(2, "new", Kind.FILE, zone="z")
    assert max(inos.values()) < new.ino < 1 << 40
    assert dict(tree.children(2)) == {**inos, "new": new.ino}
    database.close()


@pytest.mark.parametrize(
    "change",
    [
        f"INSERT INTO pins (ino, zone) VALUES ({1 << 41}, '')",
        f"UPDATE inodes SET ino = {1 << 41} WHERE ino = 3",
    ],
)
def test_a_damaged_number_of_a_row_is_not_used_as_that_of_the_last_inode(
    path: Path, change: str
) -> None:
    """Else each start would repair the database again."""
    inos = filled(path, Clear())
    spoil(path, inos["ours"])
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(change)
    for _ in range(3):
        database = opened(path, Clear())
        tree = Inodes.open(database, Clear())
        with tree.transaction():
            new = tree.add(2, f"new{len(tree.children(2))}", Kind.FILE, zone="z")
        assert max(inos.values()) < new.ino < 1 << 40
        database.close()
    assert len([*path.parent.glob("*.damaged-*")]) == 1


@pytest.mark.parametrize("change", ["kind = 77", "zone = x'7a'", "sealed = 7"])
def test_a_row_with_a_value_of_another_type_is_reported_as_damaged(path: Path, change: str) -> None:
    """The error causes a repair, also without encryption."""
    inos = filled(path, Clear())
    spoil(path, inos["ours"], change)
    database = Database.open(path, SCHEMAS)
    with pytest.raises(Damaged, match="row of inode"):
        Inodes.open(database, Clear()).find(inos["ours"])
    database.close()


@pytest.mark.parametrize("change", ["kind = 77", "zone = x'7a'"])
def test_a_damaged_copy_that_cannot_be_read_is_repaired_at_the_next_start(
    path: Path, box: Box, change: str
) -> None:
    """No listing can restore it, and the check of the structure does not find it."""
    inos = filled(path, box)
    spoil(path, inos["0500"], change)
    with closing(Database.read(path, SCHEMAS)) as database, pytest.raises(Damaged):
        Inodes(database, box).find(inos["0500"])
    assert not repair.has_fault(path)
    database = opened(path, box)
    with pytest.raises(Damaged):
        Inodes.open(database, box).find(inos["0500"])
    assert repair.has_fault(path)
    database.close()
    database = opened(path, box)
    assert repair.pending(path)
    assert set(Inodes.open(database, box).children(2)) == set(inos) - {"0500"}
    database.close()


def test_damage_found_in_the_background_is_repaired_at_the_next_start(path: Path, box: Box) -> None:
    """A background check finds damage of the structure; the daemon reports it and continues."""
    inos = filled(path, box)
    assert repair.inspect(path) == ""
    damage.flatten(path)
    pages = damage.pages_of(path, "inodes")
    damage.overwrite(path, *pages[len(pages) // 2])
    assert repair.inspect(path)
    assert repair.has_fault(path)
    database = opened(path, box)
    assert repair.pending(path)
    assert not repair.has_fault(path)
    names = Inodes.open(database, box).children(2)
    assert "ours" in names
    assert 900 < len(names) < 1001
    assert all(inos[name] == ino for name, ino in names.items())
    database.close()


def exchange_indexes(path: Path) -> None:
    """Exchange the root pages of two indexes."""
    data = bytearray(path.read_bytes())
    (one, size), (other, _) = (
        damage.pages_of(path, name)[0] for name in ("inodes_with_bytes", "inodes_without_origin")
    )
    data[one : one + size], data[other : other + size] = (
        data[other : other + size], data[one : one + size]
    )  # fmt: skip
    path.write_bytes(data)


def garble_a_column(path: Path) -> None:
    """Damage the name of a column in the schema, so that it is not UTF-8."""
    data = path.read_bytes()
    assert b" at_ns INTEGER" in data
    path.write_bytes(data.replace(b" at_ns INTEGER", b" \xa6t_ns INTEGER"))


def rename_a_column(path: Path) -> None:
    """Damage a name so that it is another valid one."""
    path.write_bytes(path.read_bytes().replace(b" at_ns INTEGER", b" at_nt INTEGER"))


def drop_a_column(path: Path) -> None:
    """Damage the line break in front of a column, so that the column belongs to a comment."""
    data = path.read_bytes()
    line = re.search(rb"\n +mark INTEGER", data)
    assert line is not None
    path.write_bytes(data.replace(line[0], line[0].replace(b"\n", b"*")))


def garble_an_index(path: Path) -> None:
    """Damage the definition of an index, so that SQLite rejects the whole schema."""
    data = path.read_bytes()
    assert b"ON inodes (generation)" in data
    path.write_bytes(data.replace(b"ON inodes (generation)", b"ON inodes (generat\xe9on)"))


def garble_a_trigger(path: Path) -> None:
    """Damage the definition of a trigger, which SQLite reads at the first change of its table."""
    data = path.read_bytes()
    assert b"SELECT OLD.zone, OLD.remote_id" in data
    path.write_bytes(data.replace(b"SELECT OLD.zone, OLD", b"SELECT \xa6LD.zone, OLD"))


def rename_a_trigger(path: Path) -> None:
    """Damage the name of a trigger so that it is another valid one."""
    path.write_bytes(path.read_bytes().replace(b"conflicts_return", b"conflicts_reture"))


@pytest.mark.parametrize(
    "spoiled",
    [
        exchange_indexes, garble_a_column, rename_a_column, drop_a_column, garble_an_index,
        garble_a_trigger, rename_a_trigger,
    ],
)  # fmt: skip
def test_damage_of_an_index_or_of_the_schema_is_repaired(
    tmp_path: Path, box: Box, monkeypatch: pytest.MonkeyPatch, spoiled: Callable[[Path], None]
) -> None:
    """Otherwise queries would fail, or return wrong rows, after each start."""
    monkeypatch.setattr(repair, "SMALL", 1 << 30)
    path = tmp_path / "tree.db"
    filled(path, box)
    damage.flatten(path)
    spoiled(path)
    with closing(opened(path, box)) as database:
        assert repair.pending(path)
        assert Inodes.open(database, box).child(2, "0500") is not None
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert repair.damaged_name(path) in os.listdir(tmp_path)


@pytest.mark.parametrize(
    ("table", "row"),
    [
        ("pins", {"ino": None, "zone": "z", "remote_id": "1"}),
        ("conflicts", {"ino": "7", "original": 1, "by": "", "at_ns": 1}),
        ("doubts", {"ino": 7, "bytes_ino": "x", "generation": 1, "size": 1, "sealed": b""}),
        ("inodes", {"ino": 7, "sealed": b""}),
    ],
)
def test_a_row_with_values_of_other_types_is_damaged(table: str, row: dict[str, object]) -> None:
    assert not whole(Clear())(table, row)


def test_two_damaged_files_of_one_second_have_two_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name of the damaged file ends with digits of the clock below a second."""
    path, now = tmp_path / "tree.db", 1_780_000_000_000_001_007
    filled(path, Clear())
    monkeypatch.setattr(repair, "SMALL", 1 << 30)
    monkeypatch.setattr(repair, "structure", lambda _: "a page is damaged")
    monkeypatch.setattr(time, "time_ns", lambda: now)
    opened(path, Clear()).close()
    assert re.fullmatch(r"tree\.db\.damaged-\d{8}-\d{6}-007", repair.damaged_name(path))


def test_the_wrong_key_is_no_damage(path: Path) -> None:
    """An emptied keyring does not cause a repair of the database."""
    filled(path, Sealed(new_key()))
    with pytest.raises(StoreError, match="key of this account"):
        opened(path, Sealed(new_key()))


@pytest.mark.parametrize("change", ["sealed = x'00'", "mark = mark - 1", "parent = 3"])
@pytest.mark.parametrize("name", ["0500", "ours"])
def test_a_small_database_is_checked_completely(
    path: Path, box: Box, monkeypatch: pytest.MonkeyPatch, name: str, change: str
) -> None:
    """The mount does not wait for that; nothing is left for the background check."""
    monkeypatch.undo()
    inos = filled(path, box)
    spoil(path, inos[name], change)
    assert repair.inspect(path) == ""
    database = opened(path, box)
    assert repair.pending(path)
    assert set(Inodes.open(database, box).children(2)) == set(inos) - {name}
    assert path.with_name(repair.damaged_name(path)).exists()
    database.close()


@pytest.mark.parametrize("size", ["large", "small"])
def test_the_structure_of_a_small_database_is_checked_before_the_mount(
    path: Path, monkeypatch: pytest.MonkeyPatch, size: str
) -> None:
    """The check reads the whole file, so that of a large one runs in the background."""
    filled(path, Clear())
    monkeypatch.setattr(repair, "SMALL", 1 << 30 if size == "small" else 0)
    monkeypatch.setattr(repair, "structure", lambda _: "a page is damaged")
    opened(path, Clear()).close()
    assert repair.pending(path) == (size == "small")


@pytest.mark.parametrize("box", [Clear(), Sealed(new_key())])
@pytest.mark.parametrize("value", [None, 1 << 62, 1.5, "text", b""])
def test_a_sealed_column_of_any_type_is_damaged(box: Box, value: object) -> None:
    """A number is not taken for a number of zero bytes, which no memory could hold."""
    assert not whole(box)("inodes", {"ino": 2, "kind": Kind.FILE, "sealed": value})
    request = {"ino": 1, "bytes_ino": 1, "generation": 0, "size": 0, "sealed": value}
    assert not whole(box)("doubts", request)


@pytest.mark.parametrize("box", [Clear(), Sealed(new_key())])
@pytest.mark.parametrize("value", [None, 0, 1 << 62, 1.5, "text", "", b""])
def test_a_manifest_that_is_not_a_blob_is_damaged(box: Box, value: object) -> None:
    """An empty blob is the manifest of a file whose state is unknown."""
    row = {"ino": 1, "generation": 1, "manifest": value}
    assert whole(box)("manifests", row) == (value == b"")


@pytest.mark.parametrize(
    "changes", [{"sealed": None}, {"sealed": b""}, {"sealed": b"\xc1"}, {"bytes_ino": None}]
)
def test_a_request_that_cannot_be_read_is_damaged(changes: dict[str, object]) -> None:
    """Its row is not used after a repair."""
    place = msgspec.msgpack.encode(["z", "folder", "name", None])
    row: dict[str, object] = {
        "ino": 1, "bytes_ino": 1, "generation": 0, "size": 0, "sealed": place
    }  # fmt: skip
    assert whole(Clear())("doubts", row)
    assert not whole(Clear())("doubts", row | changes)


@pytest.mark.parametrize("changes", [{"seq": "x"}, {"failed": 99}, {"base": b"sealed"}])
def test_a_change_that_cannot_be_read_is_damaged(box: Box, changes: dict[str, object]) -> None:
    """Its row is not used after a repair."""
    row: dict[str, object] = {
        "ino": 1, "seq": 1, "generation": 0, "size": 0, "base": None, "place": 1, "gone": 0,
        "held": 0, "due_ns": 0, "attempts": 0, "failed": 0, "error": "", "parked": 0,
    }  # fmt: skip
    assert whole(box)("intents", row)
    assert not whole(box)("intents", row | changes)


def next_ino(database: Database, box: Box) -> int:
    """Return the number of a new inode."""
    tree = Inodes.open(database, box)
    with tree.transaction():
        return tree.add(ROOT, f"New {len(tree.children(ROOT))}", Kind.ZONE, zone="z").ino


@pytest.mark.parametrize("used", [0, 5000])
@pytest.mark.parametrize("removed", [False, True])
def test_numbers_of_lost_rows_are_not_used_again(
    path: Path, box: Box, caplog: pytest.LogCaptureFixture, used: int, removed: bool
) -> None:
    """Outgoing bytes carry the numbers of their inodes, also of inodes without a row."""
    inos = filled(path, box)
    highest = max(inos.values())
    if removed:
        database = Database.open(path, SCHEMAS)
        database.execute("DELETE FROM inodes WHERE ino = ?", (highest,))
        database.close()
    spoil(path, next(ino for ino in inos.values() if ino != highest))
    spoil(path, inos["ours"] if inos["ours"] != highest else inos["0001"])
    database = repair.open_sound(path, SCHEMAS, whole(box), used)
    (rows,) = database.execute("SELECT count(*) FROM inodes").fetchone()
    assert rows == len(inos) + 2 - 2 - removed
    assert f" {rows} rows are recovered" in caplog.text
    assert "2 rows fail their check" in caplog.text
    assert next_ino(database, box) == max(highest, used) + 1
    database.close()


@pytest.mark.parametrize("used", [0, 7])
def test_a_missing_database_is_a_loss_only_beside_outgoing_bytes(path: Path, used: int) -> None:
    """A first start is no repair."""
    for _ in range(2):
        repair.open_sound(path, SCHEMAS, whole(Clear()), used).close()
        assert repair.pending(path) == bool(used)


def killed(path: Path, to: Path, *, commits: bool = True) -> Path:
    """Return the database in the folder `to`, where its daemon was killed, without an index."""
    database = repair.open_sound(path, SCHEMAS, whole(Clear()))
    if commits:
        next_ino(database, Clear())
    to.mkdir()
    for each in path.parent.glob("tree.db*"):
        if not each.name.endswith("-shm"):
            shutil.copy(each, to)
    database.close()
    return to / path.name


@pytest.mark.parametrize("used", [0, 7])
@pytest.mark.parametrize("how", ["closed", "killed", "killed without a commit"])
def test_a_database_with_its_log_has_lost_nothing(tmp_path: Path, how: str, used: int) -> None:
    """SQLite deletes the log when the last connection is closed."""
    path = tmp_path / "tree.db"
    filled(path, Clear())
    if how != "closed":
        path = killed(path, tmp_path / "killed", commits=how == "killed")
    assert repair.loss(path, is_used=bool(used)) == ""
    repair.open_sound(path, SCHEMAS, whole(Clear()), used).close()
    assert not repair.pending(path)
    assert [each.name for each in path.parent.glob("tree.db*")] == ["tree.db"]


@pytest.mark.parametrize("is_gone", [False, True])
@pytest.mark.parametrize("mount", ["first", "second"])
def test_a_lost_log_of_a_killed_daemon_is_a_loss(tmp_path: Path, mount: str, is_gone: bool) -> None:
    """The database is as it was at an earlier time, so names of outgoing bytes may be lost."""
    path = tmp_path / "tree.db"
    if mount == "second":
        filled(path, Clear())
    path = killed(path, tmp_path / "killed")
    log = path.with_name("tree.db-wal")
    if is_gone:
        log.unlink()
    else:
        os.truncate(log, 0)
    database = Database.read(path, SCHEMAS)
    before = database.identity
    database.close()
    assert repair.loss(path, is_used=True)
    for expected in (5001, 5002):
        database = repair.open_sound(path, SCHEMAS, whole(Clear()), used=5000)
        assert repair.pending(path)
        assert database.identity != before, "the cache may have content of lost rows"
        assert next_ino(database, Clear()) == expected
        database.close()
    repair.done(path)
    repair.open_sound(path, SCHEMAS, whole(Clear()), used=5000).close()
    assert not repair.pending(path)


@pytest.mark.parametrize("used", [0, 7])
@pytest.mark.parametrize("how", ["closed", "killed", "without a log", "before the first commit"])
def test_an_empty_database_is_a_loss_only_beside_outgoing_bytes(
    tmp_path: Path, how: str, used: int
) -> None:
    """SQLite takes an empty file for a new database, and so a file without a schema."""
    path = tmp_path / "tree.db"
    filled(path, Clear())
    if how != "closed":
        path = killed(path, tmp_path / "killed")
        path.with_name("tree.db.logged").unlink()
    os.truncate(path, 0)
    if how == "without a log":
        path.with_name("tree.db-wal").unlink()
    elif how == "before the first commit":
        Database.open(path, ()).close()
        assert path.stat().st_size == 4096
    assert bool(repair.loss(path, is_used=bool(used))) == bool(used)
    repair.open_sound(path, SCHEMAS, whole(Clear()), used).close()
    assert repair.pending(path) == bool(used)


def test_a_log_that_a_full_disk_has_emptied_is_not_lost(path: Path) -> None:
    """The log is emptied to free space; its commits are in the database."""
    database = repair.open_sound(path, SCHEMAS, whole(Clear()))
    ino = next_ino(database, Clear())
    assert path.with_name("tree.db.logged").exists()
    with pytest.raises(OSError, match="full"), database.transaction():
        database.execute("DELETE FROM inodes")
        raise OSError(errno.ENOSPC, "full")
    assert path.with_name("tree.db-wal").stat().st_size == 0
    assert repair.loss(path, is_used=True) == ""
    assert next_ino(database, Clear()) == ino + 1
    os.truncate(path.with_name("tree.db-wal"), 0)
    assert repair.loss(path, is_used=True)
    database.close()


@pytest.mark.parametrize("interrupted", [False, True])
def test_numbers_of_a_missing_database_are_not_used_again(path: Path, interrupted: bool) -> None:
    """Outgoing bytes carry the numbers of their inodes, also if the daemon was killed meanwhile."""
    if interrupted:
        repair._mark(path).write_text("missing")
        Database.open(path, SCHEMAS).close()
    for expected in (8, 9):
        database = repair.open_sound(path, SCHEMAS, whole(Clear()), used=7)
        tree = Inodes.open(database, Clear())
        with tree.transaction():
            assert tree.add(ROOT, f"Zone {expected}", Kind.ZONE, zone="z").ino == expected
        database.close()


@pytest.mark.parametrize("number", [None, "x", 1 << 60])
def test_a_damaged_number_of_the_last_inode_is_not_used(path: Path, number: object) -> None:
    """The numbers of the rows and of outgoing bytes are not used again."""
    last = max(filled(path, Clear()).values())
    with closing(Database.open(path, SCHEMAS)) as database:
        database.execute("UPDATE sqlite_sequence SET seq = ?", (number,))
    spoil(path, last)
    with closing(opened(path, Clear())) as database:
        assert Inodes.open(database, Clear()).next_ino == last


def test_a_database_of_a_newer_version_is_not_repaired(path: Path) -> None:
    """The file is left unchanged."""
    filled(path, Clear())
    database = Database.open(path, SCHEMAS)
    database.execute(f"PRAGMA user_version = {len(SCHEMAS) + 1}")
    database.close()
    with pytest.raises(StoreError, match="newer"):
        opened(path, Clear())
    assert not repair.pending(path)


@pytest.mark.parametrize("size", ["large", "small"])
def test_a_file_that_is_no_database_any_more_is_found(
    path: Path, monkeypatch: pytest.MonkeyPatch, size: str
) -> None:
    """The background check examines only what the start has not."""
    path.write_bytes(b"no database" * 500)
    if size == "small":
        monkeypatch.setattr(repair, "SMALL", path.stat().st_size)
    assert bool(repair.inspect(path)) == (size == "large")
    assert repair.has_fault(path) == (size == "large")


@pytest.mark.parametrize("step", ["marked", "aside", "placed"])
def test_a_repair_that_was_interrupted_is_completed(tmp_path: Path, box: Box, step: str) -> None:
    """The daemon may be killed at any step; the damaged file is kept under its name."""
    path = tmp_path / "tree.db"
    inos = filled(path, box)
    spoil(path, inos["ours"])
    fresh = tmp_path / "tree.db.new"
    if step != "placed":
        Database.open(fresh, SCHEMAS).close()
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).write_bytes(b"")
    repair._mark(path).write_text("tree.db.damaged-1")
    if step != "marked":
        path.rename(tmp_path / "tree.db.damaged-1")
    if step == "placed":
        Database.open(path, SCHEMAS).close()
    opened(path, box).close()
    assert repair.pending(path)
    assert repair.damaged_name(path).startswith("tree.db.damaged-")
    assert (tmp_path / repair.damaged_name(path)).exists()
    if step == "aside":
        assert (tmp_path / "tree.db.damaged-1-wal").exists()
    repair.done(path)
    assert not repair.pending(path)


def test_a_damaged_conflict_is_dropped_before_the_mount(path: Path, box: Box) -> None:
    """Until the next start, the copies of all conflicts are still known."""
    inos = filled(path, box)
    database = Database.open(path, SCHEMAS)
    log = intents.IntentTable(database, box).conflicts
    damaged, intact = inos["0500"], inos["0501"]
    for ino in (damaged, intact):
        log.add(intents.Conflict(ino, ino, "bob", 1))
    database.execute("UPDATE conflicts SET by = x'00' WHERE ino = ?", (damaged,))
    assert log.copies() == {damaged, intact}
    database.close()
    database = opened(path, box)
    log = intents.IntentTable(database, box).conflicts
    assert log.all() == [intents.Conflict(intact, intact, "bob", 1)]
    database.close()


class BadPage:
    """Table with rows on a page that cannot be read; `failed` counts the queries that fail."""

    def __init__(self, connection: sqlite3.Connection, bad: set[int]) -> None:
        self._connection, self._bad, self.failed = connection, bad, 0
        connection.execute("CREATE TABLE t (ino INTEGER PRIMARY KEY)")
        connection.executemany("INSERT INTO t VALUES (?)", [(ino,) for ino in range(1000, 1021)])

    def execute(self, sql: str, limits: tuple[int, int] | None = None) -> sqlite3.Cursor:
        """Fail if the limits include a row of the page."""
        if limits and any(limits[0] <= ino <= limits[1] for ino in self._bad):
            self.failed += 1
            raise sqlite3.DatabaseError("database disk image is malformed")
        return self._connection.execute(sql, limits or ())

    def rows(self) -> list[object]:
        """Return the numbers of the readable rows."""
        return [row["ino"] for row in repair._rows(cast(Connection, self), "t")]


@pytest.mark.parametrize("bad", [{1000}, {1006, 1007}, {1005, 1012}, {1020}])
def test_only_the_rows_of_a_damaged_page_are_lost(bad: set[int]) -> None:
    """Ranges of rows are halved until each readable row has been read."""
    with closing(sqlite3.connect(":memory:")) as connection:
        table = BadPage(connection, bad)
        assert sorted(map(str, table.rows())) == [
            str(ino) for ino in range(1000, 1021) if ino not in bad
        ]
        assert table.failed <= 12 * len(bad)


@pytest.mark.parametrize(("bad", "rows"), [(1020, 20), (1000, 0)])
def test_a_table_with_many_damaged_pages_is_skipped(
    monkeypatch: pytest.MonkeyPatch, bad: int, rows: int
) -> None:
    """Rows behind too many failed reads are not read any more."""
    with closing(sqlite3.connect(":memory:")) as connection:
        table = BadPage(connection, {bad})
        assert len(table.rows()) == 20
        monkeypatch.setattr(repair, "PROBES", table.failed)
        assert len(table.rows()) == rows
