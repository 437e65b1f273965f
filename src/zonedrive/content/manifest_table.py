"""Table of the manifests of outgoing files, encrypted for the account.

The table is in the database that names those files, so that a file and its manifest are recorded in
one transaction.  Knows nothing about inodes or about the content of a manifest.

A row with an empty manifest belongs to a file whose state is unknown: written by an earlier
version, or found after its row was lost with a damaged database.  All valid chunks of such a file
are accepted.
"""

import sqlite3
from collections.abc import Collection, Mapping

from zonedrive.cipher import Box
from zonedrive.db import Database
from zonedrive.errors import Damaged

UNKNOWN = b""
MANY = 500  # rows that are deleted without waiting for the next record


def create_table(connection: sqlite3.Connection) -> None:
    """Create the table of the eighth schema.

    Files of earlier schemas have no manifest.
    """
    connection.execute(
        """
        CREATE TABLE manifests (
            ino INTEGER NOT NULL,         -- with generation: a file in the spool
            generation INTEGER NOT NULL,
            manifest BLOB NOT NULL,       -- encrypted; x'': nothing is known
            UNIQUE (ino, generation)
        )
        """
    )
    connection.execute(
        "INSERT OR IGNORE INTO manifests"
        " SELECT ino, generation, x'' FROM inodes WHERE generation > 0"
        " UNION SELECT ino, generation, x'' FROM intents WHERE generation > 0"
        " UNION SELECT bytes_ino, generation, x'' FROM doubts WHERE generation > 0"
    )


def is_whole(row: Mapping[str, object], box: Box) -> bool:
    """Return True if a row, given by column, can be decrypted with `box`."""
    try:
        ino, generation = int(str(row["ino"])), int(str(row["generation"]))
        _opened(box, ino, generation, bytes(row["manifest"]))  # type: ignore[call-overload]
    except (Damaged, TypeError, ValueError):
        return False
    return True


class ManifestTable:
    """Manifests by inode and generation."""

    def __init__(self, database: Database, box: Box) -> None:
        self._database = database
        self._box = box
        self._gone: dict[tuple[int, int], None] = {}  # files whose rows are still there

    def get(self, ino: int, generation: int) -> bytes | None:
        """Return the manifest, UNKNOWN if it is empty, or None if not stored.  Raises Damaged."""
        if (ino, generation) in self._gone:
            return None
        row = self._database.execute(
            "SELECT manifest FROM manifests WHERE ino = ? AND generation = ?", (ino, generation)
        ).fetchone()
        return None if row is None else _opened(self._box, ino, generation, row[0])

    def put(self, ino: int, generation: int, manifest: bytes) -> None:
        """Record the manifest of a file."""
        self.sweep()
        sealed = self._box.seal(manifest, _context(ino, generation)) if manifest else UNKNOWN
        self._database.execute(
            "INSERT INTO manifests VALUES (?, ?, ?)"
            " ON CONFLICT (ino, generation) DO UPDATE SET manifest = excluded.manifest",
            (ino, generation, sealed),
        )

    def delete(self, ino: int, generation: int) -> None:
        """Delete the row of a removed file, together with the next record or in a batch.

        A row that remains when the daemon ends is deleted at the next start.
        """
        self._gone[ino, generation] = None
        if len(self._gone) >= MANY:
            self.sweep()

    def sweep(self) -> None:
        """Delete the rows of the removed files."""
        if not self._gone:
            return
        with self._database.transaction():
            gone, self._gone = self._gone, {}
            self._database.on_rollback(lambda: self._gone.update(gone))
            self._database.execute_many(
                "DELETE FROM manifests WHERE ino = ? AND generation = ?", list(gone)
            )

    def keep_only(self, files: Collection[tuple[int, int]]) -> None:
        """Delete the rows of all files except these."""
        rows = self._database.execute("SELECT ino, generation FROM manifests").fetchall()
        self._gone.update(dict.fromkeys(set(rows) - set(files)))
        self.sweep()


def _opened(box: Box, ino: int, generation: int, sealed: bytes) -> bytes:
    return box.open(sealed, _context(ino, generation)) if sealed else UNKNOWN


def _context(ino: int, generation: int) -> bytes:
    return b"manifest %d-%d" % (ino, generation)
