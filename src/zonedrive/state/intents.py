"""Journal of intents: for each inode, the local changes that the service does not have yet.

The table has one row for each inode. It is not a log of operations: a row states how the service's
state differs from the local state, and a newer change overwrites the row. A row holds the inode
number, the content generation and the base revision, but no path. So a rename of a folder changes
no rows of the entries below the folder.

This module does not use the tree of inodes, and none of its functions is `async`. The caller holds
the transaction, except where a docstring says otherwise.

INVARIANT: the bytes of `generation` are complete in the spool before the row that names them is
written.

INVARIANT: `seq` grows with every local change of the inode. If `seq` has grown during a delivery,
the newer change stays in the row for the next delivery.
"""

import heapq
import sqlite3
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from enum import Enum, auto

import msgspec

from zonedrive.causes import Cause
from zonedrive.cipher import Box, Clear
from zonedrive.db import Database
from zonedrive.errors import Damaged
from zonedrive.model import Revision
from zonedrive.observers import Observers
from zonedrive.snapshot import Snapshot
from zonedrive.state import outbox_states
from zonedrive.state.outbox_states import Change, Event

_COLUMNS = (
    "ino, seq, generation, size, base, place, gone, held, due_ns, attempts, failed, error, parked,"
    " left_folder, left_name"
)
"""Columns in the order of the fields of `Intent`; the column `failed` is the field `cause`."""

_USES = {
    "base": b"intent base",
    "error": b"intent error",
    "left_name": b"intent left name",
}  # encrypted columns
_BY = b"conflict by"
STALE = 1000  # items that `DueQueue` may keep needlessly while nothing is sent, such as offline
_OF_ENTRY = "(SELECT -number FROM moved_conflicts WHERE (zone, remote_id) = (?, ?))"


LocalPlace = tuple[int, str]
"""Inode number of a folder, and the local name of a file in the folder."""


class Failure(Enum):
    """Kind of failure that is counted separately, see `IntentTable.count_failure`."""

    COMPARISON = auto()  # a version on the service could not be read for a comparison
    COPY = auto()  # the content of open files could not be copied before a deletion
    UNLISTED_NAME = auto()  # the name is in use on the service, but not listed there
    TEMPORARY_NAME = auto()  # the file has a temporary name on the service
    GATEWAY = auto()  # a gateway rejected a rename, a move or a removal
    UNUSABLE_REPLY = auto()  # the response to an upload was unusable, see `UnusableReply`


class Intent(msgspec.Struct, frozen=True):
    """Local changes of one inode that the service does not have yet."""

    ino: int
    seq: int
    generation: int = 0  # content to send, 0: none
    size: int = 0  # bytes of that content, as last flushed
    base: Revision | None = None  # version that was edited; None: a new file, or already sent
    place: bool = False  # send the new folder or name; for a new folder: create it
    gone: bool = False  # delete the entry; with `place`: no new file takes over the entry
    held: bool = False  # a program still has the file open; never True after a restart
    due_ns: int = 0  # earliest time to send (wall clock)
    attempts: int = 0  # failed attempts, whatever their causes
    cause: Cause = Cause.NONE  # why the last attempt failed
    error: str = ""  # why the last attempt failed, in one line
    parked: bool = False  # the name is now local-only, and the entry keeps its old name
    # Last local place of a file that was removed or renamed there, if the remote name does not tell
    # the place: inode number of the folder, and name.
    left_folder: int = 0
    left_name: str | None = None

    @property
    def failed(self) -> bool:
        """True if the user may have to act before the change can be sent."""
        return self.cause.is_failure

    @property
    def final(self) -> bool:
        """True if the entry is to be deleted even if a new file takes its folder and name.

        After a removal that is not final, the content of such a file becomes the next version of
        the entry.
        """
        return self.gone and self.place

    @property
    def keeps_base(self) -> bool:
        """True if local content is based on `base`, so that a newer version is a conflict.

        True for new content and for parked files. For any other rename, and for a removal,
        `base` is only the version that the file had when it was renamed or removed.
        """
        return bool(self.generation) or self.parked

    @property
    def concerns_name(self) -> bool:
        """True for a new folder, a rename or move, a deletion, or a parked file.

        See `IntentTable.park` for parked files.
        """
        return self.place or self.gone or self.parked

    @property
    def plan(self) -> tuple[object, ...]:
        """Fields that state what to send, without the due time and the failed attempts."""
        asked = self.seq, self.generation, self.place, self.gone, self.held, self.parked
        return *asked, self.left

    @property
    def left(self) -> LocalPlace | None:
        """Last local place of a renamed or removed file, or None.

        The place is set only if the earlier rename to it was never sent, or if its name has a hash
        suffix that the service's name does not have (see `names`). A new file at this place takes
        over the entry.
        """
        return None if self.left_name is None else (self.left_folder, self.left_name)

    @property
    def state(self) -> Change:
        """State of the change in the transition table of `outbox_states`."""
        if self.parked:
            return Change.PARKED
        if self.gone:
            if self.place:
                return Change.DELETED
            return Change.REMOVED_IN_USE if self.held else Change.REMOVED
        if not self.generation:
            return Change.MOVED if self.place else Change.NONE
        if self.place:
            return Change.OPEN_MOVED if self.held else Change.SAVED_MOVED
        return Change.OPEN if self.held else Change.SAVED

    def change(self, *, is_new: bool) -> str:
        """Return the kind of change: "content", "folder" (a new folder), "moved" or "removed".

        `is_new` tells whether the service has no entry for this inode yet.
        """
        if self.gone:
            return "removed"
        if self.generation:
            return "content"
        return "folder" if is_new else "moved"


