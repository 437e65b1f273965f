"""The planner alone, on all small inputs: it ends, and every order of its steps gives the same.

`python -m tests.simulation --planner` runs all inputs of three files and folders.
"""

from itertools import chain, permutations, product
from typing import cast

import pytest

from tests.simulation.planning import (
    MADE,
    NEVER,
    ROOT,
    SHAPES,
    Entry,
    Item,
    Plan,
    Refused,
    Wrong,
    explore,
    inputs,
)
from tests.unit.sync.unstored import Unstored
from zonedrive.db import Database
from zonedrive.model import Entry as RemoteEntry
from zonedrive.model import Revision
from zonedrive.state import outbox_states
from zonedrive.state.intents import Intent, IntentTable
from zonedrive.state.outbox_states import Change
from zonedrive.sync.planner import Action, Step
from zonedrive.sync.upload import Decision, decide

A, B = (ROOT, "a"), (ROOT, "b")
SHARE = 101  # of the inputs with three entries, one of so many

# ---- order ----


@pytest.mark.parametrize("shape", SHAPES)
def test_every_order_of_the_steps_gives_the_same(shape: str) -> None:
    """Steps end, nothing is refused, and the service gets all bytes at their places."""
    share = SHARE if len(shape) > 2 else 1
    explored = [explore(plan) for number, plan in enumerate(inputs(shape)) if number % share == 0]
    assert len(explored) > 10


def test_two_new_files_that_exchange_their_names_are_sent() -> None:
    """Each has the name under which the other one may have arrived."""
    one = Item(20, False, B, generation=20, asked=A)
    two = Item(21, False, A, generation=21, asked=B)
    assert {step.ino for step in Plan((one, two), ()).steps() if not step.after} == {20, 21}
    explore(Plan((one, two), ()))


def test_a_folder_stays_while_a_program_reads_a_removed_file_in_it() -> None:
    """The folder is deleted after the file, because it may not be deleted with something in it."""
    folder = Item(10, True, NEVER, 10, gone=True)
    file = Item(20, False, NEVER, 20, gone=True, held=True)
    entries = ((10, Entry(A, True)), (20, Entry((10, "a"), False, (1,))))
    plan = Plan((folder, file), entries)
    assert [step.ino for step in plan.steps() if not step.after] == []
    assert [step.ino for step in plan.closed().steps() if not step.after] == [20]


def test_the_exploration_finds_a_step_that_is_refused() -> None:
    """A service with an entry that the client does not know refuses a new folder."""
    item = Item(10, True, A, moved=True)
    with pytest.raises(Refused, match="is taken"):
        explore(Plan((item,), ((99, Entry(A, True)),)))


def test_the_exploration_finds_lost_bytes() -> None:
    """A parked file whose entry is gone is not what the service should have."""

    class Forgetful(Plan):
        def steps(self, *, backwards: bool = False) -> list[Step]:
            return []

    with pytest.raises(Wrong, match="the service has"):
        explore(Forgetful((Item(20, False, A, generation=20),), ()))


def test_a_new_file_continues_the_history_of_the_one_that_it_replaces() -> None:
    """The service gets one version of the same file, and no other entry."""
    former = Item(20, False, NEVER, 20, gone=True)
    plan = Plan((former, Item(21, False, A, generation=21)), ((20, Entry(A, False, (1,))),))
    while ready := [step for step in plan.steps() if not step.after]:
        assert [step.action for step in ready] != [Action.DELETE]
        plan = plan.after(ready[0])
    assert plan.entries == ((20, Entry(A, False, (1, 21))),)
    assert MADE + 21 not in dict(plan.entries)


# ---- coalescing ----

OLD, NEWER = Revision("1"), Revision("2")
CHANGES = ("save", "flush", "move", "park", "remove", "delete", "open", "close", "fail")


class Journal:
    """Intents of one file, changed as programs and steps change them."""

    def __init__(self) -> None:
        self.table = IntentTable(cast(Database, Unstored()))
        self.saved = 0  # content that must not be dropped

    def change(self, change: str, number: int) -> None:
        """Make one change; `number` is the content of a save."""
        table, now = self.table, self.now
        match change:
            case "save" | "flush":
                held = change == "flush"
                table.content(5, number, number, base=OLD, held=held, due_ns=0)
                self.saved = number
            case "move":
                table.place(5, 0, NEWER)
            case "park":
                table.park(5, NEWER)
                self.saved = 0  # it stays here
            case "remove" | "delete":
                table.gone(5, 0, final=change == "delete")
                self.saved = 0
            case "open":
                table.hold(5)
            case "close":
                table.let_go(5, number)
            case "fail" if now is not None:
                table.postpone(now, number, "no", now.cause)

    @property
    def now(self) -> Intent | None:
        """The intent."""
        return self.table.get(5)


