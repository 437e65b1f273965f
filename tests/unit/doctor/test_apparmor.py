"""Check of AppArmor's rules for fusermount3."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from zonedrive.daemon.lock import Holder
from zonedrive.doctor import machine
from zonedrive.doctor.facts import CheckResult, local_remedy


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Prepare a machine on which AppArmor confines fusermount3, for a user without root."""
    (tmp_path / "enabled").write_text("Y\n")
    (tmp_path / "loaded").write_text("unix-chkpwd (enforce)\nfusermount3 (enforce)\n")
    (tmp_path / "apparmor.d/local").mkdir(parents=True)
    (tmp_path / "apparmor.d/fusermount3").touch()
    for name, file in (
        ("ENABLED", "enabled"),
        ("LOADED", "loaded"),
        ("PROFILE", "apparmor.d/fusermount3"),
    ):
        monkeypatch.setattr(machine, name, tmp_path / file)
    monkeypatch.setattr("os.getuid", lambda: 1000)
    return tmp_path


def facts(folder: str = "/home/alice/Zones") -> Any:
    """Return the facts of an account that was mounted at `folder`."""
    paths = SimpleNamespace(state="", cache="", log="", option="")
    return SimpleNamespace(holder=Holder(1, Path(folder)), folder=None, paths=paths)


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
    """The local remedy shows the missing rule."""
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
    """Rules in the profile's local part may allow any folder; a comment is no rule."""
    local = system / "apparmor.d/local/fusermount3"
    local.write_text("# mount fstype=fuse.* -> /data/zones/,\n")
    assert not finding("/data/zones").ok
    local.write_text("  mount fstype=fuse.* -> /data/zones/,\numount /data/zones/,\n")
    assert finding("/data/zones").ok


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
