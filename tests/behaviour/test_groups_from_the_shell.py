"""`zonedrive groups`, as people and scripts use it."""

import itertools
import json
import re
from typing import Any

import pytest

from tests.harness import world
from tests.harness.deployment import Deployment
from tests.harness.machine import Machine
from tests.harness.terminal import Terminal

ALICE, BOB, CAROL = (f"{name}@{world.DOMAIN}" for name in ("alice", "bob", "carol"))
UNKNOWN = f"group.00000000-0000-4000-8000-000000000000@{world.DOMAIN}"
_numbers = itertools.count()


def changed(shell: Machine, *arguments: str) -> dict[str, Any]:
    """Return the JSON of a group after a command."""
    found: dict[str, Any] = json.loads(shell.done("groups", *arguments, "--json"))
    return found


def made(shell: Machine, *arguments: str) -> str:
    """Create a group; return its id."""
    return str(changed(shell, "create", f"Group {next(_numbers)}", *arguments)["id"])


def levels(group: dict[str, Any]) -> dict[str, str]:
    """Return the level of each member."""
    return {member["id"]: member["level"] for member in group["members"]}


def test_the_life_of_a_group(shell: Machine) -> None:
    """Members are added, changed and removed, by one command or several; then the group is
    deleted."""
    group = changed(
        shell, "create", "Night shift", "--description", "by night", "--member", f"{BOB}=Manage",
        "--member", f"{CAROL}=access",
    )  # fmt: skip
    assert re.fullmatch(rf"group\.[0-9a-f-]{{36}}@{world.DOMAIN}", group["id"])
    assert (group["name"], group["description"]) == ("Night shift", "by night")
    assert levels(group) == {BOB: "Manage", CAROL: "Access"}
    told = shell.done("groups", "--help")
    assert all(f'"{name}"' in told for name in [*group, *group["members"][0]])
    here = str(group["id"])
    group = changed(
        shell, "update", here, "--member", f"{CAROL}=None", "--member", f"{ALICE}=Access"
    )
    assert levels(group) == {BOB: "Manage", ALICE: "Access"}
    assert changed(shell, "update", here) == group  # no request, no change
    group = changed(shell, "update", here, "--absolute", "--member", f"{CAROL}=Manage")
    assert levels(group) == {CAROL: "Manage"}
    assert BOB in shell.done("groups", "member", here, BOB, "Access")
    assert "removed" in shell.done("groups", "member", here, CAROL, "none")
    shown = shell.done("groups", "update", here)
    assert here in shown and "Night shift" in shown and BOB in shown and CAROL not in shown
    assert here in shell.done("groups", "delete", here, "--yes")
    gone = shell.run("groups", "delete", here, "--yes")
    assert (gone.returncode, gone.stdout) == (1, "")


def test_a_group_in_a_group(shell: Machine) -> None:
    """A group's id can be a member; the service rejects a cycle."""
    inner = made(shell)
    outer = changed(shell, "create", f"Group {next(_numbers)}", "--member", f"{inner}=Access")
    assert {one["id"]: one["type"] for one in outer["members"]}[inner] == "Group"
    circle = shell.run("groups", "member", inner, str(outer["id"]), "Access")
    assert (circle.returncode, circle.stdout, circle.stderr.count("\n")) == (1, "", 1)


def test_a_person_is_asked_before_a_group_is_deleted(shell: Machine) -> None:
    """Any answer except yes leaves the group; a script must use --yes."""
    group = made(shell)
    for answer, code in (("n", 1), ("", 1), ("y", 0)):
        terminal = Terminal(shell, "groups", "delete", group)
        terminal.until("[y/N]")
        assert group in terminal.shown
        terminal.type(answer)
        assert terminal.end() == code, terminal.shown
        there = shell.run("groups", "update", group)
        assert there.returncode == (1 if answer == "y" else 0)
    mute = shell.run("groups", "delete", made(shell))
    assert mute.returncode == 2 and "--yes" in mute.stderr


def test_a_name_cannot_steer_the_terminal(shell: Machine) -> None:
    """Names and descriptions of groups are printed as plain text."""
    name, words = f"\x1b[31mred {next(_numbers)}", "a\nb\u202e"
    group = changed(shell, "create", name, "--description", words)
    assert (group["name"], group["description"]) == (f"\ufffd{name[1:]}", "a b\ufffd")
    shown = shell.done("groups", "update", str(group["id"]))
    assert "\x1b" not in shown and "\u202e" not in shown and "red" in shown


def test_a_refused_change_of_a_group(
    shell: Machine, machine: Machine, deployment: Deployment
) -> None:
    """Another manager's group cannot be changed, and an unknown id is explained."""
    group = made(shell, "--member", f"{ALICE}=Manage")
    machine.log_on(deployment, name="bob", profile="published", options=["--account", "bob"])
    refused = shell.run("groups", "update", group, "--member", f"{BOB}=Manage", "--account", "bob")
    assert refused.returncode == 1 and "manager of the group" in refused.stderr
    unknown = shell.run("groups", "delete", UNKNOWN, "--yes")
    assert unknown.returncode == 1 and "group.UUID@DOMAIN" in unknown.stderr
    taken = changed(shell, "update", group)["name"]
    twice = shell.run("groups", "create", taken)
    assert twice.returncode == 1 and "taken" in twice.stderr
    for failed in (refused, unknown, twice):
        assert failed.stdout == "" and failed.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["create", "g", "--member", BOB], "ID=LEVEL"),
        (["create", "g", "--member", f"{BOB}=Boss"], "Manage"),
        (["create", "g", "--member", f"{BOB}=Access", "--member", f"{BOB}=None"], "twice"),
        (["create", ""], "empty"),
        (["update", "g", "--absolute"], "--member"),
        (["update", "g", "--absolute", "--member", "a=None"], "would be empty"),
        (["member", "g", BOB, "Boss"], "Boss"),
        (["delete"], "GROUP"),
        (["list"], "list"),
    ],
)
def test_a_wrong_use_is_one_line(shell: Machine, arguments: list[str], word: str) -> None:
    """A wrong use gives one line and exit code 2, before a request is sent."""
    wrong = shell.run("groups", *arguments)
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert wrong.stderr.count("\n") == 1 and word in wrong.stderr
