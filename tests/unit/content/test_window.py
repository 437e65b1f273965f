"""The memory window gives back what it holds, and holds no more than it may."""

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.content.scripted import content
from zonedrive.content.window import CELL, Window

DATA = content(6 * CELL)
PIECES = st.lists(
    st.tuples(st.integers(0, 6 * CELL), st.sampled_from([1, 9000, CELL, 2 * CELL + 5])), max_size=20
)


@settings(deadline=None)
@given(PIECES, st.integers(0, 6 * CELL), st.integers(1, 2 * CELL))
def test_uncached_bytes_are_the_right_ones(
    pieces: list[tuple[int, int]], offset: int, length: int
) -> None:
    """Streams cut in any way overlap in memory: what came is there, nothing else is."""
    window, there = Window(), bytearray(9 * CELL)
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
    """However much passes through, only the latest bytes are held, and the rest is told."""
    window = Window(capacity=4 * CELL)
    for start in range(0, 100 * CELL, CELL):
        window.pwrite(start, bytes(CELL))
    assert window.pread(99 * CELL, CELL) == bytes(CELL)
    assert window.pread(90 * CELL, CELL) is None
    assert list(window.dropped) == [(n * CELL, (n + 1) * CELL) for n in range(96)]
