"""Selection of listings to prefetch for programs that walk the tree folder by folder.

This module does not fetch the listings. The caller reports which listings programs use and which
listings have arrived, and this module selects the listings to fetch next.

A walk begins when a program uses a second folder of the same parent soon after the first, or when
the program lists a folder and at once continues with its first subfolder. From then on, the
listings of the next folders are prefetched in the order of the walk, which is depth-first
(pre-order). A key is a position in this order: the second subfolder of the first subfolder has the
key (0, 1). Some programs visit subfolders in the order of the listing, others in the order of the
names. Two consecutive folders show which order a program follows.

INVARIANT: at most MOST listings per walk have been requested and not used yet.
INVARIANT: no listing is prefetched for a program that has paused for GONE_S seconds, or while
`spare` reports that no listing may be prefetched.
"""

import math
import time
from collections.abc import Callable, Iterator
from itertools import islice

from cachetools import TTLCache

from zonedrive.state.inode import ROOT, Inode
from zonedrive.state.inodes import Inodes

SOON_S = 3.0  # a walk needs two folders of one parent within this time
AT_ONCE_S = 0.5  # maximum time between a folder and its subfolder; people are slower
GONE_S = 2.0
FEW = 2  # initial number of listings to prefetch; doubled with each folder that a program reaches
MOST = 128
WALKS = 4
REMEMBERED = 256  # number of recently used folders to remember
STEPS = 512  # folders checked in one call
SORTED = 2000  # a larger number of subfolders is not sorted by name
LEVELS = 256  # folders of one walk with known subfolders

Key = tuple[int, ...]


def _now() -> float:
    return time.monotonic()  # looked up at each call, because tests replace the clock


class _Level:
    """Subfolders of one listed folder (often none), in the order of the walk."""

    def __init__(self, key: Key, inos: list[int]) -> None:
        self.key = key  # the key of the folder itself
        self.inos = inos
        self.places = {ino: place for place, ino in enumerate(inos)}

    def is_above(self, position: Key) -> bool:
        """Return True if `position` is one of the subfolders or below one of them."""
        return len(self.key) < len(position) and position[: len(self.key)] == self.key


