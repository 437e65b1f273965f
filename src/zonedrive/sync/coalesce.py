"""Pure function that computes the steps for the service, and their order, from all intents.

The same intents give the same steps.  Nothing is requested or changed during folding.

Intermediate states are not visible here: an intent only states how the two sides differ now.  A
temporary file renamed over its target is therefore one upload, and a backup file that was created
and removed is nothing.  Some cases need more care:

* A file of the service was deleted or renamed away, and a new file has its former place.  Many
  editors save this way.  The new file takes over the old one's identity (ADOPT), so that the
  service gets one new version and the history continues.  While the new file is still being
  written, the old entry stays as it is.
  After an explicit deletion (`Intent.final`) no file takes over: the entry is deleted, and the
  new file is a new entry.
* A file of the service got a name that stays on this machine (a backup).  The file is parked and
  its entry stays as it is.  The entry is given up (WITHDRAW) when something that cannot take over
  the identity (a folder) needs its place, or when its remote folder is to be deleted.  Parking
  ends when another file takes over the identity or the file gets another name.
* A new file may have arrived under an earlier name after a lost reply, or was removed since.
  Other steps that need that name wait until the outcome is known.  The file's own step begins by
  checking the outcome and waits for no other step.
* A place must be free before something else can take it (a before b).  In a circle, such as two
  exchanged names, one of the entries first moves to a temporary name (ASIDE).
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import IntEnum

import msgspec

from zonedrive.state.intents import Intent

Place = tuple[int, str]
"""Inode number of a folder, and the service's name in it."""


class InodeView(msgspec.Struct, frozen=True):
    """Facts about an inode with an intent that folding needs."""

    ino: int
    folder: bool
    new: bool  # the service has no id for it
    place: Place  # local place; meaningless after a deletion
    origin: Place | None  # place on the service (of a new entry: possible place)
    inside: tuple[int, ...] = ()  # its folders on the service, up to the zone's root
    toward: tuple[int, ...] = ()  # of a known folder: the target's folders on the service


class Action(IntEnum):
    """Kind of a step; the values are also the order in which equally urgent steps start."""

    ADOPT = 0  # no request: this new file takes over `other`'s identity on the service
    MAKE = 1
    ASIDE = 2  # to a free temporary name, in a folder without an intent, to break a circle
    MOVE = 3
    UPLOAD = 4
    DELETE = 5
    WITHDRAW = (
        6  # no request: a parked file becomes local-only, and its remote entry is to be deleted
    )


class Step(msgspec.Struct, frozen=True):
    """One operation to perform on the service."""

    action: Action
    ino: int
    intent: Intent
    other: int = 0
    after: frozenset[int] = frozenset()  # inodes whose steps must end first


def fold(
    intents: Iterable[Intent],
    subjects: Mapping[int, InodeView],
    being_written: Collection[Place] = frozenset(),
) -> list[Step]:
    """Return the next step of every intent that has one, including steps that must wait.

    `being_written` holds the places of new files that programs have open for writing.
    """
    items = [(intent, subjects[intent.ino]) for intent in intents if intent.ino in subjects]
    leaving = {
        subject.origin: subject
        for intent, subject in items
        if subject.origin is not None and _leaves(intent, subject)
    }
    final = {intent.ino for intent, _ in items if intent.final}
    inherited = {place: each for place, each in leaving.items() if each.ino not in final}
    wanted = {
        subject.place
        for intent, subject in items
        if subject.new and not subject.folder and intent.generation
    }
    wanted.update(being_written)
    steps = [
        step
        for intent, subject in items
        if (step := _step(intent, subject, inherited, wanted)) is not None
    ]
    taken = {subjects[step.ino].place for step in steps if _takes_a_place(step, subjects[step.ino])}
    deleted = {step.ino for step in steps if step.action is Action.DELETE}
    steps += [
        Step(Action.WITHDRAW, intent.ino, intent)
        for intent, subject in items
        if intent.parked
        and subject.origin is not None
        and (subject.origin in taken or subject.origin[0] in deleted)
    ]
    adopted = {step.other for step in steps if step.action is Action.ADOPT}
    steps = [step for step in steps if step.ino not in adopted]
    return _ordered(steps, subjects, leaving)


def _leaves(intent: Intent, subject: InodeView) -> bool:
    """Return True if the entry is to be deleted or moved away from its origin."""
    return intent.gone or intent.place or (subject.new and subject.origin != subject.place)


