"""Notifications about failed uploads and conflicts: each event once, events close together in
one."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest
import trio
from trio.testing import MockClock

from zonedrive.daemon.click_actions import ClickActions
from zonedrive.daemon.notification_client import Button, Desktop, Notification
from zonedrive.daemon.notifications import RESAY_SECONDS, Alerts
from zonedrive.paths import AccountPaths
from zonedrive.views.status_report import StatusReport


class Outbox:
    """Fake report with failures, conflicts and pending changes."""

    def __init__(self) -> None:
        self.changed = trio.Event()
        self.failing: dict[int, str] = {}
        self.beside: set[int] = set()
        self.replaced = 0  # conflict whose file has replaced the other version
        self.author = "Bob"  # of the other versions
        self.kept: set[int] = set()  # conflicts that were told, over restarts

    def failures(self) -> dict[int, str]:
        """Return the errors by inode."""
        return dict(self.failing)

    def waiting(self) -> set[int]:
        """Return all inodes."""
        return set(self.failing)

    def copies(self) -> set[int]:
        """Return the conflict copies."""
        return set(self.beside)

    def unacknowledged(self) -> set[int]:
        """Return the conflict copies that were not reported."""
        return self.beside - self.kept

    def tell(self, copies: set[int]) -> None:
        """Record a report."""
        self.kept |= copies

    def conflicts(self) -> list[dict[str, Any]]:
        """Return the conflicts; the original of an odd number was deleted by the other user."""
        by = self.author
        deleted = {ino: "" if ino != self.replaced else by for ino in self.beside if ino % 2}
        return [
            {
                "path": self.path(ino),
                "original": self.path(ino if ino in deleted else 1000),
                "by": deleted.get(ino, by),
            }
            for ino in self.beside
        ]

    def path(self, ino: int) -> str:
        """Return the path of an inode."""
        return f"Zone/{ino}.txt"

    def become(self, failing: int = 0, beside: int = 0, first: int = 0) -> None:
        """Set other events."""
        self.failing = dict.fromkeys(range(first, first + failing), "refused; ask the manager")
        self.beside |= set(range(beside))
        self.changed.set()
        self.changed = trio.Event()


class Shown:
    """Fake desktop that records notifications, or is not there."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.labels: list[str] = []  # of the last one
        self.open = False
        self.there = True

    async def show(self, title: str, text: str, buttons: Sequence[Button], without: str) -> bool:
        """Accept a notification if the desktop is there."""
        if self.there:
            self.said.append(f"{title} | {text} {without}")
            self.labels = [each.label for each in buttons]
            self.open = True
        return self.there

    async def withdraw(self) -> None:
        """Record the withdrawal."""
        self.open = False


class Told:
    """Notifications of one mount."""

    def __init__(self, account: str = "default", beside: int = 0) -> None:
        self.outbox, self.failures, self.conflicts = Outbox(), Shown(), Shown()
        self.outbox.beside, self.outbox.kept = set(range(beside)), set(range(beside))
        self.account = account
        self.start()

    def start(self) -> None:
        """Start the alerts as a new daemon does."""
        self.tidings = Alerts(
            cast(StatusReport, self.outbox),
            AccountPaths(self.account),
            ClickActions(Desktop(), self.account, lambda: Path("/mnt")),
            cast(Notification, self.failures),
            cast(Notification, self.conflicts),
        )

    async def go_by(self, seconds: float, *events: tuple[float, int, int, int]) -> None:
        """Let time pass; each event is a time and the state from then on."""
        with trio.move_on_after(seconds):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.tidings.run)
                for after, failing, beside, first in events:
                    nursery.start_soon(self._become, after, failing, beside, first)

    async def _become(self, after: float, failing: int, beside: int, first: int) -> None:
        await trio.sleep(after)
        self.outbox.become(failing, beside, first)


async def test_one_failed_file_is_named_with_its_reason(autojump_clock: MockClock) -> None:
    """The text has the command that shows more."""
    told = Told("work")
    await told.go_by(60, (1, 1, 0, 7))
    assert told.failures.said == [
        "7.txt could not be uploaded | Zone/7.txt: refused; ask the manager. Your changes are safe"
        " on this computer. To see more, run: zonedrive status --account work"
    ]
    assert told.failures.labels == ["Open window", "Open folder"]


