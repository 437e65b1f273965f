"""A mount's logon over weeks: renewal in time, and one notification to the user."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import cast

import pytest
import trio
from trio.testing import MockClock

from tests.unit.logon.test_bearer_auth import Memory
from zonedrive.daemon.click_actions import ClickActions
from zonedrive.daemon.compose import Parts
from zonedrive.daemon.data_key import DataKey
from zonedrive.daemon.logon_monitor import LogonMonitor
from zonedrive.daemon.notification_client import Button, Desktop, Notification
from zonedrive.errors import CredentialsRefused, NotLoggedOn, Unreachable
from zonedrive.logon.account import Account
from zonedrive.logon.bearer_auth import Bearer, BearerAuth, Clock, save_bearer
from zonedrive.paths import AccountPaths
from zonedrive.remote.connectivity import Connectivity, State

DAY = 86_400.0
BEGAN = 1_800_000_000
COMMAND = "zonedrive logon https://zones.example --username alice --account work"


class Shown:
    """Fake desktop that records notifications."""

    def __init__(self) -> None:
        self.said: list[tuple[float, str]] = []  # when, in days, and what
        self.open = False
        self.is_there = True

    async def show(self, title: str, text: str, buttons: Sequence[Button], without: str) -> bool:
        """Record a notification."""
        if not self.is_there:
            return False
        assert [each.label for each in buttons] == ["Log on"]
        self.said.append((trio.current_time() / DAY, f"{title}: {text} {without}"))
        self.open = True
        return True

    async def withdraw(self) -> None:
        """Record the withdrawal."""
        self.open = False


class Renewing:
    """Fake renewal with a given result."""

    def __init__(self, give: Callable[[Bearer], Bearer | None] | None = None) -> None:
        self.give, self.asked = give, list[float]()
        self.now: Callable[[], float] = lambda: 0.0

    def is_possible(self) -> bool:
        """Return True if a password is stored."""
        return self.give is not None

    def __call__(self, bearer: Bearer, *, ended: bool) -> Bearer | None:
        """Return the next bearer."""
        assert self.give is not None and not ended
        self.asked.append(self.now() / DAY)
        return self.give(bearer)

    def forget(self) -> None:
        """Record a logon of the user."""


class Watched:
    """Monitor of a bearer that is valid for `days`; the local clock may be wrong."""

    def __init__(self, paths: AccountPaths, kind: str, days: float, renewal: Renewing) -> None:
        store = Memory()
        end = int((BEGAN + days * DAY) * 1e9)
        save_bearer(store, Bearer("one", kind, end, began_ns=BEGAN * 10**9))  # type: ignore[arg-type]
        self.account = Account(name="work", base_url="https://zones.example", username="alice")
        self.account.save(paths)
        self.auth = BearerAuth(store)
        time, start = trio.lowlevel.current_clock().current_time, trio.current_time()
        renewal.now = lambda: time() - start
        self.auth.clock = Clock(lambda: int((BEGAN + time() - start) * 1e9))
        self.link, self.desktop, self.renewal = Connectivity(), Shown(), renewal
        self.probes: list[float] = []  # when, in days
        self.has_ended = False  # True if the service rejects the bearer
        parts = SimpleNamespace(
            auth=self.auth,
            renewal=renewal,
            account=self.account,
            paths=paths,
            service=SimpleNamespace(link=self.link, probe=self.probe),
            data_key=DataKey(paths, None),
        )
        actions = ClickActions(Desktop(), "work", lambda: paths.state)
        self.vigil = LogonMonitor(cast(Parts, parts), actions, cast(Notification, self.desktop))

    async def probe(self, state: State) -> None:
        """Ask the service once."""
        assert state == "online"
        self.probes.append((self.auth.clock.now_ns() / 1e9 - BEGAN) / DAY)
        if self.has_ended:
            self.link.note_failure(NotLoggedOn("it has ended"))
        else:
            self.link.note_answer()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run the monitor."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.vigil.watch_state)
            nursery.start_soon(self.vigil.watch_clock)
            yield
            nursery.cancel_scope.cancel()

    async def go_by(self, days: float) -> None:
        """Let time pass."""
        async with self.running():
            await trio.sleep(days * DAY)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> MockClock:
    """Use virtual time: days pass at once when no task is running.

    Work in threads is done at once, because the clock does not know that a thread is running,
    and on a busy machine days would pass meanwhile.
    """

    async def at_once(work: Callable[..., object], *given: object, **_: object) -> object:
        await trio.lowlevel.checkpoint()
        return work(*given)

    monkeypatch.setattr(trio.to_thread, "run_sync", at_once)
    return MockClock(autojump_threshold=0)


def after(seconds: float) -> Callable[[Bearer], Bearer]:
    """Return a function that creates bearers valid for that time."""
    count = [1]

    def give(former: Bearer) -> Bearer:
        count[0] += 1
        end = former.expires_ns + int(seconds * 1e9)
        return Bearer(f"number {count[0]}", former.kind, end, began_ns=former.expires_ns)

    return give


async def test_reminder_a_week_before_a_token_ends(
    clock: MockClock, paths: AccountPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reminder is shown once, with the expiry and the command."""
    monkeypatch.setattr("zonedrive.daemon.logon_monitor.LOOK_SECONDS", DAY / 2)
    watched = Watched(paths, "token", 20, Renewing())
    await watched.go_by(19)
    ((day, text),) = watched.desktop.said
    assert 16 <= day <= 16.6  # a fifth of its life is left
    assert COMMAND in text
    assert "2027-02-04" in text


