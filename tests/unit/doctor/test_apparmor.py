"""Checks of AppArmor's rules for fusermount3, and of allow_other in /etc/fuse.conf."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from zonedrive.daemon.lock import Holder
from zonedrive.doctor import machine
from zonedrive.doctor.facts import CheckResult, local_remedy
from zonedrive.fuse import mountpoint

# Mount rules as in an AppArmor profile of fusermount3.
PROFILE = """
abi <abi/4.0>,
include <tunables/global>
@{fuse_types} = {fuse,fuse.*}
profile fusermount3 /usr/bin/fusermount3 {
  include <abstractions/base>
  capability sys_admin,
  mount fstype=@{fuse_types} options=(nosuid,nodev) options in (ro,rw) -> @{HOME}/**/,
  mount fstype=@{fuse_types} options=(nosuid,nodev) -> /mnt/{,**/},
  mount fstype=@{fuse_types} options=(nosuid,nodev) -> @{run}/user/@{uid}/**/,  # desktops
  mount fstype=@{fuse_types} options=(nosuid,nodev) -> /tmp/**/,
  umount /tmp/**/,
  /dev/fuse rw,
  include if exists <local/fusermount3>
}
"""


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Prepare a machine on which AppArmor confines fusermount3, for a user without root."""
    (tmp_path / "enabled").write_text("Y\n")
    (tmp_path / "loaded").write_text("unix-chkpwd (enforce)\nfusermount3 (enforce)\n")
    (tmp_path / "apparmor.d/local").mkdir(parents=True)
    (tmp_path / "apparmor.d/fusermount3").write_text(PROFILE)
    for name, file in (
        ("ENABLED", "enabled"),
        ("LOADED", "loaded"),
        ("PROFILE", "apparmor.d/fusermount3"),
        ("FSTAB", "fstab"),
    ):
        monkeypatch.setattr(machine, name, tmp_path / file)
    monkeypatch.setattr(mountpoint, "FUSE_CONF", tmp_path / "fuse.conf")
    monkeypatch.setattr(machine, "UNITS", (str(tmp_path / "units"),))
    monkeypatch.setattr("os.getuid", lambda: 1000)
    return tmp_path


def facts(folder: str = "/home/alice/Zones") -> Any:
    """Return the facts of an account that was mounted at `folder`."""
    account = SimpleNamespace(base_url="https://service.example", name="default")
    paths = SimpleNamespace(state="", cache="", log="", option="")
    return SimpleNamespace(
        holder=Holder(1, Path(folder)), folder=None, account=account, paths=paths
    )


def finding(folder: str) -> CheckResult:
    """Return the result for a mount at `folder`."""
    found = machine.apparmor(facts(folder))
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("folder", "ok"),
    [
        ("/home/alice/Zones", True),
        ("/home/alice/work/Zones", True),
        ("/mnt", True),
        ("/mnt/zones", True),
        ("/run/user/1000/zones", True),
        ("/tmp/zones", True),
        ("/data/zones", False),
        ("/srv/mnt/zones", False),
        ("/var/home/alice/Zones", False),
    ],
)
def test_a_folder_is_compared_with_the_profile(system: Path, folder: str, ok: bool) -> None:
    """The mount rules decide; the local remedy shows the missing rule."""
    found = finding(folder)
    assert found.ok == ok, found
    if not ok:
        assert folder not in found.detail + found.remedy
        assert f"mount fstype=fuse.* -> {folder}/," in local_remedy(facts(), found)


def test_the_folder_on_the_command_line_is_checked(system: Path) -> None:
    """The folder on the command line replaces that of the last mount."""
    wants = facts()
    wants.folder = Path("/data/zones")
    found = machine.apparmor(wants)
    assert found is not None and not found.ok
    wants.folder = wants.holder = None
    found = machine.apparmor(wants)
    assert found is not None and found.ok


def test_local_rules_count(system: Path) -> None:
    """Rules in the profile's local part allow more folders."""
    local = system / "apparmor.d/local/fusermount3"
    local.write_text("mount fstype=fuse.* -> /data/zones/,\numount /data/zones/,\n")
    assert finding("/data/zones").ok
    local.write_text("mount fstype=fuse.*,\n")
    assert finding("/anywhere/at/all").ok


def test_an_installed_profile_counts_as_loaded(system: Path) -> None:
    """Only root can read the list of loaded profiles."""
    (system / "loaded").unlink()
    assert not finding("/data/zones").ok
    (system / "apparmor.d/fusermount3").unlink()
    assert machine.apparmor(facts("/data/zones")) is None


def test_without_confinement_there_is_no_result(system: Path) -> None:
    """There is no result if AppArmor is disabled, or the profile is missing or not enforced."""
    (system / "loaded").write_text("fusermount3 (complain)\n")
    assert machine.apparmor(facts("/data/zones")) is None
    (system / "enabled").write_text("N\n")
    assert machine.apparmor(facts("/data/zones")) is None
    (system / "enabled").unlink()
    assert machine.apparmor(facts("/data/zones")) is None


FSTAB = "https://service.example /home/alice/Zones fuse.zonedrive noauto,user,{} 0 0\n"
UNIT = "[Service]\nEnvironment=MOUNTPOINT=%h/Zones OPTIONS=settle=2,allow_other\n"


def test_allow_other_needs_a_line_in_fuse_conf(system: Path) -> None:
    """There is a result only if /etc/fstab or a systemd unit asks for allow_other."""
    (system / "fstab").write_text(FSTAB.format("settle=2"))
    assert machine.sharing(facts()) is None
    (system / "fstab").write_text(FSTAB.format("allow_other"))
    found = machine.sharing(facts())
    assert found is not None and not found.ok
    assert "user_allow_other" in found.remedy
    (system / "fuse.conf").write_text("#user_allow_other\nmount_max = 5\n")
    found = machine.sharing(facts())
    assert found is not None and not found.ok
    (system / "fuse.conf").write_text("mount_max = 5\n user_allow_other\n")
    found = machine.sharing(facts())
    assert found is not None and found.ok


def test_a_systemd_unit_may_ask_for_allow_other(system: Path) -> None:
    """Drop-ins of a unit count; comments in them do not."""
    folder = system / "units/zonedrive@default.service.d"
    folder.mkdir(parents=True)
    (folder / "own.conf").write_text("# OPTIONS=allow_other\n")
    assert machine.sharing(facts()) is None
    (folder / "own.conf").write_text(UNIT)
    found = machine.sharing(facts())
    assert found is not None and "systemd unit wants allow_other" in found.detail