async def test_names_with_braces_are_shown(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file name is never taken for a template."""
    monkeypatch.setattr(Outbox, "path", lambda self, ino: "Zone/{count}{other}.txt")
    told = Told()
    await told.go_by(60, (1, 1, 1, 7))
    assert told.failures.said[0].startswith("{count}{other}.txt could not be uploaded | ")
    assert told.conflicts.said[0].startswith("{count}{other}.txt has replaced the version of")


async def test_a_text_of_the_service_is_no_remedy(autojump_clock: MockClock) -> None:
    """A command in the reason of a refusal does not become an advice."""
    told = Told()
    said = "HTTP 403: no; to fix it, run 'zonedrive logoff --discard'"
    told.outbox.failing = {1: said}
    await told.go_by(60)
    assert told.failures.said == [
        f"1.txt could not be uploaded | Zone/1.txt: {said}. Your changes are safe on this computer."
        " To see more, run: zonedrive status"
    ]


async def test_a_rolled_back_change_is_not_called_an_upload(autojump_clock: MockClock) -> None:
    """A refused removal has a title of its own."""
    told = Told()
    await told.go_by(60, (1, 1, 0, -7))
    (said,) = told.failures.said
    assert said.startswith("1 change was refused | Zone/-7.txt: refused")


async def test_many_failures_are_one_notification(autojump_clock: MockClock) -> None:
    """The notification has the number of failures, and no failure is notified twice."""
    told = Told()
    await told.go_by(10_000, *((1 + one / 10, one, 0, 0) for one in range(1, 101)))
    (said,) = told.failures.said
    assert said.startswith("100 files could not be uploaded | Zone/0.txt: refused")
    assert told.failures.open


async def test_failures_are_notified_once(autojump_clock: MockClock) -> None:
    """A retry does not notify again; the notification is withdrawn when no failure is left."""
    told = Told()
    await told.go_by(10_000, (1, 3, 0, 0), (500, 3, 0, 0), (2000, 2, 0, 0), (3000, 0, 0, 0))
    assert len(told.failures.said) == 1
    assert not told.failures.open
    await told.go_by(60, (1, 3, 0, 0))  # another day
    assert len(told.failures.said) == 2


async def test_notifications_are_some_minutes_apart(autojump_clock: MockClock) -> None:
    """Failures in between are part of the next one."""
    told = Told()
    await told.go_by(RESAY_SECONDS - 10, (1, 1, 0, 0), (30, 2, 0, 0))
    assert len(told.failures.said) == 1
    told = Told()
    await told.go_by(RESAY_SECONDS + 10, (1, 1, 0, 0), (30, 2, 0, 0), (60, 3, 0, 0))
    assert len(told.failures.said) == 2
    assert "3 files" in told.failures.said[1]


async def test_conflicts_are_notified_once(autojump_clock: MockClock) -> None:
    """A restart does not notify them again."""
    told = Told(beside=2)
    await told.go_by(60, (1, 0, 3, 0))
    ((said),) = told.conflicts.said
    assert said == (
        "1000.txt was also changed by Bob | Your version was saved next to it as 2.txt, in Zone."
        " To see more, run: zonedrive conflicts"
    )
    assert told.conflicts.labels == ["Show both versions", "Open folder"]
    await told.go_by(10_000, (1, 0, 3, 0), (50, 0, 9, 0))
    assert len(told.conflicts.said) == 2
    assert told.conflicts.said[1].startswith("6 files were also changed by other users | ")


async def test_the_notification_is_withdrawn_when_no_conflict_is_left(
    autojump_clock: MockClock,
) -> None:
    """The user has removed or renamed the copies."""
    told = Told()
    await told.go_by(60, (0, 0, 2, 0))
    assert told.conflicts.open
    told.outbox.beside.clear()
    await told.go_by(60, (0, 0, 0, 0))
    assert not told.conflicts.open


@pytest.mark.parametrize(
    ("replaced", "said"),
    [
        (0, "1.txt was deleted while you edited it | Your version was uploaded as a new file, in"
            " Zone."),
        (1, "1.txt has replaced the version of Bob | The service took both names for one. The other"
            " is in the history."),
    ],
)  # fmt: skip
async def test_the_notification_about_a_conflict_without_a_copy(
    autojump_clock: MockClock, replaced: int, said: str
) -> None:
    """The notification says where the other version is, if there is one."""
    told = Told(beside=1)
    told.outbox.replaced = replaced
    await told.go_by(60, (1, 0, 2, 0))
    assert told.conflicts.said == [f"{said} To see more, run: zonedrive conflicts"]
    assert told.conflicts.labels == ["Open window", "Open folder"]


@pytest.mark.parametrize("replaced", [0, 1])
async def test_a_long_user_name_is_shortened(autojump_clock: MockClock, replaced: int) -> None:
    """A desktop could take minutes to lay out a hostile name."""
    told = Told(beside=replaced)
    told.outbox.replaced, told.outbox.author = replaced, "x" * 1_000_000
    await told.go_by(60, (1, 0, 1 + replaced, 0))
    (said,) = told.conflicts.said
    assert len(said) < 500


async def test_an_unreported_conflict_is_notified_after_a_restart(
    autojump_clock: MockClock,
) -> None:
    """A conflict is unreported if the daemon ended first, or no desktop was running."""
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


async def test_events_without_a_desktop_are_notified_later(autojump_clock: MockClock) -> None:
    """A mount may exist before the user logs in."""
    told = Told()
    told.failures.there = False
    await told.go_by(60, (1, 1, 0, 0))
    assert told.failures.said == []
    told.failures.there = True
    await told.go_by(60)
    assert len(told.failures.said) == 1
