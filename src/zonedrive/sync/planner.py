"""Planner of the outbox, which computes the steps for the service from the intents.

`fold` is a pure function: the same intents give the same steps, without a request or a change of
state. `fold` does not see intermediate states, because an intent only says how the local state and
the service differ now. A temporary file renamed over its target is therefore one upload, and a
backup file that was created and removed causes no step. Some cases need more care:

* A file on the service was removed or renamed locally, and a new file took its former place. Many
  editors save this way. The new file takes over the identity of the old file (ADOPT), so that the
  service gets one new version and the history continues. While a program is still writing the new
  file, the old entry stays as it is. After an explicit deletion (`Intent.final`), no file takes
  over the identity: the entry is deleted, and the new file gets a new entry.
* The same holds for the last local place of such a file, if the rename of the file to this place
  was not sent (`Intent.left`). The new file takes over the identity and then moves the entry to the
  place. A new file at the former place on the service has precedence.
  If several files have left the same place, a new file there takes over none of their identities.
* A file on the service was renamed locally to a name that is never uploaded (a backup). The file is
  parked: its entry stays as it is. In three cases, the file loses its entry (WITHDRAW), and the
  entry is deleted. First, another entry that cannot take over the identity, such as a folder, needs
  the place. Second, the remote folder of the entry is to be deleted. Third, a new file with the
  former name was removed or renamed. If a coworker has moved the entry and no new file can take
  over the identity, the file loses its entry, but the entry is not deleted. Parking ends when
  another file takes over the identity or the file gets another name.
* After a lost reply, a new file may exist on the service under an earlier name, even if the file
  was since removed locally. Other steps that need the earlier name wait until the outcome is
  known. The file's own step first determines the outcome, and waits for no other step.
* A removed file that a program still reads is deleted on the service when the program closes the
  file. If another entry needs the place of the file, or the place of a removed folder above the
  file, the file is deleted as soon as its content is on this machine.
* An entry must leave a place before another entry can take the place. In a cycle, such as two
  exchanged names, one of the entries first moves to a temporary name (ASIDE).
* Some services treat names as equal that differ only in case or Unicode normalization. An upload of
  a new file then becomes a version of the entry with the other spelling. If such an entry is to be
  deleted or moved away, the upload waits for that, unless it needs an action of the user or of a
  program. Once the service is known to treat names as equal, new folders and moved entries also
  wait, an entry in a cycle moves to a temporary name, and a parked file or a file that a program
  still reads gives way as for an equal name.

If thousands of intents wait, `fold` gets only some of them at a time. Intents that concern names
(creations of folders, moves and deletions) depend on each other. They also depend on the intents of
inodes with a pending request, and of new files at places that other entries leave. `fold` always
gets all of these. Intents that concern only content depend only on intents that concern names.
`fold` gets content intents in batches, the longest overdue ones first. The steps are the same as if
`fold` had got all intents.

INVARIANT: the steps from one call of `fold` that need not wait for another step may run in any
order and at the same time, except steps of the same inode (including `other`). The end of such a
step therefore leaves the others valid. Every other change that concerns names requires a new call
of `fold`.

This module performs no steps. No function here is `async`.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from enum import IntEnum

import msgspec

from zonedrive.snapshot import Snapshot
from zonedrive.state import local_operations
from zonedrive.state.inode import NOWHERE, Inode, Local
from zonedrive.state.intents import Intent, IntentTable
from zonedrive.state.local_state import LocalState
from zonedrive.state.names import folded, is_aside

BATCH = 200  # maximum number of content-only intents in one call of `fold`
LARGE = 256 << 10  # bytes
LARGE_ONES = 20  # maximum number of intents with larger content in a batch


Chains = dict[tuple[str, str], tuple[int, ...]]
"""Inode numbers of a remote folder and of its ancestors, keyed by the folder's zone and id."""

Place = tuple[int, str]
"""Inode number of a folder, and the remote name of an entry in the folder.

The remote name of an entry can differ from its display name in the folder (see `names`). If a file
was removed or renamed, a new file with the same display name has the same place.
"""


