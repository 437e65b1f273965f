"""Protection around each handler."""

import contextlib
import errno
import logging

import pytest
import trio
from pyfuse3 import FUSEError
from trio.testing import MockClock

from zonedrive.errors import Forbidden
from zonedrive.fuse.deadline import DEADLINE, LONG_DEADLINE, Gate, guarded


class Handlers:
    """Correct and faulty handlers."""

    def __init__(self) -> None:
        self.gate = Gate()

    @guarded()
    async def give(self, value: int) -> int:
        return value

    @guarded()
    async def refuse(self, error: BaseException) -> int:
        raise error

    @guarded()
    async def hang(self) -> int:
        await trio.sleep_forever()
        raise AssertionError

    @guarded(LONG_DEADLINE)
    async def hang_long(self) -> int:
        await trio.sleep_forever()
        raise AssertionError

    @guarded()
    async def wait_in_vain(self, times: int) -> None:
        for _ in range(times):
            with trio.move_on_after(1):
                await trio.sleep_forever()
            with contextlib.suppress(trio.TooSlowError), trio.fail_after(1):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(trio.sleep_forever)

    @guarded()
    async def hang_in_tasks(self) -> int:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.hang)
            nursery.start_soon(self._fail_when_cancelled)
        raise AssertionError

    async def _fail_when_cancelled(self) -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise ValueError("on the way out")


@pytest.mark.parametrize(
    ("error", "number"), [(Forbidden("no"), errno.EACCES), (FUSEError(errno.EXDEV), errno.EXDEV)]
)
async def test_only_an_errno_comes_out(error: Exception, number: int) -> None:
    """Every failure becomes an errno that the kernel accepts."""
    with pytest.raises(FUSEError) as refused:
        await Handlers().refuse(error)
    assert refused.value.errno == number


@pytest.mark.parametrize(("verb", "seconds"), [("hang", DEADLINE), ("hang_long", LONG_DEADLINE)])
async def test_every_operation_ends(autojump_clock: MockClock, verb: str, seconds: float) -> None:
    """A program gets an answer within the deadline, whatever hangs."""
    began = trio.current_time()
    with pytest.raises(FUSEError) as late:
        await getattr(Handlers(), verb)()
    assert late.value.errno == errno.ETIMEDOUT
    assert trio.current_time() - began == pytest.approx(seconds)


async def test_the_deadline_counts_for_all_waits_together(autojump_clock: MockClock) -> None:
    """The deadline includes several waits, which may have shorter deadlines."""
    handlers, began = Handlers(), trio.current_time()
    await handlers.wait_in_vain(10)
    assert trio.current_time() - began == pytest.approx(20)
    began = trio.current_time()
    with pytest.raises(FUSEError) as late:
        await handlers.wait_in_vain(1000)
    assert late.value.errno == errno.ETIMEDOUT
    assert trio.current_time() - began == pytest.approx(DEADLINE)
    assert not handlers.gate.waiting


async def test_a_deadline_holds_for_what_runs_in_tasks(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Failures after a deadline are recorded and not raised."""
    with pytest.raises(FUSEError):
        await Handlers().hang_in_tasks()
    assert any("with an unexpected error" in record.message for record in caplog.records)


async def test_a_shut_gate_answers_those_inside_and_those_outside(
    autojump_clock: MockClock,
) -> None:
    """Waiting operations end when the mount ends."""
    handlers = Handlers()
    seen: list[int] = []

    async def ask() -> None:
        with pytest.raises(FUSEError) as ended:
            await handlers.hang()
        seen.append(ended.value.errno)

    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(ask)
        await trio.testing.wait_all_tasks_blocked()
        handlers.gate.shut()
    with pytest.raises(FUSEError):
        await handlers.give(1)
    assert seen == [errno.ENOTCONN] * 3
    assert trio.current_time() == 0.0
    assert not handlers.gate.waiting


async def test_a_cancellation_from_outside_goes_through() -> None:
    """The daemon's own end is not reported as a failure of the operation."""
    with trio.move_on_after(0) as scope:
        await Handlers().hang()
    assert scope.cancelled_caught


async def test_a_cancellation_from_outside_goes_through_tasks(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A cancellation is passed on although other tasks of the operation fail."""
    with trio.move_on_after(0) as scope:
        await Handlers().hang_in_tasks()
    assert scope.cancelled_caught
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
