"""The write-ahead log of a database, and what moves it into the file."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from zonedrive import db
from zonedrive.db import Connection, Database


def _create(connection: Connection) -> None:
    connection.execute("CREATE TABLE words (word TEXT)")


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    """A database with an empty log."""
    made = Database.open(tmp_path / "words.db", [_create])
    made.checkpoint()
    yield made
    made.close()


def add(database: Database, *words: str) -> None:
    """Commit."""
    with database.transaction():
        database.execute_many("INSERT INTO words VALUES (?)", [(word,) for word in words])


def in_the_file(database: Database) -> list[str]:
    """What the file has without its log."""
    uri = f"{database.path.as_uri()}?immutable=1"
    with closing(sqlite3.connect(uri, uri=True)) as connection:
        return [word for (word,) in connection.execute("SELECT word FROM words")]


class Busy:
    """A connection whose database is written to while it works."""

    def __init__(self, connection: Connection, database: Database, commits: int) -> None:
        self._connection, self._database, self._commits = connection, database, commits
        self.passes = 0

    def execute(self, sql: str) -> sqlite3.Cursor:
        cursor = self._connection.execute(sql)
        if "wal_checkpoint" in sql:
            self.passes += 1
            if self.passes <= self._commits:
                add(self._database, f"during pass {self.passes}")
        return cursor

    def close(self) -> None:
        self._connection.close()


@pytest.mark.parametrize("commits", [0, 1, 5])
def test_a_checkpoint_moves_what_is_committed_meanwhile(
    database: Database, monkeypatch: pytest.MonkeyPatch, commits: int
) -> None:
    """It ends soon, also where something new always comes."""
    add(database, "before")
    assert in_the_file(database) == []
    second = Busy(database._second_connection(), database, commits)
    monkeypatch.setattr(database, "_second_connection", lambda: second)
    database.checkpoint()
    assert 2 <= second.passes <= db.PASSES
    moved = [f"during pass {number + 1}" for number in range(min(commits, second.passes - 1))]
    assert in_the_file(database) == ["before", *moved]


def test_a_log_that_was_moved_begins_anew(database: Database) -> None:
    """So it takes no more room than before, and no commit waits for the disk."""
    log = database.path.with_name(database.path.name + "-wal")
    sizes = []
    for number in range(10):
        add(database, *(f"{number} {each}" for each in range(50)))
        database.checkpoint()
        sizes.append(log.stat().st_size)
    assert max(sizes) < 3 * sizes[0]
    assert len(in_the_file(database)) == 500
