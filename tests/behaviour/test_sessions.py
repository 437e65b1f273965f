"""Sessions that end during a mount with a stored password, and rejected passwords."""

import hashlib
import json
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.behaviour.test_logoff import works
from tests.harness import world
from tests.harness.bus import Bus, Screen
from tests.harness.deployment import Deployment
from tests.harness.machine import Machine, Mounted
from tests.harness.waiting import eventually

LOGON = "POST /api/access/logon"
SESSION = ("--session-only", "--save-password")


@pytest.fixture
def screen(machine: Machine) -> Iterator[Screen]:
    """Yield a desktop that shows notifications of the machine's programs, without buttons."""
    bus = Bus(machine.folder)
    machine.environment["DBUS_SESSION_BUS_ADDRESS"] = bus.address
    shown = Screen(bus, abilities=["body", "body-markup"])
    yield shown
    shown.close()
    bus.close()


@pytest.fixture
def kept(machine: Machine, deployment: Deployment, zone: str) -> Iterator[Mounted]:
    """Yield a mount with a session, and a stored password that can renew it."""
    machine.log_on(deployment, profile="sandbox", options=SESSION)
    mount = Mounted(machine, deployment, zone, ["settle=0.2", "refresh=0.3"])
    try:
        mount.mount()
        yield mount
    finally:
        deployment.heal()
        mount.tear_down()
        deployment.forget_people()  # their sessions may have ended, too


def logons(deployment: Deployment) -> int:
    """Return the number of logon requests so far."""
    return int(deployment.stats()["requests"].get(LOGON, 0))


def end_sessions(mount: Mounted) -> None:
    """End all sessions, as a restart of the service does."""
    mount.deployment.tell({"expire_sessions": True})


def bearer(machine: Machine) -> str:
    """Return the stored session or token."""
    return str(json.loads((machine.state / "secrets.json").read_text())["bearer"])


def listing(mount: Mounted) -> None:
    assert {path.name for path in (mount.root / "docs").iterdir()} >= {"report.md", "2026"}


def reading(mount: Mounted) -> None:
    """Read a file that is not cached."""
    assert (mount.root / "docs" / "report.md").read_bytes() == world.SEED["docs/report.md"]


def reading_on(mount: Mounted) -> None:
    """Read a file whose download breaks off, so that the rest is requested as a range."""
    mount.deployment.fault(cut_after=10, path="/content$", times=1)
    assert (mount.root / "docs" / "2026" / "q1.csv").read_bytes() == world.SEED["docs/2026/q1.csv"]


def a_range(mount: Mounted) -> None:
    with (mount.root / "big.bin").open("rb", buffering=0) as file:
        file.seek(2_900_000)
        expected = world.SEED["big.bin"][2_900_000:2_900_100]
        assert file.read(100) in (expected, b"x" * 100)


def saving(mount: Mounted) -> None:
    path = mount.root / "notes.txt"
    path.write_bytes(path.read_bytes() + b"saved in the middle of it")
    mount.sync()


def saving_much(mount: Mounted) -> None:
    (mount.root / "big.bin").write_bytes(b"x" * 9_000_000)
    mount.sync()


def a_folder(mount: Mounted) -> None:
    number = len(list(mount.root.glob("made*")))
    (mount.root / f"made {number}").mkdir()
    mount.sync()


def everything_at_once(mount: Mounted) -> None:
    with ThreadPoolExecutor(8) as pool:
        todo = [listing, reading, a_range, saving, a_folder, reading_on]
        for done in [pool.submit(each, mount) for each in todo]:
            done.result(120)


WORK = (listing, reading, reading_on, a_range, saving, saving_much, a_folder, everything_at_once)


