"""The daemon dies at each place of the crash protocol: nothing is lost, nothing is sent twice."""

import ast
import contextlib
from collections import Counter
from pathlib import Path

import pytest

import zonedrive
from tests.crash.desk import Desk
from tests.crash.mounts import Mortal
from tests.crash.scenarios import SCENARIOS, SEED, Scenario
from tests.harness.waiting import eventually
from zonedrive.failpoint import Place


@pytest.mark.parametrize("place", Place, ids=str)
def test_a_death_at_this_place_loses_nothing(dying: Mortal, place: Place) -> None:
    """What a call had confirmed is there after the next mount, and on the service once.

    What the death interrupted has happened in full or not at all.
    """
    scenario = SCENARIOS[place]
    dying.allow("refused", *scenario.allowed)
    desk = Desk(dying, str(place), SEED)
    dying.mount(kill_at=scenario.first or place)
    if scenario.refusing:
        dying.deployment.fault(status=503, method="POST", path="^/api/zones/")
    _until_death(desk, scenario, scenario.first or place)
    if scenario.first is not None:
        if scenario.then is not None:
            scenario.then(desk)
        dying.deployment.heal()
        dying.mount(kill_at=place)
        _sync_until_death(desk, place)
    dying.deployment.heal()
    dying.mount()
    desk.check_here()
    desk.check_lost()
    dying.sync()
    desk.check_there()
    eventually(lambda: not dying.spool(), what="no bytes are left")
    assert dying.status()["outbox"]["pending"] == 0
    assert dying.complaints() == []


def _until_death(desk: Desk, scenario: Scenario, place: Place) -> None:
    try:
        scenario.work(desk)
    except OSError:
        assert desk.mount.died_at(place)
    else:
        _sync_until_death(desk, place)


def _sync_until_death(desk: Desk, place: Place) -> None:
    """What is still to be sent goes out at once, up to the place of death."""
    with contextlib.suppress(OSError):
        desk.mount.sync()
    assert desk.mount.died_at(place), f"{place} was not reached"


def test_every_place_is_in_one_line_of_the_sources() -> None:
    """No step of the protocol is without a test, and no test without a step."""
    passed: Counter[str] = Counter()
    for path in Path(zonedrive.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "reached" and node.args:
                passed[ast.unparse(node.args[0]).rpartition(".")[2]] += 1
    assert passed == Counter(place.name for place in Place)
    assert set(SCENARIOS) == set(Place)