@pytest.mark.parametrize(("kind", "days", "at"), [("session", 1 / 24, 0.8 / 24), ("token", 5, 4)])
async def test_renewal_when_a_fifth_of_the_life_is_left(
    clock: MockClock,
    paths: AccountPaths,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    days: float,
    at: float,
) -> None:
    """The new bearer is used from then on."""
    monkeypatch.setattr("zonedrive.daemon.logon_monitor.LOOK_SECONDS", days * DAY)
    watched = Watched(paths, kind, days, Renewing(after(days * DAY)))
    await watched.go_by(days * 1.1)
    assert watched.renewal.asked == pytest.approx([at], rel=0.05)
    found = watched.auth.usable()
    assert found is not None
    assert found.secret == "number 2"
    assert watched.desktop.said == []


async def test_a_wrong_local_clock_delays_no_renewal(clock: MockClock, paths: AccountPaths) -> None:
    """The expiry is compared with the time of the service."""
    watched = Watched(paths, "session", 1 / 24, Renewing(after(3600)))
    here = watched.auth.clock.now_ns
    watched.auth.clock = Clock(lambda: here() - int(DAY * 1e9))  # a day behind
    watched.auth.clock.heard("Fri, 15 Jan 2027 08:00:00 GMT")  # BEGAN
    await watched.go_by(1 / 24)
    assert watched.renewal.asked == pytest.approx([0.8 / 24], rel=0.25)


async def test_renewal_is_retried_while_the_service_is_unreachable(
    clock: MockClock, paths: AccountPaths
) -> None:
    """There is an attempt every minute until the bearer ends."""
    watched = Watched(paths, "session", 1 / 24, Renewing(lambda former: None))
    await watched.go_by(0.9 / 24)
    assert 4 <= len(watched.renewal.asked) <= 7
    assert watched.desktop.said == []


@pytest.mark.parametrize("life", [-60.0, 0.001])
async def test_a_logon_of_a_very_short_life_is_not_renewed_without_a_pause(
    clock: MockClock, paths: AccountPaths, life: float
) -> None:
    """The service may state a wrong life, and each renewal sends the password."""
    watched = Watched(paths, "session", 1 / 24, Renewing())

    def give(former: Bearer) -> Bearer:
        now, number = watched.auth.clock.now_ns(), len(watched.renewal.asked)
        assert number <= 7
        return Bearer(f"number {number}", "session", now + int(life * 1e9), began_ns=now)

    watched.renewal.give = give
    await watched.go_by(0.9 / 24)
    assert watched.renewal.asked


async def test_a_refused_renewal_is_notified_once(clock: MockClock, paths: AccountPaths) -> None:
    """The notification has the remaining time."""

    def refuse(former: Bearer) -> Bearer:
        raise CredentialsRefused("the password is wrong")

    watched = Watched(paths, "session", 1 / 24, Renewing(refuse))
    await watched.go_by(1 / 24)
    ((_, text),) = watched.desktop.said
    assert "The password is wrong." in text
    assert f"{COMMAND} --session-only" in text


@pytest.mark.parametrize(("kind", "days"), [("session", 1 / 24), ("token", 20)])
async def test_the_end_is_noticed_without_a_request_of_a_program(
    clock: MockClock, paths: AccountPaths, kind: str, days: float
) -> None:
    """One request shows that the logon has ended, and the user is notified."""
    watched = Watched(paths, kind, days, Renewing())
    watched.has_ended = True
    await watched.go_by(days + 0.1)
    (asked,) = watched.probes
    assert days <= asked <= days + 10 / DAY
    assert watched.link.state == "logon-required"
    assert watched.desktop.said[-1][1].startswith("Log on to zones.example again: ")


async def test_an_end_that_the_service_does_not_confirm(
    clock: MockClock, paths: AccountPaths
) -> None:
    """A session may be prolonged by use; the service is asked again every ten minutes."""
    watched = Watched(paths, "session", 1 / 24, Renewing())
    await watched.go_by(3.01 / 24)
    assert watched.link.state == "online"
    assert watched.desktop.said == []
    assert len(watched.probes) == 13


