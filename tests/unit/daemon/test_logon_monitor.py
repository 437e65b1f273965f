"""A mount's logon over weeks: renewed in time, or a person told in time, and told once."""

import gc
import socket
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
import trio
import trio.testing

from tests.harness.bus import Bus, Screen
from tests.unit.logon.test_bearer_auth import Memory
from zonedrive.daemon.compose import Parts
from zonedrive.daemon.logon_monitor import LogonMonitor
from zonedrive.daemon.notifications import Desktop
from zonedrive.errors import CredentialsRefused, NotLoggedOn
from zonedrive.logon.account import Account
from zonedrive.logon.bearer_auth import Bearer, BearerAuth, save_bearer
from zonedrive.logon.server_clock import Clock
from zonedrive.paths import AccountPaths
from zonedrive.remote.connectivity import Connectivity

DAY = 86_400.0
BEGAN = 1_800_000_000
COMMAND = "zonedrive logon https://zones.example --username alice --account work"


class Shown:
    """A desktop that remembers."""

    def __init__(self) -> None:
        self.said: list[tuple[float, str]] = []  # when, in days, and what
        self.open = False

    async def show(self, title: str, text: str) -> bool:
        """Taken."""
        self.said.append((trio.current_time() / DAY, f"{title}: {text}"))
        self.open = True
        return True

    async def withdraw(self) -> None:
        """Not true any more."""
        self.open = False


class Renewing:
    """A renewal that gives what it is told to."""

    def __init__(self, give: Callable[[Bearer], Bearer | None] | None = None) -> None:
        self.give, self.asked = give, list[float]()
        self.now: Callable[[], float] = lambda: 0.0

    def is_possible(self) -> bool:
        """Whether a password is kept."""
        return self.give is not None

    def ahead(self, bearer: Bearer) -> Bearer | None:
        """The next one."""
        assert self.give is not None
        self.asked.append(self.now() / DAY)
        return self.give(bearer)

    def forget(self) -> None:
        """A person has logged on."""


class Watched:
    """A vigil over a bearer of `days`, as days go by; the clock here may be wrong."""

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
        parts = SimpleNamespace(
            auth=self.auth,
            renewal=renewal,
            account=self.account,
            paths=paths,
            service=SimpleNamespace(link=self.link),
        )
        self.vigil = LogonMonitor(cast(Parts, parts), cast(Desktop, self.desktop))

    async def go_by(self, days: float) -> None:
        """Let time pass."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.vigil.watch_state)
            nursery.start_soon(self.vigil.watch_clock)
            await trio.sleep(days * DAY)
            nursery.cancel_scope.cancel()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> trio.testing.MockClock:
    """Days pass in no time, once nothing is left to do.

    What goes into a thread is done at once: the clock cannot see that a thread is at work, and on
    a busy machine days would go by meanwhile.
    """

    async def at_once(work: Callable[..., object], *given: object, **_: object) -> object:
        await trio.lowlevel.checkpoint()
        return work(*given)

    monkeypatch.setattr(trio.to_thread, "run_sync", at_once)
    return trio.testing.MockClock(autojump_threshold=0)


@pytest.fixture
def paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AccountPaths:
    """An account."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return AccountPaths("work")


def after(seconds: float) -> Callable[[Bearer], Bearer]:
    """Makes bearers of that life."""
    count = [1]

    def give(former: Bearer) -> Bearer:
        count[0] += 1
        end = former.expires_ns + int(seconds * 1e9)
        return Bearer(f"number {count[0]}", former.kind, end, began_ns=former.expires_ns)

    return give


