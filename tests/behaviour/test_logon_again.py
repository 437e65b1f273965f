"""A logon that ends under a mount, and the next one."""

from collections.abc import Iterator

import pytest

from tests.harness import world
from tests.harness.deployment import Deployment
from tests.harness.machine import Machine, Mounted
from tests.harness.waiting import eventually


@pytest.fixture
def with_session(machine: Machine, deployment: Deployment, zone: str) -> Iterator[Mounted]:
    """A mount that lives on a session, which the service can end."""
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


def test_an_ended_session_is_a_state_and_a_new_logon_ends_it(with_session: Mounted) -> None:
    """The session ends: files are kept and known ones readable; one logon later all is sent."""
    path = with_session.root / "notes.txt"
    known = path.read_bytes()
    with_session.deployment.tell({"expire_sessions": True})
    (with_session.root / "new.txt").write_bytes(b"written without a logon\n")
    eventually(
        lambda: with_session.status()["state"] == "logon-required", 20, what="the state shows"
    )
    assert path.read_bytes() == known
    assert (with_session.root / "new.txt").read_bytes() == b"written without a logon\n"
    assert with_session.machine.run("sync", "--timeout", "5").returncode == 3
    log_on(with_session.machine, with_session.deployment)
    eventually(
        lambda: (
            with_session.status()["outbox"]["pending"] == 0
            and with_session.status()["state"] == "online"
        ),
        10,
        what="everything goes on at once",
    )
    with_session.sync()
    with_session.deployment.forget_people()
    zone = with_session.deployment.person("bob").zone(with_session.root.name)
    assert zone.read("new.txt") == b"written without a logon\n"


def test_a_mount_with_an_ended_logon_says_so_by_itself(with_session: Mounted) -> None:
    """Mounted again after the session ended, the state shows before anybody touches a file."""
    with_session.unmount()
    with_session.deployment.tell({"expire_sessions": True})
    with_session.mount()
    eventually(
        lambda: with_session.status()["state"] == "logon-required", 20, what="the state shows"
    )