class InodeView(msgspec.Struct, frozen=True):
    """Facts that `fold` needs about an inode."""

    ino: int
    folder: bool
    new: bool  # the service has no entry for the inode
    place: Place  # local place; meaningless after a deletion
    origin: Place | None  # place on the service (of a new entry: possible place)
    inside: tuple[int, ...] = ()  # folders above `origin` on the service, nearest first
    toward: tuple[int, ...] = ()  # of a known folder: folders on the service above its target
    local: bool = False  # the local name is never sent to the service
    moved: bool = False  # of a parked file: a coworker has moved its entry
    left: Place | None = None  # last local place that the service does not know, see `Intent.left`
    shown: Place | None = None  # `origin` with the display name, if this name differs


class PlaceView(msgspec.Struct, eq=False):
    """Facts that `fold` needs about a place."""

    leaving: InodeView | None = None  # its entry is to be deleted or moved from here on the service
    left: tuple[InodeView, ...] = ()  # files whose last local place this is, see `InodeView.left`
    former: InodeView | None = None  # a new file here may take over its entry
    is_wanted: bool = False  # a new file is here, or a program is writing one
    is_complete: bool = False  # that new file can be sent
    is_needed: bool = False  # an entry is to be created here or moved here


Places = defaultdict[Place | None, PlaceView]


class Action(IntEnum):
    """Kind of a step; the values are also the order in which equally urgent steps start."""

    ADOPT = 0  # no request: this new file takes over `other`'s identity on the service
    MAKE = 1
    ASIDE = 2  # to a free temporary name, in a folder without an intent, to break a cycle
    MOVE = 3
    UPLOAD = 4
    DELETE = 5
    WITHDRAW = 6  # no request: a parked file becomes local-only, and loses its entry


class Step(msgspec.Struct, frozen=True):
    """Operation that sends a change, or that only prepares a later step (ADOPT, WITHDRAW)."""

    action: Action
    ino: int
    intent: Intent
    other: int = 0  # ADOPT: inode whose entry is taken over
    after: frozenset[int] = frozenset()  # inodes whose steps must end first


def fold(
    intents: Iterable[Intent],
    views: Mapping[int, InodeView],
    being_written: Collection[Place] = frozenset(),
    *,
    unites_spellings: bool = False,
) -> list[Step]:
    """Return the next step of every intent that has one, including steps that must wait.

    `views` contains the facts about the inodes; an intent without a view is ignored.
    `being_written` contains the places of new files that programs have open for writing.
    `unites_spellings` tells whether the service is known to treat names as equal that differ only
    in case or Unicode normalization.
    """
    items = [(intent, views[intent.ino]) for intent in intents if intent.ino in views]
    places = _places(items, being_written)
    making_way = {view.ino for _, view in items if _makes_way(view, places)}
    steps = [
        step
        for intent, view in items
        if (step := _step(intent, view, places, making_way)) is not None
    ]
    is_taken = _taken(steps, views, unites_spellings=unites_spellings)
    deleted = {step.ino for step in steps if step.action is Action.DELETE}
    steps += [
        Step(Action.DELETE, intent.ino, intent)
        for intent, view in items
        if intent.gone and intent.held and not view.new and view.ino not in making_way
        if any(is_taken(views[at].origin) for at in (view.ino, *deleted.intersection(view.inside)))
    ]
    steps += [
        Step(Action.WITHDRAW, intent.ino, intent)
        for intent, view in items
        if intent.parked
        # A coworker has moved the entry, another entry needs its place, or its folder is deleted.
        if (view.moved and view.ino not in making_way)
        or is_taken(view.origin)
        or (view.origin is not None and not deleted.isdisjoint(view.inside))
    ]
    # A new file can pass on its remote entry only after its own step has determined whether its
    # request has created the entry.
    adopted = {
        step.other for step in steps if step.action is Action.ADOPT and not views[step.other].new
    }
    steps = [step for step in steps if step.ino not in adopted]
    # A file whose remote entry goes to a new file takes over the entry of a file that was removed
    # at its place.
    inherited: set[Place | None] = {views[ino].place for ino in adopted}
    steps = [step for step in steps if not _has_successor(step, views[step.ino], inherited)]
    return _ordered(steps, views, places, unites_spellings=unites_spellings)


