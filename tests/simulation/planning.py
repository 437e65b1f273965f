"""Every small input of the planner, and every order in which its steps can run.

An input is a handful of files and folders that differ between this machine and the service. `Plan`
does with them what the steps do, on a service that refuses what a real one refuses. Programs close
their files when nothing else can happen. Knows neither a database nor a network.
"""

import multiprocessing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product

from zonedrive.state.inode import NOWHERE
from zonedrive.state.intents import Intent
from zonedrive.sync.planner import Action, InodeView, Place, Step, fold

ROOT = 1
GHOST = 100  # added to the number of a file whose former entry is to be deleted
MADE = 500  # added to the number of a file for the identity of its new entry
NEVER: Place = (NOWHERE, "")
ARRIVED = 900  # content of a request without an answer


class Refused(AssertionError):
    """Error: the service refuses a step."""


@dataclass(frozen=True, order=True)
class Item:
    """File or folder with local changes."""

    ino: int
    folder: bool
    place: Place  # here
    ident: int = 0  # of its entry on the service, 0: none
    generation: int = 0  # content to send
    moved: bool = False
    gone: bool = False
    final: bool = False
    parked: bool = False
    held: bool = False  # a program has it open
    written: int = 0  # content of a new file that its program has not saved yet
    asked: Place | None = None  # place of a request without an answer
    left: Place | None = None  # last place here that the service does not know

    @property
    def new(self) -> bool:
        """Return True if the service has no entry of it, as far as the client knows."""
        return not self.ident

    def intent(self) -> Intent | None:
        """Return the intent, if there is one."""
        if not (self.generation or self.moved or self.gone or self.parked):
            return None
        return Intent(
            self.ino, self.ino, generation=self.generation, gone=self.gone, held=self.held,
            place=self.moved or self.final or self.parked, parked=self.parked,
        )  # fmt: skip


@dataclass(frozen=True, order=True)
class Entry:
    """Entry of the service."""

    place: Place
    folder: bool
    versions: tuple[int, ...] = ()


