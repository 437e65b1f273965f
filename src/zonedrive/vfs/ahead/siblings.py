"""Small files ahead of programs that read one after the other in a folder.

Must not know how content is fetched or kept, only who does it, and not what is in it.

After ENOUGH small files of a folder in a row, in the order of the listing or of the names, those
that follow are fetched, a few at first and then more.  A program that goes on in a neighbouring
folder the same way does not have to begin anew.

They come through the client for metadata, on the loop: a thread for each took twice the time of a
small file.  With a limit for downloads they go the way of all others, which keeps to it.

INVARIANT: what is being fetched ahead is not asked for a second time by who opens it: that waits.
INVARIANT: at most MOST files and BYTES bytes are ahead of a program: fetched and not opened yet.
INVARIANT: nothing is begun once the program has stood still for GONE_S, nor for a guarded one, and
places are left to what programs wait for.
"""

import heapq
import logging
import os
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from itertools import pairwise

import trio
from cachetools import LRUCache

from zonedrive.errors import Forbidden, NotFound, ZonedriveError
from zonedrive.supervisor import Task
from zonedrive.tree.inode import NOWHERE, Inode
from zonedrive.vfs.core import Core

log = logging.getLogger(__name__)

SMALL = 256 * 1024  # bytes of a file that is cheaper to have than to wait for
ENOUGH = 3
GAP = 8  # files that a program may leave out between two, at most
FEW = 4
MOST = 64
BYTES = 8 << 20
LIMITED_S = 2.0  # with a limit for downloads, at most what it lets through in so many seconds
SOON_S = 3.0
GONE_S = 2.0
PATIENCE_S = 3.0  # who opens a file that is on its way waits for it so long
TRAILS = 8  # programs that are followed at once
STEP = 2000  # names that are looked at at once
RESERVED = 2  # downloads at once that are left to what programs wait for


class Trail:
    """One program on its way through the files of a folder."""

    def __init__(self, folder: int, grown: int, by_name: bool = False) -> None:
        """`grown`: the window of the same program in the folder before, 0 for none.

        `by_name`: whether it went by the names there, not by the listing.
        """
        self.folder = folder
        self.seen: deque[int] = deque(maxlen=ENOUGH)  # inos, the last one comes last
        self.window = grown
        self.by_name = by_name
        self.moved_s = time.monotonic()
        self.order: list[int] = []  # inos, once it is known which order it follows
        self.places: dict[int, int] = {}
        self.next = 0
        self.ahead: dict[int, int] = {}  # sizes by ino: under way or there, and not opened yet
        self.planning = False
        self.patience = 0  # files to be opened before its order is looked for again
        self.pid = 0  # of the process, or thread, known to be none that is guarded

    def follow(self, order: list[int], *, by_name: bool) -> bool:
        """Take this order, if it is the one in which it has opened its last files."""
        try:
            steps = [order.index(ino) for ino in self.seen]
        except ValueError:
            return False
        if not all(one < other <= one + GAP for one, other in pairwise(steps)):
            return False
        self.order, self.next = order, steps[-1] + 1 if steps else 0
        self.places = {ino: place for place, ino in enumerate(order)}
        self.by_name = by_name
        self.window = max(self.window, FEW)
        return True

    def moved(self, ino: int) -> None:
        """It has opened a small file."""
        self.moved_s = time.monotonic()
        expected = self.ahead.pop(ino, None) is not None
        self.seen.append(ino)
        if not self.order:
            return
        place = self.places.get(ino, -1)
        if not expected and not self.next <= place <= self.next + GAP:
            self.stop()  # it jumps, or goes by another order
            self.seen.append(ino)
            return
        self.next = max(self.next, place + 1)
        for passed in [other for other in self.ahead if self.places[other] < place]:
            del self.ahead[passed]
        self.window = min(MOST, self.window * 2)

    def stop(self) -> None:
        """Begin anew."""
        self.order = []
        self.window = 0
        self.seen.clear()
        self.ahead.clear()