class DirectoryWalk:
    """One program's walk through the folders below `top`."""

    def __init__(self, inodes: Inodes, top: int, *, deep: bool, window: int, by_name: bool) -> None:
        """Start a walk below the folder `top`; a deep walk also enters the subfolders.

        `window` is the maximum number of prefetched listings that the program has not used yet. If
        `by_name` is true, the walk follows the order of the names, else the order of the listing.
        """
        self._inodes = inodes
        self.top = top
        self.deep = deep
        self.window = window
        self.by_name = by_name
        self.moved_s = _now()
        self.ahead: dict[int, Key] = {}  # listings that were requested and are not used yet
        self._position: Key = ()  # key of the folder that the program has reached
        self._levels: dict[int, _Level] = {}
        self._rest: Iterator[tuple[int, Key]] = iter(())  # of `_after_position`
        self._open(top, ())

    def knows(self, folder: Inode) -> bool:
        """Return True if the folder has a position in this walk's order."""
        return self._key(folder) is not None

    def begins_with(self, folder: Inode) -> bool:
        """Return True if the folder is the first subfolder of the walk's top folder."""
        return folder.ino == self._levels[self.top].inos[0]

    def moved(self, folder: Inode, *, listed: bool) -> None:
        """Record that the program has reached a folder of the walk, and adapt the window.

        `listed` is True if the folder has been listed before.
        """
        self.moved_s = _now()
        expected = self.ahead.pop(folder.ino, None) is not None
        level, key = self._levels[folder.parent], self._key(folder)
        if key is None or key == self._position:
            return  # another program waits for the same folder
        entered = bool(self._position) and level.key == self._position
        if not self._position:
            self.window *= 2
        elif expected or level.is_above(self._position) or (entered and key[-1] == 0):
            self.window = min(MOST, max(FEW, self.window * 2))
        else:
            self.window = 0  # the program chooses its folders; perhaps a new walk begins here
        self.deep = self.deep or entered
        passed = {ino: other for ino, other in self.ahead.items() if other < key}
        for ino in passed:
            del self.ahead[ino]
        if any(len(other) > len(key) for other in passed.values()):
            self.deep = False
        if passed:
            self.window = max(FEW, self.window // 4)
        self._position = key
        if passed or not expected:
            self._rest = self._after_position()
        if listed:
            self.landed(folder)

    def landed(self, folder: Inode) -> None:
        """Add the subfolders of a listed folder to the walk, if the walk enters the folder."""
        key = self._key(folder) if self.deep and folder.ino not in self._levels else None
        if key is not None and key >= self._position:
            self._open(folder.ino, key)

    def following(self) -> Iterator[tuple[int, Key]]:
        """Yield the ino and key of the next folders, in walk order, that are not in `ahead`.

        A later call continues after the last yielded folder, unless `moved` or `landed` has
        restarted the iteration.
        """
        for ino, key in self._rest:
            if key > self._position and ino not in self.ahead:
                yield ino, key

    def _after_position(self) -> Iterator[tuple[int, Key]]:
        path, position = [self.top], self._position  # which changes meanwhile
        for place in position:
            path.append(self._levels[path[-1]].inos[place])
        if self.deep:
            yield from self._inside(path[-1], position, 0)
        for depth, place in reversed([*enumerate(position)]):
            yield from self._inside(path[depth], position[:depth], place + 1)

    def _inside(self, ino: int, key: Key, first: int) -> Iterator[tuple[int, Key]]:
        """Yield the ino and key of a folder's subfolders, starting at index `first`.

        In a deep walk, the subfolders of each subfolder follow directly after that subfolder.
        `key` is the key of the folder. A folder that was moved since may have another key; else a
        folder that was moved into one of its subfolders would be inside itself.
        """
        level = self._levels.get(ino)
        if level is None or level.key != key:
            return
        for place in range(first, len(level.inos)):
            here = (*key, place)
            yield level.inos[place], here
            if self.deep:
                yield from self._inside(level.inos[place], here, 0)

    def _key(self, folder: Inode) -> Key | None:
        level = self._levels.get(folder.parent)
        if level is None or folder.ino not in level.places:
            return None
        return (*level.key, level.places[folder.ino])

    def _open(self, ino: int, key: Key) -> None:
        if len(self._levels) >= LEVELS:
            for other, level in list(self._levels.items()):
                if level.key < self._position and not level.is_above(self._position):
                    del self._levels[other]
        level = _Level(key, ordered(self._inodes, ino, by_name=self.by_name))
        self._levels[ino] = level
        if level.inos:
            self._rest = self._after_position()


def ordered(inodes: Inodes, parent: int, *, by_name: bool) -> list[int]:
    """Return the inos of the subfolders that are on the service, in the order of a walk.

    If `by_name` is true and there are at most SORTED subfolders, the order is by name. Otherwise
    the order is that of the listing.
    """
    inos = list(inodes.rows.folders_in(parent))
    if by_name and len(inos) <= SORTED:
        inos = [inode.ino for inode in sorted(inodes.get_all(inos), key=lambda each: each.name)]
    return inos


class DirectoryWalks:
    """Most recent directory walks of all programs (at most WALKS).

    The walks are used to select the listings to prefetch.
    """

    def __init__(
        self,
        inodes: Inodes,
        *,
        wanted: Callable[[Inode], bool],
        ask: Callable[[Inode], object],
        spare: Callable[[], int],
    ) -> None:
        """Start without any walk, and store the callbacks.

        `wanted` returns True if a folder needs a listing, and `ask` requests the listing. `spare`
        returns the number of listings that may be prefetched now.
        """
        self._inodes = inodes
        self._wanted, self._ask, self._spare = wanted, ask, spare
        self._walks: list[DirectoryWalk] = []  # the most recently active walk first
        self._used: TTLCache[int, int] = TTLCache(REMEMBERED, SOON_S, _now)  # by parent
        self._read: TTLCache[int, float] = TTLCache(REMEMBERED, SOON_S, _now)  # by ino

    def expects(self, ino: int) -> bool:
        """Return True if the folder's listing was prefetched and no program has used it yet."""
        return any(ino in walk.ahead for walk in self._walks)

    def reading(self, ino: int) -> None:
        """Record that a program is beginning to read the names of a folder."""
        self._read[ino] = _now()

    def was_read_lately(self, ino: int) -> bool:
        """Return True if a program read the names of the folder less than AT_ONCE_S seconds ago."""
        return _now() - self._read.get(ino, -math.inf) < AT_ONCE_S

    def used(self, folder: Inode, *, listed: bool) -> None:
        """Record that a program uses the listing of a folder, and prefetch the next listings.

        `listed` is True if the folder has been listed before.
        """
        if folder.ino == ROOT:
            return  # the root is its own parent and has no siblings
        walk = self._walk(folder)
        if walk is not None and folder.ino not in walk.ahead:
            walk = self._turned(walk, folder)
        self._used[folder.parent] = folder.ino
        if walk is not None:
            self._walks = [walk, *(other for other in self._walks if other is not walk)][:WALKS]
            walk.moved(folder, listed=listed)
            self.go_on()

    def landed(self, ino: int) -> None:
        """Record that a requested listing has arrived or failed."""
        if ino in self._read:
            self._read[ino] = _now()
        if (folder := self._inodes.find(ino)) is not None:
            for walk in self._walks:
                walk.landed(folder)
        self.go_on()

    def go_on(self) -> None:
        """Request the next listings of the active walks, as far as `spare` reports capacity."""
        now = _now()
        for walk in self._walks:
            if now - walk.moved_s < GONE_S:
                self._ask_for(walk)

    def _ask_for(self, walk: DirectoryWalk) -> None:
        if len(walk.ahead) >= walk.window or self._spare() <= 0:
            return
        for ino, key in islice(walk.following(), STEPS):
            folder = self._inodes.find(ino)
            if folder is not None and self._wanted(folder):
                walk.ahead[ino] = key
                self._ask(folder)
            elif folder is not None:
                walk.landed(folder)  # its subfolders may need a listing
            if len(walk.ahead) >= walk.window or self._spare() <= 0:
                return

    def _walk(self, folder: Inode) -> DirectoryWalk | None:
        """Return the walk that `folder` belongs to.

        Return None if no program seems to be walking, or for a folder above a program's position.
        The walk is new if a program seems to begin a walk at `folder`, or to continue a finished
        walk further up in the tree.
        """
        now = _now()
        self._walks = [walk for walk in self._walks if now - walk.moved_s < SOON_S]
        for walk in self._walks:
            if walk.knows(folder):
                return walk
        for walk in self._walks:
            top = self._inodes.find(walk.top)
            above = {each.ino for each in self._inodes.and_above(top)}
            if folder.ino in above:
                return None  # the folder is above the program's position
            if folder.parent in above:
                # All folders below are done, and the walk continues further up.
                self._walks.remove(walk)
                window = walk.window // 2
                return self._begun(folder, deep=True, window=window, by_name=walk.by_name)
        went_in = folder.ino in self._read and now - self._read.get(folder.parent, 0.0) < AT_ONCE_S
        if self._used.get(folder.parent, folder.ino) != folder.ino:
            return self._begun(folder, deep=went_in, window=FEW // 2)
        begun = self._begun(folder, deep=True, window=0) if went_in else None
        return begun if begun is not None and begun.begins_with(folder) else None

    def _turned(self, walk: DirectoryWalk, folder: Inode) -> DirectoryWalk:
        """Return `walk`, or a new walk if the program follows a different order.

        A program follows the order of the listing or the order of the names.
        """
        before = self._used.get(folder.parent, folder.ino)
        if before == folder.ino:
            return walk
        steps = []
        for by_name in (walk.by_name, not walk.by_name):
            order = ordered(self._inodes, folder.parent, by_name=by_name)
            known = before in order and folder.ino in order
            steps.append(order.index(folder.ino) - order.index(before) if known else 0)
        if steps[0] == 1 or steps[1] != 1:
            return walk
        turned = DirectoryWalk(
            self._inodes,
            folder.parent,
            deep=walk.deep,
            window=max(FEW // 2, walk.window // 2),
            by_name=not walk.by_name,
        )
        self._walks = [other for other in self._walks if other is not walk]
        return turned

    def _begun(
        self, folder: Inode, *, deep: bool, window: int, by_name: bool = False
    ) -> DirectoryWalk | None:
        walk = DirectoryWalk(self._inodes, folder.parent, deep=deep, window=window, by_name=by_name)
        return walk if walk.knows(folder) else None
