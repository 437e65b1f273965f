"""File that tells file managers the name and icon of a mount."""

import configparser
import errno
import os
from pathlib import Path

import pytest

from tests.unit.state.disk import Disk, zone_of
from zonedrive.logon.account import Account
from zonedrive.state.inode import ROOT
from zonedrive.state.local_state import LocalState
from zonedrive.views.virtual import VirtualLayer
from zonedrive.views.volume_info import VolumeInfo, contents, installed_icon

NAME = b".xdg-volume-info"


@pytest.fixture
def state(disk: Disk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalState:
    """Return the local state of a mount, on a machine without the icon."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_DATA_DIRS", str(tmp_path / "shared"))
    return disk.start()


async def test_the_file_is_read_and_never_changed(state: LocalState) -> None:
    """The file is only at the top of the mount, under a permanent number."""
    layer = VirtualLayer(state, [VolumeInfo(state, "Acme")])
    attr = await layer.lookup(ROOT, NAME)
    opened = await layer.open(attr.ino, os.O_RDONLY, 1)
    assert opened.keep_cache
    data = await layer.read(opened.handle, 0, 4096)
    assert data == b"[Volume Info]\nName=Acme\nIcon=zonedrive\n"
    assert attr.size == len(data)
    assert await layer.read(opened.handle, 14, 4) == b"Name"
    attributes = ("id", "zone", "state", "modified_by", "type", "sync")
    assert layer.xattrs(attr.ino) == {f"user.zonedrive.{name}": "" for name in attributes} | {
        "user.zonedrive.state": "local"
    }
    await layer.release(opened.handle)
    with pytest.raises(OSError) as refused:
        await layer.open(attr.ino, os.O_WRONLY, 1)
    assert refused.value.errno == errno.EROFS
    assert layer.root(zone_of(state).ino, NAME) is None
    again = VirtualLayer(state, [VolumeInfo(state, "Acme")])
    other = VirtualLayer(state, [VolumeInfo(state, "Other")])
    assert (await again.lookup(ROOT, NAME)).ino == attr.ino
    assert (await other.lookup(ROOT, NAME)).ino != attr.ino


@pytest.mark.parametrize(
    ("title", "name"),
    [("Grüße & Co.", "Grüße & Co."), ("a\\b", "a\\\\b"), ("x\nIcon=/etc/passwd", None)],
)
def test_a_name_is_one_value(title: str, name: str | None) -> None:
    """The service cannot add lines to the file."""
    parser = configparser.RawConfigParser()
    parser.read_string(contents(title, None).decode())
    assert parser["Volume Info"]["Icon"] == "zonedrive"
    assert name is None or parser["Volume Info"]["Name"] == name


def test_the_installed_icon_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The user's icon takes precedence over the machine's; relative folders are ignored."""
    icons = [tmp_path / name / "icons/hicolor/scalable/apps/zonedrive.svg" for name in "ab"]
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "a"))
    monkeypatch.setenv("XDG_DATA_DIRS", f"elsewhere:{tmp_path}/b")
    assert installed_icon() is None
    for icon in reversed(icons):
        icon.parent.mkdir(parents=True)
        icon.touch()
        assert installed_icon() == icon
    assert f"\nIconFile={icons[0]}\n".encode() in contents("Acme", icons[0])


@pytest.mark.parametrize(
    ("name", "organization", "title"),
    [
        ("default", "Acme", "Acme"),
        ("work", "Acme", "Acme (work)"),
        ("default", "", "zones.example"),
    ],
)
def test_mounts_have_different_titles(name: str, organization: str, title: str) -> None:
    """The titles distinguish accounts; without an organization, the title is the host."""
    account = Account(
        name=name, base_url="https://zones.example:8443", username="a", organization=organization
    )
    assert account.title == title
