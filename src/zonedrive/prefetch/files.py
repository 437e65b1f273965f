"""Prefetch of small files for programs that read the files of a folder one after the other.

After a program has opened ENOUGH small files of a folder in a row, in listing order or in name
order, the next files are fetched: first FEW files, then up to MOST. One opened file is enough if a
program has just listed the folder. If the program continues in a sibling, parent or child folder,
it is assumed to read the files there in the same order. If the program had read a sibling folder to
its end, it is assumed to read all sibling folders in order. Files of the following folders are then
prefetched as well.

The files are fetched by the metadata client on the event loop, because a thread per file doubled
the time for a small file. If the setting `download_limit` is set, the files are fetched through the
normal read path, which respects the limit.

INVARIANT: if a file is opened while its prefetch is running, no second request is sent for
PATIENCE_S seconds; the open waits for the prefetch.
INVARIANT: at most MOST files and BYTES bytes are ahead of a program, that is, requested or fetched
but not opened yet.
INVARIANT: no request is started for a program that has opened no file for GONE_S seconds, or that
is on the `guard` list, whose programs must not cause downloads. RESERVED connections stay free for
content that programs wait for.
"""

import heapq
import logging
import os
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from itertools import pairwise

import trio
from cachetools import LRUCache

from zonedrive.errors import Forbidden, NotFound, ZonedriveError
from zonedrive.remote.service import Service
from zonedrive.single_flight import Flight, SingleFlight
from zonedrive.snapshot import Snapshot
from zonedrive.state.inode import NOWHERE, Inode
from zonedrive.state.local_state import LocalState
from zonedrive.state.open_file import content_of
from zonedrive.supervisor import Task
from zonedrive.sync.directory_cache import DirectoryCache
from zonedrive.sync.directory_walks import ordered
from zonedrive.vfs.caller_policy import CallerPolicy

log = logging.getLogger(__name__)

ENOUGH = 3  # number of opened files that show the order
GAP = 8  # maximum number of files that a program may skip between two files
FEW = 8  # first number of files ahead; doubled with each opened file
MOST = 96
SMALL = 256 * 1024  # bytes; below this size a prefetch is cheaper than a wait
FOLLOWING = 8  # maximum number of folders ahead of a program
BYTES = 8 << 20
LIMITED_S = 2.0  # with a download limit, the bytes ahead take at most this long to download
SOON_S = 3.0
GONE_S = 2.0
PATIENCE_S = 3.0  # an open waits this long for a running prefetch
SEQUENCES = 8  # number of programs followed at the same time
STEP = 2000  # names processed between checkpoints
RESERVED = 2  # downloads reserved for content that programs wait for


class ReadSequence:
    """Reading order and progress of one program that reads the files of a folder one by one."""

    def __init__(self, folder: int, window: int, by_name: bool = False) -> None:
        """Start a sequence in `folder`.

        `window` is the maximum number of files ahead, and 0 if the program's order is unknown.
        `by_name` is True if the program read the previous folder in name order, not in listing
        order.
        """
        self.folder = folder
        self.goes_on_to_next = False  # the program came from the end of the previous folder
        # Sequences of the following folders, with the files ahead in them.
        self.following: list[ReadSequence] = []
        self.neighbours: list[int] = []  # inos of the neighbouring folders, in the program's order
        self.crossing = False  # the next folder is being listed
        self.seen: deque[int] = deque(maxlen=ENOUGH)  # inos of opened files, newest last
        self.window = window
        self.by_name = by_name
        self.moved_s = time.monotonic()
        self.order: list[int] = []  # inos in the program's order, once it is known
        self.places: dict[int, int] = {}  # index in `order` by ino
        self.next = 0  # index in `order` of the next file to request
        self.ahead: dict[int, int] = {}  # sizes by ino: requested or fetched, and not opened yet
        self.planning = False
        self.patience = 0  # files to be opened before the next search for the order
        self.pid = 0  # process or thread that is known not to be on the `guard` list

    @property
    def all_ahead(self) -> int:
        """Number of files that are requested or fetched, but not opened by the program yet."""
        return len(self.ahead) + sum(len(each.ahead) for each in self.following)

    @property
    def bytes_ahead(self) -> int:
        """Total size in bytes of the files that `all_ahead` counts."""
        return sum(sum(each.ahead.values()) for each in (self, *self.following))

    @property
    def is_at_end(self) -> bool:
        """True if at most GAP files are left to request, and at most GAP files are ahead."""
        return bool(self.order) and self.next + GAP >= len(self.order) and len(self.ahead) <= GAP

    def follow(self, order: list[int], *, by_name: bool) -> bool:
        """Adopt `order` if it matches the files opened last; return True if it matches.

        `order` is a list of inode numbers. The program may skip up to GAP files between two files.
        """
        try:
            steps = [order.index(ino) for ino in self.seen]
        except ValueError:
            return False
        if not all(one < other <= one + 1 + GAP for one, other in pairwise(steps)):
            return False
        self.take(order, steps[-1] + 1 if steps else 0, by_name=by_name)
        self.window = max(self.window, FEW)
        return True

    def take(self, order: list[int], following: int, *, by_name: bool) -> None:
        """Adopt `order`, a list of inode numbers; `following` is the index of the next file.

        `by_name` is True if `order` is the name order, not the listing order.
        """
        self.order, self.next, self.by_name = order, following, by_name
        self.places = {ino: place for place, ino in enumerate(order)}

    def moved(self, ino: int) -> None:
        """Record that the program has opened the small file with inode number `ino`.

        If the order is not known yet, do nothing else. If the file was requested in advance, or is
        at most GAP files after the next file to request, double the window (up to MOST). Otherwise,
        stop the sequence.
        """
        self.moved_s = time.monotonic()
        expected = self.ahead.pop(ino, None) is not None
        self.seen.append(ino)
        if not self.order:
            return
        place = self.places.get(ino, -1)
        if not expected and not self.next <= place <= self.next + GAP:
            self.stop()  # the program jumps, or follows another order
            self.seen.append(ino)
            return
        self.next = max(self.next, place + 1)
        for passed in [other for other in self.ahead if self.places[other] < place]:
            del self.ahead[passed]
        self.window = min(MOST, self.window * 2)

    def stop(self) -> None:
        """Reset the sequence: discard the order, the window and the files ahead."""
        self.order = []
        self.window = 0
        self.seen.clear()
        self.ahead.clear()
        self.following = []
        self.goes_on_to_next = self.crossing = False