class Siblings:
    """All programs that read small files one after the other now."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._trails: LRUCache[int, Trail] = LRUCache(TRAILS)
        self._running: dict[int, trio.Event] = {}  # set once it is there, or will not come
        self._nursery: trio.Nursery | None = None
        self._bytes = BYTES
        if limit := core.settings.download_limit:
            self._bytes = min(BYTES, int(limit * LIMITED_S))

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Own the downloads ahead, until cancelled."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            task_status.started()
            await trio.sleep_forever()

    async def arriving(self, ino: int) -> None:
        """Wait for a file that is being fetched ahead."""
        coming = self._running.get(ino)
        if coming is not None:
            with trio.move_on_after(PATIENCE_S):
                await coming.wait()

    def opened(self, inode: Inode, pid: int, flags: int = 0) -> None:
        """A process opened a file for reading."""
        if inode.size > SMALL or inode.generation or inode.is_new or inode.parent == NOWHERE:
            return
        trail = self._trails.get(inode.parent)
        if trail is None or time.monotonic() - trail.moved_s > SOON_S:
            trail = None
        ahead = trail is not None and inode.ino in trail.ahead
        if not ahead and self._core.cache.is_complete(inode.ino, inode.revision):
            return
        if trail is None:
            trail = self._trails[inode.parent] = self._new_trail(inode.parent)
        if pid != trail.pid or flags & os.O_NOATIME:
            if self._core.callers.guarded(pid, flags):
                return
            trail.pid = pid
        trail.moved(inode.ino)
        if self._nursery is None:
            return
        if trail.order:
            self._go_on(trail)
        elif (len(trail.seen) == ENOUGH or trail.window) and not trail.planning:
            if trail.patience:
                trail.patience -= 1
                return
            trail.planning = True
            self._nursery.start_soon(
                self._core.supervisor.job, Task.READING_ORDER, self._safely, self._plan, trail
            )

    def _new_trail(self, folder: int) -> Trail:
        """Of a program that may have come from a neighbouring folder."""
        tree, now = self._core.tree, time.monotonic()
        here = tree.find(folder)
        for trail in self._trails.values():
            there = tree.find(trail.folder)
            if here is None or there is None or not trail.order or now - trail.moved_s > GONE_S:
                continue
            if here.parent in (there.parent, there.ino) or there.parent == here.ino:
                return Trail(folder, max(FEW, trail.window // 2), trail.by_name)
        return Trail(folder, 0)

    @staticmethod
    async def _safely(work: Callable[..., Awaitable[None]], trail: Trail, *args: object) -> None:
        """Stop to fetch ahead where the work fails."""
        try:
            await work(trail, *args)
        except Exception:
            trail.stop()
            raise

    async def _plan(self, trail: Trail) -> None:
        """Find out in which order the program goes."""
        tree = self._core.tree
        try:
            for _ in tree.loading(trail.folder):
                await trio.lowlevel.checkpoint()
            names = list(tree.children(trail.folder).items())
            # Who opens files at random shall not cause a look at all of many names each time.
            trail.patience = min(MOST, len(names) // STEP)
            for by_name in (trail.by_name, not trail.by_name):
                if by_name and not await self._goes_by_name(trail, names):
                    continue
                order = await _sorted(names) if by_name else [ino for _, ino in names]
                if trail.follow(order, by_name=by_name):
                    trail.patience = 0
                    break
        finally:
            trail.planning = False
        self._go_on(trail)

    async def _goes_by_name(self, trail: Trail, names: list[tuple[str, int]]) -> bool:
        """Whether few names, or none, lie between those of its last files: to sort is dear."""
        found = [inode.name for inode in self._core.tree.get_all(list(trail.seen))]
        steps = list(pairwise(found))
        if len(found) < len(trail.seen) or not all(one < other for one, other in steps):
            return False
        between = [0] * len(steps)
        for batch in _batched(names):
            for number, (one, other) in enumerate(steps):
                between[number] += sum(one < name < other for name, _ in batch)
            await trio.lowlevel.checkpoint()
        return all(count < GAP for count in between)

    def _go_on(self, trail: Trail) -> None:
        """Fetch what comes next, as far as there is room."""
        core = self._core
        if self._nursery is None or time.monotonic() - trail.moved_s > GONE_S:
            return
        most = min(self._bytes, core.cache.limit // 8)
        while (
            trail.next < len(trail.order) and len(trail.ahead) < trail.window and self._spare() > 0
        ):
            inode = core.tree.find(trail.order[trail.next])
            if inode is not None and self._wanted(inode):
                if sum(trail.ahead.values()) + inode.size > most:
                    return
                trail.ahead[inode.ino] = inode.size
                self._running[inode.ino] = trio.Event()
                self._nursery.start_soon(
                    core.supervisor.job, Task.SIBLING_AHEAD, self._safely, self._fetch, trail, inode
                )
            trail.next += 1

    def _wanted(self, inode: Inode) -> bool:
        core = self._core
        return (
            not inode.is_folder
            and 0 < inode.size <= SMALL
            and not (inode.is_new or inode.generation or inode.attributes.read_protected)
            and inode.ino not in self._running
            and inode.ino not in core.opened
            and not core.cache.is_complete(inode.ino, inode.revision)
        )

    def _spare(self) -> int:
        """How many files may be asked for now."""
        core = self._core
        if core.service.link.state != "online":
            return 0
        if core.settings.download_limit:
            return core.settings.connections - len(self._running) - RESERVED
        return core.service.places - max(len(self._running), core.service.underway) - RESERVED

    async def _fetch(self, trail: Trail, inode: Inode) -> None:
        try:
            if self._core.settings.download_limit:
                await self._fill(inode)
            else:
                await self._bring(inode)
        except (Forbidden, NotFound):
            trail.ahead.pop(inode.ino, None)
        except (ZonedriveError, OSError) as wrong:
            log.info("fetching ahead ended (%s)", wrong)
            trail.stop()
        finally:
            self._running.pop(inode.ino).set()
        self._go_on(trail)

    async def _fill(self, inode: Inode) -> None:
        """Fetch it as who reads it would."""
        cache = self._core.cache
        reader = cache.open(inode.ino, inode.revision, inode.size, self._core.source(inode))
        try:
            await reader.fill()
        finally:
            reader.close()

    async def _bring(self, inode: Inode) -> None:
        """Fetch it whole, and put it into the cache."""
        core, ino, revision, size = self._core, inode.ino, inode.revision, inode.size
        data = await core.service.content(inode.zone, inode.remote_id or "", size)
        if len(data) != size or inode.revision != revision or inode.generation:
            return  # it is another version by now
        if ino in core.opened or core.cache.is_complete(ino, revision):
            return
        if core.cache.put(ino, revision, data):
            return
        core.spool.require_room(size)
        generation = core.next_generation()
        file = core.spool.create(ino, generation)
        try:
            file.pwrite(0, data)
            file.flush()
            taken = file.allocated
            file.close()
            await core.cache.take(file.path, ino, revision, size, file.manifest(final=True), taken)
        finally:
            core.spool.delete(ino, generation)  # where it could not be taken


def _batched(names: list[tuple[str, int]]) -> Iterator[list[tuple[str, int]]]:
    return (names[at : at + STEP] for at in range(0, len(names), STEP))


async def _sorted(names: list[tuple[str, int]]) -> list[int]:
    """The inos in the order of the names, however many there are."""
    runs = []
    for batch in _batched(names):
        runs.append(sorted(batch))
        await trio.lowlevel.checkpoint()
    order = []
    for _, ino in heapq.merge(*runs):
        order.append(ino)
        if len(order) % STEP == 0:
            await trio.lowlevel.checkpoint()
    return order
