"""Inhibitor locks before a shutdown, and reconnection after a suspend."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import cast

import pytest
import trio
import trio.testing
from jeepney import Message

from tests.harness.bus import Bus, Logind
from zonedrive.daemon import inhibitor
from zonedrive.daemon.inhibitor import Inhibitor
from zonedrive.errors import Unreachable
from zonedrive.remote.connectivity import Connectivity
from zonedrive.views.status_report import StatusReport

NOTHING = dict.fromkeys(
    ("files", "changes", "bytes", "sent", "uploading", "failed", "paused", "open"), 0
)


class Outbox:
    """Fake report with pending work."""

    def __init__(self) -> None:
        self.changed = trio.Event()
        self._work = dict(NOTHING)

    def work(self) -> dict[str, int]:
        """Return the counts."""
        return self._work

    def become(self, **counts: int) -> None:
        """Set other counts."""
        self._work = {**NOTHING, **counts}
        self.changed.set()
        self.changed = trio.Event()


class Watched:
    """Running inhibitor."""

    def __init__(self) -> None:
        self.outbox, self.link = Outbox(), Connectivity()
        self.sent: list[float] = []  # how many seconds there were
        self.woken: list[bool] = []
        self.wrong: Exception | None = None  # raised by the next attempt to send
        self.inhibitor = Inhibitor(
            cast(StatusReport, self.outbox), self.link, self._send_all, self._on_resume
        )

    async def _send_all(self, seconds: float) -> None:
        self.sent.append(seconds)
        if self.wrong is not None:
            raise self.wrong
        self.outbox.become()

    async def _on_resume(self, dead: bool) -> None:
        self.woken.append(dead)


@asynccontextmanager
async def watching() -> AsyncIterator[Watched]:
    """Run an inhibitor inside the block."""
    watched = Watched()
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(watched.inhibitor.run)
            yield watched
            nursery.cancel_scope.cancel()


async def until(look: Callable[[], object]) -> None:
    """Wait until `look` returns a true value."""
    while not look():  # noqa: ASYNC110 - what is looked at is another thread's, or the kernel's
        await trio.sleep(0.01)


def holds(logind: Logind, number: int) -> bool:
    """Return True if logind holds `number` locks."""
    return len(logind.held()) == number


def said(logind: Logind, words: str) -> bool:
    """Return True if the reason of the delay lock begins with `words`."""
    return logind.held().get("delay", "").startswith(words)


@pytest.fixture
def bus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bus]:
    """Run a system bus; waits are short, except those that end with an answer."""
    monkeypatch.setattr(inhibitor, "SECONDS", 60.0)
    monkeypatch.setattr(inhibitor, "CALM_SECONDS", 0.01)
    monkeypatch.setattr(inhibitor, "REWORD_SECONDS", 0.01)
    running = Bus(tmp_path)
    monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", running.address)
    yield running
    running.close()


@pytest.fixture
def logind(bus: Bus) -> Iterator[Logind]:
    """Run a fake logind."""
    running = Logind(bus)
    yield running
    running.close()


async def test_a_shutdown_is_delayed_only_by_pending_changes(logind: Logind) -> None:
    """The reason has the present number of files and bytes, or of changes; sleep is not delayed."""
    async with watching() as watched:
        watched.outbox.become(files=3, bytes=12 << 20)
        why = "3 files (12 MiB) are not on the service yet"
        await until(lambda: logind.held() == {"delay": why, "block": why})
        watched.outbox.become(files=2, changes=2)
        why = "2 changes (new folders, renames, removals) are not on the service yet"
        await until(lambda: logind.held() == {"delay": why, "block": why})
        watched.outbox.become(files=1, bytes=7, sent=2)
        why = "1 file (5 bytes) is not on the service yet"
        await until(lambda: logind.held() == {"delay": why, "block": why})
        watched.outbox.become()
        await until(lambda: logind.held() == {})
    assert {what for what, _, _ in logind.taken} == {"shutdown"}


@pytest.mark.parametrize("waits", ["offline", "refused and open", "paused"])
async def test_no_block_if_waiting_does_not_help(logind: Logind, waits: str) -> None:
    """The service is offline or refuses a file, uploads are paused, or a file is still open."""
    async with watching() as watched:
        watched.outbox.become(files=2, bytes=2)
        await until(lambda: len(logind.held()) == 2)
        if waits == "offline":
            watched.link.note_failure(Unreachable("no network"))
            watched.outbox.become(files=2, bytes=2)  # a change of the connection is one of it
        elif waits == "paused":
            watched.outbox.become(files=2, bytes=2, paused=1)
        else:
            watched.outbox.become(files=2, bytes=2, failed=1, open=1)
        await until(lambda: list(logind.held()) == ["delay"])
        if waits == "offline":
            watched.link.note_answer()
            watched.outbox.become(files=2, bytes=2)
            await until(lambda: len(logind.held()) == 2)


async def test_a_shutdown_sends_pending_changes_and_releases_the_locks(logind: Logind) -> None:
    """Changes are sent within the delay of logind; a cancelled shutdown takes the locks again."""
    async with watching() as watched:
        watched.outbox.become(files=2, bytes=2)
        await until(lambda: len(logind.held()) == 2)
        logind.announce("PrepareForShutdown", True)
        await until(lambda: logind.held() == {})
        assert watched.sent == [4.0]
        watched.outbox.become(files=1, bytes=1)
        logind.announce("PrepareForShutdown", False)
        await until(lambda: len(logind.held()) == 2)


async def test_offline_a_shutdown_does_not_wait(logind: Logind) -> None:
    """Pending changes are safe on this machine."""
    async with watching() as watched:
        watched.link.note_failure(Unreachable("no network"))
        watched.outbox.become(files=2, bytes=2)
        await until(lambda: list(logind.held()) == ["delay"])
        logind.announce("PrepareForShutdown", True)
        await until(lambda: logind.held() == {})
        assert watched.sent == []


async def test_a_lock_granted_after_the_release_is_released(
    logind: Logind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lock is released at once if it is granted after the release of all others."""
    come, read_on, asked = trio.Event(), trio.Event(), Inhibitor._asked

    async def late(self: Inhibitor, call: Message) -> Message | None:
        reply = await asked(self, call)
        come.set()
        if not read_on.is_set():  # a cancellation here would lose the descriptor in the reply
            await read_on.wait()
        return reply

    monkeypatch.setattr(Inhibitor, "_asked", late)
    async with watching() as watched:
        watched.link.note_failure(Unreachable("no network"))
        watched.outbox.become(files=2, bytes=2)
        await come.wait()
        assert list(logind.held()) == ["delay"]
        logind.announce("PrepareForShutdown", True)
        await until(lambda: watched.inhibitor._is_over)
        read_on.set()
        await until(lambda: logind.held() == {})
        logind.announce("PrepareForShutdown", False)
        await until(lambda: list(logind.held()) == ["delay"])


