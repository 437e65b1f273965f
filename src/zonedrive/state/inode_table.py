"""Table of inodes.

Rows are written immediately; the caller holds the transaction. Names, authors and other metadata
are encrypted with the account's box (`cipher.Box`), so that the database reveals neither document
names nor people. Lookups by name use a hash of the name, see `cipher.Sealed.mark`.

INVARIANT: a damaged row can be read if it only mirrors an entry of the service. The resulting inode
has a name that begins with `/`, which no real name does. The next listing of the folder restores
the real name.
"""

import itertools
import logging
import sqlite3
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, TypeVar

import msgspec

from zonedrive.cipher import Box
from zonedrive.db import Database
from zonedrive.errors import Damaged
from zonedrive.model import Attributes, Revision
from zonedrive.state import repair
from zonedrive.state.inode import Inode, Kind
from zonedrive.state.names import BY_USER, local_only_reason

log = logging.getLogger(__name__)

_COLUMNS = (
    "ino, parent, kind, zone, remote_id, revision, generation, local, listed, sealed, mark, seen"
)
_INSERT = f"INSERT INTO inodes ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, '', ?, ?, ?, ?, ?, ?)"  # noqa: S608
_UPSERT = (
    f"{_INSERT} ON CONFLICT (ino) DO UPDATE SET parent = excluded.parent, kind = excluded.kind,"
    " zone = excluded.zone, remote_id = excluded.remote_id, revision = excluded.revision,"
    " generation = excluded.generation, local = excluded.local, listed = excluded.listed,"
    " sealed = excluded.sealed, mark = excluded.mark, seen = excluded.seen"
)
_SEALED = "UPDATE inodes SET revision = '', listed = ?, sealed = ?, seen = ? WHERE ino = ?"
INDEXED = frozenset(("parent", "name", "kind", "zone", "remote_id", "generation", "local"))
"""Fields whose change needs `write`; for the other fields `write_sealed` is enough.

These fields are stored outside the encrypted part (`name` as a hash), and most of them in indexes.
Each changed index costs one more written page.
"""

BATCH = 500  # rows per query; SQLite allows 32,766 parameters
T = TypeVar("T")

_KINDS = {int(kind): kind for kind in Kind}
_ATTRIBUTES = {flags: Attributes(*flags) for flags in itertools.product((False, True), repeat=5)}


class _Sealed(msgspec.Struct, eq=False, array_like=True):
    """Encrypted part of a row."""

    name: str
    remote_parent: str | None
    remote_name: str | None
    size: int
    mtime_ns: int
    ctime_ns: int
    mode: int | None
    modified_by: str
    type: str
    sync: str
    attributes: tuple[bool, bool, bool, bool, bool]
    revision: str


class _Name(msgspec.Struct, eq=False, array_like=True):
    """First field of a `_Sealed`, for decoding only the name."""

    name: str


class _Plain(msgspec.Struct, eq=False):
    """Part of a row that is not encrypted."""

    parent: int
    kind: Kind
    zone: str
    remote_id: str | None
    generation: int
    local: int
    listed: int
    seen: int


_decode_name = msgspec.msgpack.Decoder(_Name).decode
_decode_sealed = msgspec.msgpack.Decoder(_Sealed).decode


def decoded_name(box: Box, ino: int, sealed: bytes) -> str:
    """Return the name in the encrypted part of a row.

    Raises Damaged or MsgspecError if the row is damaged.
    """
    return _decode_name(box.open(sealed, b"inode %d" % ino)).name


ONLY_HERE = (
    "generation > 0",
    "remote_id IS NULL",
    "parent = 0",
    "ino IN (SELECT ino FROM intents)",
    "ino IN (SELECT ino FROM doubts)",
)
"""SQL conditions for the rows that no listing could restore; each condition uses an index."""


