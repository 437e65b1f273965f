"""A mount removes rows of any table whose inode is gone, and loses no bytes."""

import json
import re
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import msgspec
import pytest

from tests.crash import former
from tests.harness.machine import Mounted
from tests.harness.planting import Plant
from tests.harness.waiting import eventually
from zonedrive.cipher import Box, Clear
from zonedrive.content.cache_index import CacheIndex, name_in_index
from zonedrive.logon.keys import data_box
from zonedrive.logon.secrets import FileStore
from zonedrive.state.inode_table import decoded_name, name_mark
from zonedrive.state.intents import sealed

GONE = 900_000
"""First number that no inode has."""

AT_ONCE = """
def first():
    from zonedrive.vfs import maintenance
    maintenance.QUIET_S = 0
"""

UNSENT = (GONE + 1, GONE + 2, GONE + 7)
"""Inodes with bytes in the spool: of an intent, of a pending request, of a file in a deleted
folder."""


@contextmanager
def opened(path: Path) -> Iterator[sqlite3.Connection]:
    """Yield a database that the block may change."""
    with closing(sqlite3.connect(path)) as database, database:
        yield database


def tables(path: Path) -> set[str]:
    """Return the tables of a database, except SQLite's own."""
    with opened(path) as database:
        rows = database.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
    return {name for (name,) in rows if not name.startswith("sqlite_")}


def put(
    database: sqlite3.Connection, table: str, like: str, box: Box | None = None, **changes: object
) -> None:
    """Insert a copy of a row with other values; with `box`, encrypt an inode's row again."""
    database.row_factory = sqlite3.Row
    row = dict(database.execute(f"SELECT * FROM {table} WHERE {like}").fetchone())
    if box is not None:
        opened_ = box.open(row["sealed"], b"inode %d" % row["ino"])
        changes["sealed"] = box.seal(opened_, b"inode %d" % int(str(changes["ino"])))
        name = decoded_name(box, row["ino"], row["sealed"])
        changes["mark"] = name_mark(box, int(str(changes["parent"])), name)
    row |= changes
    marks = ", ".join("?" * len(row))
    names = ", ".join(row)
    database.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", list(row.values()))


def copied(path: Path) -> Path:
    """Return a copy of a database that a daemon keeps locked."""
    copy = Path(tempfile.mkdtemp(dir=path.parent.parent), path.name)
    for suffix in ("", "-wal"):
        with suppress(FileNotFoundError):
            shutil.copy(f"{path}{suffix}", f"{copy}{suffix}")
    return copy


def dangling(path: Path, inos: set[int]) -> set[tuple[str, int]]:
    """Return the rows whose inode does not exist, by table and number."""
    with opened(path) as database:
        return {
            (table, ino)
            for table in tables(path) - {"inodes", "facts", "moved_conflicts"}
            for (ino,) in database.execute(f"SELECT ino FROM {table}")
            if ino not in inos
        }


def numbers(path: Path) -> set[int]:
    """Return the numbers of inodes with a row, and of a folder."""
    with opened(path) as database:
        found = dict(database.execute("SELECT ino, parent FROM inodes").fetchall())
    return {ino for ino, parent in found.items() if parent == 0 or parent in found}


