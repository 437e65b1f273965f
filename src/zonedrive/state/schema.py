"""Schema history of an account's database, which holds inodes and intents.

A released schema never changes; each change is a new step.
"""

from collections.abc import Callable, Mapping

import msgspec

from zonedrive.cipher import Box
from zonedrive.content import spool
from zonedrive.db import Connection
from zonedrive.errors import Damaged
from zonedrive.state import inode_table, intents, pending_requests, pin_table, row_upgrade


def _unreleased(_connection: Connection) -> None:
    """Do nothing: schemas 1 to 3 were never released, and `_fourth` fails if their tables exist."""


def _fourth(connection: Connection) -> None:
    inode_table.create_table(connection)
    intents.create_tables(connection)
    pending_requests.create_table(connection)
    pin_table.create_table(connection)


SCHEMAS = (
    _unreleased,
    _unreleased,
    _unreleased,
    _fourth,
    intents.add_told,
    row_upgrade.mark_names,
    intents.end_with_inodes,
    spool.create_table,
    intents.keep_moved,
    intents.add_left,
)
"""Upgrade steps: `SCHEMAS[n]` upgrades a database from schema n to n + 1."""

ONLY_HERE = {"inodes": inode_table.ONLY_HERE}
"""SQL conditions, by table, for the rows that a new listing could not restore."""


def whole(box: Box) -> Callable[[str, Mapping[str, object]], bool]:
    """Return a function that returns False for a row that is damaged or that `box` cannot decrypt.

    The function takes the name of the table and the row (values by column name).
    """
    checks = {
        "inodes": inode_table.check_row,
        "doubts": pending_requests.check_row,
        "intents": intents.intent_of,
        "conflicts": intents.check_conflict,
        "manifests": spool.check_row,
    }

    def accept(table: str, row: Mapping[str, object]) -> bool:
        try:
            if table in checks:
                checks[table](row, box)
        except (Damaged, msgspec.MsgspecError, TypeError, ValueError, KeyError):
            return False
        return isinstance(row.get("ino", 0), int)

    return accept
