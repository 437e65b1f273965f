"""Listings ahead of programs that walk the tree: who lists folder after folder finds them listed.

Must not know the service, nor how a listing is fetched: it hears which listings programs use and
which have landed, and says which ones are wanted next.

A program walks when it uses a second folder of the same parent soon after a first one; or lists a
folder, at once the first one that is in it, and goes on from there.  Then the folders that follow
are listed ahead, those nearest to the program first: in the order in which a tree is printed,
which the keys say (the second subfolder of the first one has the key (0, 1)).  Some programs go
by the listing, others by the names: two folders one after the other tell which.

INVARIANT: of one walk at most MOST listings are ahead of its program: asked for and not used yet.
INVARIANT: nothing is asked for once a program has stood still for GONE_S, nor where `spare` says
that there is no place beside what programs wait for.
"""

import heapq
import math
import time
from collections.abc import Callable, Iterator

from cachetools import TTLCache

from zonedrive.tree.inode import ROOT, Inode
from zonedrive.tree.tree import Tree

SOON_S = 3.0  # two folders of one parent within this time: a walk
AT_ONCE_S = 0.5  # a folder and one that is in it: people are slower
GONE_S = 2.0
FEW = 2  # listings ahead at first; twice as many with each folder that the program comes to
MOST = 128
WALKS = 4
REMEMBERED = 256  # folders that were used a moment ago
STEPS = 512  # folders looked at in one go
SORTED = 2000  # more folders in one are taken in the order of their listing in any case
LEVELS = 256  # folders of one walk whose subfolders are known

Key = tuple[int, ...]


def _now() -> float:
    return time.monotonic()  # looked up anew each time: tests put another clock there


class _Level:
    """The subfolders of one folder, in the order of its listing."""

    def __init__(self, key: Key, inos: list[int]) -> None:
        self.key = key  # the folder's own
        self.inos = inos
        self.places = {ino: place for place, ino in enumerate(inos)}
        self.next = 0  # the first that was not looked at yet

    def is_above(self, position: Key) -> bool:
        """Whether one of the subfolders is, or holds, what is at `position`."""
        return len(self.key) < len(position) and position[: len(self.key)] == self.key


