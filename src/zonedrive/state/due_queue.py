"""Queue of due intents: grouped by kind and due time, so that a lookup need not scan all of them.

Thousands of files may be waiting, and every change, request and reply asks for the next step.  The
agenda keeps two groups: intents that concern names, which depend on each other and are always
folded together, and intents with content only, sorted by due time.

Knows nothing about the table.  The journal reports every change, also a change that was rolled
back.
"""

import heapq
from collections.abc import Iterator, Mapping
from typing import Protocol

FAR_NS = 86_400_000_000_000  # due in more than a day: the clock was set back; treat as due


class DueItem(Protocol):
    """Fields of an intent that the agenda needs."""

    @property
    def place(self) -> bool: ...
    @property
    def gone(self) -> bool: ...
    @property
    def parked(self) -> bool: ...
    @property
    def held(self) -> bool: ...
    @property
    def due_ns(self) -> int: ...


def is_name(intent: DueItem) -> bool:
    """Return True if the intent concerns a name and can therefore block other intents."""
    return intent.place or intent.gone or intent.parked


class DueQueue:
    """Inode numbers of the intents, by kind and by due time."""

    def __init__(self) -> None:
        self.names: set[int] = set()
        self.epoch = 0  # grows with every change about names
        self._due: dict[int, int] = {}  # by inode, of contents that no writer has open
        self._heap: list[tuple[int, int]] = []  # (due, ino), some out of date
        self._ripe: dict[int, None] = {}  # due contents, in the order in which they fell due
        self._looked = 0  # time of the last call of `due_items`

    def note(self, ino: int, intent: DueItem | None) -> None:
        """Replace the intent of an inode; None means that the intent was deleted."""
        named = intent is not None and is_name(intent)
        if named or ino in self.names:
            self.epoch += 1
            (self.names.add if named else self.names.discard)(ino)
        if intent is None or named or intent.held:
            self._due.pop(ino, None)
            self._ripe.pop(ino, None)
        elif self._due.get(ino) != intent.due_ns:
            self._due[ino] = intent.due_ns
            self._ripe.pop(ino, None)
            heapq.heappush(self._heap, (intent.due_ns, ino))

    def due_items(self, now_ns: int) -> Mapping[int, None]:
        """Return the due content intents; the one that has waited longest comes first."""
        if now_ns < self._looked:  # the clock was set back
            self._heap = [(due, ino) for ino, due in self._due.items() if ino not in self._ripe]
            far = [ino for due, ino in self._heap if due >= now_ns + FAR_NS]
            self._ripe.update(dict.fromkeys(far))
            heapq.heapify(self._heap)
        self._looked = now_ns
        while self._heap and not now_ns < self._heap[0][0] < now_ns + FAR_NS:
            due, ino = heapq.heappop(self._heap)
            if self._due.get(ino) == due:
                self._ripe[ino] = None
        return self._ripe

    def next_due(self) -> int | None:
        """Return the time at which the next content intent becomes due (wall clock, ns), or None.

        Call `due_items` before.
        """
        while self._heap and self._due.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def due(self) -> Iterator[int]:
        """Return the inodes of all files to upload that no writer has open, due or not."""
        return iter(self._due)