def test_a_session_that_ends_at_any_time_is_renewed_once(kept: Mounted) -> None:
    """No program notices the end of a session; there is one new logon, and no request has effect
    twice."""
    for work in WORK:
        before = logons(kept.deployment)
        end_sessions(kept)
        work(kept)
        assert logons(kept.deployment) == before + 1, work.__name__
        assert kept.status()["state"] == "online", work.__name__
    zone = kept.deployment.fresh_person("bob").zone(kept.root.name)
    assert len(zone.versions("notes.txt")) == 3
    assert len(zone.versions("big.bin")) == 2
    assert len([name for name in zone.listing() if name.startswith("made")]) == 2
    assert not kept.complaints()


def test_a_session_is_renewed_before_it_ends(
    machine: Machine, deployment: Deployment, zone: str
) -> None:
    """The daemon renews a session before its end and ends the former one; no request is
    rejected."""
    machine.log_on(deployment, profile="sandbox", options=SESSION)
    secrets = machine.state / "secrets.json"
    kept = json.loads(secrets.read_text())
    session = json.loads(kept["bearer"])
    session["began_ns"] -= 24 * 3600 * 10**9  # so that little of its life is left
    secrets.write_text(json.dumps(kept | {"bearer": json.dumps(session)}))
    first = bearer(machine)
    ended = "GET /api/access/logoff"
    before = deployment.stats()["requests"].get(ended, 0)
    with Mounted(machine, deployment, zone, ["refresh=0.2"]).mounting() as mount:
        eventually(lambda: mount.log().count("the logon was renewed"), what="it is renewed")
        assert bearer(machine) != first
        assert {path.name for path in mount.root.iterdir()} >= {"notes.txt"}
        assert mount.status()["state"] == "online"
        assert "is logon-required" not in mount.log()
        eventually(
            lambda: deployment.stats()["requests"].get(ended, 0) > before,
            what="the former one is ended",
        )
        assert not mount.complaints()


def test_a_token_is_renewed_with_itself(machine: Machine, deployment: Deployment) -> None:
    """A new token is created with the old one, without a logon; the former token is revoked."""
    machine.log_on(deployment, profile="sandbox", options=["--token-days", "7", "--save-password"])
    before, former = logons(deployment), json.loads(bearer(machine))
    order = {"instead_of": _digest(former["secret"]), "ended": False}
    assert _renew(machine, order) == {
        "result": "renewed", "message": "", "remedy": "", "seconds": 15.0,
    }  # fmt: skip
    fresh = json.loads(bearer(machine))
    assert (fresh["kind"], fresh["secret"] == former["secret"]) == ("token", False)
    assert abs((fresh["expires_ns"] - fresh["began_ns"]) / 86_400e9 - 7) < 0.01
    assert logons(deployment) == before
    assert "Zone 01" in machine.done("zones")
    assert not works(deployment, former["secret"])  # as the profile knows how to revoke it


def test_commands_renew_a_session_as_well(machine: Machine, deployment: Deployment) -> None:
    """Commands renew a session even without a mount."""
    machine.log_on(deployment, profile="sandbox", options=SESSION)
    for command in (["zones"], ["users", "list"]):
        before = logons(deployment)
        deployment.tell({"expire_sessions": True})
        machine.done(*command)
        machine.done(*command)
        assert logons(deployment) == before + 1


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _renew(machine: Machine, order: dict[str, object]) -> object:
    ended = subprocess.run(
        [sys.executable, "-m", "zonedrive.logon.renewal_worker", "--account", "default"],
        input=json.dumps(order), env=machine.environment, capture_output=True, timeout=60,
        encoding="utf-8", check=True,
    )  # fmt: skip
    return json.loads(ended.stdout)


