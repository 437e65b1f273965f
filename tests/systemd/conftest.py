"""Fixtures of the tests with a real service manager: a machine, and one account's unit in it."""

import json
from collections.abc import Iterator

import pytest

from tests.harness.deployment import Deployment, RemoteZone
from tests.harness.waiting import eventually
from tests.systemd.systemd_machine import HOME, SECONDS, Ended, SystemdMachine, running_machine

# Quick where waiting would prove nothing; all else as it is installed.
DROP_IN = """
[Unit]
StartLimitIntervalSec=0
[Service]
Environment=OPTIONS=settle=0.2,refresh=1 STOP_SECONDS=2
RestartSec=100ms
StandardError=append:%h/%i.log
"""


class Unit:
    """Unit `zonedrive@NAME.service` of the machine's user."""

    def __init__(self, machine: SystemdMachine, account: str, zone: str) -> None:
        self.machine, self.account = machine, account
        self.name = f"zonedrive@{account}.service"
        self.mountpoint = f"{HOME}/Zones/{account}"
        self.folder = f"{self.mountpoint}/{zone}"

    def settings(self, text: str) -> None:
        """Write settings as `systemctl --user edit` does."""
        place = f"{HOME}/.config/systemd/user/{self.name}.d/override.conf"
        self.machine.write(place, text)
        self.done("daemon-reload")

    def systemctl(self, verb: str, *options: str) -> Ended:
        """Run a verb for this unit, without a check of the result."""
        return self.machine.systemctl(*options, verb, self.name)

    def start(self) -> None:
        """Start the unit, and list its folder."""
        self.done("start")
        assert self.machine.read(f"{self.folder}/notes.txt")

    def said(self) -> str:
        """Return the output of daemon and stop so far, which the journal would have."""
        ended = self.machine.person("cat", f"{HOME}/{self.account}.log")
        return ended.stdout

    def done(self, verb: str, *options: str) -> str:
        """Run a verb for this unit, or for the manager, which must succeed."""
        unit = () if verb == "daemon-reload" else (self.name,)
        ended = self.machine.systemctl(*options, verb, *unit)
        assert ended.returncode == 0, (verb, ended.stderr, self.machine.log()[-3000:])
        return ended.stdout

    def show(self, what: str) -> str:
        """Return one property."""
        return self.done("show", "--value", f"--property={what}").strip()

    @property
    def pid(self) -> int:
        """Return the daemon's pid inside the machine, or 0."""
        return int(self.show("MainPID"))

    def is_active(self) -> bool:
        """Return True if the unit is active."""
        return self.show("ActiveState") == "active"

    def status(self) -> dict[str, object]:
        """Return the output of `zonedrive status --json`."""
        said = self.machine.done("zonedrive", "status", "--account", self.account, "--json")
        found: dict[str, object] = json.loads(said)
        return found

    def sync(self) -> None:
        """Wait until everything is on the service."""
        self.machine.done("zonedrive", "sync", self.mountpoint, "--timeout", "30")

    def is_mounted(self) -> bool:
        """Return True if the kernel has a mount there, dead or alive."""
        return f" {self.mountpoint} fuse" in self.machine.read("/proc/mounts")

    def wait_line(self, *parts: str) -> None:
        """Return when the line of `systemctl status` has these parts."""

        def seen() -> bool:
            line = self.show("StatusText")
            assert all(part in line for part in parts), line
            return True

        eventually(seen, SECONDS, what=f"the line of {self.name}")

    def wait_other(self, pid: int) -> int:
        """Return the pid of the daemon after `pid`, once it has answered."""

        def seen() -> int:
            found = self.pid
            assert self.is_active() and found not in (0, pid), self.said()[-2000:]
            return found

        return eventually(seen, SECONDS, what="another daemon")


@pytest.fixture(scope="session")
def _machine() -> Iterator[SystemdMachine]:
    with running_machine() as made:
        yield made


@pytest.fixture
def zone_there(deployment: Deployment, zone: str) -> RemoteZone:
    """Return the zone of the test, as a coworker sees it."""
    return deployment.person("bob").zone(zone)


@pytest.fixture
def unit(
    _machine: SystemdMachine, deployment: Deployment, zone: str, request: pytest.FixtureRequest
) -> Iterator[Unit]:
    """Yield Alice's unit with its own account, logged on, not started."""
    account = zone.lower().replace(" ", "-")
    made = Unit(_machine, account, zone)
    made.settings(DROP_IN)
    if "no_logon" not in request.keywords:
        _machine.log_on(deployment, account)
    yield made
    deployment.heal()
    _machine.systemctl("disable", "--now", made.name)
    _machine.person("fusermount3", "-uzq", made.mountpoint)
