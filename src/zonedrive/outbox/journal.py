"""The intents: for each inode, what of it the service must still be told.

One row an inode, not a log of operations: the row says how the service's state differs from the
local one, and the newest change simply rewrites it.  A row carries inode, content generation and
base revision, never a path, so that a rename needs no second look at it.

Must not know the tree.  Nothing here is `async`; who calls holds the transaction.

INVARIANT: the bytes of `generation` are complete in the spool before the row that names them.
INVARIANT: `seq` grows with every local change of the inode; a delivery that finds another `seq`
than the one it began with leaves the row to the next delivery.
"""

import sqlite3
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager

import msgspec

from zonedrive.causes import Cause
from zonedrive.cipher import Box, Clear
from zonedrive.db import Database
from zonedrive.errors import Damaged
from zonedrive.model import Revision
from zonedrive.observers import Observers
from zonedrive.outbox import conflicts
from zonedrive.outbox.agenda import Agenda
from zonedrive.outbox.sealing import opened, sealed

_COLUMNS = (
    "ino, seq, generation, size, base, place, gone, held, due_ns, attempts, failed, error, parked"
)
_BASE, _ERROR = 4, 11  # columns that are sealed
_FLAGS = (5, 6, 7, 12)  # columns that are true or false
_CAUSE = 10
_USES = {"base": b"intent base", "error": b"intent error"}


class Intent(msgspec.Struct, frozen=True):
    """What the service must still be told of one inode."""

    ino: int
    seq: int
    generation: int = 0  # content to send, 0: none
    size: int = 0  # bytes of that content, as last flushed
    base: Revision | None = None  # the version the change began from; None: a new file, or done
    place: bool = False  # its folder or name differs; for a folder without an id: make it
    gone: bool = False  # delete it there; with `place`: nobody takes over its identity
    held: bool = False  # a program still has it open for writing
    due_ns: int = 0  # wall clock, not before
    attempts: int = 0  # failed so far
    cause: Cause = Cause.NONE  # why the last attempt failed
    error: str = ""  # why, in one line
    parked: bool = False  # its name never leaves this machine: nothing is to be told for now

    @property
    def failed(self) -> bool:
        """Whether a person may have to act before it can be sent."""
        return self.cause.is_failure

    @property
    def final(self) -> bool:
        """Whether it is deleted as what it is, also where something new is at its place."""
        return self.gone and self.place

    def change(self, *, is_new: bool) -> str:
        """What the service is to hear: content, folder (a new one), moved or removed.

        `is_new`: whether it has nothing of this inode yet.
        """
        if self.gone:
            return "removed"
        if self.generation:
            return "content"
        return "folder" if is_new else "moved"


def create_tables(connection: sqlite3.Connection) -> None:
    """The first schema."""
    connection.execute(
        """
        CREATE TABLE intents (
            ino INTEGER PRIMARY KEY,      -- what it is about
            seq INTEGER NOT NULL,         -- grows with every local change
            generation INTEGER NOT NULL,  -- content to send, 0: none
            size INTEGER NOT NULL,        -- bytes of it
            base TEXT,                    -- revision the edit began from, NULL: a new file; sealed
            place INTEGER NOT NULL,       -- 1: folder or name differ from the service's
            gone INTEGER NOT NULL,        -- 1: to be deleted; with place: see `Intent.final`
            held INTEGER NOT NULL,        -- 1: a writer has it open; after a crash: was open
            due_ns INTEGER NOT NULL,      -- not before this time (wall clock)
            attempts INTEGER NOT NULL,    -- failed deliveries so far
            failed INTEGER NOT NULL,      -- a `Cause`, see error
            error TEXT NOT NULL           -- the last failure, one line; sealed, "" for none
        )
        """
    )
    conflicts.create_table(connection)


def add_parked(connection: sqlite3.Connection) -> None:
    """The second schema: files of the service that have a name of this machine only."""
    connection.execute("ALTER TABLE intents ADD COLUMN parked INTEGER NOT NULL DEFAULT 0")


def is_whole(row: Mapping[str, object], box: Box) -> bool:
    """Whether a row, by column, holds what an intent does, and can be read with that box."""
    try:
        texts = {name: opened(box, row.get(name), _USES[name]) for name in ("base", "error")}
        values = {**row, **texts, "cause": row.get("failed")}
        msgspec.convert(values, Intent, strict=False)
    except (msgspec.ValidationError, Damaged):
        return False
    return True


