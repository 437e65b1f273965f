"""Pending requests: requests with an unknown outcome.

A request is recorded before it is sent and removed when its reply arrives.  If the reply is lost or
the daemon dies, the request may have created a version, a file or a folder, or moved an entry.  The
record holds the target place, and keeps the sent bytes from being deleted.  The entry on the
service can therefore be recognised later, also when the local file has been edited, renamed or
removed since.

Knows nothing about tree, spool or service.  Nothing here is `async`; the caller holds the
transaction.

INVARIANT: an inode has at most one pending request.
"""

import sqlite3
from collections.abc import Mapping

import msgspec

from zonedrive.cipher import Box
from zonedrive.db import Database
from zonedrive.errors import Damaged


class PendingRequest(msgspec.Struct, frozen=True):
    """Request that may have taken effect."""

    ino: int  # inode that the outcome concerns now
    bytes_ino: int  # the generation that was sent is in the spool under this inode
    generation: int  # 0: the request creates a folder or moves an entry
    size: int  # bytes of that generation
    zone: str
    folder: str  # id of the target folder
    name: str  # name in the request
    remote_id: str | None  # entry to get a version, or to be moved; None: a new entry

    @property
    def is_move(self) -> bool:
        """Return True if the request moves an entry to this folder and name."""
        return self.remote_id is not None and not self.generation


class _Sealed(msgspec.Struct, eq=False, array_like=True):
    """Encrypted part of a row."""

    zone: str
    folder: str
    name: str
    remote_id: str | None


def create_table(connection: sqlite3.Connection) -> None:
    """Create the table of the second schema."""
    connection.execute(
        """
        CREATE TABLE doubts (
            ino INTEGER PRIMARY KEY,      -- whose matter it is
            bytes_ino INTEGER NOT NULL,   -- with generation: the sent bytes in the spool
            generation INTEGER NOT NULL,  -- 0: a folder, or a move
            size INTEGER NOT NULL,        -- bytes of the generation
            sealed BLOB NOT NULL          -- where it was sent to: _Sealed, encrypted
        )
        """
    )


def is_whole(row: Mapping[str, object], box: Box) -> bool:
    """Return True if a row, given by column, can be decrypted with `box`."""
    try:
        context = _context(int(str(row["bytes_ino"])), int(str(row["generation"])))
        sealed = box.open(bytes(row["sealed"]), context)  # type: ignore[call-overload]
        msgspec.msgpack.decode(sealed, type=_Sealed)
    except (Damaged, msgspec.MsgspecError, TypeError, ValueError):
        return False
    return True


class PendingRequests:
    """Pending requests, in memory and in their table."""

    def __init__(self, database: Database, box: Box) -> None:
        """Load the rows of an earlier daemon."""
        self._database = database
        self._box = box
        self._doubts: dict[int, PendingRequest] = {}
        decode = msgspec.msgpack.Decoder(_Sealed).decode
        rows = database.execute("SELECT ino, bytes_ino, generation, size, sealed FROM doubts")
        for ino, bytes_ino, generation, size, blob in rows:
            where = decode(box.open(blob, _context(bytes_ino, generation)))
            self._doubts[ino] = PendingRequest(
                ino, bytes_ino, generation, size, *msgspec.structs.astuple(where)
            )

    def get(self, ino: int) -> PendingRequest | None:
        """Return the pending request of an inode, or None."""
        return self._doubts.get(ino)

    def all(self) -> list[PendingRequest]:
        """Return all pending requests."""
        return list(self._doubts.values())

    def moved_to(self, folder: str, name: str) -> list[PendingRequest]:
        """Return the pending moves to the given folder and name."""
        return [
            each
            for each in self._doubts.values()
            if each.is_move and (each.folder, each.name) == (folder, name)
        ]

    def names_in(self, folder: str) -> set[str]:
        """Return names under which new entries may have arrived in the folder with the given id."""
        return {
            each.name
            for each in self._doubts.values()
            if each.folder == folder and each.remote_id is None
        }

    def keeps(self, ino: int, generation: int) -> bool:
        """Return True if these bytes in the spool are still needed for a comparison."""
        sent = (ino, generation)
        doubts = self._doubts.values()
        return any(sent == (it.bytes_ino, it.generation) for it in doubts if it.generation)

    def note(self, doubt: PendingRequest) -> None:
        """Record a request before it is sent."""
        self._remember(doubt.ino)
        where = _Sealed(doubt.zone, doubt.folder, doubt.name, doubt.remote_id)
        blob = self._box.seal(
            msgspec.msgpack.encode(where), _context(doubt.bytes_ino, doubt.generation)
        )
        self._database.execute(
            "INSERT OR REPLACE INTO doubts (ino, bytes_ino, generation, size, sealed)"
            " VALUES (?, ?, ?, ?, ?)",
            (doubt.ino, doubt.bytes_ino, doubt.generation, doubt.size, blob),
        )
        self._doubts[doubt.ino] = doubt

    def pass_on(self, ino: int, heir: int) -> None:
        """Reassign the pending request of an inode to the inode `heir`."""
        doubt = self._doubts.get(ino)
        if doubt is not None:
            self.drop(ino)
            self.note(msgspec.structs.replace(doubt, ino=heir))

    def drop(self, ino: int) -> None:
        """Delete the pending request of an inode, because its outcome is known."""
        if ino in self._doubts:
            self._remember(ino)
            self._database.execute("DELETE FROM doubts WHERE ino = ?", (ino,))
            del self._doubts[ino]

    def _remember(self, ino: int) -> None:
        """Restore the request in memory if the transaction is rolled back."""
        before = self._doubts.get(ino)
        if before is None:
            self._database.on_rollback(lambda: self._doubts.pop(ino, None))
        else:
            self._database.on_rollback(lambda: self._doubts.__setitem__(ino, before))


def _context(bytes_ino: int, generation: int) -> bytes:
    return b"doubt %d %d" % (bytes_ino, generation)
