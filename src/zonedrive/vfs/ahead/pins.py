"""Pinned files and folders: what is in them is brought here, and stays.

Must not know the kernel, nor how bytes are fetched.  A pin is remembered as such, whatever lies
below it follows from the tree: so what appears in a pinned folder is pinned, too, and nothing
has to be kept in step.

Who looks after them: the command that pins, as long as its person waits; beside it `run`, at the
start, when a listing of a pinned folder brought something new, when the service is back, and
every PASS_S seconds.  Pinned folders count as folders in use, at that gentle interval.

INVARIANT: what lies in a pin is never evicted, from the first moment on.
INVARIANT: fetching for pins takes at most half of the connections: people wait for the others.
"""

import contextlib
import errno
import logging
import time
from collections.abc import Awaitable, Callable, Iterable

import msgspec
import trio

from zonedrive.content.source import Changed
from zonedrive.errors import NotFound, NotLoggedOn, Unavailable, Unreachable, ZonedriveError
from zonedrive.tree.inode import NOWHERE, ROOT, Inode
from zonedrive.tree.pins import Pin, PinStore
from zonedrive.vfs.core import Core
from zonedrive.vfs.listings.folders import Folders

log = logging.getLogger(__name__)

PASS_S = 300.0
TRIES = 3  # of a file that changes while it is fetched
YIELD = 100  # names after which others get their turn

NO_ROOM = "there is no room for it: cache_size or the disk is too small"


class Failed(msgspec.Struct, frozen=True):
    """A file or folder that could not be brought."""

    path: str
    error: str


class Tally(msgspec.Struct):
    """How far a pass over pins is."""

    files: int = 0
    bytes: int = 0
    here: int = 0  # of the files
    here_bytes: int = 0
    failed: list[Failed] = []
    away: ZonedriveError | None = None  # why the rest cannot be asked for now


