"""Logon that ends during a mount, and the next logon."""

from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from tests.harness import world
from tests.harness.deployment import Deployment
from tests.harness.machine import Machine, Mounted
from tests.harness.waiting import eventually

ALICE = f"alice@{world.DOMAIN}"


@pytest.fixture
def with_session(machine: Machine, deployment: Deployment, zone: str) -> Iterator[Mounted]:
    """Yield a mount with a session, which the service can end."""
    log_on(machine, deployment)
    mount = Mounted(machine, deployment, zone, ["settle=0.2", "refresh=0.3"])
    try:
        mount.mount()
        yield mount
    finally:
        mount.tear_down()
        deployment.forget_people()  # their sessions may have ended, too


def log_on(machine: Machine, deployment: Deployment) -> None:
    machine.done(
        "logon", deployment.base_url, "--username", f"alice@{world.DOMAIN}", "--password-stdin",
        "--ca-file", deployment.ca_file, "--session-only", "--profile", "sandbox",
        text=f"{world.PASSWORDS['alice']}\n",
    )  # fmt: skip


def test_work_continues_after_the_end_of_a_session(with_session: Mounted) -> None:
    """Without a session, files are saved and cached ones readable; after a logon all is
    uploaded."""
    path = with_session.root / "notes.txt"
    known = path.read_bytes()
    with_session.deployment.tell({"expire_sessions": True})
    (with_session.root / "new.txt").write_bytes(b"written without a logon\n")
    eventually(lambda: with_session.status()["state"] == "logon-required", what="the state shows")
    assert path.read_bytes() == known
    assert (with_session.root / "new.txt").read_bytes() == b"written without a logon\n"
    assert with_session.machine.run("sync", "--timeout", "1").returncode == 3
    log_on(with_session.machine, with_session.deployment)
    eventually(
        lambda: (
            with_session.status()["outbox"]["pending"] == 0
            and with_session.status()["state"] == "online"
        ),
        what="everything goes on at once",
    )
    with_session.sync()
    with_session.deployment.forget_people()
    zone = with_session.deployment.person("bob").zone(with_session.root.name)
    assert zone.read("new.txt") == b"written without a logon\n"


COMMANDS = [
    "zones",
    "users list",
    "tokens list",
    "sync --timeout 1",
    "pin {}",
]


def test_messages_contain_the_complete_logon_command(with_session: Mounted) -> None:
    """The command in the message is complete: with the service, the user and the former options."""
    mounted = with_session
    machine = mounted.machine
    wanted = f"run 'zonedrive logon {mounted.deployment.base_url} --username {ALICE} --session-only"
    big = mounted.root / "big.bin"
    known = mounted.root / "notes.txt"
    known.read_bytes()
    mounted.deployment.tell({"expire_sessions": True})
    (mounted.root / "new.txt").write_bytes(b"12345")
    eventually(lambda: mounted.status()["state"] == "logon-required")
    for command in [*COMMANDS, "versions {}"]:
        words = [str(big) if word == "{}" else word for word in command.split()]
        ended = machine.run(*words)
        assert (ended.returncode, command) == (3, command), ended
        assert wanted in ended.stderr and ended.stderr.count("\n") == 1, ended.stderr
    mounted.unmount("--timeout", "0")
    ended = machine.run("zones")
    assert (ended.returncode, ended.stdout) == (3, "")
    assert wanted in ended.stderr and ended.stderr.count("\n") == 1
    assert "--account work" in machine.run("zones", "--account", "work").stderr


def test_an_unreachable_service_is_named_once(mounted: Mounted) -> None:
    """One line reports which service is unreachable, why, and the remedy."""
    machine = mounted.machine
    mounted.allow("offline", "reach")
    known = mounted.root / "notes.txt"
    known.read_bytes()
    host = urlsplit(mounted.deployment.base_url).netloc
    with mounted.deployment.faulty(down=True):
        eventually(lambda: machine.run("zones").returncode == 4)
        eventually(lambda: mounted.status()["state"] == "offline")
        for command in (["zones"], ["versions", str(known)], ["trash"], ["users", "list"]):
            ended = machine.run(*command)
            assert (ended.returncode, ended.stdout) == (4, "")
            said = ended.stderr
            assert said.count(host) == 1 and "('" not in said and said.count("\n") == 1, said
            assert "; " in said
        assert "zonedrive doctor" in machine.run("zones").stderr
