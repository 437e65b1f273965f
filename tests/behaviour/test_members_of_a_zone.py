"""`zonedrive members`, as people and scripts use it."""

import json

import pytest

from tests.harness import world
from tests.harness.deployment import Deployment
from tests.harness.machine import Machine

LEVELS = {"alice": "Manage", "bob": "Modify", "carol": "Add"}


@pytest.fixture
def shell(machine: Machine, deployment: Deployment) -> Machine:
    """Return Alice's machine, logged on with the sandbox's profile, nothing mounted."""
    machine.log_on(deployment, profile="sandbox")
    return machine


def test_the_members_are_listed(shell: Machine, zone: str) -> None:
    """People get a table, programs all fields; the zone's name and its id mean the same."""
    table = shell.done("members", zone)
    found = json.loads(shell.done("members", zone, "--json"))
    assert found == [
        {"id": f"{name}@{world.DOMAIN}", "name": name.title(), "type": "User", "level": level}
        for name, level in LEVELS.items()
    ]
    for one in found:
        assert all(cell in table for cell in one.values())
    zones = json.loads(shell.done("zones", "--json"))
    zone_id = next(one["id"] for one in zones if one["name"] == zone)
    assert json.loads(shell.done("members", zone_id, "--json")) == found


def test_each_failure_is_one_line(shell: Machine, deployment: Deployment, zone: str) -> None:
    """An unknown zone, a refusal and an unreachable service give a cause, a remedy and a code."""
    unknown = shell.run("members", "No such zone")
    assert (unknown.returncode, unknown.stdout) == (1, "")
    assert "there is no zone 'No such zone'; run 'zonedrive zones'" in unknown.stderr
    with deployment.faulty(status=403, error="NOT_ALLOWED", path="/members$"):
        refused = shell.run("members", zone)
    assert (refused.returncode, refused.stdout, refused.stderr.count("\n")) == (1, "", 1)
    with deployment.faulty(down=True):
        away = shell.run("members", zone, "--json")
    assert (away.returncode, away.stdout, away.stderr.count("\n")) == (4, "", 1)
    assert shell.run("members").returncode == 2
    assert shell.run("members", " ").returncode == 2


def test_a_profile_without_members_asks_nothing(machine: Machine, deployment: Deployment) -> None:
    """One line has the missing operation and the remedy, also while the service is unreachable."""
    machine.log_on(deployment, profile="published")
    with deployment.faulty(down=True):
        refused = machine.run("members", "Zone 01")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "has no endpoint for members; log on with a --profile that has it" in refused.stderr