@dataclass(frozen=True)
class Plan:
    """State of both sides."""

    items: tuple[Item, ...]
    entries: tuple[tuple[int, Entry], ...]  # by identity

    # ---- what the planner sees ----

    def steps(self, *, backwards: bool = False) -> list[Step]:
        """Return the steps that the planner plans now."""
        intents = [found for item in self.items if (found := item.intent())]
        entries = dict(self.entries)
        views = {item.ino: self._view(item, entries) for item in self.items}
        writing = [item.place for item in self.items if item.new and (item.held or item.written)]
        return fold(intents[::-1] if backwards else intents, views, writing)

    def _view(self, item: Item, entries: Mapping[int, Entry]) -> InodeView:
        toward = item.folder and not item.new and item.place[0] in entries
        asked = item.asked if item.new else None
        inside = (asked[0], *_inside(asked[0], entries)) if asked else _inside(item.ident, entries)
        return InodeView(
            item.ino, item.folder, item.new, item.place,
            origin=asked if item.new else entries[item.ident].place,
            inside=inside,
            toward=_inside(item.place[0], entries) if toward else (),
            left=None if item.new else item.left,
        )  # fmt: skip

    # ---- what a step does ----

    def item(self, ino: int) -> Item | None:
        """Return an item."""
        return next((item for item in self.items if item.ino == ino), None)

    def after(self, step: Step) -> "Plan":
        """Return the state after a step. Raises Refused."""
        item, entries = self.item(step.ino), dict(self.entries)
        assert item is not None
        for asked in (self.item(step.other), item):
            if asked is not None and asked.asked is not None:
                return self._answered(asked)
        match step.action:
            case Action.MAKE | Action.UPLOAD if item.new:
                put = Entry(item.place, item.folder, (item.generation,) * (not item.folder))
                ident = item.ino + MADE * (not item.folder)
                _put(entries, ident, put)
                sent = replace(item, ident=ident, generation=0, moved=False)
                return self._with(entries, sent)
            case Action.UPLOAD:
                old = entries[item.ident]
                entries[item.ident] = replace(old, versions=(*old.versions, item.generation))
                return self._with(entries, replace(item, generation=0))
            case Action.MOVE:
                _move(entries, item.ident, item.place)
                return self._with(entries, replace(item, moved=False, left=None))
            case Action.ASIDE:
                above = _inside(item.ident, entries)
                folders = [folder for each in above if (folder := self.item(each)) is not None]
                free = ROOT if any(folder.intent() for folder in folders) else above[0]
                _move(entries, item.ident, (free, f"aside {item.ino}"))
                return self._with(entries, item)
            case Action.DELETE if item.new:
                return self._with(entries, without=item)
            case Action.DELETE:
                if any(entry.place[0] == item.ident for entry in entries.values()):
                    raise Refused(f"folder {item.ino} is not empty")
                del entries[item.ident]
                return self._with(entries, without=item)
            case Action.WITHDRAW:
                ghost = Item(item.ino + GHOST, False, NEVER, item.ident, gone=True)
                return self._with(entries, ghost, without=item)
            case _:
                return self._adopted(item, step.other, entries)

    def _adopted(self, item: Item, other: int, entries: dict[int, Entry]) -> "Plan":
        former = self.item(other)
        assert former is not None
        assert former.ident, "a new entry has no identity to give"
        moved = item.place != entries[former.ident].place
        plan = self._with(entries, replace(item, ident=former.ident, moved=moved))
        if former.gone:
            return plan._with(entries, without=former)
        content = former.generation or entries[former.ident].versions[-1]
        stays = replace(former, ident=0, generation=content, moved=False, left=None)
        return plan._with(entries, stays)

    def _answered(self, item: Item) -> "Plan":
        """Return the state after the outcome of a request is known."""
        asked = replace(item, asked=None)
        arrived = next((ident for ident, entry in self.entries if entry.place == item.asked
                        and entry.versions[-1:] == (ARRIVED,)), 0)  # fmt: skip
        if not arrived:
            return self._with(dict(self.entries), asked)
        known = replace(asked, ident=arrived, moved=not item.gone and item.place != item.asked)
        return self._with(dict(self.entries), known)

    def closed(self) -> "Plan":
        """Return the state after all programs have closed their files."""
        items = (
            replace(item, held=False, written=0, generation=item.written or item.generation)
            for item in self.items
        )
        return replace(self, items=tuple(items))

    def _with(
        self, entries: Mapping[int, Entry], *changed: Item, without: Item | None = None
    ) -> "Plan":
        items = {item.ino: item for item in self.items}
        if without is not None:
            del items[without.ino]
        items |= {item.ino: item for item in changed}
        return Plan(tuple(sorted(items.values())), tuple(sorted(entries.items())))

    # ---- the end ----

    def expected(self) -> dict[Place, int | None]:
        """Return the expected entries of the service: content by place, None for a folder."""
        mine = {item.ident for item in self.items}
        entries = dict(self.entries)
        wanted = {entry.place: _content(entry) for ident, entry in self.entries if ident not in mine
                  and entry.versions[-1:] != (ARRIVED,)}  # fmt: skip
        for item in self.items:
            if not (item.gone or item.parked):
                content = item.written or item.generation
                is_old = not item.folder and item.ident and not content
                wanted[item.place] = (
                    None if item.folder
                    else entries[item.ident].versions[-1] if is_old else content
                )  # fmt: skip
        gone = {item.ino for item in self.items if item.folder and item.gone}
        for item in self.items:
            origin = entries[item.ident].place if item.parked else NEVER
            if item.parked and origin not in wanted and origin[0] not in gone:
                wanted[origin] = entries[item.ident].versions[-1]
        return wanted

    def reached(self) -> dict[Place, int | None]:
        """Return the entries of the service."""
        return {entry.place: _content(entry) for _, entry in self.entries}


def _content(entry: Entry) -> int | None:
    return None if entry.folder else entry.versions[-1]


def _inside(ident: int, entries: Mapping[int, Entry]) -> tuple[int, ...]:
    found: list[int] = []
    while ident in entries:
        ident = entries[ident].place[0]
        found.append(ident)
    return tuple(found)


