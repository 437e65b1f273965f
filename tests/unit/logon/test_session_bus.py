"""Check that the session bus belongs to the user."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
import trio.testing

from tests.conftest import short_folder
from zonedrive.daemon.notification_client import Desktop, Notification
from zonedrive.daemon.service_manager import is_keyring_unlocked
from zonedrive.logon.secrets import desktop_keyring
from zonedrive.logon.session_bus import is_foreign, own_environment, session_bus

NOBODY = 65534


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Yield a runtime folder with listening sockets `bus` and `a b#%`, and an abstract socket."""
    with short_folder() as found, socket.socket(socket.AF_UNIX) as abstract:
        abstract.bind(f"\0{found}/none")
        abstract.listen()
        sockets = [socket.socket(socket.AF_UNIX) for _ in range(2)]
        for each, name in zip(sockets, ("bus", "a b#%"), strict=True):
            each.bind(str(found / name))
            each.listen()
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(found))
        monkeypatch.delenv("DBUS_SESSION_BUS_ADDRESS", raising=False)
        yield found
        for each in sockets:
            each.close()


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (None, "unix:path={}/bus"),
        ("", "unix:path={}/bus"),
        ("unix:path={}/bus", "unix:path={}/bus"),
        ("unix:path={}/bus,guid=4711", "unix:path={}/bus"),
        ("unix:runtime=yes", "unix:path={}/bus"),
        ("unix:path={}/a%20b%23%25", "unix:path={}/a%20b%23%25"),
        ("unix:abstract={}/none", "unix:abstract={}/none"),
        ("tcp:host=127.0.0.1,port=1;unix:path={}/gone;unix:path={}/bus", "unix:path={}/bus"),
        ("unix:path={}/link", "unix:path={}/bus"),
        ("unix:path={}/circle", None),
        ("unix:path={}/gone", None),
        ("unix:path={}/file", None),
        ("unix:path={}", None),
        ("unix:path=a%00b", None),
        ("unix:dir={}", None),
        ("unix:tmpdir={}", None),
        ("unix:abstract={}/nobody", None),
        ("tcp:host=127.0.0.1,port=1", None),
        ("nonce-tcp:host=127.0.0.1,port=1,noncefile={}/bus", None),
        ("unixexec:path={}/bus", None),
        ("autolaunch:", None),
        ("launchd:env=X", None),
        ("nonsense", None),
        (";", None),
    ],
)
def test_which_bus_is_ones_own(
    folder: Path, monkeypatch: pytest.MonkeyPatch, given: str | None, found: str | None
) -> None:
    """Each form of address is checked; a form that does not show the owner is rejected."""
    (folder / "link").symlink_to("bus")
    (folder / "circle").symlink_to("circle")
    (folder / "file").touch()
    if given is not None:
        monkeypatch.setenv("DBUS_SESSION_BUS_ADDRESS", given.replace("{}", str(folder)))
    assert session_bus() == (None if found is None else found.replace("{}", str(folder)))
    assert not is_foreign()


@pytest.mark.parametrize("form", ["path={}/bus", "abstract={}/none", "runtime=yes"])
async def test_another_users_bus_gets_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    """No secret, notification, keyring query or browser reaches another user's bus."""
    monkeypatch.setenv("DBUS_SESSION_BUS_ADDRESS", f"unix:{form}".replace("{}", str(folder)))
    os.chown(folder / "bus", NOBODY, NOBODY)
    os.chown(folder, NOBODY, NOBODY)
    folder.chmod(0o755)
    if form.startswith("abstract"):
        monkeypatch.setattr("os.geteuid", lambda: 4711)  # of a process, not of a file
    assert session_bus() is None
    assert desktop_keyring() is None
    assert not is_keyring_unlocked()
    desktop = Desktop()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(desktop.run)
        await trio.testing.wait_all_tasks_blocked()
        assert not await Notification(desktop).show("one", "two")
        nursery.cancel_scope.cancel()
    assert "XDG_RUNTIME_DIR" not in own_environment()
    if form.startswith("abstract"):
        assert is_foreign()
        assert "DBUS_SESSION_BUS_ADDRESS" not in own_environment()


@pytest.mark.parametrize("mode", [0o777, 0o775, 0o1777])
def test_a_name_that_others_can_give_away(
    folder: Path, monkeypatch: pytest.MonkeyPatch, mode: int
) -> None:
    """A folder that others can write to is not safe, unless it has the sticky bit."""
    folder.chmod(mode)
    assert session_bus() is None  # XDG_RUNTIME_DIR is not ours alone
    monkeypatch.setenv("DBUS_SESSION_BUS_ADDRESS", f"unix:path={folder}/bus")
    assert (session_bus() is not None) is (mode == 0o1777)


def test_an_own_session_is_handed_on(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A browser gets the same environment as without zonedrive."""
    monkeypatch.setenv("DBUS_SESSION_BUS_ADDRESS", "autolaunch:")
    assert own_environment() == dict(os.environ)
