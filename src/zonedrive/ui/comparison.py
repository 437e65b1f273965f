"""Comparison of two versions of a text, side by side."""

import difflib
from collections.abc import Iterator, Mapping, Sequence
from difflib import Match
from pathlib import Path
from typing import NamedTuple

LARGEST = 512 * 1024  # bytes of a text that is compared
MOST_STEPS = 20_000_000  # steps of a comparison; some seconds
CONTEXT = 3  # equal lines shown around a difference


class Row(NamedTuple):
    """Row of a comparison, with a line and its number (from 1) on each side.

    On a side that has no line, the number is None and the line is "".
    """

    kind: str  # same, changed, added, removed or gap
    left_number: int | None
    left: str
    right_number: int | None
    right: str


def text_of(path: Path) -> str | None:
    """Return the text of a file; None if the file exceeds LARGEST bytes or is not UTF-8 text."""
    with path.open("rb") as file:
        data = file.read(LARGEST + 1)
    if len(data) > LARGEST or b"\0" in data:
        return None
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return None


def rows(left: str, right: str) -> list[Row] | None:
    """Return the rows of a comparison; a "gap" row replaces equal lines between differences.

    At most CONTEXT equal lines are kept before and after each difference. Return None if the
    comparison takes more than MOST_STEPS steps, because many lines are equal to many others.
    """
    ours, theirs = left.splitlines(), right.splitlines()
    found = list[Row]()
    try:
        for group in _Matcher(ours, theirs).get_grouped_opcodes(CONTEXT):
            if found:
                found.append(Row("gap", None, "", None, ""))
            for tag, i1, i2, j1, j2 in group:
                found += _pairs(tag, range(i1, i2), range(j1, j2), ours, theirs)
    except _TooLong:
        return None
    return found


class _TooLong(Exception):
    pass


class _Matcher(difflib.SequenceMatcher[str]):
    """Matcher that raises _TooLong after visiting MOST_STEPS lines and pairs of equal lines."""

    a: Sequence[str]
    b2j: Mapping[str, Sequence[int]]  # indexes of each line of `theirs`

    def __init__(self, ours: Sequence[str], theirs: Sequence[str]) -> None:
        self._rest = MOST_STEPS
        super().__init__(None, ours, theirs, autojunk=False)

    def find_longest_match(
        self, alo: int = 0, ahi: int | None = None, blo: int = 0, bhi: int | None = None
    ) -> Match:
        lines = self.a[alo:ahi]
        self._rest -= sum(1 + len(self.b2j.get(line, ())) for line in lines)
        if self._rest < 0:
            raise _TooLong
        return super().find_longest_match(alo, ahi, blo, bhi)


def _pairs(
    tag: str, left: range, right: range, ours: Sequence[str], theirs: Sequence[str]
) -> Iterator[Row]:
    kinds = {"equal": "same", "replace": "changed", "delete": "removed", "insert": "added"}
    for index in range(max(len(left), len(right))):
        i = left[index] if index < len(left) else None
        j = right[index] if index < len(right) else None
        kind = kinds[tag]
        if kind == "changed" and (i is None or j is None):
            kind = "added" if i is None else "removed"
        yield Row(
            kind,
            None if i is None else i + 1,
            "" if i is None else ours[i],
            None if j is None else j + 1,
            "" if j is None else theirs[j],
        )