def _put(entries: dict[int, Entry], ident: int, entry: Entry) -> None:
    if entry.place in {each.place for each in entries.values()}:
        raise Refused(f"{entry.place} is taken")
    if entry.place[0] != ROOT and entry.place[0] not in entries:
        raise Refused(f"there is no folder for {entry.place}")
    entries[ident] = entry


def _move(entries: dict[int, Entry], ident: int, place: Place) -> None:
    if ident == place[0] or ident in _inside(place[0], entries):
        raise Refused("a folder cannot move into itself")
    moved = entries.pop(ident)
    _put(entries, ident, replace(moved, place=place))


# ---- exploration ----


class Wrong(AssertionError):
    """Error: the planner violates a guarantee."""


def explore(start: Plan) -> int:
    """Run the steps in every order; return the number of states. Raises Wrong and Refused."""
    expected = start.expected()
    over: set[Plan] = set()
    path: list[Plan] = []
    ends = set[tuple[tuple[int, Entry], ...]]()

    def visit(plan: Plan) -> None:
        if plan in over:
            return
        if plan in path:
            raise Wrong(f"the plan comes back to {plan}")
        steps = plan.steps()
        ready = [step for step in steps if not step.after]
        if {_key(step) for step in ready} != {
            _key(step) for step in plan.steps(backwards=True) if not step.after
        } and not any(step.action is Action.ASIDE for step in ready):
            raise Wrong(f"the order of the changes matters: {ready}")
        for one, other in combinations(ready, 2):
            _commute(plan, one, other)
        path.append(plan)
        for then in _runs(plan, ready):
            visit(then)
        if not ready:
            closed = plan.closed()
            if closed != plan:
                visit(closed)
            elif steps:
                raise Wrong(f"all wait for each other: {steps}")
            elif plan.reached() != expected:
                raise Wrong(f"the service has {plan.reached()}, not {expected}")
            else:
                ends.add(plan.entries)
        path.pop()
        over.add(plan)

    visit(start)
    if not ends:
        raise Wrong("there is no end")
    return len(over)


def _key(step: Step) -> tuple[Action, int, int]:
    return step.action, step.ino, step.other


def _commute(plan: Plan, one: Step, other: Step) -> None:
    """Check that two steps that may run at the same time do not disturb each other."""
    both = [_both(plan, *pair) for pair in ((one, other), (other, one))]
    if Action.ASIDE in (one.action, other.action):
        return  # the folder of the temporary name may differ
    if both[0] is not None and both[1] is not None and both[0] != both[1]:
        raise Wrong(f"{one} and {other} depend on their order")


def _both(plan: Plan, first: Step, second: Step) -> Plan | None:
    """Return the state after two steps, None if the first one makes the second one outdated."""
    then = plan.after(first)
    return None if _is_outdated(second, plan, then) else then.after(second)


def _is_outdated(step: Step, plan: Plan, then: Plan) -> bool:
    """Return True if an inode of the step, which was planned for `plan`, is different in `then`."""
    inos = (step.ino, step.other) if step.other else (step.ino,)
    return any(then.item(ino) != plan.item(ino) for ino in inos)


def _runs(plan: Plan, ready: Sequence[Step]) -> Iterator[Plan]:
    """Yield the states after one or more steps that were planned together, in every order."""
    for step in ready:
        then = plan.after(step)
        yield then
        others = [each for each in ready if each is not step]
        yield from _runs(then, [each for each in others if not _is_outdated(each, plan, then)])


# ---- inputs ----