def _step(
    intent: Intent,
    subject: InodeView,
    inherited: Mapping[Place, InodeView],
    wanted: Collection[Place],
) -> Step | None:
    """Return the step for one intent, not considering dependencies on other steps."""
    if intent.parked:
        return None
    if subject.new and intent.gone:
        return Step(Action.DELETE, intent.ino, intent)  # in case the entry was created
    if subject.new:
        if subject.folder:
            return Step(Action.MAKE, intent.ino, intent) if intent.place else None
        if not intent.generation or intent.held:
            return None
        former = inherited.get(subject.place)
        if former is not None and not former.folder and former.ino != intent.ino:
            return Step(Action.ADOPT, intent.ino, intent, other=former.ino)
        return Step(Action.UPLOAD, intent.ino, intent)
    makes_way = not subject.folder and subject.origin in wanted
    if (intent.gone or intent.place) and makes_way and not intent.final:
        return None  # adopted above, as soon as the new file is complete
    if intent.gone:
        if intent.held and not makes_way:
            return None  # a program still reads it
        return Step(Action.DELETE, intent.ino, intent)
    if intent.place:
        return Step(Action.MOVE, intent.ino, intent)
    if intent.generation and not intent.held:
        return Step(Action.UPLOAD, intent.ino, intent)
    return None


def _ordered(
    steps: Sequence[Step], subjects: Mapping[int, InodeView], leaving: Mapping[Place, InodeView]
) -> list[Step]:
    """Return the steps with their dependencies; in each circle, one move becomes ASIDE."""
    by_ino = {step.ino: step for step in steps}
    held_by: dict[int, set[int]] = {}  # by folder: its entries on the service
    for step in steps:
        origin = subjects[step.ino].origin
        if origin is not None:
            held_by.setdefault(origin[0], set()).add(step.ino)
    in_the_way = {step.ino: _in_the_way(step, held_by, subjects, leaving) for step in steps}
    waits = {
        step.ino: in_the_way[step.ino] | _folders_first(step, by_ino, subjects)
        if not _may_have_arrived(subjects[step.ino])
        else set()
        for step in steps
    }
    circle = _circle({ino: others for ino, others in waits.items() if others})
    aside = next(
        (
            ino
            for ino in circle
            if by_ino[ino].action is Action.MOVE
            and any(ino in in_the_way[other] for other in circle)
        ),
        None,
    )
    return [
        _waiting(step, waits[step.ino])
        if step.ino != aside
        else Step(Action.ASIDE, aside, step.intent)
        for step in steps
    ]


def _waiting(step: Step, others: set[int]) -> Step:
    return msgspec.structs.replace(step, after=frozenset(others)) if others else step


def _may_have_arrived(subject: InodeView) -> bool:
    return subject.new and subject.origin is not None


def _in_the_way(
    step: Step,
    held_by: Mapping[int, set[int]],
    subjects: Mapping[int, InodeView],
    leaving: Mapping[Place, InodeView],
) -> set[int]:
    """Return the inodes that must leave the step's place, or the folder that the step deletes."""
    subject = subjects[step.ino]
    if step.action is Action.DELETE:
        return held_by.get(step.ino, set()) if subject.folder else set()
    if _takes_a_place(step, subject):
        former = leaving.get(subject.place)
        if former is not None and former.ino != step.ino:
            return {former.ino}
    return set()


def _folders_first(
    step: Step, by_ino: Mapping[int, Step], subjects: Mapping[int, InodeView]
) -> set[int]:
    """Return the steps on the target folder and the folders above it that must end first."""
    subject = subjects[step.ino]
    if not _takes_a_place(step, subject):
        return set()
    if step.ino in subject.toward:
        between = subject.toward[: subject.toward.index(step.ino)]
        return {ino for ino in (subject.place[0], *between) if ino in by_ino}
    parent = by_ino.get(subject.place[0])
    if parent is None:
        return set()
    if parent.action is Action.MAKE:
        return {parent.ino}
    return {parent.ino} if step.ino in subjects[parent.ino].inside else set()


def _takes_a_place(step: Step, subject: InodeView) -> bool:
    if step.action is Action.MOVE:
        return True
    return subject.new and step.action in (Action.MAKE, Action.UPLOAD)


def _circle(waits: Mapping[int, set[int]]) -> list[int]:
    """Return steps that are waiting for each other in a circle, or an empty list."""
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