def create_table(connection: sqlite3.Connection) -> None:
    """Create the table `inodes` of the fourth schema."""
    connection.execute(
        """
        CREATE TABLE inodes (
            ino INTEGER PRIMARY KEY AUTOINCREMENT, -- a number is never used again
            parent INTEGER NOT NULL,      -- ino of the folder; 0: unlinked
            kind INTEGER NOT NULL,        -- value of inode.Kind
            zone TEXT NOT NULL,           -- id of the zone; '' for the root
            remote_id TEXT,               -- id on the service; NULL: no remote entry
            revision TEXT NOT NULL,       -- always '': the revision is in `sealed`
            generation INTEGER NOT NULL,  -- generation of the bytes in the spool; 0: none
            local INTEGER NOT NULL,       -- > 0: is never uploaded
            listed INTEGER NOT NULL,      -- 1: the rows below the folder are its complete listing
            sealed BLOB NOT NULL,         -- _Sealed as MessagePack, encrypted
            mark INTEGER,                 -- see `name_mark`; NULL in the row of the root:
                                          -- see row_upgrade.mark_names
            seen INTEGER NOT NULL DEFAULT 0 -- Inode.seen
        )
        """
    )
    for statement in (
        "CREATE UNIQUE INDEX inodes_by_remote ON inodes (zone, remote_id)"
        " WHERE remote_id IS NOT NULL",
        "CREATE INDEX inodes_by_name ON inodes (parent, mark)",
        "CREATE INDEX inodes_with_bytes ON inodes (generation) WHERE generation > 0",
        "CREATE INDEX inodes_without_origin ON inodes (parent) WHERE remote_id IS NULL",
        "CREATE INDEX inodes_of_folders ON inodes (parent) WHERE kind < 3",
        # Not used; 0.1.0 needs this index.
        "CREATE INDEX inodes_unmarked ON inodes (parent) WHERE mark IS NULL",
    ):
        connection.execute(statement)


def name_mark(box: Box, parent: int, name: str) -> int:
    """Return the value of the column `mark` for a name in the folder with the number `parent`."""
    return box.mark(b"%d/%b" % (parent, name.encode("utf-8", "surrogatepass")))


def check_row(row: Mapping[str, Any], box: Box) -> None:
    """Decode a row (values by column name) with `box`; raise an error if the row is damaged.

    The error is one of those that `schema.whole` handles. A wrong value in the column `mark` is an
    error, because the entry would be listed, but no lookup would find it.
    """
    sealed = _decode_sealed(box.open(row["sealed"], b"inode %d" % row["ino"]))
    plain = msgspec.convert(row, _Plain)
    if row.get("mark") not in (None, name_mark(box, plain.parent, sealed.name)):
        raise ValueError("a mark is not that of the name")


def unreadable(inode: Inode) -> bool:
    """Return True if the row of the inode is damaged; see the module's docstring."""
    return inode.name.startswith("/")