def files(
    ino: int, origins: Sequence[Place], places: Sequence[Place]
) -> Iterator[tuple[Item, Entry | None]]:
    """Yield all changes of one file."""
    for place in places:
        for held in (False, True):
            yield Item(ino, False, place, generation=ino, held=held), None
        yield Item(ino, False, place, written=ino), None
    for origin in origins:
        entry = Entry(origin, False, (ino + 300,))
        for place in places:
            for generation, held in ((0, False), (ino, False), (ino, True)):
                moved = place != origin
                if moved or generation:
                    item = Item(ino, False, place, ino, generation, moved, held=held)
                    between = [each for each in places if moved and each not in (place, origin)]
                    for left in (None, *between):
                        yield replace(item, left=left), entry
        yield Item(ino, False, origin, ino), entry  # without a change
        for final, held in product((False, True), repeat=2):
            item = Item(ino, False, NEVER, ino, gone=True, final=final, held=held)
            for left in (None, *(each for each in places if each != origin)):
                yield replace(item, left=left), entry
        yield Item(ino, False, (ROOT, f"{ino}~"), ino, parked=True), entry
        for has_arrived in (False, True):
            arrived = Entry(origin, False, (ARRIVED,)) if has_arrived else None
            for place in places:
                yield Item(ino, False, place, generation=ino, asked=origin), arrived
            yield Item(ino, False, NEVER, gone=True, asked=origin), arrived


def folders(
    ino: int, origins: Sequence[Place], places: Sequence[Place]
) -> Iterator[tuple[Item, Entry | None]]:
    """Yield all changes of one folder."""
    for place in places:
        yield Item(ino, True, place, moved=True), None
    for origin in origins:
        entry = Entry(origin, True)
        for place in places:
            yield Item(ino, True, place, ino, moved=place != origin), entry
        yield Item(ino, True, NEVER, ino, gone=True), entry


def inputs(shape: str) -> Iterator[Plan]:
    """Yield all inputs of a shape: "F" for each folder, "f" for each file."""
    names = "ab" if len(shape) > 2 else "abc"
    inos = [10 + number for number in range(shape.count("F"))]
    above = [ROOT, *inos]
    kinds = []
    for number, letter in enumerate(shape):
        ino = inos[number] if letter == "F" else 20 + number
        places = [(folder, name) for folder in above for name in names if folder != ino]
        kinds.append(list((folders if letter == "F" else files)(ino, places, places)))
    for chosen in product(*kinds):
        items = [item for item, _ in chosen]
        entries = [(item.ino, entry) for item, entry in chosen if entry is not None]
        if _is_possible(items, dict(entries)):
            yield Plan(tuple(sorted(items)), tuple(sorted(entries)))


def _is_possible(items: Sequence[Item], entries: Mapping[int, Entry]) -> bool:
    """Return True if both sides are trees with different names."""
    here = {item.ino: item for item in items}
    present = [item for item in items if not item.gone]
    sides = (
        {item.ino: item.place for item in present},
        {ident: entry.place for ident, entry in entries.items()},
    )
    asked = [item.asked for item in items if item.asked and item.ino not in entries]
    origins = [*sides[1].values(), *asked]
    if len(set(origins)) != len(origins) or len(set(sides[0].values())) != len(sides[0]):
        return False
    if not all(_is_tree(side) for side in sides):
        return False
    if any(place[0] != ROOT and place[0] not in entries for place in asked):
        return False
    return all(item.place[0] in (ROOT, NOWHERE) or not here[item.place[0]].gone for item in present)


def _is_tree(places: Mapping[int, Place]) -> bool:
    for ino in places:
        seen, above = {ino}, places[ino][0]
        while above != ROOT:
            if above in seen or above not in places:
                return False
            seen.add(above)
            above = places[above][0]
    return True


SHAPES = ("f", "F", "ff", "Ff", "FF", "fff", "Fff", "FFf")


def _explored(shape: str) -> tuple[int, int, list[str]]:
    """Explore all inputs of a shape; return their number, that of the states, and the findings."""
    number, states, found = 0, 0, []
    for plan in inputs(shape):
        number += 1
        try:
            states += explore(plan)
        except AssertionError as wrong:
            found.append(f"{wrong}\n  {plan}")
    return number, states, found


def explore_all(jobs: int) -> bool:
    """Explore all inputs, print what is wrong, and return True if anything is."""
    wrong = 0
    with multiprocessing.get_context("fork").Pool(jobs) as pool:
        results = zip(SHAPES, pool.imap(_explored, SHAPES), strict=True)
        for shape, (number, states, found) in results:
            print(f"{shape:3} {number} inputs, {states} states, {len(found)} wrong", flush=True)
            for each in found[:1]:
                print(f"FOUND {each}")
            wrong += len(found)
    return bool(wrong)
