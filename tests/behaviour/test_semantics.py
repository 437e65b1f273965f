"""The page of promises says what really happens."""

import contextlib
import os

import pytest

from tests.behaviour import semantics
from tests.behaviour.semantics import OPERATIONS, difference, outcome, rows, seen_here, seen_there
from tests.harness.machine import Mounted


def test_every_row_is_executed() -> None:
    """No promise on the page is without its proof, and no proof without its promise."""
    assert [row.operation for row in rows()] == list(OPERATIONS)


@pytest.mark.parametrize(
    "profile",
    [
        pytest.param("published", marks=pytest.mark.mount("settle=60", profile="published")),
        pytest.param("sandbox", marks=pytest.mark.mount("settle=60")),
    ],
)
def test_operations(mounted: Mounted, profile: str) -> None:
    """Each operation ends as its row says, outlives a kill, and the service gets just that."""
    table = {f"row {number}": row for number, row in enumerate(rows())}
    for name in table:
        mounted.zone.make_folder(name)
        mounted.zone.write(f"{name}/a.txt", b"former content\n")
        mounted.zone.write(f"{name}/b.txt", b"another\n")
        mounted.zone.make_folder(f"{name}/sub")
    mounted.restart()
    first = {name: seen_here(mounted.root / name) for name in table}
    remote = {name: seen_there(mounted.zone, name) for name in table}
    ended = {
        name: outcome(OPERATIONS[row.operation], mounted.root / name) for name, row in table.items()
    }
    second = {name: seen_here(mounted.root / name) for name in table}
    mounted.kill()
    while semantics.LEFT_OPEN:
        with contextlib.suppress(OSError):
            os.close(semantics.LEFT_OPEN.pop())
    mounted.mount()
    third = {name: seen_here(mounted.root / name) for name in table}
    mounted.sync(seconds=60)
    wrong = []
    for name, row in table.items():
        expected = row.published if profile == "published" else row.full
        refused = expected != "ok"
        survives = "-" if second[name] == first[name] else "no"
        if survives == "no" and third[name] == second[name]:
            survives = "yes"
        told = difference(remote[name], seen_there(mounted.zone, name))
        found = (ended[name], survives, told)
        if found != (expected, "-" if refused else row.survives, "-" if refused else row.service):
            wrong.append(f"{row.operation}: {found}, the page says {row}")
    assert not wrong, "\n".join(wrong)
