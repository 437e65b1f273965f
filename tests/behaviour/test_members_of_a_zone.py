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


def test_members_are_added_changed_and_removed(shell: Machine, zone: str) -> None:
    """A manager removes a member by name, adds a user by id, and sets a level; a change that does
    not fit the list of members is refused."""
    carol = f"carol@{world.DOMAIN}"

    def levels() -> dict[str, str]:
        found = json.loads(shell.done("members", "--json", zone))
        return {one["id"].partition("@")[0]: one["level"] for one in found}

    assert f"{carol} is no longer a member" in shell.done("members", "remove", zone, "Carol")
    assert levels() == {"alice": "Manage", "bob": "Modify"}
    gone = shell.run("members", "set", zone, carol, "Add")
    assert gone.returncode == 1 and f"{carol!r} is not a member of {zone!r}" in gone.stderr
    assert f"{carol} is a member" in shell.done("members", "add", zone, carol, "modify")
    assert levels() == {**LEVELS, "carol": "Modify"}
    again = shell.run("members", "add", zone, carol, "Add")
    assert again.returncode == 1 and "change the level with 'zonedrive members set'" in again.stderr
    shell.done("members", "set", zone, carol, "Add")
    assert levels() == LEVELS
    assert shell.run("members", "set", zone, carol, "None").returncode == 2
    assert shell.run("members", "add", zone, carol).returncode == 2


def test_the_refusal_of_a_change_is_one_line(shell: Machine, zone: str) -> None:
    """The last manager stays, and the line says why."""
    refused = shell.run("members", "remove", zone, "Alice")
    assert (refused.returncode, refused.stdout, refused.stderr.count("\n")) == (1, "", 1)
    assert "keeps at least one manager" in refused.stderr
    assert shell.run("members", "add", zone, "nobody@nowhere.example", "Add").returncode == 1


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
    for words in (("set", "Zone 01", "bob", "Add"), ("remove", "Zone 01", "bob")):
        with deployment.faulty(down=True):
            refused = machine.run("members", *words)
        assert f"has no endpoint for {words[0]}_member" in refused.stderr
