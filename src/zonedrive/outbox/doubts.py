"""Requests whose outcome is not known: noted before they are sent, forgotten with their answer.

A request whose reply was lost, or during which the daemon died, may have made a version, a file
or a folder, or have moved an entry.  The note says what was to be made where, and keeps the sent
bytes from being deleted, so that what the service has can later be recognised as ours: also when
the file here has been edited, renamed or removed since.

Must not know tree, spool or service.  Nothing here is `async`; who calls holds the transaction.

INVARIANT: of one inode at most one request is in doubt.
"""

import sqlite3
from collections.abc import Mapping

import msgspec

from zonedrive.cipher import Box
from zonedrive.db import Database
from zonedrive.errors import Damaged


class Doubt(msgspec.Struct, frozen=True):
    """A request that may have taken effect."""

    ino: int  # whose matter it is now
    bytes_ino: int  # the generation that was sent is in the spool under this inode
    generation: int  # 0: a folder was to be made, or an entry moved
    size: int  # bytes of that generation
    zone: str
    folder: str  # id of the folder it was to be in
    name: str  # under which it was sent
    remote_id: str | None  # what was to get a version, or to be moved; None: a new entry

    @property
    def is_move(self) -> bool:
        """Whether an entry was to get this folder and name."""
        return self.remote_id is not None and not self.generation


class _Sealed(msgspec.Struct, eq=False, array_like=True):
    """What is encrypted of a row."""

    zone: str
    folder: str
    name: str
    remote_id: str | None


def create_table(connection: sqlite3.Connection) -> None:
    """The second schema."""
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
    """Whether a row, by column, can be read with that box."""
    try:
        context = _context(int(str(row["bytes_ino"])), int(str(row["generation"])))
        sealed = box.open(bytes(row["sealed"]), context)  # type: ignore[call-overload]
        msgspec.msgpack.decode(sealed, type=_Sealed)
    except (Damaged, msgspec.MsgspecError, TypeError, ValueError):
        return False
    return True


class Doubts:
    """The requests in doubt, in memory and in their table."""

    def __init__(self, database: Database, box: Box) -> None:
        """Load what a former daemon left."""
        self._database = database
        self._box = box
        self._doubts: dict[int, Doubt] = {}
        decode = msgspec.msgpack.Decoder(_Sealed).decode
        rows = database.execute("SELECT ino, bytes_ino, generation, size, sealed FROM doubts")
        for ino, bytes_ino, generation, size, blob in rows:
            where = decode(box.open(blob, _context(bytes_ino, generation)))
            self._doubts[ino] = Doubt(
                ino, bytes_ino, generation, size, *msgspec.structs.astuple(where)
            )

    def get(self, ino: int) -> Doubt | None:
        """The request about an inode."""
        return self._doubts.get(ino)

    def all(self) -> list[Doubt]:
        """Every request in doubt."""
        return list(self._doubts.values())

    def moved_to(self, folder: str, name: str) -> list[Doubt]:
        """Moves that may have brought something to that place."""
        return [
            each
            for each in self._doubts.values()
            if each.is_move and (each.folder, each.name) == (folder, name)
        ]

    def names_in(self, folder: str) -> set[str]:
        """The names under which something new may have arrived in the folder with that id."""
        return {
            each.name
            for each in self._doubts.values()
            if each.folder == folder and each.remote_id is None
        }

    def keeps(self, ino: int, generation: int) -> bool:
        """Whether these bytes in the spool are still needed for a comparison."""
        sent = (ino, generation)
        doubts = self._doubts.values()
        return any(sent == (it.bytes_ino, it.generation) for it in doubts if it.generation)

    def note(self, doubt: Doubt) -> None:
        """The request is about to be sent."""
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
        """What came of the request is from now on the matter of another inode."""
        doubt = self._doubts.get(ino)
        if doubt is not None:
            self.drop(ino)
            self.note(msgspec.structs.replace(doubt, ino=heir))

    def drop(self, ino: int) -> None:
        """It is known what came of it."""
        if ino in self._doubts:
            self._remember(ino)
            self._database.execute("DELETE FROM doubts WHERE ino = ?", (ino,))
            del self._doubts[ino]

    def _remember(self, ino: int) -> None:
        """Should the transaction fail, memory is again what the table is."""
        before = self._doubts.get(ino)
        if before is None:
            self._database.on_rollback(lambda: self._doubts.pop(ino, None))
        else:
            self._database.on_rollback(lambda: self._doubts.__setitem__(ino, before))


def _context(bytes_ino: int, generation: int) -> bytes:
    return b"doubt %d %d" % (bytes_ino, generation)
