"""What the table says of figures."""

from pathlib import Path

import pytest

from tests.benchmark import table
from tests.benchmark.rows import ROWS, WORKS, Goal, Row

FAST = Row("listing", "list", "per_s", "/s", (Goal("rclone", 3),), more_is_better=True)
SHORT = Row("walk", "walk", "s", "s", (Goal("rclone", 10), Goal(limit=2)))


def test_a_ratio_is_how_many_times_as_good_whichever_way_is_better() -> None:
    """Twice the rate and half the time are both 2 x."""
    figures = {"list": {"zonedrive": [{"per_s": 300.0}], "rclone": [{"per_s": 150.0}]}}
    (line,) = table.lines([FAST], figures)
    assert line.ratio("rclone") == 2
    (line,) = table.lines([SHORT], {"walk": {"zonedrive": [{"s": 1.0}], "rclone": [{"s": 2.0}]}})
    assert line.ratio("rclone") == 2


def test_the_best_of_several_tries_counts() -> None:
    """For a rate that is the highest, for a time the shortest."""
    (line,) = table.lines([FAST], {"list": {"zonedrive": [{"per_s": 1.0}, {"per_s": 3.0}]}})
    assert line.figures == {"zonedrive": 3.0}
    (line,) = table.lines([SHORT], {"walk": {"zonedrive": [{"s": 1.0}, {"s": 3.0}]}})
    assert line.figures == {"zonedrive": 1.0}


def test_a_missed_goal_is_bold_and_one_that_was_not_measured_is_neither() -> None:
    """Nobody reads a goal as reached that is not."""
    figures = {"walk": {"zonedrive": [{"s": 1.5}], "rclone": [{"s": 3.0}]}}
    (line,) = table.lines([SHORT], figures)
    assert [each.met for each in line.verdicts] == [False, True]
    assert table.cells(line)[-1] == "**2.00 x, yes**"
    (line,) = table.lines([SHORT], {"walk": {"zonedrive": [{"s": 1.5}]}})
    assert [each.met for each in line.verdicts] == [None, True]


def test_only_the_block_between_the_markers_changes(tmp_path: Path) -> None:
    """The rest of the README is written by hand."""
    readme = tmp_path / "README.md"
    readme.write_text(f"above\n{table.BEGIN}old\n{table.END}below\n")
    table.into_readme(readme, "new\n")
    assert readme.read_text() == f"above\n{table.BEGIN}new\n{table.END}below\n"
    readme.write_text("nothing\n")
    with pytest.raises(ValueError, match="has no"):
        table.into_readme(readme, "new\n")


def test_every_row_names_a_measurement_and_somebody_who_is_measured() -> None:
    """No row stays empty in silence."""
    for row in ROWS:
        assert row.measured in WORKS, row.title
        for goal in row.goals:
            assert goal.against in ("", *WORKS[row.measured].who), row.title