class Conflict(msgspec.Struct, frozen=True):
    """Record of a conflict copy: a local version that was kept next to a coworker's version."""

    ino: int  # inode number of the copy
    original: int  # inode number of the file whose content conflicts
    by: str  # user id of the other version's author
    at_ns: int


def create_tables(connection: sqlite3.Connection) -> None:
    """Create the tables `intents` and `conflicts` of the fourth schema."""
    connection.execute(
        """
        CREATE TABLE intents (
            ino INTEGER PRIMARY KEY,      -- inode that changes
            seq INTEGER NOT NULL,         -- grows with every local change
            generation INTEGER NOT NULL,  -- generation of the content to send; 0: none
            size INTEGER NOT NULL,        -- size of that content, in bytes
            base TEXT,                    -- revision that was edited, encrypted; NULL: a new file
            place INTEGER NOT NULL,       -- 1: the folder or name differs from the service's
            gone INTEGER NOT NULL,        -- 1: deletion; with `place`, see `Intent.final`
            held INTEGER NOT NULL,        -- 1: a writer has, or before a crash had, the file open
            due_ns INTEGER NOT NULL,      -- earliest time of the next attempt (wall clock)
            attempts INTEGER NOT NULL,    -- number of failed attempts
            failed INTEGER NOT NULL,      -- `Cause` of the last failure
            error TEXT NOT NULL,          -- one line about the last failure, encrypted; "": none
            parked INTEGER NOT NULL DEFAULT 0 -- 1: a parked file, see `park`
        )
        """
    )
    connection.execute(
        """
        CREATE TABLE conflicts (
            ino INTEGER PRIMARY KEY,      -- inode of the conflict copy
            original INTEGER NOT NULL,    -- inode of the file that kept the name
            by TEXT NOT NULL,             -- id of the other version's author, encrypted
            at_ns INTEGER NOT NULL        -- time of the conflict (wall clock)
        )
        """
    )


def add_told(connection: sqlite3.Connection) -> None:
    """Migrate to the fifth schema: record which conflicts the user has been told about.

    All existing conflicts are marked as told.
    """
    connection.execute("ALTER TABLE conflicts ADD COLUMN told INTEGER NOT NULL DEFAULT 1")


def add_left(connection: sqlite3.Connection) -> None:
    """Migrate to the tenth schema: record the last local place of removed and renamed files."""
    connection.execute("ALTER TABLE intents ADD COLUMN left_folder INTEGER NOT NULL DEFAULT 0")
    connection.execute("ALTER TABLE intents ADD COLUMN left_name TEXT")  # sealed


def end_with_inodes(connection: sqlite3.Connection) -> None:
    """Migrate to the seventh schema: delete a conflict together with the inode of its copy."""
    connection.execute("DELETE FROM conflicts WHERE ino NOT IN (SELECT ino FROM inodes)")
    connection.execute(
        "CREATE TRIGGER conflicts_end AFTER DELETE ON inodes"
        " BEGIN DELETE FROM conflicts WHERE ino = OLD.ino; END"
    )


