"""Cache of folder listings, each trusted for the number of seconds in the setting `refresh`.

One request serves all callers that wait for the listing of a folder. While the service is slow or
unreachable, a folder that was listed before is read from the local tree. For a folder that was
never listed, the caller waits, or gets the service's error.

A program that walks from folder to folder finds listings that were prefetched, see
`directory_walks`. A program that uses one folder for a long time does not wait for new listings: a
listing that is used shortly before it expires is renewed in the background.

INVARIANT: no entry is added to a folder that was removed, alone or with a folder above it.
Otherwise an entry that a coworker has added since would be deleted with the folder.
INVARIANT: at most one listing of a folder is in progress. A caller that stops waiting does not
cancel the listing for other callers.
INVARIANT: prefetched listings leave connections free for listings that programs wait for, and are
not requested from a service that is unreachable or failing.
INVARIANT: the age of a listing grows while the machine is suspended.
"""

import logging
import time

import msgspec
import trio
from cachetools import TTLCache

from zonedrive import memory
from zonedrive.boot_clock import since_boot_ns
from zonedrive.causes import Cause, cause_of
from zonedrive.errors import (
    UNKNOWN_ZONE,
    BadAnswer,
    Changed,
    Forbidden,
    Interrupted,
    NotFound,
    RemoteError,
    StoreError,
    ZonedriveError,
)
from zonedrive.formatting import count, verb
from zonedrive.model import Entry
from zonedrive.remote.service import Service
from zonedrive.single_flight import Flight, SingleFlight
from zonedrive.state import remote_operations
from zonedrive.state.inode import NOWHERE, ROOT, Inode, Kind
from zonedrive.state.local_state import LocalState
from zonedrive.state.merge import Merged
from zonedrive.supervisor import Task
from zonedrive.sync.directory_walks import DirectoryWalks
from zonedrive.sync.listing_batches import ListingBatches
from zonedrive.sync.moved_entries import MovedEntries
from zonedrive.translation import marked

log = logging.getLogger(__name__)

PATIENCE_S = 3.0  # seconds that a program with a stale listing waits for a fresh one
SLUGGISH_S = 10.0  # seconds without such waits after a wait timed out: a path may have many folders
RESERVED = 2  # requests that are reserved for listings that programs wait for
STALE_S = 1.0  # seconds that the kernel may cache stale content
LARGE = 5000  # listed entries, over all folders, after which freed memory is given back
RENEWED = 0.3  # fraction of `refresh`: with less left, a used listing is renewed in the background
TOPS = 64  # zones whose top folders are prefetched
CLOSED_S = 600.0
LOOK_S = 0.2  # seconds between checks for spare capacity
LEVELS_S = 2.0  # seconds that a listing of the zones waits for the user's access levels
ADD = "Add"  # the add-only level, as the published interface names it
TROUBLE_S = 5.0  # seconds without prefetching after a failure


class _Listing(Flight):
    """Listing in progress, for one folder; `error` is set if the listing has failed."""

    def __init__(self) -> None:
        super().__init__()
        self.asked_ns, self.aged_from_ns = clocks_ns()
        self.remote_id: str | None = None  # of the folder that was requested
        self.error: Exception | None = None
        self.awaited = False  # True if a program waits for the listing


