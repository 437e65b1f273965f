"""Buffer of recent chunks: they are read from memory, and freed memory is not read again."""

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.content.scripted import KIB, content
from zonedrive.content.read_buffers import RecentChunks

DATA = content(300 * KIB)
PIECES = st.lists(
    st.tuples(
        st.integers(0, 300 * KIB - 1), st.sampled_from([1, 9000, 64 * KIB, 100_000]), st.booleans()
    ),
    max_size=20,
)


@settings(deadline=None)
@given(PIECES, st.integers(0, 300 * KIB), st.integers(1, 128 * KIB))
def test_recent_bytes_are_the_right_ones(
    pieces: list[tuple[int, int, bool]], offset: int, length: int
) -> None:
    """In any order of chunks, a read returns the bytes of the content, or nothing.

    The memory of removed chunks is overwritten at once, as downloads do. A chunk that is stored
    nowhere else is always in the buffer.
    """
    recent = RecentChunks(capacity=200 * KIB)
    for start, size, is_stored in pieces:
        chunk = bytearray(DATA[start : start + size])
        recent.put(start, memoryview(chunk))
        if is_stored:
            recent.stored(start)
        while recent.spent:
            spent = recent.spent.popleft()
            assert isinstance(spent, memoryview)
            spent[:] = b"\0" * len(spent)
    found = recent.get(offset, length)
    assert found is None or found == DATA[offset : offset + length]
    for start, end in recent.unstored:
        assert recent.get(start, end - start) == DATA[start:end]


def test_recent_bytes_are_read_across_chunks() -> None:
    """A reader just behind the download does not need the disk."""
    recent = RecentChunks()
    for start in range(0, 256 * KIB, 64 * KIB):
        recent.put(start, DATA[start : start + 64 * KIB])
    assert recent.get(60 * KIB, 140 * KIB) == DATA[60 * KIB : 200 * KIB]
    assert recent.get(200 * KIB, 64 * KIB) is None
    recent.clear()
    assert recent.get(60 * KIB, 1) is None


def test_stored_chunks_are_dropped_at_rest() -> None:
    """Stored chunks are dropped when no download runs, other chunks as soon as they are stored."""
    recent = RecentChunks()
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
    recent, held = RecentChunks(capacity=200 * KIB), 0
    for number, size in enumerate([64 * KIB] * 100 + [1] * 1000):
        recent.put(number * 64 * KIB, bytes(size))
        recent.stored(number * 64 * KIB)
        held += size - sum(map(len, recent.spent))
        recent.spent.clear()
        assert held <= 200 * KIB
    assert held <= 64


def test_a_chunk_stays_until_it_is_stored() -> None:
    """The only copy of a chunk is never removed, however slow the disk is."""
    recent = RecentChunks(capacity=100 * KIB)
    for number in range(4):
        recent.put(number * 64 * KIB, DATA[: 64 * KIB])
    assert list(recent.unstored) == [(n * 64 * KIB, (n + 1) * 64 * KIB) for n in range(4)]
    assert not recent.spent
    for number in range(4):
        recent.stored(number * 64 * KIB)
    recent.put(9 * 64 * KIB, b"x")
    assert sum(map(len, recent.spent)) == 3 * 64 * KIB
    assert list(recent.unstored) == [(9 * 64 * KIB, 9 * 64 * KIB + 1)]
