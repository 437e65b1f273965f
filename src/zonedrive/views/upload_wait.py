"""Waiting for the uploads of some changes, for `StatusReport.sync`."""

import time
from collections.abc import Callable
from contextlib import nullcontext

import trio

from zonedrive.state.intents import Intent
from zonedrive.state.local_state import LocalState
from zonedrive.sync.dispatcher import Dispatcher, is_blocked

VAIN = 7  # failed attempts in a row; with the pauses between them about ten seconds
WRITTEN = 0  # sequence number of bytes without an intent


class UploadWait:
    """One `sync` call's wait until each change in `remaining()` is uploaded or blocked."""

    def __init__(
        self,
        state: LocalState,
        dispatcher: Dispatcher,
        remaining: Callable[[], list[Intent]],
        *,
        is_patient: bool,
        first: bool,
    ) -> None:
        """Make the changes in `remaining()` due for upload now.

        For `is_patient` and `first`, see `StatusReport.sync`.
        """
        self._intents, self._dispatcher, self._remaining = state.intents, dispatcher, remaining
        self._vain, self._first = None if is_patient else VAIN, first
        asked, self._newest = remaining(), state.intents.newest
        self._written = {intent.ino for intent in asked if intent.held}
        self.pending = {intent.ino for intent in asked}
        """Inodes of the changes that were pending before the wait."""
        self._wanted = {*self.pending}
        # A change may wait for the WITHDRAW step of a parked file.
        dispatcher.expedite(intent.ino for intent in (*asked, *state.intents.parked()))

    async def run(self, scope: trio.CancelScope) -> None:
        """Enter `scope`, and wait until the uploads have ended or `scope` is cancelled."""
        with (
            self._dispatcher.waited_for(),
            self._dispatcher.preferred(self._wanted) if self._first else nullcontext(),
            scope,
        ):
            await self._dispatcher.wait_until(self._is_over)

    def _is_over(self) -> bool:
        now, left = time.time_ns(), self._remaining()
        self._push(left, now)
        if self._first:
            others = self._dispatcher.temporarily_named() - {intent.ino for intent in left}
            left += filter(None, map(self._intents.get, others))
        inos, running = {intent.ino for intent in left}, self._dispatcher.running
        if any(self._intents.get(ino) is None for ino in running):
            return False  # an entry was removed during its upload; a rollback may follow
        if self._dispatcher.is_paused and not self._first:
            return not inos & running
        if any(intent.seq == WRITTEN for intent in left):
            return False
        # A refused change gets one more attempt, and is blocked once it is postponed again.
        return all(
            is_blocked(intent, self._vain) and intent.due_ns > now and intent.ino not in running
            for intent in left
        ) or self._dispatcher.is_stalled(self._vain, inos if self._first else None)

    def _push(self, left: list[Intent], now: int) -> None:
        """Skip the settle time (the pause before an upload) of changes older than the wait.

        Also skip the settle time of files that were open for writing when the wait began, because
        the kernel may report their last close only afterwards. If the wait was created with
        `first`, also prefer all changes in `left` to other changes.
        """
        if settling := [
            intent.ino
            for intent in left
            if (intent.seq <= self._newest or intent.ino in self._written)
            and not (intent.held or intent.attempts or intent.due_ns <= now)
        ]:
            self._dispatcher.expedite(settling)
        if self._first and not (inos := {intent.ino for intent in left}) <= self._wanted:
            self._wanted.update(inos)
            self._dispatcher.wake()
