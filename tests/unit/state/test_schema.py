"""Databases of every schema: upgraded, or refused and left as they are."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from zonedrive.cipher import Clear
from zonedrive.db import Database
from zonedrive.errors import StoreError
from zonedrive.state import inode_table, intents, repair
from zonedrive.state.schema import ONLY_HERE, SCHEMAS, whole

RELEASED = 4  # first schema of a released version


def dump(path: Path) -> list[str]:
    """Return all tables and rows as SQL."""
    with closing(sqlite3.connect(path)) as database:
        return list(database.iterdump())


@pytest.mark.parametrize("schema", range(1, RELEASED))
def test_a_database_of_an_unreleased_schema_is_refused(tmp_path: Path, schema: int) -> None:
    """A mount changes nothing, and does not report damage."""
    path = tmp_path / "tree.db"
    steps = [inode_table.create_table, intents.create_tables, *SCHEMAS[2:schema]]
    Database.open(path, steps[:schema]).close()
    before = dump(path)
    with pytest.raises(StoreError, match="already exists"):
        repair.open_sound(path, SCHEMAS, whole(Clear()), only_here=ONLY_HERE)
    assert dump(path) == before
    assert not list(tmp_path.glob("*damaged*"))


@pytest.mark.parametrize("schema", range(RELEASED, len(SCHEMAS)))
def test_a_database_of_a_released_schema_is_upgraded(tmp_path: Path, schema: int) -> None:
    """The tables are those of a new database."""

    def tables(name: str, steps: int) -> list[tuple[str, str]]:
        with closing(Database.open(tmp_path / name, SCHEMAS[:steps])) as database:
            return database.execute("SELECT name, sql FROM sqlite_schema ORDER BY name").fetchall()

    tables("old.db", schema)
    assert tables("old.db", len(SCHEMAS)) == tables("new.db", len(SCHEMAS))