def keep_moved(connection: sqlite3.Connection) -> None:
    """Migrate to the ninth schema: keep a conflict while its files have no inode.

    A coworker may move a folder that contains a conflict copy or its original. If the old parent
    folder is listed first, the inodes are deleted, and later created again for the same entries. In
    the meantime, the conflict refers to the negated `number` of a row in `moved_conflicts`.
    """
    connection.execute(
        """
        CREATE TABLE moved_conflicts (
            number INTEGER PRIMARY KEY AUTOINCREMENT,
            zone TEXT NOT NULL,
            remote_id TEXT NOT NULL,
            UNIQUE (zone, remote_id)
        )
        """
    )
    connection.execute("CREATE INDEX conflicts_by_original ON conflicts (original)")
    connection.execute("DROP TRIGGER conflicts_end")
    number = (
        "(SELECT -number FROM moved_conflicts WHERE (zone, remote_id) = ({0}.zone, {0}.remote_id))"
    )
    old, new = number.format("OLD"), number.format("NEW")
    connection.execute(
        f"""
        CREATE TRIGGER conflicts_end AFTER DELETE ON inodes
        WHEN EXISTS (SELECT 1 FROM conflicts WHERE ino = OLD.ino OR original = OLD.ino)
        BEGIN
            INSERT OR IGNORE INTO moved_conflicts (zone, remote_id)
                SELECT OLD.zone, OLD.remote_id WHERE OLD.remote_id IS NOT NULL;
            UPDATE OR REPLACE conflicts SET ino = {old}
                WHERE ino = OLD.ino AND OLD.remote_id IS NOT NULL;
            UPDATE conflicts SET original = {old}
                WHERE original = OLD.ino AND OLD.remote_id IS NOT NULL;
            DELETE FROM conflicts WHERE ino = OLD.ino;
        END
        """  # noqa: S608 - no value from outside
    )
    connection.execute(
        f"""
        CREATE TRIGGER conflicts_return AFTER INSERT ON inodes
        WHEN EXISTS (
            SELECT 1 FROM moved_conflicts WHERE (zone, remote_id) = (NEW.zone, NEW.remote_id)
        )
        BEGIN
            UPDATE OR REPLACE conflicts SET ino = NEW.ino WHERE ino = {new};
            UPDATE conflicts SET original = NEW.ino WHERE original = {new};
            DELETE FROM moved_conflicts WHERE (zone, remote_id) = (NEW.zone, NEW.remote_id);
        END
        """  # noqa: S608
    )


def check_conflict(row: Mapping[str, object], box: Box) -> None:
    """Decode the row of a conflict (values by column name) with `box`.

    If the row is damaged, raises one of the errors that `schema.whole` handles.
    """
    msgspec.convert({**row, "by": opened(box, row.get("by"), _BY)}, Conflict, strict=False)


