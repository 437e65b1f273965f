"""What of the journal is to be looked at now, without looking at all of it.

Thousands of files may wait, and each change, request and answer asks what is next.  So the
intents are kept apart as they come: those about names, which depend on each other and are always
looked at together; and those about content alone, by the time they fall due.

Must not know the table; the journal tells of every change, also of one that was taken back.
"""

import heapq
from collections.abc import Iterator, Mapping
from typing import Protocol

FAR_NS = 86_400_000_000_000  # due a day ahead: the clock was set back, and nothing waits for that


class Dated(Protocol):
    """What the agenda needs of an intent."""

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


def is_name(intent: Dated) -> bool:
    """Whether the intent is about a name: it can stand in another's way."""
    return intent.place or intent.gone or intent.parked


class Agenda:
    """The intents' numbers, by what they are about and when they fall due."""

    def __init__(self) -> None:
        self.names: set[int] = set()
        self.epoch = 0  # grows with every change about names
        self._due: dict[int, int] = {}  # by ino, of contents alone that nobody holds
        self._heap: list[tuple[int, int]] = []  # (due, ino), some out of date
        self._ripe: dict[int, None] = {}  # fell due, in that order
        self._looked = 0  # when that was found out

    def note(self, ino: int, intent: Dated | None) -> None:
        """The intent is now this one, or there is none."""
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

    def ripe(self, now_ns: int) -> Mapping[int, None]:
        """The contents that are due, the longest waiting first."""
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
        """When the next content falls due (wall clock), after a call of `ripe`."""
        while self._heap and self._due.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def due(self) -> Iterator[int]:
        """Every content that nobody holds, due or not."""
        return iter(self._due)
