"""Secrets in a real keyring: a gnome-keyring on its own session bus."""

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress

import msgspec
import pytest

from tests.harness import world
from tests.harness.bus import Bus, Prompter, Ring
from tests.harness.deployment import COMMAND, Deployment
from tests.harness.machine import Machine, Mounted, files_below
from tests.harness.waiting import eventually
from zonedrive.logon.renewal import Outcome, RenewalRequest

EVERY = {"default/bearer", "default/key"}


@pytest.fixture
def bus(machine: Machine) -> Iterator[Bus]:
    """Yield a session bus that the machine's programs use."""
    found = Bus(machine.folder)
    machine.environment["DBUS_SESSION_BUS_ADDRESS"] = found.address
    yield found
    found.close()


@pytest.fixture
def ring(bus: Bus, machine: Machine) -> Iterator[Ring]:
    """Yield an unlocked keyring."""
    found = Ring(bus, machine.environment)
    yield found
    found.stop()


@pytest.fixture
def desk(ring: Ring, machine: Machine, deployment: Deployment, zone: str) -> Iterator[Mounted]:
    """Yield a mount that is logged on with the keyring, and not mounted."""
    machine.log_on(deployment, profile="sandbox")
    mount = Mounted(machine, deployment, zone, ["settle=0.2"])
    yield mount
    mount.tear_down()


def test_a_keyring_holds_all_secrets(desk: Mounted, ring: Ring) -> None:
    """Token and data key are only in the keyring, not on the disk; a logoff removes them."""
    assert not (desk.machine.state / "secrets.json").exists()
    desk.mount()
    (desk.root / "new.txt").write_bytes(b"kept by a keyring")
    desk.sync()
    assert ring.names() == EVERY
    token = json.loads(ring.text("default/bearer"))["secret"].encode()
    for path, data in files_below(desk.machine.folder, without=desk.path):
        assert token not in data, path
    desk.machine.done("logoff")
    assert ring.names() == set()
    assert not desk.machine.state.exists()


def test_the_doctor_reports_an_unusable_keyring(desk: Mounted, ring: Ring) -> None:
    """If the keyring is locked or missing, doctor does not recommend a new logon."""
    assert desk.machine.run("doctor").returncode == 0
    ring.lock()
    for remedy in ("unlock the keyring", "unlock the keyring"):
        checks = json.loads(desk.machine.run("doctor", "--json").stdout)["checks"]
        bad = {check["name"]: check["remedy"] for check in checks if not check["ok"]}
        assert set(bad) == {"logon", "key"}
        assert all(each.startswith(remedy) for each in bad.values())
        ring.stop()
    ring.start()


def test_a_saved_password_is_in_the_keyring(
    ring: Ring, machine: Machine, deployment: Deployment
) -> None:
    """A saved password is in the keyring, until the next logon without --save-password."""
    machine.log_on(deployment, profile="sandbox", options=["--save-password"])
    assert ring.text("default/password") == world.PASSWORDS["alice"]
    machine.log_on(deployment, profile="sandbox")
    assert ring.names() == {"default/bearer"}
    machine.done("logoff")


def test_a_locked_keyring_is_reported_at_once(desk: Mounted, ring: Ring) -> None:
    """One line reports the locked keyring, and no second key is created; unlocked, all works
    again."""
    desk.mount()
    (desk.root / "new.txt").write_bytes(b"from before")
    desk.unmount()
    ring.lock()
    refused = desk.machine.run("mount", desk.path)
    assert refused.returncode == 1
    assert refused.stderr.count("\n") == 1
    assert "locked" in refused.stderr
    assert "unlock" in refused.stderr
    assert not (desk.machine.state / "secrets.json").exists()
    ring.stop()
    ring.start()  # unlocked again
    desk.mount()
    assert (desk.root / "new.txt").read_bytes() == b"from before"


@pytest.mark.parametrize("loss", ["emptied", "locked"])
def test_a_keyring_that_changes_during_a_mount(desk: Mounted, ring: Ring, loss: str) -> None:
    """The mount stores its key again in an emptied keyring; a locked one still has the key."""
    desk.allow("offline", "reach", "missing")
    desk.mount()
    list(desk.root.iterdir())
    with desk.deployment.faulty(down=True):
        (desk.root / "new.txt").write_bytes(b"from before")
        if loss == "emptied":
            ring.empty()
        else:
            ring.lock()
        desk.unmount("--timeout", "0")
    if loss == "emptied":
        assert ring.names() == {"default/key"}
        desk.machine.log_on(desk.deployment, profile="sandbox")
    else:
        ring.stop()
        ring.start()  # unlocked again
        assert ring.names() == EVERY
    desk.mount()
    desk.sync()
    assert desk.zone.read("new.txt") == b"from before"