def _follows(before: Change, change: str) -> bool:
    """Return True if programs and steps may make the change in that state."""
    event = outbox_states.Event
    events = {
        "save": event.SAVE, "flush": event.FLUSH, "move": event.MOVE, "park": event.PARK,
        "remove": event.REMOVE, "delete": event.DELETE, "open": event.OPEN, "close": event.CLOSE,
        "fail": event.FAIL,
    }  # fmt: skip
    return events[change] in outbox_states.TRANSITIONS[before]


@pytest.mark.parametrize("length", [1, 2, 3, 4])
def test_no_sequence_of_changes_drops_bytes(length: int, caplog: pytest.LogCaptureFixture) -> None:
    """The intent names the newest content until the file is removed or gets a local name."""
    for changes in product(CHANGES, repeat=length):
        journal = Journal()
        for number, change in enumerate(changes, 1):
            state = journal.now.state if journal.now else Change.NONE
            if not _follows(state, change):
                break
            journal.change(change, number)
            generation = journal.now.generation if journal.now else 0
            assert generation == journal.saved, changes
    assert not caplog.records


def test_moves_and_saves_commute() -> None:
    """A file that is saved and moved is sent the same way in whichever order that happened."""
    for changes in product(("save", "move", "fail"), repeat=3):
        found = set()
        for order in permutations(enumerate(changes, 1)):
            journal = Journal()
            newest = max([number for number, change in order if change == "save"], default=0)
            for _, change in order:
                journal.change(change, newest)
            now = journal.now
            found.add(now and (now.generation, now.place, now.gone, now.held, now.parked))
        assert len(found) == 1, changes


def test_a_step_ends_only_what_it_sent() -> None:
    """A change that is made while a step runs is sent afterwards."""
    firsts = (("save",), ("move",), ("save", "move"), ("move", "save"))
    seconds = [*product(("save", "flush", "move"), repeat=1), *product(("save", "move"), repeat=2)]
    for first, second, content in product(firsts, seconds, (False, True)):
        journal = Journal()
        for number, change in enumerate(first, 1):
            journal.change(change, number)
        sent = journal.now
        assert sent is not None
        for number, change in enumerate(second, 10):
            journal.change(change, number)
        journal.table.done(sent, content=content, place=not content)
        left = journal.now
        is_saved_again = {"save", "flush"} & set(second)
        if is_saved_again or (sent.generation and not content):
            assert left is not None and left.generation == journal.saved
        if "move" in second:
            assert left is not None and left.place


# ---- conflicts ----

REVISIONS = (OLD, NEWER)


def _remote(
    revision: Revision, size: int, *, folder: bool = False, unsure: bool = False
) -> RemoteEntry:
    return RemoteEntry(
        "id", "zone", "root", "name", folder, size=size, revision=revision, unsure=unsure
    )


def test_every_conflict_has_a_decision() -> None:
    """A version that was not seen is never overwritten."""
    entries = [
        _remote(revision, size, folder=folder, unsure=unsure)
        for revision, size, folder, unsure in product(
            REVISIONS, (0, 1), (False, True), (False, True)
        )
    ]
    for found, is_new, base, size in product(
        [None, *entries], (False, True), (None, *REVISIONS), (0, 1)
    ):
        decision = decide(size, found, is_new=is_new, base=base)
        if found is None:
            assert decision is (Decision.SEND if is_new else Decision.LOST)
        elif decision is Decision.SEND:
            assert not is_new and found.revision == base
        elif decision is Decision.COMPARE:
            assert found.size == size
        else:
            assert decision is Decision.CONFLICT


def test_of_two_edits_exactly_one_is_the_next_version() -> None:
    """The first edit of a version is sent, whoever makes it; the second one is a conflict."""
    for is_new, sizes in product((False, True), product((1, 2), repeat=2)):
        outcomes = []
        for first, second in (sizes, sizes[::-1]):
            there = None if is_new else _remote(OLD, 9)
            base = None if is_new else OLD
            one = decide(first, there, is_new=is_new, base=base)
            other = decide(second, _remote(NEWER, first), is_new=is_new, base=base)
            outcomes.append((one, other))
        assert {one for one, _ in outcomes} == {Decision.SEND}
        expected = Decision.COMPARE if sizes[0] == sizes[1] else Decision.CONFLICT
        assert set(chain.from_iterable(outcomes)) == {Decision.SEND, expected}