def _places(items: Iterable[tuple[Intent, InodeView]], being_written: Iterable[Place]) -> Places:
    """Return the facts that `fold` needs about the places of the inodes in `items`."""
    places: Places = defaultdict(PlaceView)
    for place in being_written:
        places[place].is_wanted = True
    for intent, view in items:
        is_leaving = intent.gone or intent.place or (view.new and view.origin != view.place)
        if view.origin is not None and is_leaving:
            origin = places[view.origin]
            origin.leaving, origin.former = view, None if intent.final else view
        if view.left is not None and not intent.final:
            places[view.left].left += (view,)
        if view.new and not view.folder and intent.generation:
            here = places[view.place]
            here.is_wanted = True
            here.is_complete |= not intent.held
        if intent.place and not (intent.gone or intent.parked or view.local):
            places[view.place].is_needed = True
    for at in list(places.values()):
        if at.former is None and len(at.left) == 1:
            origin = places[at.left[0].origin]
            # No other entry waits for a place on the service while a program writes the new file.
            if not origin.is_wanted and (at.is_complete or not origin.is_needed):
                at.former = at.left[0]
    return places


def _makes_way(view: InodeView, places: Places) -> bool:
    """Return True for a file on the service whose entry a new file may take over.

    Also return True if a program is still writing the new file.
    """
    if view.folder or view.new:
        return False
    left = places[view.left]
    return places[view.origin].is_wanted or (left.is_wanted and left.former is view)


def _taken(
    steps: Iterable[Step], views: Mapping[int, InodeView], *, unites_spellings: bool
) -> Callable[[Place | None], bool]:
    """Return a function that returns True for a place that an entry needs.

    With `unites_spellings`, a place is also needed if a new folder or a moved entry needs another
    spelling of its name. A new file becomes a version of an entry with another spelling.
    """
    takers = [step for step in steps if _takes_a_place(step, views[step.ino])]
    taken = {views[step.ino].place for step in takers}
    takers = [step for step in takers if unites_spellings and step.action is not Action.UPLOAD]
    alike = {_with_folded_name(views[step.ino].place) for step in takers}

    def is_taken(place: Place | None) -> bool:
        is_alike = bool(alike) and place is not None and _with_folded_name(place) in alike
        return place in taken or is_alike

    return is_taken


def _with_folded_name(place: Place) -> Place:
    return place[0], folded(place[1])


def _has_successor(step: Step, view: InodeView, places: Set[Place | None]) -> bool:
    """Return True if the step deletes an entry that a file at one of `places` can take over.

    `places` are the local places of files whose own remote entries go to new files.
    """
    is_removal = step.action is Action.DELETE and not view.folder and not view.new
    return is_removal and not step.intent.final and not places.isdisjoint((view.origin, view.left))


def _step(
    intent: Intent, view: InodeView, places: Places, making_way: Collection[int]
) -> Step | None:
    """Return the step for one intent, with an empty `after`, or None if no step is possible.

    `making_way` contains the files whose entries new files may take over.
    """
    if intent.parked:
        return None
    if view.new and intent.gone:
        return Step(Action.DELETE, intent.ino, intent)  # in case the entry was created
    if view.new:
        if view.folder:
            return Step(Action.MAKE, intent.ino, intent) if intent.place else None
        if not intent.generation or intent.held:
            return None
        former = places[view.place].former
        if former is not None and not former.folder and former.ino != intent.ino:
            return Step(Action.ADOPT, intent.ino, intent, other=former.ino)
        return Step(Action.UPLOAD, intent.ino, intent)
    makes_way = view.ino in making_way
    if (intent.gone or intent.place) and makes_way and not intent.final:
        return None  # the new file takes over the entry (ADOPT) as soon as it is complete
    if intent.gone:
        if intent.held and not makes_way:
            return None  # a program still reads the file, see `fold`
        return Step(Action.DELETE, intent.ino, intent)
    if intent.place:
        return Step(Action.WITHDRAW if view.local else Action.MOVE, intent.ino, intent)
    if intent.generation and not intent.held:
        return Step(Action.UPLOAD, intent.ino, intent)
    return None


