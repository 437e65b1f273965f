"""Mounts by mount(8): a user's line in /etc/fstab, and root for a user, on a real machine."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.deployment import Deployment, RemoteZone
from tests.harness.waiting import eventually
from tests.systemd.systemd_machine import HOME, SECONDS, SystemdMachine
from zonedrive.errors import MountError
from zonedrive.fuse import mountpoint

FOLDER = f"{HOME}/Work"
OPTIONS = "noauto,user,_netdev,account=fstab,settle=0.2"


class Line:
    """Line in fstab for the user's zones."""

    def __init__(self, machine: SystemdMachine, deployment: Deployment, zone: str) -> None:
        self.machine, self.url = machine, deployment.base_url
        self.root = f"{FOLDER}/{zone}"

    def is_mounted(self) -> bool:
        """Return True if the kernel has a mount there."""
        return f" {FOLDER} fuse" in self.machine.read("/proc/mounts")

    def ended(self) -> None:
        """Wait until the mount and its daemon are gone."""
        state = f"{HOME}/.local/state/zonedrive/fstab/daemon.lock"
        eventually(lambda: not self.machine.read(state), SECONDS, what="the daemon has ended")
        assert not self.is_mounted()


@pytest.fixture
def line(_machine: SystemdMachine, deployment: Deployment, zone: str) -> Iterator[Line]:
    """Yield a machine with that line, and a user who is logged on."""
    made = Line(_machine, deployment, zone)
    text = f"{made.url} {FOLDER} fuse.zonedrive {OPTIONS} 0 0\n"
    _machine.root("sh", "-c", 'printf %s "$1" >/etc/fstab; rm -f /etc/fuse.conf', "sh", text)
    _machine.done("mkdir", "-p", FOLDER)
    _machine.log_on(deployment, "fstab")
    yield made
    _machine.person("zonedrive", "unmount", "--now", FOLDER)


def test_a_user_mounts_and_unmounts_by_a_line(line: Line, zone_there: RemoteZone) -> None:
    """`mount DIR` and `umount DIR` need no privileges; unsent changes are kept for the next
    mount."""
    line.machine.done("mount", FOLDER)
    shown = line.machine.done("findmnt", "-n", "-o", "SOURCE,FSTYPE", FOLDER).split()
    assert shown == [line.url, "fuse.zonedrive"]
    line.machine.write(f"{line.root}/notes.txt", "by fstab\n")
    line.machine.done("umount", FOLDER)
    line.ended()
    line.machine.done("mount", FOLDER)
    assert line.machine.read(f"{line.root}/notes.txt") == "by fstab\n"
    line.machine.done("zonedrive", "sync", FOLDER, "--timeout", "30")
    assert zone_there.read("notes.txt") == b"by fstab\n"
    assert len(zone_there.versions("notes.txt")) == 2


def test_root_mounts_for_a_user(line: Line) -> None:
    """With setuid= the daemon runs as the user; others, even root, see nothing without
    allow_other."""
    options = "setuid=person,account=fstab"
    mounting = ["mount", "-t", "fuse.zonedrive", line.url, FOLDER, "-o"]
    assert line.machine.root(*mounting, options).returncode == 0
    assert line.machine.read(f"{line.root}/notes.txt")
    assert "Permission denied" in line.machine.root("ls", FOLDER).stderr
    assert line.machine.root("umount", FOLDER).returncode == 0
    line.ended()
    refused = line.machine.root(*mounting, f"{options},allow_other")
    assert (refused.returncode, refused.stderr.count("\n")) == (1, 1)
    assert "'user_allow_other' is set in /etc/fuse.conf" in refused.stderr
    assert "run 'echo user_allow_other >>/etc/fuse.conf' as root" in refused.stderr
    line.machine.root("sh", "-c", "echo user_allow_other >/etc/fuse.conf")
    assert line.machine.root(*mounting, f"{options},allow_other").returncode == 0
    assert line.machine.root("ls", line.root).stdout
    assert line.machine.root("umount", FOLDER).returncode == 0


def test_a_mount_without_a_logon(line: Line) -> None:
    """One line has the logon command; for root, who has another account, it recommends setuid=."""
    line.machine.done("zonedrive", "logoff", "--account", "fstab")
    refused = line.machine.person("mount", FOLDER)
    assert (refused.returncode, refused.stderr.count("\n")) == (1, 1)
    assert f"run 'zonedrive logon {line.url} --account fstab'" in refused.stderr
    refused = line.machine.root("mount", FOLDER)
    assert (refused.returncode, refused.stderr.count("\n")) == (1, 1)
    assert "setuid=" in refused.stderr


def test_a_dead_mount_is_mounted_over(line: Line) -> None:
    """After a crash `mount DIR` alone is enough."""
    line.machine.done("mount", FOLDER)
    lock = line.machine.read(f"{HOME}/.local/state/zonedrive/fstab/daemon.lock")
    line.machine.done("kill", "-KILL", lock.split('"pid": ')[1].split(",")[0])
    eventually(lambda: line.machine.person("ls", FOLDER).returncode != 0, SECONDS)
    line.machine.done("mount", FOLDER)
    assert line.machine.read(f"{line.root}/notes.txt")


def test_an_automount_is_refused_and_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder of an automount hangs until it is mounted, so it is refused before any access."""
    waiting = mountpoint.Mount(tmp_path, "autofs", "systemd-1")
    monkeypatch.setattr(mountpoint, "mounts", lambda: [waiting])
    monkeypatch.setattr(mountpoint, "dead", lambda path: pytest.fail("it was looked at"))
    with pytest.raises(MountError, match=r"x-systemd\.automount"):
        mountpoint.check(str(tmp_path))
