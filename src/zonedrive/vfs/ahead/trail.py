"""The way of one program through the small files of a folder, and of the folders after it.

Must not know how content is fetched; `siblings` does that.
"""

import time
from collections import deque
from itertools import pairwise

ENOUGH = 3  # files in a row that tell the order
GAP = 8  # files that a program may leave out between two, at most
FEW = 8  # files ahead at first; twice as many with each file that is opened
MOST = 96


class Trail:
    """One program on its way through the files of a folder."""

    def __init__(self, folder: int, grown: int, by_name: bool = False) -> None:
        """`grown`: the window of the same program in the folder before, 0 for none.

        `by_name`: whether it went by the names there, not by the listing.
        """
        self.folder = folder
        self.goes_over = False  # it came here from the end of the folder before
        self.following: list[Trail] = []  # in the folders after this one: what is ahead there
        self.neighbours: list[int] = []  # inos of the folders beside this one, in its order
        self.crossing = False  # the next folder is being looked into
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

    @property
    def all_ahead(self) -> int:
        """Return how many files are ahead of the program."""
        return len(self.ahead) + sum(len(each.ahead) for each in self.following)

    @property
    def bytes_ahead(self) -> int:
        """Return how many bytes these have."""
        return sum(sum(each.ahead.values()) for each in (self, *self.following))

    @property
    def is_at_end(self) -> bool:
        """Return True where the program has opened the last files of its order."""
        return bool(self.order) and self.next + GAP >= len(self.order) and len(self.ahead) <= GAP

    def follow(self, order: list[int], *, by_name: bool) -> bool:
        """Take this order, if it is the one in which it has opened its last files."""
        try:
            steps = [order.index(ino) for ino in self.seen]
        except ValueError:
            return False
        if not all(one < other <= one + GAP for one, other in pairwise(steps)):
            return False
        self.take(order, steps[-1] + 1 if steps else 0, by_name=by_name)
        self.window = max(self.window, FEW)
        return True

    def take(self, order: list[int], following: int, *, by_name: bool) -> None:
        """Go by this order, from the place `following` on."""
        self.order, self.next, self.by_name = order, following, by_name
        self.places = {ino: place for place, ino in enumerate(order)}

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
        self.following = []
        self.goes_over = self.crossing = False