def _ordered(
    steps: Sequence[Step],
    views: Mapping[int, InodeView],
    places: Places,
    *,
    unites_spellings: bool,
) -> list[Step]:
    """Return the steps with their dependencies; break a cycle, if there is one.

    If steps are waiting for each other in a cycle, one of them becomes an ASIDE step, which moves
    its entry to a temporary name. Later calls break the other cycles.
    """
    by_ino = {step.ino: step for step in steps}
    held_by: dict[int, set[int]] = {}  # by folder: the entries in it on the service, at any depth
    # Files without a step, which programs still read, are in the way as well.
    leaving = (at.leaving for at in places.values() if at.leaving is not None)
    for view in (*(views[step.ino] for step in steps), *leaving):
        for folder in view.inside:
            if folder != view.ino:  # the recorded places may form a cycle
                held_by.setdefault(folder, set()).add(view.ino)
    heirs = {step.other: step.ino for step in steps if step.action is Action.ADOPT}
    in_the_way = {
        # An entry that a new file takes over leaves its place with the step of the new file.
        step.ino: {
            ino if heirs.get(ino) in (None, step.ino) else heirs[ino]
            for ino in _in_the_way(step, held_by, views, places)
        }
        for step in steps
    }
    waits = {
        step.ino: in_the_way[step.ino] | _folders_first(step, by_ino, views)
        for step in steps
        if not (views[step.ino].new and views[step.ino].origin)  # it may have arrived
    }
    for ino, others in _spelled_alike(steps, views, waits, every=unites_spellings).items():
        in_the_way[ino] |= others
        if ino in waits:
            waits[ino] |= others
    waits = {ino: others for ino, others in waits.items() if others}
    cycle = _cycle(waits)
    for ino, others in waits.items():
        by_ino[ino] = msgspec.structs.replace(by_ino[ino], after=frozenset(others))
    for ino in cycle:
        if by_ino[ino].action is Action.MOVE and any(ino in in_the_way[other] for other in cycle):
            by_ino[ino] = Step(Action.ASIDE, ino, by_ino[ino].intent)
            break
    return list(by_ino.values())


def _in_the_way(
    step: Step, held_by: Mapping[int, set[int]], views: Mapping[int, InodeView], places: Places
) -> set[int]:
    """Return the inodes that must be moved or deleted on the service before the step."""
    view = views[step.ino]
    if step.action is Action.DELETE:
        return held_by.get(step.ino, set()) if view.folder else set()
    if _takes_a_place(step, view):
        leaving = places[view.place].leaving
        if leaving is not None and leaving.ino != step.ino:
            return {leaving.ino}
    return set()


def _spelled_alike(
    steps: Sequence[Step],
    views: Mapping[int, InodeView],
    waits: Mapping[int, Set[int]],
    *,
    every: bool,
) -> dict[int, set[int]]:
    """Return, for each step that takes a place, the entries with another spelling of its name.

    Only entries that steps delete or move away are returned. Unless `every` is set, only uploads of
    new files are considered, and steps that may not end soon (see `_held_up`) are left out: most
    services treat the names as different, and the upload could wait for ever. `waits` contains the
    other dependencies of the steps.

    No step waits for the upload of a new file without a pending request, so the dependencies of
    uploads form no cycle. The service rejects a taken name of a new folder or a move, so these need
    to wait only if the service is known to treat the names as equal.
    """
    takers = [
        step.ino
        for step in steps
        if (every or step.action is Action.UPLOAD) and _takes_a_place(step, views[step.ino])
    ]
    if not takers:
        return {}
    leaving = defaultdict[Place, set[int]](set)
    for step in steps:
        view, leaves = views[step.ino], step.action in (Action.MOVE, Action.DELETE)
        if view.origin is not None and not view.new and leaves:
            leaving[_with_folded_name(view.origin)].add(step.ino)
    if not leaving:
        return {}
    places = {ino: _with_folded_name(views[ino].place) for ino in takers}
    alike = {ino: leaving.get(place, set()) - {ino} for ino, place in places.items()}
    if every or not any(alike.values()):
        return alike
    held_up = _held_up(steps, waits)
    return {ino: others - held_up for ino, others in alike.items()}


