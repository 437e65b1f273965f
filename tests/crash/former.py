"""An account's database as earlier versions of zonedrive left it."""

import sqlite3
from contextlib import closing
from pathlib import Path

import msgspec

from zonedrive.cipher import Box
from zonedrive.logon.keys import data_box
from zonedrive.logon.secrets import FileStore

MARKS = ("by_name", "with_bytes", "without_origin", "of_folders", "unmarked")


def box_of(state: Path) -> Box:
    """Return the box for the encrypted names of this account."""
    return data_box(FileStore(state / "secrets.json"), True)[0]


def make_seventh(state: Path) -> None:
    """Turn the database into one of the seventh schema."""
    with closing(sqlite3.connect(state / "tree.db", isolation_level=None)) as database:
        database.execute("DROP TABLE manifests")
        database.execute("PRAGMA user_version = 7")


def make_fourth(state: Path) -> None:
    """Turn the database into one of the fourth schema."""
    make_seventh(state)
    with closing(sqlite3.connect(state / "tree.db", isolation_level=None)) as database:
        database.execute("DROP TRIGGER conflicts_end")
        database.execute("ALTER TABLE conflicts DROP COLUMN told")
        database.execute("PRAGMA user_version = 4")


def make_second(state: Path) -> None:
    """Turn the database into one of the second schema."""
    make_fourth(state)
    box = box_of(state)
    with closing(sqlite3.connect(state / "tree.db", isolation_level=None)) as database:
        database.execute("BEGIN")
        for ino, blob in database.execute("SELECT ino, sealed FROM inodes").fetchall():
            context = b"inode %d" % ino
            *sealed, revision = msgspec.msgpack.decode(box.open(blob, context))
            database.execute(
                "UPDATE inodes SET sealed = ?, revision = ? WHERE ino = ?",
                (box.seal(msgspec.msgpack.encode(sealed), context), revision, ino),
            )
        for index in MARKS:
            database.execute(f"DROP INDEX inodes_{index}")
        for column in ("mark", "seen"):
            database.execute(f"ALTER TABLE inodes DROP COLUMN {column}")
        database.execute("CREATE INDEX inodes_by_parent ON inodes (parent)")
        database.execute("DROP TABLE pins")
        database.execute("PRAGMA user_version = 2")
        database.execute("COMMIT")


def make_first(state: Path) -> None:
    """Turn the database into one of the first schema."""
    make_second(state)
    with closing(sqlite3.connect(state / "tree.db", isolation_level=None)) as database:
        database.execute("DROP TABLE doubts")
        database.execute("ALTER TABLE intents DROP COLUMN parked")
        database.execute("PRAGMA user_version = 1")
