"""Desktop notifications about failed uploads and conflicts.

Knows nothing about how a notification is shown.

INVARIANT: each event is reported once. Events close together are reported together; the next
notification of the same kind follows after RESAY_SECONDS at the earliest, with all events up to
then.
A conflict is never reported again, even after a restart. A conflict that occurs just before the end
of a daemon, or while no desktop runs, is reported by a later daemon. A failed upload is retried by
the next daemon, which reports a new failure once. An event that no desktop accepted counts as
unreported.
"""

import logging
from collections.abc import Callable

import trio

from zonedrive.daemon.notifications import NORMAL, Desktop
from zonedrive.errors import StoreError
from zonedrive.paths import DEFAULT_ACCOUNT
from zonedrive.views.status_report import StatusReport

log = logging.getLogger(__name__)

CALM_SECONDS = 3.0
"""Wait in seconds after a change before its result is read."""

GATHER_SECONDS = 30.0
"""Maximum time in seconds to collect further events."""

RESAY_SECONDS = 300.0
AGAIN_SECONDS = 600.0
"""Wait in seconds before another attempt if no desktop shows notifications."""

NAME = 120
"""Maximum length of a path in a notification, in characters."""


class AlertKind:
    """One kind of event, with one notification that is replaced."""

    def __init__(self, desktop: Desktop) -> None:
        self._desktop = desktop
        self.told: set[int] = set()
        self._earliest = float("-inf")

    async def tell(self, every: set[int], words: Callable[[], tuple[str, str]]) -> float:
        """Report these inodes if one is new; return the seconds until the next useful attempt."""
        fresh = every - self.told
        if not every:
            await self._desktop.withdraw()
        if not fresh:
            return float("inf")
        now = trio.current_time()
        if now < self._earliest:
            return self._earliest - now
        if not await self._desktop.show(*words()):
            return AGAIN_SECONDS
        self.told |= every
        self._earliest = now + RESAY_SECONDS
        return float("inf")


class Alerts:
    """Event notifications of one mount."""

    def __init__(
        self,
        report: StatusReport,
        account: str,
        failures: Desktop | None = None,
        conflicts: Desktop | None = None,
    ) -> None:
        self._report = report
        self._suffix = "" if account == DEFAULT_ACCOUNT else f" --account {account}"
        self._failures = AlertKind(failures or Desktop("dialog-warning", NORMAL))
        self._conflicts = AlertKind(conflicts or Desktop("dialog-information", NORMAL))

    async def run(self) -> None:
        """Send notifications until cancelled; do nothing while nothing changes."""
        while True:
            changed = self._report.changed
            again = min(await self._tell_failures(), await self._tell_conflicts())
            with trio.move_on_after(again):
                await changed.wait()
            await self._gather()

    async def _gather(self) -> None:
        """Wait until no further events arrive, or GATHER_SECONDS have passed."""
        before = -1
        with trio.move_on_after(GATHER_SECONDS):
            while (now := len(self._report.failures()) + len(self._report.copies())) != before:
                before = now
                await trio.sleep(CALM_SECONDS)

    async def _tell_failures(self) -> float:
        failures = self._report.failures()
        self._failures.told &= self._report.waiting()  # an uploaded file may fail again
        return await self._failures.tell(set(failures), lambda: self._failed(failures))

    def _failed(self, failures: dict[int, str]) -> tuple[str, str]:
        first = min(failures.keys() - self._failures.told)
        said = f"{_short(self._report.path(first))}: {failures[first]}."
        many = len(failures) > 1
        taken_back = [number for number in failures if number < 0]
        if taken_back:
            changes = f"{len(failures)} changes were" if many else "a change was"
            what = "refused" if len(taken_back) == len(failures) else "not made"
            title = f"zonedrive: {changes} {what}"
        elif not many:
            title = "zonedrive: a file could not be uploaded"
        else:
            title = f"zonedrive: {len(failures)} files could not be uploaded"
            said = f"{said} All of them are kept on this machine."
        return title, f"{said} To see more, run: zonedrive status{self._suffix}"

    async def _tell_conflicts(self) -> float:
        copies, topic = self._report.copies(), self._conflicts
        topic.told |= copies - self._report.unacknowledged()
        if copies <= topic.told:
            return float("inf")
        again = await topic.tell(copies, lambda: self._conflicting(copies))
        try:
            if heard := self._report.unacknowledged() & topic.told:
                self._report.tell(heard)
        except (OSError, StoreError) as wrong:  # in memory it counts as reported
            log.warning("that conflicts were told cannot be kept: %s", wrong)
        return again

    def _conflicting(self, copies: set[int]) -> tuple[str, str]:
        fresh = copies - self._conflicts.told
        run = f"To see them, run: zonedrive conflicts{self._suffix}"
        if len(fresh) > 1:
            title = f"zonedrive: {len(fresh)} conflicts"
            return title, f"Others changed these files while you did. Yours are kept, too. {run}"
        path = _short(self._report.path(min(fresh)))
        said = (
            f"Somebody else changed or deleted the file while you edited it. Yours is kept: {path}."
        )
        return "zonedrive: a conflict", f"{said} {run}"


def _short(path: str) -> str:
    return path if len(path) <= NAME else f"…{path[1 - NAME :]}"