def test_a_refused_password_is_tried_once_and_notified_once(screen: Screen, kept: Mounted) -> None:
    """A rejected password is tried once, also by the next daemon, and the user is told once.

    The notification, the log and status have the remedy.  Files can be read and written meanwhile,
    and the next logon ends the problem.
    """
    machine, deployment = kept.machine, kept.deployment
    known = (kept.root / "notes.txt").read_bytes()
    path = machine.state / "password.json"
    path.write_text(path.read_text().replace(world.PASSWORDS["alice"], "changed elsewhere"))
    before = logons(deployment)
    list(kept.root.iterdir())
    end_sessions(kept)
    (kept.root / "new.txt").write_bytes(b"waits")
    eventually(lambda: kept.status()["state"] == "logon-required", what="the state")
    assert (kept.root / "notes.txt").read_bytes() == known
    command = f"zonedrive logon {deployment.base_url} --username alice@{world.DOMAIN}"
    eventually(lambda: screen.shown, what="a notification")
    refused = machine.run("sync", "--timeout", "1")
    assert refused.returncode == 3
    assert "wrong password" in refused.stderr
    kept.kill()
    kept.mount()
    eventually(lambda: kept.status()["state"] == "logon-required", what="the state again")
    eventually(lambda: len(screen.shown) == 2, what="one notification of each daemon")
    assert logons(deployment) == before + 1
    for title, text in screen.shown:
        assert (title.partition(" to ")[0], title.rpartition(" ")[2]) == ("Log on", "again")
        assert "wrong password" in text
        assert f"{command} --session-only --save-password" in text
    assert f"{command} --session-only --save-password" in kept.log()
    assert not path.exists()
    machine.log_on(deployment, profile="sandbox", options=SESSION)
    # The notification of the killed daemon stays, because no daemon removes it.
    eventually(lambda: screen.open == {1}, what="the notification is taken away")
    kept.sync()
    assert len(screen.shown) == 2
    deployment.forget_people()
    assert deployment.person("bob").zone(kept.root.name).read("new.txt") == b"waits"


def test_a_blocked_user(screen: Screen, kept: Mounted) -> None:
    """The next attempt is a quarter of an hour later, even after a restart; status has the time."""
    deployment = kept.deployment
    deployment.fault(
        status=401, error="TEMPORARY_BLOCKED", method="POST", path="^/api/access/logon"
    )
    before = logons(deployment)
    list(kept.root.iterdir())
    end_sessions(kept)
    (kept.root / "new.txt").write_bytes(b"waits")
    eventually(lambda: screen.shown, what="a notification")
    refused = kept.machine.run("sync", "--timeout", "1")
    assert refused.returncode == 3
    assert "blocked for a while" in refused.stderr
    assert "the next attempt is not before" in refused.stderr
    assert "the next attempt is not before" in screen.shown[0][1]
    kept.kill()
    kept.mount()
    eventually(lambda: kept.status()["state"] == "logon-required", what="the state again")
    assert kept.machine.run("sync", "--timeout", "1").returncode == 3
    assert logons(deployment) == before + 1
    assert (kept.machine.state / "password.json").exists()
    deployment.heal()
    kept.machine.log_on(deployment, profile="sandbox", options=SESSION)  # a person may
    kept.sync()


def test_without_a_saved_password_a_refused_session_is_sent_once(
    screen: Screen, machine: Machine, deployment: Deployment, zone: str
) -> None:
    """Without a stored password, later accesses send no requests, and the user is notified once."""
    machine.log_on(deployment, profile="sandbox", options=["--session-only"])
    mount = Mounted(machine, deployment, zone, ["settle=0.2", "refresh=0.1"])
    try:
        mount.mount()
        deployment.person("bob")
        before = logons(deployment)
        list(mount.root.iterdir())
        end_sessions(mount)
        (mount.root / "new.txt").write_bytes(b"waits")
        eventually(lambda: screen.shown, what="a notification")
        first = sum(deployment.stats()["requests"].values())
        for number in range(30):
            list(mount.path.iterdir())
            (mount.root / f"{number}.txt").write_bytes(b"waits")
            mount.status()
        assert sum(deployment.stats()["requests"].values()) - first <= 2
        assert logons(deployment) == before
        assert len(screen.shown) == 1
        assert f"--username alice@{world.DOMAIN} --session-only" in screen.shown[0][1]
    finally:
        mount.tear_down()
        deployment.forget_people()
