"""The table of inodes.

Rows are written through at once; who calls holds the transaction.  Names are sealed with the
account's box, so that the file tells nobody how the documents are called.
"""

import sqlite3
from collections.abc import Iterator, Mapping

import msgspec

from zonedrive.cipher import Box
from zonedrive.db import Database
from zonedrive.errors import Damaged
from zonedrive.model import Attributes, Revision
from zonedrive.tree.inode import Inode, Kind

_COLUMNS = "ino, parent, kind, zone, remote_id, revision, generation, local, listed, sealed"


class _Sealed(msgspec.Struct, array_like=True):
    """What is encrypted of a row."""

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


def create_table(connection: sqlite3.Connection) -> None:
    """The first schema."""
    connection.execute(
        """
        CREATE TABLE inodes (
            ino INTEGER PRIMARY KEY AUTOINCREMENT, -- never used again
            parent INTEGER NOT NULL,      -- ino of the folder, 0 once unlinked
            kind INTEGER NOT NULL,        -- tree.inode.Kind
            zone TEXT NOT NULL,           -- id of the zone, '' for the root
            remote_id TEXT,               -- the service's id, NULL for what it has not seen
            revision TEXT NOT NULL,       -- model.Revision last heard of
            generation INTEGER NOT NULL,  -- of the bytes in the spool, 0: none
            local INTEGER NOT NULL,       -- 1: never leaves this machine
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


def is_whole(row: Mapping[str, object], box: Box) -> bool:
    """Whether a row, by column, can be read with that box."""
    try:
        ino = row["ino"]
        assert isinstance(ino, int)
        sealed = box.open(bytes(row["sealed"]), b"inode %d" % ino)  # type: ignore[call-overload]
        msgspec.msgpack.decode(sealed, type=_Sealed)
        Kind(int(str(row["kind"])))
    except (Damaged, msgspec.MsgspecError, TypeError, ValueError, AssertionError):
        return False
    return True


class InodeStore:
    """Inodes as rows."""

    def __init__(self, database: Database, box: Box) -> None:
        self._database = database
        self._box = box
        self._encode = msgspec.msgpack.Encoder().encode
        self._decode = msgspec.msgpack.Decoder(_Sealed).decode

    def next_ino(self) -> int:
        """The first number that no inode has had."""
        row = self._database.execute(
            "SELECT seq FROM sqlite_sequence WHERE name = 'inodes'"
        ).fetchone()
        return int(row[0]) + 1 if row else 1

    def write(self, inode: Inode) -> None:
        """Insert or replace the inode's row."""
        flags = inode.attributes
        sealed = _Sealed(
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
        )
        self._database.execute(
            f"INSERT INTO inodes ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"  # noqa: S608
            " ON CONFLICT (ino) DO UPDATE SET parent = excluded.parent, kind = excluded.kind,"
            " zone = excluded.zone, remote_id = excluded.remote_id, revision = excluded.revision,"
            " generation = excluded.generation, local = excluded.local, listed = excluded.listed,"
            " sealed = excluded.sealed",
            (
                inode.ino,
                inode.parent,
                int(inode.kind),
                inode.zone,
                inode.remote_id,
                inode.revision,
                inode.generation,
                inode.local,
                inode.listed,
                self._box.seal(self._encode(sealed), b"inode %d" % inode.ino),
            ),
        )

    def delete(self, ino: int) -> None:
        """Remove the row; its number stays used."""
        self._database.execute("DELETE FROM inodes WHERE ino = ?", (ino,))

    def get(self, ino: int) -> Inode | None:
        """The inode of that number."""
        return next(self._select("ino = ?", ino), None)

    def by_remote(self, zone: str, remote_id: str) -> int | None:
        """The number of the inode that stands for the service's entry."""
        row = self._database.execute(
            "SELECT ino FROM inodes WHERE zone = ? AND remote_id = ?", (zone, remote_id)
        ).fetchone()
        return int(row[0]) if row else None

    def numbers(self) -> list[int]:
        """Of every inode there is a row of."""
        return [ino for (ino,) in self._database.execute("SELECT ino FROM inodes")]

    def children(self, parent: int) -> Iterator[Inode]:
        """The inodes in a folder (or, of NOWHERE, the unlinked ones)."""
        return self._select("parent = ?", parent)

    def with_bytes(self) -> dict[int, int]:
        """Generation of the local bytes by ino, of those that have any."""
        return dict(
            self._database.execute("SELECT ino, generation FROM inodes WHERE generation > 0")
        )

    def without_origin(self) -> list[int]:
        """Numbers of the inodes that the service has never seen."""
        rows = self._database.execute("SELECT ino FROM inodes WHERE remote_id IS NULL AND kind > 1")
        return [int(ino) for (ino,) in rows]

    def counts(self) -> tuple[int, int]:
        """(all entries, folders among them)."""
        row = self._database.execute(
            "SELECT count(*), count(*) FILTER (WHERE kind < 3) FROM inodes WHERE parent > 0"
        ).fetchone()
        return int(row[0]), int(row[1])

    def _select(self, where: str, *parameters: object) -> Iterator[Inode]:
        rows = self._database.execute(
            f"SELECT {_COLUMNS} FROM inodes WHERE {where}",  # noqa: S608 - constants only
            parameters,
        )
        for ino, parent, kind, zone, remote_id, revision, generation, local, listed, blob in rows:
            sealed = self._decode(self._box.open(blob, b"inode %d" % ino))
            yield Inode(
                ino=ino,
                parent=parent,
                name=sealed.name,
                kind=Kind(kind),
                zone=zone,
                remote_id=remote_id,
                remote_parent=sealed.remote_parent,
                remote_name=sealed.remote_name,
                revision=Revision(revision),
                size=sealed.size,
                mtime_ns=sealed.mtime_ns,
                ctime_ns=sealed.ctime_ns,
                mode=sealed.mode,
                generation=generation,
                local=bool(local),
                listed=bool(listed),
                modified_by=sealed.modified_by,
                type=sealed.type,
                sync=sealed.sync,
                attributes=Attributes(*sealed.attributes),
            )
