"""Death of the client at each place of the crash protocol: no data are lost or sent twice.

The fixtures of the mounted cases come from tests/crash.
"""

import ast
import contextlib
from collections import Counter
from pathlib import Path

import pytest

import zonedrive
from tests.crash.conftest import _accounts, dying
from tests.crash.desk import Desk
from tests.crash.mounts import Mortal
from tests.crash.scenarios import SCENARIOS, SEED, Scenario
from tests.harness.waiting import eventually
from zonedrive.failpoint import Place

__all__ = ["_accounts", "dying"]

MOUNTED = (
    Place.FILE_NAMED, Place.RENAMED, Place.RECORDED, Place.BODY_BEGUN, Place.REPLY_CAME,
    Place.ARRIVAL_INSIDE, Place.MOVE_DONE, Place.FOLDER_EMPTIED, Place.COPY_RECORDED,
    Place.RECOVERED, Place.CLOSING, Place.SALVAGE_ASIDE,
)  # fmt: skip


@pytest.mark.also_mounted(place=MOUNTED)
@pytest.mark.parametrize("place", Place, ids=str)
def test_a_death_at_this_place_loses_nothing(desk: Mortal, place: Place) -> None:
    """Every confirmed change exists after the next mount, and on the service once.

    The interrupted operation has happened completely or not at all.
    """
    scenario = SCENARIOS[place]
    desk.allow("refused", *scenario.allowed)
    work = Desk(desk, str(place), SEED)
    desk.mount(kill_at=scenario.first or place)
    if scenario.refusing:
        desk.deployment.fault(status=503, method="POST", path="^/api/zones/")
    _until_death(work, scenario, scenario.first or place)
    if scenario.first is not None:
        if scenario.then is not None:
            scenario.then(work)
        desk.deployment.heal()
        desk.mount(kill_at=place)
        _sync_until_death(work, place)
    desk.deployment.heal()
    desk.mount()
    work.check_here()
    work.check_lost()
    desk.sync()
    work.check_there()
    eventually(lambda: not desk.outgoing(), what="no bytes are left")
    assert desk.status()["outbox"]["pending"] == 0
    assert desk.complaints() == []


def _until_death(desk: Desk, scenario: Scenario, place: Place) -> None:
    try:
        scenario.work(desk)
    except OSError:
        assert desk.mount.died_at(place)
    else:
        _sync_until_death(desk, place)


def _sync_until_death(desk: Desk, place: Place) -> None:
    """Send everything that is pending, up to the place of death."""
    with contextlib.suppress(OSError):
        desk.mount.sync()
    assert desk.mount.died_at(place), f"{place} was not reached"


def test_every_place_is_in_one_line_of_the_sources() -> None:
    """Every step of the protocol has a test, and every test has a step."""
    passed: Counter[str] = Counter()
    for path in Path(zonedrive.__file__).parent.rglob("*.py"):
        text = path.read_text("utf-8")
        for node in ast.walk(ast.parse(text)) if "reached(" in text else ():
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "reached" and node.args:
                passed[ast.unparse(node.args[0]).rpartition(".")[2]] += 1
    assert passed == Counter(place.name for place in Place)
    assert set(SCENARIOS) == set(Place)
