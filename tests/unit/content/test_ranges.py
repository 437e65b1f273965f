"""A set of byte positions behaves like a set."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zonedrive.content.ranges import Ranges

POSITION = st.integers(0, 60)
STEPS = st.lists(st.tuples(st.booleans(), POSITION, POSITION), max_size=30)


def played(steps: list[tuple[bool, int, int]]) -> tuple[Ranges, set[int]]:
    """The same steps on a Ranges and on a plain set."""
    ranges, model = Ranges(), set[int]()
    for add, start, end in steps:
        if add:
            ranges.add(start, end)
            model |= set(range(start, end))
        else:
            ranges.remove(start, end)
            model -= set(range(start, end))
    return ranges, model


@settings(deadline=None)
@given(STEPS)
def test_it_holds_what_was_added_and_not_removed(steps: list[tuple[bool, int, int]]) -> None:
    """Whatever comes and goes, exactly the bytes that are there count as there."""
    ranges, model = played(steps)
    assert {position for start, end in ranges for position in range(start, end)} == model
    assert bool(ranges) == bool(model)
    pairs = list(ranges)
    assert all(start < end for start, end in pairs)
    assert all(one[1] < other[0] for one, other in itertools.pairwise(pairs))


@settings(deadline=None)
@given(STEPS, POSITION, POSITION)
def test_its_questions_have_the_answers_of_a_set(
    steps: list[tuple[bool, int, int]], start: int, end: int
) -> None:
    """A read is served exactly when all its bytes are there."""
    ranges, model = played(steps)
    assert ranges.covers(start, end) == (set(range(start, end)) <= model)
    assert ranges.reach(start) == next(n for n in range(start, 200) if n not in model)
    assert ranges.following(start) == next((n for n in range(start, 200) if n in model), None)
    touched = [(s, e) for s, e in ranges if max(s, start) < min(e, end)]
    assert ranges.within(start, end) == touched


@settings(deadline=None)
@given(STEPS)
def test_it_comes_back_from_a_store(steps: list[tuple[bool, int, int]]) -> None:
    """What was cached before a restart is known after it."""
    ranges, _ = played(steps)
    assert list(Ranges.decode(ranges.encode())) == list(ranges)


@pytest.mark.parametrize(
    "data", [b"short", Ranges([(5, 9)]).encode() * 2, b"\0" * 16], ids=["cut", "twice", "empty"]
)
def test_damaged_ranges_are_refused(data: bytes) -> None:
    """A damaged list of ranges is noticed, not believed."""
    with pytest.raises(ValueError, match="not a list"):
        Ranges.decode(data)
