"""Periodic listing of pinned folders, which detects remote changes.

This module does not handle the changes; the observers of `LocalState.listing_merged` handle them.

A round begins every PASS_S seconds. A round also begins at the start, when the service is online
again, and after a suspend; the first AT_ONCE folders of such a round are listed without pauses. No
folder is listed if there are no pins, if the service is unreachable, or if there is no logon.

A round first looks on the service for pinned entries that are missing from the local tree, because
they may have been moved or restored. Each round looks for up to MISSING of them, and starts after
the last entry of the previous round.

A folder that cannot be listed does not delay the others. A round stops early only if the service is
unreachable or TROUBLE folders failed in a row; the next round lists the remaining folders.

INVARIANT: a round ends after PASS_S seconds. If this time is too short for all folders, the next
round lists the topmost pinned folders again, and then the remaining folders of the previous round.
INVARIANT: the only state kept between rounds is the list of the remaining folders, and the last
missing entry that was looked for.
"""

import logging
import time
from collections.abc import Awaitable, Callable
from functools import partial

import trio

from zonedrive.boot_clock import since_boot_ns
from zonedrive.errors import Unavailable, Unreachable
from zonedrive.pins.pins import Pins
from zonedrive.remote.service import Service
from zonedrive.state.local_state import LocalState
from zonedrive.state.pin_table import Pin
from zonedrive.sync.compare import current_entry
from zonedrive.sync.directory_cache import DirectoryCache

log = logging.getLogger(__name__)

PASS_S = 300.0
PACE_S = 0.2  # pause for each listed folder
AT_ONCE = 200  # folders listed without pauses
WIDTH = 4  # maximum number of concurrent listings
ROOTS = int(PASS_S / PACE_S / 2)  # pinned folders listed again before a round continues
MISSING = 20  # missing entries that a round looks for
TROUBLE = 5  # failures in a row that show a problem of the service


class PinPoller:
    """Background task that lists the pinned folders periodically."""

    def __init__(
        self,
        state: LocalState,
        service: Service,
        folders: DirectoryCache,
        pins: Pins,
        asking: trio.CapacityLimiter,
    ) -> None:
        """Create the poller; `asking` limits all concurrent listings for pins."""
        self._state = state
        self._service = service
        self._folders = folders
        self._pins = pins
        # Folders still to be listed, the next one last; True if their subfolders are to be listed.
        self._left: list[tuple[int, bool]] = []
        self._sought = 0  # inode number in the last pin whose entry was looked for
        self._unhindered = AT_ONCE  # number of folders that may still be listed without a pause
        self._failures = 0  # failures in a row
        self._asking = asking
        self._width = max(1, min(WIDTH, state.settings.transfers // 2))

    async def run(self) -> None:
        """List the pinned folders in rounds until cancelled."""
        link = self._service.link
        while True:
            if (now := link.state) != "online":
                await link.wait_other(now)
                self._unhindered = AT_ONCE
                continue
            had_pins = bool(self._pins)
            while not self._pins:
                await self._pins.added.wait()
            began, began_ns = trio.current_time(), since_boot_ns()
            if had_pins:  # the command `pin` lists all folders itself, so the first pin needs none
                try:
                    await self._round(began + PASS_S)
                except Exception:  # a bug must not end the mount or the next round
                    log.warning("cannot list pinned folders", exc_info=True)
                    self._left.clear()
            self._unhindered = 0
            with trio.move_on_at(began + PASS_S):
                await self._wait_until_online_again(began_ns)
                self._unhindered = AT_ONCE

    async def _wait_until_online_again(self, since_ns: int) -> None:
        """Wait until the service is online again after an outage or a long suspend.

        A suspend is long if the next round was due before the end of the suspend. `since_ns` is the
        start of the current round, in nanoseconds since boot.
        """
        link = self._service.link
        while True:
            before = link.state
            now = await link.wait_change()
            late = since_boot_ns() - since_ns >= PASS_S * 1e9
            if now == "online" and (late or before != "online"):
                return

    async def _round(self, until: float) -> None:
        self._failures = 0
        asked_ns = time.monotonic_ns()
        if not await self._find_missing(asked_ns):
            if self._service.link.state != "online":
                return
            self._failures = 0  # requests for entries may fail on a service where listings work
        folders = self._pins.folders_to_list()
        self._left = [each for each in self._left if each[1]]
        if self._left:
            self._left += [(ino, False) for ino in folders[:ROOTS]]
        else:
            self._left = [(ino, True) for ino in folders]
        while self._left and trio.current_time() < until:
            batch = self._left[-self._width :]
            goes_on = await self._list([ino for ino, _ in batch], asked_ns)
            if not goes_on and self._service.link.state != "online":
                return
            del self._left[-len(batch) :]
            for ino, is_deep in batch:
                if is_deep and ino in self._pins:
                    below = self._state.inodes.rows.folders_in(ino)
                    self._left += [(each, True) for each in below]
            if not goes_on:
                return

    async def _find_missing(self, asked_ns: int) -> bool:
        """Look on the service for up to MISSING pinned entries that the local tree lacks.

        Return False if the service is unreachable, or after TROUBLE failures in a row.
        `asked_ns` is the start of the round on the monotonic clock.
        """
        missing = sorted(self._pins.missing(), key=lambda pin: (pin.ino <= self._sought, pin.ino))
        for pin in missing[:MISSING]:
            if pin not in self._pins.missing():
                continue  # its folder was listed for another pin
            self._sought = pin.ino
            await self._attempt(partial(self._look_for, pin, asked_ns))
            if not await self._pause_between_listings(1):
                return False
        return True

    async def _look_for(self, pin: Pin, asked_ns: int) -> None:
        remote_id = pin.remote_id or ""
        await self._folders.find(pin.zone, remote_id, asked_ns)
        # The entry may exist although it was not found: its zone may not be accessible for a while,
        # or the service may not tell its folder.
        if pin.is_former and await current_entry(self._service, pin.zone, remote_id) is None:
            self._pins.forget_former(pin)

    async def _list(self, inos: list[int], asked_ns: int) -> bool:
        """List the folders `inos` concurrently, then pause for PACE_S seconds per folder.

        There is no pause for the first AT_ONCE folders of some rounds (see the module's docstring).
        Return False at once if the service is unreachable, or after TROUBLE failures in a row.
        `asked_ns` is the start of the round (monotonic clock). A folder that was listed after this
        time is not listed again.
        """
        wanted = [ino for ino in inos if self._pins.concerns(ino)]
        async with trio.open_nursery() as nursery:
            for folder in self._state.inodes.get_all(wanted):
                if not (folder.is_new or folder.local):
                    nursery.start_soon(
                        self._attempt, partial(self._folders.refresh_path, folder, asked_ns)
                    )
        return await self._pause_between_listings(len(wanted))

    async def _pause_between_listings(self, listings: int) -> bool:
        """Pause as described in `_list`; return False, without a pause, if the round must end.

        `listings` is the number of listings since the last call.
        """
        if self._failures >= TROUBLE or self._service.link.state != "online":
            return False
        if self._unhindered > 0:
            self._unhindered -= listings
        else:
            await trio.sleep(PACE_S * listings)
        return True

    async def _attempt(self, listing: Callable[[], Awaitable[None]]) -> None:
        """Run `listing`, and update the number of failures of the service in a row.

        Errors of `listing` are not re-raised.
        """
        try:
            async with self._asking:
                await listing()
        except (Unreachable, Unavailable):
            self._failures += 1
        except Exception as wrong:
            log.info("a pinned folder could not be listed: %s", type(wrong).__name__)
        else:
            self._failures = 0
