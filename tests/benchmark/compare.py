"""Comparison of two reports: `python -m tests.benchmark.compare OLD.json NEW.json`.

Two results differ if no value of one report lies within the values of the other.
"""

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.benchmark import table
from tests.benchmark.spread import Spread

HEADS = ("work", "old", "new", "new is", "CPU old", "CPU new")


def rows(old: Mapping[str, Any], new: Mapping[str, Any], who: str) -> list[list[str]]:
    """Return a row for each figure of `who` that both reports have."""
    before = {(row["measured"], row["figure"]): row for row in old["rows"]}
    found = []
    for row in new["rows"]:
        other = before.get((row["measured"], row["figure"]))
        if other is None or who not in row["figures"] or who not in other["figures"]:
            continue
        was, now = Spread(**other["figures"][who]), Spread(**row["figures"][who])
        shown = [each.shown(row["digits"], row["unit"]) for each in (was, now)]
        change = judged(was, now, more_is_better=row["more_is_better"])
        found.append([row["title"], *shown, change, *(_cpu(each, who) for each in (other, row))])
    return found


def judged(was: Spread, now: Spread, *, more_is_better: bool) -> str:
    """Return the ratio by which the new value is better, or a note that the values overlap."""
    if not was.median or not now.median:
        return "?"
    better = now.median / was.median if more_is_better else was.median / now.median
    return f"{better:.2f} x" if was.is_apart(now) else f"{better:.2f} x, within the spread"


def _cpu(row: Mapping[str, Any], who: str) -> str:
    found = row["cpu"].get(who)
    return f"{found['median']:.2f} s" if found else ""


def main() -> int:
    """Print the comparison of both reports, and their circumstances."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmark.compare", description=__doc__)
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--who", default="zonedrive", metavar="NAME")
    given = parser.parse_args()
    old, new = (json.loads(path.read_bytes()) for path in (given.old, given.new))
    for name, report in (("old", old), ("new", new)):
        print(f"{name}: {report['about']}")
    print(table.text([HEADS, *rows(old, new, given.who)]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
