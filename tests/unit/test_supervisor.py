"""Background tasks that raise: they are restarted, named and logged, and the mount continues."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
import trio
import trio.lowlevel
from trio.testing import MockClock

import zonedrive
from zonedrive.supervisor import LONGEST_PAUSE_S, STEADY_S, Supervisor, Task

SOURCES = Path(zonedrive.__file__).parent
WHERE = (
    "daemon", "fuse", "views", "prefetch", "pins", "vfs", "sync", "content", "remote",
)  # fmt: skip

WAITED_FOR = {
    ("daemon/handlers.py", "self._say_progress"): "in a request",
    ("daemon/handlers.py", "self._give_up_offline"): "in a request",
    ("daemon/handlers.py", "self._give_up_without_logon"): "in a request",
    ("daemon/control_server.py", "_read_lines"): "in a request",
    ("daemon/service_commands.py", "read"): "in a command",
    ("daemon/service_commands.py", "wait"): "in a command",
    ("daemon/inhibitor.py", "self._hold"): "in the task of the inhibitor",
    ("daemon/handlers.py", "_say_repeatedly"): "in a request",
    ("daemon/notification_client.py", "self._click"): "it raises nothing",
    ("daemon/notification_client.py", "self._hold"): "it raises nothing",
    ("daemon/notification_client.py", "self._receive"): "in the task of the connection",
    ("daemon/serve.py", "self._parts.files.run"): "its children are supervised",
    ("daemon/serve.py", "self._session.run"): "the loop of FUSE: without it there is no mount",
    ("daemon/trash.py", "list_trash"): "in the request",
    ("daemon/serve.py", "self._server.serve"): "its children are supervised",
    ("fuse/mount.py", "self._answer"): "the loop of FUSE",
    ("fuse/mount.py", "self._stop_when_cancelled"): "it does nothing before the end",
    ("fuse/mount.py", "self._invalidate_until_stopped"): "its child is supervised",
    ("remote/client.py", "stop_when_cancelled"): "in whoever waits",
    ("pins/fetch.py", "worker"): "in the task of the pins, or a request",
    ("pins/poll.py", "self._attempt"): "in the task of the rounds",
    ("views/stack.py", "self._folders.run"): "its children are supervised",
    ("views/stack.py", "self._state.cache.run"): "its children are supervised",
    ("views/stack.py", "self._file_prefetch.run"): "its children are supervised",
    ("views/stack.py", "self._dispatcher.run"): "its children are supervised",
    ("views/stack.py", "self.pin_fetcher.run"): "its children are supervised",
}
"""Functions that are started without the supervisor, and why their exceptions cannot be missed."""


def started() -> Iterator[tuple[str, str]]:
    """Yield each start of a task: the file, and the started function."""
    for path in sorted(each for name in WHERE for each in (SOURCES / name).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr in ("start_soon", "start")
                and node.args
            ):
                yield str(path.relative_to(SOURCES)), ast.unparse(node.args[0])


def test_every_task_is_supervised() -> None:
    """A task without supervision must be in the table of exceptions, with its reason."""
    other = {each for each in started() if not re.search(r"(^|[._])(keep|job)$", each[1])}
    assert other == set(WAITED_FOR)


def test_each_task_is_started_in_one_line() -> None:
    """A task's name leads to one place in the sources."""
    texts = (path.read_text("utf-8") for path in SOURCES.rglob("*.py"))
    found = Counter(name for text in texts for name in re.findall(r"\bTask\.(\w+)\b", text))
    assert {task.name: found[task.name] for task in Task} == dict.fromkeys(Task.__members__, 1)


class Failing:
    """Work that fails a number of times, and then runs."""

    def __init__(self, times: int) -> None:
        self.left = times
        self.begun: list[float] = []

    async def run(self) -> None:
        """Run the work once."""
        self.begun.append(trio.current_time())
        await trio.lowlevel.checkpoint()
        if self.left:
            self.left -= 1
            raise KeyError(f"inode {self.left % 2}")
        await trio.sleep_forever()


async def test_a_kept_task_is_restarted_with_growing_pauses(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """A task counts as failing until it has run for a while."""
    supervisor, work = Supervisor(), Failing(8)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(supervisor.keep, Task.NOTIFICATIONS, work.run)
        await trio.sleep(5)
        (failure,) = supervisor.failing()
        assert (failure.task, failure.kind, failure.times) == (Task.NOTIFICATIONS, "KeyError", 3)
        assert failure.error == "KeyError: 'inode 1'"
        await trio.sleep(300)
        assert supervisor.failing() == []
        nursery.cancel_scope.cancel()
    pauses = [after - before for before, after in pairwise(work.begun)]
    assert pauses == [1, 2, 4, 8, 16, LONGEST_PAUSE_S, LONGEST_PAUSE_S, LONGEST_PAUSE_S]
    assert all(record.exc_info for record in caplog.records)
    caplog.clear()


async def test_a_repeated_error_is_logged_without_a_traceback(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """A task that fails for a week would otherwise fill the log."""
    supervisor = Supervisor()

    async def fail() -> None:
        raise ValueError("always")

    with trio.move_on_after(100):
        await supervisor.keep(Task.NOTIFICATIONS, fail)
    assert len(caplog.records) > 5
    assert [bool(record.exc_info) for record in caplog.records].count(True) == 1
    caplog.clear()


async def test_a_task_that_ran_long_is_restarted_at_once(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Only failures in a row make the pause longer."""
    supervisor = Supervisor()
    begun = []

    async def fail_late() -> None:
        begun.append(trio.current_time())
        await trio.sleep(10 * STEADY_S)
        raise ValueError("late")

    with trio.move_on_after(50 * STEADY_S):
        await supervisor.keep(Task.NOTIFICATIONS, fail_late)
    pauses = {after - before for before, after in pairwise(begun)}
    assert pauses == {10 * STEADY_S + 1}
    caplog.clear()


async def test_a_task_that_returns_is_not_restarted() -> None:
    """An earlier failure of the task is forgotten."""
    times = 0

    async def once() -> None:
        nonlocal times
        times += 1

    await Supervisor().keep(Task.UPKEEP, once)
    assert times == 1


async def test_a_failed_job_is_listed_until_another_succeeds(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A failed job is not repeated, and other jobs continue."""
    supervisor = Supervisor()

    async def work(number: int) -> None:
        if not number:
            raise ZeroDivisionError
        await trio.lowlevel.checkpoint()

    for number in (1, 0):
        await supervisor.job(Task.LISTING, work, number)
    assert supervisor.call(Task.ARRIVAL, lambda: [][1]) is not None
    assert {str(each.task) for each in supervisor.failing()} == {Task.LISTING, Task.ARRIVAL}
    await supervisor.job(Task.LISTING, work, 1)
    assert supervisor.call(Task.ARRIVAL, lambda: None) is None
    assert supervisor.failing() == []
    caplog.clear()


async def test_a_task_that_fails_while_it_is_cancelled(caplog: pytest.LogCaptureFixture) -> None:
    """The cancellation continues, and the failure is logged."""

    async def stubborn() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            try:
                await trio.sleep_forever()
            finally:
                raise ValueError("in the end")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(Supervisor().keep, Task.NOTIFICATIONS, stubborn)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert "in the end" in caplog.text
    caplog.clear()