async def test_a_refused_lock_is_requested_again_with_the_next_changes(bus: Bus) -> None:
    """The other lock is still taken."""
    logind = Logind(bus, denied="block")
    try:
        async with watching() as watched:
            for number in (1, 2, 3):
                watched.outbox.become(files=number, bytes=1)
                await until(partial(said, logind, f"{number} file"))
            assert list(logind.held()) == ["delay"]
            logind.denied = ""
            watched.outbox.become(files=4, bytes=1)
            await until(partial(said, logind, "4 file"))
            assert list(logind.held()) == ["delay"]
            watched.outbox.become()
            await until(lambda: not logind.held())
            watched.outbox.become(files=1, bytes=1)
            await until(lambda: set(logind.held()) == {"delay", "block"})
    finally:
        logind.close()


async def test_a_late_reply_is_not_a_refusal(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lock is requested again."""
    monkeypatch.setattr(inhibitor, "SECONDS", 0.2)
    # On a busy machine many requests do not even reach logind in this time.
    for name in ("CALM_SECONDS", "REWORD_SECONDS", "RETRY_SECONDS"):
        monkeypatch.setattr(inhibitor, name, 0.01)
    logind = Logind(bus, silent=1)
    try:
        async with watching() as watched:
            watched.outbox.become(files=1, bytes=1)
            await until(lambda: logind.silent == 0)
            monkeypatch.setattr(inhibitor, "SECONDS", 30.0)
            await until(lambda: set(watched.inhibitor._locks) == {"delay", "block"})
    finally:
        logind.close()


async def test_connections_are_checked_after_a_suspend(
    logind: Logind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a long suspend they count as dead; after a short one they are kept."""
    slept = 0.0
    monkeypatch.setattr(inhibitor, "suspended_seconds", lambda: slept)
    async with watching() as watched:
        watched.outbox.become(files=1, bytes=1)
        await until(logind.held)  # it listens
        for seconds in (5, 3600):
            logind.announce("PrepareForSleep", True)
            slept += seconds
            logind.announce("PrepareForSleep", False)
            await until(lambda: watched.inhibitor._suspended == inhibitor.suspended_seconds())
        await until(lambda: watched.woken == [False, True])
    assert {what for what, _, _ in logind.taken} == {"shutdown"}


async def test_the_locks_are_released_at_the_end(logind: Logind) -> None:
    """No lock is left when the mount ends."""
    async with watching() as watched:
        watched.outbox.become(files=1, bytes=1)
        await until(lambda: len(logind.held()) == 2)
    await until(lambda: not logind.held())


async def test_a_restarted_bus_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The locks are taken again as soon as the bus is back."""
    for name in ("CALM_SECONDS", "RETRY_SECONDS"):
        monkeypatch.setattr(inhibitor, name, 0.01)
    monkeypatch.setattr(inhibitor, "SECONDS", 60.0)
    monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", f"unix:path={tmp_path}/session-bus")
    async with watching() as watched:
        watched.outbox.become(files=1, bytes=1)
        await trio.testing.wait_all_tasks_blocked()
        for _ in range(2):
            bus = Bus(tmp_path)
            logind = Logind(bus)
            await until(partial(holds, logind, 2))
            await until(lambda: len(watched.inhibitor._locks) == 2)  # both replies have been read
            bus.close()
            await until(partial(holds, logind, 0))
            logind.close()


async def test_a_failed_upload_at_a_shutdown_that_is_cancelled(
    logind: Logind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The locks are taken again, although the message about the cancellation may be missed."""
    monkeypatch.setattr(inhibitor, "RETRY_SECONDS", 0.01)
    async with watching() as watched:
        watched.outbox.become(files=2, bytes=2)
        await until(partial(holds, logind, 2))
        watched.wrong = OSError("the disk has an error")
        logind.announce("PrepareForShutdown", True)
        await until(lambda: len(logind.taken) >= 4)
        assert watched.sent == [4.0]
        await until(partial(holds, logind, 2))
