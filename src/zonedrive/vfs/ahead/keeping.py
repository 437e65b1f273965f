"""Keeps what is pinned here: fetches what is missing, and hears of what appears.

Must not know the kernel, nor how bytes are fetched; which entries are pinned is told by `pins`.

Who looks after them: the command that pins, as long as its person waits; beside it `run`, at the
start, when a listing of a pinned folder brought something new, and when the service is back.
Pinned folders count as folders in use: `rounds` has them listed, whoever else does not.

A file or folder that the service always fails at hinders no other: the rest is put off only where
the service is away, or TROUBLE of them failed in a row; and the next pass comes to these last.

INVARIANT: fetching for pins takes at most half of the connections: people wait for the others.
"""

import errno
import logging
import math
import time
from array import array
from collections.abc import Awaitable, Callable, Iterable
from typing import Literal

import msgspec
import trio

from zonedrive.content.source import Changed
from zonedrive.errors import NotFound, NotLoggedOn, Unavailable, Unreachable, ZonedriveError
from zonedrive.remote.service import Service
from zonedrive.supervisor import Task
from zonedrive.tree.inode import NOWHERE, Inode
from zonedrive.vfs.ahead.pins import Pins
from zonedrive.vfs.ahead.rounds import PASS_S, TROUBLE, Rounds
from zonedrive.vfs.core import Core
from zonedrive.vfs.listings.folders import Folders

log = logging.getLogger(__name__)

TRIES = 3  # of a file that changes while it is fetched
YIELD = 100  # names after which others get their turn

Asked = Literal["all", "unlisted", "none"]
"""Which folders the service is asked for: all, as far as they are older than `refresh`."""

NO_ROOM = "there is no room for it: cache_size or the disk is too small"


class Failed(msgspec.Struct, frozen=True):
    """A file or folder that could not be brought."""

    path: str
    error: str


class Tally(msgspec.Struct, eq=False):
    """How far a pass over pins is."""

    files: int = 0
    bytes: int = 0
    here: int = 0  # of the files
    here_bytes: int = 0
    failed: list[Failed] = []
    away: ZonedriveError | None = None  # why the rest cannot be asked for now
    answered: bool = False  # whether the service gave anything
    vain: dict[str, ZonedriveError] = {}  # by path, the last failures in a row: is it away?

    def gave(self) -> None:
        """The service is there: what failed did so by itself."""
        self.answered = True
        self.failed += [Failed(path, str(wrong)) for path, wrong in self.vain.items()]
        self.vain.clear()

    def end(self) -> None:
        """Nothing more is tried."""
        if self.away is None and self.answered:
            self.gave()
        elif self.away is None and self.vain:
            self.away = [*self.vain.values()][-1]
        self.vain.clear()