async def test_a_token_that_only_a_person_can_renew_is_told_of_a_week_before(
    clock: trio.testing.MockClock, paths: AccountPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once, with its end and the command."""
    monkeypatch.setattr("zonedrive.daemon.logon_monitor.LOOK_SECONDS", DAY / 2)
    watched = Watched(paths, "token", 20, Renewing())
    await watched.go_by(19)
    ((day, text),) = watched.desktop.said
    assert 16 <= day <= 16.6  # a fifth of its life is left
    assert COMMAND in text
    assert "2027-02-04" in text


async def test_a_session_that_ends_is_not_announced(
    clock: trio.testing.MockClock, paths: AccountPaths
) -> None:
    """It is too short for that; its end is."""
    watched = Watched(paths, "session", 0.05, Renewing())
    await watched.go_by(0.05)
    assert watched.desktop.said == []


@pytest.mark.parametrize(("kind", "days", "at"), [("session", 1 / 24, 0.8 / 24), ("token", 5, 4)])
async def test_what_can_be_renewed_is_renewed_while_a_fifth_is_left(
    clock: trio.testing.MockClock,
    paths: AccountPaths,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    days: float,
    at: float,
) -> None:
    """And used from then on."""
    monkeypatch.setattr("zonedrive.daemon.logon_monitor.LOOK_SECONDS", days * DAY)
    watched = Watched(paths, kind, days, Renewing(after(days * DAY)))
    await watched.go_by(days * 1.1)
    assert watched.renewal.asked == pytest.approx([at], rel=0.05)
    found = watched.auth.usable()
    assert found is not None
    assert found.secret == "number 2"
    assert watched.desktop.said == []


async def test_a_clock_here_that_is_wrong_by_a_day_renews_nothing_too_late(
    clock: trio.testing.MockClock, paths: AccountPaths
) -> None:
    """The service's time counts."""
    watched = Watched(paths, "session", 1 / 24, Renewing(after(3600)))
    here = watched.auth.clock.now_ns
    watched.auth.clock = Clock(lambda: here() - int(DAY * 1e9))  # a day behind
    watched.auth.clock.heard("Fri, 15 Jan 2027 08:00:00 GMT")  # BEGAN
    await watched.go_by(1 / 24)
    assert watched.renewal.asked == pytest.approx([0.8 / 24], rel=0.25)


async def test_a_service_that_is_away_is_asked_again(
    clock: trio.testing.MockClock, paths: AccountPaths
) -> None:
    """Every minute, until the end."""
    watched = Watched(paths, "session", 1 / 24, Renewing(lambda former: None))
    await watched.go_by(0.9 / 24)
    assert 4 <= len(watched.renewal.asked) <= 7
    assert watched.desktop.said == []


async def test_a_refusal_ahead_is_told_with_the_time_that_is_left(
    clock: trio.testing.MockClock, paths: AccountPaths
) -> None:
    """Once."""

    def refuse(former: Bearer) -> Bearer:
        raise CredentialsRefused("the password is wrong")

    watched = Watched(paths, "session", 1 / 24, Renewing(refuse))
    await watched.go_by(1 / 24)
    ((_, text),) = watched.desktop.said
    assert "The password is wrong." in text
    assert f"{COMMAND} --session-only" in text


async def test_an_ended_logon_is_told_once(
    clock: trio.testing.MockClock, paths: AccountPaths
) -> None:
    """A moment's refusal is not, nor one that comes and goes; a logon takes it away."""
    watched = Watched(paths, "token", 90, Renewing())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(watched.vigil.watch_state)
        refused = NotLoggedOn("the service does not accept the logon")
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
        assert "The service does not accept the logon." in text
        assert COMMAND in text
        watched.vigil.logged_on()
        watched.link.note_failure(refused)
        await trio.sleep(30)
        assert len(watched.desktop.said) == 2
        nursery.cancel_scope.cancel()


async def test_what_is_shown_is_plain_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It replaces what was shown before, and can be taken away."""
    monkeypatch.setattr("zonedrive.daemon.notifications.SECONDS", 60.0)
    bus = Bus(tmp_path)
    screen = Screen(bus)
    try:
        monkeypatch.setenv("DBUS_SESSION_BUS_ADDRESS", bus.address)
        desktop = Desktop()
        assert await desktop.show("one", "<b>&")
        assert await desktop.show("two", "…")
        assert screen.shown == [("one", "&lt;b&gt;&amp;"), ("two", "…")]
        assert screen.open == {1}
        await desktop.withdraw()
        await desktop.withdraw()
        assert screen.open == set()
    finally:
        screen.close()
        nobody = await desktop.show("three", "a bus where nobody shows anything")
        bus.close()
    assert not nobody
    assert not await desktop.show("four", "a bus that has gone")


@pytest.mark.parametrize("address", [None, "", "nonsense", "tcp:host=127.0.0.1", "unix:path=/no"])
async def test_without_a_desktop_all_is_quiet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str | None
) -> None:
    """A server, a container, a wrong address."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.delenv("DBUS_SESSION_BUS_ADDRESS", raising=False)
    if address is not None:
        monkeypatch.setenv("DBUS_SESSION_BUS_ADDRESS", address)
    desktop = Desktop()
    assert not await desktop.show("one", "two")
    await desktop.withdraw()


# The library leaves its socket to the garbage collector when it is cancelled while connecting.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_a_desktop_that_hangs_holds_nothing_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is given a few seconds."""
    monkeypatch.setattr("zonedrive.daemon.notifications.SECONDS", 0.1)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "bus"))
        listening.listen()
        monkeypatch.setenv("DBUS_SESSION_BUS_ADDRESS", f"unix:path={tmp_path}/bus")
        assert not await Desktop().show("one", "two")
    gc.collect()  # here, where that socket is no failure
