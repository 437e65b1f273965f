"""Dispatcher: all changes are sent in order, and a failure stops only its own change."""

import errno
import gc
import time
import weakref
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, nullcontext
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
import trio
import trio.testing

from zonedrive.causes import Cause, cause_of
from zonedrive.config import Settings
from zonedrive.db import Database
from zonedrive.errors import BadAnswer, Changed, Forbidden, Unavailable, UnusableReply
from zonedrive.snapshot import Stale
from zonedrive.state.intents import Intent, IntentTable, add_left, add_told, create_tables
from zonedrive.state.local_state import LocalState
from zonedrive.state.pause import PauseSwitch
from zonedrive.supervisor import Supervisor
from zonedrive.sync import dispatcher
from zonedrive.sync.dispatcher import BIG, SMALL, Dispatcher
from zonedrive.sync.executor import Executor
from zonedrive.sync.planner import Chains, InodeView, InodeViews, Place, Planner, Step
from zonedrive.sync.upload import TINY

PATIENCE = 60


class StepExecutor:
    """Executor whose results a test defines."""

    def __init__(self, journal: IntentTable) -> None:
        self.journal = journal
        self.carried: list[int] = []
        self.intents: list[Intent] = []  # of the steps that began
        self.described = 0  # number of views for foldings
        self.errors: dict[int, list[Exception]] = {}
        self.gates: dict[int, trio.Event] = {}
        self.under_way: set[int] = set()
        self.most = 0
        self.begun = trio.Event()
        self.online = trio.Event()
        self.online.set()

    def describe(self, ino: int, chains: Chains) -> InodeView | None:
        self.described += 1
        return InodeView(ino, folder=False, new=False, place=(1, f"{ino}"), origin=(1, f"{ino}"))

    def unites_spellings(self) -> bool:
        return False

    def being_written(self) -> set[Place]:
        return set()

    def temporarily_named(self) -> set[int]:
        return set()

    def pending(self) -> list[int]:
        return []

    def occupant(self, place: Place) -> int:
        return 0

    def begin(self) -> None:
        """Schedule nothing."""

    async def ready(self) -> bool:
        waited = not self.online.is_set()
        await self.online.wait()
        return waited

    async def carry(self, step: Step) -> None:
        self.begun.set()
        self.intents.append(step.intent)
        self.under_way.add(step.ino)
        self.most = max(self.most, len(self.under_way))
        try:
            if step.ino in self.gates:
                await self.gates[step.ino].wait()
            await trio.lowlevel.checkpoint()
            if self.errors.get(step.ino):
                raise self.errors[step.ino].pop(0)
            self.carried.append(step.ino)
            with self.journal.transaction():
                if step.intent.gone:
                    self.journal.drop(step.ino)
                else:
                    self.journal.done(step.intent, content=True)
        finally:
            self.under_way.discard(step.ino)

    def release(self) -> None:
        """Let all steps go on."""
        for gate in self.gates.values():
            gate.set()


class OnlyOneAttempt(StepExecutor):
    """Executor whose second attempt has no end, so that the record of the first one stays."""

    async def carry(self, step: Step) -> None:
        if self.intents:
            await trio.sleep_forever()
        await super().carry(step)


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[IntentTable]:
    database = Database.open(tmp_path / "journal.db", [create_tables, add_told, add_left])
    yield IntentTable(database)
    database.close()


def write(journal: IntentTable, *inos: int, size: int = 1) -> None:
    with journal.transaction():
        for ino in inos:
            journal.content(ino, 1, size, base=None, held=False, due_ns=0)


@asynccontextmanager
async def running(
    carrier: StepExecutor,
    places: int = 4,
    quiet: float = 0.0,
    most: int = 0,
    uploads: int = 100,
    switch: PauseSwitch | None = None,
    put_back: set[int] | None = None,
) -> AsyncIterator[Dispatcher]:
    state = SimpleNamespace(
        intents=carrier.journal,
        supervisor=Supervisor(),
        in_flight={},
        pause=switch or PauseSwitch(),
        paused_uploads=set() if put_back is None else put_back,
        settings=Settings(),
    )
    dispatcher = Dispatcher(
        cast(LocalState, state),
        cast(InodeViews, carrier),
        cast(Executor, carrier),
        places,
        quiet,
        most=most,
        uploads=uploads,
    )
    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(dispatcher.run)
            yield dispatcher
            nursery.cancel_scope.cancel()


async def test_everything_is_sent_within_the_places(journal: IntentTable) -> None:
    """All pending files are sent, never more at the same time than allowed."""
    carrier = StepExecutor(journal)
    write(journal, *range(50))
    async with running(carrier, places=4) as dispatcher:
        await dispatcher.wait_until(lambda: not len(journal))
    assert sorted(carrier.carried) == list(range(50))
    assert carrier.most == 8  # short ones: twice as many


