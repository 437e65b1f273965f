"""Planning with thousands of pending changes: only some are folded, and the steps are the same."""

from collections.abc import Collection
from types import SimpleNamespace
from typing import cast

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.harness.counting import calls
from tests.unit.sync.test_folding import intent, new_file, old_file, seen, worlds
from tests.unit.sync.unstored import Unstored
from zonedrive.causes import Cause
from zonedrive.db import Database
from zonedrive.state.inode import NOWHERE
from zonedrive.state.intents import Intent, IntentTable
from zonedrive.state.local_state import LocalState
from zonedrive.sync import planner
from zonedrive.sync.planner import (
    BATCH,
    LARGE,
    LARGE_ONES,
    Chains,
    InodeView,
    InodeViews,
    Place,
    Planner,
    Step,
    fold,
)

Items = list[tuple[Intent, InodeView]]


class Views:
    """Views of the inodes of the folding tests."""

    def __init__(self, items: Items) -> None:
        self._seen = seen(items)
        self.asked: set[int] = set()
        self.forgotten: list[int] = []

    def forget(self, ino: int) -> None:
        """Record the inode that no longer exists."""
        self.forgotten.append(ino)

    def describe(self, ino: int, chains: Chains) -> InodeView | None:
        """Return the view for folding."""
        self.asked.add(ino)
        return self._seen.get(ino)

    def being_written(self) -> Collection[Place]:
        """Return no writers."""
        return ()

    def unites_spellings(self) -> bool:
        """Return False, as for a service that distinguishes the names."""
        return False

    def pending(self) -> Collection[int]:
        """Return no pending requests."""
        return ()

    def occupant(self, place: Place) -> int:
        """Return the new file at that place."""
        there = (each for each in self._seen.values() if each.new and not each.folder)
        return next((each.ino for each in there if each.place == place), 0)


def planner_of(items: Items) -> tuple[Planner, IntentTable, Views]:
    journal = IntentTable(cast(Database, Unstored()))
    for each, _ in items:
        journal._put(each)
    subjects = Views(items)
    return Planner(journal, cast(planner.InodeViews, subjects)), journal, subjects


def in_short(steps: Collection[Step]) -> set[tuple[object, ...]]:
    return {(step.action, step.ino, step.other, step.after) for step in steps}


@settings(max_examples=1000, deadline=None)
@given(worlds(), st.integers(1, 4))
def test_the_steps_are_those_of_all_intents(items: Items, batch: int) -> None:
    """Folding only some of the intents gives no step that the others would have prevented."""
    plan, journal, _ = planner_of(items)
    whole = in_short(fold(journal.all(), seen(items)))
    before, planner.BATCH = planner.BATCH, batch
    try:
        steps, more = plan.due(1, set())
    finally:
        planner.BATCH = before
    found = in_short(steps)
    assert found <= whole
    if not more:
        assert found == whole


def test_the_cost_of_a_round_is_limited() -> None:
    """The cost of a round depends on the steps that can start, not on the pending changes."""
    items = [(intent(ino, generation=1), new_file(ino, (1, f"{ino}"))) for ino in range(2, 5000)]
    plan, _, subjects = planner_of(items)
    steps, more = plan.due(1, set())
    assert len(steps) == BATCH
    assert more
    assert len(subjects.asked) == BATCH


def test_files_of_a_folder_that_is_not_made_do_not_hide_others() -> None:
    """Files after many waiting ones are still sent."""
    folder = InodeView(2, folder=True, new=True, place=(1, "folder"), origin=None)
    inside = range(10, 10 + 2 * BATCH)
    items = [(intent(2, place=True, due_ns=1 << 60), folder)]
    items += [(intent(ino, generation=1), new_file(ino, (2, f"{ino}"))) for ino in inside]
    items.append((intent(5000, generation=1), new_file(5000, (1, "other"))))
    plan, _, _ = planner_of(items)
    for _ in range(5):
        steps, more = plan.due(1, set())
        if any(step.ino == 5000 for step in steps):
            break
    assert [step.ino for step in steps if not step.after and step.ino != 2] == [5000]
    assert not more
    plan.ended(next(step for step in steps if step.ino == 2))
    assert sum(bool(step.after) for step in plan.due(1, set())[0]) == BATCH


def test_large_files_do_not_hide_small_ones() -> None:
    """A folder full of large files does not delay a small one."""
    items = [
        (intent(ino, generation=1, size=LARGE + 1), new_file(ino, (1, f"{ino}")))
        for ino in range(2, 3 * BATCH)
    ]
    items.append((intent(5000, generation=1, size=1), new_file(5000, (1, "letter"))))
    plan, _, _ = planner_of(items)
    found = {step.ino for step in plan.due(1, set())[0]}
    assert 5000 in found
    assert len(found) == LARGE_ONES + 1


def test_a_running_step_does_not_hide_the_next_ones() -> None:
    """Files behind those that are being sent can start."""
    items = [(intent(ino, generation=1), new_file(ino, (1, f"{ino}"))) for ino in range(2, 8)]
    plan, _, _ = planner_of(items)
    assert {step.ino for step in plan.due(1, {2, 4, 5})[0]} == {3, 6, 7}
    assert plan.due(1, {2, 4, 5})[1] is False


