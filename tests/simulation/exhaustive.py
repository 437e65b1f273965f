"""Every short sequence of operations of one client, with a death or a lost reply in it.

A case is a line of steps, such as

    both sandbox: rewrite left/one.txt; sync; die 17; rename left/one.txt left/two.txt

Operations follow each other at once. `sync` between two operations waits until everything is sent.
`die N` ends the client after N steps from there on: requests, replies, writes, commits, fsync. If
an operation follows, it comes after the restart and before the service can be reached again.
`lose N` loses the reply of the Nth request from there on. With `hold N before` or `hold N after`,
the last operation runs while the service has not yet done the work of the Nth request, or has done
it and not yet answered. At the end of each case the client synchronises, and the oracle compares
both sides.
"""

import contextlib
import errno
import itertools
import logging
import math
import multiprocessing
import re
import traceback
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import trio

from tests.harness.fake_service import Coworker, _Request
from tests.harness.in_process import ALICE, copy_folder
from tests.harness.virtual_mount import ZONE
from tests.model.programs import Trace
from tests.simulation import disk as disks
from tests.simulation.checker import RecordedWorld
from tests.simulation.machine import Machine
from tests.simulation.network import WEATHERS, SimulatedService, _Sent
from tests.simulation.operations import (
    FD,
    STARTS,
    Operation,
    after,
    beginning,
    planned,
    planted,
    possible,
)
from tests.simulation.oracle import UNREADABLE, Oracle
from tests.simulation.run import MEMORY, Complaints, Finding, simulated
from zonedrive.errors import RemoteError
from zonedrive.sandbox.zones import Level

ResultT = TypeVar("ResultT")
SYNC_S = 120.0
AWAY = {errno.ENETUNREACH, errno.EHOSTUNREACH}
AFTERWARDS_S = 0.1  # for cleaning up after a synchronisation
SIZE = 1 << 20  # bytes, more than any content has
HELD_S = 5.0  # for which a request waits for an operation
HANGING_S = 5000.0
Shown = dict[str, bytes | None]


@dataclass(frozen=True)
class Case:
    """One case; `steps` are operations and the words of the module's description."""

    start: str
    profile: str
    steps: tuple[Operation | str, ...]

    def __str__(self) -> str:
        return f"{self.start} {self.profile}: " + "; ".join(map(str, self.steps))


def parse(text: str) -> Case:
    """Read a case. Raises ValueError."""
    head, _, rest = text.strip().partition(": ")
    start, profile = head.split()
    steps: list[Operation | str] = []
    for part in rest.split("; "):
        word, *more = part.split()
        is_operation = word not in ("sync", "die", "lose", "hold")
        steps.append(Operation(word, *more) if is_operation else part)
    return Case(start, profile, tuple(steps))


@dataclass
class Outcome:
    """Result of a case."""

    findings: list[str] = field(default_factory=list)
    deaths: list[int] = field(default_factory=list)  # steps after which a death differs
    requests: list[bool] = field(default_factory=list)  # from the last operation on: it changes
    held: int = 0  # requests of the synchronisation before it
    trace: list[str] = field(default_factory=list)


class HeldService(SimulatedService):
    """Connection whose Nth request can wait, or lose its reply."""

    box: "Box"

    async def _carried(self, request: _Request, work: Callable[[], ResultT]) -> ResultT:
        box = self.box
        number, box.requests = box.requests, box.requests + 1
        box.asked(request.effect)
        if box.hold == (number, "before"):
            await box.wait_for_the_operation()
        refused: RemoteError | None = None
        try:
            found = await super()._carried(request, work)
        except RemoteError as error:
            refused = error
        if box.hold == (number, "after"):
            await box.wait_for_the_operation()
        if number == box.lose:
            raise _Sent(request).broken()
        if refused is not None:
            raise refused
        return found


def _ignored(_what: object) -> None:
    """Count nothing."""


class Box(Machine):
    """Machine that counts steps and requests."""

    requests, lose, hold = 0, -1, (-1, "")

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.passed: Callable[[str], None] = _ignored
        self.asked: Callable[[bool], None] = _ignored
        self.reached, self.operated = trio.Event(), trio.Event()

    def make_service(self) -> SimulatedService:
        """Return a connection for the next start."""
        service = HeldService(self.make_line(), self.profile)
        service.box = self
        return service

    async def wait_for_the_operation(self) -> None:
        """Let the operation begin, and wait for its end."""
        self.reached.set()
        with trio.move_on_after(HELD_S):
            await self.operated.wait()

    def _passed(self, step: str) -> None:
        if not self.died_at:
            self.passed(step)
        super()._passed(step)