def test_a_unit_waits_for_a_keyring_without_asking_again(desk: Mounted, ring: Ring) -> None:
    """The service manager gets the reason until the keyring is unlocked, and then the mount."""
    ring.lock()
    desk.path.mkdir()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(desk.machine.folder / "notify"))
        manager.settimeout(60)
        unit = subprocess.Popen(
            [COMMAND, "mount", "--foreground", desk.path],
            env=desk.machine.environment | {"NOTIFY_SOCKET": manager.getsockname()},
            stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, encoding="utf-8",
        )  # fmt: skip
        try:
            for _ in range(2):
                said = manager.recv(4096).decode()
                assert "EXTEND_TIMEOUT_USEC=" in said
                assert "STATUS=waiting: the keyring is locked; unlock it" in said
            found = desk.machine.run("status")  # nothing waits, so it needs no key
            assert ": not mounted; " in found.stdout, found.stderr
            ring.stop()
            ring.start()  # unlocked again
            while not (said := manager.recv(4096).decode()).startswith("READY=1"):
                assert said.startswith("EXTEND_TIMEOUT_USEC="), said
            assert (desk.root / "notes.txt").read_bytes() == world.SEED["notes.txt"]
        finally:
            unit.terminate()
            log = unit.communicate(timeout=60)[1]
    assert unit.returncode == 0, log
    assert log.count("waiting: the keyring is locked") == 1


def test_a_mount_outlives_its_keyring(desk: Mounted, ring: Ring) -> None:
    """The mount continues without its keyring, because it read token and key at its start."""
    desk.mount()
    ring.lock()
    (desk.root / "a.txt").write_bytes(b"a")
    desk.sync()
    ring.stop()
    (desk.root / "b.txt").write_bytes(b"b")
    desk.sync()
    ring.start()
    assert set(desk.zone.listing()) >= {"a.txt", "b.txt"}
    assert not desk.complaints()


def test_only_the_start_of_a_mount_prompts_the_user(
    ring: Ring, bus: Bus, machine: Machine, deployment: Deployment, zone: str
) -> None:
    """A prompt would open at each request of a program after the session has ended."""
    options = ["--session-only", "--save-password"]
    machine.log_on(deployment, profile="sandbox", options=options)
    mount = Mounted(machine, deployment, zone, ["settle=0.2", "refresh=0.1"])
    prompter = Prompter(bus)
    try:
        mount.mount()
        ring.lock()
        deployment.tell({"expire_sessions": True})
        for _ in range(3):
            with suppress(OSError):
                list(mount.root.iterdir())
            eventually(lambda: mount.status()["state"] == "logon-required", what="the state")
        assert "the keyring is locked" in mount.status()["reason"]
        ring.stop()
        ring.start()  # unlocked again
        eventually(lambda: mount.status()["state"] == "online", what="the mount continues")
        ring.lock()
        mount.unmount()
        assert prompter.prompts == 0
        assert machine.run("mount", mount.path).returncode == 1
        assert prompter.prompts > 0
    finally:
        mount.tear_down()
        prompter.close()
        deployment.forget_people()


def test_a_renewal_does_not_prompt_the_user(
    ring: Ring, bus: Bus, machine: Machine, deployment: Deployment
) -> None:
    """A prompt would open each minute before the session ends, while nobody uses the mount."""
    options = ["--session-only", "--save-password"]
    machine.log_on(deployment, profile="sandbox", options=options)
    ring.lock()
    prompter = Prompter(bus)
    try:
        ended = subprocess.run(
            [sys.executable, "-m", "zonedrive.logon.renewal_worker", "--account", "default"],
            input=msgspec.json.encode(RenewalRequest("", False)), env=machine.environment,
            stdout=subprocess.PIPE, check=True,
        )  # fmt: skip
    finally:
        prompter.close()
    outcome = msgspec.json.decode(ended.stdout, type=Outcome)
    assert (outcome.result, outcome.message) == ("later", "the keyring is locked")
    assert prompter.prompts == 0


def test_a_missing_keyring_is_not_replaced_by_a_file(desk: Mounted, ring: Ring) -> None:
    """A shell outside the desktop creates no new secrets, which would replace the stored ones."""
    desk.mount()
    desk.unmount()
    address = desk.machine.environment.pop("DBUS_SESSION_BUS_ADDRESS")
    began = time.monotonic()
    for command in (["mount", str(desk.path)], ["logoff"]):
        refused = desk.machine.run(*command)
        assert refused.returncode == 1
        assert "keyring" in refused.stderr.splitlines()[-1]
        assert "desktop session" in refused.stderr.splitlines()[-1]
    assert time.monotonic() - began < 30
    assert not (desk.machine.state / "secrets.json").exists()
    desk.machine.environment["DBUS_SESSION_BUS_ADDRESS"] = address
    desk.mount()


def test_discarding_data_of_a_lost_keyring(desk: Mounted, ring: Ring) -> None:
    """The output tells the user to delete the entries that are left in the lost keyring."""
    ring.stop()
    ended = desk.machine.run("logoff", "--discard")
    ring.start()
    assert ended.returncode == 0, ended.stderr
    assert "keyring" in ended.stderr
    assert not desk.machine.state.exists()


def test_a_keyring_that_appears_later_changes_nothing(
    bus: Bus, machine: Machine, deployment: Deployment
) -> None:
    """An account uses the secrets in the file that its logon reported, not a later keyring."""
    machine.log_on(deployment, profile="sandbox")
    assert (machine.state / "secrets.json").stat().st_mode & 0o777 == 0o600
    ring = Ring(bus, machine.environment)
    try:
        assert "Project X" in machine.done("zones") or machine.done("zones")
        assert ring.names() == set()
    finally:
        ring.stop()