class Keeping:
    """Looks after the pins of an account."""

    def __init__(self, core: Core, service: Service, folders: Folders, pins: Pins) -> None:
        self._core = core
        self._service = service
        self._folders = folders
        self._pins = pins
        self._wake = trio.Event()
        self._whole = bool(pins)  # whether everything is to be looked at
        self._changed: set[int] = set()  # folders with something new
        self._seen: dict[int, int] = {}  # the count of changes that a folder had when looked at
        self._again: dict[int, float] = {}  # folders with failures, and when to try once more
        # By ino: the revision there was no room for, and the ceiling at which there may be.
        self._hopeless: dict[int, tuple[str, int]] = {}
        self._late: set[int] = set()  # files that the service failed at
        half = max(1, core.settings.transfers // 2)
        self._width, self._asking = trio.CapacityLimiter(half), trio.CapacityLimiter(half)
        self._rounds = Rounds(core, service, folders, pins, self._asking)
        pins.changes.add(self._reconsider)
        core.listing_merged.add(self._listed)

    def _listed(self, ino: int) -> None:
        """A listing of that folder has been merged."""
        if not self._pins:
            return
        if self._pins.woken():
            self.look()
        if not self._pins.concerns(ino):
            self._seen.pop(ino, None)
            self._again.pop(ino, None)
        elif self._news(ino):
            self._changed.add(ino)
            self._wake.set()

    def look(self) -> None:
        """Look at everything soon."""
        self._whole = True
        self._wake.set()

    def _reconsider(self) -> None:
        """There may be room, or need, for what there was not."""
        self._hopeless.clear()
        self._late.clear()
        self._forget()

    def _news(self, ino: int) -> bool:
        due = trio.current_time() >= self._again.get(ino, math.inf)
        return due or self._seen.get(ino) != self._core.tree.changes(ino)

    def _look_into(self, folder: int) -> None:
        self._seen[folder] = self._core.tree.changes(folder)
        self._again.pop(folder, None)

    def _forget(self) -> None:
        self._seen.clear()
        self._again.clear()

    async def run(self) -> None:
        """Keep what is pinned complete, until cancelled."""
        async with trio.open_nursery() as nursery:
            keep = self._core.supervisor.keep
            nursery.start_soon(keep, Task.PINNED_FOLDERS, self._rounds.run)
            nursery.start_soon(keep, Task.PINNED_FILES, self._keep)

    async def _keep(self) -> None:
        link = self._service.link
        while True:
            if not (self._whole or self._changed):
                await self._woken()
            elif (state := link.state) != "online":
                await link.wait_other(state)
            elif not await self._pass() and link.state == "online":  # it is in trouble
                with trio.move_on_after(PASS_S):
                    await link.wait_change()

    async def _woken(self) -> None:
        await self._wake.wait()
        self._wake = trio.Event()

    async def _pass(self) -> bool:
        """Do what has come to be due; False where the service cannot be asked for it now.

        What could not be brought for another reason is tried again at the next round.
        """
        whole, self._whole = self._whole, False
        changed, self._changed = self._changed, set()
        tally = Tally()
        try:
            self._pins.follow()
            if whole:
                inos = [inode.ino for inode in self._pins.roots()]
                await self._bring(inos, tally, deep=True, ask="unlisted")
            else:
                changed = {ino for ino in changed if self._news(ino)}
                await self._bring(self._pinned_in(changed), tally, deep=False, ask="unlisted")
        except Exception:  # one of several tasks may have failed: the mount goes on
            log.warning("pinned files could not be looked at", exc_info=True)
            self._forget()
        if tally.failed:
            log.info("%d pinned files could not be brought here", len(tally.failed))
        self._whole = self._whole or tally.away is not None
        return tally.away is None

    def _pinned_in(self, folders: set[int]) -> set[int]:
        """What is pinned of folders that have changed: all of it, or single files."""
        pinned = {ino for ino in folders if ino in self._pins}
        for inode in self._pins.single(folders):
            self._look_into(inode.parent)
            pinned.add(inode.ino)
        return pinned

    async def bring(self, inode: Inode, tally: Tally) -> None:
        """Bring what is pinned with this inode; what comes of it is in `tally` as it comes."""
        await self._bring([inode.ino], tally, deep=True, ask="all")

    async def count(self, inode: Inode) -> Tally:
        """How much of it is here, without asking the service."""
        tally = Tally()

        def found(ino: int) -> None:
            self._is_here(ino, tally)

        await self._walk([inode.ino], tally, found, deep=True, ask="none")
        return tally

    async def _bring(self, inos: Iterable[int], tally: Tally, *, deep: bool, ask: Asked) -> None:
        missing, late = array("q"), array("q")  # there may be millions

        def found(ino: int) -> None:
            if not self._is_here(ino, tally):
                (late if ino in self._late else missing).append(ino)

        await self._walk(inos, tally, found, deep=deep, ask=ask)
        missing.extend(late)

        async def fetch(ino: int) -> None:
            await self._fetch(ino, tally)

        await self._each(fetch, missing)
        tally.end()

    async def _walk(
        self,
        inos: Iterable[int],
        tally: Tally,
        found: Callable[[int], None],
        *,
        deep: bool,
        ask: Asked,
    ) -> None:
        """Go through the files in these places; not `deep`: in what was not looked into yet."""
        tree = self._core.tree
        newer_than = time.monotonic_ns() - int(self._core.settings.refresh * 1e9)
        level: list[int] = []

        def sort(inode: Inode | None) -> None:
            if inode is not None and inode.parent != NOWHERE:
                (level.append if inode.is_folder else found)(inode.ino)

        async def refresh(ino: int) -> None:
            folder = tree.find(ino)
            if folder is not None and not (folder.listed and ask == "unlisted"):
                await self._refresh(ino, newer_than, tally)

        for ino in inos:
            sort(tree.find(ino))
        while level:
            folders, level = level, []
            if ask != "none":
                await self._each(refresh, folders)
            for folder in folders:
                self._look_into(folder)
                numbers = tree.numbers_in(folder)
                for start in range(0, len(numbers), YIELD):
                    for child in tree.get_all(numbers[start : start + YIELD]):
                        if not child.is_folder or deep or child.ino not in self._seen:
                            sort(child)
                    await trio.lowlevel.checkpoint()

    async def _refresh(self, ino: int, newer_than_ns: int, tally: Tally) -> None:
        """List a folder, if its listing is older than that (monotonic)."""
        folder = self._core.tree.find(ino)
        if folder is None or folder.parent == NOWHERE or folder.is_new or folder.local:
            return
        if tally.away is None:
            tally.away = self._away()
        if tally.away is not None:
            return
        try:
            async with self._asking:
                await self._folders.refresh(folder, newer_than_ns)
            tally.gave()
        except NotFound:
            return  # gone meanwhile
        except (ZonedriveError, OSError) as wrong:
            self._failed(folder, wrong, tally)

    def _is_here(self, ino: int, tally: Tally) -> bool:
        """Count a file; whether it can be read without the service."""
        inode = self._core.tree.find(ino)
        if inode is None or inode.parent == NOWHERE:
            return True
        cache = self._core.cache
        here = (
            inode.size == 0
            or inode.is_new
            or bool(inode.generation)
            or cache.is_complete(ino, inode.revision)
        )
        tally.files += 1
        tally.bytes += inode.size
        tally.here += here
        tally.here_bytes += inode.size if here else 0
        return here

    async def _fetch(self, ino: int, tally: Tally) -> None:
        """Bring one file, in the version that the service has by then."""
        core = self._core
        inode = None
        for _ in range(TRIES):
            inode = core.tree.find(ino)
            if inode is None or inode.parent == NOWHERE or inode.generation:
                return
            tally.away = tally.away or self._away()
            if tally.away is not None:
                return
            revision, size = inode.revision, inode.size
            if self._is_hopeless(inode):
                self._give_up(inode, NO_ROOM, tally)
                return
            try:
                if size > core.cache.limit:
                    raise OSError(errno.ENOSPC, "larger than the cache")
                await core.cache.complete(ino, revision, size, core.source(inode))
            except Changed:
                above = core.tree.get(inode.parent)
                await self._refresh(above.ino, time.monotonic_ns(), tally)
                continue
            except (ZonedriveError, OSError) as wrong:
                self._failed(inode, wrong, tally)
                return
            tally.here += 1
            tally.here_bytes += size
            tally.gave()
            self._late.discard(ino)
            return
        if inode is not None:
            self._give_up(inode, "it changes all the time", tally)

    def _is_hopeless(self, inode: Inode) -> bool:
        """Whether there is as little room as when this version did not fit."""
        revision, needed = self._hopeless.get(inode.ino, ("", 0))
        return revision == inode.revision and self._core.cache.ceiling < needed

    def _failed(self, inode: Inode, wrong: Exception, tally: Tally) -> None:
        if isinstance(wrong, NotLoggedOn):
            tally.away = wrong
            return
        if isinstance(wrong, Unreachable | Unavailable):
            self._late.add(inode.ino)
            self._try_again(inode)
            tally.vain[self._core.tree.path(inode.ino)] = wrong
            if len(tally.vain) >= TROUBLE or self._service.link.state != "online":
                tally.away = tally.away or wrong
            return
        said = str(wrong)
        if isinstance(wrong, OSError) and wrong.errno == errno.ENOSPC:
            self._hopeless[inode.ino] = inode.revision, self._core.cache.ceiling + inode.size
            said = NO_ROOM
        self._give_up(inode, said, tally)

    def _give_up(self, inode: Inode, why: str, tally: Tally) -> None:
        self._try_again(inode)
        tally.failed.append(Failed(self._core.tree.path(inode.ino), why))

    def _try_again(self, inode: Inode) -> None:
        """At the next round: a folder that is in use is listed far more often."""
        self._again[inode.parent] = trio.current_time() + PASS_S / 2

    def _away(self) -> ZonedriveError | None:
        """Why nothing can be asked of the service now."""
        link = self._service.link
        if link.state == "online":
            return None
        return link.last_error or Unreachable("the service is offline")

    async def _each(self, work: Callable[[int], Awaitable[None]], inos: Iterable[int]) -> None:
        """Do it for all of them, some at a time."""
        left = iter(inos)

        async def worker() -> None:
            for ino in left:
                async with self._width:
                    await work(ino)

        async with trio.open_nursery() as nursery:
            for _ in range(int(self._width.total_tokens)):
                nursery.start_soon(worker)