@pytest.mark.parametrize(
    "encrypted", [pytest.param(False, marks=pytest.mark.mount("encrypt=false")), True]
)
def test_a_dangling_row_in_each_table(mounted: Mounted, encrypted: bool) -> None:
    """The mount starts and works; files that only such a row names are in lost+found."""
    mounted.allow("refused", "belong to no file", "lost their names")
    notes = (mounted.root / "notes.txt").read_bytes()
    with mounted.deployment.faulty(status=403, method="POST", path="/files/"):
        (mounted.root / "new.txt").write_bytes(b"waits\n")
        eventually(lambda: mounted.status()["outbox"]["failed"])
        mounted.unmount("--timeout", "0")
    state, index = mounted.machine.state / "tree.db", mounted.machine.cache / "content/index.db"
    box = former.box_of(mounted.machine.state) if encrypted else Clear()
    # A new table needs a row here.
    known = {"inodes", "intents", "doubts", "conflicts", "moved_conflicts", "pins", "manifests"}
    assert tables(state) == known
    assert tables(index) == {"entries", "contents", "facts"}
    outgoing = mounted.machine.state / "outgoing"
    (waiting,) = outgoing.iterdir()
    name = re.fullmatch(r"(\d+)-(\d+)(\..*)?", waiting.name)
    assert name is not None
    own, generation = int(name[1]), int(name[2])
    for ino in UNSENT:
        shutil.copy(waiting, outgoing / f"{ino}-{generation}{name[3] or ''}")
    where = msgspec.msgpack.encode(["zone", "folder", "name", None])
    where = box.seal(where, b"doubt %d %d" % (GONE + 2, generation))
    remote, local = "remote_id IS NOT NULL AND kind = 3", "generation > 0"
    with opened(state) as database:
        put(database, "intents", "generation > 0", ino=GONE + 1)
        database.execute(
            "INSERT INTO doubts VALUES (?, ?, ?, 1, ?)", (GONE + 2, GONE + 2, generation, where)
        )
        by = sealed(box, "bob", b"conflict by")
        database.execute("INSERT INTO conflicts VALUES (?, 1, ?, 1, 0)", (GONE + 3, by))
        database.execute("INSERT INTO conflicts VALUES (-8, 1, ?, 1, 0)", (by,))
        database.execute("INSERT INTO moved_conflicts VALUES (9, 'zone', 'of none')")
        database.execute("INSERT INTO pins VALUES (?, 'zone', NULL)", (GONE + 4,))
        put(database, "inodes", remote, box, ino=GONE + 6, parent=GONE + 5, remote_id="of none")
        put(database, "inodes", local, box, ino=GONE + 7, parent=GONE + 5)
        if encrypted:  # of one of the files with bytes the record is lost
            record = database.execute("SELECT manifest FROM manifests WHERE ino = ?", (own,))
            manifest = box.open(record.fetchone()[0], b"manifest %d-%d" % (own, generation))
            for ino in (GONE + 1, GONE + 3, GONE + 7):
                other = box.seal(manifest, b"manifest %d-%d" % (ino, generation))
                database.execute("INSERT INTO manifests VALUES (?, ?, ?)", (ino, generation, other))
    shutil.copy(next(index.parent.glob("[0-9]*")), index.parent / f"{GONE}-0123456789ab")
    secrets = FileStore(mounted.machine.state / "secrets.json")
    cached = CacheIndex(index, data_box(secrets, True)[1] if encrypted else None, lambda: None)
    cached.open()
    row = next(cached.all_rows())
    row.ino, row.name = GONE, f"{GONE}-0123456789ab"
    assert cached.put(row)
    row.ino, row.name = GONE + 1, name_in_index(GONE + 1)
    assert cached.put_contents([(row, b"small")])
    cached.close()
    Plant(mounted.machine, AT_ONCE)
    assert len(dangling(state, numbers(state))) == (8 if encrypted else 5)
    mounted.mount()
    pid = mounted.pid
    assert (mounted.root / "notes.txt").read_bytes() == notes
    assert (mounted.root / "new.txt").read_bytes() == b"waits\n"
    lost = mounted.path / "lost+found"
    assert [path.read_bytes() for path in lost.iterdir()] == [b"waits\n"] * len(UNSENT)
    assert json.loads(mounted.machine.done("conflicts", "--json")) == []
    with opened(state) as database:
        assert not database.execute("SELECT * FROM conflicts").fetchall()
        assert not database.execute("SELECT * FROM moved_conflicts").fetchall()
    assert mounted.status()["outbox"]["conflicts"] == 0
    for path in lost.iterdir():
        path.unlink()
    mounted.sync()
    assert mounted.zone.read("new.txt") == b"waits\n"
    mounted.machine.done("pin", mounted.root / "docs")
    eventually(lambda: not list(index.parent.glob(f"{GONE}-*")), what="its content is gone, too")
    eventually(lambda: not dangling(copied(index), numbers(state)), what="so is a small one")
    assert mounted.status()["pid"] == pid
    assert "failing" not in mounted.status()
    mounted.unmount()
    assert dangling(state, numbers(state)) == set()
    assert dangling(index, numbers(state)) == set()
