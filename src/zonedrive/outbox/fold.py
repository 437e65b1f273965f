"""Folding: all intents together -> the steps that the service must see, and their order.

Pure: the same intents give the same steps, and nothing is asked or changed on the way.

What a program did in between is not visible here, and that is the point: an intent says only how
the two sides differ now, so a temporary file renamed over its target is one upload, and a backup
that came and went is nothing.  Two things need a closer look:

* A file of the service that was deleted or renamed away, and a new file at the place it had: the
  way many editors save.  The new file takes over the old one's identity (ADOPT), so that the
  service sees one new version and the history goes on.
* A place that must be free before something else can take it (a before b), up to circles such as
  two names exchanged, where one of them steps aside first (ASIDE).
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum

import msgspec

from zonedrive.outbox.journal import Intent

Place = tuple[int, str]
"""Inode number of a folder, and the service's name in it."""


class Subject(msgspec.Struct, frozen=True):
    """What folding needs to know of an inode with an intent."""

    ino: int
    folder: bool
    new: bool  # the service has no id for it
    place: Place  # where it is to be; meaningless once it is gone
    origin: Place | None  # where the service has it


class Action(IntEnum):
    """What a step does; also the order in which equally urgent steps start."""

    ADOPT = 0  # no request: `other`'s identity on the service becomes this new file's
    MAKE = 1
    ASIDE = 2  # rename to a name nobody uses, to open a circle
    MOVE = 3
    UPLOAD = 4
    DELETE = 5


class Step(msgspec.Struct, frozen=True):
    """One thing for the service to do."""

    action: Action
    ino: int
    intent: Intent
    other: int = 0
    after: frozenset[int] = frozenset()  # inos whose steps must be over first


def fold(intents: Iterable[Intent], subjects: Mapping[int, Subject]) -> list[Step]:
    """The next step of every intent that has one, those that must wait included."""
    items = [(intent, subjects[intent.ino]) for intent in intents if intent.ino in subjects]
    leaving = {
        subject.origin: subject
        for intent, subject in items
        if subject.origin is not None and (intent.gone or intent.place)
    }
    wanted = {
        subject.place: intent
        for intent, subject in items
        if subject.new and not subject.folder and intent.generation
    }
    steps = [
        step
        for intent, subject in items
        if (step := _step(intent, subject, leaving, wanted)) is not None
    ]
    adopted = {step.other for step in steps if step.action is Action.ADOPT}
    steps = [step for step in steps if step.ino not in adopted]
    return _ordered(steps, subjects, leaving)


def _step(
    intent: Intent,
    subject: Subject,
    leaving: Mapping[Place, Subject],
    wanted: Mapping[Place, Intent],
) -> Step | None:
    """What is to be done for this intent alone."""
    if subject.new:
        if subject.folder:
            return Step(Action.MAKE, intent.ino, intent) if intent.place else None
        if not intent.generation or intent.held:
            return None
        former = leaving.get(subject.place)
        if former is not None and not former.folder:
            return Step(Action.ADOPT, intent.ino, intent, other=former.ino)
        return Step(Action.UPLOAD, intent.ino, intent)
    if (intent.gone or intent.place) and not subject.folder and subject.origin in wanted:
        return None  # adopted above, as soon as the new file is complete
    if intent.gone:
        if intent.held:
            return None  # a program still reads it
        return Step(Action.DELETE, intent.ino, intent)
    if intent.place:
        return Step(Action.MOVE, intent.ino, intent)
    if intent.generation and not intent.held:
        return Step(Action.UPLOAD, intent.ino, intent)
    return None


def _ordered(
    steps: Sequence[Step], subjects: Mapping[int, Subject], leaving: Mapping[Place, Subject]
) -> list[Step]:
    """The steps with what each must wait for; one of a circle steps aside."""
    waits = {step.ino: _waits(step, steps, subjects, leaving) for step in steps}
    aside = _circle(steps, waits)
    ordered = []
    for step in steps:
        if step.ino == aside:
            ordered.append(Step(Action.ASIDE, step.ino, step.intent))
        else:
            ordered.append(msgspec.structs.replace(step, after=frozenset(waits[step.ino])))
    return ordered


def _waits(
    step: Step,
    steps: Sequence[Step],
    subjects: Mapping[int, Subject],
    leaving: Mapping[Place, Subject],
) -> set[int]:
    subject = subjects[step.ino]
    waits = set()
    if step.action is Action.DELETE:
        if subject.folder:  # what was in it leaves first
            waits = {
                each.ino
                for each in steps
                if (origin := subjects[each.ino].origin) and origin[0] == step.ino
            }
    elif step.action is not Action.ADOPT and (subject.new or step.action is Action.MOVE):
        parent = subjects.get(subject.place[0])
        if parent is not None and any(
            each.ino == parent.ino and each.action in (Action.MAKE, Action.MOVE) for each in steps
        ):
            waits.add(parent.ino)
        former = leaving.get(subject.place)
        if former is not None:
            waits.add(former.ino)
    waits.discard(step.ino)
    return waits


def _circle(steps: Sequence[Step], waits: Mapping[int, set[int]]) -> int | None:
    """A moved entry that waits, over others, for itself."""
    moves = [step.ino for step in steps if step.action is Action.MOVE]
    for start in moves:
        seen: set[int] = set()
        todo = list(waits[start])
        while todo:
            ino = todo.pop()
            if ino == start:
                return start
            if ino not in seen:
                seen.add(ino)
                todo.extend(waits.get(ino, ()))
    return None
