"""Stream of changed entry states for one client of the control socket.

INVARIANT: the daemon keeps at most one unsent line for a client. Changes within a short time are
reported together, and a client that does not read its lines is disconnected.
"""

from typing import Any, NoReturn

import msgspec
import trio

from zonedrive.daemon.control_server import Say
from zonedrive.remote.profiles.operations import OPERATIONS
from zonedrive.remote.service import Service
from zonedrive.state.pause import PauseSwitch
from zonedrive.views.entry_states import MOST, EntryStates, Unsynced

GATHER_SECONDS = 0.2  # minimum time to collect further changes before a line
CALM = 9.0  # pause after a computation, as a multiple of its duration
SLOW_SECONDS = 10.0  # maximum time for a client to read a line


async def send_entry_states(
    states: EntryStates, service: Service, switch: PauseSwitch, first: dict[str, Any], say: Say
) -> NoReturn:
    """Send a line with `first` and the current counts, then a line after each change.

    Each line has `link` (state of the connection to the service), `paused` (True while the uploads
    are paused) and `counts` (number of entries that are not synced, by state). The first line also
    has `can`, the operations that the profile defines. A later line may have `changed`, the new
    state of each changed entry, by path. If MOST or more entries changed, or if a pin was added or
    removed, the line has `everything` (True) instead: the client must query the states again.

    Run until cancelled. Raises trio.BrokenResourceError, which ends the connection, if the client
    takes longer than SLOW_SECONDS to read a line.
    """
    can = [name for name in OPERATIONS if service.can(name)]
    before, pins = Unsynced(), states.pin_changes
    said: dict[str, Any] = {}
    line: dict[str, Any] = {**first, "can": can}
    with states.watched() as content:
        while True:
            changed = states.changed
            begun = trio.current_time()
            now = await states.unsynced()
            took = trio.current_time() - begun
            if said:
                inos = content.union(now.changed_since(before))
                is_pin_changed = states.pin_changes != pins
                line = _difference(states, now, inos, is_pin_changed=is_pin_changed)
            content.clear()
            before, pins = now, states.pin_changes
            paused = switch.current is not None
            state = {"link": service.link.state, "paused": paused, "counts": now.counts}
            if line or state != said:
                with trio.move_on_after(SLOW_SECONDS) as patience:
                    await say({**line, **state})
                if patience.cancelled_caught:
                    raise trio.BrokenResourceError("the client does not read")
                said = state
            await changed.wait()
            await trio.sleep(max(GATHER_SECONDS, CALM * took))


def _difference(
    states: EntryStates, now: Unsynced, inos: set[int], *, is_pin_changed: bool
) -> dict[str, Any]:
    if is_pin_changed or len(inos) >= MOST:
        return {"everything": True}
    named = states.named(now, inos)
    return {"changed": msgspec.to_builtins(named)} if named else {}