class DueQueue:
    """Inode numbers of the intents, by kind and by due time.

    The outbox looks up its next step after every change, request and response, so a lookup must not
    scan all intents. Intents that concern names depend on each other, so they are always planned
    together. The other intents, which concern only content, are sorted by due time.
    """

    def __init__(self) -> None:
        self.names: set[int] = set()
        self.parked: set[int] = set()  # subset of `names`
        # Inodes with a change that concerns names, since the planner last cleared the set.
        self.changed: set[int] = set()
        self.unindexed: set[int] = set()  # with changes that `LeavingEntries` has not read yet
        self._due: dict[int, int] = {}  # due times of contents that no writer has open, by inode
        self._heap: list[tuple[int, int]] = []  # (due, ino); some items are stale
        self._ripe: dict[int, None] = {}  # inodes of due contents, earliest due time first

    def note(self, ino: int, before: Intent | None, intent: Intent | None) -> None:
        """Update the queue for an inode whose intent was `before` and is now `intent`.

        None means no intent.
        """
        named = intent is not None and intent.concerns_name
        if named or ino in self.names:
            if (before and before.plan) != (intent and intent.plan):
                self.changed.add(ino)
                if len(self.changed) > STALE:
                    self.changed = {0}  # not an inode, so that the set is not empty until cleared
            self.unindexed.add(ino)
            (self.names.add if named else self.names.discard)(ino)
            is_parked = intent is not None and intent.parked
            (self.parked.add if is_parked else self.parked.discard)(ino)
        if intent is None or named or intent.held:
            self._due.pop(ino, None)
            self._ripe.pop(ino, None)
        elif self._due.get(ino) != intent.due_ns:
            self._due[ino] = intent.due_ns
            self._ripe.pop(ino, None)
            heapq.heappush(self._heap, (intent.due_ns, ino))
            if len(self._heap) > 2 * len(self._due) + STALE:
                left = self._due.items()
                self._heap = [(due, each) for each, due in left if each not in self._ripe]
                heapq.heapify(self._heap)

    def due_items(self, now_ns: int) -> Mapping[int, None]:
        """Return the inode numbers of the due content intents as keys, earliest due time first.

        `now_ns` is the current wall clock time. The result is a live view of the queue.
        """
        while self._heap and self._heap[0][0] <= now_ns:
            due, ino = heapq.heappop(self._heap)
            if self._due.get(ino) == due:
                self._ripe[ino] = None
        return self._ripe

    def next_due(self) -> int | None:
        """Return the time at which the next content intent becomes due (wall clock, ns), or None.

        Call `due_items` first, because intents that are already due are not considered.
        """
        while self._heap and self._due.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None


def provisional_id(ino: int) -> str:
    """Return the id to use in `ConflictLog.suspend` for a conflict copy without a remote id."""
    return f"/{ino}"


