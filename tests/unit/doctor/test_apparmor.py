"""What keeps a mount from being made, where it is not the machine itself: AppArmor, fuse.conf."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from zonedrive.daemon.lock import Holder
from zonedrive.doctor import apparmor
from zonedrive.doctor.result import CheckResult
from zonedrive.fuse import mountpoint

# In the form of the profile that AppArmor 4 brings along.
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
DENIED = (
    '5,1,2,-;audit: type=1400 apparmor="DENIED" operation="mount" class="mount"'
    ' info="failed mntpnt match" error=-13 profile="fusermount3" name="/data/x/"\n'
)


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine whose AppArmor confines fusermount3, for a user who is not root."""
    (tmp_path / "enabled").write_text("Y\n")
    (tmp_path / "loaded").write_text("unix-chkpwd (enforce)\nfusermount3 (enforce)\n")
    (tmp_path / "apparmor.d/local").mkdir(parents=True)
    (tmp_path / "apparmor.d/fusermount3").write_text(PROFILE)
    (tmp_path / "kmsg").touch()
    for name, file in (
        ("ENABLED", "enabled"),
        ("LOADED", "loaded"),
        ("PROFILE", "apparmor.d/fusermount3"),
        ("MESSAGES", "kmsg"),
        ("FSTAB", "fstab"),
    ):
        monkeypatch.setattr(apparmor, name, tmp_path / file)
    monkeypatch.setattr(mountpoint, "FUSE_CONF", tmp_path / "fuse.conf")
    monkeypatch.setattr(apparmor, "UNITS", (str(tmp_path / "units"),))
    monkeypatch.setattr("os.getuid", lambda: 1000)
    return tmp_path


def patient(folder: str = "/home/alice/Zones") -> Any:
    """Who was mounted at `folder`."""
    account = SimpleNamespace(base_url="https://service.example", name="default")
    return SimpleNamespace(holder=Holder(1, Path(folder)), folder=None, account=account)


def finding(folder: str) -> CheckResult:
    """What is found for a mount at `folder`."""
    found = apparmor.apparmor(patient(folder))
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
def test_a_folder_is_held_against_the_profile(system: Path, folder: str, ok: bool) -> None:
    """By the rules of the profile on this machine; the person reads which rule would be needed."""
    found = finding(folder)
    assert found.ok == ok, found
    if not ok:
        assert folder not in found.detail + found.remedy
        assert f"mount fstype=fuse.* -> {folder}/," in found.here


def test_the_folder_that_a_person_names_is_what_counts(system: Path) -> None:
    """Before the first mount, or after one that failed."""
    wants = patient()
    wants.folder = Path("/data/zones")
    found = apparmor.apparmor(wants)
    assert found is not None and not found.ok
    wants.folder = wants.holder = None
    found = apparmor.apparmor(wants)
    assert found is not None and found.ok


def test_what_root_has_allowed_counts(system: Path) -> None:
    """The local part of the profile, as the distribution wants it."""
    local = system / "apparmor.d/local/fusermount3"
    local.write_text("mount fstype=fuse.* -> /data/zones/,\numount /data/zones/,\n")
    assert finding("/data/zones").ok
    local.write_text("mount fstype=fuse.*,\n")
    assert finding("/anywhere/at/all").ok


def test_a_denial_in_the_log_is_said(system: Path) -> None:
    """Where the kernel's log can be read, which is often not so."""
    (system / "kmsg").write_text(DENIED)
    assert "kept fusermount3 from" in finding("/home/alice/Zones").detail
    (system / "kmsg").unlink()
    assert finding("/home/alice/Zones").ok


def test_what_is_loaded_may_be_closed_to_users(system: Path) -> None:
    """Then a profile that lies there counts as loaded."""
    (system / "loaded").unlink()
    assert not finding("/data/zones").ok
    (system / "apparmor.d/fusermount3").unlink()
    assert apparmor.apparmor(patient("/data/zones")) is None


def test_machines_without_it_are_not_told_of_it(system: Path) -> None:
    """Off, not there, without that profile, or not enforced."""
    (system / "loaded").write_text("fusermount3 (complain)\n")
    assert apparmor.apparmor(patient("/data/zones")) is None
    (system / "enabled").write_text("N\n")
    assert apparmor.apparmor(patient("/data/zones")) is None
    (system / "enabled").unlink()
    assert apparmor.apparmor(patient("/data/zones")) is None


FSTAB = "https://service.example /home/alice/Zones fuse.zonedrive noauto,user,{} 0 0\n"
UNIT = "[Service]\nEnvironment=MOUNTPOINT=%h/Zones OPTIONS=settle=2,allow_other\n"


def test_others_may_enter_where_root_allows_it(system: Path) -> None:
    """Wrong only where /etc/fstab or a unit of systemd wants it; else what to do is said."""
    (system / "fstab").write_text(FSTAB.format("settle=2"))
    found = apparmor.sharing(patient())
    assert found is not None and found.ok
    assert "no user_allow_other" in found.detail
    assert "echo user_allow_other >>/etc/fuse.conf" in found.remedy
    (system / "fstab").write_text(FSTAB.format("allow_other"))
    found = apparmor.sharing(patient())
    assert found is not None and not found.ok
    assert "user_allow_other" in found.remedy
    (system / "fuse.conf").write_text("#user_allow_other\nmount_max = 5\n")
    found = apparmor.sharing(patient())
    assert found is not None and not found.ok
    (system / "fuse.conf").write_text("mount_max = 5\n user_allow_other\n")
    found = apparmor.sharing(patient())
    assert found is not None and found.ok


def test_a_unit_may_want_others_to_enter(system: Path) -> None:
    """What a person added to the unit counts, what it has in comments does not."""
    folder = system / "units/zonedrive@default.service.d"
    folder.mkdir(parents=True)
    (folder / "own.conf").write_text("# OPTIONS=allow_other\n")
    found = apparmor.sharing(patient())
    assert found is not None and found.ok
    (folder / "own.conf").write_text(UNIT)
    found = apparmor.sharing(patient())
    assert found is not None and "systemd unit wants allow_other" in found.detail
