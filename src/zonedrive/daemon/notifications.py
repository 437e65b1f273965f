"""Desktop notifications about failed uploads and conflicts.

Commands show the same information, so that a user does not depend on a desktop.

INVARIANT: each event is reported once. Events within a short time are reported together. The next
notification of the same kind follows at least RESAY_SECONDS later, and covers all events until
then.

A conflict is never reported again, even after a restart. A conflict that occurs just before the end
of a daemon, or while no desktop runs, is reported by a later daemon. The next daemon retries a
failed upload and reports a new failure once. An event counts as unreported until a desktop has
accepted its notification.
"""

import logging
from collections.abc import Callable
from pathlib import PurePosixPath
from typing import NamedTuple

import trio

from zonedrive.daemon.click_actions import ClickActions
from zonedrive.daemon.notification_client import Button, Notification
from zonedrive.errors import StoreError
from zonedrive.paths import AccountPaths
from zonedrive.remedies import message_in_window
from zonedrive.translation import translated, translated_count
from zonedrive.views.status_report import StatusReport

log = logging.getLogger(__name__)

CALM_SECONDS = 3.0  # wait after a change before its result is read
GATHER_SECONDS = 30.0  # maximum time to collect further events
RESAY_SECONDS = 300.0
AGAIN_SECONDS = 600.0  # wait before another attempt if no desktop shows notifications
NAME = 120  # maximum length of a path or a user's name in a notification, in characters


class Words(NamedTuple):
    """Content of a notification."""

    title: str
    text: str
    buttons: tuple[Button, ...]
    without: str  # added to the text if the desktop shows no buttons


class AlertKind:
    """Kind of event; all events of a kind share one desktop notification."""

    def __init__(self, notification: Notification) -> None:
        self._notification = notification
        self.told: set[int] = set()
        self._earliest = float("-inf")

    async def tell(self, every: set[int], words: Callable[[], Words]) -> float:
        """Show a notification about the events `every` if they include an unreported event.

        An event is an inode number, or a negative number for a rolled-back change. `words` returns
        the content of the notification. If `every` is empty, withdraw the notification. Return the
        seconds until this method must be called again, or infinity if only a new event needs
        another call.
        """
        fresh = every - self.told
        if not every:
            await self._notification.withdraw()
        if not fresh:
            return float("inf")
        now = trio.current_time()
        if now < self._earliest:
            return self._earliest - now
        if not await self._notification.show(*words()):
            return AGAIN_SECONDS
        self.told |= every
        self._earliest = now + RESAY_SECONDS
        return float("inf")


class Alerts:
    """Notifications of one mount about failed uploads and conflicts."""

    def __init__(
        self,
        report: StatusReport,
        paths: AccountPaths,
        actions: ClickActions,
        failures: Notification,
        conflicts: Notification,
    ) -> None:
        self._report, self._actions = report, actions
        self._option = paths.option
        self._failures = AlertKind(failures)
        self._conflicts = AlertKind(conflicts)

    async def run(self) -> None:
        """Report new events until cancelled."""
        while True:
            changed = self._report.changed
            again = min(await self._tell_failures(), await self._tell_conflicts())
            with trio.move_on_after(again):
                await changed.wait()
            await self._gather()

    async def _gather(self) -> None:
        """Wait until no event has arrived for CALM_SECONDS, but at most GATHER_SECONDS."""
        before = -1
        with trio.move_on_after(GATHER_SECONDS):
            while (now := len(self._report.failures()) + len(self._report.copies())) != before:
                before = now
                await trio.sleep(CALM_SECONDS)

    async def _tell_failures(self) -> float:
        failures = self._report.failures()
        self._failures.told &= self._report.waiting()  # an uploaded file may fail again
        return await self._failures.tell(set(failures), lambda: self._failed(failures))

    def _failed(self, failures: dict[int, str]) -> Words:
        """Return the content of the notification about `failures`.

        The keys are inode numbers, or negative numbers of rolled-back changes; the values are error
        texts.
        """
        first = min(failures.keys() - self._failures.told)
        path, many = self._report.path(first), len(failures)
        reason = message_in_window(failures[first]).removesuffix(".")
        text = f"{_short(path)}: {reason}."
        rolled_back = sum(number < 0 for number in failures)
        if rolled_back == many:
            title = translated_count(
                "{count} change was refused", "{count} changes were refused", many
            ).format(count=many)
        elif many == 1:
            title = translated("{name} could not be uploaded").format(name=_name(path))
        elif rolled_back:
            title = translated("{count} changes were not made").format(count=many)
        else:
            title = translated("{count} files could not be uploaded").format(count=many)
        if rolled_back < many:
            text += " " + translated("Your changes are safe on this computer.")
        return Words(
            title,
            text,
            (
                Button(translated("Open window"), self._actions.open_window("overview")),
                Button(translated("Open folder"), self._actions.show_files(path)),
            ),
            self._run("status"),
        )

    def _run(self, command: str) -> str:
        text = translated("To see more, run: {command}")
        return text.format(command=f"zonedrive {command}{self._option}")

    async def _tell_conflicts(self) -> float:
        copies, topic = self._report.copies(), self._conflicts
        topic.told |= copies - self._report.unacknowledged()
        has_new = not copies <= topic.told
        again = await topic.tell(copies, lambda: self._conflicting(copies))
        if not has_new:
            return again
        try:
            if heard := self._report.unacknowledged() & topic.told:
                self._report.tell(heard)
        except (OSError, StoreError) as wrong:  # in memory, the conflicts count as reported
            log.warning("cannot record that conflicts were reported: %s", wrong)
        return again

    def _conflicting(self, copies: set[int]) -> Words:
        fresh = copies - self._conflicts.told
        copy = self._report.path(min(fresh))
        found = next((each for each in self._report.conflicts() if each["path"] == copy), {})
        original, by = found.get("original", copy), _short(found.get("by", ""))
        name, folder = _name(original or copy), _short(str(PurePosixPath(copy).parent))
        show = Button(translated("Show both versions"), self._actions.open_window("conflicts"))
        if len(fresh) > 1:
            title = translated("{count} files were also changed by other users")
            title = title.format(count=len(fresh))
            text = translated("Your versions are kept as files of their own, the first as {copy}.")
        elif original == copy and by:
            title = translated("{name} has replaced the version of {user}")
            title = title.format(name=name, user=by)
            text = translated("The service took both names for one. The other is in the history.")
            show = Button(translated("Open window"), self._actions.open_window("conflicts"))
        elif original == copy:
            title = translated("{name} was deleted while you edited it").format(name=name)
            text = translated("Your version was uploaded as a new file, in {folder}.")
            show = Button(translated("Open window"), self._actions.open_window("conflicts"))
        else:
            user = by or translated("another user")
            title = translated("{name} was also changed by {user}").format(name=name, user=user)
            text = translated("Your version was saved next to it as {copy}, in {folder}.")
        files = self._actions.show_files(copy, original or copy)
        buttons = show, Button(translated("Open folder"), files)
        text = text.format(copy=_name(copy), folder=folder)
        return Words(title, text, buttons, self._run("conflicts"))


def _name(path: str) -> str:
    return _short(PurePosixPath(path).name)


def _short(path: str) -> str:
    return path if len(path) <= NAME else f"…{path[1 - NAME :]}"
