"""Dispatcher of the outbox, which runs due steps concurrently and retries failed steps.

This module only schedules steps. The `Executor` performs a step, and records its success.

INVARIANT: an inode has at most one running step.

INVARIANT: only the executor ends an intent, after its step has succeeded. A failed step postpones
the intent.

INVARIANT: during a pause, a step starts only if it is requested (see `preferred`), if it moves an
entry that has a temporary name, or if it must end before such a step.
"""

import logging
import random
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress

import trio

from zonedrive.causes import Cause, cause_of, line_of
from zonedrive.errors import (
    FULL,
    BadAnswer,
    Changed,
    RemoteError,
    StoreError,
    Unavailable,
    UnusableReply,
    drop_tracebacks,
    first_of,
)
from zonedrive.observers import Observers
from zonedrive.snapshot import Stale
from zonedrive.state.intents import Failure, Intent, due_in
from zonedrive.state.local_state import LocalState
from zonedrive.supervisor import Task
from zonedrive.sync.executor import Executor
from zonedrive.sync.overload_limit import OverloadLimit
from zonedrive.sync.planner import Action, InodeViews, Planner, Step, with_prerequisites
from zonedrive.sync.upload import TINY
from zonedrive.translation import marked

log = logging.getLogger(__name__)

# Bytes. Large uploads take at most half of the places, and some places are left for small ones.
BIG = 4 << 20
SMALL = 256 << 10
FIRST_RETRY_S = 1.0
AT_ONCE = 1  # immediate retries after the state that an attempt was based on has changed
CHANGED_RETRY_S = 0.5  # pause before the first of the later retries
LONGEST_RETRY_S = 15.0
SOON = 3  # temporary errors of a step after each of which the next success causes a retry
WAITED_FOR_RETRY_S = 2.0  # longest pause while a caller waits for all uploads
FULL_RETRY_S = 5.0  # after a failed write to the database
FIRST_FAILED_RETRY_S = 4.0  # first pause if the user may have to act
LONGEST_FAILED_RETRY_S = 300.0  # also for temporary errors of a large file
UNUSABLE = 3  # unusable answers before a change with another one counts as failed
LONGEST_UNUSABLE_RETRY_S = 86_400.0  # because each attempt may add a version
BIG_FAILED_RETRY_S = 60.0  # first pause, so that a large file is not sent every few seconds
FOLD_PAUSE_S = 0.02  # changes come in bursts, and one call of `fold` for many changes is enough
# While programs write many files, uploads wait for a quiet moment, but only for a limited time.
OVERDUE_NS = 5_000_000_000
FOR_OVERDUE = 2  # concurrent overdue steps during that time
LOOK_S = 0.5  # interval between checks for overdue or more urgent steps
LOOK_AHEAD = 100  # blocked steps to skip in the search for a step that can start
CLOCK_S = 30.0  # longest wait for the end of a pause; a suspended machine stops the timers
CALM = 4.0  # pause after a check, in multiples of its duration

SEE_VERSIONS = marked("look at the file on the service, and save it again if it is missing there")


def is_blocked(intent: Intent, vain: int | None) -> bool:
    """Return True if the user may have to act before the intent's change can be sent.

    If `vain` is not None, also return True after `vain` failed attempts in a row.
    """
    return intent.failed or (vain is not None and intent.attempts >= vain)


def _overload(error: Exception) -> Unavailable | None:
    """Return the `Unavailable` error in `error` if it reports an overload (429, 503), else None."""
    first = first_of(error)
    return first if isinstance(first, Unavailable) and first.is_overload else None


def _is_upload(step: Step) -> bool:
    return step.action is Action.UPLOAD


