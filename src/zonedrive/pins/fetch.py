"""Background download of missing or outdated pinned files into the cache.

`pins` determines which entries are pinned, and the cache (`Cache.complete`) fetches the bytes.

The command `pin` fetches content with `PinFetcher.fetch`, and waits for the result. The background
task `run` begins a pass over the pinned files at the start, every RECHECK_S seconds, and after the
listing of a pinned folder has changed. A pass that was not completed is repeated when the service
is online again. `poll` lists the pinned folders regularly, even if no program uses them.

A file or folder that always fails does not delay the others. A pass stops early only if the service
is not online, or if TROUBLE items failed in a row because of the service. In the next pass, the
files that failed because of the service come after those without such a failure.

INVARIANT: fetching for pins uses at most half of the concurrent transfers (but at least one), so
that the others remain free for content that programs wait for.
"""

import errno
import logging
import math
import time
from array import array
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Literal

import msgspec
import trio

from zonedrive.errors import (
    Changed,
    NotFound,
    NotLoggedOn,
    Unavailable,
    Unreachable,
    ZonedriveError,
)
from zonedrive.pins.pins import Pins
from zonedrive.pins.poll import PASS_S, TROUBLE, PinPoller
from zonedrive.remote.service import Service
from zonedrive.state.inode import NOWHERE, Inode
from zonedrive.state.local_state import LocalState
from zonedrive.supervisor import Task
from zonedrive.sync.directory_cache import DirectoryCache
from zonedrive.translation import marked

log = logging.getLogger(__name__)

TRIES = 3  # attempts for a file that changes during the fetch
YIELD = 100  # names processed between checkpoints

MOST_REASONS = 10_000
# Seconds between two checks of all pins. Damage or another program may have removed cached files.
RECHECK_S = 3600.0
# Seconds to wait before a pass, after one pass and after many passes in which every request failed.
FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 60.0

Asked = Literal["all", "unlisted", "none"]
"""Folders to list on the service.

"all" means the folders whose listing is older than the setting `refresh`, "unlisted" means only the
folders that were never listed, and "none" means no folder.
"""

NO_ROOM = marked("there is no room for it: cache_size or the disk is too small")


class Failed(msgspec.Struct, frozen=True):
    """File or folder that could not be fetched, with the text of its last error ("" if none)."""

    path: str
    error: str


class PinProgress(msgspec.Struct, eq=False):
    """Progress of one pass over pinned entries, with the failures."""

    files: int = 0  # number of files found
    bytes: int = 0  # total size of these files
    here: int = 0  # number of files that can be read offline
    here_bytes: int = 0  # total size of the files that can be read offline
    unlisted: int = 0  # number of folders that were never listed, whose files are unknown
    failed: list[Failed] = []
    away: ZonedriveError | None = None  # reason why the pass sends no further request
    answered: bool = False  # True if a request succeeded
    # By path: the last failures in a row, perhaps because the service is unreachable.
    unexplained: dict[str, ZonedriveError] = {}

    def note_success(self) -> None:
        """Record a successful request, and move the failures in `unexplained` to `failed`.

        The successful request shows that the service is reachable, so each of these failures
        concerns only one file or folder.
        """
        self.answered = True
        self.failed += [Failed(path, wrong.message) for path, wrong in self.unexplained.items()]
        self.unexplained.clear()

    def end(self) -> None:
        """Finish the pass, and decide whether the service caused the failures in `unexplained`.

        If `away` is already set, discard these failures. Otherwise, move them to `failed` if any
        request of the pass succeeded. If no request succeeded, the service counts as unreachable,
        and `away` is set to the last of these failures.
        """
        if self.away is None and self.answered:
            self.note_success()
        elif self.away is None and self.unexplained:
            self.away = [*self.unexplained.values()][-1]
        self.unexplained.clear()