class ConflictLog:
    """Table of conflict copies, which also records whether the user has been told about each."""

    def __init__(self, database: Database, box: Box) -> None:
        self._database = database
        self._box = box

    def add(self, conflict: Conflict) -> None:
        """Record a conflict copy that the user has not been told about."""
        self._database.execute(
            "INSERT OR REPLACE INTO conflicts (ino, original, by, at_ns, told)"
            " VALUES (?, ?, ?, ?, 0)",
            (conflict.ino, conflict.original, sealed(self._box, conflict.by, _BY), conflict.at_ns),
        )

    def copies(self) -> set[int]:
        """Return the inode numbers of all recorded conflict copies that have an inode."""
        return {ino for (ino,) in self._database.execute("SELECT ino FROM conflicts WHERE ino > 0")}

    def exist(self) -> bool:
        """Return True if any conflict is recorded, including copies that have no inode."""
        return self._database.execute("SELECT 1 FROM conflicts LIMIT 1").fetchone() is not None

    def times(self) -> set[int]:
        """Return `Conflict.at_ns` of all recorded conflicts."""
        return {at_ns for (at_ns,) in self._database.execute("SELECT at_ns FROM conflicts")}

    def originals(self) -> list[tuple[int, int]]:
        """Return (copy, original), two inode numbers, for each conflict copy that has an inode."""
        return list(self._database.execute("SELECT ino, original FROM conflicts WHERE ino > 0"))

    def all(self) -> list[Conflict]:
        """Return all recorded conflict copies that have an inode.

        Raises Damaged if a row cannot be decrypted.
        """
        rows = self._database.execute(
            "SELECT ino, original, by, at_ns FROM conflicts WHERE ino > 0"
        )
        return [
            Conflict(ino, original, str(opened(self._box, by, _BY)), at_ns)
            for ino, original, by, at_ns in rows
        ]

    def unacknowledged(self) -> set[int]:
        """Return the inode numbers of the copies that the user has not been told about."""
        rows = self._database.execute("SELECT ino FROM conflicts WHERE NOT told AND ino > 0")
        return {ino for (ino,) in rows}

    def tell(self, copies: Iterable[int]) -> None:
        """Record that the user has been told about the copies with the given inode numbers."""
        for ino in copies:
            self._database.execute("UPDATE conflicts SET told = 1 WHERE ino = ?", (ino,))

    def pass_on(self, ino: int, new_ino: int, *, is_copy: bool = True) -> None:
        """Reassign the conflicts of `ino` to `new_ino`, the inode that takes over the entry.

        If `new_ino` was a conflict copy itself, its former row is replaced. If `is_copy` is false,
        reassign only the conflicts whose original is `ino`.
        """
        if is_copy:
            self._database.execute(
                "UPDATE OR REPLACE conflicts SET ino = ? WHERE ino = ?", (new_ino, ino)
            )
        self._database.execute(
            "UPDATE conflicts SET original = ? WHERE original = ?", (new_ino, ino)
        )

    def drop_dangling(self) -> None:
        """Delete conflicts whose copy is missing, and rows of `moved_conflicts` without a conflict.

        A copy is missing if it has neither an inode nor a row in `moved_conflicts`. A repaired
        database may contain such rows.
        """
        self._database.execute(  # provisional ids of copies without an inode
            "DELETE FROM moved_conflicts WHERE remote_id GLOB '/*'"
            " AND CAST(substr(remote_id, 2) AS INTEGER) NOT IN (SELECT ino FROM inodes)"
        )
        self._database.execute(
            "DELETE FROM conflicts WHERE ino NOT IN (SELECT ino FROM inodes)"
            " AND ino NOT IN (SELECT -number FROM moved_conflicts)"
        )
        self._database.execute(
            "DELETE FROM moved_conflicts WHERE -number NOT IN"
            " (SELECT ino FROM conflicts UNION SELECT original FROM conflicts)"
        )

    def drop(self, ino: int) -> bool:
        """Delete the record of a conflict copy; return False if there is none."""
        deleted = self._database.execute("DELETE FROM conflicts WHERE ino = ?", (ino,))
        return deleted.rowcount > 0

    def suspend(self, ino: int, zone: str, remote_id: str) -> None:
        """Stop listing a conflict copy, because its removal or rename waits to be sent.

        The record now refers to the entry instead of the inode, see `keep_moved`. If the change is
        undone, the copy is listed again, even if its entry has another inode by then.
        """
        is_copy = self._database.execute("SELECT 1 FROM conflicts WHERE ino = ?", (ino,)).fetchone()
        if is_copy is None:
            return
        self._database.execute(
            "INSERT OR IGNORE INTO moved_conflicts (zone, remote_id) VALUES (?, ?)",
            (zone, remote_id),
        )
        self._database.execute(
            f"UPDATE OR REPLACE conflicts SET ino = {_OF_ENTRY} WHERE ino = ?",  # noqa: S608
            (zone, remote_id, ino),
        )

    def resume(self, ino: int, zone: str, remote_id: str) -> None:
        """List a conflict copy again, as inode `ino`; see `suspend`.

        Called when the removal or rename of the copy was undone.
        """
        self._database.execute(
            f"UPDATE OR REPLACE conflicts SET ino = ? WHERE ino = {_OF_ENTRY}",  # noqa: S608
            (ino, zone, remote_id),
        )

    def identify(self, zone: str, former_id: str, remote_id: str) -> None:
        """Replace `former_id`, the id under which a conflict copy was suspended, by `remote_id`.

        See `suspend` and `provisional_id`.
        """
        self._database.execute(
            "UPDATE OR IGNORE moved_conflicts SET remote_id = ? WHERE (zone, remote_id) = (?, ?)",
            (remote_id, zone, former_id),
        )

    def end(self, zone: str, remote_id: str) -> None:
        """Delete the record of a suspended copy whose removal or rename was sent; see `suspend`."""
        self._database.execute(
            f"DELETE FROM conflicts WHERE ino = {_OF_ENTRY}",  # noqa: S608
            (zone, remote_id),
        )