class DirectoryCache:
    """Cache of folder listings, which are merged into the local state."""

    def __init__(self, state: LocalState, service: Service) -> None:
        self._state = state
        self._service = service
        self.following = MovedEntries(state, service)
        # By ino: when the newest merged listing was requested, see `clocks_ns`.
        self._asked_ns: dict[int, tuple[int, int]] = {}
        self._took_s: dict[int, float] = {}  # from the request until the merge
        self._listings: SingleFlight[int, _Listing] = SingleFlight()  # by ino
        self._levels: SingleFlight[int, Flight] = SingleFlight()  # of the user, with the key ROOT
        # By ino: numbers of unidentified entries, and hidden entries, in the newest listing.
        self._unclear: dict[int, Merged] = {}
        self._listed = 0  # entries listed so far
        self._zones_refused = ""  # message, if the last listing of the zones was refused
        self._nursery: trio.Nursery | None = None
        self._merging = ListingBatches(state, lambda: service.can("make_folder"), self._tell)
        self._listing_tops = False
        # Zones that have refused a listing; they are not prefetched for CLOSED_S seconds.
        self._closed: TTLCache[int, None] = TTLCache(TOPS, CLOSED_S, trio.current_time)
        self._sluggish_until = self._quiet_until = 0.0  # monotonic seconds
        self._walks = DirectoryWalks(
            state.inodes, wanted=self._wanted, ask=self._flight, spare=self._spare
        )
        self.was_read_lately = self._walks.was_read_lately
        state.listing_outdated.add(self.forget)
        state.folder_released.add(self._drop)

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run the requests for listings in the background, until cancelled."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            task_status.started()
            try:
                await trio.sleep_forever()
            finally:
                self._nursery = None

    def trusted_for(self, ino: int) -> float:
        """Return the number of seconds for which the kernel may cache a folder's content."""
        folder = self._state.inodes.find(ino)
        if folder is None or folder.is_new:
            return self._state.settings.refresh
        # A stale listing is used while the service is slow or unreachable. Without a minimum, the
        # kernel would look up each name of a large folder again. Changes are announced to the
        # kernel anyway.
        least = min(STALE_S, self._state.settings.refresh)
        return max(least, self._fresh_for(ino))

    async def ensure(self, folder: Inode) -> None:
        """Wait until a folder is listed; wait up to PATIENCE_S seconds to replace a stale listing.

        For a folder that was never listed, raises the service's error. For a folder that was listed
        before, raises only Forbidden. If the folder holds local changes, raises neither Forbidden
        nor NotFound. If the folder is not on the service, or was removed, alone or with a folder
        above it, do nothing.
        """
        if folder.is_new or folder.parent == NOWHERE:
            return
        if folder.listed and (left := self._fresh_for(folder.ino)) > 0:
            if self._walks.expects(folder.ino):
                self._walks.used(folder, listed=True)
            if left < self._state.settings.refresh * RENEWED and self._spare() > 0:
                self._flight(folder)
            return
        if not self._state.inodes.is_here(folder):
            return
        if not folder.listed:
            flight = self._awaited(folder)
            self._walks.used(folder, listed=False)
            await flight.wait()
            if flight.error is not None and flight.remote_id == folder.remote_id:
                is_lost = isinstance(flight.error, Forbidden | NotFound)
                has_ours = is_lost and self._state.inodes.numbers_in(folder.ino)
                if has_ours and self._state.holds_local_changes(folder):
                    return  # local changes stay reachable
                raise flight.error
            if not folder.listed:  # the inode now represents another remote folder
                await self.ensure(folder)
            return
        if self._service.link.state != "online":
            return
        flight = self._awaited(folder)
        self._walks.used(folder, listed=True)
        patience = 0.0 if time.monotonic() < self._sluggish_until else PATIENCE_S
        with trio.move_on_after(patience) as waiting:
            await flight.wait()
        if waiting.cancelled_caught and patience:
            self._sluggish_until = time.monotonic() + SLUGGISH_S
        # A folder with local changes stays readable if the service denies access.
        if isinstance(flight.error, Forbidden) and not self._state.holds_local_changes(folder):
            raise flight.error

    async def ensure_if_reachable(self, folder: Inode) -> RemoteError | None:
        """Call `ensure`; if the service gives no answer, return the error instead of raising it.

        Entries of the folder can then be known, with their content on this machine. Raises the
        other errors of `ensure`.
        """
        try:
            await self.ensure(folder)
        except RemoteError as wrong:
            if cause_of(wrong) is not Cause.SERVICE:
                raise
            return wrong
        return None

    def reading(self, ino: int) -> None:
        """Record that a program is beginning to read the names of a folder.

        If the folder is the root, also start to prefetch the top folders of the zones.
        """
        self._walks.reading(ino)
        if ino == ROOT and not self._listing_tops and self._nursery is not None:
            self._listing_tops = True
            self._nursery.start_soon(
                self._state.supervisor.job, Task.LISTING_AHEAD, self._list_tops
            )

    async def list_ahead(self, folder: Inode) -> bool:
        """Prefetch the listing of a folder; return True if the folder now has a fresh listing.

        Return False if the folder is not on the service, if there is no spare capacity, or if the
        request failed.
        """
        if not self._wanted(folder):
            return self._state.inodes.is_here(folder) and not folder.is_new
        if self._spare() <= 0:
            return False
        await (flight := self._flight(folder)).wait()
        return flight.error is None

    async def refresh(self, folder: Inode, newer_than_ns: int) -> None:
        """Wait for a listing of `folder` that was requested after `newer_than_ns`.

        `newer_than_ns` is a time of the monotonic clock. A listing from before a suspend of the
        machine does not count. If the folder was deleted on the service, return without a listing.
        The merge of the parent's listing has then removed the folder locally, or has kept the
        folder without a remote id, because of the local changes in the folder. Also return without
        a listing if the folder was removed locally, alone or with a folder above it. Raises the
        service's error.
        """
        inodes = self._state.inodes
        lost: list[tuple[Inode, str | None, NotFound, int]] = []  # until the folder above is listed
        while True:
            listable = inodes.is_here(folder) and not folder.is_new
            if listable and not (
                folder.listed and self._was_asked_since(folder.ino, newer_than_ns)
            ):
                flight = self._awaited(folder)  # perhaps requested with the folder's former id
                await flight.wait()
                if not inodes.is_here(folder):
                    continue
                if isinstance(flight.error, NotFound) and folder.ino != ROOT:
                    lost.append((folder, flight.remote_id, flight.error, newer_than_ns))
                    folder, newer_than_ns = inodes.get(folder.parent), flight.asked_ns
                    while folder.is_new and folder.parent != NOWHERE:  # without a listing
                        folder = inodes.get(folder.parent)
                elif flight.error is not None:
                    raise flight.error
            elif lost:
                folder, remote_id, error, newer_than_ns = lost.pop()
                if folder.remote_id == remote_id:
                    raise error
                # The folder is gone, or was created again.
            else:
                return

    async def refresh_path(self, folder: Inode, newer_than_ns: int) -> None:
        """Call `refresh` for each unlisted folder above `folder`, then for `folder`."""
        for each in [*self._state.inodes.and_above(folder)][::-1]:
            if each is folder or not each.listed:
                await self.refresh(each, newer_than_ns)

    async def find(self, zone: str, remote_id: str, newer_than_ns: int) -> None:
        """Add an entry of the service to the local tree, by listing its folder with `refresh`.

        Also add the missing parent folders, and list those that were never listed. If the service
        does not have the entry, do nothing. Raises the service's error.

        If the zone is not in the tree, list the zones first, because the zone may have reappeared.
        """
        if not self._has_zone(zone):
            await self.refresh(self._state.inodes.get(ROOT), newer_than_ns)
            if not self._has_zone(zone):
                return
        try:
            entry = await self._service.entry(zone, remote_id)
            if entry.deleted or not entry.parent_id:
                return
            folder = await self.following.folder(zone, entry.parent_id)
        except NotFound:
            return
        if folder is not None:
            await self.refresh_path(folder, newer_than_ns)

    def _has_zone(self, zone: str) -> bool:
        return any(each.zone == zone for each in self._state.inodes.inodes_in(ROOT))

    def known_empty(self, folder: Inode, asked_ns: tuple[int, int]) -> None:
        """Record that this client has created a folder, so its empty listing is up to date.

        `asked_ns` is the result of `clocks_ns` before the request.
        """
        self._asked_ns[folder.ino] = asked_ns

    def forget(self, ino: int | None = None) -> None:
        """Mark a folder's listing, by default all listings, as out of date."""
        if ino is None:
            self._asked_ns.clear()
        else:
            self._asked_ns.pop(ino, None)

    def took_s(self, ino: int) -> float:
        """Return the duration of a folder's newest listing in seconds, including its merge."""
        return self._took_s.get(ino, 0.0)

    def require_remote_id(self, folder: Inode) -> str:
        """Return a folder's id on the service.

        For a folder without an id, raises Changed if the service can create folders, else
        StoreError. Before Changed is raised, the creation of the folder is scheduled, if necessary.
        """
        if folder.remote_id is not None:
            return folder.remote_id
        if self._service.can("make_folder"):
            remote_operations.create_lost_folder(self._state, folder)
            raise Changed("the parent folder is not on the service yet and is created first")
        raise StoreError(
            "the parent folder was deleted on the service",
            remedy="move the entry to another folder",
        )

    def hidden(self, folder: int, name: str) -> Entry | None:
        """Return the hidden entry of the folder that has this name on the service, or None.

        An entry is hidden if a new local entry or a pending request has the same name, or if the
        listing has no valid id, kind or size of the entry.
        """
        return self._unclear.get(folder, Merged()).hidden.get(name)

    def notice(self) -> str:
        """Return one line about zones or entries that cannot be shown, or "" if there are none."""
        if self._zones_refused:
            return self._zones_refused
        inodes = self._state.inodes
        unshown = {
            ino: merged.unshown
            for ino, merged in self._unclear.items()
            if merged.unshown
            and (folder := inodes.find(ino)) is not None
            and folder.parent != NOWHERE
        }
        if not unshown:
            return ""
        first, more, number = min(unshown), len(unshown) - 1, sum(unshown.values())
        entries, path = count(number, "entry", "entries"), inodes.path(first)
        said = marked(f"{entries} in {path} {verb(number)} not shown")
        if more:
            others = count(more, "more folder")
            said = marked(f"{entries} in {path} and {others} {verb(number)} not shown")
        reason = marked(
            "the service sends no valid id, kind or size; a local file with such a name becomes a"
            " conflict copy"
        )
        return f"{said}: {reason}"

    def _was_asked_since(self, ino: int, moment_ns: int) -> bool:
        """Return True if the newest listing was requested since `moment_ns` (monotonic clock).

        A listing from before a suspend of the machine does not count.
        """
        asked_ns, aged_from_ns = self._asked_ns.get(ino, (-1, 0))
        if asked_ns < moment_ns:
            return False
        age_ns = since_boot_ns() - aged_from_ns
        return age_ns <= time.monotonic_ns() - moment_ns  # false if a suspend came in between

    def _fresh_for(self, ino: int) -> float:
        """Return the seconds until a folder's listing expires, a negative number if it has expired.

        A listing that took a long time is trusted for longer than `refresh`.
        """
        asked = self._asked_ns.get(ino)
        if asked is None:
            return float("-inf")
        age_s = (since_boot_ns() - asked[1]) / 1e9
        return max(self._state.settings.refresh, 2 * self.took_s(ino)) - age_s

    def _flight(self, folder: Inode) -> _Listing:
        flight = self._listings.get(folder.ino)
        if flight is None:
            if self._nursery is None:  # an upload may continue for a moment after the mount
                raise Interrupted("listing a folder: zonedrive is ending")
            flight = self._listings.begin(folder.ino, _Listing())
            job = self._state.supervisor.job
            self._nursery.start_soon(job, Task.LISTING, self._fetch, folder, flight)
        return flight

    def _awaited(self, folder: Inode) -> _Listing:
        """Return the folder's listing in progress; start a listing if none is in progress.

        The listing is merged as soon as it arrives, because a program waits for it.
        """
        flight = self._flight(folder)
        flight.awaited = True
        self._merging.merge_waiting()
        return flight

    async def _fetch(self, folder: Inode, flight: _Listing) -> None:
        try:
            if folder.kind is Kind.ROOT:
                await self._fetch_zones(folder, flight)
            else:
                await self._fetch_folder(folder, flight)
        except ZonedriveError as wrong:
            flight.error = wrong
        except OSError as wrong:
            log.warning("a listing could not be stored: %s", wrong)
            flight.error = wrong
        except Exception as wrong:
            log.exception("a listing could not be merged")
            flight.error = wrong
        finally:
            self._listings.end(folder.ino)
        if folder.ino == ROOT:
            refused = flight.error
            self._zones_refused = refused.line() if isinstance(refused, Forbidden) else ""
        if flight.error is not None and not isinstance(flight.error, NotFound | Forbidden):
            self._quiet_until = time.monotonic() + TROUBLE_S
        self._walks.landed(folder.ino)

    def _wanted(self, folder: Inode) -> bool:
        """Return True if prefetching the listing of the folder is useful."""
        if folder.is_new or not self._state.inodes.is_here(folder):
            return False
        is_expiring = self._fresh_for(folder.ino) < self._state.settings.refresh * RENEWED
        return is_expiring or not folder.listed

    def _spare(self) -> int:
        """Return the number of listings that may be prefetched now; 0 or less means none."""
        service, is_ending = self._service, self._nursery is None
        if is_ending or service.link.state != "online" or time.monotonic() < self._quiet_until:
            return 0
        asked = len(self._listings) - self._merging.waiting
        return service.places - max(asked, service.underway) - RESERVED

    async def _list_tops(self) -> None:
        """Prefetch the listing of each zone's top folder if there is none yet, one after the other.

        A user can then write into a zone even if the service becomes unreachable. The next access
        to the zone requests a new listing.
        """
        try:
            await self._listings.wait(ROOT)
            for zone in [*self._state.inodes.inodes_in(ROOT)][:TOPS]:
                await trio.lowlevel.checkpoint_if_cancelled()  # the mount may have ended
                if zone.kind is not Kind.ZONE or zone.listed or zone.ino in self._closed:
                    continue
                while not self._is_calm():
                    if self._service.link.state != "online":
                        return
                    await trio.sleep(LOOK_S)
                if zone.parent != NOWHERE and not zone.listed:
                    await (flight := self._flight(zone)).wait()
                    if not flight.awaited:
                        self.forget(zone.ino)
                    if isinstance(flight.error, Forbidden | NotFound):
                        self._closed[zone.ino] = None
        finally:
            self._listing_tops = False

    def _is_calm(self) -> bool:
        """Return True if the top folder of a zone may be prefetched now.

        The service must be reachable, with no failed listing in the last TROUBLE_S seconds. If the
        service allows more than RESERVED requests at a time, there must be spare capacity;
        otherwise no other request may be running.
        """
        service = self._service
        if service.places > RESERVED or service.link.state != "online":
            return self._spare() > 0
        quiet = time.monotonic() >= self._quiet_until
        return quiet and not max(len(self._listings), service.underway)

    async def _fetch_zones(self, root: Inode, flight: _Listing) -> None:
        is_asked = not self._service.can("levels") or ROOT in self._levels
        if not is_asked and self._nursery is not None:  # both requests run at the same time
            self._levels.begin(ROOT, Flight())
            job = self._state.supervisor.job
            self._nursery.start_soon(job, Task.LEVELS, self._fetch_levels)
        until = trio.current_time() + LEVELS_S
        listed = await self._service.listed_zones()
        with trio.move_on_at(until):
            await self._levels.wait(ROOT)
        await self._merging.merge_zones(
            root, flight.asked_ns, listed.zones, unsure=listed.unsure, complete=listed.complete
        )
        self._merged(ROOT, flight)

    async def _fetch_levels(self) -> None:
        """Fetch the user's access levels, and store the zones where the user may only add entries.

        If the request fails, the known levels are kept.
        """
        state = self._state
        try:
            levels = await self._service.levels()
            add_only = frozenset(zone for zone, level in levels.items() if level == ADD)
            state.rules = msgspec.structs.replace(state.rules, add_only=add_only)
        except ZonedriveError as wrong:
            log.info("the access levels of the zones could not be read: %s", wrong)
        finally:
            self._levels.end(ROOT)

    async def _fetch_folder(self, folder: Inode, flight: _Listing) -> None:
        state, remote_id = self._state, folder.entry_id
        flight.remote_id = remote_id
        if not folder.is_folder:  # an answer has given a file the id of a folder
            raise BadAnswer("listing a folder: the service shows a file")
        try:
            listed = await self._service.listed(folder.zone, remote_id)
        except NotFound as missing:
            is_zone_lost = missing.code == UNKNOWN_ZONE
            above = state.inodes.find(ROOT if is_zone_lost else folder.parent)
            if above is not None and above.ino not in self._listings:
                self.forget(above.ino)  # its listing still contains the folder or the zone
                if above.ino == ROOT and flight.awaited:
                    self._flight(above)  # programs may use only folders in the zone
            raise
        if not state.inodes.is_here(folder) or folder.remote_id != remote_id:
            return
        if listed.complete:
            await self.following.all_missing(folder, listed.ids, flight.asked_ns)
            if not state.inodes.is_here(folder) or folder.remote_id != remote_id:
                return
        await self._merging.merge(folder, flight.asked_ns, listed, urgent=flight.awaited)
        if folder.remote_id != remote_id:
            return
        if self._nursery is not None and self._merging.claim_checkpoint():
            work = self._merging.checkpoint
            self._nursery.start_soon(state.supervisor.job, Task.DATABASE_LOG, work)
        self._merged(folder.ino, flight)
        before, self._listed = self._listed, self._listed + len(listed.ids)
        if before // LARGE < self._listed // LARGE and self._nursery is not None:
            self._nursery.start_soon(state.supervisor.job, Task.FREED_MEMORY, _give_back)

    def _tell(self, folder: int, merged: Merged) -> None:
        """Report the changes of a merged listing to the kernel, the outbox and the log."""
        state, before = self._state, self._unclear.pop(folder, Merged())
        if merged.unsure not in (0, before.unsure):
            log.warning("the service sends no valid id, kind or size of %d entries of a folder:"
                        " they stay as they are", merged.unsure)  # fmt: skip
        if merged.unshown not in (0, before.unshown):
            log.warning("%d entries of a folder are not shown: the service sends no valid id,"
                        " kind or size", merged.unshown)  # fmt: skip
        if merged.unsure or merged.hidden:
            self._unclear[folder] = Merged(
                unsure=merged.unsure, unshown=merged.unshown, hidden=merged.hidden
            )
        remote_operations.queue_invalidations(state, merged)
        if merged.changed:
            state.retry_failed_in(folder)
        for _, _, ino in merged.gone:
            inode = state.inodes.find(ino)
            if inode is not None:
                state.release_if_unreferenced(inode)

    def _merged(self, ino: int, flight: _Listing) -> None:
        self._asked_ns[ino] = flight.asked_ns, flight.aged_from_ns
        # Excludes time in suspend, so that a suspend does not prolong the trust in a listing.
        self._took_s[ino] = (time.monotonic_ns() - flight.asked_ns) / 1e9
        self._state.listing_merged.notify(ino)

    def _drop(self, ino: int) -> None:
        """Delete the records of a folder that has left the tree."""
        self._asked_ns.pop(ino, None)
        self._took_s.pop(ino, None)
        self._unclear.pop(ino, None)


def clocks_ns() -> tuple[int, int]:
    """Return the current time by the monotonic clock and by the clock of `since_boot_ns`."""
    return time.monotonic_ns(), since_boot_ns()


async def _give_back() -> None:
    await trio.to_thread.run_sync(memory.give_back)