async def test_an_end_while_the_service_is_unreachable(
    clock: MockClock, paths: AccountPaths
) -> None:
    """The end is noticed soon after the service answers again."""
    watched = Watched(paths, "session", 1 / 24, Renewing())
    watched.has_ended = True
    watched.link.note_failure(Unreachable("no network"))
    await watched.go_by(2 / 24)
    assert watched.probes == []
    watched.link.note_answer()
    await watched.go_by(2 / 24)
    assert len(watched.probes) == 1
    assert watched.link.state == "logon-required"


async def test_an_ended_logon_is_notified_once(clock: MockClock, paths: AccountPaths) -> None:
    """A short interruption is not notified; a logon withdraws the notification."""
    watched = Watched(paths, "token", 90, Renewing())
    async with watched.running():
        refused = NotLoggedOn("the service does not accept the logon, or it has ended")
        await trio.sleep(1)
        watched.link.note_failure(refused)
        await trio.sleep(1)
        watched.link.note_answer()
        await trio.sleep(10)
        assert watched.desktop.said == []
        for _ in range(5):
            watched.link.note_failure(refused)
            await trio.sleep(30)
            assert watched.desktop.open or len(watched.desktop.said) == 1
            watched.link.note_answer()
            await trio.sleep(30)
            assert not watched.desktop.open
        ((_, text),) = watched.desktop.said
        assert text.startswith("Log on to zones.example again: Your logon has ended. ")
        assert COMMAND in text
        watched.vigil.logged_on()
        watched.link.note_failure(refused)
        await trio.sleep(30)
        assert len(watched.desktop.said) == 2


async def test_an_end_soon_after_a_short_interruption_is_notified(
    clock: MockClock, paths: AccountPaths
) -> None:
    """The first notification was withdrawn, so the user would not notice the lasting end."""
    watched = Watched(paths, "token", 90, Renewing())
    async with watched.running():
        await trio.sleep(1)
        for seconds in (30, DAY):
            watched.link.note_failure(NotLoggedOn("it has ended"))
            await trio.sleep(seconds)
            assert watched.desktop.open
            watched.link.note_answer()
            await trio.sleep(30)
        first, second = (day * DAY for day, _ in watched.desktop.said)
        assert 600 <= second - first < 660


async def test_notifications_wait_for_a_desktop(clock: MockClock, paths: AccountPaths) -> None:
    """A mount at login or at boot begins before there is a desktop to show anything."""
    watched = Watched(paths, "token", 1, Renewing())
    watched.desktop.is_there = False
    async with watched.running():
        await trio.sleep(0.9 * DAY)
        watched.desktop.is_there = True
        await trio.sleep(0.05 * DAY)
        ((_, text),) = watched.desktop.said
        assert text.startswith("Your logon to zones.example ends soon: ")
        watched.desktop.is_there = False
        watched.link.note_failure(NotLoggedOn("it has ended"))
        await trio.sleep(0.5 * DAY)
        watched.desktop.is_there = True
        await trio.sleep(0.5 * DAY)
        assert len(watched.desktop.said) == 2
        assert watched.desktop.said[1][1].startswith("Log on to zones.example again: ")
        watched.link.note_answer()
        await trio.sleep(10)
        assert not watched.desktop.open


@pytest.mark.parametrize("days", [100, 0])
async def test_a_reminder_stays_until_the_next_logon(
    clock: MockClock, paths: AccountPaths, monkeypatch: pytest.MonkeyPatch, days: int
) -> None:
    """A lost connection that comes back does not withdraw the reminder. A logon withdraws the
    reminder, also if the end of the new logon is not known (0 days)."""
    monkeypatch.setattr("zonedrive.daemon.logon_monitor.LOOK_SECONDS", DAY / 2)
    watched = Watched(paths, "token", 20, Renewing())
    async with watched.running():
        await trio.sleep(17 * DAY)
        assert watched.desktop.open
        watched.link.note_failure(Unreachable("the network is away"))
        await trio.sleep(60)
        watched.link.note_answer()
        await trio.sleep(DAY)
        assert watched.desktop.open
        end = int((BEGAN + days * DAY) * 1e9) if days else 0
        watched.auth.renewed(Bearer("two", "token", end, began_ns=watched.auth.clock.now_ns()))
        watched.vigil.look()
        await trio.sleep(60)
        assert not watched.desktop.open
        assert len(watched.desktop.said) == 1


async def test_a_reminder_that_another_notification_replaced_is_shown_again(
    clock: MockClock, paths: AccountPaths
) -> None:
    """The service rejects the logon for a minute, and the logon still ends soon."""
    watched = Watched(paths, "token", 20, Renewing())
    async with watched.running():
        await trio.sleep(17 * DAY)
        watched.link.note_failure(NotLoggedOn("it has ended"))
        await trio.sleep(60)
        watched.link.note_answer()
        await trio.sleep(DAY)
        assert watched.desktop.open
        titles = [text.partition(":")[0] for _, text in watched.desktop.said]
        reminder = "Your logon to zones.example ends soon"
        assert titles == [reminder, "Log on to zones.example again", reminder]