class Walk:
    """One program on its way through the folders below `top`."""

    def __init__(
        self, tree: Tree, top: int, *, deep: bool, window: int, by_name: bool = False
    ) -> None:
        """`deep`: whether it goes into what is inside of what it lists.

        `by_name`: whether by the order of the names, not by that of the listing.
        """
        self._tree = tree
        self.top = top
        self.deep = deep
        self.window = window
        self.by_name = by_name
        self.moved_s = _now()
        self.ahead: dict[int, Key] = {}  # asked for and not used yet
        self._position: Key = ()
        self._levels: dict[int, _Level] = {}
        self._queue: list[tuple[Key, int]] = []  # (of the next subfolder, the level's folder)
        self._coming: dict[int, Key] = {}  # to be looked into once they are listed
        self._bare: set[int] = set()  # of those ahead, the listed ones that hold no folder
        self._open(top, ())

    def knows(self, folder: Inode) -> bool:
        """Whether the folder is on its way."""
        level = self._levels.get(folder.parent)
        return level is not None and folder.ino in level.places

    def begins_with(self, folder: Inode) -> bool:
        """Whether who goes through all of it comes to this folder first."""
        return folder.ino == self._levels[self.top].inos[0]

    def moved(self, folder: Inode, *, listed: bool) -> None:
        """The program has come to a folder on its way."""
        self.moved_s = _now()
        expected = self.ahead.pop(folder.ino, None) is not None
        level = self._levels[folder.parent]
        place = level.places[folder.ino]
        key = (*level.key, place)
        if key == self._position:
            return  # another one waits for the same
        if not expected and level.next != place + 1:
            self._go_on(folder.parent, level, place + 1)
        entered = bool(self._position) and level.key == self._position
        if not self._position:
            self.window *= 2
        elif expected or level.is_above(self._position) or (entered and place == 0):
            self.window = min(MOST, max(FEW, self.window * 2))
        else:
            self.window = 0  # it knows where to go; perhaps a walk begins there
        self.deep = self.deep or entered
        passed: list[int] = []
        if self.ahead and min(self.ahead.values()) < key:
            passed = [ino for ino, other in self.ahead.items() if other < key]
            self._bare.difference_update(passed)
        if any(len(self.ahead.pop(ino)) > len(key) for ino in passed):
            self.deep = False
        if passed:
            self.window = max(FEW, self.window // 4)
        self._position = key
        is_bare = listed and folder.ino in self._bare
        self._bare.discard(folder.ino)
        if self.deep and not is_bare:
            self._coming[folder.ino] = key
            if listed:
                self.landed(folder.ino)

    def landed(self, ino: int) -> None:
        """The listing of a folder is known."""
        key = self._coming.pop(ino, None)
        if key is not None and ino not in self._levels:
            self._open(ino, key)

    def following(self) -> Iterator[tuple[int, Key]]:
        """The folders after the program that were not looked at yet, the nearest first."""
        while self._queue:
            key, parent = heapq.heappop(self._queue)
            level = self._levels.get(parent)
            if level is None or key != (*level.key, level.next):
                continue
            if level.is_above(self._position):
                reached = self._position[len(level.key)]
                if level.next <= reached:
                    self._go_on(parent, level, reached + 1)
                    continue
            elif key < self._position or (not self.deep and len(key) > len(self._position)):
                del self._levels[parent]  # the program has left it, or does not look inside
                continue
            ino = level.inos[level.next]
            self._go_on(parent, level, level.next + 1)
            if self.deep:
                self._coming[ino] = key
            yield ino, key

    def _open(self, ino: int, key: Key) -> None:
        inos = ordered(self._tree, ino, by_name=self.by_name)
        if inos:
            if len(self._levels) >= LEVELS:
                self._forget_passed()
            self._levels[ino] = level = _Level(key, inos)
            self._go_on(ino, level, 0)
        elif ino in self.ahead:
            self._bare.add(ino)

    def _go_on(self, ino: int, level: _Level, place: int) -> None:
        level.next = place
        if place < len(level.inos):
            heapq.heappush(self._queue, ((*level.key, place), ino))

    def _forget_passed(self) -> None:
        for ino, level in list(self._levels.items()):
            if level.key < self._position and not level.is_above(self._position):
                del self._levels[ino]
        self._coming = {ino: key for ino, key in self._coming.items() if key >= self._position}


def ordered(tree: Tree, parent: int, *, by_name: bool) -> list[int]:
    """The folders in a folder that the service has, in the order of a walk."""
    inos = tree.folders_in(parent)
    if by_name and len(inos) <= SORTED:
        inos = [inode.ino for inode in sorted(tree.get_all(inos), key=lambda each: each.name)]
    return inos


class Walks:
    """All programs that walk now."""

    def __init__(
        self,
        tree: Tree,
        *,
        wanted: Callable[[Inode], bool],
        ask: Callable[[Inode], object],
        spare: Callable[[], int],
    ) -> None:
        """`wanted`: whether a folder needs to be listed; `ask` begins that, without waiting.

        `spare`: how many listings may be begun now for nobody in particular.
        """
        self._tree = tree
        self._wanted, self._ask, self._spare = wanted, ask, spare
        self._walks: list[Walk] = []  # the one that moved last comes first
        self._used: TTLCache[int, int] = TTLCache(REMEMBERED, SOON_S, _now)  # by parent
        self._read: TTLCache[int, float] = TTLCache(REMEMBERED, SOON_S, _now)  # by ino

    def expects(self, ino: int) -> bool:
        """Whether the folder was listed ahead of a program that has not come to it yet."""
        return any(ino in walk.ahead for walk in self._walks)

    def reading(self, ino: int) -> None:
        """A program begins to read the names of a folder."""
        self._read[ino] = _now()

    def was_read_lately(self, ino: int) -> bool:
        """Return True where a program has read the names of a folder a moment ago."""
        return _now() - self._read.get(ino, -math.inf) < AT_ONCE_S

    def used(self, folder: Inode, *, listed: bool) -> None:
        """A program needs a listing that was not `listed` just now, or was listed ahead."""
        if folder.ino == ROOT:
            return  # which is its own parent, and nobody's sibling
        walk = self._walk(folder)
        if walk is not None and folder.ino not in walk.ahead:
            walk = self._turned(walk, folder)
        self._used[folder.parent] = folder.ino
        if walk is not None:
            self._walks = [walk, *(other for other in self._walks if other is not walk)][:WALKS]
            walk.moved(folder, listed=listed)
            self.go_on()

    def landed(self, ino: int) -> None:
        """A listing that was asked for is known, or has failed."""
        if ino in self._read:
            self._read[ino] = _now()
        for walk in self._walks:
            walk.landed(ino)
        self.go_on()

    def go_on(self) -> None:
        """Ask for what comes next, as far as there is room."""
        now = _now()
        for walk in self._walks:
            if now - walk.moved_s < GONE_S:
                self._ask_for(walk)

    def _ask_for(self, walk: Walk) -> None:
        if len(walk.ahead) >= walk.window or self._spare() <= 0:
            return
        for step, (ino, key) in enumerate(walk.following()):
            folder = self._tree.find(ino)
            if folder is not None and self._wanted(folder):
                walk.ahead[ino] = key
                self._ask(folder)
            else:
                walk.landed(ino)  # what is inside of it may be wanted
            if len(walk.ahead) >= walk.window or step >= STEPS or self._spare() <= 0:
                return

    def _walk(self, folder: Inode) -> Walk | None:
        """The walk that the folder belongs to, perhaps one that begins with it."""
        now = _now()
        self._walks = [walk for walk in self._walks if now - walk.moved_s < SOON_S]
        for walk in self._walks:
            if walk.knows(folder):
                return walk
        for walk in self._walks:
            above = self._above(walk.top)
            if folder.ino in above:
                return None  # on the way to where the program is
            if folder.parent in above:
                # All below is done, and it goes on further up.
                self._walks.remove(walk)
                window = walk.window // 2
                return self._begun(folder, deep=True, window=window, by_name=walk.by_name)
        went_in = folder.ino in self._read and now - self._read.get(folder.parent, 0.0) < AT_ONCE_S
        if self._used.get(folder.parent, folder.ino) != folder.ino:
            return self._begun(folder, deep=went_in, window=FEW // 2)
        begun = self._begun(folder, deep=True, window=0) if went_in else None
        return begun if begun is not None and begun.begins_with(folder) else None

    def _turned(self, walk: Walk, folder: Inode) -> Walk:
        """The same walk in the other order, if the program goes by that."""
        before = self._used.get(folder.parent, folder.ino)
        if before == folder.ino:
            return walk
        steps = []
        for by_name in (walk.by_name, not walk.by_name):
            order = ordered(self._tree, folder.parent, by_name=by_name)
            known = before in order and folder.ino in order
            steps.append(order.index(folder.ino) - order.index(before) if known else 0)
        if steps[0] == 1 or steps[1] != 1:
            return walk
        turned = Walk(
            self._tree,
            folder.parent,
            deep=walk.deep,
            window=max(FEW // 2, walk.window // 2),
            by_name=not walk.by_name,
        )
        self._walks = [other for other in self._walks if other is not walk]
        return turned

    def _begun(
        self, folder: Inode, *, deep: bool, window: int, by_name: bool = False
    ) -> Walk | None:
        walk = Walk(self._tree, folder.parent, deep=deep, window=window, by_name=by_name)
        return walk if walk.knows(folder) else None

    def _above(self, ino: int) -> set[int]:
        """A folder and all that it is in."""
        found: set[int] = set()
        while ino not in found:
            found.add(ino)
            inode = self._tree.find(ino)
            ino = ROOT if inode is None else inode.parent
        return found
