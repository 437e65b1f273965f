"""Schema history of an account's database, which holds tree and outbox.

A released schema never changes; each change is a new step.
"""

from collections.abc import Callable, Mapping

from zonedrive.cipher import Box
from zonedrive.content import manifest_table
from zonedrive.db import Connection
from zonedrive.outbox import conflicts, doubts, journal
from zonedrive.tree import pins, renewal, store, tables


def _first(connection: Connection) -> None:
    tables.create_table(connection)
    journal.create_tables(connection)


def _second(connection: Connection) -> None:
    journal.add_parked(connection)
    doubts.create_table(connection)


def _third(connection: Connection) -> None:
    tables.add_marks(connection)


SCHEMAS = (
    _first,
    _second,
    _third,
    pins.create_table,
    conflicts.add_told,
    renewal.mark_names,
    conflicts.end_with_inodes,
    manifest_table.create_table,
)
"""Upgrade steps: `SCHEMAS[n]` upgrades a database from schema n to n + 1."""

ONLY_HERE = {"inodes": store.ONLY_HERE}
"""For tables that hold copies of listings: which rows hold more than a copy."""


def whole(box: Box) -> Callable[[str, Mapping[str, object]], bool]:
    """Return a check that a table's row, given by column, is readable with that box."""
    checks = {
        "inodes": store.is_whole,
        "doubts": doubts.is_whole,
        "intents": journal.is_whole,
        "manifests": manifest_table.is_whole,
    }

    def accept(table: str, row: Mapping[str, object]) -> bool:
        return table not in checks or checks[table](row, box)

    return accept
