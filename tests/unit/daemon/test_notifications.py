"""A person hears of failed uploads and conflicts once, and together."""

from collections.abc import Iterator
from typing import cast

import pytest
import trio
import trio.testing

from zonedrive.daemon.notifications import RESAY_SECONDS, Alerts, Desktop
from zonedrive.views.status_report import StatusReport


class Outbox:
    """What was refused, what conflicts, what waits."""

    def __init__(self) -> None:
        self.changed = trio.Event()
        self.failing: dict[int, str] = {}
        self.beside: set[int] = set()
        self.kept: set[int] = set()  # conflicts that were told, over restarts

    def failures(self) -> dict[int, str]:
        """By inode."""
        return dict(self.failing)

    def waiting(self) -> set[int]:
        """All of them wait."""
        return set(self.failing)

    def copies(self) -> set[int]:
        """Conflicts."""
        return set(self.beside)

    def unacknowledged(self) -> set[int]:
        """Those that nobody heard of."""
        return self.beside - self.kept

    def tell(self, copies: set[int]) -> None:
        """Somebody has."""
        self.kept |= copies

    def path(self, ino: int) -> str:
        """Of an inode."""
        return f"Zone/{ino}.txt"

    def become(self, failing: int = 0, beside: int = 0, first: int = 0) -> None:
        """Other ones."""
        self.failing = dict.fromkeys(range(first, first + failing), "refused; ask the manager")
        self.beside |= set(range(beside))
        self.changed.set()
        self.changed = trio.Event()


class Shown:
    """A desktop that remembers; or none."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.open = False
        self.there = True

    async def show(self, title: str, text: str) -> bool:
        """Taken, where there is a desktop."""
        if self.there:
            self.said.append(f"{title} | {text}")
            self.open = True
        return self.there

    async def withdraw(self) -> None:
        """Not true any more."""
        self.open = False


class Told:
    """One mount's tidings."""

    def __init__(self, account: str = "default", beside: int = 0) -> None:
        self.outbox, self.failures, self.conflicts = Outbox(), Shown(), Shown()
        self.outbox.beside, self.outbox.kept = set(range(beside)), set(range(beside))
        self.account = account
        self.start()

    def start(self) -> None:
        """As a daemon that begins does."""
        self.tidings = Alerts(
            cast(StatusReport, self.outbox),
            self.account,
            cast(Desktop, self.failures),
            cast(Desktop, self.conflicts),
        )

    async def go_by(self, seconds: float, *events: tuple[float, int, int, int]) -> None:
        """Let time pass; each event is a time, and what there is from then on."""
        with trio.move_on_after(seconds):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.tidings.run)
                for after, failing, beside, first in events:
                    nursery.start_soon(self._become, after, failing, beside, first)

    async def _become(self, after: float, failing: int, beside: int, first: int) -> None:
        await trio.sleep(after)
        self.outbox.become(failing, beside, first)


@pytest.fixture(autouse=True)
def clock() -> Iterator[trio.testing.MockClock]:
    """Time passes at once where nothing is left to do."""
    yield trio.testing.MockClock(autojump_threshold=0)


async def test_one_failed_file_is_named_with_its_reason(clock: trio.testing.MockClock) -> None:
    """And with the command that says more."""
    told = Told("work")
    await told.go_by(60, (1, 1, 0, 7))
    assert told.failures.said == [
        "zonedrive: a file could not be uploaded | Zone/7.txt: refused; ask the manager."
        " To see more, run: zonedrive status --account work"
    ]


async def test_a_change_that_was_taken_back_is_no_upload(clock: trio.testing.MockClock) -> None:
    """A removal that the service refused is said as what it is."""
    told = Told()
    await told.go_by(60, (1, 1, 0, -7))
    (said,) = told.failures.said
    assert said.startswith("zonedrive: a change was refused | Zone/-7.txt: refused")


async def test_a_hundred_that_fail_one_after_the_other_are_one_notification(
    clock: trio.testing.MockClock,
) -> None:
    """With their number; none is told twice."""
    told = Told()
    await told.go_by(10_000, *((1 + one / 10, one, 0, 0) for one in range(1, 101)))
    (said,) = told.failures.said
    assert said.startswith("zonedrive: 100 files could not be uploaded | Zone/0.txt: refused")
    assert told.failures.open


async def test_the_same_failures_are_not_told_again(clock: trio.testing.MockClock) -> None:
    """However often they are tried; the notification goes when they are gone."""
    told = Told()
    await told.go_by(10_000, (1, 3, 0, 0), (500, 3, 0, 0), (2000, 2, 0, 0), (3000, 0, 0, 0))
    assert len(told.failures.said) == 1
    assert not told.failures.open
    await told.go_by(60, (1, 3, 0, 0))  # another day
    assert len(told.failures.said) == 2


async def test_notifications_are_some_minutes_apart(clock: trio.testing.MockClock) -> None:
    """What fails in between is told with the next one."""
    told = Told()
    await told.go_by(RESAY_SECONDS - 10, (1, 1, 0, 0), (30, 2, 0, 0))
    assert len(told.failures.said) == 1
    told = Told()
    await told.go_by(RESAY_SECONDS + 10, (1, 1, 0, 0), (30, 2, 0, 0), (60, 3, 0, 0))
    assert len(told.failures.said) == 2
    assert "3 files" in told.failures.said[1]


async def test_conflicts_are_told_once_and_those_of_before_never(
    clock: trio.testing.MockClock,
) -> None:
    """A restart does not tell them again."""
    told = Told(beside=2)
    await told.go_by(60, (1, 0, 3, 0))
    ((said),) = told.conflicts.said
    assert "kept: Zone/2.txt." in said
    assert said.endswith("run: zonedrive conflicts")
    await told.go_by(10_000, (1, 0, 3, 0), (50, 0, 9, 0))
    assert len(told.conflicts.said) == 2
    assert "6 conflicts" in told.conflicts.said[1]


async def test_a_conflict_that_nobody_heard_of_is_told_after_the_next_start(
    clock: trio.testing.MockClock,
) -> None:
    """Its daemon ended first, or no desktop was there; told once, whatever starts again."""
    told = Told()
    told.conflicts.there = False
    await told.go_by(1.5, (1, 0, 1, 0))  # ends before it is calm
    told.start()
    await told.go_by(60)
    assert told.conflicts.said == []
    told.conflicts.there = True
    for _ in range(3):
        told.start()
        await told.go_by(60)
    assert len(told.conflicts.said) == 1


async def test_what_nobody_saw_is_told_when_a_desktop_is_there(
    clock: trio.testing.MockClock,
) -> None:
    """A mount may be there before a person logs in."""
    told = Told()
    told.failures.there = False
    await told.go_by(60, (1, 1, 0, 0))
    assert told.failures.said == []
    told.failures.there = True
    await told.go_by(60)
    assert len(told.failures.said) == 1