class Play:
    """One case while it runs."""

    def __init__(self, case: Case, folder: Path) -> None:
        self.case, self._folder, self.trace = case, folder, Trace()
        self.outcome = Outcome()
        self.oracle = beginning(case.start)
        self._may_be: tuple[Oracle, ...] = (self.oracle,)  # during a call: before and after it
        self._is_certain = True  # it changes the service's data
        self._died = False
        self._moved: set[bytes | None] = set()
        self._number = 0  # of the operation
        self.world, self.web, self._ids = _world(case.start)

    def make_box(self, nursery: trio.Nursery) -> None:
        """Make the machine, which is off."""
        self.box = Box(
            "A", self._folder, self.world, nursery, 0, user="alice",
            profile=self.case.profile, options={},
        )  # fmt: skip
        self.box.fast_s = 0.0

    async def play(self) -> None:
        """Play the case."""
        try:
            with trio.fail_after(HANGING_S):
                async with trio.open_nursery() as nursery:
                    self.make_box(nursery)
                    await self.box.boot()
                    await self._steps(nursery)
                    if self.box.is_running:
                        await self.box.stop()
                    nursery.cancel_scope.cancel()
        except* Finding as found:
            self.outcome.findings += [str(each) for each in _leaves(found)]

    async def _steps(self, nursery: trio.Nursery) -> None:
        steps = self.case.steps
        last = max(place for place, step in enumerate(steps) if isinstance(step, Operation))
        held = trio.Event()
        held.set()
        for place, step in enumerate(steps):
            self.trace.note("-", str(step))
            if place == last:
                self._observe()
            word, *arguments = step.split() if isinstance(step, str) else ("",)
            if isinstance(step, Operation):
                self._number += 1
                if step.other:  # a file may get the content of another one as a version
                    nodes = [self.oracle.tree.get(path) for path in (step.path, step.other)]
                    self._moved |= {node.content for node in nodes if node is not None}
                if step in possible(self.oracle) and not self._may_stay(step):
                    await self._operate(step)
                if self.box.is_running:
                    self.box.weather = WEATHERS["calm"]
                    self.box.service.link.recheck()
                self.box.operated.set()
            elif word == "die":
                self.box.die_after(int(arguments[0]), is_power_cut=False)
            elif word == "lose":
                self.box.lose = self.box.requests + int(arguments[0])
            elif word == "hold":
                self.box.hold = (self.box.requests + int(arguments[0]), arguments[1])
                self._is_certain, self.oracle = False, self.oracle.uncertain()
                self._may_be = (self.oracle,)
                held = trio.Event()
                nursery.start_soon(self._sync_held, held)
                await self.box.reached.wait()
            elif not self._died:
                self._before_sync = self.box.requests
                if await self._sync():
                    self._settle()
            await self._has_died()
        await held.wait()
        while not await self._sync() or await self._has_died():
            await self._has_died()
        self.box.die_after(-1, is_power_cut=False)
        self.box.passed, self.box.asked = _ignored, _ignored
        self._settle()
        if found := self.oracle.local_findings(await self._here()):
            raise Finding("; ".join(found))
        answer = await self.box.perform(partial(self.box.command, "conflicts"))
        if answer["conflicts"]:
            raise Finding(f"conflicts: {answer['conflicts']}")

    async def _sync_held(self, held: trio.Event) -> None:
        with contextlib.suppress(OSError):
            await self.box.perform(partial(self.box.command, "sync", timeout=SYNC_S))
        self.box.reached.set()
        held.set()

    def _observe(self) -> None:
        """Count steps and requests from now on; note the steps at which a death differs."""
        outcome, first = self.outcome, self.box.requests
        outcome.held = first - getattr(self, "_before_sync", first)
        count, before = 0, ""

        def passed(step: str) -> None:
            nonlocal count, before
            state = f"{self._may_be} {self._digest()}"
            if is_written or state != before:
                outcome.deaths.append(count)
            before, count = state, count + 1
            is_written.clear()
            if step not in ("request", "answer", "reply", "fsync"):
                is_written.append(step)

        is_written = ["boot"]
        self.box.passed, self.box.asked = passed, outcome.requests.append

    def _digest(self) -> object:
        return [
            (node.name, node.parent_id, node.trash_id, len(node.versions))
            for node in self.world.nodes.values()
        ]

    # ---- operations ----

    async def _operate(self, operation: Operation) -> None:
        descriptor = 0
        for call in planned(self.oracle, operation, self._number, self.case.profile):
            arguments = [descriptor if each is FD else each for each in call.arguments]
            plain = [self._absolute(each) if isinstance(each, str) else each for each in arguments]
            self._may_be = (self.oracle, *call.during, call.after)
            try:
                found = await self.box.perform(partial(self._call, call.name, *plain))
            except OSError as wrong:
                self.trace.note("A", f"{call.name} {plain}: {wrong}")
                if await self._has_died():
                    return
                self._may_be = (self.oracle,)
                is_refused = call.is_refused or not self._is_certain
                is_away = self.box.weather.down and wrong.errno in AWAY
                if not is_away and not (is_refused and isinstance(wrong, PermissionError)):
                    raise Finding(f"{call.name} {plain}: {wrong}") from wrong
                return
            self.trace.note("A", f"{call.name} {plain}")
            if call.is_refused and self._is_certain:
                raise Finding(f"{call.name} {plain} is not refused")
            self.oracle = call.after
            self._may_be = (self.oracle,)
            descriptor = found if call.name == "open" else descriptor

    @staticmethod
    def _absolute(path: str) -> str:
        return f"{ZONE}/{path}"

    async def _call(self, name: str, *arguments: Any) -> Any:
        kernel = self.box.kernel
        if name == "close_duplicate":  # as a shell does before the program writes
            return await kernel.close(await kernel.dup(*arguments))
        return await getattr(kernel, name)(*arguments)

    async def _has_died(self) -> bool:
        """Start a dead client again, and find out which call came to its end."""
        if not self.box.died_at:
            return False
        self._died = True
        self.trace.note("A", f"dies at {self.box.died_at}")
        await self.box.ended()
        if self._operations_left():
            self.box.weather = WEATHERS["down"]
        await self.box.boot()
        here = await self._here()
        fitting = [each for each in self._may_be if not each.local_findings(here)]
        if not fitting:
            found = self._may_be[0].local_findings(here)
            raise Finding(f"after the restart: {'; '.join(found)}")
        self._may_be = tuple(each.uncertain() for each in fitting)
        self.oracle, self._is_certain = self._may_be[-1], False
        return True

    def _may_stay(self, operation: Operation) -> bool:
        """Return True if the published profile cannot undo an upload that nobody knows of."""
        is_known = self._is_certain or self.case.profile != "published"
        return not is_known and operation.verb in ("unlink", "rename", "exchange")

    def _operations_left(self) -> bool:
        every = [step for step in self.case.steps if isinstance(step, Operation)]
        return self._number < len(every)

    # ---- the check ----

    async def _sync(self) -> bool:
        """Send everything. Return False if the client died."""
        if self.box.is_running:
            await self.box.service.link.wait_online()
        try:
            answer = await self.box.perform(partial(self.box.command, "sync", timeout=SYNC_S))
        except OSError:
            if self.box.died_at:
                return False
            raise
        self.trace.note("A", f"sync: {answer}")
        if answer.get("exit"):
            raise Finding(f"sync exits with {answer}")
        await trio.sleep(AFTERWARDS_S)
        return not self.box.died_at

    def _settle(self) -> None:
        """Compare the service with the oracle, which then has the service's ids."""
        there = self._there()
        found = [each.findings(there, self._ids) for each in self._may_be]
        if all(found):
            raise Finding("; ".join(found[0]))
        for node in self.world.nodes.values():
            contents = [each.data for each in node.versions if each.data not in self._moved]
            if len(contents) != len(set(contents)):
                raise Finding(f"{node.name} has a version twice: {contents}")
        self.oracle = self._may_be[found.index([])].synced(there, self._ids)
        self._may_be, self._is_certain = (self.oracle,), True

    async def _here(self) -> Shown:
        found: Shown = {}
        kernel = self.box.kernel

        async def walk(folder: str) -> None:
            for name in sorted(await kernel.listdir(self._absolute(folder).rstrip("/"))):
                path = f"{folder}/{name}".lstrip("/")
                try:
                    descriptor = await kernel.open(self._absolute(path), 0)
                    try:
                        is_folder = kernel._open[descriptor].is_folder
                        found[path] = None if is_folder else await kernel.pread(descriptor, SIZE, 0)
                    finally:
                        await kernel.close(descriptor)
                except OSError as wrong:
                    is_away = wrong.errno in AWAY and self.box.weather.down
                    found[path] = UNREADABLE if is_away else f"error {wrong}".encode()
                if found[path] is None:
                    await walk(path)

        await self.box.perform(walk, "")
        return found

    def _there(self) -> dict[str, tuple[str, bytes | None]]:
        tree = self.web.tree()
        return {path: (self.web.entry_id(path), content) for path, content in tree.items()}


