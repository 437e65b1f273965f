"""`zonedrive users list`, as people and scripts use it."""

import json

from tests.harness import world
from tests.harness.deployment import Deployment
from tests.harness.machine import Machine


def test_all_users_are_listed(shell: Machine) -> None:
    """People get a table, programs the deployment's own fields."""
    table = shell.done("users", "list")
    found = json.loads(shell.done("users", "list", "--json"))
    assert len(found) == len(world.PASSWORDS)
    for user in found:
        assert user["id"] in table and user["name"] in table
    assert "\x1b" not in table


def test_a_refusal_is_one_line(shell: Machine, deployment: Deployment) -> None:
    """The line names the cause and whom to ask; no part of the table is printed."""
    with deployment.faulty(status=403, error="NOT_ALLOWED", path="^/api/users"):
        refused = shell.run("users", "list")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.count("\n") == 1 and "administrator" in refused.stderr
    with deployment.faulty(status=503, error="NOT_AVAILABLE", path="^/api/users"):
        busy = shell.run("users", "list", "--json")
    assert (busy.returncode, busy.stdout, busy.stderr.count("\n")) == (1, "", 1)
