"""State of the connection to the service."""

import logging
import threading
from collections.abc import Callable
from itertools import pairwise
from typing import cast

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from zonedrive import errors
from zonedrive.remote.connectivity import SPACING, Connectivity, State
from zonedrive.remote.wire import error_mapping

REFUSED = errors.Unreachable("refused")
SLOW = errors.TimedOut("slow")
CUT = errors.Interrupted("cut")
GATEWAY = errors.Unavailable("bad gateway", status=502)


@pytest.mark.parametrize(
    ("failures", "state"),
    [
        ([REFUSED], "offline"),
        ([errors.Untrusted("x")], "offline"),
        ([SLOW], "online"),
        ([SLOW, SLOW], "offline"),
        ([CUT] * 4, "online"),
        ([CUT] * 5, "offline"),
        ([errors.ReplyLost("x")] * 5, "offline"),
        ([GATEWAY] * 4, "online"),
        ([GATEWAY] * 5, "offline"),
        ([errors.Unavailable("a page", status=403)] * 9, "online"),
        ([SLOW, errors.NotFound("x"), SLOW], "online"),
        ([errors.Unavailable("x", status=500)] * 9, "online"),
        ([errors.Unavailable("x", status=429)] * 9, "online"),
        ([errors.NotLoggedOn("x")], "logon-required"),
        ([errors.CredentialsRefused("x")], "logon-required"),
        ([errors.NotLoggedOn("x"), errors.Unavailable("x", status=500)], "logon-required"),
        ([errors.NotLoggedOn("x"), errors.Forbidden("x")], "online"),
        ([errors.NotLoggedOn("x"), REFUSED], "offline"),
        ([REFUSED, errors.Forbidden("x")], "online"),
        ([errors.BadAnswer("x")] * 9, "online"),
    ],
)
def test_the_state_after_failures(failures: list[errors.RemoteError], state: State) -> None:
    """One refused connection means offline, one slow answer does not."""
    link = Connectivity()
    for failure in failures:
        link.note_failure(failure)
    assert link.state == state


@pytest.mark.parametrize("failure", [errors.NotLoggedOn("x"), REFUSED, errors.NotFound("x")])
def test_a_refusal_that_may_concern_the_logon_changes_no_state(failure: errors.RemoteError) -> None:
    """The state of a mount whose logon has ended would flicker, with a notification each time."""
    link = Connectivity()
    link.note_failure(failure)
    state = link.state
    with pytest.raises(errors.EndpointRefused), link.reported("change"):
        raise errors.EndpointRefused("x")
    assert link.state == state


@pytest.mark.parametrize(
    "error", [errors.Unavailable("x", status=503), errors.ReplyLost("x", status=502)]
)
def test_of_a_burst_of_gateway_failures_one_counts(error: errors.RemoteError) -> None:
    """A burst counts as one overload; repeated failures mean that the service is unreachable."""
    now = 0.0
    link = Connectivity(clock=lambda: now)
    for burst in range(4):
        now += 1
        began, now = now, now + 1
        for _ in range(32):
            link.note_failure(error, began)
        link.note_failure(error, now + SPACING / 2)
        assert link.state == "online", burst
    link.note_failure(error, now + SPACING)
    assert link.state == "offline"


def test_no_text_of_the_service_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """The text may contain names of files, which are nowhere else on the disk in clear."""
    body = b'{"error": "NOT_AVAILABLE", "message": "merger plan.txt is locked"}'
    link = Connectivity()
    with caplog.at_level(logging.INFO):
        link.note_failure(error_mapping.refusal(401, body, "reading a file"))
    assert "merger plan" in link.reason
    (record,) = caplog.records
    assert "merger plan" not in record.getMessage()
    assert "run zonedrive logon" in record.getMessage()


def test_an_answer_ends_everything() -> None:
    for failure in (REFUSED, errors.NotLoggedOn("x")):
        link = Connectivity()
        link.note_failure(failure)
        assert link.last_error is failure
        link.note_answer()
        assert link.state == "online"
        assert link.last_error is None


async def test_waiters_wake_from_other_threads() -> None:
    """An answer in a worker thread wakes tasks that wait on the loop."""
    link = Connectivity()
    link.note_failure(REFUSED)
    seen: list[str] = []

    async def wait() -> None:
        await link.wait_online()
        seen.append("online")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        nursery.start_soon(wait)
        await wait_all_tasks_blocked()
        threading.Thread(target=link.note_answer).start()
    assert seen == ["online", "online"]


async def test_each_change_is_reported_once(autojump_clock: MockClock) -> None:
    """A report that changes no state wakes no task."""
    link = Connectivity()
    with trio.move_on_after(10) as waiting:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(link.wait_change)
            await wait_all_tasks_blocked()
            link.note_answer()
    assert waiting.cancelled_caught
    async with trio.open_nursery() as nursery:
        nursery.start_soon(link.wait_change)
        await wait_all_tasks_blocked()
        link.note_failure(REFUSED)


