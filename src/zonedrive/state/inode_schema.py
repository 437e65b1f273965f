"""Schema of the table of inodes: its columns and indexes, version by version.

Knows nothing about the meaning of a row; see `store`.
"""

import sqlite3


def create_table(connection: sqlite3.Connection) -> None:
    """Create the table of the first schema."""
    connection.execute(
        """
        CREATE TABLE inodes (
            ino INTEGER PRIMARY KEY AUTOINCREMENT, -- never used again
            parent INTEGER NOT NULL,      -- ino of the folder, 0 once unlinked
            kind INTEGER NOT NULL,        -- tree.inode.Kind
            zone TEXT NOT NULL,           -- id of the zone, '' for the root
            remote_id TEXT,               -- the service's id, NULL for what it has not seen
            revision TEXT NOT NULL,       -- model.Revision last heard of; since schema 3 sealed
            generation INTEGER NOT NULL,  -- of the bytes in the spool, 0: none
            local INTEGER NOT NULL,       -- > 0: never leaves this machine, see names.stays
            listed INTEGER NOT NULL,      -- 1: the children below are the folder's whole listing
            sealed BLOB NOT NULL          -- _Sealed as MessagePack, encrypted
        )
        """
    )
    connection.execute("CREATE INDEX inodes_by_parent ON inodes (parent)")
    connection.execute(
        "CREATE UNIQUE INDEX inodes_by_remote ON inodes (zone, remote_id)"
        " WHERE remote_id IS NOT NULL"
    )


def add_marks(connection: sqlite3.Connection) -> None:
    """Migrate to the third schema: indexes for names, for local bytes and for new entries.

    Existing rows are not rewritten, so that a million of them take only some seconds.
    """
    for statement in (
        # Box.mark of parent and name; NULL: written before this schema
        "ALTER TABLE inodes ADD COLUMN mark INTEGER",
        # Inode.seen
        "ALTER TABLE inodes ADD COLUMN seen INTEGER NOT NULL DEFAULT 0",
        "DROP INDEX inodes_by_parent",
        "CREATE INDEX inodes_by_name ON inodes (parent, mark)",
        "CREATE INDEX inodes_with_bytes ON inodes (generation) WHERE generation > 0",
        "CREATE INDEX inodes_without_origin ON inodes (parent) WHERE remote_id IS NULL",
        "CREATE INDEX inodes_of_folders ON inodes (parent) WHERE kind < 3",
        "CREATE INDEX inodes_unmarked ON inodes (parent) WHERE mark IS NULL",
    ):
        connection.execute(statement)
