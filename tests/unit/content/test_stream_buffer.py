"""Memory buffers of uncached downloads: right bytes, within the limit."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.content.scripted import content
from zonedrive.content.cache_entry import CacheEntry
from zonedrive.content.read_buffers import CELL, StreamBuffers

DATA = content(6 * CELL)
PIECES = st.lists(
    st.tuples(st.integers(0, 6 * CELL), st.sampled_from([1, 9000, CELL, 2 * CELL + 5])), max_size=20
)


@settings(deadline=None)
@given(PIECES, st.integers(0, 6 * CELL), st.integers(1, 2 * CELL))
def test_uncached_bytes_are_the_right_ones(
    pieces: list[tuple[int, int]], offset: int, length: int
) -> None:
    """Streams with any overlap: received bytes are in memory, and no others."""
    window, there = StreamBuffers().new(), bytearray(9 * CELL)
    for start, size in pieces:
        window.pwrite(start, DATA[start : start + size])
        size = len(DATA[start : start + size])
        there[start : start + size] = b"\1" * size
    found = window.pread(offset, length)
    if all(there[offset : offset + length]):
        assert found == DATA[offset : offset + length]
    else:
        assert found is None


def test_memory_is_bounded() -> None:
    """Only the latest bytes are kept, and the removal of others is reported."""
    window = StreamBuffers(4 * CELL).new()
    for start in range(0, 100 * CELL, CELL):
        window.pwrite(start, bytes(CELL))
    assert window.pread(99 * CELL, CELL) == bytes(CELL)
    assert window.pread(90 * CELL, CELL) is None
    assert list(window.dropped) == [(n * CELL, (n + 1) * CELL) for n in range(96)]


def test_all_buffers_share_one_limit() -> None:
    """With many open files, unused buffers are freed and the others share the limit."""
    windows = StreamBuffers(8 * CELL)
    idle, first, second = windows.new(), windows.new(), windows.new()
    idle.pwrite(0, DATA[: 4 * CELL])
    windows.empty_idle()
    first.pwrite(0, DATA[: 4 * CELL])
    second.pwrite(0, DATA[:CELL])
    assert windows.held == 8 * CELL
    assert idle.pread(CELL, CELL) == DATA[CELL : 2 * CELL]
    windows.empty_idle()
    first.pwrite(4 * CELL, DATA[: 2 * CELL])
    assert idle.held == CELL  # which was read, but before the others were
    assert list(idle.dropped) == [(n * CELL, (n + 1) * CELL) for n in range(3)]
    second.pwrite(CELL, DATA[: 4 * CELL])
    assert idle.held == 0
    assert first.held == second.held == 4 * CELL
    assert first.pread(2 * CELL, CELL) == DATA[2 * CELL : 3 * CELL]


def test_slow_readers_keep_their_share() -> None:
    """A film is not fetched repeatedly while other programs copy big files."""
    windows = StreamBuffers(8 * CELL)
    slow, fast = windows.new(), windows.new()
    slow.pwrite(0, DATA[: 3 * CELL])
    for start in range(0, 100 * CELL, CELL):
        fast.pwrite(start, bytes(CELL))
    assert slow.pread(0, 3 * CELL) == DATA[: 3 * CELL]
    assert windows.held == 8 * CELL


def test_closed_and_idle_buffers_are_freed() -> None:
    """The memory of idle buffers is freed."""
    windows = StreamBuffers()
    closed, idle = windows.new(), windows.new()
    for window in (closed, idle):
        window.pwrite(5, DATA[: 4 * CELL])
    closed.close()
    assert windows.held == idle.held == 4 * CELL
    windows.empty_idle()
    windows.empty_idle()
    assert windows.held == 0
    assert idle.pread(5, 1) is None


FULL = SimpleNamespace(allow=lambda _entry, _need, _want: False)
"""A store whose disk takes nothing."""


def test_refetched_bytes_count_as_recent(tmp_path: Path) -> None:
    """Bytes that are fetched again count as recent from that moment, stored or not."""
    windows = StreamBuffers(2 * CELL)
    entry = CacheEntry(1, "stamp", 4 * CELL, tmp_path / "file", None, windows, cast(Any, FULL))
    for number in range(4):  # the first two end, which the loop has not processed yet
        entry.store(number * CELL, bytes([number]) * CELL, lambda: None)
    again = []

    def came() -> None:
        entry.process_arrivals()
        again.append(entry.present.covers(0, CELL))
        again.append(entry.read(0, CELL) == bytes(CELL))

    entry.store(0, bytes(CELL), came)
    assert again == [True, True]
    entry.process_arrivals()
    assert entry.read(0, CELL) == bytes(CELL)
    entry.close()
