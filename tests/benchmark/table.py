"""Output of the figures: tables for a terminal and for a page, and JSON.

Knows nothing about the measurements.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.benchmark.rows import Goal, Row
from tests.benchmark.spread import Spread

BEGIN, END = "<!-- benchmark -->\n", "<!-- /benchmark -->\n"
PEERS = ("rclone", "davfs2", "sshfs")
LIMITS = ("native", "bare", "curl", "requests")

Measured = Mapping[str, Mapping[str, Sequence[Mapping[str, float]]]]
"""Figures by measurement and contestant, one for each time it was measured."""


@dataclass(frozen=True)
class Verdict:
    """Result of a goal: the figure or ratio, and whether the goal is met."""

    goal: Goal
    reached: float | None
    met: bool | None

    def __str__(self) -> str:
        goal = self.goal
        if goal.within:
            return f"{goal.within:g} x {goal.against} + {goal.plus:g} s"
        if goal.against:
            kept = " in a file" if goal.figure else ""
            return f"{goal.ratio:g} x {goal.against}{kept}"
        return f"{goal.limit:g}"

    @property
    def outcome(self) -> str:
        """Return the ratio, or whether the limit is met."""
        if self.goal.against:
            if self.reached is None:
                return "?"
            return f"{self.reached:.{2 if self.reached < 10 else 0}f} x"
        return "yes" if self.met else "no"


@dataclass(frozen=True)
class Line:
    """Row with the figures of each contestant."""

    row: Row
    found: Mapping[str, Mapping[str, Spread]]
    """By contestant: the spread of each figure of the measurement."""
    times: int = 5

    def spread(self, who: str, figure: str = "") -> Spread | None:
        """Return the spread of the row's figure, or another one of the same measurement."""
        return self.found.get(who, {}).get(figure or self.row.figure)

    @property
    def who(self) -> list[str]:
        """Return the contestants that have the row's figure."""
        return [who for who in self.found if self.spread(who)]

    @property
    def verdicts(self) -> list[Verdict]:
        """Return the verdicts on the row's goals; without a measurement, `met` is None."""
        return [self._verdict(goal) for goal in self.row.goals]

    def _verdict(self, goal: Goal) -> Verdict:
        ours = self.spread("zonedrive")
        if ours is None:
            return Verdict(goal, None, None)
        if not goal.against:
            more = self.row.more_is_better
            met = ours.median >= goal.limit if more else ours.median <= goal.limit
            return Verdict(goal, ours.median, met)
        if goal.within:
            theirs = self.spread(goal.against, goal.figure)
            if not theirs or not theirs.median:
                return Verdict(goal, None, None)
            times = (ours.median - goal.plus) / theirs.median
            return Verdict(goal, times, times <= goal.within)
        ratio = self.ratio(goal.against, goal.figure)
        return Verdict(goal, ratio, None if ratio is None else ratio >= goal.ratio)

    def ratio(self, other: str, figure: str = "") -> float | None:
        """Return the ratio by which zonedrive's median is better than the other's."""
        ours, theirs = self.spread("zonedrive"), self.spread(other, figure)
        if not ours or not theirs or not ours.median or not theirs.median:
            return None
        better = self.row.more_is_better
        return ours.median / theirs.median if better else theirs.median / ours.median

    def shown(self, who: str) -> str:
        """Return the cell of a contestant: median, spread, CPU seconds."""
        spread = self.spread(who)
        if spread is None:
            return ""
        text = spread.shown(self.row.digits, self.row.unit, usual=self.times)
        cpu = self.spread(who, self.row.cpu) if self.row.cpu else None
        return f"{text}, CPU {cpu.median:.2f} s" if cpu else text


def lines(rows: Sequence[Row], measured: Measured, times: int = 5) -> list[Line]:
    """Return the rows that have figures."""
    found = [Line(row, _spreads(measured.get(row.measured, {})), times) for row in rows]
    return [line for line in found if line.who]


def _spreads(measured: Mapping[str, Sequence[Mapping[str, float]]]) -> dict[str, dict[str, Spread]]:
    """Return the spread of each figure by contestant; a failed try has no figures."""
    found: dict[str, dict[str, Spread]] = {}
    for who, tries in measured.items():
        figures = dict.fromkeys(figure for each in tries for figure in each)
        found[who] = {
            figure: Spread.of([each[figure] for each in tries if figure in each])
            for figure in figures
        }
    return found


def cells(line: Line) -> list[str]:
    """Return the columns of a row; a missed goal is bold."""
    limit = "; ".join(f"{who}: {line.shown(who)}" for who in LIMITS if line.spread(who))
    goals = ", ".join(map(str, line.verdicts))
    reached = ", ".join(each.outcome for each in line.verdicts)
    if any(each.met is False for each in line.verdicts):
        reached = f"**{reached}**"
    return [
        line.row.title, line.shown("zonedrive"), *map(line.shown, PEERS), limit, goals, reached,
    ]  # fmt: skip


HEADS = ["work", "zonedrive", *PEERS, "limit", "goal", "reached"]


def text(every: Sequence[Sequence[str]]) -> str:
    """Return cells as a table for a terminal; the first row is the heading."""
    widths = [max(map(len, column)) for column in zip(*every, strict=True)]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in every
    )


def markdown(found: Sequence[Line], about: str) -> str:
    """Return the Markdown block for the page."""
    every = [HEADS, ["---", *["--:"] * (len(HEADS) - 1)], *map(cells, found)]
    table = "\n".join(f"| {' | '.join(cells)} |" for cells in every)
    return f"{about}\n\n{table}\n"


def publish(path: Path, block: str) -> None:
    """Replace the text between the two markers. Raises ValueError if a marker is missing."""
    old = path.read_text("utf-8")
    before, begin, rest = old.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{path} has no {BEGIN.strip()} … {END.strip()}")
    path.write_text(f"{before}{BEGIN}{block}{END}{after}", "utf-8")


def as_json(found: Sequence[Line], measured: Measured, about: Mapping[str, Any]) -> dict[str, Any]:
    """Return all figures as JSON."""
    return {
        **about,
        "rows": [
            {
                "title": line.row.title,
                "measured": line.row.measured,
                "figure": line.row.figure,
                "unit": line.row.unit,
                "digits": line.row.digits,
                "more_is_better": line.row.more_is_better,
                "figures": {who: _as_json(line.spread(who)) for who in line.who},
                "cpu": {
                    who: _as_json(line.spread(who, line.row.cpu)) for who in line.who
                    if line.row.cpu
                },
                "ratios": {who: line.ratio(who) for who in line.who if who != "zonedrive"},
                "goals": [
                    {"goal": str(each), "reached": each.reached, "met": each.met}
                    for each in line.verdicts
                ],
            }
            for line in found
        ],
        "measured": measured,
    }  # fmt: skip


def _as_json(spread: Spread | None) -> dict[str, float] | None:
    return asdict(spread) if spread else None
