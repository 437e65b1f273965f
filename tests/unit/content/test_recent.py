"""What came last can be read from memory, and the memory that is given back is not read again."""

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.content.scripted import KIB, content
from zonedrive.content.recent import Recent

DATA = content(300 * KIB)
PIECES = st.lists(
    st.tuples(st.integers(0, 300 * KIB), st.sampled_from([1, 9000, 64 * KIB, 100_000])),
    max_size=20,
)


@settings(deadline=None)
@given(PIECES, st.integers(0, 300 * KIB), st.integers(1, 128 * KIB))
def test_recent_bytes_are_the_right_ones(
    pieces: list[tuple[int, int]], offset: int, length: int
) -> None:
    """Whatever came in whatever order: a read gives the bytes of the content, or nothing.

    The memory of chunks that made room is written over at once, as downloads do.
    """
    recent = Recent(capacity=200 * KIB)
    for start, size in pieces:
        chunk = bytearray(DATA[start : start + size])
        for spent in recent.put(start, memoryview(chunk)):
            assert isinstance(spent, memoryview)
            spent[:] = b"\0" * len(spent)
    found = recent.get(offset, length)
    assert found is None or found == DATA[offset : offset + length]


def test_what_came_last_is_there_across_chunks() -> None:
    """A reader just behind the download needs no disk."""
    recent = Recent()
    for start in range(0, 256 * KIB, 64 * KIB):
        recent.put(start, DATA[start : start + 64 * KIB])
    assert recent.get(60 * KIB, 140 * KIB) == DATA[60 * KIB : 200 * KIB]
    assert recent.get(200 * KIB, 64 * KIB) is None
    recent.clear()
    assert recent.get(60 * KIB, 1) is None


def test_memory_is_bounded() -> None:
    """Never more than the capacity, nor more than a few small chunks."""
    recent, held = Recent(capacity=200 * KIB), 0
    for start in range(0, 100 * KIB * 64, 64 * KIB):
        held += 64 * KIB - sum(map(len, recent.put(start, bytes(64 * KIB))))
        assert held <= 200 * KIB
    for start in range(1000):
        held += 1 - sum(map(len, recent.put(start, b"x")))
    assert held <= 64
