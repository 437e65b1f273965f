"""Planner: selects the intents to fold, so that not all of thousands of intents are folded.

Intents that concern names depend on each other, so they are always folded together.  Pending
requests, and new files at places that other entries leave, are folded with them.  Intents with
content only depend on those and on nothing else; a batch of the longest due is folded at a time.
The resulting steps are the same as if all intents had been folded.

Knows nothing about what a step does.  Nothing here is `async`.
"""

from collections.abc import Collection, Iterable, Mapping

from zonedrive.snapshot import Snapshot
from zonedrive.state.inode import NOWHERE, Inode
from zonedrive.state.intents import Intent, IntentTable
from zonedrive.state.local_state import LocalState
from zonedrive.sync.coalesce import InodeView, Place, Step, fold

BATCH = 200  # contents folded at a time
LARGE = 256 << 10  # bytes
LARGE_ONES = 20  # most larger contents in a batch


Chains = dict[tuple[str, str], tuple[int, ...]]
"""Inodes of a folder and of its parents on the service, by zone and remote id of the folder."""


class InodeViews:
    """The planner's view of the inodes."""

    def __init__(self, state: LocalState) -> None:
        self._state = state

    def describe(self, ino: int, chains: Chains) -> InodeView | None:
        """Return the facts that folding needs, or None if the inode no longer exists.

        `chains` caches results for other inodes in the same round.
        """
        state = self._state
        inode = state.inodes.find(ino)
        request = state.requests.get(ino)
        if inode is None or (inode.parent == NOWHERE and inode.is_new and request is None):
            return None
        inside = self._inside(inode, chains)
        origin = (inside[0], inode.remote_name) if inside and inode.remote_name else None
        if inode.is_new and request is not None:
            folder = state.inodes.by_remote(request.zone, request.folder)
            origin = (folder.ino, request.name) if folder is not None else None
        above = state.inodes.find(inode.parent) if inode.is_folder and not inode.is_new else None
        return InodeView(
            ino=ino,
            folder=inode.is_folder,
            new=inode.is_new,
            place=(inode.parent, state.remote_name(inode)),
            origin=origin,
            inside=inside,
            toward=() if above is None else self._inside(above, chains),
        )

    def _inside(self, inode: Inode, chains: Chains) -> tuple[int, ...]:
        """Return the folders above an inode on the service, nearest first."""
        if inode.remote_parent is None:
            return ()
        which = (inode.zone, inode.remote_parent)
        if which not in chains:
            folder = self._state.inodes.by_remote(*which)
            chains[which] = () if folder is None else (folder.ino, *self._inside(folder, chains))
        return chains[which]

    def being_written(self) -> set[Place]:
        """Return the places of new files that programs have open for writing."""
        state, places = self._state, set()
        for opened in state.opened.values():
            if opened.session is None:
                continue
            inode = state.inodes.find(opened.ino)
            if inode is not None and inode.is_new and inode.parent != NOWHERE and not inode.local:
                places.add((inode.parent, state.remote_name(inode)))
        return places

    def pending(self) -> list[int]:
        """Return the inodes with a pending request."""
        return [request.ino for request in self._state.requests.all()]

    def occupant(self, place: Place) -> int:
        """Return the new file at a local place, or 0."""
        folder = self._state.inodes.find(place[0])
        if folder is None or folder.parent == NOWHERE:
            return 0
        inode = self._state.inodes.child(*place)
        return inode.ino if inode is not None and inode.is_new and not inode.is_folder else 0


class Planner:
    """Selects and folds intents, and keeps track of the blocked steps."""

    def __init__(self, intents: IntentTable, views: InodeViews) -> None:
        self._intents = intents
        self._views = views
        self._folded = Snapshot(self._basis)  # what the newest folding was based on
        self._origins: dict[int, tuple[Place, int]] = {}  # of names: place, inode there now
        self._blocked: set[int] = set()  # contents that must wait for others
        self._blocks: dict[int, set[int]] = {}  # by inode: contents that wait for its step
        self.names_due: int | None = None  # next due time of a name (wall clock)

    def everything(self) -> list[Step]:
        """Return the steps of all intents."""
        return self._fold(self._intents.all(), {}, {})

    def due(self, now_ns: int, busy: Collection[int]) -> tuple[list[Step], bool]:
        """Return the steps that concern names, the most urgent uploads, and True if more are due.

        `busy` holds the inodes with a running step.  The second value is True if more uploads are
        due than were folded.
        """
        agenda = self._intents.agenda
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
        return self._intents.agenda.epoch, self._views.being_written()

    def is_current(self, step: Step) -> bool:
        """Return True if folding again would give the same step about a name."""
        known = self._origins.get(step.ino)
        taken = known is not None and self._views.occupant(known[0]) != known[1]
        return self._folded.is_current and not taken

    def _related(self, subjects: dict[int, InodeView | None], chains: Chains) -> list[Intent]:
        """Return all intents that concern names, and the uploads that they may depend on."""
        intents = self._intents
        found = {intent.ino: intent for intent in intents.names()}
        for ino in self._views.pending():
            if (intent := intents.get(ino)) is not None:
                found[ino] = intent
        self._origins = {}
        for ino in list(found):
            subject = subjects[ino] = self._views.describe(ino, chains)
            if subject is None or subject.origin is None:
                continue
            heir = self._views.occupant(subject.origin)
            self._origins[ino] = (subject.origin, heir)
            if heir and (intent := intents.get(heir)) is not None:
                found[heir] = intent
        return list(found.values())

    def _batch(self, due_items: Iterable[int], busy: Collection[int]) -> tuple[list[Intent], bool]:
        batch: list[Intent] = []
        large = 0
        for ino in due_items:
            intent = self._intents.get(ino)
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
            subject = described[ino] if ino in described else self._views.describe(ino, chains)
            if subject is None:
                self._intents.discard(ino)
            else:
                found.append(intent)
                subjects[ino] = subject
        return fold(found, subjects, self._views.being_written())
