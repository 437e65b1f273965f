"""Tokens and passwords from a systemd unit, in a folder as systemd creates it."""

import json
import shutil
from collections.abc import Callable, Iterator

import pytest

from tests.behaviour.test_sessions import end_sessions, logons
from tests.harness import world
from tests.harness.deployment import Deployment
from tests.harness.machine import Machine, Mounted
from tests.harness.waiting import eventually

Give = Callable[[str, str], None]


@pytest.fixture
def give(machine: Machine) -> Give:
    """Pass a credential to every program of the machine from now on: 0400, in a 0500 folder."""
    folder = machine.folder / "credentials"
    folder.mkdir(mode=0o700)

    def handed(name: str, text: str) -> None:
        folder.chmod(0o700)
        path = folder / f"zonedrive.default.{name}"
        path.unlink(missing_ok=True)
        path.write_text(text)
        path.chmod(0o400)
        folder.chmod(0o500)
        machine.environment["CREDENTIALS_DIRECTORY"] = str(folder)

    return handed


@pytest.fixture
def unit(machine: Machine, deployment: Deployment, zone: str) -> Iterator[Mounted]:
    """Yield a machine that was logged on by hand once, with a session; not mounted yet."""
    machine.log_on(deployment, profile="sandbox", options=["--session-only"])
    mount = Mounted(machine, deployment, zone, ["settle=0.2"])
    yield mount
    deployment.heal()
    mount.tear_down()
    deployment.forget_people()


def test_a_token_may_be_given(
    unit: Mounted, give: Give, machine: Machine, deployment: Deployment
) -> None:
    """A bare token is accepted; zonedrive neither replaces nor deletes it."""
    path = machine.state / "secrets.json"
    machine.log_on(deployment, profile="sandbox")
    token = json.loads(json.loads(path.read_text())["bearer"])["secret"]
    path.unlink()
    give("bearer", f"{token}\n")
    unit.mount()
    (unit.root / "new.txt").write_bytes(b"by a unit")
    unit.sync()
    assert set(json.loads(path.read_text())) == {"key"}
    refused = machine.run(
        "logon", deployment.base_url, "--username", "alice", "--password-stdin",
        text=f"{world.PASSWORDS['alice']}\n",
    )  # fmt: skip
    assert refused.returncode == 1
    assert refused.stderr.count("\n") == 1
    assert "systemd gives" in refused.stderr
    machine.done("logoff")
    assert (machine.folder / "credentials" / "zonedrive.default.bearer").exists()


def test_a_password_may_be_given_that_renews_the_session(unit: Mounted, give: Give) -> None:
    """A password renews the session even if only the account is left of the logon."""
    give("password", f"{world.PASSWORDS['alice']}\n")
    unit.mount()
    list(unit.root.iterdir())
    end_sessions(unit)
    assert (unit.root / "notes.txt").read_bytes() == world.SEED["notes.txt"]
    unit.unmount()
    (unit.machine.state / "secrets.json").write_text(
        json.dumps({"key": json.loads((unit.machine.state / "secrets.json").read_text())["key"]})
    )
    shutil.rmtree(unit.machine.cache)
    unit.mount()
    assert (unit.root / "notes.txt").read_bytes() == world.SEED["notes.txt"]
    assert not (unit.machine.state / "password.json").exists()
    assert not unit.complaints()


def test_a_wrong_password_of_a_unit_is_sent_once(
    unit: Mounted, give: Give, deployment: Deployment
) -> None:
    """A wrong password is sent once, also if the unit starts again; a different one is tried."""
    give("password", "wrong")
    deployment.person("bob")
    before = logons(deployment)
    end_sessions(unit)
    for _ in range(2):
        unit.mount()
        eventually(lambda: unit.status()["state"] == "logon-required", what="the state")
        unit.unmount()
    assert logons(deployment) == before + 1
    give("password", world.PASSWORDS["alice"])
    unit.mount()
    assert (unit.root / "notes.txt").read_bytes() == world.SEED["notes.txt"]