def test_a_full_batch_tells_that_there_is_more() -> None:
    """The last file of a batch that is just full is not announced as more."""
    for number in (BATCH - 1, BATCH, BATCH + 1):
        inos = range(2, 2 + number)
        items = [(intent(ino, generation=1), new_file(ino, (1, f"{ino}"))) for ino in inos]
        steps, more = planner_of(items)[0].due(1, set())
        assert (len(steps), more) == (min(number, BATCH), number > BATCH)


def test_a_file_is_sent_when_it_is_due() -> None:
    """A file is sent when it is due, and no program has it open."""
    items = [
        (intent(2, generation=1, due_ns=50), old_file(2, (1, "a"))),
        (intent(3, generation=1, due_ns=1000), old_file(3, (1, "b"))),
        (intent(4, generation=1, due_ns=50, held=True), old_file(4, (1, "c"))),
    ]
    plan, journal, _ = planner_of(items)
    assert plan.due(10, set()) == ([], False)
    assert journal.agenda.next_due() == 50
    assert [step.ino for step in plan.due(60, set())[0]] == [2]
    assert [step.ino for step in plan.due(60, {2})[0]] == []
    assert journal.agenda.next_due() == 1000


def test_a_new_file_at_the_place_of_a_removed_one_makes_the_plan_outdated() -> None:
    """A planned deletion is cancelled once a new file has the name."""
    items = [(intent(2, gone=True), old_file(2, (1, "a")))]
    plan, _, subjects = planner_of(items)
    (step,), _ = plan.due(1, set())
    assert plan.is_current(step)
    subjects._seen[3] = new_file(3, (1, "a"))
    assert not plan.is_current(step)


def test_the_cost_of_nested_folders_that_were_removed_is_limited() -> None:
    """Each folder waits for all folders in it, and is looked at once for all that wait for it."""
    numbers = range(2, 22)
    items = [
        (intent(ino, gone=True), replace(old_file(ino, (ino - 1, "f")), folder=True))
        for ino in numbers
    ]
    with calls() as counted:
        steps = fold([each for each, _ in items], seen(items))
    assert {step.ino: step.after for step in steps} == {
        ino: frozenset(range(ino + 1, 22)) for ino in numbers
    }
    assert counted.number < 20 * len(items) ** 2


def removed(*inos: int) -> Items:
    return [(intent(ino, gone=True), old_file(ino, (1, f"{ino}"))) for ino in inos]


def test_the_end_of_a_step_leaves_the_others_valid() -> None:
    """Steps that need not wait for each other require no new folding when one of them ends."""
    plan, journal, _ = planner_of(removed(2, 3, 4, 5))
    by_ino = {step.ino: step for step in plan.due(1, set())[0]}
    journal.drop(2)
    plan.ended(by_ino[2])
    journal.postpone(by_ino[3].intent, 1, "no answer", Cause.SERVICE)
    plan.ended(by_ino[3])
    assert plan.is_current(by_ino[4])
    assert plan.is_current(by_ino[5])


def test_the_end_of_a_step_that_was_planned_differently_requires_a_new_folding() -> None:
    """A step that runs during a folding may have been planned for other changes."""
    plan, journal, views = planner_of(removed(2, 3))
    former, other = plan.due(1, set())[0]
    assert plan.is_current(other)
    views._seen[2] = old_file(2, (1, "2"), (1, "elsewhere"))
    journal._put(intent(2, place=True))
    assert not plan.is_current(other)
    steps = {step.ino: step for step in plan.due(1, set())[0]}
    journal.drop(2)
    plan.ended(former)
    assert not plan.is_current(steps[3])


def test_a_change_during_a_step_requires_a_new_folding() -> None:
    """A removal or rename during the step of the same entry is not taken for the step's end."""
    plan, journal, _ = planner_of(removed(2, 3))
    step, other = plan.due(1, set())[0]
    journal.place(2, 0)
    plan.ended(step)
    assert not plan.is_current(other)


def test_a_change_of_another_entry_by_a_step_requires_a_new_folding() -> None:
    """A rollback may end the changes of other entries."""
    plan, journal, _ = planner_of(removed(2, 3, 4))
    steps = {step.ino: step for step in plan.due(1, set())[0]}
    journal.drop(2)
    journal.drop(3)
    plan.ended(steps[2])
    assert not plan.is_current(steps[4])


def test_only_new_files_with_a_name_are_being_written() -> None:
    """Files that are open for reading, edited, removed or local do not count as new files.

    They do not hide a new file after them either.
    """

    def file(**fields: object) -> SimpleNamespace:
        return SimpleNamespace(**{"is_new": True, "parent": 1, "local": False, **fields})

    files = {
        2: file(),
        3: file(is_new=False),
        4: file(parent=NOWHERE),
        5: file(local=True),
        7: file(),
        8: file(),
    }
    opened = [SimpleNamespace(ino=ino, session=object()) for ino in range(3, 9)]
    state = SimpleNamespace(
        opened={each.ino: each for each in [SimpleNamespace(ino=2, session=None), *opened]},
        inodes=SimpleNamespace(find=files.get),
        remote_name=lambda inode: next(f"{ino}" for ino, each in files.items() if each is inode),
    )
    assert InodeViews(cast(LocalState, state)).being_written() == {(1, "7"), (1, "8")}