def _held_up(steps: Sequence[Step], waits: Mapping[int, Set[int]]) -> set[int]:
    """Return the inodes whose steps end only after an action of the user or of a program.

    Such a step has failed (see `Intent.failed`), waits for an inode without a step, for example a
    file that a program still reads, or waits for such a step.
    """
    failed = {step.ino for step in steps if step.intent.failed}
    waiting = defaultdict[int, set[int]](set)
    for ino, others in waits.items():
        for other in others:
            waiting[other].add(ino)
    ahead = [*failed, *(waiting.keys() - {step.ino for step in steps})]
    held_up = set[int]()
    while ahead:
        if (ino := ahead.pop()) not in held_up:
            held_up.add(ino)
            ahead += waiting.get(ino, ())
    return held_up


def _folders_first(
    step: Step, by_ino: Mapping[int, Step], views: Mapping[int, InodeView]
) -> set[int]:
    """Return the folders whose steps must end before `step`: the target, or folders above it."""
    view = views[step.ino]
    if not _takes_a_place(step, view):
        return set()
    if step.ino in view.toward:
        between = view.toward[: view.toward.index(step.ino)]
        return {ino for ino in (view.place[0], *between) if ino in by_ino}
    parent = by_ino.get(view.place[0])
    if parent and (parent.action is Action.MAKE or step.ino in views[parent.ino].inside):
        return {parent.ino}
    return set()


def _takes_a_place(step: Step, view: InodeView) -> bool:
    if step.action is Action.MOVE:
        return True
    return view.new and step.action in (Action.MAKE, Action.UPLOAD)


def _cycle(waits: Mapping[int, set[int]]) -> list[int]:
    """Return inodes whose steps are waiting for each other in a cycle, or an empty list.

    `waits` maps each inode to the inodes whose steps must end before its own step.
    """
    over: set[int] = set()
    for start in waits:
        path: list[int] = []
        todo = [(start, iter(waits[start]))] if start not in over else []
        while todo:
            ino, others = todo[-1]
            if not path or path[-1] != ino:
                path.append(ino)
            other = next((each for each in others if each in waits and each not in over), None)
            if other is None:
                over.add(ino)
                path.pop()
                todo.pop()
            elif other in path:
                return path[path.index(other) :]
            else:
                todo.append((other, iter(waits[other])))
    return []


def with_prerequisites(steps: Sequence[Step], inos: Collection[int]) -> set[int]:
    """Return `inos` and all inodes whose steps must end before the steps of `inos`."""
    by_ino = {step.ino: step for step in steps}
    found, todo = set[int](), list(inos)
    while todo:
        ino = todo.pop()
        if ino not in found:
            found.add(ino)
            todo += by_ino[ino].after if ino in by_ino else ()
    return found


def _ordered_due(due: Collection[int], first: Collection[int], only: bool) -> Iterator[int]:
    """Yield the due inodes, first those in `first`; if `only` is true, yield no others."""
    yield from (ino for ino in first if ino in due)
    if not only:
        yield from (ino for ino in due if ino not in first)