class Asked:
    """Service that answers probes as the test says, and records the times."""

    def __init__(self, link: Connectivity, failures: int) -> None:
        self.link, self.failures = link, failures
        self.times: list[float] = []
        self.states: list[State] = []

    async def probe(self, state: State) -> None:
        """Fail `failures` times."""
        await trio.lowlevel.checkpoint()
        self.times.append(trio.current_time())
        self.states.append(state)
        if len(self.times) > self.failures:
            self.link.note_answer()
        else:
            self.link.note_failure(REFUSED)


async def test_an_absent_service_is_asked_less_and_less(autojump_clock: MockClock) -> None:
    """The interval between probes grows until the service answers."""
    link = Connectivity(chance=lambda: 1.0)
    asked = Asked(link, 8)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(link.run, asked.probe)
        await wait_all_tasks_blocked()
        began = trio.current_time()
        link.note_failure(REFUSED)
        await link.wait_online()
        nursery.cancel_scope.cancel()
    waits = [now - before for before, now in zip([began, *asked.times], asked.times, strict=False)]
    assert waits == pytest.approx([1, 2, 4, 8, 10, 10, 10, 10, 10])
    assert set(asked.states) == {"offline"}


class Overtaken:
    """Lock that another thread takes once, just before its next user, to call `first`."""

    def __init__(self, first: Callable[[], None]) -> None:
        self._first: Callable[[], None] | None = first
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        first, self._first = self._first, None
        if first is not None:
            other = threading.Thread(target=first)
            other.start()
            other.join()
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


async def test_a_failure_before_the_wait_for_one_is_not_missed(autojump_clock: MockClock) -> None:
    """A transfer's thread reports the failure after `run` has seen that the state is online."""
    link = Connectivity()
    asked = Asked(link, 1)
    link._lock = cast(threading.Lock, Overtaken(lambda: link.note_failure(REFUSED)))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(link.run, asked.probe)
        await wait_all_tasks_blocked()
        with trio.fail_after(60):
            await link.wait_online()
        nursery.cancel_scope.cancel()
    assert asked.states == ["offline", "offline"]


async def test_a_hint_makes_it_ask_at_once(autojump_clock: MockClock) -> None:
    """A recheck causes a probe at once."""
    link = Connectivity(chance=lambda: 1.0)
    asked = Asked(link, 0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(link.run, asked.probe)
        await wait_all_tasks_blocked()
        link.note_failure(errors.NotLoggedOn("x"))
        await wait_all_tasks_blocked()
        began = trio.current_time()
        link.recheck()
        await link.wait_online()
        assert trio.current_time() == began
        nursery.cancel_scope.cancel()
    assert asked.states == ["logon-required"]


async def test_while_offline_requests_are_refused_only_under_a_probe(
    autojump_clock: MockClock,
) -> None:
    """Programs do not wait for an unreachable service, and are not blocked without an end."""
    link = Connectivity(chance=lambda: 1.0)
    link.note_failure(REFUSED)
    link.check()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(link.run, Asked(link, 10**9).probe)
        await wait_all_tasks_blocked()
        with pytest.raises(errors.Unreachable, match="refused"):
            link.check()
        link.note_answer()
        link.check()
        link.note_failure(errors.NotLoggedOn("x"))
        link.check()
        link.note_failure(REFUSED)
        nursery.cancel_scope.cancel()
    link.check()


def test_a_note_after_the_loop_has_ended_is_harmless() -> None:
    """A worker thread can report after the loop has ended."""
    link = Connectivity()

    async def leave_a_waiter() -> None:
        link._waiting.append((trio.lowlevel.current_trio_token(), trio.Event()))

    trio.run(leave_a_waiter)
    link.note_failure(REFUSED)
    assert link.state == "offline"


async def test_a_refused_request_causes_a_probe(autojump_clock: MockClock) -> None:
    """A refused request causes a probe within 2 s."""
    now = trio.current_time
    link = Connectivity(chance=lambda: 1.0, clock=now)
    probes: list[float] = []

    class Away:
        async def probe(self, state: State) -> None:
            probes.append(now())
            link.note_failure(REFUSED)

    link.note_failure(REFUSED)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(link.run, Away().probe)
        await trio.sleep(120)
        assert max(after - before for before, after in pairwise(probes)) == 10
        del probes[:]
        for _ in range(200):
            await trio.sleep(0.1)
            with pytest.raises(errors.Unreachable):
                link.check()
        assert 9 <= len(probes) <= 11
        nursery.cancel_scope.cancel()


async def test_another_state_is_waited_for_without_missing_one() -> None:
    """A change before the wait is not missed; a recheck is no change."""
    link = Connectivity()
    link.note_failure(REFUSED)
    assert await link.wait_other("online") == "offline"
    seen: list[State] = []

    async def wait() -> None:
        seen.append(await link.wait_other("offline"))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await wait_all_tasks_blocked()
        link.recheck()
        await wait_all_tasks_blocked()
        assert seen == []
        link.note_failure(errors.NotLoggedOn("x"))
    assert seen == ["logon-required"]
