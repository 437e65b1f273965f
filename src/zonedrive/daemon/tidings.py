"""Tells the person at the desktop of uploads that failed and of conflicts.

Must not know how a desktop shows something.

INVARIANT: each is told once.  What comes together is told together, and a further notification of
the same kind comes RESAY_SECONDS later at the earliest, with all there is by then.
A conflict is never told again, over restarts too: what came just before the end of a daemon, or
while nobody was there to hear, is told by a later one.  What failed is tried again by the next
daemon; if it fails again, that one tells it once as well.  What no desktop took counts
as not told.
"""

import logging
from collections.abc import Callable

import trio

from zonedrive.daemon.desktop import NORMAL, Desktop
from zonedrive.errors import StoreError
from zonedrive.paths import DEFAULT_ACCOUNT
from zonedrive.vfs.report import Report

log = logging.getLogger(__name__)

CALM_SECONDS = 3.0
"""After a change, before looking what came of it."""

GATHER_SECONDS = 30.0
"""For so long at most it is waited for more of the same."""

RESAY_SECONDS = 300.0
AGAIN_SECONDS = 600.0
"""Until another try, where nobody shows notifications: perhaps nobody has logged in yet."""

NAME = 120
"""Characters of a path in a notification."""


class Topic:
    """One kind of news, with one notification that is replaced."""

    def __init__(self, desktop: Desktop) -> None:
        self._desktop = desktop
        self.told: set[int] = set()
        self._earliest = float("-inf")

    async def tell(self, every: set[int], words: Callable[[], tuple[str, str]]) -> float:
        """Tell of these inodes, if one is new among them; seconds until it is worth another try."""
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


class Tidings:
    """One mount's."""

    def __init__(
        self,
        report: Report,
        account: str,
        failures: Desktop | None = None,
        conflicts: Desktop | None = None,
    ) -> None:
        self._report = report
        self._suffix = "" if account == DEFAULT_ACCOUNT else f" --account {account}"
        self._failures = Topic(failures or Desktop("dialog-warning", NORMAL))
        self._conflicts = Topic(conflicts or Desktop("dialog-information", NORMAL))

    async def run(self) -> None:
        """Until cancelled; nothing is looked at while nothing happens."""
        while True:
            changed = self._report.changed
            again = min(await self._tell_failures(), await self._tell_conflicts())
            with trio.move_on_after(again):
                await changed.wait()
            await self._gather()

    async def _gather(self) -> None:
        """Until nothing more comes, or it has been coming for long enough."""
        before = -1
        with trio.move_on_after(GATHER_SECONDS):
            while (now := len(self._report.failures()) + len(self._report.copies())) != before:
                before = now
                await trio.sleep(CALM_SECONDS)

    async def _tell_failures(self) -> float:
        failures = self._report.failures()
        self._failures.told &= self._report.waiting()  # what has arrived may fail another day
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
        topic.told |= copies - self._report.untold()
        if copies <= topic.told:
            return float("inf")
        again = await topic.tell(copies, lambda: self._conflicting(copies))
        try:
            if heard := self._report.untold() & topic.told:
                self._report.tell(heard)
        except (OSError, StoreError) as wrong:  # this daemon knows it all the same
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
