"""Journal of intents: they survive a restart, and the newest change counts."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from zonedrive.causes import Cause
from zonedrive.db import Database
from zonedrive.model import Revision
from zonedrive.state.intents import (
    STALE,
    Failure,
    Intent,
    IntentTable,
    add_left,
    add_told,
    create_tables,
)

R1, R2 = Revision("1"), Revision("2")


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    found = Database.open(tmp_path / "journal.db", [create_tables, add_told, add_left])
    yield found
    found.close()


@pytest.fixture
def journal(database: Database) -> IntentTable:
    return IntentTable(database)


def write(journal: IntentTable, generation: int, base: Revision | None = R1) -> None:
    with journal.transaction():
        journal.content(5, generation, 10, base=base, held=False, due_ns=0)


def again(database: Database) -> list[Intent]:
    """Return the intents that the next daemon reads."""
    with closing(Database.open(database.path, [create_tables, add_told, add_left])) as other:
        return IntentTable(other).all()


def test_an_intent_survives_the_daemon(database: Database, journal: IntentTable) -> None:
    """A pending intent is the same after a restart."""
    write(journal, 1)
    with journal.transaction():
        journal.place(5, 7)
    assert again(database) == journal.all()


def test_a_second_edit_keeps_the_version_the_first_began_from(journal: IntentTable) -> None:
    """Two saves before an upload are one change, based on the version before both."""
    write(journal, 1, R1)
    write(journal, 2, R2)
    intent = journal.get(5)
    assert intent is not None
    assert (intent.generation, intent.base) == (2, R1)


def test_files_saved_many_times_before_a_plan_take_little_memory(journal: IntentTable) -> None:
    """Nothing is planned offline and in a pause; then each file is due at its last due time."""
    with journal.transaction():
        for number in range(1, 3 * STALE):
            for ino in (5, 6, 7):
                due = number * 10 + ino
                journal.content(ino, number, 10, base=None, held=False, due_ns=due)
            if number == STALE:
                assert list(journal.agenda.due_items(due)) == [5, 6, 7]
    assert len(journal.agenda._heap) < 2 * STALE
    assert list(journal.agenda.due_items(due - 1)) == [5, 6]
    assert journal.agenda.next_due() == due


@pytest.mark.parametrize("change", ["ended", "opened", "renamed"])
def test_a_content_that_is_not_to_be_sent_alone_is_not_due(
    journal: IntentTable, change: str
) -> None:
    """The outbox neither wakes for a file that was sent, opened or renamed, nor sends it."""
    with journal.transaction():
        journal.content(5, 1, 10, base=R1, held=False, due_ns=100)
        match change:
            case "ended":
                journal.drop(5)
            case "opened":
                journal.hold(5)
            case _:
                journal.place(5, 100)
    assert journal.agenda.next_due() is None
    assert list(journal.agenda.due_items(100)) == []


def test_names_changed_before_a_plan_take_little_memory(journal: IntentTable) -> None:
    """A program may create and remove folders offline for weeks."""
    with journal.transaction():
        for ino in range(1, 3 * STALE):
            journal.place(ino, 0)
            journal.drop(ino)
            assert journal.agenda.changed
    assert len(journal.agenda.changed) <= STALE


def test_a_finished_intent_is_gone(database: Database, journal: IntentTable) -> None:
    """A completed change leaves the journal, so that it is not sent twice."""
    write(journal, 1)
    intent = journal.get(5)
    assert intent is not None
    with journal.transaction():
        journal.done(intent, content=True)
    assert len(journal) == 0
    assert again(database) == []


def test_a_failure_counts_until_the_file_changes_again(journal: IntentTable) -> None:
    """A new save of a refused file is a first attempt again."""
    write(journal, 1)
    intent = journal.get(5)
    assert intent is not None
    with journal.transaction():
        journal.postpone(intent, 99, "no right to write", Cause.REFUSED)
    refused = journal.get(5)
    assert refused is not None
    assert (refused.failed, refused.attempts, refused.error) == (True, 1, "no right to write")
    write(journal, 2)
    again = journal.get(5)
    assert again is not None
    assert (again.failed, again.attempts, again.error) == (False, 0, "")


def test_each_kind_of_failure_is_counted_separately(journal: IntentTable) -> None:
    """Many temporary errors say nothing about the first failure of another kind."""
    write(journal, 1)
    (intent,) = journal.all()
    assert [journal.count_failure(intent, Cause.SERVICE) for _ in range(3)] == [1, 2, 3]
    assert [journal.count_failure(intent, Failure.COMPARISON) for _ in range(2)] == [1, 2]
    assert journal.count_failure(intent, Cause.SERVICE) == 4


@pytest.mark.parametrize("change", ["save", "rename", "sent", "removed and saved"])
def test_the_numbers_of_failures_are_reset(journal: IntentTable, change: str) -> None:
    """They are about one change, and a failure of the change before is not counted any more."""
    write(journal, 1)
    with journal.transaction():
        former = journal.place(5, 0)
    assert journal.count_failure(former, Failure.COPY) == 1
    match change:
        case "save":
            write(journal, 2)
        case "rename":
            with journal.transaction():
                journal.place(5, 0)
        case "sent":
            with journal.transaction():
                journal.done(former, content=True)
        case _:
            journal.discard(5)
            write(journal, 3)
    if change != "sent":
        assert [journal.count_failure(former, Failure.COPY) for _ in range(2)] == [1, 1]
    (intent,) = journal.all()
    assert [journal.count_failure(intent, Failure.COPY) for _ in range(2)] == [1, 2]


@pytest.mark.parametrize("cause", [Cause.SERVICE, Cause.UNCLEAR])
def test_the_numbers_of_failures_after_a_restart(
    database: Database, journal: IntentTable, cause: Cause
) -> None:
    """The recorded attempts count for the recorded cause, so that its pauses stay long."""
    write(journal, 1)
    for _ in range(3):
        journal.postpone(journal.all()[0], 0, "no", cause)
    after = IntentTable(database)
    (intent,) = after.all()
    assert after.count_failure(intent, cause) == 4
    is_unclear = cause is Cause.UNCLEAR
    assert after.count_failure(intent, Failure.UNUSABLE_REPLY) == (4 if is_unclear else 1)
    assert after.count_failure(intent, Cause.CHANGED) == 1


def test_a_file_that_is_parked_is_not_held(journal: IntentTable) -> None:
    """Parked content is stored only locally, so there is nothing to hold back."""
    with journal.transaction():
        journal.content(5, 1, 10, base=R1, held=True, due_ns=0)
        journal.park(5, R2)
    (intent,) = journal.all()
    assert (intent.parked, intent.held) == (True, False)
    assert (intent.generation, intent.size, intent.base) == (0, 0, R1)


def test_a_failed_transaction_leaves_the_journal_as_it_was(journal: IntentTable) -> None:
    """Memory and table agree, even if a disk becomes full in the middle."""
    write(journal, 1)
    before = journal.all()
    with pytest.raises(OSError, match="full"), journal.transaction():
        journal.gone(5, 0)
        journal.place(6, 0)
        journal.drop(5)
        raise OSError("full")
    assert journal.all() == before