class LivingComplaints(Complaints):
    """Errors that a client logs while it lives."""

    def __init__(self, play: Play) -> None:
        super().__init__(play.trace)
        self.play = play

    def emit(self, record: logging.LogRecord) -> None:
        if not self.play.box.died_at:
            super().emit(record)


def _leaves(group: BaseExceptionGroup[Any]) -> Iterator[BaseException]:
    for each in group.exceptions:
        if isinstance(each, BaseExceptionGroup):
            yield from _leaves(each)
        else:
            yield each


def _world(start: str) -> tuple[RecordedWorld, Coworker, dict[int, str]]:
    """Return a service with the entries of a start."""
    world = RecordedWorld()
    web = Coworker(world, ALICE, world.add_zone(ZONE, {ALICE: Level.MANAGE}))
    ids = {}
    for number, path in enumerate(STARTS[start], 1):
        content = planted(path)
        if content is None:
            web.make_folder(path)
        else:
            web.write(path, content)
        ids[number] = web.entry_id(path)
    return world, web, ids


@cache
def _prepared(start: str, profile: str) -> tuple[Path, object]:
    """Return the folder of a client that knows everything at the start and has read it.

    The folder exists as long as the second value.
    """
    folder = TemporaryDirectory(prefix="zdcase", dir=MEMORY)
    with simulated(0) as time:
        play = Play(Case(start, profile, ()), Path(folder.name) / "A")
        play._folder.mkdir()

        async def prepare() -> None:
            async with trio.open_nursery() as nursery:
                play.make_box(nursery)
                await play.box.boot()
                await play._here()
                await play.box.stop()

        with LivingComplaints(play).listening(logging.WARNING):
            trio.run(prepare, clock=time.clock)
    return play._folder, folder


