"""Pending requests: requests with an unknown outcome.

A request is recorded before it is sent, and its record is removed when the response arrives. If the
response is lost or the daemon dies, the request may have created a version, a file or a folder, or
moved an entry. The record holds the target folder and name, and prevents the deletion of the sent
bytes. The result of the request can therefore be recognised on the service later, even if the local
file has been edited, renamed or removed since.

This module does not use inodes, the spool or the service, and none of its functions is `async`. The
caller holds the transaction.

INVARIANT: an inode has at most one pending request.
"""

import sqlite3
from collections.abc import Mapping
from typing import Any

import msgspec

from zonedrive.cipher import Box
from zonedrive.db import Database
from zonedrive.snapshot import Snapshot
from zonedrive.state import outbox_states
from zonedrive.state.outbox_states import Request


class PendingRequest(msgspec.Struct, frozen=True):
    """Request that may have taken effect on the service."""

    ino: int  # inode that the outcome concerns
    bytes_ino: int  # the generation that was sent is in the spool under this inode
    generation: int  # 0: the request creates a folder or moves an entry
    size: int  # bytes of that generation
    zone: str
    folder: str  # id of the target folder
    name: str  # name in the request
    remote_id: str | None  # entry that gets a version or is moved; None: a new entry

    @property
    def is_move(self) -> bool:
        """True if the request moves an existing entry to `folder` and `name`."""
        return self.remote_id is not None and not self.generation

    @property
    def state(self) -> Request:
        """State of the request in the transition table of `outbox_states`."""
        if self.generation:
            return Request.UPLOAD
        return Request.NEW_FOLDER if self.remote_id is None else Request.RELOCATION


class _Sealed(msgspec.Struct, eq=False, array_like=True):
    """Encrypted part of a row."""

    zone: str
    folder: str
    name: str
    remote_id: str | None


def create_table(connection: sqlite3.Connection) -> None:
    """Create the table of pending requests (`doubts`) of the fourth schema."""
    connection.execute(
        """
        CREATE TABLE doubts (
            ino INTEGER PRIMARY KEY,      -- inode that gets the outcome
            bytes_ino INTEGER NOT NULL,   -- with `generation`: the sent bytes in the spool
            generation INTEGER NOT NULL,  -- 0: a folder, or a move
            size INTEGER NOT NULL,        -- size of the sent bytes
            sealed BLOB NOT NULL          -- target of the request: _Sealed, encrypted
        )
        """
    )


def check_row(row: Mapping[str, Any], box: Box) -> None:
    """Decode a row (values by column name) with `box`; raise an error if the row is damaged.

    The error is one of those that `schema.whole` handles.
    """
    context = _context(row["bytes_ino"], row["generation"])
    msgspec.msgpack.decode(box.open(row["sealed"], context), type=_Sealed)


class PendingRequests:
    """Requests with an unknown outcome, held in memory and in a SQLite table."""

    def __init__(self, database: Database, box: Box) -> None:
        """Load the requests that an earlier daemon recorded.

        Raises Damaged or MsgspecError if a row is damaged.
        """
        self._database = database
        self._box = box
        self._requests: dict[int, PendingRequest] = {}
        decode = msgspec.msgpack.Decoder(_Sealed).decode
        rows = database.execute("SELECT ino, bytes_ino, generation, size, sealed FROM doubts")
        for ino, bytes_ino, generation, size, blob in rows:
            where = decode(box.open(blob, _context(bytes_ino, generation)))
            self._requests[ino] = PendingRequest(
                ino, bytes_ino, generation, size, *msgspec.structs.astuple(where)
            )

    def get(self, ino: int) -> PendingRequest | None:
        """Return the pending request of an inode, or None."""
        return self._requests.get(ino)

    def snapshot(self, request: PendingRequest) -> Snapshot[PendingRequest | None]:
        """Return a snapshot of a request.

        The snapshot becomes stale when the request has ended or was passed on to another inode.
        """
        return Snapshot.of(request, lambda: self._requests.get(request.ino))

    def present(self, sent: PendingRequest) -> PendingRequest | None:
        """Return the current record of a request, or None if the request is no longer pending.

        The record may have been passed on to another inode, so the inode number is not compared.
        All other fields are compared, because a new file may be uploaded, renamed over another
        file, and uploaded again as a version of that file's entry.
        """
        if self._requests.get(sent.ino) == sent:
            return sent
        passed_on = msgspec.structs.replace
        return next((it for it in self.all() if passed_on(sent, ino=it.ino) == it), None)

    def all(self) -> list[PendingRequest]:
        """Return all pending requests."""
        return list(self._requests.values())

    def moved_to(self, folder: str, name: str) -> list[PendingRequest]:
        """Return the pending moves to the name `name` in the folder with the remote id `folder`."""
        return [
            each
            for each in self._requests.values()
            if each.is_move and (each.folder, each.name) == (folder, name)
        ]

    def names_in(self, folder: str) -> set[str]:
        """Return the names of entries that pending requests may have created in a folder.

        `folder` is the remote id of the folder.
        """
        return {
            each.name
            for each in self._requests.values()
            if each.folder == folder and each.remote_id is None
        }

    def keeps(self, ino: int, generation: int) -> bool:
        """Return True if a pending request sent these bytes, so that they must not be deleted.

        The bytes are needed later for a comparison with the service's content.
        """
        sent = (ino, generation)
        requests = self._requests.values()
        return any(sent == (it.bytes_ino, it.generation) for it in requests if it.generation)

    def note(self, request: PendingRequest) -> None:
        """Record a request, before it is sent or when `pass_on` gives it to another inode."""
        self._database.restore_on_rollback(self._requests, request.ino)
        self._check(request.ino, request.state)
        where = _Sealed(request.zone, request.folder, request.name, request.remote_id)
        blob = self._box.seal(
            msgspec.msgpack.encode(where), _context(request.bytes_ino, request.generation)
        )
        self._database.execute(
            "INSERT OR REPLACE INTO doubts (ino, bytes_ino, generation, size, sealed)"
            " VALUES (?, ?, ?, ?, ?)",
            (request.ino, request.bytes_ino, request.generation, request.size, blob),
        )
        self._requests[request.ino] = request

    def pass_on(self, ino: int, new_ino: int) -> None:
        """Reassign the pending request of the inode `ino`, if any, to the inode `new_ino`."""
        request = self._requests.get(ino)
        if request is not None:
            self._delete(ino)
            self.note(msgspec.structs.replace(request, ino=new_ino))

    def drop(self, ino: int) -> None:
        """Delete the pending request of an inode, if there is one.

        Call this method when the outcome of the request is known or no longer matters.
        """
        if ino in self._requests:
            self._delete(ino)

    def _delete(self, ino: int) -> None:
        self._database.restore_on_rollback(self._requests, ino)
        self._check(ino, Request.NONE)
        self._database.execute("DELETE FROM doubts WHERE ino = ?", (ino,))
        del self._requests[ino]

    def _check(self, ino: int, after: Request) -> None:
        before = self._requests.get(ino)
        outbox_states.check_request(before.state if before else Request.NONE, after)


def _context(bytes_ino: int, generation: int) -> bytes:
    return b"doubt %d %d" % (bytes_ino, generation)
