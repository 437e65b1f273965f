"""Shells that `su` or `sudo -E` started in another user's session write nothing to that user."""

import json
import os
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.harness import intruder, world
from tests.harness.bus import Bus, Ring
from tests.harness.deployment import Deployment
from tests.harness.machine import Machine
from tests.harness.surroundings import Person

PASSWORD = f"{world.PASSWORDS['alice']}\n"
Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def theirs() -> Iterator[Path]:
    """Yield the runtime folder of the other user, which other users can open."""
    folder = Path(tempfile.mkdtemp(prefix="zdsu"))
    os.chown(folder, intruder.UID, intruder.UID)
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def bus(theirs: Path, request: pytest.FixtureRequest) -> Iterator[Bus]:
    """Yield the other user's session bus."""
    found = Bus(theirs, uid=intruder.UID, name="bus", form=request.param)
    yield found
    found.close()


@pytest.fixture
def ring(bus: Bus, theirs: Path) -> Iterator[Ring]:
    """Yield the other user's unlocked keyring."""
    environment = {"HOME": str(theirs), "PATH": os.defpath, "XDG_RUNTIME_DIR": str(theirs)}
    found = Ring(bus, environment)
    yield found
    found.stop()


@pytest.fixture(params=["root", "ordinary"])
def run(machine: Machine, request: pytest.FixtureRequest) -> Run:
    """Return a function that runs a command as a user who came from the other user's shell."""
    return machine.run if request.param == "root" else Person(machine).run


def logon(machine: Machine, service: Deployment) -> list[str]:
    """Return the arguments of a logon."""
    (machine.folder / "ca.pem").write_bytes(service.ca_file.read_bytes())
    return [
        "logon", service.base_url, "--username", f"alice@{world.DOMAIN}", "--password-stdin",
        "--ca-file", str(machine.folder / "ca.pem"), "--profile", "sandbox",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("run", "bus"), [("root", "path"), ("ordinary", "abstract")], indirect=True
)
def test_no_secret_gets_into_another_users_keyring(
    run: Run, machine: Machine, deployment: Deployment, theirs: Path, bus: Bus, ring: Ring
) -> None:
    """Token, password and key are stored in a file instead, and the logon reports the reason."""
    machine.environment |= {
        "DBUS_SESSION_BUS_ADDRESS": bus.address, "XDG_RUNTIME_DIR": str(theirs),
    }  # fmt: skip
    ended = run(*logon(machine, deployment), "--save-password", text=PASSWORD)
    assert ended.returncode == 0, ended.stderr
    assert ring.names() == set()
    assert "the session bus here is another user's" in ended.stderr
    assert ended.stderr.count("\n") == 1
    for name in ("secrets.json", "password.json"):
        assert stat.S_IMODE((machine.state / name).stat().st_mode) == 0o600
    checked = run("doctor").stdout
    assert "XDG_RUNTIME_DIR is not private" in checked
    assert "the session bus here is another user's" in checked


@pytest.mark.parametrize("form", ["path", "abstract"])
def test_the_users_own_bus_is_used(machine: Machine, deployment: Deployment, form: str) -> None:
    """The user's own session bus is used, whatever the form of its address."""
    own = Bus(machine.folder, form=form)
    try:
        mine = Ring(own, machine.environment)
        try:
            machine.environment["DBUS_SESSION_BUS_ADDRESS"] = f"tcp:host=127.0.0.1;{own.address}"
            machine.log_on(deployment, profile="sandbox")
            assert mine.names() == {"default/bearer"}
        finally:
            mine.stop()
    finally:
        own.close()


def test_nothing_is_written_to_folders_of_another_user(
    run: Run, machine: Machine, deployment: Deployment, theirs: Path
) -> None:
    """Folders from the other shell's variables give a one-line error, and no file is written
    there."""
    for name in ("CONFIG_HOME", "STATE_HOME", "CACHE_HOME"):
        folder = theirs / name
        folder.mkdir()
        folder.chmod(0o777)
        os.chown(folder, intruder.UID, intruder.UID)
        before = machine.environment[f"XDG_{name}"]
        machine.environment[f"XDG_{name}"] = str(folder)
        ended = run(*logon(machine, deployment), text=PASSWORD)
        assert ended.returncode == 1
        assert f"{folder} belongs to another user" in ended.stderr
        assert f"XDG_{name}" in ended.stderr
        assert ended.stderr.count("\n") == 1
        assert list(folder.iterdir()) == []
        machine.environment[f"XDG_{name}"] = before


@pytest.mark.parametrize("mode", [0o755, 0o700])
def test_no_command_uses_an_account_of_another_user(
    run: Run, machine: Machine, deployment: Deployment, theirs: Path, mode: int
) -> None:
    """Each command refuses the other user's account with the same line, and sends no request."""
    state = theirs / "state/zonedrive/default"
    state.mkdir(parents=True)
    account = {"name": "default", "base_url": deployment.base_url, "username": "alice"}
    (state / "account.json").write_text(json.dumps(account))
    for each in (*state.parents[:2], state, state / "account.json"):
        os.chown(each, intruder.UID, intruder.UID)
        each.chmod(0o755)
    theirs.chmod(mode)
    machine.environment["XDG_STATE_HOME"] = str(theirs / "state")
    before = deployment.stats()["requests"]
    for command in (
        ["new-credentials"], ["password", "--password-stdin"], ["zones"], ["users", "list"],
        ["tokens", "list"], ["tokens", "create", "backup", "--password-stdin"], ["trash"],
        ["status"], ["status", "--metrics"], ["status", "--metrics", "--account", "default"],
        ["conflicts"], ["pause"], ["mount", str(machine.folder / "there")], ["logoff"],
        ["logoff", "--discard"],
    ):  # fmt: skip
        ended = run(*command, text=PASSWORD)
        assert (ended.returncode, ended.stdout) == (1, ""), command
        assert f"{theirs}" in ended.stderr and "belongs to another user" in ended.stderr, command
        assert "log in with 'su -'" in ended.stderr and ended.stderr.count("\n") == 1, command
    assert deployment.stats()["requests"] == before