class Journal:
    """The intents, in memory and in their table."""

    def __init__(self, database: Database, box: Box | None = None) -> None:
        """Load what a former daemon left; `box` seals what names people."""
        self._database = database
        self._box = box or Clear()
        self._intents: dict[int, Intent] = {}
        self.changes: Observers[[]] = Observers()
        self.agenda = Agenda()
        self.conflicts = conflicts.Conflicts(database, self._box)
        self.changed_at = float("-inf")  # when something was changed here last (monotonic, s)
        rows = database.execute(f"SELECT {_COLUMNS} FROM intents").fetchall()  # noqa: S608
        for row in rows:
            values = list(row)
            values[_BASE] = opened(self._box, values[_BASE], _USES["base"])
            values[_ERROR] = opened(self._box, values[_ERROR], _USES["error"])
            for flag in _FLAGS:
                values[flag] = bool(values[flag])
            values[_CAUSE] = Cause(values[_CAUSE])
            intent = Intent(*values)
            self._intents[intent.ino] = intent
            self.agenda.note(intent.ino, intent)
        self._seq = max((intent.seq for intent in self._intents.values()), default=0)

    def transaction(self) -> AbstractContextManager[None]:
        """Everything inside takes effect, in memory and in the table, or nothing."""
        return self._database.transaction()

    def get(self, ino: int) -> Intent | None:
        """The intent about an inode."""
        return self._intents.get(ino)

    def all(self) -> list[Intent]:
        """Every intent, oldest change first."""
        return sorted(self._intents.values(), key=lambda intent: intent.seq)

    def pending(self) -> list[Intent]:
        """Those that the service is to hear of, oldest change first."""
        return [intent for intent in self.all() if not intent.parked]

    def leaving(self) -> list[Intent]:
        """Those of what is to be elsewhere than the service has it, or is to be deleted."""
        return [intent for intent in self.names() if intent.place or intent.gone]

    def edited(self) -> list[int]:
        """The inodes of those about new content of what the service has."""
        every = self._intents.values()
        return [each.ino for each in every if each.generation and each.base is not None]

    def names(self) -> list[Intent]:
        """Those about names, oldest change first."""
        found = [self._intents[ino] for ino in self.agenda.names]
        return sorted(found, key=lambda intent: intent.seq)

    @property
    def newest(self) -> int:
        """Grows with every local change."""
        return self._seq

    def __len__(self) -> int:
        return len(self._intents)

    # ---- local changes ----

    def content(
        self,
        ino: int,
        generation: int,
        size: int,
        *,
        base: Revision | None,
        held: bool,
        due_ns: int,
    ) -> Intent:
        """These bytes are to become the next version (or a new file).

        The base of an earlier intent stays: the edit began from it.
        """
        old = self._intents.get(ino)
        if old is not None and (old.generation or old.parked):
            base = old.base
        return self._change(
            ino,
            generation=generation,
            size=size,
            base=base,
            held=held,
            due_ns=due_ns,
        )

    def hold(self, ino: int, held: bool, due_ns: int) -> None:
        """A writer opened (or the last one closed) the file of an intent."""
        old = self._intents.get(ino)
        if old is not None and (old.held != held or old.due_ns != due_ns):
            self._put(msgspec.structs.replace(old, held=held, due_ns=due_ns))

    def hold_back(self, ino: int) -> None:
        """Do not send the content of an intent before `let_go`.  Without a row, as `let_go`."""
        old = self._intents.get(ino)
        if old is not None:
            self._set(ino, msgspec.structs.replace(old, held=True))

    def let_go(self, ino: int, due_ns: int) -> None:
        """As `hold` with False, without a row: a next start finds nobody anyway."""
        old = self._intents.get(ino)
        if old is not None:
            self._set(ino, msgspec.structs.replace(old, held=False, due_ns=due_ns))
            self.changes.notify()

    def place(self, ino: int, due_ns: int, base: Revision | None = None) -> Intent:
        """Its folder or name changed here (or it is a folder that is to be made).

        `base` is the version that was there then: should another file take over its identity, it
        follows that one.
        """
        old = self._intents.get(ino)
        if old is not None and old.base is not None:
            base = old.base
        return self._change(ino, place=True, parked=False, base=base, due_ns=due_ns)

    def park(self, ino: int, base: Revision) -> None:
        """It got a name that never leaves this machine: the service keeps what it has, as it is.

        Its content is only kept here from now on; `base` is the version that one began from.
        """
        old = self._intents.get(ino)
        if old is not None and (old.generation or old.parked):
            base = old.base or base
        self._change(
            ino, generation=0, size=0, base=base, place=True, gone=False, held=False, parked=True
        )

    def gone(self, ino: int, due_ns: int, *, final: bool = False) -> Intent:
        """It was deleted here."""
        return self._change(
            ino, generation=0, size=0, place=final, gone=True, held=False, parked=False,
            due_ns=due_ns,
        )  # fmt: skip

    def rebase(self, ino: int, base: Revision | None) -> None:
        """The content is to follow another version than the one noted."""
        old = self._intents.get(ino)
        if old is not None and old.base != base:
            self._put(msgspec.structs.replace(old, base=base))

    def drop(self, ino: int) -> None:
        """Nothing is left to tell."""
        before = self._intents.get(ino)
        if before is not None:
            self._remember(ino)
            self._database.execute("DELETE FROM intents WHERE ino = ?", (ino,))
            self._set(ino, None)
        self.changes.notify()  # also without an intent: others may have waited for its place

    # ---- the way out ----

    def done(self, intent: Intent, *, content: bool = False, place: bool = False) -> None:
        """A part of the intent is on the service; drop what has not changed since."""
        now = self._intents.get(intent.ino)
        if now is None:
            return
        fields: dict[str, object] = {"attempts": 0, "cause": Cause.NONE, "error": ""}
        if content and now.generation == intent.generation and not now.held:
            fields |= {"generation": 0, "size": 0, "base": None}
        if place and now.seq == intent.seq:
            fields["place"] = False
        left = msgspec.structs.replace(now, **fields)
        if left.generation or left.place or left.gone:
            self._put(left)
        else:
            self.drop(intent.ino)

    def postpone(self, intent: Intent, due_ns: int, error: str, cause: Cause) -> None:
        """A delivery did not succeed: try again later."""
        now = self._intents.get(intent.ino)
        if now is not None and now.seq == intent.seq:  # else due when that change says so
            self._put(
                msgspec.structs.replace(
                    now, due_ns=due_ns, attempts=now.attempts + 1, error=error, cause=cause
                )
            )

    def hurry(self, ino: int, now_ns: int) -> None:
        """Somebody waits for it: due at once, also after a failure.

        Without a row, so that a full disk keeps nobody from waiting: the next start need not know.
        """
        old = self._intents.get(ino)
        if old is not None and old.due_ns > now_ns:
            self._set(ino, msgspec.structs.replace(old, due_ns=now_ns))
            self.changes.notify()

    # ---- inside ----

    def _change(self, ino: int, **fields: object) -> Intent:
        """A local change: the newest, with a clean slate of attempts."""
        self._seq += 1
        self.changed_at = time.monotonic()
        old = self._intents.get(ino, Intent(ino, 0))
        new = msgspec.structs.replace(
            old, seq=self._seq, attempts=0, cause=Cause.NONE, error="", **fields
        )
        self._put(new)
        return new

    def _put(self, intent: Intent) -> None:
        self._remember(intent.ino)
        values = list(msgspec.structs.astuple(intent))
        values[_BASE] = sealed(self._box, intent.base, _USES["base"])
        values[_ERROR] = sealed(self._box, intent.error, _USES["error"])
        self._database.execute(
            f"INSERT OR REPLACE INTO intents ({_COLUMNS})"  # noqa: S608 - constants only
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            values,
        )
        self._set(intent.ino, intent)
        self.changes.notify()

    def _set(self, ino: int, intent: Intent | None) -> None:
        if intent is None:
            self._intents.pop(ino, None)
        else:
            self._intents[ino] = intent
        self.agenda.note(ino, intent)

    def _remember(self, ino: int) -> None:
        """Should the transaction fail, memory is again what the table is."""
        before = self._intents.get(ino)
        self._database.on_rollback(lambda: self._set(ino, before))


def due_in(seconds: float) -> int:
    """The wall clock time that many seconds from now, in nanoseconds."""
    return time.time_ns() + int(seconds * 1e9)


def waiting(database: Database) -> tuple[int, int, int]:
    """Count the intents, the bytes of their content, and how many of them have none.

    For whoever has neither daemon nor key.  Raises OSError, StoreError.
    """
    sums = (
        "SELECT count(*), coalesce(sum(CASE WHEN generation THEN size END), 0),"
        " count(*) - count(nullif(generation, 0)) FROM intents WHERE NOT parked"
    )
    files, size, changes = map(int, database.execute(sums).fetchone())
    return files, size, changes