class InodeViews:
    """Source of the planner's facts about inodes."""

    def __init__(self, state: LocalState) -> None:
        self._state = state

    def describe(self, ino: int, chains: Chains) -> InodeView | None:
        """Return the facts that `fold` needs, or None if the inode no longer exists.

        `chains` caches ancestor folders and is shared by all inodes of one call to `fold`.
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
            inside = () if folder is None else (folder.ino, *self._inside(folder, chains))
            origin = (folder.ino, request.name) if folder is not None else None
        above = state.inodes.find(inode.parent) if inode.is_folder and not inode.is_new else None
        intent = None if inode.is_new or origin is None else state.intents.get(ino)
        display_name = None if intent is None else state.leaving.display_name(ino)
        return InodeView(
            ino=ino,
            folder=inode.is_folder,
            new=inode.is_new,
            place=self._place(inode),
            origin=origin,
            inside=inside,
            toward=() if above is None else self._inside(above, chains),
            local=inode.local,
            moved=ino in state.moved_entries,
            left=None if intent is None else intent.left,
            shown=(inside[0], display_name) if inside and display_name is not None else None,
        )

    def _place(self, inode: Inode) -> Place:
        """Return the local place of an inode, with the name that the entry is to have there.

        A new file or folder gets the place of the entry that had its display name before, if this
        entry is to be moved or deleted. A renamed file or folder gets the place of a parked file,
        which then loses its entry.
        """
        state, name = self._state, self._state.remote_name(inode)
        folder = None if inode.parent == NOWHERE else state.inodes.find(inode.parent)
        if folder is not None and name == inode.name:
            for each in state.leaving.at(folder, name):
                if inode.is_new or state.local(each.ino) & Local.PARKED:
                    return inode.parent, each.remote_name or name
        return inode.parent, name

    def forget(self, ino: int) -> None:
        """Delete the intent and the row of an inode that no longer exists (see `describe`)."""
        if (inode := self._state.inodes.find(ino)) is None:
            self._state.intents.discard(ino)
        else:
            local_operations.forget(self._state, inode)

    def _inside(self, inode: Inode, chains: Chains) -> tuple[int, ...]:
        """Return the folders above an inode on the service, nearest first."""
        missing: list[tuple[tuple[str, str], Inode]] = []
        above: tuple[int, ...] = ()
        each: Inode | None = inode
        while each is not None and each.remote_parent is not None:
            which = (each.zone, each.remote_parent)
            if which in chains:
                above = chains[which]
                break
            chains[which] = ()  # of an unknown folder, or if the recorded places form a cycle
            each = self._state.inodes.by_remote(*which)
            if each is not None:
                missing.append((which, each))
        for which, folder in reversed(missing):
            above = chains[which] = (folder.ino, *above)
        return above

    def being_written(self) -> set[Place]:
        """Return the places of new files that programs have open for writing."""
        state, places = self._state, set()
        for opened in state.opened.values():
            if opened.session is None:
                continue
            inode = state.inodes.find(opened.ino)
            if inode is not None and inode.is_new and inode.parent != NOWHERE and not inode.local:
                places.add(self._place(inode))
        return places

    def unites_spellings(self) -> bool:
        """Return True if the service is known to treat different spellings of a name as equal."""
        return self._state.unites_spellings

    def temporarily_named(self) -> set[int]:
        """Return the inodes to be moved whose entries may have a temporary name (see ASIDE)."""
        state = self._state
        asked = {request.ino for request in state.requests.all() if is_aside(request.name)}
        return {
            ino
            for ino in asked | state.leaving.aside()
            if (intent := state.intents.get(ino)) is not None
            if intent.place and not (intent.gone or intent.parked)
        }

    def pending(self) -> list[int]:
        """Return the numbers of the inodes with a pending request."""
        return [request.ino for request in self._state.requests.all()]

    def occupant(self, place: Place) -> int:
        """Return the inode number of the new file at a local place, or 0 if there is none."""
        folder = self._state.inodes.find(place[0])
        if folder is None or folder.parent == NOWHERE:
            return 0
        inode = self._state.inodes.child(*place)
        return inode.ino if inode is not None and inode.is_new and not inode.is_folder else 0


class Planner:
    """Planner that selects intents, computes their steps with `fold`, and tracks blocked steps."""

    def __init__(self, intents: IntentTable, views: InodeViews) -> None:
        self._intents = intents
        self._views = views
        self._written = Snapshot(self._views.being_written)  # at the last `due`
        self._startable: dict[int, Step] = {}  # by ino: its steps that wait for no other step
        self._ended: set[int] = set()  # inodes whose steps have ended since the last `due`
        self._occupants: dict[int, dict[Place, int]] = {}  # by ino, see `_related`
        self._blocked: set[int] = set()  # inodes whose uploads must wait for other steps
        self._blocks: dict[int, set[int]] = {}  # by inode: uploads that wait for its step
        self.names_due: int | None = None  # next due time of an intent on names (wall clock)

    def everything(self) -> list[Step]:
        """Return the steps of all intents."""
        return self._fold(self._intents.all(), {}, {})

    def steps_of(self, inos: Collection[int]) -> list[Step]:
        """Return the steps of these inodes and of all creations, renames, moves and deletions.

        The latter are included because an upload may depend on them.
        """
        views: dict[int, InodeView | None] = {}
        chains: Chains = {}
        related, _ = self._related(views, chains)
        chosen = {intent.ino: intent for intent in related}
        asked = (self._intents.get(ino) for ino in inos)
        chosen |= {intent.ino: intent for intent in asked if intent is not None}
        in_order = sorted(chosen.values(), key=lambda intent: intent.seq)
        return self._fold(in_order, views, chains)

    def due(
        self, now_ns: int, busy: Collection[int], first: Collection[int] = (), *, only: bool = False
    ) -> tuple[list[Step], bool]:
        """Return the steps of all creations, renames, moves and deletions, and of due uploads.

        Only the most urgent uploads are included; the second value is True if more are due. `busy`
        contains the inodes with a running step, whose uploads are left out. The uploads of `first`
        come before all others; if `only` is true, other uploads are left out.
        """
        agenda = self._intents.agenda
        self._written = Snapshot(self._views.being_written)
        if agenda.changed:
            agenda.changed.clear()
            self._blocked.clear()
            self._blocks.clear()
        views: dict[int, InodeView | None] = {}
        chains: Chains = {}
        related, self._occupants = self._related(views, chains)
        batch, more = self._batch(_ordered_due(agenda.due_items(now_ns), first, only), busy)
        chosen = {intent.ino: intent for intent in (*related, *batch)}
        in_order = sorted(chosen.values(), key=lambda intent: intent.seq)
        steps = self._fold(in_order, views, chains)
        for step in steps:
            if step.after and step.ino not in agenda.names:
                self._blocked.add(step.ino)
                for other in step.after:
                    self._blocks.setdefault(other, set()).add(step.ino)
        self._startable = {step.ino: step for step in steps if not step.after}
        self._ended.clear()
        later = [each.due_ns for each in related if each.due_ns > now_ns]
        self.names_due = min(later, default=None)
        return steps, more

    def ended(self, step: Step) -> None:
        """Record that a step has ended, and unblock uploads that waited for the step.

        The inodes of a step that the last call of `due` returned need not be planned again. But an
        inode is planned again if its remaining intent concerns a name and has changed.
        """
        planned = self._startable.pop(step.ino, None)
        intents = self._intents
        for ino in {step.ino, step.other} - {0}:
            self._ended.add(ino)
            self._blocked -= self._blocks.pop(ino, set())
            intent = intents.get(ino)
            left = intent.plan if intent is not None and intent.concerns_name else None
            if planned == step and left in (None, step.intent.plan):
                intents.agenda.changed.discard(ino)

    def is_current(self, step: Step) -> bool:
        """Return True if a step of the last `due`, other than an upload, is still valid."""
        if self._intents.agenda.changed or not self._written.is_current:
            return False
        if step.other in self._ended:
            return False
        occupants = self._occupants.get(step.ino, {}) | self._occupants.get(step.other, {})
        return all(self._views.occupant(place) == ino for place, ino in occupants.items())

    def _related(
        self, views: dict[int, InodeView | None], chains: Chains
    ) -> tuple[list[Intent], dict[int, dict[Place, int]]]:
        """Return all intents to create, rename, move or delete, and intents they may depend on.

        The second value maps an inode number to the places at which a new file may take over the
        inode's entry. Each of these places is mapped to the result of `InodeViews.occupant`.
        """
        intents = self._intents
        found = {intent.ino: intent for intent in intents.names()}
        for ino in self._views.pending():
            if (intent := intents.get(ino)) is not None:
                found[ino] = intent
        occupants: dict[int, dict[Place, int]] = {}
        for ino in list(found):
            view = views[ino] = self._views.describe(ino, chains)
            if view is None:
                continue
            known = (view.origin, view.shown, view.left)
            places = [place for place in known if place is not None]
            occupants[ino] = {place: self._views.occupant(place) for place in places}
            for successor in occupants[ino].values():
                if successor and (intent := intents.get(successor)) is not None:
                    found[successor] = intent
        return list(found.values()), occupants

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
        found, views = [], {}
        for intent in intents:
            ino = intent.ino
            view = described[ino] if ino in described else self._views.describe(ino, chains)
            if view is None:
                self._views.forget(ino)
            else:
                found.append(intent)
                views[ino] = view
        written, unites = self._views.being_written(), self._views.unites_spellings()
        return fold(found, views, written, unites_spellings=unites)