def remove(journal: IntentTable, *inos: int) -> None:
    with journal.transaction():
        for ino in inos:
            journal.gone(ino, 0)


async def test_the_work_for_removals_grows_with_their_number(
    journal: IntentTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The intents are not folded again after each removal."""
    monkeypatch.setattr(dispatcher, "LOOK_S", float("inf"))  # no folding because of the time
    number = 200
    carrier = StepExecutor(journal)
    remove(journal, *range(number))
    async with running(carrier) as sending:
        await sending.wait_until(lambda: not len(journal))
    assert sorted(carrier.carried) == list(range(number))
    assert carrier.described <= 2 * number


async def test_a_long_queue_does_not_delay_what_is_more_urgent(
    journal: IntentTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that is saved while many removals wait is sent before them."""
    for name in ("LOOK_S", "FOLD_PAUSE_S", "CALM"):
        monkeypatch.setattr(dispatcher, name, 0.0)
    carrier, removals = StepExecutor(journal), range(1, 100)
    carrier.gates = {ino: trio.Event() for ino in removals}
    remove(journal, *removals)
    async with running(carrier, places=2):
        await trio.testing.wait_all_tasks_blocked()
        write(journal, 200)
        for _ in range(2):
            carrier.gates[min(carrier.under_way)].set()
            await trio.testing.wait_all_tasks_blocked()
        assert 200 in carrier.carried
        assert len(carrier.carried) == 3


@pytest.mark.parametrize(("minutes", "sent"), [(-1, True), (1, False), (4, False), (6, True)])
async def test_a_file_is_not_sent_before_its_time(
    journal: IntentTable, minutes: int, sent: bool
) -> None:
    """A due time later than any pause is ignored, because the clock was set back."""
    carrier = StepExecutor(journal)
    due = time.time_ns() + minutes * 60 * 10**9
    with journal.transaction():
        journal.content(3, 1, 1, base=None, held=False, due_ns=due)
    async with running(carrier):
        await trio.testing.wait_all_tasks_blocked()
        await trio.testing.wait_all_tasks_blocked()
        assert carrier.carried == [3] * sent


async def test_nothing_is_checked_until_the_next_change_is_due(
    journal: IntentTable, autojump_clock: trio.testing.MockClock
) -> None:
    """A waiting change costs no processor time."""
    checks = list[float]()

    class Checked(StepExecutor):
        async def ready(self) -> bool:
            checks.append(trio.current_time())
            return await super().ready()

    with journal.transaction():
        journal.content(3, 1, 1, base=None, held=False, due_ns=time.time_ns() + 200 * 10**9)
    async with running(Checked(journal)):
        await trio.sleep(PATIENCE / 2)
    assert len(checks) == 1


@pytest.mark.parametrize(
    ("error", "size", "attempts", "longest"),
    [
        (Unavailable("busy"), 1, 0, 1.0), (Unavailable("busy"), 1, 1, 2.0),
        (Unavailable("busy"), 1, 3, 8.0), (Unavailable("busy"), BIG + 1, 3, 8.0),
        (Unavailable("busy"), 1, 4, 15.0), (Unavailable("busy"), 1, 20, 15.0),
        (Unavailable("busy"), BIG, 20, 15.0), (Unavailable("busy"), BIG + 1, 20, 300.0),
        (Changed("newer"), 1, 1, 0.5), (Changed("newer"), 1, 3, 2.0),
        (Changed("newer"), 1, 20, 15.0), (Forbidden("no", status=403), 1, 0, 4.0),
        (Forbidden("no", status=403), 1, 2, 16.0), (Forbidden("no", status=403), 1, 20, 300.0),
        (Forbidden("no", status=403), BIG, 0, 4.0), (Forbidden("no", status=403), BIG + 1, 0, 60.0),
        (Forbidden("no", status=403), BIG + 1, 1, 120.0),
    ],
)  # fmt: skip
@pytest.mark.parametrize("waited", [False, True])
async def test_the_pause_after_a_failure(
    journal: IntentTable, error: Exception, size: int, attempts: int, longest: float, waited: bool
) -> None:
    """Each pause is twice as long as the one before; a caller shortens it to two seconds.

    It is shortened by up to half at random.
    """
    carrier = StepExecutor(journal)
    carrier.errors[2] = [error]
    write(journal, 2, size=size)
    for _ in range(attempts):
        journal.postpone(journal.all()[0], 0, "failed", cause_of(error))
    began = time.time_ns()
    async with running(carrier) as dispatcher:
        with dispatcher.waited_for() if waited else nullcontext():
            await dispatcher.wait_until(lambda: journal.all()[0].attempts > attempts)
    if waited and isinstance(error, Unavailable):
        longest = min(longest, 2.0)
    due = journal.all()[0].due_ns
    assert began + longest / 2 * 1e9 <= due <= time.time_ns() + longest * 1e9


async def test_a_refusal_stops_only_its_file(journal: IntentTable) -> None:
    """A file that may not be written delays no other, and its reason is reported."""
    carrier = StepExecutor(journal)
    carrier.errors[2] = [Forbidden("no right to write here", status=403)]
    write(journal, 1, 2, 3)
    async with running(carrier) as dispatcher:
        await dispatcher.wait_until(lambda: len(journal) == 1 and journal.all()[0].failed)
        assert isinstance(dispatcher.failure(2), Forbidden)
    assert sorted(carrier.carried) == [1, 3]
    assert journal.all()[0].error.startswith("no right to write here; the file is kept")


async def test_sync_retries_refused_files(journal: IntentTable) -> None:
    """`sync` tries refused files at once, because the cause may be gone."""
    carrier = StepExecutor(journal)
    carrier.errors[2] = [Forbidden("no")]
    write(journal, 2)
    async with running(carrier) as dispatcher:
        await dispatcher.wait_until(lambda: journal.all()[0].failed)
        later = time.time_ns() + 3600 * 10**9
        journal.postpone(journal.all()[0], later, "no", Cause.REFUSED)
        dispatcher.expedite([2])
        await dispatcher.wait_until(lambda: not len(journal))
        assert dispatcher.failure(2) is None


async def test_a_short_outage_needs_no_plan_of_all_changes(
    journal: IntentTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An open window asks every second for the status of what may be thousands of changes."""
    carrier = OnlyOneAttempt(journal)
    carrier.errors[2] = [Unavailable("busy")]
    write(journal, 2)
    async with running(carrier) as dispatcher:
        await dispatcher.wait_until(lambda: dispatcher.failure(2) is not None)
        monkeypatch.setattr(Planner, "steps_of", lambda *_: pytest.fail("planned"))
        assert dispatcher.blocking_failures({2}) == {}


@pytest.mark.parametrize("error", [BadAnswer("other bytes"), UnusableReply("no version")])
@pytest.mark.parametrize(("attempts", "is_failure"), [(0, False), (2, False), (3, True)])
async def test_an_unclear_answer_is_a_failure_only_if_it_repeats(
    journal: IntentTable, error: Exception, attempts: int, is_failure: bool
) -> None:
    """One damaged answer must not end a `sync` with an error that asks the user to act."""
    carrier = StepExecutor(journal)
    carrier.errors[2] = [error] * 9
    write(journal, 2)
    async with running(carrier) as dispatcher:
        await failures(dispatcher, journal, attempts + 1)
    assert journal.all()[0].failed == is_failure


async def failures(dispatcher: Dispatcher, journal: IntentTable, number: int) -> None:
    """Wait for the next attempts of the only step, without their pauses."""
    for _ in range(number):
        before = journal.all()[0].attempts
        dispatcher.expedite([2])
        await dispatcher.wait_until(partial(lambda n: journal.all()[0].attempts > n, before))


@pytest.mark.parametrize("before", [Unavailable("busy"), BadAnswer("other bytes")])
@pytest.mark.parametrize(
    ("error", "longest", "is_failure"),
    [
        (UnusableReply("no version"), 1.0, False), (Forbidden("no", status=403), 4.0, True),
        (Changed("newer"), 0.0, False), (OSError(errno.EIO, "broken"), 4.0, True),
    ],
)  # fmt: skip
async def test_a_failure_after_failures_of_another_kind(
    journal: IntentTable, before: Exception, error: Exception, longest: float, is_failure: bool
) -> None:
    """The first failure of its kind is followed by an attempt soon."""
    number = 9
    carrier = StepExecutor(journal)
    carrier.errors[2] = [*[before] * number, error, *[before] * number]
    write(journal, 2)
    async with running(carrier) as dispatcher:
        await failures(dispatcher, journal, number)
        dispatcher.expedite([2])
        await dispatcher.wait_until(lambda: dispatcher.failure(2) is error)
        (intent,) = journal.all()
        assert intent.due_ns <= time.time_ns() + longest * 1e9
        assert (intent.failed, intent.attempts) == (is_failure, number + 1)


@pytest.mark.parametrize("is_restarted", [False, True])
async def test_unusable_replies_with_other_failures_between(
    journal: IntentTable, is_restarted: bool
) -> None:
    """Each reply may add a version, so the pauses grow, also after a restart."""
    carrier = StepExecutor(journal)
    carrier.errors[2] = [UnusableReply("no version"), Unavailable("busy")] * 13
    write(journal, 2)
    async with running(carrier) as dispatcher:
        await failures(dispatcher, journal, 25)
    if is_restarted:
        carrier.journal = journal = IntentTable(journal._database)
        carrier.errors[2] = [UnusableReply("no version")]
        async with running(carrier) as dispatcher:
            await failures(dispatcher, journal, 1)
    (intent,) = journal.all()
    assert intent.failed
    assert intent.due_ns > time.time_ns() + 3600 * 10**9


async def test_a_step_whose_inode_changed_is_planned_again(journal: IntentTable) -> None:
    """A change meanwhile is no failure; only repeated changes cause a short wait."""
    carrier = StepExecutor(journal)
    carrier.errors[2] = [Stale(), Changed("another version"), Changed("and another one")]
    write(journal, 2)
    async with running(carrier) as dispatcher:
        await dispatcher.wait_until(lambda: not len(journal))
    *_, once, twice = carrier.intents
    assert (once.failed, once.cause, once.error) == (False, Cause.CHANGED, "another version")
    assert (once.attempts, twice.attempts) == (1, 2)
    assert twice.due_ns > once.due_ns
    assert carrier.carried == [2]


async def test_an_inode_that_is_gone_after_a_change_is_planned_again(
    journal: IntentTable, caplog: pytest.LogCaptureFixture
) -> None:
    """The change came during the step; that is neither a failure nor worth a warning."""
    caplog.set_level("INFO")
    carrier = StepExecutor(journal)
    carrier.errors[2] = [FileNotFoundError("inode 2")]
    carrier.gates[2] = trio.Event()
    write(journal, 2)
    async with running(carrier) as dispatcher:
        await carrier.begun.wait()
        write(journal, 2)
        carrier.gates[2].set()
        await dispatcher.wait_until(lambda: not len(journal))
    assert carrier.carried == [2]
    assert [each.levelname for each in caplog.records if "inode 2" in each.getMessage()] == ["INFO"]
    assert "planned again: the entry was removed or moved meanwhile" in caplog.text


@pytest.mark.parametrize(
    ("error", "cause", "level", "logged"),
    [
        (OSError(errno.ENOSPC, "full"), Cause.LOCAL, "WARNING", "follows: the disk of the outbox"),
        (OSError(errno.EIO, "broken"), Cause.LOCAL, "WARNING", "follows: the disk has an error"),
        (FileNotFoundError("inode 2"), Cause.UNEXPECTED, "ERROR", "an unexpected error"),
        (KeyError("a mistake"), Cause.UNEXPECTED, "ERROR", "an unexpected error"),
        (Forbidden("no right", status=403), Cause.REFUSED, "WARNING", "refused by the service: no"),
        (Changed("other"), Cause.CHANGED, "INFO", "planned again: other"),
    ],
)
async def test_only_answers_of_the_service_are_refusals(
    journal: IntentTable, caplog: pytest.LogCaptureFixture, error: Exception, cause: Cause,
    level: str, logged: str,
) -> None:  # fmt: skip
    """The outbox stores the reason; the log has it, with a traceback for an unexpected error."""
    caplog.set_level("INFO")
    carrier = OnlyOneAttempt(journal)
    carrier.errors[2] = [error]
    write(journal, 2)
    async with running(carrier) as dispatcher:
        await dispatcher.wait_until(lambda: journal.all()[0].attempts == 1)
        assert [(each.cause, each.failed) for each in journal.all()] == [(cause, cause.is_failure)]
    (entry,) = [each for each in caplog.records if "inode 2" in each.getMessage()]
    assert (entry.levelname, logged in entry.getMessage()) == (level, True), entry.getMessage()
    assert ("refused" in caplog.text) == (cause is Cause.REFUSED)
    assert (entry.exc_info is not None) == (cause is Cause.UNEXPECTED)


@pytest.mark.parametrize("size", [SMALL + 1, BIG + 1])
async def test_small_files_do_not_wait_behind_larger_ones(journal: IntentTable, size: int) -> None:
    """Long uploads never use all slots."""
    carrier = StepExecutor(journal)
    carrier.gates = {ino: trio.Event() for ino in range(1, 9)}
    write(journal, *range(1, 9), size=size)
    async with running(carrier, places=4) as dispatcher:
        await trio.testing.wait_all_tasks_blocked()
        write(journal, 20)
        await dispatcher.wait_until(lambda: 20 in carrier.carried)
        carrier.release()
        await dispatcher.wait_until(lambda: not len(journal))


async def test_a_small_file_is_sent_before_big_ones(journal: IntentTable) -> None:
    """The small file is sent first, even if it was saved after the big ones."""
    carrier = StepExecutor(journal)
    write(journal, 1, 2, size=BIG + 1)
    write(journal, 3)
    async with running(carrier, uploads=1) as dispatcher:
        await dispatcher.wait_until(lambda: not len(journal))
    assert carrier.carried == [3, 1, 2]


@pytest.mark.parametrize(("size", "at_once"), [(TINY, 20), (SMALL, 8), (BIG, 4), (BIG + 1, 2)])
async def test_only_tiny_files_use_every_connection(
    journal: IntentTable, size: int, at_once: int
) -> None:
    """With many connections more tiny files run at once, but no more of the others."""
    carrier = StepExecutor(journal)
    carrier.gates = {ino: trio.Event() for ino in range(1, 41)}
    write(journal, *range(1, 41), size=size)
    async with running(carrier, places=4, most=20) as dispatcher:
        await trio.testing.wait_all_tasks_blocked()
        assert len(carrier.under_way) == at_once
        carrier.release()
        await dispatcher.wait_until(lambda: not len(journal))
    assert carrier.most == at_once


@pytest.mark.parametrize("size", [1, SMALL])
async def test_a_low_limit_of_uploads(journal: IntentTable, size: int) -> None:
    """The limit applies to files of all sizes; a removal does not wait for an upload."""
    carrier = StepExecutor(journal)
    carrier.gates = {ino: trio.Event() for ino in range(1, 9)}
    write(journal, *range(1, 9), size=size)
    async with running(carrier, places=4, most=4, uploads=3) as dispatcher:
        await trio.testing.wait_all_tasks_blocked()
        assert len(carrier.under_way) == 3
        remove(journal, 20)
        await dispatcher.wait_until(lambda: 20 in carrier.carried)
        assert len(carrier.under_way) == 3
        carrier.release()
        await dispatcher.wait_until(lambda: not len(journal))


async def test_nothing_is_tried_while_the_service_is_away(journal: IntentTable) -> None:
    """Offline, files wait; once online, they are sent at once, whatever their pause was."""
    carrier = StepExecutor(journal)
    carrier.online = trio.Event()
    write(journal, 1)
    with journal.transaction():
        journal.postpone(journal.all()[0], 1 << 62, "away", Cause.SERVICE)
    async with running(carrier) as dispatcher:
        await trio.testing.wait_all_tasks_blocked()
        assert carrier.carried == []
        carrier.online.set()
        await dispatcher.wait_until(lambda: not len(journal))


async def test_programs_that_write_one_file_after_the_other_come_first(
    journal: IntentTable,
) -> None:
    """During a burst of changes no new upload starts, unless a caller waits for it."""
    carrier = StepExecutor(journal)
    write(journal, 1, 2, 3)
    with journal.transaction():
        for ino in (1, 2, 3):
            journal.expedite(ino, time.time_ns())
            journal.let_go(ino, time.time_ns())
    async with running(carrier, quiet=3600) as dispatcher:
        await trio.testing.wait_all_tasks_blocked()
        assert carrier.carried == []
        with dispatcher.waited_for():
            await dispatcher.wait_until(lambda: not len(journal))


async def test_overdue_changes_are_sent_during_a_burst(journal: IntentTable) -> None:
    """Long overdue changes are sent, two at a time, however busy programs are."""
    carrier = StepExecutor(journal)
    write(journal, *range(20))  # due long ago
    async with running(carrier, quiet=3600) as dispatcher:
        await dispatcher.wait_until(lambda: not len(journal))
    assert carrier.most == 2


@pytest.mark.parametrize(("seconds", "sent"), [(4, False), (6, True)])
async def test_a_change_is_overdue_after_five_seconds(
    journal: IntentTable, monkeypatch: pytest.MonkeyPatch, seconds: int, sent: bool
) -> None:
    """During a burst of changes, a change waits for five seconds after its time."""
    now = 1 << 60
    monkeypatch.setattr(time, "time_ns", lambda: now)
    carrier = StepExecutor(journal)
    with journal.transaction():
        journal.content(3, 1, 1, base=None, held=False, due_ns=now - seconds * 10**9)
    async with running(carrier, quiet=3600):
        await trio.testing.wait_all_tasks_blocked()
        await trio.testing.wait_all_tasks_blocked()
        assert carrier.carried == [3] * sent


def busy(seconds: float | None = None) -> Unavailable:
    """Return the rejection of an overloaded service."""
    error = Unavailable("too busy", status=429)
    error.retry_after = seconds
    return error


async def test_after_an_overload_half_as_many_steps_run(journal: IntentTable) -> None:
    """Rejections of concurrent steps halve their number once; successes raise it again."""
    carrier = StepExecutor(journal)
    held = trio.Event()
    for ino in range(1, 41):
        carrier.gates[ino] = held
        carrier.errors[ino] = [busy()]
    write(journal, *range(1, 17))
    async with running(carrier, places=4, most=16) as dispatcher:
        await trio.testing.wait_all_tasks_blocked()
        assert len(carrier.under_way) == 16
        carrier.begun = trio.Event()
        carrier.gates = {ino: trio.Event() for ino in range(1, 41)}
        held.set()
        await dispatcher.wait_until(lambda: all(each.attempts for each in journal.all()))
        dispatcher.expedite(range(1, 17))
        await carrier.begun.wait()
        await trio.testing.wait_all_tasks_blocked()
        assert len(dispatcher.running) == 8
        carrier.errors.clear()
        carrier.release()
        await dispatcher.wait_until(lambda: not len(journal))
    assert sorted(carrier.carried) == list(range(1, 17))


async def test_nothing_starts_before_the_time_that_the_service_names(journal: IntentTable) -> None:
    """No step starts before that time, also if a caller waits for it."""
    carrier = StepExecutor(journal)
    carrier.errors[1] = [busy(3600)]
    write(journal, 1)
    async with running(carrier) as dispatcher:
        await dispatcher.wait_until(lambda: journal.all()[0].attempts == 1)
        write(journal, 2)
        with dispatcher.waited_for():
            dispatcher.expedite([1, 2])
            for _ in range(5):
                dispatcher.wake()
                await trio.testing.wait_all_tasks_blocked(0.05)
            assert not dispatcher.running
            assert not dispatcher.is_stalled(7)
    assert carrier.carried == []


async def test_a_success_does_not_expedite_rejected_steps(
    journal: IntentTable,
) -> None:
    """The file's own pause stays; what failed without an answer is tried at once."""
    carrier = StepExecutor(journal)
    carrier.errors[1], carrier.errors[2] = [busy()], [Unavailable("fails", status=500)]
    write(journal, 1, 2)
    async with running(carrier) as dispatcher:
        await dispatcher.wait_until(lambda: all(each.attempts for each in journal.all()))
        with journal.transaction():
            for intent in journal.all():
                journal.postpone(intent, intent.due_ns + 3600 * 10**9, "later", Cause.SERVICE)
        write(journal, 3)
        await dispatcher.wait_until(lambda: [each.ino for each in journal.all()] == [1])
        assert journal.all()[0].due_ns > time.time_ns()
    assert sorted(carrier.carried) == [2, 3]


async def test_deletions_expedite_what_a_full_service_rejected(journal: IntentTable) -> None:
    """The uploads are retried once, after the last deletion; other rejected steps are not."""
    carrier = StepExecutor(journal)
    carrier.errors[1] = [Unavailable("full", status=507)]
    carrier.errors[2] = [Forbidden("no right")]
    carrier.gates[4] = trio.Event()
    write(journal, 1, 2)
    async with running(carrier) as dispatcher:
        await dispatcher.wait_until(lambda: all(each.failed for each in journal.all()))
        with journal.transaction():
            for intent in journal.all():
                journal.postpone(intent, intent.due_ns + 3600 * 10**9, "later", Cause.REFUSED)
        write(journal, 5)
        await dispatcher.wait_until(lambda: len(journal) == 2)
        remove(journal, 3, 4)
        await dispatcher.wait_until(lambda: len(journal) == 3)
        await trio.testing.wait_all_tasks_blocked(0.05)
        assert carrier.carried == [5, 3]
        carrier.gates[4].set()
        await dispatcher.wait_until(lambda: [each.ino for each in journal.all()] == [2])
    assert carrier.carried == [5, 3, 4, 1]


async def test_a_caller_does_not_wait_for_an_endless_overload(journal: IntentTable) -> None:
    """After some rejections in a row everything counts as stalled, also steps without a turn."""
    carrier = StepExecutor(journal)
    for ino in range(1, 9):
        carrier.errors[ino] = [busy() for _ in range(1000)]
    write(journal, *range(1, 9))
    async with running(carrier, places=1) as dispatcher:
        with dispatcher.waited_for():
            assert not dispatcher.is_stalled(2)
            await dispatcher.wait_until(lambda: dispatcher.is_stalled(2))
    assert len(journal) == 8


async def paused(dispatcher: Dispatcher, journal: IntentTable) -> None:
    """Wake the dispatcher several times in a pause, and check that nothing starts."""
    before = len(journal)
    for _ in range(3):
        dispatcher.wake()
        await trio.testing.wait_all_tasks_blocked(0.05)
    assert len(journal) == before
    assert not dispatcher.running


async def test_a_pause_puts_running_uploads_back(journal: IntentTable) -> None:
    """Each of them is named for the transfers; the end of the pause or of the step ends that."""
    carrier, switch, put_back = StepExecutor(journal), PauseSwitch(), set[int]()
    carrier.gates = {1: trio.Event(), 2: trio.Event()}
    write(journal, 1, 2)
    async with running(carrier, switch=switch, put_back=put_back) as dispatcher:
        await trio.testing.wait_all_tasks_blocked()
        switch.begin()
        assert put_back == {1, 2}
        assert not dispatcher.is_quiet()
        carrier.gates[1].set()
        await dispatcher.wait_until(lambda: 1 not in dispatcher.running)
        assert put_back == {2}
        switch.end()
        assert put_back == set()
        carrier.gates[2].set()
        await dispatcher.wait_until(lambda: not len(journal))
        assert dispatcher.is_quiet()


async def test_a_pause_sends_requested_files(journal: IntentTable) -> None:
    """Only the requested files are sent, as long as the caller waits, and a new pause does not
    stop them."""
    carrier, switch, put_back = StepExecutor(journal), PauseSwitch(), set[int]()
    switch.begin()
    carrier.gates = {500: trio.Event()}
    write(journal, *range(1, 501))  # more than are folded at a time
    async with running(carrier, switch=switch, put_back=put_back) as dispatcher:
        await paused(dispatcher, journal)
        with dispatcher.preferred({400, 500}):
            await dispatcher.wait_until(lambda: len(journal) == 499)
            assert dispatcher.running == {500}
            assert not dispatcher.is_held_back(500)
            assert dispatcher.is_held_back(1)
            switch.begin(3600)
            assert put_back == set()
            assert not dispatcher.is_stalled(only={500})
            carrier.gates[500].set()
            await dispatcher.wait_until(lambda: len(journal) == 498)
            assert dispatcher.is_stalled(only={500})
        await paused(dispatcher, journal)
    assert carrier.carried == [400, 500]


async def test_requested_files_come_first(journal: IntentTable) -> None:
    """A requested file gets the next free slot, although others have waited longer."""
    carrier = StepExecutor(journal)
    carrier.gates = {ino: trio.Event() for ino in range(1, 10)}
    write(journal, *range(1, 10), size=SMALL + 1)
    async with running(carrier, places=4) as dispatcher:
        await trio.testing.wait_all_tasks_blocked(0.1)
        assert dispatcher.running == {1, 2, 3, 4}
        with dispatcher.preferred({9}):
            await trio.testing.wait_all_tasks_blocked(0.1)
            carrier.gates[2].set()
            await dispatcher.wait_until(lambda: dispatcher.running == {1, 3, 4, 9})
        carrier.release()
        await dispatcher.wait_until(lambda: not len(journal))


async def test_a_failed_file_is_tried_once_more_for_its_caller(journal: IntentTable) -> None:
    """After another failure it counts as stalled, though other files are held back."""
    carrier, switch = StepExecutor(journal), PauseSwitch()
    switch.begin()
    carrier.errors[1] = [Forbidden("no") for _ in range(3)]
    write(journal, 1, 2)
    with journal.transaction():
        journal.postpone(journal.all()[0], time.time_ns() + 3600 * 10**9, "no", Cause.REFUSED)
    async with running(carrier, switch=switch) as dispatcher:
        with dispatcher.preferred({1}):
            await dispatcher.wait_until(lambda: journal.all()[0].attempts == 2)
            assert dispatcher.is_stalled(only={1})
            assert not dispatcher.is_stalled()
    assert len(carrier.errors[1]) == 2


async def test_each_caller_keeps_its_files_in_front(journal: IntentTable) -> None:
    """A second caller that ends does not affect the first one, whose own end does."""
    carrier = StepExecutor(journal)
    carrier.gates[2] = trio.Event()
    switch = PauseSwitch()
    switch.begin()
    write(journal, 2, 3, 4)
    async with running(carrier, switch=switch) as dispatcher:
        with dispatcher.preferred({2}):
            with dispatcher.preferred({3}):
                await dispatcher.wait_until(lambda: carrier.carried == [3])
                await dispatcher.wait_until(lambda: dispatcher.running == {2})
            assert dispatcher.is_quiet()
            assert dispatcher.is_held_back(4)
        assert not dispatcher.is_quiet()
        carrier.gates[2].set()
        await dispatcher.wait_until(lambda: 2 not in dispatcher.running)
        write(journal, 2)
        assert dispatcher.is_held_back(2)
        await trio.testing.wait_all_tasks_blocked()
        assert sorted(carrier.carried) == [2, 3]


async def test_a_caller_that_ends_leaves_nothing_to_the_others(journal: IntentTable) -> None:
    """Its file is held back again, and a later caller gets an attempt, while another caller waits.

    A program that saves the file then gets the error of the pause instead of waiting.
    """
    carrier, switch = StepExecutor(journal), PauseSwitch()
    carrier.gates[2] = trio.Event()
    carrier.errors[3] = [Forbidden("no", status=403) for _ in range(9)]
    switch.begin()
    write(journal, 2, 3)

    def attempts() -> int:
        intent = journal.get(3)
        assert intent is not None
        return intent.attempts

    async with running(carrier, switch=switch) as dispatcher:
        with dispatcher.preferred({2}):
            for _ in range(2):
                before = attempts()
                with dispatcher.preferred({3}):
                    await dispatcher.wait_until(partial(lambda n: attempts() > n, before))
                await trio.testing.wait_all_tasks_blocked()
                assert dispatcher.is_held_back(3)
                assert dispatcher.running == {2}
                assert dispatcher.is_quiet()
            carrier.gates[2].set()
            await dispatcher.wait_until(lambda: len(journal) == 1)


async def test_a_caller_gets_one_more_attempt_and_no_endless_ones(journal: IntentTable) -> None:
    """After another refusal, the file waits as usual, whatever happens to other files."""
    carrier = StepExecutor(journal)
    carrier.errors[2] = [Forbidden("no", status=403) for _ in range(9)]
    write(journal, 2)
    async with running(carrier) as dispatcher:
        await dispatcher.wait_until(lambda: journal.all()[0].attempts == 1)
        with dispatcher.preferred({2}):
            await dispatcher.wait_until(lambda: journal.all()[0].attempts == 2)
            for ino in (3, 4, 5):
                write(journal, ino)
                await dispatcher.wait_until(lambda: len(journal) == 1)
            await trio.testing.wait_all_tasks_blocked()
        assert journal.all()[0].attempts == 2


class FullTable(IntentTable):
    """Intents on a full disk: no failure can be recorded while `wrong` is set."""

    wrong: Exception | None = None

    def postpone(self, intent: Intent, due_ns: int, error: str, cause: Cause) -> None:
        if self.wrong is not None:
            raise self.wrong
        super().postpone(intent, due_ns, error, cause)


@pytest.mark.parametrize("wrong", [OSError(errno.ENOSPC, "full"), RuntimeError("a bug")])
async def test_a_failure_that_cannot_be_recorded(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch,
    wrong: Exception,
) -> None:  # fmt: skip
    """The log tells it once, the status knows the failure, and the step is tried again later."""
    monkeypatch.setattr(dispatcher, "FULL_RETRY_S", 0.01)
    with closing(
        Database.open(tmp_path / "journal.db", [create_tables, add_told, add_left])
    ) as database:
        journal = FullTable(database)
        carrier = StepExecutor(journal)
        carrier.errors[2] = [Unavailable("busy"), Unavailable("busy"), Unavailable("busy")]
        write(journal, 2)
        journal.wrong = wrong
        async with running(carrier) as outbox:
            await outbox.wait_until(lambda: len(carrier.errors[2]) == 1)
            assert isinstance(outbox.failure(2), Unavailable)
            journal.wrong = None
            await outbox.wait_until(lambda: journal.get(2) is None)
            assert outbox.failure(2) is None
    (record,) = [each for each in caplog.records if "could not be recorded" in each.message]
    assert bool(record.exc_info) == isinstance(wrong, RuntimeError)


async def test_a_failed_step_keeps_no_content_in_memory(journal: IntentTable) -> None:
    """The error of an upload is stored without the frames that hold the uploaded bytes.

    After the file was removed, the error is gone as well.
    """

    class Content:
        """Stands for the bytes of an upload."""

    def upload(content: Content) -> None:
        try:
            raise OSError(errno.EPIPE, "broken")
        except OSError as wrong:
            raise ExceptionGroup("", [Forbidden("no", status=403)]) from wrong

    content = Content()
    kept = weakref.ref(content)
    try:
        upload(content)
    except ExceptionGroup as refused:
        error: Exception = refused
    del content
    carrier = StepExecutor(journal)
    carrier.errors[2] = [error]
    del error
    write(journal, 2)
    async with running(carrier) as dispatcher:
        await dispatcher.wait_until(lambda: journal.all()[0].attempts == 1)
        carrier.errors.clear()
        gc.collect()
        assert kept() is None
        assert dispatcher.failure(2) is not None
        with journal.transaction():
            journal.drop(2)
        dispatcher.wake()
        while dispatcher.failure(2) is not None:  # until the dispatcher has looked
            await trio.lowlevel.checkpoint()
