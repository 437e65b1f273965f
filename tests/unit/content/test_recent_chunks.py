"""Buffer of recent chunks: they are read from memory."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.content.scripted import KIB, content
from zonedrive.content.cache_entry import CacheEntry
from zonedrive.content.read_buffers import PIECE, MemoryBudget, RecentChunks

DATA = content(300 * KIB)
PIECES = st.lists(
    st.tuples(
        st.integers(0, 300 * KIB - 1),
        st.sampled_from([1, 9000, 64 * KIB, 100_000]),
        st.sampled_from(["stored", "kept", ""]),
    ),
    max_size=20,
)


class Buffer(RecentChunks):
    """Buffer that records the ranges that it dropped."""

    def __init__(self, budget: MemoryBudget | None = None, **more: int) -> None:
        self.dropped: list[tuple[int, int]] = []
        super().__init__(
            lambda start, end: self.dropped.append((start, end)), budget or MemoryBudget(), **more
        )

    def put_and_keep(self, start: int, end: int) -> None:
        """Add bytes that cannot be stored."""
        self.put(start, (DATA[start:] + bytes(end))[: end - start])
        self.keep(start)


@settings(deadline=None)
@given(PIECES, st.integers(0, 300 * KIB), st.integers(1, 128 * KIB))
def test_recent_bytes_are_the_right_ones(
    pieces: list[tuple[int, int, str]], offset: int, length: int
) -> None:
    """A read returns the bytes of the content, or nothing; the only copy of a chunk stays."""
    recent = Buffer(capacity=200 * KIB)
    for start, size, fate in pieces:
        recent.put(start, DATA[start : start + size])
        if fate == "stored":
            recent.stored(start)
        elif fate == "kept":
            recent.keep(start)
    found = recent.get(offset, length)
    assert found is None or found == DATA[offset : offset + length]
    for start, end in recent.unstored:
        assert recent.get(start, end - start) == DATA[start:end]


def test_recent_bytes_are_read_across_chunks() -> None:
    """A reader just behind the download does not need the disk."""
    recent = Buffer()
    for start in range(0, 256 * KIB, 64 * KIB):
        recent.put(start, DATA[start : start + 64 * KIB])
    assert recent.get(60 * KIB, 140 * KIB) == DATA[60 * KIB : 200 * KIB]
    assert recent.get(200 * KIB, 64 * KIB) is None
    recent.clear()
    assert recent.get(60 * KIB, 1) is None


def test_stored_chunks_are_dropped_at_rest() -> None:
    """Stored chunks are dropped when no download runs, other chunks as soon as they are stored."""
    recent = Buffer()
    recent.put(0, DATA[:KIB])
    recent.put(KIB, DATA[KIB : 2 * KIB])
    recent.stored(0)
    recent.drop_stored()
    assert recent.get(0, KIB) is None
    assert recent.get(KIB, KIB) == DATA[KIB : 2 * KIB]
    recent.stored(KIB)
    assert recent.get(KIB, KIB) is None


def test_memory_is_bounded() -> None:
    """Stored chunks take no more than the capacity, or a few small chunks."""
    recent, held = Buffer(capacity=200 * KIB), dict[int, int]()
    for number, size in enumerate([64 * KIB] * 100 + [1] * 1000):
        recent.put(number * 64 * KIB, bytes(size))
        recent.stored(number * 64 * KIB)
        held[number * 64 * KIB] = size
        held = {start: size for start, size in held.items() if recent.get(start, 1) is not None}
        assert sum(held.values()) <= 200 * KIB
    assert sum(held.values()) <= 64


def test_a_chunk_stays_until_it_is_stored() -> None:
    """The only copy of a chunk is never removed, however slow the disk is."""
    recent = Buffer(capacity=100 * KIB)
    for number in range(4):
        recent.put(number * 64 * KIB, DATA[: 64 * KIB])
    assert list(recent.unstored) == [(n * 64 * KIB, (n + 1) * 64 * KIB) for n in range(4)]
    for number in range(4):
        recent.stored(number * 64 * KIB)
    recent.put(9 * 64 * KIB, b"x")
    assert [recent.get(n * 64 * KIB, 1) is None for n in range(4)] == [True] * 3 + [False]
    assert list(recent.unstored) == [(9 * 64 * KIB, 9 * 64 * KIB + 1)]


def test_memory_for_unstored_bytes_is_bounded() -> None:
    """Only the latest bytes that cannot be stored are kept; the removal of others is reported."""
    recent = Buffer(MemoryBudget(4 * PIECE))
    for number in range(100):
        recent.put_and_keep(number * PIECE, (number + 1) * PIECE)
    assert recent.get(99 * PIECE, PIECE) == bytes(PIECE)
    assert recent.get(90 * PIECE, PIECE) is None
    assert recent.dropped == [(n * PIECE, (n + 1) * PIECE) for n in range(96)]


def test_small_pieces_are_joined() -> None:
    """A service that sends single bytes does not cause a chunk for each of them."""
    recent = Buffer()
    for number in range(1000):
        recent.put_and_keep(number, number + 1)
    assert recent.get(0, 1000) == DATA[:1000]
    assert list(recent.unstored) == [(0, 1000)]


def test_slow_readers_keep_their_share() -> None:
    """A film is not fetched repeatedly while other programs copy big files."""
    budget = MemoryBudget(8 * PIECE)
    slow, fast = Buffer(budget), Buffer(budget)
    slow.put_and_keep(0, 3 * PIECE)
    for number in range(100):
        fast.put_and_keep(number * PIECE, (number + 1) * PIECE)
    assert slow.get(0, 3 * PIECE) == DATA[: 3 * PIECE]
    assert budget.held == 8 * PIECE
    slow.clear()
    assert budget.held == 5 * PIECE


FULL = SimpleNamespace(allow=lambda _entry, _need, _want: False)
"""A store whose disk takes nothing."""


def test_refetched_bytes_count_as_recent(tmp_path: Path) -> None:
    """Bytes that are fetched again count as recent from that moment, stored or not."""
    entry = CacheEntry(
        1, "stamp", 4 * PIECE, tmp_path / "file", None, MemoryBudget(2 * PIECE), cast(Any, FULL)
    )
    for number in range(4):  # the first two end, which the loop has not processed yet
        entry.store(number * PIECE, bytes([number]) * PIECE, lambda: None)
    again = []

    def came() -> None:
        entry.process_arrivals()
        again.append(entry.present.covers(0, PIECE))
        again.append(entry.read(0, PIECE) == bytes(PIECE))

    entry.store(0, bytes(PIECE), came)
    assert again == [True, True]
    entry.process_arrivals()
    assert entry.read(0, PIECE) == bytes(PIECE)
    entry.close()