class Pins:
    """The pins of an account."""

    def __init__(self, core: Core, folders: Folders) -> None:
        self._core = core
        self._folders = folders
        self._store = PinStore(core.database)
        self._roots: set[int] = set()
        self._beside: set[int] = set()  # folders of pinned files
        self._wake = trio.Event()
        self._whole = True  # whether everything is to be looked at
        self._changed: set[int] = set()  # folders with something new
        self._seen: dict[int, int] = {}  # the count of changes that a folder had when looked at
        self._hopeless: dict[int, str] = {}  # by ino, the revision there was no room for
        self._width = trio.CapacityLimiter(max(1, core.settings.connections // 2))
        self._follow()

    # ---- what is pinned ----

    def __contains__(self, ino: object) -> bool:
        """Whether an inode is pinned, or lies in something pinned."""
        return isinstance(ino, int) and bool(self._roots) and self.root_of(ino) is not None

    def root_of(self, ino: int) -> Inode | None:
        """What was pinned: the inode itself or the nearest folder above it."""
        tree = self._core.tree
        inode = tree.find(ino)
        while inode is not None and inode.parent != NOWHERE:
            if inode.ino in self._roots:
                return inode
            if inode.ino == ROOT:
                return None
            inode = tree.find(inode.parent)
        return None

    def roots(self) -> list[Inode]:
        """What was pinned and is there now, by path."""
        tree = self._core.tree
        self._follow()
        return sorted(map(tree.get, self._roots), key=lambda inode: tree.path(inode.ino))

    def add(self, inode: Inode) -> None:
        """Pin; bringing it here is `bring`'s, or is done in the background."""
        with self._core.transaction():
            self._store.put(Pin(inode.ino, inode.zone, inode.remote_id))
        self._hopeless.clear()
        self._follow()

    def remove(self, inode: Inode) -> None:
        """Let go of what `require` took for pinned."""
        with self._core.transaction():
            for pin in self._store.all():
                meant = self._inode_of(pin)
                if meant is not None and meant.ino == inode.ino:
                    self._store.drop(pin.ino)
        self._hopeless.clear()
        self._follow()

    def require(self, inode: Inode) -> None:
        """Raise ZonedriveError where an inode is not pinned itself."""
        self._follow()
        if inode.ino in self._roots:
            return
        above = self.root_of(inode.ino)
        if above is None:
            raise ZonedriveError("it is not pinned")
        raise ZonedriveError(
            f"it is kept with {self._core.tree.path(above.ino) or 'the whole mount'}",
            remedy="unpin that",
        )

    def _inode_of(self, pin: Pin) -> Inode | None:
        """What a pin means now; None where that is not known here (any more)."""
        tree = self._core.tree
        found = tree.by_remote(pin.zone, pin.remote_id) if pin.remote_id else None
        return found or tree.find(pin.ino)

    def _follow(self) -> None:
        """Let each pin stand where its entry is now.

        One whose entry is gone sleeps: the entry may be restored.  Without an id it can not.
        """
        roots = set()
        for pin in self._store.all():
            inode = self._inode_of(pin)
            if inode is not None and inode.parent != NOWHERE:
                roots.add(inode.ino)
                self._note(pin, Pin(inode.ino, inode.zone, inode.remote_id or pin.remote_id))
            elif inode is None and pin.remote_id is None:
                self._note(pin, None)
        self._roots = roots
        self._beside = {
            inode.parent for inode in self._core.tree.get_all(roots) if not inode.is_folder
        }

    def _note(self, pin: Pin, now: Pin | None) -> None:
        """Keep where a pin stands; on a full disk later."""
        if now == pin:
            return
        with contextlib.suppress(OSError), self._core.transaction():
            self._store.drop(pin.ino)
            if now is not None:
                self._store.put(now)

    # ---- bringing it here ----

    def listed(self, ino: int) -> None:
        """A listing of that folder has been merged."""
        if (ino in self or ino in self._beside) and self._news(ino):
            self._changed.add(ino)
            self._wake.set()

    def look(self) -> None:
        """Look at everything soon."""
        self._whole = True
        self._wake.set()

    def _news(self, ino: int) -> bool:
        return self._seen.get(ino) != self._core.tree.changes(ino)

    async def run(self) -> None:
        """Keep what is pinned complete, until cancelled."""
        link = self._core.service.link
        while True:
            while not self._store.all():
                await self._woken()
            if not (self._whole or self._changed):
                with trio.move_on_after(PASS_S) as pause:
                    await self._woken()
                self._whole = self._whole or pause.cancelled_caught
            if link.state == "online" and await self._pass():
                continue
            self._whole = True
            with trio.move_on_after(PASS_S):
                await link.wait_change()

    async def _woken(self) -> None:
        await self._wake.wait()
        self._wake = trio.Event()

    async def _pass(self) -> bool:
        """Do what has come to be due; False where the service cannot be asked for it now."""
        whole, self._whole = self._whole, False
        changed, self._changed = self._changed, set()
        tally = Tally()
        try:
            self._follow()
            if whole:
                await self._bring(sorted(self._roots), tally, deep=True)
            else:
                changed = {ino for ino in changed if self._news(ino)}
                await self._bring(self._pinned_in(changed), tally, deep=False)
        except Exception:  # one of several tasks may have failed: the mount goes on
            log.warning("pinned files could not be looked at", exc_info=True)
        if tally.failed:
            log.info("%d pinned files could not be brought here", len(tally.failed))
        return tally.away is None

    def _pinned_in(self, folders: set[int]) -> list[int]:
        """What is pinned of folders that have changed: all of it, or single files."""
        tree = self._core.tree
        pinned = [ino for ino in folders if ino in self]
        for inode in tree.get_all(self._roots):
            if inode.parent in folders and inode.parent not in self:
                self._seen[inode.parent] = tree.changes(inode.parent)
                pinned.append(inode.ino)
        return pinned

    async def bring(self, inode: Inode, tally: Tally) -> None:
        """Bring what is pinned with this inode; what comes of it is in `tally` as it comes."""
        await self._bring([inode.ino], tally, deep=True)

    async def count(self, inode: Inode) -> Tally:
        """How much of it is here, without asking the service."""
        tally = Tally()
        for ino in await self._walk([inode.ino], tally, deep=True, ask=False):
            self._is_here(ino, tally)
        return tally

    async def _bring(self, inos: Iterable[int], tally: Tally, *, deep: bool) -> None:
        files = await self._walk(inos, tally, deep=deep, ask=True)
        missing = []
        for number, ino in enumerate(files):
            if not self._is_here(ino, tally):
                missing.append(ino)
            if number % YIELD == 0:
                await trio.lowlevel.checkpoint()

        async def fetch(ino: int) -> None:
            await self._fetch(ino, tally)

        await self._each(fetch, missing)

    async def _walk(self, inos: Iterable[int], tally: Tally, *, deep: bool, ask: bool) -> list[int]:
        """The files in these places; with `ask`, by listings that are fresh (`refresh`)."""
        tree = self._core.tree
        newer_than = time.monotonic_ns() - int(self._core.settings.refresh * 1e9)
        files: list[int] = []
        level: list[int] = []

        def sort(inode: Inode | None) -> None:
            if inode is not None and inode.parent != NOWHERE:
                (level if inode.is_folder else files).append(inode.ino)

        async def refresh(ino: int) -> None:
            await self._refresh(ino, newer_than, tally)

        for ino in inos:
            sort(tree.find(ino))
        while level:
            folders, level = level, []
            if ask:
                await self._each(refresh, folders)
            for folder in folders:
                self._seen[folder] = tree.changes(folder)
                numbers = tree.numbers_in(folder)
                for start in range(0, len(numbers), YIELD):
                    for child in tree.get_all(numbers[start : start + YIELD]):
                        if not child.is_folder or deep or not child.listed:
                            sort(child)
                    await trio.lowlevel.checkpoint()
        return files

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
            await self._folders.refresh(folder, newer_than_ns)
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
        for _ in range(TRIES):
            inode = core.tree.find(ino)
            if inode is None or inode.parent == NOWHERE or inode.generation:
                return
            tally.away = tally.away or self._away()
            if tally.away is not None:
                return
            revision, size = inode.revision, inode.size
            if self._hopeless.get(ino) == revision:
                tally.failed.append(Failed(core.tree.path(ino), NO_ROOM))
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
            return
        tally.failed.append(Failed(core.tree.path(ino), "it changes all the time"))

    def _failed(self, inode: Inode, wrong: Exception, tally: Tally) -> None:
        if isinstance(wrong, Unreachable | Unavailable | NotLoggedOn):
            tally.away = wrong
            return
        said = str(wrong)
        if isinstance(wrong, OSError) and wrong.errno == errno.ENOSPC:
            self._hopeless[inode.ino] = inode.revision
            said = NO_ROOM
        tally.failed.append(Failed(self._core.tree.path(inode.ino), said))

    def _away(self) -> ZonedriveError | None:
        """Why nothing can be asked of the service now."""
        link = self._core.service.link
        if link.state == "online":
            return None
        return link.last_error or Unreachable("the service is offline")

    async def _each(self, work: Callable[[int], Awaitable[None]], inos: Iterable[int]) -> None:
        """Do it for all of them, some at a time."""
        left = iter(list(inos))

        async def worker() -> None:
            for ino in left:
                async with self._width:
                    await work(ino)

        async with trio.open_nursery() as nursery:
            for _ in range(int(self._width.total_tokens)):
                nursery.start_soon(worker)
