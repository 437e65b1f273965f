"""Stream of changed entry states for one client of the control socket.

INVARIANT: a client needs no more memory than one line, because changes within a short time are
reported together, and a client that does not read its lines is disconnected.
"""

from typing import Any, NoReturn

import msgspec
import trio

from zonedrive.daemon.control_server import Say
from zonedrive.remote.profiles.operations import OPERATIONS
from zonedrive.remote.service import Service
from zonedrive.state.pause import PauseSwitch
from zonedrive.views.entry_states import EntryStates, Unsynced

GATHER_SECONDS = 0.2  # minimum time to collect further changes before a line
CALM = 9.0  # pause after a computation, as a multiple of its duration
SLOW_SECONDS = 10.0  # maximum time for a client to read a line
MOST = 1000  # maximum number of paths in a line


class EntryWatch:
    """Stream of lines about entry states for one client.

    Each line has `link` (state of the connection to the service), `paused` (True while the uploads
    are paused) and `counts` (number of entries that are not synced, by state). The first line also
    has `can`, the operations that the profile defines. A later line may have `changed`, the new
    state of each changed entry, by path. If more than MOST entries changed, or if a pin was added
    or removed, the line has `everything` (True) instead: the client must query the states again.
    """

    def __init__(self, states: EntryStates, service: Service, switch: PauseSwitch) -> None:
        self._states = states
        self._switch = switch
        self._service = service

    async def run(self, first: dict[str, Any], say: Say) -> NoReturn:
        """Send a line with `first` and the current counts, then a line after each change.

        Run until cancelled. Raises trio.BrokenResourceError, which ends the connection, if the
        client takes longer than SLOW_SECONDS to read a line.
        """
        can = [name for name in OPERATIONS if self._service.can(name)]
        before, pins = Unsynced(), self._states.pin_changes
        said: dict[str, Any] = {}
        line: dict[str, Any] = {**first, "can": can}
        while True:
            changed = self._states.changed
            begun = trio.current_time()
            now = await self._states.unsynced()
            took = trio.current_time() - begun
            if said:
                line = self._difference(before, now, self._states.pin_changes != pins)
            before, pins = now, self._states.pin_changes
            paused = self._switch.current is not None
            state = {"link": self._service.link.state, "paused": paused, "counts": now.counts}
            if line or state != said:
                await self._send({**line, **state}, say)
                said = state
            await changed.wait()
            await trio.sleep(max(GATHER_SECONDS, CALM * took))

    def _difference(self, before: Unsynced, now: Unsynced, pinned: bool) -> dict[str, Any]:
        inos = now.changed_since(before)
        if pinned or len(inos) > MOST:
            return {"everything": True}
        named = self._states.named(now, inos)
        return {"changed": msgspec.to_builtins(named)} if named else {}

    @staticmethod
    async def _send(line: dict[str, Any], say: Say) -> None:
        with trio.move_on_after(SLOW_SECONDS) as patience:
            await say(line)
        if patience.cancelled_caught:
            raise trio.BrokenResourceError("the client does not read")
