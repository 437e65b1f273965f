"""Rows that name something gone, in every table: a mount takes them away, and loses no bytes."""

import json
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import msgspec
import pytest

from tests.harness.machine import Mounted
from tests.harness.planting import Plant
from tests.harness.waiting import eventually

GONE = 900_000
"""Numbers from here on belong to no inode."""

AT_ONCE = """
def first():
    from zonedrive.vfs import upkeep
    upkeep.QUIET_S = 0
"""

UNSENT = {
    GONE + 1: b"of an intent\n",
    GONE + 2: b"of a request in doubt\n",
    GONE + 7: b"of a file in a folder that is gone\n",
}


@contextmanager
def opened(path: Path) -> Iterator[sqlite3.Connection]:
    """A database, to be changed."""
    with closing(sqlite3.connect(path)) as database, database:
        yield database


def tables(path: Path) -> set[str]:
    """The tables of a database that are not SQLite's own."""
    with opened(path) as database:
        rows = database.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
    return {name for (name,) in rows if not name.startswith("sqlite_")}


def put(database: sqlite3.Connection, table: str, like: str, **changes: object) -> None:
    """A copy of a row, with other values."""
    database.row_factory = sqlite3.Row
    row = dict(database.execute(f"SELECT * FROM {table} WHERE {like}").fetchone()) | changes
    marks = ", ".join("?" * len(row))
    names = ", ".join(row)
    database.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", list(row.values()))


def dangling(path: Path, inos: set[int]) -> set[tuple[str, int]]:
    """Rows by table and number that are about no inode that there is."""
    with opened(path) as database:
        return {
            (table, ino)
            for table in tables(path) - {"inodes", "facts"}
            for (ino,) in database.execute(f"SELECT ino FROM {table}")
            if ino not in inos
        }


def numbers(path: Path) -> set[int]:
    """Of the inodes that have a row, and a folder."""
    with opened(path) as database:
        found = dict(database.execute("SELECT ino, parent FROM inodes").fetchall())
    return {ino for ino, parent in found.items() if parent == 0 or parent in found}


@pytest.mark.mount("encrypt=false")
def test_a_dangling_row_in_each_table(mounted: Mounted) -> None:
    """The mount comes up and is used; what only such a row named is in lost+found."""
    mounted.allow("refused", "belong to no file", "lost their names")
    notes = (mounted.root / "notes.txt").read_bytes()
    with mounted.deployment.faulty(status=403, method="POST", path="/files/"):
        (mounted.root / "new.txt").write_bytes(b"waits\n")
        eventually(lambda: mounted.status()["outbox"]["failed"])
        mounted.unmount("--timeout", "0")
    state, index = mounted.machine.state / "tree.db", mounted.machine.cache / "content/index.db"
    # Whoever adds a table plants a row in it here.
    assert tables(state) == {"inodes", "intents", "doubts", "conflicts", "pins"}
    assert tables(index) == {"entries", "facts"}
    outgoing = mounted.machine.state / "outgoing"
    (waiting,) = outgoing.iterdir()
    generation = int(waiting.stem.partition("-")[2])
    for ino, data in UNSENT.items():
        (outgoing / f"{ino}-{generation}{waiting.suffix}").write_bytes(data)
    where = msgspec.msgpack.encode(["zone", "folder", "name", None])
    with opened(state) as database:
        put(database, "intents", "generation > 0", ino=GONE + 1)
        database.execute(
            "INSERT INTO doubts VALUES (?, ?, ?, 1, ?)", (GONE + 2, GONE + 2, generation, where)
        )
        database.execute("INSERT INTO conflicts VALUES (?, 1, 'bob', 1, 0)", (GONE + 3,))
        database.execute("INSERT INTO pins VALUES (?, 'zone', NULL)", (GONE + 4,))
        remote = "remote_id IS NOT NULL AND kind = 3"
        put(database, "inodes", remote, ino=GONE + 6, parent=GONE + 5, remote_id="of none")
        local = "generation > 0"
        put(database, "inodes", local, ino=GONE + 7, parent=GONE + 5)
    shutil.copy(next(index.parent.glob("[0-9]*")), index.parent / f"{GONE}-0123456789ab")
    with opened(index) as database:
        put(database, "entries", "true", ino=GONE, name=f"{GONE}-0123456789ab", checksum=-1)
    Plant(mounted.machine, AT_ONCE)
    assert len(dangling(state, numbers(state))) == 4
    mounted.mount()
    pid = mounted.pid
    assert (mounted.root / "notes.txt").read_bytes() == notes
    assert (mounted.root / "new.txt").read_bytes() == b"waits\n"
    lost = mounted.path / "lost+found"
    assert sorted(path.read_bytes() for path in lost.iterdir()) == sorted(UNSENT.values())
    assert json.loads(mounted.machine.done("conflicts", "--json")) == []
    assert mounted.status()["outbox"]["conflicts"] == 0
    for path in lost.iterdir():
        path.unlink()
    mounted.sync()
    assert mounted.zone.read("new.txt") == b"waits\n"
    mounted.machine.done("pin", mounted.root / "docs")
    eventually(lambda: not list(index.parent.glob(f"{GONE}-*")), what="its content is gone, too")
    assert mounted.status()["pid"] == pid
    assert "failing" not in mounted.status()
    mounted.unmount()
    assert dangling(state, numbers(state)) == set()
    assert dangling(index, numbers(state)) == set()