class Dispatcher:
    """Scheduler that runs the steps of the outbox."""

    def __init__(
        self,
        state: LocalState,
        views: InodeViews,
        executor: Executor,
        places: int,
        quiet: float,
        most: int,
        uploads: int,
    ) -> None:
        """Create a dispatcher; at most `places` uploads of more than SMALL bytes run at a time.

        At most 2 * `places` uploads of more than TINY bytes run at a time, and at most `uploads`
        uploads in all. The limit on all steps is `most` or 2 * `places`, whichever is greater. For
        `quiet` seconds after a local change, only overdue steps start.
        """
        self._state = state
        self._intents = intents = state.intents
        self._views = views
        self._executor = executor
        self._places = places
        self._in_all = max(2 * places, most)
        self._uploads = uploads
        self._overload = OverloadLimit(self._in_all)
        self._quiet = quiet
        self._planner = Planner(intents, views)
        self._running: dict[int, Step] = {}
        self._preferred: list[set[int]] = []  # inodes of each caller of `preferred`
        self._chosen: set[int] = set()  # preferred inodes, and the inodes that they depend on
        self._failures: dict[int, Exception] = {}
        self._faltering: set[int] = set()  # inodes that wait after a temporary error
        self._has_made_room = False  # True after a deletion, see `_retry_rejected_as_full`
        self._impatient = 0  # number of callers that wait for all uploads
        self._queue: deque[Step] = deque()  # startable steps of the last `due`, best first
        self._looked = float("-inf")  # time of the last `Planner.due` (monotonic seconds)
        self._has_started = False  # True if a step has started since that time
        self._pause = 0.0  # seconds until another check is useful, if nothing changes
        self._clock_ns = 0  # time of the last check (wall clock)
        self._nursery: trio.Nursery | None = None
        self._wake = trio.Event()
        self.changed = trio.Event()
        """Event that is set at the next change of the outbox, and then replaced by a new event."""
        self.changes: Observers[[]] = Observers()
        """Observers to notify at every change of the outbox, also when a step starts."""
        self.is_unwritable = False
        """True if a step's failure could not be recorded.

        A successful step and `waited_for` reset the value.
        """
        intents.changes.add(self.wake)
        state.pause.changes.add(self._note_pause)

    @property
    def running(self) -> set[int]:
        """Inode numbers of the running steps."""
        return set(self._running)

    @property
    def is_paused(self) -> bool:
        """True while the uploads are paused."""
        return self._state.pause.current is not None

    def is_held_back(self, ino: int) -> bool:
        """Return True if a pause keeps the inode's next step from starting."""
        return self.is_paused and ino not in self._running and ino not in self._chosen

    def temporarily_named(self) -> set[int]:
        """Return the inodes of `InodeViews.temporarily_named`, which are moved even in a pause."""
        return self._views.temporarily_named()

    def is_quiet(self) -> bool:
        """Return True if no step is running, apart from steps requested with `preferred`."""
        return self._running.keys() <= self._chosen

    def wake(self) -> None:
        """Report a change of the outbox: look for new steps, and notify the observers."""
        self._wake.set()
        self.changed.set()
        self.changed = trio.Event()
        self.changes.notify()

    async def wait_until(self, reached: Callable[[], bool]) -> None:
        """Wait until `reached` returns True; call `reached` again after changes of the outbox."""
        begun = time.perf_counter()
        while not reached():
            took = time.perf_counter() - begun
            await self.changed.wait()
            await trio.sleep(CALM * took)  # with many changes, the check takes long
            begun = time.perf_counter()

    def is_stalled(self, vain: int | None = None, only: Collection[int] | None = None) -> bool:
        """Return True if every remaining step has failed or is waiting for a failed step.

        While a step is running or a program is writing, return False. If `vain` is given, a step
        counts as failed after `vain` temporary errors in a row, and all steps count as failed after
        `vain` rejections in a row because of overload. If `only` is given, examine only the steps
        of these inodes, and the steps that they depend on. If `is_unwritable` is true, return True
        in any case.
        """
        if self.is_unwritable:
            return True
        now, running = time.time_ns(), self.running
        if only is None:
            intents, steps = self._intents.all(), None
        else:
            if not running.isdisjoint(only):
                return False
            steps = self._planner.steps_of(only)
            inos = with_prerequisites(steps, only)
            steps = [step for step in steps if step.ino in inos]
            intents = [intent for ino in inos if (intent := self._intents.get(ino)) is not None]
            running &= inos
        if any(intent.held for intent in intents):
            return False  # a program is still writing
        if running:
            return False
        if vain is not None and self._overload.rejections >= vain:
            return True
        return all(
            step.after or (is_blocked(step.intent, vain) and step.intent.due_ns > now)
            for step in (self._planner.everything() if steps is None else steps)
        )

    def expedite(self, inos: Iterable[int]) -> None:
        """Make the intents of these inodes due at once."""
        now = time.time_ns()
        for ino in inos:
            self._intents.expedite(ino, now)

    @contextmanager
    def waited_for(self) -> Iterator[None]:
        """Send changes sooner while the `with` block runs, because a caller waits for all uploads.

        Steps start without the quiet time after a local change, and the pauses after temporary
        errors are shorter.
        """
        self._impatient += 1
        self._overload.rejections = 0  # so that the caller's steps get attempts
        self.is_unwritable = False
        self.wake()
        try:
            yield
        finally:
            self._impatient -= 1

    @contextmanager
    def preferred(self, inos: set[int]) -> Iterator[None]:
        """Start the steps of these inodes first while the `with` block runs, even during a pause.

        The same applies to steps that these steps depend on, such as the creation of a parent
        folder. The caller may add inodes to the set, and must call `wake` after that.
        """
        self._preferred.append(inos)
        self.wake()
        try:
            yield
        finally:
            self._preferred = [each for each in self._preferred if each is not inos]
            self._chosen &= set[int]().union(*self._preferred)  # `_look` adds the others again
            self._queue.clear()  # during a pause, the queue has only these steps
            self.wake()

    def _note_pause(self) -> None:
        """Interrupt the running uploads when a pause begins; look for steps when the pause ends.

        Uploads that run on the event loop (see `TINY`), and requests that change names, continue.
        """
        self._queue.clear()
        self._state.paused_uploads.clear()
        if self.is_paused:
            self._state.paused_uploads.update(self._running.keys() - self._chosen)
        self.wake()

    def _recovered(self) -> None:
        """Retry steps that failed with a temporary error, because another step has succeeded.

        Steps that the service rejected because of overload keep their pauses. A step is retried in
        this way only after one of its first SOON errors. Later errors may concern only the step's
        own entry, whose bytes would be sent again after every success of another step.
        """
        if self._faltering:
            faltering, self._faltering = self._faltering, set()
            self.expedite(faltering)

    def failure(self, ino: int) -> Exception | None:
        """Return the error of the inode's last step, or None if the step did not fail."""
        return self._failures.get(ino)

    def failed_prerequisites(self, ino: int) -> list[Step]:
        """Return the failed steps that must succeed before the inode's step can start.

        The user may have to act before such a step can succeed (see `Intent.failed`).
        """
        if not self._failures:
            return []
        steps = self._planner.steps_of({ino})
        inos = with_prerequisites(steps, {ino}) - {ino}
        return [step for step in steps if step.ino in inos and step.intent.failed]

    def blocking_failures(self, inos: Collection[int]) -> dict[int, Exception]:
        """Return the errors of failed steps that block steps of `inos`, keyed by the blocked inode.

        The result may include other blocked inodes. A step counts as failed if the user may have to
        act (see `Intent.failed`), and the step is neither due again nor running.
        """
        now = time.time_ns()
        rejected = {
            ino: error
            for ino, error in self._failures.items()
            if (intent := self._intents.get(ino)) is not None and intent.failed
            if intent.due_ns > now and ino not in self._running
        }
        if not rejected:
            return {}
        steps = self._planner.steps_of(inos)
        waiting: dict[int, list[int]] = {}
        for step in steps:
            for other in step.after:
                waiting.setdefault(other, []).append(step.ino)
        found: dict[int, Exception] = {}
        for step in steps:
            todo = list(waiting.get(step.ino, ())) if step.ino in rejected else []
            while todo:
                if (ino := todo.pop()) not in found and ino != step.ino:
                    found[ino] = rejected[step.ino]
                    todo += waiting.get(ino, ())
        return found

    async def run(self) -> None:
        """Run steps until cancelled."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            await self._state.supervisor.keep(Task.UPLOAD_QUEUE, self._work)

    async def _work(self) -> None:
        while True:
            self._wake = trio.Event()
            try:
                if await self._executor.ready():
                    self.expedite(intent.ino for intent in self._intents.all())
                begun = time.perf_counter()
                self._look()
            except OSError as full:  # nothing can be recorded now: try again soon
                log.error("the database cannot be written: %s", full)
                await trio.sleep(FIRST_RETRY_S)
                continue
            self._start()
            await self._rest(CALM * (time.perf_counter() - begun))

    def _until_end(self) -> float:
        """Return the seconds until the next check for the end of the pause.

        Return infinity if the pause has no end.
        """
        left = self._state.pause.seconds_left
        return left if left == float("inf") else min(CLOCK_S, left)

    def _look(self) -> None:
        """Fill the queue with steps that may start now, and compute when to check again."""
        now = self._now_ns()  # also in a pause, so that each change of the clock is noticed
        self._state.pause.end_if_over()
        pause = self._state.pause.current
        unnamed = self.temporarily_named() if pause is not None else set[int]()
        if pause is not None and not (self._preferred or unnamed):
            self._queue.clear()
            self._pause = self._until_end()
            return
        # A long queue keeps all places taken, but more urgent steps come first, see `_startable`.
        if len(self._running) >= self._most() and not self._is_queue_old():
            self._pause = self._overload.time_left() or float("inf")
            return
        unquiet = self._quiet_time_left()
        if unquiet and time.monotonic() < self._looked + LOOK_S:
            self._pause = unquiet
            return
        self._looked, self._has_started = time.monotonic(), False
        if len(self._failures) > len(self._intents):  # some intents are gone
            failures = self._failures.items()
            self._failures = {ino: each for ino, each in failures if self._intents.get(ino)}
        first = set[int]().union(*self._preferred)
        steps, more = self._planner.due(now, self._running, first, only=pause is not None)
        if first:
            first = with_prerequisites(steps, first)
            self.expedite(first - self._chosen)
            self._chosen |= first
        if pause is not None:
            allowed = first | with_prerequisites(steps, unnamed)
            steps = [step for step in steps if step.ino in allowed]
        self._queue = self._startable(steps, now, first)
        later = [self._planner.names_due, self._intents.agenda.next_due()]
        self._pause = min(
            (max(0.0, (due - now) / 1e9) for due in later if due is not None),
            default=float("inf"),
        )
        if more and not self._queue:
            self._pause = 0.0
        elif unquiet:
            self._pause = min(self._pause, unquiet)
        if pause is not None:
            self._pause = min(self._pause, self._until_end())
        if self._has_made_room:
            self._retry_rejected_as_full()

    def _retry_rejected_as_full(self) -> None:
        """Retry the steps rejected for lack of space, if no deletion is running or can start.

        A retry after each of many deletions would delay the deletions.
        """
        steps = (*self._queue, *self._running.values())
        if not any(step.action is Action.DELETE for step in steps):
            self._has_made_room = False
            self.expedite(
                ino
                for ino, error in self._failures.items()
                if getattr(first_of(error), "status", 0) == FULL
            )

    def _is_queue_old(self) -> bool:
        """Return True if the queue is LOOK_S seconds old and steps have started from it.

        During a pause after an overload, return False.
        """
        if not self._has_started or self._overload.time_left():
            return False
        return time.monotonic() >= self._looked + LOOK_S

    def _now_ns(self) -> int:
        """Return the wall clock time in nanoseconds; correct due times after a change of the clock.

        If the clock was set back since the last check, make all intents due, because their due
        times come from the former clock. At the first check, make only those intents due that would
        otherwise wait longer than the longest possible pause.
        """
        now, last = time.time_ns(), self._clock_ns
        longest = max(LONGEST_FAILED_RETRY_S, self._state.settings.settle)
        latest = 0 if now < last else due_in(longest) if not last else None
        if latest is not None:
            self.expedite(each.ino for each in self._intents.all() if each.due_ns > latest)
        self._clock_ns = time.time_ns()
        return self._clock_ns

    @staticmethod
    def _startable(steps: list[Step], now: int, first: Collection[int]) -> deque[Step]:
        """Return the steps that are due and not waiting for another step.

        Steps of the inodes in `first` come before all other steps. In each of the two groups,
        uploads of more than BIG bytes come last.
        """
        due = [step for step in steps if step.intent.due_ns <= now and not step.after]
        due.sort(
            key=lambda step: (
                step.ino not in first,
                step.intent.size > BIG,
                step.action,
                step.intent.seq,
            )
        )
        return deque(due)

    def _start(self) -> None:
        """Start the steps of the queue that are still up to date, as far as the limits allow.

        The queue may be older than the intents, because computing it again after each step would
        take a long time if there are many intents.
        """
        assert self._nursery is not None
        busy = {ino for step in self._running.values() for ino in (step.ino, step.other)}
        sizes = [step.intent.size for step in self._running.values()]
        uploads = self._uploads - sum(map(_is_upload, self._running.values()))
        overdue = time.time_ns() - OVERDUE_NS if self._quiet_time_left() else None
        most = self._most()
        passed: list[Step] = []
        while self._queue and len(self._running) < most and len(passed) < LOOK_AHEAD:
            step = self._queue.popleft()
            if self._intents.get(step.ino) != step.intent:
                continue
            if (
                step.ino in busy
                or (step.other and step.other in busy)
                or (overdue is not None and step.intent.due_ns > overdue)
                or not self._has_place(step.intent.size, sizes)
                or (_is_upload(step) and uploads <= 0)
                or (step.action is not Action.UPLOAD and not self._planner.is_current(step))
            ):
                passed.append(step)
                continue
            sizes.append(step.intent.size)
            uploads -= _is_upload(step)
            busy.update((step.ino, step.other))
            self._running[step.ino] = step
            self._has_started = True
            self._state.in_flight[step.ino] = step.intent
            self._nursery.start_soon(self._state.supervisor.job, Task.UPLOAD, self._deliver, step)
            self.changes.notify()
        self._queue.extendleft(reversed(passed))

    def _quiet_time_left(self) -> float:
        if self._impatient:
            return 0.0
        return max(0.0, self._intents.changed_at + self._quiet - time.monotonic())

    def _most(self) -> int:
        """Return the maximum number of steps that may run now."""
        if self._overload.time_left():
            return 0
        return min(FOR_OVERDUE if self._quiet_time_left() else self._in_all, self._overload.allowed)

    def _has_place(self, size: int, running: list[int]) -> bool:
        """Return True if a step of `size` bytes may run besides steps of the sizes `running`."""
        if size <= TINY:
            return True
        if sum(each > TINY for each in running) >= 2 * self._places:
            return False
        if size <= SMALL:
            return True
        if size > BIG and sum(each > BIG for each in running) >= max(1, self._places // 2):
            return False
        return sum(each > SMALL for each in running) < self._places

    async def _rest(self, calm: float) -> None:
        """Wait for a change or the next due step, but at least `calm` seconds."""
        with trio.move_on_after(self._pause):
            await self._wake.wait()
        await trio.sleep(max(FOLD_PAUSE_S, calm))

    async def _deliver(self, step: Step) -> None:
        began, planned = self._overload.now(), self._intents.snapshot(step.intent)
        try:
            with suppress(Stale):  # the next step is planned again
                await self._executor.carry(step)
            self._failures.pop(step.ino, None)
            self.is_unwritable = False
            self._overload.succeeded(began)
            self._recovered()
            if step.action is Action.DELETE and self._intents.get(step.ino) is None:
                self._has_made_room = True
        except Exception as wrong:
            if (overload := _overload(wrong)) is not None:
                self._overload.rejected(began, len(self._running), overload.retry_after)
            if isinstance(wrong, FileNotFoundError) and not wrong.errno and not planned.is_current:
                wrong = Changed("the entry was removed or moved meanwhile")  # its inode is gone
            try:
                self._failed(step.intent, wrong)
            except Exception as unwritten:  # usually a full disk; the next round tries again
                foreseen = isinstance(unwritten, OSError | StoreError)
                if not self.is_unwritable:
                    log.error(
                        "inode %d: a failure could not be recorded: %s",
                        step.ino,
                        unwritten,
                        exc_info=not foreseen,
                    )
                self.is_unwritable = True
                await trio.sleep(FULL_RETRY_S)
        finally:
            del self._running[step.ino]
            self._state.in_flight.pop(step.ino, None)
            self._state.paused_uploads.discard(step.ino)
            self._planner.ended(step)
            self.wake()
        if self._failures.get(step.ino) is None:
            self._start()

    def _failed(self, intent: Intent, wrong: Exception) -> None:
        cause, first = cause_of(wrong), first_of(wrong)
        kind = Failure.UNUSABLE_REPLY if isinstance(first, UnusableReply) else cause
        earlier = self._intents.count_failure(intent, kind) - 1
        if isinstance(first, UnusableReply) and earlier >= UNUSABLE:
            cause = Cause.UNCLEAR
            first.remedy = SEE_VERSIONS
        elif isinstance(first, BadAnswer) and earlier < UNUSABLE:
            cause = Cause.SERVICE  # may be damaged in transit, or a temporary fault of the service
        elif isinstance(first, RemoteError) and first.by_gateway and earlier >= UNUSABLE:
            cause = Cause.UNCLEAR  # the user may have to act
        text = line_of(wrong)
        self._failures[intent.ino] = wrong
        logged = str(wrong) if isinstance(wrong, RemoteError) else text
        self._log(intent, cause, logged, wrong)
        drop_tracebacks(wrong)
        due_ns = due_in(self._pause_after(intent, cause, earlier))
        self._intents.postpone(intent, due_ns, text, cause)

    def _pause_after(self, intent: Intent, cause: Cause, earlier: int) -> float:
        """Return the seconds until the next attempt after a failure with this cause.

        `earlier` is the number of earlier failures of the same kind. Other failures do not make the
        pause longer.
        """
        if cause is Cause.CHANGED:
            if earlier < AT_ONCE:
                return 0.0
            first, longest, earlier = CHANGED_RETRY_S, LONGEST_RETRY_S, earlier - AT_ONCE
        elif cause.is_failure:
            first = BIG_FAILED_RETRY_S if intent.size > BIG else FIRST_FAILED_RETRY_S
            is_unusable = isinstance(first_of(self._failures[intent.ino]), UnusableReply)
            longest = LONGEST_UNUSABLE_RETRY_S if is_unusable else LONGEST_FAILED_RETRY_S
        else:
            if earlier < SOON and _overload(self._failures[intent.ino]) is None:
                self._faltering.add(intent.ino)
            first = FIRST_RETRY_S
            # Each attempt sends the whole file, so the pauses of a large file keep growing.
            longest = LONGEST_FAILED_RETRY_S if intent.size > BIG else LONGEST_RETRY_S
            if self._impatient:
                longest = WAITED_FOR_RETRY_S
        wait: float = min(longest, first * 2 ** min(earlier, 16))
        return wait * random.uniform(0.5, 1.0)  # noqa: S311 - spreading load, no secret

    @staticmethod
    def _log(intent: Intent, cause: Cause, text: str, wrong: Exception) -> None:
        error = {"error": wrong}  # for the fields of the journal
        match cause:
            case Cause.UNEXPECTED:
                log.error("inode %d: an unexpected error", intent.ino, exc_info=wrong)
            case Cause.REFUSED:
                log.warning("inode %d: refused by the service: %s", intent.ino, text, extra=error)
            case Cause.CHANGED:
                log.info("inode %d: planned again: %s", intent.ino, text, extra=error)
            case _ if cause.is_failure:
                log.warning("inode %d: not sent, retry follows: %s", intent.ino, text, extra=error)
