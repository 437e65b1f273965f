"""Status line of a mount for the service manager: `systemctl --user status`.

Knows nothing about the transport (`notify`), and names no file, because others may read it.

INVARIANT: without a service manager nothing is computed, and otherwise only after a change.
"""

from collections.abc import Callable
from functools import partial

import trio

from zonedrive import causes
from zonedrive.daemon.sd_notify import Notifier
from zonedrive.daemon.wait_first import first
from zonedrive.formatting import amount, count, saved, unsent, verb
from zonedrive.remote.connectivity import Connectivity
from zonedrive.views.status_report import StatusReport

CALM_SECONDS = 1.0
"""Minimum interval in seconds between two lines; a logon renewal takes less."""

PROGRESS_SECONDS = 2.0
"""Interval in seconds between updates during uploads."""


class StatusLine:
    """Status line of one mount."""

    def __init__(
        self,
        notifier: Notifier,
        link: Connectivity,
        report: StatusReport,
        command: Callable[[], str],
    ) -> None:
        """Set the sources; `command` returns the command to log on again."""
        self._notifier, self._link, self._report, self._command = notifier, link, report, command
        self._lost = 0  # number of lost files when the database was last read

    async def run(self) -> None:
        """Update the line until cancelled."""
        if not self._notifier.is_heard:
            return
        said = ""
        while True:
            changed, state = self._report.changed, self._link.state
            line, busy = self.line(), bool(self._report.work()["uploading"])
            if line != said:
                self._notifier.status(line)
                said = line
            await trio.sleep(CALM_SECONDS)
            with trio.move_on_after(PROGRESS_SECONDS if busy else float("inf")):
                await first(changed.wait, partial(self._link.wait_other, state))

    def line(self) -> str:
        """Return the state, and the number of pending changes."""
        self._lost = self._report.lost()
        return f"{self._state()}; {self._outbox()}"

    def end(self) -> str:
        """Return the last line; also works after the stores are closed."""
        return f"unmounted; {self._left()}"

    def _state(self) -> str:
        state, why = self._link.state, self._link.last_error
        if state == "logon-required":
            return f"logon required, run: {self._command()}"
        return f"{state} ({why})" if state == "offline" and why else state

    def _outbox(self) -> str:
        work = self._report.work()
        if not work["files"]:
            return self._rest()
        changes = work.get("changes", 0)
        parts = []
        if files := work["files"] - changes:
            sent = f"{amount(work['sent'])} of {amount(work['bytes'])}"
            parts.append(f"{count(files, 'file')} to upload, {sent}")
        if changes:
            parts.append(f"{count(changes, 'change')} to send (new folders, renames, removals)")
        if work["uploading"]:
            parts.append(f"{work['uploading']} under way")
        if work["failed"]:
            why = causes.summary(work.get("causes", {}), work["failed"])
            parts.append(f"{why}, see zonedrive status")
        return ", ".join(parts)

    def _rest(self) -> str:
        """Return the text for an empty outbox."""
        return saved(self._lost) if self._lost else "everything is on the service"

    def _left(self) -> str:
        left = self._report.left()
        if not left["files"]:
            return self._rest()
        return (
            f"{unsent(left)} {verb(left['files'])} not on the service yet; kept here, uploads go on"
            " at the next mount"
        )
