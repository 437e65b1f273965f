"""Planner: selects the intents to fold, so that not all of thousands of intents are folded.

Intents that concern names depend on each other, so they are always folded together.  Pending
requests, and new files at places that other entries leave, are folded with them.  Intents with
content only depend on those and on nothing else; a batch of the longest due is folded at a time.
The resulting steps are the same as if all intents had been folded.

Knows nothing about what a step does.  Nothing here is `async`.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Protocol

from zonedrive.snapshot import Snapshot
from zonedrive.state.intents import Intent, IntentTable
from zonedrive.sync.coalesce import InodeView, Place, Step, fold

BATCH = 200  # contents folded at a time
LARGE = 256 << 10  # bytes
LARGE_ONES = 20  # most larger contents in a batch


Chains = dict[tuple[str, str], tuple[int, ...]]
"""Inodes of a folder and of its parents on the service, by zone and remote id of the folder."""


class InodeViews(Protocol):
    """Interface through which the planner reads the inodes."""

    def describe(self, ino: int, chains: Chains) -> InodeView | None:
        """Return the facts that folding needs, or None if the inode no longer exists.

        `chains` caches results for other inodes in the same round; the method uses it and adds to
        it.
        """

    def being_written(self) -> Collection[Place]:
        """Return the places of new files that programs have open for writing."""

    def in_doubt(self) -> Collection[int]:
        """Return the inodes with a pending request."""

    def occupant(self, place: Place) -> int:
        """Return the inode of the new local file at a place, or 0."""


class Planner:
    """Selects and folds intents, and keeps track of the blocked steps."""

    def __init__(self, journal: IntentTable, subjects: InodeViews) -> None:
        self._journal = journal
        self._subjects = subjects
        self._folded = Snapshot(self._basis)  # what the newest folding was based on
        self._origins: dict[int, tuple[Place, int]] = {}  # of names: place, inode there now
        self._blocked: set[int] = set()  # contents that must wait for others
        self._blocks: dict[int, set[int]] = {}  # by inode: contents that wait for its step
        self.names_due: int | None = None  # next due time of a name (wall clock)

    def everything(self) -> list[Step]:
        """Return the steps of all intents."""
        return self._fold(self._journal.all(), {}, {})

    def due(self, now_ns: int, busy: Collection[int]) -> tuple[list[Step], bool]:
        """Return the steps that concern names, the most urgent uploads, and True if more are due.

        `busy` holds the inodes with a running step.  The second value is True if more uploads are
        due than were folded.
        """
        agenda = self._journal.agenda
        before, self._folded = self._folded, Snapshot(self._basis)
        if before.value[0] != agenda.epoch:
            self._blocked.clear()
            self._blocks.clear()
        subjects: dict[int, InodeView | None] = {}
        chains: Chains = {}
        related = self._related(subjects, chains)
        batch, more = self._batch(agenda.due_items(now_ns), busy)
        chosen = {intent.ino: intent for intent in (*related, *batch)}
        in_order = sorted(chosen.values(), key=lambda intent: intent.seq)
        steps = self._fold(in_order, subjects, chains)
        for step in steps:
            if step.after and step.ino not in agenda.names:
                self._blocked.add(step.ino)
                for other in step.after:
                    self._blocks.setdefault(other, set()).add(step.ino)
        later = [each.due_ns for each in related if each.due_ns > now_ns]
        self.names_due = min(later, default=None)
        return steps, more

    def ended(self, ino: int) -> None:
        """Record that a step of the inode ended, and unblock the uploads waiting for it."""
        self._blocked -= self._blocks.pop(ino, set())

    def _basis(self) -> tuple[int, Collection[Place]]:
        return self._journal.agenda.epoch, self._subjects.being_written()

    def is_current(self, step: Step) -> bool:
        """Return True if folding again would give the same step about a name."""
        known = self._origins.get(step.ino)
        taken = known is not None and self._subjects.occupant(known[0]) != known[1]
        return self._folded.is_current and not taken

    def _related(self, subjects: dict[int, InodeView | None], chains: Chains) -> list[Intent]:
        """Return all intents that concern names, and the uploads that they may depend on."""
        journal = self._journal
        found = {intent.ino: intent for intent in journal.names()}
        for ino in self._subjects.in_doubt():
            if (intent := journal.get(ino)) is not None:
                found[ino] = intent
        self._origins = {}
        for ino in list(found):
            subject = subjects[ino] = self._subjects.describe(ino, chains)
            if subject is None or subject.origin is None:
                continue
            heir = self._subjects.occupant(subject.origin)
            self._origins[ino] = (subject.origin, heir)
            if heir and (intent := journal.get(heir)) is not None:
                found[heir] = intent
        return list(found.values())

    def _batch(self, due_items: Iterable[int], busy: Collection[int]) -> tuple[list[Intent], bool]:
        batch: list[Intent] = []
        large = 0
        for ino in due_items:
            intent = self._journal.get(ino)
            if intent is None or ino in busy or ino in self._blocked:
                continue
            if intent.size > LARGE:
                if large == LARGE_ONES:
                    continue
                large += 1
            if len(batch) == BATCH:
                return batch, True
            batch.append(intent)
        return batch, False

    def _fold(
        self, intents: Iterable[Intent], described: Mapping[int, InodeView | None], chains: Chains
    ) -> list[Step]:
        found, subjects = [], {}
        for intent in intents:
            ino = intent.ino
            subject = described[ino] if ino in described else self._subjects.describe(ino, chains)
            if subject is None:
                self._journal.discard(ino)
            else:
                found.append(intent)
                subjects[ino] = subject
        return fold(found, subjects, self._subjects.being_written())
