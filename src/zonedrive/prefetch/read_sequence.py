"""Position of one program in the small files of a folder and of the following folders.

Knows nothing about how content is fetched; that is the task of `siblings`.
"""

import time
from collections import deque
from itertools import pairwise

ENOUGH = 3  # files in a row that show the order
GAP = 8  # maximum number of files that a program may skip between two files
FEW = 8  # first number of files ahead; doubled with each opened file
MOST = 96


class ReadSequence:
    """One program that reads the files of a folder one after the other."""

    def __init__(self, folder: int, grown: int, by_name: bool = False) -> None:
        """Start a trail; `grown` is the window in the former folder, or 0.

        `by_name` tells if the program followed the names there, not the listing.
        """
        self.folder = folder
        self.goes_over = False  # the program came from the end of the former folder
        # Trails of the following folders, with the files ahead in them.
        self.following: list[ReadSequence] = []
        self.neighbours: list[int] = []  # inos of the neighbouring folders, in the program's order
        self.crossing = False  # the next folder is being listed
        self.seen: deque[int] = deque(maxlen=ENOUGH)  # inos of opened files, newest last
        self.window = grown
        self.by_name = by_name
        self.moved_s = time.monotonic()
        self.order: list[int] = []  # inos in the program's order, once it is known
        self.places: dict[int, int] = {}
        self.next = 0
        self.ahead: dict[int, int] = {}  # sizes by ino: requested or fetched, and not opened yet
        self.planning = False
        self.patience = 0  # files to be opened before the next search for the order
        self.pid = 0  # process or thread that is known not to be guarded

    @property
    def all_ahead(self) -> int:
        """Number of files that are ahead of the program."""
        return len(self.ahead) + sum(len(each.ahead) for each in self.following)

    @property
    def bytes_ahead(self) -> int:
        """Size in bytes of the files that are ahead of the program."""
        return sum(sum(each.ahead.values()) for each in (self, *self.following))

    @property
    def is_at_end(self) -> bool:
        """Return True if the program has opened the last files of its order."""
        return bool(self.order) and self.next + GAP >= len(self.order) and len(self.ahead) <= GAP

    def follow(self, order: list[int], *, by_name: bool) -> bool:
        """Follow this order if the last files were opened in it; return True if so."""
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
        """Follow this order from position `following` on."""
        self.order, self.next, self.by_name = order, following, by_name
        self.places = {ino: place for place, ino in enumerate(order)}

    def moved(self, ino: int) -> None:
        """Record that the program has opened a small file."""
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
        """Forget the order and the files ahead."""
        self.order = []
        self.window = 0
        self.seen.clear()
        self.ahead.clear()
        self.following = []
        self.goes_over = self.crossing = False