class IntentTable:
    """Intents, held in memory and in a SQLite table."""

    def __init__(self, database: Database, box: Box | None = None) -> None:
        """Load the intents that an earlier daemon stored.

        `box` encrypts texts that may identify people. Raises Damaged or ValidationError if a row is
        damaged.
        """
        self._database = database
        self._box = box or Clear()
        self._intents: dict[int, Intent] = {}
        self._failures: dict[int, Counter[Cause | Failure]] = {}  # see `count_failure`; by inode
        self.changes: Observers[[]] = Observers()
        self.agenda = DueQueue()
        self.conflicts = ConflictLog(database, self._box)
        self.changed_at = float("-inf")  # time of the last local change (monotonic, s)
        self.kept_back: set[int] = set()  # inodes whose content stays held, see `let_go`
        rows = database.execute(f"SELECT {_COLUMNS} FROM intents").fetchall()  # noqa: S608
        for row in rows:
            values = dict(zip(_COLUMNS.split(", "), row, strict=True))
            intent = intent_of(values | {"held": 0}, self._box)
            self._intents[intent.ino] = intent
            self.agenda.note(intent.ino, None, intent)
        self._seq = max((intent.seq for intent in self._intents.values()), default=0)

    def transaction(self) -> AbstractContextManager[None]:
        """Return a transaction; its changes apply to memory and table together, or not at all."""
        return self._database.transaction()

    def get(self, ino: int) -> Intent | None:
        """Return the intent of an inode, or None."""
        return self._intents.get(ino)

    def snapshot(self, intent: Intent) -> Snapshot[object]:
        """Return a snapshot of an intent; a local change or a new base makes the snapshot stale."""
        return Snapshot.of(
            (intent.seq, intent.base),
            lambda: (now.seq, now.base) if (now := self._intents.get(intent.ino)) else None,
        )

    def content_snapshot(self, intent: Intent) -> Snapshot[object]:
        """Return a snapshot of an intent's generation.

        Any thread may check whether the snapshot is current. The snapshot becomes stale when newer
        bytes are saved or the file is removed.
        """
        return Snapshot.of(
            intent.generation,
            lambda: now.generation if (now := self._intents.get(intent.ino)) else None,
        )

    def all(self) -> list[Intent]:
        """Return all intents, oldest change first."""
        return sorted(self._intents.values(), key=lambda intent: intent.seq)

    def pending(self) -> list[Intent]:
        """Return all intents except those of parked files (see `park`), oldest change first."""
        return [intent for intent in self.all() if not intent.parked]

    def parked(self) -> list[Intent]:
        """Return the intents of parked files (see `park`), in any order."""
        return [self._intents[ino] for ino in self.agenda.parked]

    def edited(self) -> set[int]:
        """Return the inode numbers of the files on the service whose content was edited locally."""
        every = self._intents.values()
        return {each.ino for each in every if each.generation and each.base is not None}

    def failed(self) -> set[int]:
        """Return the inode numbers of the failed intents, except those of parked files."""
        every = self._intents.values()
        return {each.ino for each in every if each.failed and not each.parked}

    def names(self) -> list[Intent]:
        """Return the intents for names, deletions and parked files (see `park`), oldest first."""
        found = [self._intents[ino] for ino in self.agenda.names]
        return sorted(found, key=lambda intent: intent.seq)

    @property
    def newest(self) -> int:
        """`seq` of the newest local change; grows with every local change."""
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
        """Record new content of a file, to be sent as the next version or as a new file.

        `base` is the version that was edited, or None for a new file. The base of an earlier intent
        with unsent content, or of a parked file (see `park`), is kept, because the edit began from
        that version. The other arguments are those of `Intent`. Return the new intent.
        """
        old = self._intents.get(ino)
        if old is not None and old.keeps_base:
            base = old.base
        return self._change(
            ino,
            Event.FLUSH if held else Event.SAVE,
            generation=generation,
            size=size,
            base=base,
            held=held,
            due_ns=due_ns,
        )

    def hold(self, ino: int) -> None:
        """Mark the inode's intent, if any, as held, because a program has the file open.

        Until `let_go` is called, a rename or move may be sent, but no new content and no deletion
        of a removed file. The row is not changed, because no program has the file open after a
        restart of the daemon.
        """
        old = self._intents.get(ino)
        if old is not None:
            self._set(ino, msgspec.structs.replace(old, held=True), Event.OPEN)

    def let_go(self, ino: int, due_ns: int) -> None:
        """End the hold on the inode's intent, if any, and set its due time to `due_ns`.

        Call this method after the last close, or to send the saved bytes of a file that a program
        still has open. The row is not changed, see `hold`. Do nothing if the inode is in
        `kept_back`, unless the inode was removed.
        """
        old = self._intents.get(ino)
        if old is not None and (old.gone or ino not in self.kept_back):
            self._set(ino, msgspec.structs.replace(old, held=False, due_ns=due_ns), Event.CLOSE)
            self.changes.notify()

    def place(self, ino: int, due_ns: int, base: Revision | None = None) -> Intent:
        """Record that an inode was renamed or moved, or that a folder was created.

        `base` is the version that the file had before the change. If another file takes over the
        entry, the content of that file becomes the version after `base`. `due_ns` is the earliest
        time to send the change (wall clock). Return the new intent.
        """
        old = self._intents.get(ino)
        if old is not None and old.base is not None and (base is None or old.keeps_base):
            base = old.base
        return self._change(ino, Event.MOVE, place=True, parked=False, base=base, due_ns=due_ns)

    def park(self, ino: int, base: Revision) -> None:
        """Park a file: record that it was renamed to a local-only name.

        The entry on the service keeps its name and its content. New content is stored only locally.
        `base` is the version that the local content is based on.
        """
        old = self._intents.get(ino)
        if old is not None and old.generation:
            base = old.base or base
        self._change(
            ino, Event.PARK, generation=0, size=0, base=base, place=True, gone=False, held=False,
            parked=True,
        )  # fmt: skip

    def gone(self, ino: int, due_ns: int, *, final: bool = False) -> Intent:
        """Record that an inode was deleted locally, and return the new intent.

        `due_ns` is the earliest time to send the deletion (wall clock). If `final` is set,
        the entry is deleted even if a new file gets its folder and name.
        """
        return self._change(
            ino, Event.DELETE if final else Event.REMOVE, generation=0, size=0, place=final,
            gone=True, held=False, parked=False, due_ns=due_ns,
        )  # fmt: skip

    def set_base(self, ino: int, base: Revision | None) -> None:
        """Replace the base version in the inode's intent, if any."""
        old = self._intents.get(ino)
        if old is not None and old.base != base:
            self._put(msgspec.structs.replace(old, base=base))

    def set_left(self, ino: int, left: LocalPlace | None) -> None:
        """Record a file's last local place in its intent, if the intent moves or deletes the entry.

        See `Intent.left`.
        """
        old = self._intents.get(ino)
        if old is not None and (old.place or old.gone) and old.left != left:
            folder, name = left or (0, None)
            self._put(msgspec.structs.replace(old, left_folder=folder, left_name=name))

    def drop(self, ino: int) -> None:
        """Delete the inode's intent, if any. Observers are notified in any case."""
        if ino in self._intents:
            self._delete(ino, Event.END)
        else:
            self.changes.notify()  # steps of other inodes may wait for the inode's name

    def discard(self, ino: int) -> None:
        """Delete the intent of an inode that no longer exists, in a transaction of its own."""
        with self.transaction():
            self.drop(ino)

    # ---- delivery ----

    def done(self, intent: Intent, *, content: bool = False, place: bool = False) -> None:
        """Clear the sent parts of an intent, and delete the intent if nothing is left to send.

        `content` and `place` tell which parts were sent. A part that was changed since `intent` was
        read is not cleared. The record of failed attempts is reset.
        """
        now = self._intents.get(intent.ino)
        if now is None:
            return
        self._failures.pop(intent.ino, None)
        fields: dict[str, object] = {"attempts": 0, "cause": Cause.NONE, "error": ""}
        event = None
        if content and now.generation and now.generation == intent.generation and not now.held:
            fields |= {"generation": 0, "size": 0, "base": None}
            event = Event.CONTENT_SENT
        if place and now.seq == intent.seq:
            fields |= {"place": False, "left_folder": 0, "left_name": None}
            event = Event.PLACE_SENT
        left = msgspec.structs.replace(now, **fields)
        if left.generation or left.place or left.gone:
            self._put(left, event)
        else:
            self._delete(intent.ino, event or Event.END)

    def postpone(self, intent: Intent, due_ns: int, error: str, cause: Cause) -> None:
        """Record a failed delivery and the time of the next attempt, in a transaction of its own.

        Does nothing if the inode has been changed locally since `intent` was read.
        """
        now = self._intents.get(intent.ino)
        if now is None or now.seq != intent.seq:
            return  # the newer change sets the due time
        failed = msgspec.structs.replace(
            now, due_ns=due_ns, attempts=now.attempts + 1, error=error, cause=cause
        )
        with self.transaction():
            self._put(failed, Event.FAIL)

    def count_failure(self, intent: Intent, kind: Cause | Failure) -> int:
        """Count a failure, and return the number of failures of this kind with this failure.

        The record of failed attempts has the total of all kinds, which says little about one kind:
        for example, many attempts fail during an outage, and the first unclear reply comes after
        it. The numbers are kept in memory, and are reset together with that record. After a restart
        of the daemon, all recorded attempts count as failures with the recorded cause. If the inode
        has been changed locally since `intent` was read, nothing is counted, and 1 is returned.
        """
        now = self._intents.get(intent.ino)
        if now is None or now.seq != intent.seq:
            return 1
        if (counts := self._failures.get(now.ino)) is None:
            counts = self._failures[now.ino] = Counter({now.cause: now.attempts})
            if now.cause is Cause.UNCLEAR:  # perhaps because of unusable replies
                counts[Failure.UNUSABLE_REPLY] = now.attempts
        counts[kind] += 1
        return counts[kind]

    def expedite(self, ino: int, now_ns: int) -> None:
        """Make the intent of an inode due at once, even if it is delayed after a failure.

        The intent is changed only in memory, so that a full disk does not block the caller. The row
        keeps the former due time, which applies again after a restart of the daemon.
        """
        old = self._intents.get(ino)
        if old is not None and old.due_ns > now_ns:
            self._set(ino, msgspec.structs.replace(old, due_ns=now_ns))
            self.changes.notify()

    # ---- internal ----

    def _change(self, ino: int, event: Event, **fields: object) -> Intent:
        """Write the intent of a local change, and return the intent.

        The intent gets the next `seq`, and its record of failed attempts is reset.
        """
        self._seq += 1
        self._failures.pop(ino, None)
        self.changed_at = time.monotonic()
        old = self._intents.get(ino, Intent(ino, 0))
        new = msgspec.structs.replace(
            old, seq=self._seq, attempts=0, cause=Cause.NONE, error="", **fields
        )
        self._put(new, event)
        return new

    def _put(self, intent: Intent, event: Event | None = None) -> None:
        """Write the row of an intent; `event` is None if the state of the change stays the same."""
        self._remember(intent.ino)
        values = msgspec.structs.asdict(intent)
        for name, use in _USES.items():
            values[name] = sealed(self._box, values[name], use)
        self._database.execute(
            f"INSERT OR REPLACE INTO intents ({_COLUMNS})"  # noqa: S608 - constants only
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            tuple(values.values()),
        )
        self._set(intent.ino, intent, event)
        self.changes.notify()

    def _delete(self, ino: int, event: Event) -> None:
        self._remember(ino)
        self._failures.pop(ino, None)
        self._database.execute("DELETE FROM intents WHERE ino = ?", (ino,))
        self._set(ino, None, event)
        self.changes.notify()

    def _set(self, ino: int, intent: Intent | None, event: Event | None = None) -> None:
        old = self._intents.get(ino)
        if event is not None:
            outbox_states.check(
                old.state if old else Change.NONE, event, intent.state if intent else Change.NONE
            )
        if intent is None:
            self._intents.pop(ino, None)
        else:
            self._intents[ino] = intent
        self.agenda.note(ino, old, intent)

    def _remember(self, ino: int) -> None:
        """Arrange that a rollback of the transaction restores the inode's intent in memory."""
        before = self._intents.get(ino)
        self._database.on_rollback(lambda: self._set(ino, before))


def due_in(seconds: float) -> int:
    """Return the wall clock time, in nanoseconds since the epoch, that is `seconds` from now."""
    return time.time_ns() + int(seconds * 1e9)


def intent_of(row: Mapping[str, object], box: Box) -> Intent:
    """Return the intent in a row (values by column name). Raises Damaged or ValidationError."""
    texts = {name: opened(box, row.get(name), use) for name, use in _USES.items()}
    return msgspec.convert({**row, **texts, "cause": row.get("failed")}, Intent, strict=False)


def sealed(box: Box, text: str | None, use: bytes) -> bytes | str | None:
    """Return the value to store for a text: encrypted, or unchanged if it is empty or None."""
    return box.seal(text.encode(), use) if text else text


def opened(box: Box, kept: object, use: bytes) -> object:
    """Return the text of a stored value.

    A value that is not encrypted, such as one from an earlier version, is returned unchanged.
    Raises Damaged if an encrypted value cannot be decrypted.
    """
    if not isinstance(kept, bytes):
        return kept
    try:
        return box.open(kept, use).decode()
    except UnicodeDecodeError as wrong:  # stored encrypted, but `box` does not decrypt
        raise Damaged("stored bytes fail their check") from wrong
