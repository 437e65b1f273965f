"""Cells and goals of the table, the file formats, and the comparison of two reports."""

import json
from pathlib import Path

import pytest

from tests.benchmark import compare, table
from tests.benchmark.__main__ import PAGE
from tests.benchmark.rows import ROWS, WORKS, Goal, Row
from tests.benchmark.spread import Spread

FAST = Row("listing", "list", "per_s", "/s", (Goal("rclone", 3),), more_is_better=True, cpu="cpu_s")
SHORT = Row("walk", "walk", "s", "s", (Goal("rclone", 10), Goal(limit=2)))
WITHIN = Row("sent", "send", "s", "s", (Goal("curl", within=1.3, plus=1.0),))
FILE = Row("read", "read", "mb", "MB/s", (Goal("curl", 0.8, figure="file"),), more_is_better=True)


def test_a_ratio_is_above_one_if_the_value_is_better() -> None:
    """Twice the rate and half the time are both 2 x."""
    figures = {"list": {"zonedrive": [{"per_s": 300.0}], "rclone": [{"per_s": 150.0}]}}
    (line,) = table.lines([FAST], figures)
    assert line.ratio("rclone") == 2
    (line,) = table.lines([SHORT], {"walk": {"zonedrive": [{"s": 1.0}], "rclone": [{"s": 2.0}]}})
    assert line.ratio("rclone") == 2


def test_the_median_counts_and_the_lowest_and_highest_are_shown() -> None:
    """Goals are compared with the median, not with the best or worst value."""
    ours = [{"per_s": value, "cpu_s": 0.25} for value in (10.0, 500.0, 310.0)]
    figures = {"list": {"zonedrive": ours, "rclone": [{"per_s": 100.0}] * 3}}
    (line,) = table.lines([FAST], figures, times=3)
    assert line.spread("zonedrive") == Spread(310.0, 10.0, 500.0, 3)
    assert line.shown("zonedrive") == "310.0 /s (10.0–500.0), CPU 0.25 s"
    assert line.shown("rclone") == "100.0 /s (100.0–100.0)"
    assert [each.met for each in line.verdicts] == [True]


def test_a_smaller_number_of_tries_is_shown() -> None:
    """One value must not look like a median of five; a failed try has no figures."""
    figures = {"walk": {"zonedrive": [{"s": 1.0}, {}, {"s": 2.0}], "rclone": [{"s": 3.0}]}}
    (line,) = table.lines([SHORT], figures)
    assert line.shown("zonedrive") == "1.5 s (1.0–2.0, 2x)"
    assert line.shown("rclone") == "3.0 s (once)"
    assert Spread.of([3.0]).shown(1, "s", usual=1) == "3.0 s"


def test_a_missed_goal_is_bold() -> None:
    """A missed goal must be visible, and a goal without a measurement must not look met."""
    figures = {"walk": {"zonedrive": [{"s": 1.5}], "rclone": [{"s": 3.0}]}}
    (line,) = table.lines([SHORT], figures)
    assert [each.met for each in line.verdicts] == [False, True]
    assert table.cells(line)[-1] == "**2.00 x, yes**"
    (line,) = table.lines([SHORT], {"walk": {"zonedrive": [{"s": 1.5}]}})
    assert [each.met for each in line.verdicts] == [None, True]


def test_a_goal_may_allow_a_delay_and_name_another_figure() -> None:
    """The delay is subtracted before the ratio; the other figure is from the same work."""
    for took, met in ((3.6, True), (3.61, False)):
        figures = {"send": {"zonedrive": [{"s": took}], "curl": [{"s": 2.0}]}}
        (line,) = table.lines([WITHIN], figures)
        assert [each.met for each in line.verdicts] == [met]
        assert table.cells(line)[-2] == "1.3 x curl + 1 s"
    (line,) = table.lines([WITHIN], {"send": {"zonedrive": [{"s": 1.0}]}})
    assert [each.met for each in line.verdicts] == [None]
    figures = {"read": {"zonedrive": [{"mb": 90.0}], "curl": [{"mb": 200.0, "file": 100.0}]}}
    (line,) = table.lines([FILE], figures)
    assert [each.met for each in line.verdicts] == [True]


def test_two_reports_are_compared_by_medians_and_spread() -> None:
    """A difference within the spread is named as such."""
    reports = []
    for values in ((10.0, 11.0, 12.0), (20.0, 22.0, 24.0), (11.5, 12.0, 30.0)):
        measured = {"list": {"zonedrive": [{"per_s": value, "cpu_s": 1.0} for value in values]}}
        found = table.as_json(table.lines([FAST], measured), measured, {"about": "here"})
        reports.append(json.loads(json.dumps(found)))
    (row,) = compare.rows(reports[0], reports[1], "zonedrive")
    assert row[0] == "listing"
    assert row[3:] == ["2.00 x", "1.00 s", "1.00 s"]
    (row,) = compare.rows(reports[0], reports[2], "zonedrive")
    assert row[3] == "1.09 x, within the spread"
    assert compare.rows(reports[0], reports[1], "rclone") == []
    assert compare.judged(Spread(2, 2, 2, 1), Spread(1, 1, 1, 1), more_is_better=False) == "2.00 x"


def test_only_the_block_between_the_markers_changes(tmp_path: Path) -> None:
    """Publishing keeps the rest of the page."""
    page = tmp_path / "PERFORMANCE.md"
    page.write_text(f"above\n{table.BEGIN}old\n{table.END}below\n")
    table.publish(page, "new\n")
    assert page.read_text() == f"above\n{table.BEGIN}new\n{table.END}below\n"
    page.write_text("nothing\n")
    with pytest.raises(ValueError, match="has no"):
        table.publish(page, "new\n")
    published = PAGE.read_text("utf-8")
    assert 0 < published.find(table.BEGIN) < published.find(table.END)


def test_every_row_has_a_measurement_and_a_contestant() -> None:
    """Each row can have figures."""
    for row in ROWS:
        assert row.measured in WORKS, row.title
        for goal in row.goals:
            assert goal.against in ("", *WORKS[row.measured].who), row.title
            assert sum(map(bool, (goal.ratio, goal.limit, goal.within))) == 1, row.title
    for name, work in WORKS.items():
        assert set(work.instead) <= set(work.who), name
        assert ("curl" in work.who) == ("curl" in work.instead), name
        assert work.measured_by("curl") is not work.measure or "curl" not in work.who, name
