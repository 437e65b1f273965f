"""The figures as people read them: a table for the terminal, the block in the README, JSON.

Must not know how anything was measured.
"""

import os
import platform
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.benchmark.rows import Goal, Row

BEGIN, END = "<!-- benchmark -->\n", "<!-- /benchmark -->\n"
PEERS = ("rclone", "davfs2", "sshfs")
LIMITS = ("native", "bare", "curl")

Measured = Mapping[str, Mapping[str, Sequence[Mapping[str, float]]]]
"""Figures by measurement and contestant, one for each time it was measured."""


@dataclass(frozen=True)
class Verdict:
    """A goal and what came of it."""

    goal: Goal
    reached: float | None
    met: bool | None

    def __str__(self) -> str:
        if self.goal.against:
            return f"{self.goal.ratio:g} x {self.goal.against}"
        return f"{self.goal.limit:g}"


@dataclass(frozen=True)
class Line:
    """A row with its figures."""

    row: Row
    figures: Mapping[str, float]

    @property
    def verdicts(self) -> list[Verdict]:
        """Its goals; one that nothing was measured for is neither met nor missed."""
        return [self._verdict(goal) for goal in self.row.goals]

    def _verdict(self, goal: Goal) -> Verdict:
        ours = self.figures.get("zonedrive")
        if ours is None:
            return Verdict(goal, None, None)
        if goal.against:
            ratio = self.ratio(goal.against)
            return Verdict(goal, ratio, None if ratio is None else ratio >= goal.ratio)
        met = ours >= goal.limit if self.row.more_is_better else ours <= goal.limit
        return Verdict(goal, ours, met)

    def ratio(self, other: str) -> float | None:
        """How many times as good as the other."""
        ours, theirs = self.figures.get("zonedrive"), self.figures.get(other)
        if not ours or not theirs:
            return None
        return ours / theirs if self.row.more_is_better else theirs / ours

    def shown(self, who: str) -> str:
        """A figure with its unit."""
        if who not in self.figures:
            return ""
        return f"{self.figures[who]:,.{self.row.digits}f} {self.row.unit}".strip()


def lines(rows: Sequence[Row], measured: Measured) -> list[Line]:
    """The rows for which there is anything; of several times the best counts."""
    found = []
    for row in rows:
        best = max if row.more_is_better else min
        figures = {
            who: best(values)
            for who, times in measured.get(row.measured, {}).items()
            if (values := [figures[row.figure] for figures in times if row.figure in figures])
        }
        if figures:
            found.append(Line(row, figures))
    return found


def machine() -> str:
    """What this ran on."""
    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    system = platform.freedesktop_os_release().get("PRETTY_NAME", platform.system())
    kernel = platform.release().partition("-")[0]
    return (
        f"{os.cpu_count()} cores of {model}, {system}, Linux {kernel}, "
        f"Python {platform.python_version()}"
    )


def cells(line: Line) -> list[str]:
    """The columns of a row."""
    limit = ", ".join(f"{line.shown(who)} ({who})" for who in LIMITS if who in line.figures)
    goals = ", ".join(map(str, line.verdicts))
    reached = ", ".join(
        ("?" if each.reached is None else f"{each.reached:.{2 if each.reached < 10 else 0}f} x")
        if each.goal.against
        else ("yes" if each.met else "no")
        for each in line.verdicts
    )
    if any(each.met is False for each in line.verdicts):
        reached = f"**{reached}**"
    return [
        line.row.title, line.shown("zonedrive"), *map(line.shown, PEERS), limit, goals, reached,
    ]  # fmt: skip


HEADS = ["work", "zonedrive", *PEERS, "limit", "goal", "reached"]


def text(found: Sequence[Line]) -> str:
    """For a terminal."""
    every = [HEADS, *map(cells, found)]
    widths = [max(len(cells[column]) for cells in every) for column in range(len(HEADS))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ).rstrip()
        for cells in every
    )


def markdown(found: Sequence[Line], about: str) -> str:
    """For the README."""
    every = [HEADS, ["---", *["--:"] * (len(HEADS) - 1)], *map(cells, found)]
    table = "\n".join(f"| {' | '.join(cells)} |" for cells in every)
    return f"{about}\n\n{table}\n"


def into_readme(path: Path, block: str) -> None:
    """Replace what stands between the two markers.  Raises ValueError where they are missing."""
    old = path.read_text("utf-8")
    before, begin, rest = old.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{path} has no {BEGIN.strip()} … {END.strip()}")
    path.write_text(f"{before}{BEGIN}{block}{END}{after}", "utf-8")


def as_json(found: Sequence[Line], measured: Measured, **more: object) -> dict[str, Any]:
    """Everything, for programs."""
    return {
        "date": time.strftime("%Y-%m-%d %H:%M", time.gmtime()),
        "machine": machine(),
        **more,
        "rows": [
            {
                "title": line.row.title,
                "measured": line.row.measured,
                "figure": line.row.figure,
                "unit": line.row.unit,
                "more_is_better": line.row.more_is_better,
                "figures": dict(line.figures),
                "ratios": {who: line.ratio(who) for who in line.figures if who != "zonedrive"},
                "goals": [
                    {
                        "against": each.goal.against or None,
                        "wanted": each.goal.ratio if each.goal.against else each.goal.limit,
                        "reached": each.reached,
                        "met": each.met,
                    }
                    for each in line.verdicts
                ],
            }
            for line in found
        ],
        "measured": measured,
    }
