"""What is counted in a database without a key."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from zonedrive.db import Database
from zonedrive.errors import StoreError
from zonedrive.tree.glance import local_files, lost_files, wanted_files
from zonedrive.vfs.schema import SCHEMAS


def test_what_cannot_be_counted_is_not_taken_for_nothing(tmp_path: Path) -> None:
    """Whoever asks is about to destroy it."""
    path = tmp_path / "tree.db"
    assert lost_files(path) == local_files(path) == 0
    Database(path, ()).close()
    assert lost_files(path) == local_files(path) == 0
    Database(path, SCHEMAS).close()
    assert lost_files(path) == local_files(path) == 0
    with closing(sqlite3.connect(path)) as database:
        (size,) = database.execute("PRAGMA page_size").fetchone()
    whole = path.read_bytes()
    path.write_bytes(whole[:size] + b"\xff" * (len(whole) - size))  # the schema is left
    for count in (lost_files, local_files, wanted_files):
        with pytest.raises(StoreError, match="cannot be read"):
            count(path)
