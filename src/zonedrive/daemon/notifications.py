"""Desktop notifications through the session bus, and those about failed uploads and conflicts.

Without a session, a bus or a notification service, nothing happens, because all information is also
available elsewhere.

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
from jeepney import DBusAddress, MessageType, new_method_call
from jeepney.io.trio import open_dbus_router

from zonedrive.errors import StoreError
from zonedrive.logon.session_bus import session_bus
from zonedrive.paths import DEFAULT_ACCOUNT
from zonedrive.views.status_report import StatusReport

log = logging.getLogger(__name__)

SECONDS = 5.0  # timeout in seconds of a call to the desktop

NORMAL, URGENT = 1, 2
UNTIL_CLOSED = 0  # the notification stays until the user closes it
ADDRESS = DBusAddress(
    "/org/freedesktop/Notifications",
    bus_name="org.freedesktop.Notifications",
    interface="org.freedesktop.Notifications",
)

CALM_SECONDS = 3.0  # wait after a change before its result is read
GATHER_SECONDS = 30.0  # maximum time to collect further events
RESAY_SECONDS = 300.0
AGAIN_SECONDS = 600.0  # wait before another attempt if no desktop shows notifications
NAME = 120  # maximum length of a path in a notification, in characters


class Desktop:
    """One notification that is shown, replaced and withdrawn."""

    def __init__(self, icon: str = "dialog-password", urgency: int = URGENT) -> None:
        self._icon = icon
        self._hints = {"urgency": ("y", urgency), "desktop-entry": ("s", "zonedrive")}
        self._number = 0  # id of the visible notification, 0: none

    async def show(self, title: str, text: str) -> bool:
        """Show or replace the notification; return True if a desktop accepted it."""
        markup = _shown(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        words: list[object] = ["zonedrive", self._number, self._icon, _shown(title), markup]
        answer = await self._call(
            "Notify", "susssasa{sv}i", (*words, [], self._hints, UNTIL_CLOSED)
        )
        if not answer:
            return False
        self._number = answer[0]
        return True

    async def withdraw(self) -> None:
        if self._number:
            number, self._number = self._number, 0
            await self._call("CloseNotification", "u", (number,))

    async def _call(self, method: str, types: str, words: tuple[object, ...]) -> tuple[int, ...]:
        """Return the body of the answer, or () if there is none."""
        address = session_bus()
        if address is None:
            return ()
        with trio.move_on_after(SECONDS):
            try:
                async with open_dbus_router(address) as bus:
                    message = new_method_call(ADDRESS, method, types, words)
                    reply = await bus.send_and_get_reply(message)
            except Exception as wrong:
                # An error of the bus must not affect the mount.
                log.debug("the desktop cannot be reached: %s", type(wrong).__name__)
                return ()
            if reply.header.message_type is MessageType.method_return:
                body: tuple[int, ...] = reply.body
                return body
        return ()


def _shown(text: str) -> str:
    """Return `text` with unprintable characters replaced, such as direction marks in file names."""
    return "".join(c if c.isprintable() or c == "\n" else "\N{REPLACEMENT CHARACTER}" for c in text)


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
        self, report: StatusReport, account: str, failures: Desktop, conflicts: Desktop
    ) -> None:
        self._report = report
        self._suffix = "" if account == DEFAULT_ACCOUNT else f" --account {account}"
        self._failures = AlertKind(failures)
        self._conflicts = AlertKind(conflicts)

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
        """Return title and text; a negative number stands for a change that was rolled back."""
        first = min(failures.keys() - self._failures.told)
        text = f"{_short(self._report.path(first))}: {failures[first]}."
        many = len(failures) > 1
        rolled_back = [number for number in failures if number < 0]
        if rolled_back:
            changes = f"{len(failures)} changes were" if many else "a change was"
            what = "refused" if len(rolled_back) == len(failures) else "not made"
            title = f"zonedrive: {changes} {what}"
        elif not many:
            title = "zonedrive: a file could not be uploaded"
        else:
            title = f"zonedrive: {len(failures)} files could not be uploaded"
            text += " All of them are kept on this computer."
        return title, f"{text} To see more, run: zonedrive status{self._suffix}"

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
            log.warning("cannot record that conflicts were reported: %s", wrong)
        return again

    def _conflicting(self, copies: set[int]) -> tuple[str, str]:
        fresh = copies - self._conflicts.told
        run = f"To list all conflicts, run: zonedrive conflicts{self._suffix}"
        if len(fresh) > 1:
            title = f"zonedrive: {len(fresh)} conflicts"
            text = "Other users changed or deleted files while you edited them."
            return title, f"{text} Your versions are kept. {run}"
        path = _short(self._report.path(min(fresh)))
        text = "Another user changed or deleted a file while you edited it."
        return "zonedrive: a conflict", f"{text} Your version is kept: {path}. {run}"


def _short(path: str) -> str:
    return path if len(path) <= NAME else f"…{path[1 - NAME :]}"