class InodeTable:
    """SQLite table of inodes, without a cache."""

    def __init__(self, database: Database, box: Box) -> None:
        self._database = database
        self._box = box
        self._encode = msgspec.msgpack.Encoder().encode

    def next_ino(self) -> int:
        """Return the number for the next new inode, greater than all numbers ever used."""
        row = self._database.execute(
            "SELECT seq FROM sqlite_sequence WHERE name = 'inodes'"
        ).fetchone()
        return int(row[0]) + 1 if row else 1

    # ---- writing ----

    def write(self, inode: Inode) -> None:
        """Insert or replace the inode's row."""
        self._database.execute(_UPSERT, self._row(inode))

    def write_sealed(self, inode: Inode) -> None:
        """Update the unindexed columns of a row; the INDEXED fields must be unchanged."""
        row = (inode.listed, self._sealed(inode), inode.seen, inode.ino)
        self._database.execute(_SEALED, row)

    def write_new(self, inodes: Iterable[Inode]) -> None:
        """Insert the rows of new inodes."""
        self._database.execute_many(_INSERT, map(self._row, inodes))

    def delete(self, ino: int) -> None:
        """Delete the row of an inode; its number is never used again."""
        self._database.execute("DELETE FROM inodes WHERE ino = ?", (ino,))

    def reset_seen(self, ino: int) -> None:
        """Reset `seen` in the row of an inode, so that the next listing updates the inode."""
        self._database.execute("UPDATE inodes SET seen = 0 WHERE ino = ?", (ino,))

    def mark_listings_stale(self) -> None:
        """Mark all listings as incomplete, and reset `seen` in the rows of their entries."""
        self._database.execute(
            "UPDATE inodes SET listed = 0, seen = 0"
            " WHERE local = 0 AND (remote_id IS NOT NULL OR kind = 0)"
        )

    # ---- single inodes ----

    def get(self, ino: int) -> Inode | None:
        """Return the inode with the given number, or None.

        Raises Damaged if the row is damaged and no listing could restore the row.
        """
        return next(self._select("ino = ?", (ino,)), None)

    def get_all(self, inos: Sequence[int]) -> Iterator[Inode]:
        """Yield the inodes with the given numbers, in any order; skip missing ones.

        The caller passes at most BATCH numbers.
        """
        return self._select(f"ino IN ({_marks(inos)})", inos)

    def named(self, parent: int, name: str) -> Iterator[Inode]:
        """Yield the inodes in a folder whose name has the same hash as `name`.

        Different names may have the same hash, so the caller compares the names.
        """
        return self._select("parent = ? AND mark = ?", (parent, self._mark(parent, name)))

    def by_remote(self, zone: str, remote_id: str) -> int | None:
        """Return the number of the inode of a remote entry, or None."""
        row = self._database.execute(
            "SELECT ino FROM inodes WHERE zone = ? AND remote_id = ?", (zone, remote_id)
        ).fetchone()
        return int(row[0]) if row else None

    # ---- folders ----

    def by_remotes(self, zone: str, ids: Sequence[str]) -> list[tuple[str, int, int, int]]:
        """Return (remote id, ino, parent, seen) for each of the remote `ids` that has a row.

        The caller passes at most BATCH remote ids.
        """
        return self._database.execute(
            "SELECT remote_id, ino, parent, seen FROM inodes"  # noqa: S608 - question marks only
            f" WHERE zone = ? AND remote_id IN ({_marks(ids)})",
            (zone, *ids),
        ).fetchall()

    def numbers_in(self, parent: int) -> list[int]:
        """Return the numbers of the inodes in a folder, in order of creation.

        With NOWHERE as the folder, return the numbers of the unlinked inodes.
        """
        return sorted(self._inos("parent = ?", (parent,)))

    def among(self, parent: int, inos: Collection[int]) -> list[tuple[int, str | None]]:
        """Return (number, remote id) of each inode in `inos` whose parent is the folder `parent`.

        The work depends on the size of the folder or of `inos`, whichever is smaller.
        """
        rows = self._database.execute(
            "SELECT ino, remote_id FROM inodes WHERE parent = ? LIMIT ?", (parent, len(inos) + 1)
        ).fetchall()
        if len(rows) <= len(inos):
            return [row for row in rows if row[0] in inos]
        sql = "SELECT ino, remote_id FROM inodes WHERE +parent = ? AND ino IN ({})"  # by number
        return [
            row
            for batch in batches(inos)
            for row in self._database.execute(sql.format(_marks(batch)), (parent, *batch))
        ]

    def folders_in(self, parent: int) -> dict[int, str]:
        """Return a map from inode number to remote id, for the subfolders that have a remote entry.

        The oldest subfolder comes first.
        """
        rows = self._database.execute(
            "SELECT ino, remote_id FROM inodes"
            " WHERE parent = ? AND kind < 3 AND remote_id IS NOT NULL ORDER BY ino",
            (parent,),
        )
        return dict(rows.fetchall())

    def is_above_changes(self, ino: int) -> bool:
        """Return True if the inode, or any inode below it, has local bytes or an intent."""
        found = self._database.execute(
            "WITH RECURSIVE up (ino) AS (SELECT ino FROM inodes WHERE generation > 0"
            " UNION SELECT ino FROM intents"
            " UNION SELECT inodes.parent FROM up CROSS JOIN inodes ON inodes.ino = up.ino)"
            " SELECT 1 FROM up WHERE ino = ? LIMIT 1",
            (ino,),
        )
        return found.fetchone() is not None

    def new_in(self, parent: int) -> list[int]:
        """Return the numbers of the inodes in a folder that have no entry on the service."""
        return self._inos("parent = ? AND remote_id IS NULL", (parent,))

    def names(self, inos: Sequence[int]) -> Iterator[tuple[int, int, str]]:
        """Yield (ino, parent, name) for each of the given inode numbers that has a row.

        For a damaged row, the name is `/` followed by the inode number. The caller passes at most
        BATCH numbers.
        """
        rows = self._database.execute(
            f"SELECT ino, parent, sealed FROM inodes WHERE ino IN ({_marks(inos)})",  # noqa: S608
            inos,
        )
        for ino, parent, blob in rows:
            try:
                yield ino, parent, decoded_name(self._box, ino, blob)
            except (Damaged, msgspec.MsgspecError):
                yield ino, parent, f"/{ino}"

    def has_mark(self, ino: int) -> bool:
        """Return True unless the column `mark` in the inode's row is NULL.

        See `row_upgrade.mark_names`.
        """
        found = self._database.execute(
            "SELECT 1 FROM inodes WHERE ino = ? AND mark IS NULL", (ino,)
        )
        return found.fetchone() is None

    def local_by_user(self) -> list[int]:
        """Return the numbers of the files that are local-only BY_USER and have local bytes.

        See `names.local_only_reason`.
        """
        return self._inos("generation > 0 AND local = ?", (BY_USER,))

    # ---- the whole table ----

    def numbers(self, after: int) -> list[int]:
        """Return the next inode numbers greater than `after`, at most BATCH, in ascending order."""
        return self._inos("ino > ? ORDER BY ino LIMIT ?", (after, BATCH))

    def with_bytes(self) -> dict[int, int]:
        """Return a map from inode number to generation, for all inodes with local bytes."""
        return dict(
            self._database.execute("SELECT ino, generation FROM inodes WHERE generation > 0")
        )

    def without_origin(self) -> list[int]:
        """Return the numbers of the files and folders that have no entry on the service."""
        return self._inos("remote_id IS NULL AND kind > 1")

    def counts(self) -> tuple[int, int]:
        """Return the number of inodes that are not unlinked, and the number of folders among them.

        Both numbers include the zones and the root.
        """
        (entries,), (folders,) = (
            self._database.execute(f"SELECT count(*) FROM inodes WHERE parent > 0{more}").fetchone()  # noqa: S608
            for more in ("", " AND kind < 3")
        )
        return int(entries), int(folders)

    def has_unreachable(self) -> bool:
        """Return True if the parent folder of any inode has no row.

        The check is faster than `unreachable`, but does not detect folders that contain each other.
        """
        found = self._database.execute(
            "WITH RECURSIVE folders (ino) AS (SELECT min(parent) FROM inodes WHERE parent > 0"
            " UNION ALL SELECT (SELECT min(parent) FROM inodes WHERE parent > folders.ino)"
            " FROM folders WHERE folders.ino IS NOT NULL)"
            " SELECT 1 FROM folders WHERE ino IS NOT NULL"
            " AND NOT EXISTS (SELECT 1 FROM inodes WHERE inodes.ino = folders.ino) LIMIT 1"
        )
        return found.fetchone() is not None

    def unreachable(self) -> list[int]:
        """Return the numbers of the inodes that are below neither the root nor an unlinked inode.

        The chain of parents of such an inode ends at a missing row, or is a cycle.
        """
        rows = self._database.execute(
            "WITH RECURSIVE home (ino) AS (SELECT ino FROM inodes WHERE ino = 1 OR parent = 0"
            " UNION SELECT inodes.ino FROM home JOIN inodes ON inodes.parent = home.ino)"
            " SELECT ino FROM inodes WHERE ino NOT IN (SELECT ino FROM home)"
        )
        return [ino for (ino,) in rows]

    def known(self, inos: Sequence[int]) -> set[int]:
        """Return those of the given inode numbers that have a row.

        The caller passes at most BATCH numbers.
        """
        return set(self._inos(f"ino IN ({_marks(inos)})", inos))

    # ---- rows ----

    def mark(self, said: bytes) -> int:
        """Return a hash of `said` that does not reveal the bytes; see `Sealed.mark`."""
        return self._box.mark(said)

    def _mark(self, parent: int, name: str) -> int:
        return name_mark(self._box, parent, name)

    def _row(self, inode: Inode) -> tuple[object, ...]:
        return (
            inode.ino,
            inode.parent,
            int(inode.kind),
            inode.zone,
            inode.remote_id,
            inode.generation,
            local_only_reason(inode.name) if inode.local else 0,
            inode.listed,
            self._sealed(inode),
            self._mark(inode.parent, inode.name),
            inode.seen,
        )

    def _sealed(self, inode: Inode) -> bytes:
        flags = inode.attributes
        # A tuple has the same encoding as `_Sealed` and is much faster to create.
        sealed = (
            inode.name,
            inode.remote_parent,
            inode.remote_name,
            inode.size,
            inode.mtime_ns,
            inode.ctime_ns,
            inode.mode,
            inode.modified_by,
            inode.type,
            inode.sync,
            (
                flags.executable,
                flags.hidden,
                flags.read_protected,
                flags.synchronize,
                flags.write_protected,
            ),
            inode.revision,
        )
        return self._box.seal(self._encode(sealed), b"inode %d" % inode.ino)

    def _inos(self, where: str, parameters: Sequence[object] = ()) -> list[int]:
        sql = f"SELECT ino FROM inodes WHERE {where}"  # noqa: S608 - constants only
        return [ino for (ino,) in self._database.execute(sql, parameters)]

    def _select(self, where: str, parameters: Sequence[object]) -> Iterator[Inode]:
        rows = self._database.execute(
            f"SELECT {_COLUMNS} FROM inodes WHERE {where}",  # noqa: S608 - constants only
            parameters,
        )
        return map(self._inode, rows.fetchall())

    def _inode(self, row: tuple[Any, ...]) -> Inode:
        ino, parent, kind, zone, remote_id, _, generation, local, listed, blob, _, seen = row
        if kind not in _KINDS or not isinstance(zone, str):
            repair.note_row(self._database, why := f"the row of inode {ino} is damaged")
            raise Damaged(why)
        try:
            sealed = _decode_sealed(self._box.open(blob, b"inode %d" % ino))
        except (Damaged, msgspec.MsgspecError, TypeError) as wrong:
            if remote_id is None or generation:
                raise Damaged(f"the row of inode {ino} is damaged") from wrong
            log.error("the row of inode %d is damaged: its entry is listed again", ino)
            seen, sealed = 0, _nothing(ino)
        name, remote_name, share = sealed.name, sealed.remote_name, sys.intern
        return Inode(
            ino,
            parent,
            name,
            _KINDS[kind],
            share(zone),
            remote_id,
            share(sealed.remote_parent) if sealed.remote_parent else sealed.remote_parent,
            name if remote_name == name else remote_name,
            Revision(sealed.revision),
            sealed.size,
            sealed.mtime_ns,
            sealed.ctime_ns,
            sealed.mode,
            generation,
            bool(local),
            bool(listed),
            share(sealed.modified_by),
            share(sealed.type),
            share(sealed.sync),
            _ATTRIBUTES[sealed.attributes],
            seen,
        )


def batches(items: Iterable[T], size: int = BATCH) -> Iterator[list[T]]:
    """Yield the items in lists of `size` items; the last list may be shorter."""
    rest = iter(items)
    while batch := list(islice(rest, size)):
        yield batch


def _marks(values: Sequence[object]) -> str:
    """Return question marks for an SQL statement, one for each value, separated by commas."""
    return ",".join("?" * len(values))


def _nothing(ino: int) -> _Sealed:
    """Return the values that replace the encrypted part of a damaged row."""
    return _Sealed(f"/{ino}", None, None, 0, 0, 0, None, "", "", "", (False,) * 5, "")