def run(case: Case, *, level: int = logging.WARNING) -> Outcome:
    """Run a case."""
    prepared, _ = _prepared(case.start, case.profile)
    with TemporaryDirectory(prefix="zdcase", dir=MEMORY) as folder, simulated(0) as time:
        copy_folder(prepared, Path(folder) / "A")
        play = Play(case, Path(folder) / "A")
        complaints = LivingComplaints(play)
        try:
            with complaints.listening(level):
                trio.run(play.play, clock=time.clock)
        except KeyboardInterrupt:
            raise
        except BaseException as wrong:
            play.outcome.findings.append("".join(traceback.format_exception(wrong)))
        play.outcome.findings += complaints.entries
        play.outcome.trace = play.trace.lines
        return play.outcome


# ---- enumeration ----


@dataclass(frozen=True)
class Sequence:
    """Operations of a case, each with True if all is sent before it."""

    start: str
    profile: str
    operations: tuple[Operation, ...]
    synced: tuple[bool, ...]

    def steps(self) -> list[Operation | str]:
        """Return the steps of the case in which nothing fails."""
        found: list[Operation | str] = []
        for operation, is_synced in zip(self.operations, self.synced, strict=True):
            found += ["sync", operation] if is_synced else [operation]
        return found

    def case(self, *words: str) -> Case:
        """Return the case with the words before the last operation."""
        *first, last = self.steps()
        return Case(self.start, self.profile, (*first, *words, last))


def sequences(start: str, profile: str, length: int) -> Iterator[Sequence]:
    """Yield all sequences of that length, one of each pair that mirrors each other."""
    yield from _longer(Sequence(start, profile, (), ()), beginning(start), length)


def _longer(sequence: Sequence, oracle: Oracle, length: int) -> Iterator[Sequence]:
    before, start = sequence.operations, sequence.start
    if len(before) == length:
        yield sequence
        return
    for operation in possible(oracle):
        operations = (*before, operation)
        mirrored = [str(each.mirrored(start)) for each in operations]
        if [str(each) for each in operations] > mirrored:
            continue
        calls = planned(oracle, operation, len(operations), sequence.profile)
        is_refused = len(calls) == 1 and calls[0].is_refused
        if is_refused and len(operations) < length:
            continue  # without effect
        then = after(oracle, operation, len(operations), sequence.profile)
        for is_synced in (False, True) if before else (False,):
            longer = Sequence(start, sequence.profile, operations, (*sequence.synced, is_synced))
            yield from _longer(longer, then.settled() if is_synced else then, length)