class FilePrefetch:
    """Prefetcher of small files for programs that read the files of a folder one by one."""

    def __init__(
        self, state: LocalState, service: Service, folders: DirectoryCache, callers: CallerPolicy
    ) -> None:
        self._state = state
        self._callers = callers
        self._service = service
        self._folders = folders
        self._sequences: LRUCache[int, ReadSequence] = LRUCache(SEQUENCES)
        self._running: SingleFlight[int, Flight] = SingleFlight()  # by ino
        self._nursery: trio.Nursery | None = None
        self._bytes = BYTES
        if limit := state.settings.download_limit:
            self._bytes = min(BYTES, int(limit * LIMITED_S))

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run the prefetch tasks until cancelled."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            task_status.started()
            await trio.sleep_forever()

    async def wait_for_prefetch(self, ino: int) -> None:
        """If a prefetch of the file `ino` is running, wait up to PATIENCE_S seconds for its end."""
        if ino in self._running:
            with trio.move_on_after(PATIENCE_S):
                await self._running.wait(ino)

    def opened(self, inode: Inode, pid: int, flags: int) -> None:
        """Record that a process opens a file; start to prefetch if the process reads in order.

        `pid` is the id of the process or thread, `flags` are the flags of open(2).
        """
        if inode.size > SMALL or inode.generation or inode.is_new or inode.parent == NOWHERE:
            return
        sequence = self._sequences.get(inode.parent)
        if sequence is None or time.monotonic() - sequence.moved_s > SOON_S:
            sequence = self._arrived(inode.parent)
        ahead = sequence is not None and inode.ino in sequence.ahead
        if not ahead and self._state.cache.is_complete(inode.ino, inode.revision):
            return
        if sequence is None:
            sequence = self._sequences[inode.parent] = self._new_sequence(inode.parent)
        if pid != sequence.pid or flags & os.O_NOATIME:
            if self._callers.guarded(pid, flags):
                return
            sequence.pid = pid
        sequence.moved(inode.ino)
        if self._nursery is None:
            return
        if sequence.order:
            self._go_on(sequence)
        elif (
            len(sequence.seen) == ENOUGH or sequence.window or self._has_just_begun(sequence)
        ) and not sequence.planning:
            if sequence.patience:
                sequence.patience -= 1
                return
            sequence.planning = True
            self._start(self._plan, sequence)

    def _has_just_begun(self, sequence: ReadSequence) -> bool:
        """Return True if a program has just listed the folder and then opened one file."""
        return len(sequence.seen) == 1 and self._folders.was_read_lately(sequence.folder)

    def _start(
        self, work: Callable[[ReadSequence], Awaitable[None]], sequence: ReadSequence
    ) -> None:
        assert self._nursery is not None
        self._nursery.start_soon(
            self._state.supervisor.job, Task.READING_ORDER, self._safely, work, sequence
        )

    def _arrived(self, folder: int) -> ReadSequence | None:
        """Activate the sequence that was prepared for a folder, and return the sequence.

        A sequence is prepared while a program reads a preceding folder. Return None if no program
        was expected to reach the folder.
        """
        for sequence in list(self._sequences.values()):
            for place, each in enumerate(sequence.following):
                if each.folder == folder:
                    each.following, sequence.following = sequence.following[place + 1 :], []
                    sequence.goes_on_to_next = False
                    each.window, each.goes_on_to_next = sequence.window, True
                    self._sequences[folder] = each
                    return each
        return None

    def _new_sequence(self, folder: int) -> ReadSequence:
        """Return a new sequence for a folder.

        If a program has just read files in a sibling, parent or child folder, assume the same
        reading order.
        """
        inodes, now = self._state.inodes, time.monotonic()
        here = inodes.find(folder)
        for sequence in self._sequences.values():
            there = inodes.find(sequence.folder)
            if (
                here is None
                or there is None
                or not sequence.order
                or now - sequence.moved_s > GONE_S
            ):
                continue
            if here.parent in (there.parent, there.ino) or there.parent == here.ino:
                found = ReadSequence(folder, max(FEW, sequence.window // 2), sequence.by_name)
                if here.parent == there.parent and sequence.is_at_end:
                    found.neighbours = sequence.neighbours
                    found.goes_on_to_next = self._next_folder(found, there.ino) == folder
                return found
        return ReadSequence(folder, 0)

    def _next_folder(self, sequence: ReadSequence, ino: int) -> int:
        """Return the inode number of the folder that follows the folder `ino`, or 0 after the last.

        The sibling folders are in the program's order. `ino` is the sequence's folder or a sibling.
        """
        if ino not in sequence.neighbours:
            parent = self._state.inodes.get(ino).parent
            sequence.neighbours = ordered(self._state.inodes, parent, by_name=sequence.by_name)
        try:
            return sequence.neighbours[sequence.neighbours.index(ino) + 1]
        except (IndexError, ValueError):
            return 0

    @staticmethod
    async def _safely(
        work: Callable[..., Awaitable[None]], sequence: ReadSequence, *args: object
    ) -> None:
        """Run `work`; if it fails, stop the sequence and re-raise the error."""
        try:
            await work(sequence, *args)
        except Exception:
            sequence.stop()
            raise

    async def _plan(self, sequence: ReadSequence) -> None:
        """Determine the order in which the program reads, and prefetch in this order."""
        try:
            names = await self._names(sequence.folder)
            # Random opens must not cause a scan of many names each time.
            sequence.patience = min(MOST, len(names) // STEP)
            began = len(sequence.seen) < ENOUGH and not sequence.window
            for by_name in (sequence.by_name, not sequence.by_name):
                if by_name and not await self._goes_by_name(sequence, names):
                    continue
                if began and not by_name and not self._is_first(sequence, names):
                    continue
                order = await _sorted(names) if by_name else [ino for _, ino in names]
                if sequence.follow(order, by_name=by_name):
                    sequence.patience = 0
                    break
        finally:
            sequence.planning = False
        self._go_on(sequence)

    async def _names(self, folder: int) -> list[tuple[str, int]]:
        for _ in self._state.inodes.loading(folder):
            await trio.lowlevel.checkpoint()
        return list(self._state.inodes.children(folder).items())

    def _is_first(self, sequence: ReadSequence, names: list[tuple[str, int]]) -> bool:
        """Return True if the program began with the first small file in listing order."""
        for _, ino in names[:STEP]:
            inode = self._state.inodes.find(ino)
            if inode is not None and not inode.is_folder and 0 < inode.size <= SMALL:
                return ino == sequence.seen[0]
        return False

    async def _goes_by_name(self, sequence: ReadSequence, names: list[tuple[str, int]]) -> bool:
        """Return True if the program opened its last files in name order, and skipped few names.

        This check avoids an expensive sort of all names. If the program has opened only one file,
        return True if this file's name is the first in the folder.
        """
        found = [inode.name for inode in self._state.inodes.get_all(list(sequence.seen))]
        if len(found) == 1 and not sequence.window:
            return not any(name < found[0] for name, _ in names)
        steps = list(pairwise(found))
        if len(found) < len(sequence.seen) or not all(one < other for one, other in steps):
            return False
        between = [0] * len(steps)
        for batch in _batched(names):
            for number, (one, other) in enumerate(steps):
                between[number] += sum(one < name < other for name, _ in batch)
            await trio.lowlevel.checkpoint()
        return all(count <= GAP for count in between)

    def _go_on(self, sequence: ReadSequence) -> None:
        """Start to prefetch the next files, as far as the limits allow."""
        if self._nursery is None or time.monotonic() - sequence.moved_s > GONE_S:
            return
        if not all(self._ask_for(each, sequence) for each in (sequence, *sequence.following)):
            return
        room = len(sequence.following) < FOLLOWING and sequence.all_ahead < sequence.window
        if sequence.goes_on_to_next and room and not sequence.crossing:
            sequence.crossing = True
            self._start(self._cross, sequence)

    def _ask_for(self, part: ReadSequence, sequence: ReadSequence) -> bool:
        """Start to prefetch the files of `part`, which is `sequence` or in `sequence.following`.

        Return True if all files of the folder were requested, and False if a limit prevented this.
        """
        state, most = self._state, min(self._bytes, self._state.cache.quota.limit // 8)
        while part.next < len(part.order):
            if sequence.all_ahead >= sequence.window or self._spare() <= 0:
                return False
            inode = state.inodes.find(part.order[part.next])
            if inode is not None and self._wanted(inode):
                if sequence.bytes_ahead + inode.size > most or self._nursery is None:
                    return False
                part.ahead[inode.ino] = inode.size
                self._running.begin(inode.ino, Flight())
                self._nursery.start_soon(
                    state.supervisor.job, Task.SIBLING_AHEAD, self._safely, self._fetch, part, inode
                )
            part.next += 1
        return True

    async def _cross(self, sequence: ReadSequence) -> None:
        """List the folder after the last folder of a sequence, and prefetch the files there too."""
        last = sequence.following[-1] if sequence.following else sequence
        folder = self._state.inodes.find(self._next_folder(sequence, last.folder))
        if folder is None or not await self._folders.list_ahead(folder):
            sequence.goes_on_to_next = False
            return
        following = ReadSequence(folder.ino, 0)
        names = await self._names(folder.ino)
        order = await _sorted(names) if sequence.by_name else [ino for _, ino in names]
        following.take(order, 0, by_name=sequence.by_name)
        following.neighbours, following.pid = sequence.neighbours, sequence.pid
        sequence.crossing = False
        # The program may already be there, or somewhere else.
        if sequence.goes_on_to_next and sequence.order and folder.ino not in self._sequences:
            sequence.following.append(following)
            self._go_on(sequence)

    def _wanted(self, inode: Inode) -> bool:
        state = self._state
        return (
            not inode.is_folder
            and 0 < inode.size <= SMALL
            and not (inode.is_new or inode.generation or inode.attributes.read_protected)
            and inode.ino not in self._running
            and inode.ino not in state.opened
            and not state.cache.is_complete(inode.ino, inode.revision)
        )

    def _spare(self) -> int:
        """Return the number of files that may be requested now; a value <= 0 means none."""
        state = self._state
        if self._service.link.state != "online":
            return 0
        if state.settings.download_limit:
            return state.settings.transfers - len(self._running) - RESERVED
        return self._service.places - max(len(self._running), self._service.underway) - RESERVED

    async def _fetch(self, sequence: ReadSequence, inode: Inode) -> None:
        try:
            state, ino, revision = self._state, inode.ino, inode.revision
            if state.settings.download_limit:  # through the normal read path
                await state.cache.complete(ino, revision, inode.size, state.source(inode))
            else:
                await self._bring(inode)
        except (Forbidden, NotFound):
            sequence.ahead.pop(inode.ino, None)
        except (ZonedriveError, OSError) as wrong:
            log.info("prefetch stopped (%s)", wrong)
            sequence.stop()
        finally:
            self._running.end(inode.ino)
        for each in list(self._sequences.values()):
            self._go_on(each)

    async def _bring(self, inode: Inode) -> None:
        """Fetch a whole file in one request, and cache the content.

        The content is not cached if the file was changed or opened meanwhile.
        """
        state, ino, revision, size = self._state, inode.ino, inode.revision, inode.size
        content = Snapshot(lambda: content_of(inode))
        data = await self._service.content(inode.zone, inode.remote_id or "", size)
        if len(data) != size or not content.is_current:
            return
        cache = state.cache
        if ino in state.opened or cache.put(ino, revision, data):
            return
        if cache.is_complete(ino, revision):
            return
        state.spool.require_room(size)
        generation = state.next_generation()
        file = state.spool.create(ino, generation)
        try:
            with closing(file):
                file.pwrite(0, data)
                file.flush()
                taken = file.allocated
            await cache.add_file(file.path, ino, revision, size, file.manifest(final=True), taken)
        finally:
            state.spool.delete(ino, generation)  # no effect if the cache has taken the file


def _batched(names: list[tuple[str, int]]) -> Iterator[list[tuple[str, int]]]:
    return (names[at : at + STEP] for at in range(0, len(names), STEP))


async def _sorted(names: list[tuple[str, int]]) -> list[int]:
    """Return the inode numbers sorted by name; let other tasks run while a long list is sorted."""
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
