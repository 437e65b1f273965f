"""Reports to a service manager (sd_notify(3)): readiness, watchdog, and the status line.

If there is no service manager, nothing is computed or sent. The status line names no file, because
other users may read the line.

INVARIANT: while a daemon waits until the user unlocks the keyring, the daemon only checks the state
of the keyring, and does not prompt the user again.
"""

import logging
import os
import re
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import trio

from zonedrive import causes
from zonedrive.formatting import amount, count, not_sent, plain, saved
from zonedrive.logon.secrets import ANSWER_SECONDS, is_keyring_locked
from zonedrive.logon.session_bus import session_bus
from zonedrive.remote.connectivity import Connectivity
from zonedrive.views.status_report import StatusReport

log = logging.getLogger(__name__)

CALM_SECONDS = 1.0  # minimum interval between two lines; a logon renewal takes less time
PROGRESS_SECONDS = 2.0  # interval between updates during uploads
POLL_SECONDS = 5.0  # interval between checks of a locked keyring
READY_SECONDS = 10.0  # maximum time for a report about the start to a busy service manager
RETRY_SECONDS = 0.1  # interval between attempts


class Notifier:
    """Sender of reports to the service manager, if there is one."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        """Read NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID from `environment`."""
        name = environment.get("NOTIFY_SOCKET", "")
        self._address = "\0" + name[1:] if name.startswith("@") else name
        self.watchdog_seconds: float | None = None
        mine = environment.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        interval = environment.get("WATCHDOG_USEC", "")
        if mine and re.fullmatch("[1-9][0-9]{0,18}", interval):
            self.watchdog_seconds = int(interval) / 1e6

    @property
    def has_manager(self) -> bool:
        return bool(self._address)

    async def ready(self, status: str) -> None:
        """Report that the mount is ready.

        While the manager's queue is full, try again for READY_SECONDS, because without this message
        the manager ends the daemon after the start timeout.
        """
        with trio.move_on_after(READY_SECONDS):
            while not self._send("READY=1", f"STATUS={status}"):  # noqa: ASYNC110
                await trio.sleep(RETRY_SECONDS)

    def extend_start(self, status: str, seconds: float) -> None:
        """Report the status, and extend the start timeout to `seconds` from now.

        While the manager's queue is full, block and try again for READY_SECONDS. Call this before
        the event loop runs.
        """
        end = time.monotonic() + READY_SECONDS
        message = (f"EXTEND_TIMEOUT_USEC={seconds * 1e6:.0f}", f"STATUS={status}")
        while not self._send(*message) and time.monotonic() < end:
            time.sleep(RETRY_SECONDS)

    def status(self, status: str) -> None:
        self._send(f"STATUS={status}")

    def stopping(self) -> None:
        self._send("STOPPING=1", "STATUS=unmounting")

    async def watchdog(self) -> None:
        """Send the watchdog signal regularly while the event loop runs.

        Return at once if the service manager has not requested the signal.
        """
        if self.watchdog_seconds is None:
            return
        while True:
            self._send("WATCHDOG=1")
            await trio.sleep(self.watchdog_seconds / 3)

    def _send(self, *assignments: str) -> bool:
        """Send the assignments in one datagram, one per line; ignore an OSError.

        Return False if the manager's queue is full. `plain` removes line breaks, so that a status
        text cannot add an assignment.
        """
        if not self._address:
            return True
        # If the manager is gone or busy, or no descriptor is free, the mount must not be affected.
        with (
            suppress(OSError),
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as line,
        ):
            line.setblocking(False)
            try:
                line.sendto("\n".join(map(plain, assignments)).encode(), self._address)
            except BlockingIOError:
                return False
        return True


@dataclass(eq=False)
class StatusLine:
    """Status line that the service manager shows for one mount."""

    _notifier: Notifier
    _link: Connectivity
    _report: StatusReport
    _command: Callable[[], str]  # returns the command to log on again
    _lost: int = 0  # number of lost files when the database was last read

    async def run(self) -> None:
        """Send the status line to the service manager after each change, until cancelled.

        Return at once if there is no service manager.
        """
        if not self._notifier.has_manager:
            return
        said = ""
        while True:
            changed = self._report.changed
            work = self._report.work()
            if (line := self._line(work)) != said:
                self._notifier.status(line)
                said = line
            await trio.sleep(CALM_SECONDS)
            with trio.move_on_after(PROGRESS_SECONDS if work["uploading"] else float("inf")):
                await changed.wait()

    def line(self) -> str:
        """Return the status line: the state of the connection, and the pending changes."""
        return self._line(self._report.work())

    def _line(self, work: dict[str, Any]) -> str:
        self._lost = self._report.lost()
        return f"{self._state(work)}; {self._outbox(work)}"

    def end(self) -> str:
        """Return the status line to show after the unmount; the stores may already be closed."""
        work = self._report.work()
        if not work["files"]:
            return f"unmounted; {self._nothing_pending()}"
        then = "uploads are paused" if work["paused"] else "uploads continue at the next mount"
        return f"unmounted; {not_sent(work)}; kept here, {then}"

    def _state(self, work: dict[str, Any]) -> str:
        state, why = self._link.state, self._link.reason
        if state == "logon-required":
            return f"logon required, run: {self._command()}"
        said = f"{state} ({why})" if state == "offline" and why else state
        return f"{said}, uploads are paused" if work["paused"] else said

    def _outbox(self, work: dict[str, Any]) -> str:
        if not work["files"]:
            return self._nothing_pending()
        parts = []
        if files := work["files"] - work["changes"]:
            sent = f"{amount(work['sent'])} of {amount(work['bytes'])}"
            parts.append(f"{count(files, 'file')} to upload, {sent}")
        if changes := work["changes"]:
            parts.append(f"{count(changes, 'change')} to send (new folders, renames, removals)")
        if work["uploading"]:
            parts.append(f"{work['uploading']} uploading")
        if work["failed"]:
            why = causes.summary(work["causes"], work["failed"])
            parts.append(f"{why}, see zonedrive status")
        return ", ".join(parts)

    def _nothing_pending(self) -> str:
        return saved(self._lost) if self._lost else "everything is on the service"


def wait_for_unlock(notifier: Notifier, why: str) -> None:
    """Wait until the default collection of the session's keyring is unlocked.

    Before each check, extend the service manager's start timeout. `why` is the reason in the status
    line. Call this function only if a service manager runs the daemon; otherwise the user would
    not learn the reason for the wait.
    """
    log.info("waiting: %s", why)
    while True:
        notifier.extend_start(f"waiting: {why}", POLL_SECONDS + 4 * ANSWER_SECONDS)
        time.sleep(POLL_SECONDS)
        if is_keyring_unlocked():
            return


def is_keyring_unlocked() -> bool:
    """Return True if the default collection of the keyring is unlocked.

    Return False if the state of the collection cannot be read. Never prompts the user.
    """
    bus = session_bus()
    try:
        return bus is not None and not is_keyring_locked(bus)
    except Exception as wrong:
        # After any error of the bus, the next check may find a working one.
        log.debug("the keyring cannot be checked: %s", type(wrong).__name__)
        return False
