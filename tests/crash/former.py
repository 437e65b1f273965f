"""An account's database as earlier versions of zonedrive left it."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from zonedrive.cipher import Box
from zonedrive.db import drop_log_mark
from zonedrive.logon.keys import data_box
from zonedrive.logon.secrets import FileStore


def box_of(state: Path) -> Box:
    """Return the box for the encrypted names of this account."""
    return data_box(FileStore(state / "secrets.json"), True)[0]


@contextmanager
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        yield database
    drop_log_mark(path)


def make_ninth(state: Path) -> None:
    """Turn the database into one of the ninth schema."""
    with _opened(state / "tree.db") as database:
        database.execute("ALTER TABLE intents DROP COLUMN left_folder")
        database.execute("ALTER TABLE intents DROP COLUMN left_name")
        database.execute("PRAGMA user_version = 9")


def make_eighth(state: Path) -> None:
    """Turn the database into one of the eighth schema."""
    make_ninth(state)
    with _opened(state / "tree.db") as database:
        database.execute("DROP TRIGGER conflicts_return")
        database.execute("DROP TRIGGER conflicts_end")
        database.execute("DROP INDEX conflicts_by_original")
        database.execute("DROP TABLE moved_conflicts")
        database.execute(
            "CREATE TRIGGER conflicts_end AFTER DELETE ON inodes"
            " BEGIN DELETE FROM conflicts WHERE ino = OLD.ino; END"
        )
        database.execute("PRAGMA user_version = 8")


def make_seventh(state: Path) -> None:
    """Turn the database into one of the seventh schema."""
    make_eighth(state)
    with _opened(state / "tree.db") as database:
        database.execute("DROP TABLE manifests")
        database.execute("PRAGMA user_version = 7")


def make_fourth(state: Path) -> None:
    """Turn the database into one of the fourth schema."""
    make_seventh(state)
    with _opened(state / "tree.db") as database:
        database.execute("DROP TRIGGER conflicts_end")
        database.execute("ALTER TABLE conflicts DROP COLUMN told")
        database.execute("PRAGMA user_version = 4")