class PinFetcher:
    """Background fetcher for an account's pinned files."""

    def __init__(
        self, state: LocalState, service: Service, folders: DirectoryCache, pins: Pins
    ) -> None:
        self._state = state
        self._service = service
        self._folders = folders
        self._pins = pins
        self._wake = trio.Event()
        self._whole = bool(pins)  # True if all pins are to be checked
        self._running: set[tuple[int, trio.CancelScope]] = set()  # downloads, with their inos
        self._changed: set[int] = set()  # folders with new entries
        # By folder: its stamp at the last check, and the time of the next attempt after failures.
        self._checked: dict[int, tuple[object, float]] = {}
        # By ino: revision that the cache could not store, and the free space that it needs, or 0
        # after an error of the disk.
        self._unstored: dict[int, tuple[str, int]] = {}
        self._try_last: set[int] = set()  # files that failed because of the service
        self._reasons: dict[int, str] = {}  # by ino: last error, for up to MOST_REASONS files
        half = max(1, state.settings.transfers // 2)
        self._width, self._asking = trio.CapacityLimiter(half), trio.CapacityLimiter(half)
        self._poller = PinPoller(state, service, folders, pins, self._asking)
        pins.changes.add(self._reconsider)
        state.listing_merged.add(self._listed)

    def _listed(self, ino: int) -> None:
        """Schedule a check of the folder `ino` if its new listing concerns a pin.

        Called after the new listing was merged into the local state.
        """
        if not self._pins:
            return
        if self._pins.find_returned():
            self.request_check()
        if not self._pins.concerns(ino):
            self._checked.pop(ino, None)
        elif self._has_news(ino):
            self._changed.add(ino)
            self._wake.set()

    def request_check(self) -> None:
        """Make `run` check all pins soon."""
        self._whole = True
        self._wake.set()

    def _reconsider(self) -> None:
        """Discard all results of earlier checks, and stop downloads that are not needed any more.

        Called after a pin was added or removed, because other files may then fit into the cache.
        """
        for ino, scope in self._running:
            if ino not in self._pins:
                scope.cancel()
        self._unstored.clear()
        self._try_last.clear()
        self._reasons.clear()
        self._checked.clear()

    def _has_news(self, folder: int) -> bool:
        """Return True if a folder must be checked.

        A folder must be checked if it was never checked, if its `_stamp` differs from that of the
        last check, or if a retry is due (see `_try_again`).
        """
        stamp, again_at = self._checked.get(folder, (None, math.inf))
        return stamp != self._stamp(folder) or trio.current_time() >= again_at

    def _note_checked(self, folder: int) -> None:
        self._checked[folder] = self._stamp(folder), math.inf

    def _stamp(self, folder: int) -> object:
        """Return a value that changes if a folder's entries change or content may be missing.

        Content may be missing after a folder was moved into a pinned folder, because the cache may
        have evicted the content before the move. Content may also be missing after the cache has
        lost all content.
        """
        inodes = self._state.inodes
        return inodes.changes(folder), inodes.moves, self._state.cache.epoch

    async def run(self) -> None:
        """Poll the pinned folders and fetch missing pinned files until cancelled."""
        async with trio.open_nursery() as nursery:
            keep = self._state.supervisor.keep
            nursery.start_soon(keep, Task.PINNED_FOLDERS, self._poller.run)
            nursery.start_soon(keep, Task.PINNED_FILES, self._run_passes)

    async def _run_passes(self) -> None:
        """Run a pass whenever there is something to check and the service is online."""
        link = self._service.link
        recheck_at = trio.current_time() + RECHECK_S
        pause_s = 0.0  # wait before the next pass; grows while no request of a pass succeeds
        while True:
            if trio.current_time() >= recheck_at:
                recheck_at = trio.current_time() + RECHECK_S
                self._whole = self._whole or bool(self._pins)
            elif not (self._whole or self._changed):
                with trio.move_on_at(recheck_at):
                    await self._wake.wait()
                    self._wake = trio.Event()
            elif (now := link.state) != "online":
                await link.wait_other(now)
            else:
                await trio.sleep(pause_s)
                progress = await self._pass()
                if progress.away is None:
                    pause_s = 0.0
                    continue
                self._whole = True
                # If only downloads fail, a probe makes the state `online` again at once.
                longer_s = min(LONGEST_PAUSE_S, 2 * pause_s or FIRST_PAUSE_S)
                pause_s = 0.0 if progress.answered else longer_s
                if link.state == "online":  # the service has a problem
                    with trio.move_on_after(PASS_S):
                        await link.wait_change()

    async def _pass(self) -> PinProgress:
        """Fetch the missing files of all pins, or of the changed folders only.

        A file that failed, but not because of a problem of the service, is tried again after the
        poller has listed the file's folder in its next round.
        """
        whole, self._whole = self._whole, False
        changed, self._changed = self._changed, set()
        progress = PinProgress()
        try:
            self._pins.update_inodes()
            inos: Iterable[int]
            if whole:
                inos = [inode.ino for inode in self._pins.roots()]
            else:
                changed = {ino for ino in changed if self._has_news(ino)}
                inside = self._pins.pinned_themselves_in(changed)
                for each in inside:
                    self._note_checked(each.parent)
                inos = {ino for ino in changed if ino in self._pins} | {each.ino for each in inside}
            await self._fetch_all(inos, progress, deep=whole, ask="unlisted")
        except Exception:  # a bug in one task must not end the mount
            log.warning("cannot check pinned files", exc_info=True)
            self._checked.clear()
        if progress.failed:
            log.info("%d pinned files could not be fetched", len(progress.failed))
        return progress

    async def fetch(self, inode: Inode, progress: PinProgress) -> None:
        """Fetch the missing content of a pinned inode and of everything below it.

        First list the folders whose listing is older than the setting `refresh`. Record results and
        failures in `progress`; a failure raises no exception.
        """
        await self._fetch_all([inode.ino], progress, deep=True, ask="all")

    async def count(self, inode: Inode, most: int) -> PinProgress:
        """Count the files at and below an inode, and the folders that were never listed.

        Also count the files that can be read offline. Send no request. In the result, `failed`
        lists up to `most` missing files, each with its last error ("" if there was none).
        """
        progress = PinProgress()
        async for ino in self._files([inode.ino], progress, deep=True, ask="none"):
            if not self._count(ino, progress) and len(progress.failed) < most:
                path, why = self._state.inodes.path(ino), self._reasons.get(ino, "")
                progress.failed.append(Failed(path, why))
        return progress

    async def _fetch_all(
        self, inos: Iterable[int], progress: PinProgress, *, deep: bool, ask: Asked
    ) -> None:
        """Count the files at and below the inodes `inos`, then fetch the missing ones.

        Files that failed because of the service come after those without such a failure, and files
        that the cache could not store come last. Concurrent downloads can leave no room for each
        other, although some of the files fit. So a file that finds no room is tried again after
        the downloads have ended.
        """
        missing, late, unstored = array("q"), array("q"), array("q")  # there may be millions
        async for ino in self._files(inos, progress, deep=deep, ask=ask):
            if self._count(ino, progress):
                if ino in self._reasons:  # a program has read it after a failed attempt
                    self._note_arrival(ino)
                continue
            self._pins.content_changes.notify(ino)
            if self._space_needed(ino) is not None:
                unstored.append(ino)
            elif ino in self._try_last:
                late.append(ino)
            else:
                missing.append(ino)
        crowded = array("q")
        await self._each(lambda ino: self._fetch(ino, progress, crowded), missing + late)
        await self._fetch_fitting(crowded + unstored, progress)
        progress.end()

    async def _files(
        self, inos: Iterable[int], progress: PinProgress, *, deep: bool, ask: Asked
    ) -> AsyncIterator[int]:
        """Yield the inode number of each file at or below the inodes `inos`.

        The folders that `ask` selects are first listed on the service. Failures are recorded in
        `progress`. If `deep` is False, subfolders that are unchanged since the last check are
        skipped.
        """
        inodes = self._state.inodes
        newer_than = time.monotonic_ns() - int(self._state.settings.refresh * 1e9)

        async def refresh(ino: int) -> None:  # unless the folder was removed or unpinned meanwhile
            if ino in self._pins and (ask == "all" or not inodes.get(ino).listed):
                await self._refresh(ino, newer_than, progress)

        level: list[int] = []  # folders
        for inode in inodes.get_all(inos):
            if inode.is_folder:
                level.append(inode.ino)
            else:
                yield inode.ino
        while level:
            folders, level = level, []
            if ask != "none":
                await self._each(refresh, folders)
            for ino in folders:
                folder = inodes.find(ino)
                if folder is None or folder.parent == NOWHERE:
                    continue
                if ask != "none":
                    self._note_checked(ino)
                progress.unlisted += not (folder.listed or folder.is_new or folder.local)
                numbers = inodes.numbers_in(ino)
                for start in range(0, len(numbers), YIELD):
                    for child in inodes.get_all(numbers[start : start + YIELD]):
                        if not child.is_folder:
                            yield child.ino
                        elif deep or self._has_news(child.ino):
                            level.append(child.ino)
                    await trio.lowlevel.checkpoint()

    async def _refresh(self, ino: int, newer_than_ns: int, progress: PinProgress) -> None:
        """List a folder if its listing is older than `newer_than_ns` (monotonic clock).

        Record a failure in `progress`.
        """
        folder = self._state.inodes.find(ino)
        if folder is None or folder.is_new or folder.local or self._is_away(progress):
            return
        try:
            async with self._asking:
                await self._folders.refresh(folder, newer_than_ns)
            progress.note_success()
        except NotFound:
            return  # deleted in the meantime
        except (ZonedriveError, OSError) as wrong:
            self._failed(folder, wrong, progress)

    def _count(self, ino: int, progress: PinProgress) -> bool:
        """Count a file in `progress`, and return True if it can be read offline.

        A removed file is not counted; return True for such a file, too.
        """
        inode = self._state.inodes.find(ino)
        if not self._state.inodes.is_here(inode):
            return True
        here = self._state.is_readable_offline(inode)
        progress.files += 1
        progress.bytes += inode.size
        progress.here += here
        progress.here_bytes += inode.size if here else 0
        return here

    async def _fetch(
        self, ino: int, progress: PinProgress, crowded: "array[int] | None" = None
    ) -> None:
        """Fetch the current remote version of a file; record the result in `progress`.

        If there is no room for it, and `crowded` is given, add the file to `crowded` instead of
        recording a failure.
        """
        state = self._state
        inode = None
        for _ in range(TRIES):
            inode = state.inodes.find(ino)
            if not state.inodes.is_here(inode) or inode.generation:
                return
            if ino not in self._pins:
                return  # unpinned, or moved out of the pinned folder
            if self._is_away(progress):
                return
            revision, size = inode.revision, inode.size
            try:
                if size > state.cache.quota.limit:
                    raise OSError(errno.ENOSPC, marked("larger than the cache"))
                with trio.CancelScope() as scope:
                    self._running.add((ino, scope))
                    try:
                        await state.cache.complete(ino, revision, size, state.source(inode))
                    finally:
                        self._running.discard((ino, scope))
                if scope.cancelled_caught:
                    return
            except Changed:
                await self._refresh(inode.parent, time.monotonic_ns(), progress)
                continue
            except (ZonedriveError, OSError) as wrong:
                if crowded is not None and _is_no_room(wrong):
                    self._drop_partial(inode, inode.size)
                    crowded.append(ino)
                else:
                    self._failed(inode, wrong, progress)
                return
            progress.here += 1
            progress.here_bytes += size
            progress.note_success()
            self._note_arrival(ino)
            return
        if inode is not None:
            self._give_up(inode, marked("it keeps changing on the service"), progress)

    def _note_arrival(self, ino: int) -> None:
        """Forget the failures of a file whose content has arrived; notify `content_changes`."""
        self._pins.content_changes.notify(ino)
        self._try_last.discard(ino)
        self._reasons.pop(ino, None)
        self._unstored.pop(ino, None)

    def _space_needed(self, ino: int) -> int | None:
        """Return the free space (bytes) that a file needs, 0 after an error of the disk, or None.

        The result is None unless the cache could not store the file's current version.
        """
        inode = self._state.inodes.find(ino)
        revision, needed = self._unstored.get(ino, (None, 0))
        return needed if inode is not None and revision == inode.revision else None

    async def _fetch_fitting(self, inos: Iterable[int], progress: PinProgress) -> None:
        """Fetch, one after the other, files that the cache could not store but that fit now.

        If a file still does not fit, although enough space seemed to be free, the next attempt is
        made when more space is free. Once an attempt fails with an error of the disk, the other
        files whose last attempt ended with such an error are skipped. Computing the free space
        takes long if the cache has many files, so the computation is not repeated after a success.
        """
        cache, room, fails = self._state.cache, None, False
        for ino in inos:
            if progress.away is not None:
                return
            if room is None:
                room = await cache.quota.room()
            inode = self._state.inodes.find(ino)
            if inode is None or ino not in self._pins:
                continue
            needed = self._space_needed(ino)
            if needed is not None and (room < needed or (fails and not needed)):
                why = NO_ROOM if needed else self._reasons.get(ino, NO_ROOM)
                self._give_up(inode, why, progress)
                continue
            await self._fetch(ino, progress)
            if cache.is_complete(ino, inode.revision):
                room -= inode.size
                continue
            room = await cache.quota.room()
            if (needed := self._space_needed(ino)) is not None:
                self._unstored[ino] = inode.revision, needed and max(needed, room + 1)
                fails = fails or not needed

    def _failed(self, inode: Inode, wrong: Exception, progress: PinProgress) -> None:
        if isinstance(wrong, NotLoggedOn):
            progress.away = wrong
            return
        if isinstance(wrong, Unreachable | Unavailable):
            self._try_last.add(inode.ino)
            self._try_again(inode, wrong.message)
            progress.unexplained[self._state.inodes.path(inode.ino)] = wrong
            if len(progress.unexplained) >= TROUBLE or self._service.link.state != "online":
                progress.away = progress.away or wrong
            return
        said = wrong.message if isinstance(wrong, ZonedriveError) else str(wrong)
        if isinstance(wrong, OSError):
            said, needed = NO_ROOM, inode.size
            if not _is_no_room(wrong):
                needed = 0
                said = marked(
                    f"the cache folder cannot be written ({wrong.strerror}); see 'zonedrive doctor'"
                )
            self._drop_partial(inode, needed)
        self._give_up(inode, said, progress)

    def _drop_partial(self, inode: Inode, needed: int) -> None:
        """Drop a partial file, which would only use up space; record the space that it needs."""
        self._state.cache.drop(inode.ino)
        self._unstored[inode.ino] = inode.revision, needed

    def _give_up(self, inode: Inode, why: str, progress: PinProgress) -> None:
        self._try_again(inode, why)
        progress.failed.append(Failed(self._state.inodes.path(inode.ino), why))

    def _try_again(self, inode: Inode, why: str) -> None:
        """Record the error text `why` of an inode; allow a new attempt after PASS_S / 2 seconds.

        The delay prevents an attempt before the poller's next round.
        """
        if len(self._reasons) < MOST_REASONS:
            self._reasons[inode.ino] = why
        if (checked := self._checked.get(inode.parent)) is not None:
            self._checked[inode.parent] = checked[0], trio.current_time() + PASS_S / 2

    def _is_away(self, progress: PinProgress) -> bool:
        """Return True if the pass must send no further request.

        `progress.away` then contains the reason, which is set here if the service is not online.
        """
        link = self._service.link
        if progress.away is None and link.state != "online":
            progress.away = link.last_error or Unreachable("the service is offline")
        return progress.away is not None

    async def _each(self, work: Callable[[int], Awaitable[None]], inos: Iterable[int]) -> None:
        """Run `work` for each inode number in concurrent workers, and wait for all workers."""
        left = iter(inos)

        async def worker() -> None:
            for ino in left:
                async with self._width:
                    await work(ino)

        async with trio.open_nursery() as nursery:
            for _ in range(int(self._width.total_tokens)):
                nursery.start_soon(worker)


def _is_no_room(wrong: Exception) -> bool:
    return isinstance(wrong, OSError) and wrong.errno in (errno.ENOSPC, errno.EDQUOT)
