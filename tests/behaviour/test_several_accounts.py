"""Accounts of two users on one machine, at the same time."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness import world
from tests.harness.deployment import Deployment
from tests.harness.machine import Machine, has_ended
from tests.harness.waiting import eventually

ACCOUNTS = {"work": "alice", "home-2": "bob"}


@pytest.fixture
def both(machine: Machine, deployment: Deployment) -> Iterator[dict[str, Path]]:
    """Yield Alice's and Bob's mounts, by account."""
    mounts = {}
    try:
        for account, name in ACCOUNTS.items():
            machine.log_on(deployment, name=name, profile="sandbox", options=["--account", account])
            mounts[account] = machine.folder / f"of-{account}" / account
            mounts[account].mkdir(parents=True)
            machine.done("mount", mounts[account], "--account", account, "-osettle=0.2")
        yield mounts
    finally:
        for path in mounts.values():
            machine.run("unmount", path, "--now")


def status(machine: Machine, account: str) -> dict[str, object]:
    """Return the status of an account's daemon."""
    found: dict[str, object] = json.loads(machine.done("status", "--json", "--account", account))
    return found


def test_two_accounts_are_independent(
    machine: Machine, deployment: Deployment, zone: str, both: dict[str, Path]
) -> None:
    """Two daemons and two mounts: each acts as its own user, and they share no file."""
    for account, name in ACCOUNTS.items():
        (both[account] / zone / f"by {name}.txt").write_text(name)
        machine.done("sync", both[account])
    seen = deployment.person("carol").zone(zone).listing()
    for name in ACCOUNTS.values():
        assert seen[f"by {name}.txt"]["lastModifiedBy"] == f"{name}@{world.DOMAIN}"
    found = {account: status(machine, account) for account in ACCOUNTS}
    assert len({each["pid"] for each in found.values()}) == 2
    for account, path in both.items():
        assert found[account]["mountpoint"] == str(path)
        assert found[account]["account"] == account
    kept = {
        account: (machine.folders["STATE_HOME"] / "zonedrive" / account / "secrets.json")
        for account in ACCOUNTS
    }
    one, other = (json.loads(path.read_text()) for path in kept.values())
    assert set(one.values()).isdisjoint(other.values())


def test_one_account_ends_without_the_other(
    machine: Machine, deployment: Deployment, zone: str, both: dict[str, Path]
) -> None:
    """A logoff leaves everything of the other account, locally and at the service."""
    machine.done("logoff", "--account", "work")
    assert not (machine.folders["STATE_HOME"] / "zonedrive" / "work").exists()
    assert not (machine.folders["CACHE_HOME"] / "zonedrive" / "work").exists()
    assert list(both["work"].iterdir()) == []
    (both["home-2"] / zone / "still.txt").write_text("here")
    machine.done("sync", both["home-2"])
    assert deployment.person("carol").zone(zone).read("still.txt") == b"here"
    refused = machine.run("status", "--account", "work")
    assert refused.returncode == 3
    assert "'work' is not logged on" in refused.stderr


def test_a_folder_above_the_mount_is_renamed(
    machine: Machine, zone: str, both: dict[str, Path]
) -> None:
    """Commands find the mount at its current path, also if another account is mounted at the former
    one, and an unmount ends that mount alone."""
    first = both["work"]
    moved = both["work"] = machine.folder / "moved" / first.name
    first.parent.rename(moved.parent)
    assert status(machine, "work")["mountpoint"] == str(moved)
    machine.done("unmount", both["home-2"])
    first.mkdir(parents=True)
    machine.done("mount", first, "--account", "home-2")
    both["home-2"] = first
    for path, name in ((moved, "one.txt"), (first, "two.txt")):
        (path / zone / name).write_text(name)
        machine.done("sync", path / zone / name)
    machine.done("unmount", moved)
    assert list(moved.iterdir()) == []
    assert (first / zone / "one.txt").read_text() == "one.txt"
    assert status(machine, "home-2")["mountpoint"] == str(first)
    assert status(machine, "work")["mountpoint"] is None