def cases(sequence: Sequence) -> Iterator[tuple[Case, Outcome]]:
    """Run the sequence, and again with each death, lost reply and overlap; yield the results.

    Lost replies to questions are run for single operations only.
    """
    case = sequence.case()
    outcome = run(case)
    yield case, outcome
    if outcome.findings:
        return
    words = [f"die {number}" for number in outcome.deaths]
    for number, is_change in enumerate(outcome.requests):
        if is_change or len(sequence.operations) == 1:  # a read is repeated anyway
            words.append(f"lose {number}")
    for word in words:
        case = sequence.case(word)
        yield case, run(case)
    if not sequence.synced[-1]:
        return
    *first, last = sequence.steps()
    for number in range(outcome.held):
        for when in ("before", "after"):
            case = Case(sequence.start, sequence.profile,
                        (*first[:-1], f"hold {number} {when}", last))  # fmt: skip
            yield case, run(case)
    shorter = replace(sequence, operations=sequence.operations[:-1], synced=sequence.synced[:-1])
    for number in run(shorter.case()).deaths:
        case = Case(sequence.start, sequence.profile,
                    (*shorter.case(f"die {number}").steps, "sync", last))  # fmt: skip
        yield case, run(case)


# ---- the command ----


def chosen(length: int, share: int) -> list[Sequence]:
    """Return all sequences up to a length; of the longest ones, one of each `share`."""
    return [
        sequence
        for size in range(1, length + 1)
        for profile in ("sandbox", "published")
        for start in STARTS
        for sequence in sequences(start, profile, size)
        if size < length or zlib.crc32(str(sequence.case()).encode()) % share == 0
    ]


def kind(outcome: Outcome) -> str:
    """Return the first finding without its numbers, names and contents, to group similar ones."""
    lines = [line for line in outcome.findings[0].splitlines() if not line.startswith("  +-")]
    return re.sub(r"b'[^']*'|[\w/]+\.txt~?|\d+", "…", lines[-1])[:90]


def _explore(
    sequence: Sequence, now: Callable[[], float], end_s: float
) -> list[tuple[str, str, list[str]]]:
    """Return case, kind and findings of each case; kind is "" where nothing was found.

    The list is empty if the time is over.
    """
    if now() > end_s:
        return []
    disks.close_left_open()
    return [
        (str(case), kind(outcome) if outcome.findings else "", outcome.findings)
        for case, outcome in cases(sequence)
    ]


def explore(
    length: int, share: int, jobs: int, now: Callable[[], float], end_s: float = math.inf
) -> bool:
    """Run all cases up to a length, or until a moment of the clock `now`.

    Print what they find, and return True if they find anything.
    """
    began, ran, played = now(), 0, 0
    kinds: Counter[str] = Counter()
    every = chosen(length, share)
    for start in STARTS:
        for profile in ("sandbox", "published"):
            _prepared(start, profile)  # before the processes divide
    with multiprocessing.get_context("fork").Pool(jobs) as pool:
        until = itertools.takewhile(lambda _: now() < end_s, every)
        for found in pool.imap(partial(_explore, now=now, end_s=end_s), until, chunksize=4):
            ran += len(found)
            played += bool(found)
            for case, what, findings in found:
                if not what:
                    continue
                kinds[what] += 1
                if kinds[what] == 1:
                    print(f"FOUND {findings[0]}\n  --replay '{case}'", flush=True)
    if played < len(every):
        print(f"the time is over: {played} of {len(every)} sequences ran")
    print(f"{ran} cases of {played} sequences in {now() - began:.0f} s, "
          f"{kinds.total()} with findings")  # fmt: skip
    for what, times in kinds.most_common():
        print(f"{times:6} {what}")
    return bool(kinds)


def replay(text: str) -> bool:
    """Run a case, print its log, and return True if it finds anything."""
    outcome = run(parse(text), level=logging.INFO)
    for finding in outcome.findings:
        print(f"FOUND {finding}")
    print("\n".join(outcome.trace))
    print(f"{len(outcome.findings)} findings")
    return bool(outcome.findings)
