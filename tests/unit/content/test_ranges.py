"""Ranges of byte positions, compared with a plain set."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zonedrive.content.ranges import Ranges

POSITION = st.integers(0, 60)
STEPS = st.lists(st.tuples(st.booleans(), POSITION, POSITION), max_size=30)


def played(steps: list[tuple[bool, int, int]]) -> tuple[Ranges, set[int]]:
    """Apply the same steps to a Ranges and to a plain set; return both."""
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
def test_ranges_contain_the_positions_of_a_set(steps: list[tuple[bool, int, int]]) -> None:
    """After any additions and removals, a Ranges has the same positions as a set."""
    ranges, model = played(steps)
    assert {position for start, end in ranges for position in range(start, end)} == model
    assert bool(ranges) == bool(model)
    pairs = list(ranges)
    assert all(start < end for start, end in pairs)
    assert all(one[1] < other[0] for one, other in itertools.pairwise(pairs))


@settings(deadline=None)
@given(STEPS, POSITION, POSITION)
def test_ranges_answer_as_a_set(steps: list[tuple[bool, int, int]], start: int, end: int) -> None:
    """`covers` is true exactly if all bytes of a read are in the set."""
    ranges, model = played(steps)
    assert ranges.covers(start, end) == (set(range(start, end)) <= model)
    assert ranges.reach(start) == next(n for n in range(start, 200) if n not in model)
    assert ranges.following(start) == next((n for n in range(start, 200) if n in model), None)
    touched = [(s, e) for s, e in ranges if max(s, start) < min(e, end)]
    assert ranges.within(start, end) == touched


@settings(deadline=None)
@given(STEPS)
def test_ranges_can_be_stored_and_loaded(steps: list[tuple[bool, int, int]]) -> None:
    """Ranges that were cached before a restart are the same after it."""
    ranges, _ = played(steps)
    assert list(Ranges.decode(ranges.encode())) == list(ranges)


@pytest.mark.parametrize(
    "data", [b"short", Ranges([(5, 9)]).encode() * 2, b"\0" * 16], ids=["cut", "twice", "empty"]
)
def test_damaged_ranges_are_refused(data: bytes) -> None:
    """A damaged list of ranges raises an error."""
    with pytest.raises(ValueError, match="not a list"):
        Ranges.decode(data)