def test_a_dead_mount_of_another_account(machine: Machine, both: dict[str, Path]) -> None:
    """Only the check of its own account reports the mount, with a remedy for this account."""
    pid = int(str(status(machine, "work")["pid"]))
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: has_ended(pid), what="the daemon is dead")
    of_other = machine.run("doctor", "--account", "home-2").stdout
    assert "has lost its daemon" not in of_other
    assert str(both["work"]) not in of_other
    of_own = machine.run("doctor", "--account", "work").stdout
    assert "has lost its daemon" in of_own
    assert f"run 'zonedrive mount --account work {both['work']}'" in of_own


def test_a_path_in_a_dead_mount(machine: Machine, zone: str, both: dict[str, Path]) -> None:
    """Commands say that its daemon died, and how to mount it again; the other mount is usable."""
    pid = int(str(status(machine, "home-2")["pid"]))
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: has_ended(pid), what="the daemon is dead")
    for command in ("sync", "status", "pin", "versions", "share", "log"):
        for account in ((), ("--account", "home-2")):
            ended = machine.run(command, both["home-2"] / zone / "notes.txt", *account)
            assert (ended.returncode, ended.stdout, ended.stderr.count("\n")) == (1, "", 1)
            assert ended.stderr.startswith(f"zonedrive: the daemon of {both['home-2']} died after")
            mount = f"run 'zonedrive mount {both['home-2']} --account home-2'\n"
            assert ended.stderr.endswith(mount)
    machine.done("sync", both["work"])
    machine.done("mount", both["home-2"], "--account", "home-2")
    machine.done("sync", both["home-2"])


def test_remedies_name_the_account(machine: Machine, deployment: Deployment) -> None:
    """The command in a remedy names the same account."""
    for command in (["status"], ["zones"], ["sync"], ["mount", "."]):
        said = machine.run(*command, "--account", "work").stderr
        assert "run zonedrive logon URL --account work" in said, command
    said = machine.run("logoff", "--account", "work").stderr
    assert "the account 'work' is not logged on: nothing to do" in said
    said = machine.run("doctor", "--account", "work").stdout
    assert "run 'zonedrive logon URL --account work'" in said
    machine.log_on(deployment, profile="sandbox", options=("--account", "work"))
    said = machine.run("sync", "--account", "work").stderr
    assert "run 'zonedrive mount DIR --account work'" in said


@pytest.mark.parametrize("name", ["Work", "../x", "", "a" * 65])
def test_an_invalid_account_name_is_refused(machine: Machine, name: str) -> None:
    """Only names of up to 64 lower-case letters, digits and hyphens are accepted; others create no
    files."""
    for command in ("logon", "logoff", "status"):
        more = ["https://zones.invalid", "--username", "a", "--password-stdin"]
        refused = machine.run(command, *(more if command == "logon" else ()), "--account", name)
        assert refused.returncode in (1, 2)
        assert refused.stderr.count("\n") == 1, refused.stderr
        assert "account" in refused.stderr
    assert not (machine.folders["STATE_HOME"] / "zonedrive").exists()


@pytest.mark.parametrize("length", [65, 200])
def test_an_account_with_a_longer_name_can_log_off(
    machine: Machine, deployment: Deployment, length: int
) -> None:
    """Names had no limit in earlier versions; a daemon's socket has one."""
    machine.log_on(deployment, profile="sandbox", options=("--account", "a" * 64))
    folder = machine.folders["STATE_HOME"] / "zonedrive"
    (folder / ("a" * 64)).rename(folder / ("b" * length))
    option = ("--account", "b" * length)
    assert "is not mounted" in machine.run("sync", *option).stderr
    (machine.folder / "Z").mkdir()
    mounted = machine.run("mount", "Z", *option)
    if length > 100:
        assert mounted.returncode == 1 and mounted.stderr.count("\n") == 1
        assert mounted.stderr.endswith("too long; log off, and log on with another --account\n")
    else:
        assert mounted.returncode == 0
    machine.done("logoff", *option)
    assert not list(folder.iterdir())
    assert machine.run("status", *option).returncode == 2
