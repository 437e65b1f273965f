"""Programs that start at a click on a notification, on a real session bus."""

import os
import sys
from pathlib import Path
from typing import Any

import pytest
from jeepney import new_error, new_method_return

from tests.harness.bus import Bus, Owner
from tests.harness.waiting import eventually
from zonedrive import process_setup
from zonedrive.daemon.click_actions import ClickActions, starters
from zonedrive.daemon.notification_client import Desktop

RECORD = """#!/bin/sh
printf '%s\\n' "$0" "$@" "token=$XDG_ACTIVATION_TOKEN" "display=$DISPLAY" >>{log}.new
mv {log}.new {log}
"""


class FileManager(Owner):
    """File manager that records the selected files."""

    NAME = "org.freedesktop.FileManager1"

    def __init__(self, bus: Bus) -> None:
        self.selected: list[Any] = []
        super().__init__(bus)

    def _answer(self, message: Any, method: str) -> Any:
        assert method == "ShowItems"
        self.selected.append(message.body)
        return new_method_return(message)


class ServiceManager(Owner):
    """Service manager of the user that only returns its environment."""

    NAME = "org.freedesktop.systemd1"

    def _answer(self, message: Any, method: str) -> Any:
        if message.body != ("org.freedesktop.systemd1.Manager", "Environment"):
            return new_error(message, "org.freedesktop.DBus.Error.UnknownProperty")
        return new_method_return(message, "v", (("as", ["DISPLAY=:7", "LANG=C", "X=a=b"]),))


@pytest.fixture
def actions(
    bus: Bus, desktop: Desktop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> ClickActions:
    """Return the actions of a mount whose daemon has no screen."""
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "INVOCATION_ID"):
        monkeypatch.delenv(name, raising=False)
    return ClickActions(desktop, "work", lambda: tmp_path / "Zones")


class Program:
    """Program that records how it was started."""

    def __init__(self, folder: Path, name: str) -> None:
        self.path, self._log = folder / name, folder / f"{name}.log"
        self.path.parent.mkdir(exist_ok=True)
        self.path.write_text(RECORD.format(log=self._log))
        self.path.chmod(0o700)

    def started(self) -> list[str]:
        """Wait for a start; return its words and variables."""
        text = eventually(lambda: self._log.exists() and self._log.read_text(), what="a start")
        self._log.unlink()
        return str(text).splitlines()[1:]


@pytest.fixture
def python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Program:
    """Return a stand-in for the interpreter of zonedrive."""
    program = Program(tmp_path, "python")
    monkeypatch.setattr(sys, "executable", str(program.path))
    return program


WINDOW = ["-P", "-m", "zonedrive", "ui", "--page", "logon", "--account", "work"]


async def test_the_window_opens_on_the_screen_of_the_session(
    bus: Bus, actions: ClickActions, python: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A daemon that began before the session learns of its screen from the service manager."""
    await actions.open_window("logon")("the token")
    assert python.started() == [*WINDOW, "token=the token", "display="]
    manager = ServiceManager(bus)
    try:
        await actions.open_window("logon")("")
        assert python.started() == [*WINDOW, "token=", "display=:7"]
        monkeypatch.setenv("DISPLAY", ":2")
        await actions.open_window("logon")("")
        assert python.started() == [*WINDOW, "token=", "display=:2"]
    finally:
        manager.close()


async def test_the_window_outlives_the_unit_of_the_mount(
    bus: Bus, actions: ClickActions, python: Program, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """The window is started as a unit or, if the service manager refuses, as a process."""
    run = Program(tmp_path / "bin", "systemd-run")
    monkeypatch.setenv("PATH", f"{run.path.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("INVOCATION_ID", "1")
    monkeypatch.setenv("XDG_STATE_HOME", "/state of another")
    manager = ServiceManager(bus)
    try:
        await actions.open_window("logon")("x")
        said = run.started()
        assert said[:3] == ["--user", "--quiet", "--collect"]
        assert {"--setenv=XDG_STATE_HOME", "--setenv=DISPLAY", "--setenv=PATH"} <= set(said)
        assert "--setenv=XDG_ACTIVATION_TOKEN" in said
        assert said[said.index("--") + 1 :] == [sys.executable, *WINDOW, "token=x", "display=:7"]
        run.path.write_text("#!/bin/sh\nexit 1\n")
        await actions.open_window("logon")("x")
        assert python.started() == [*WINDOW, "token=x", "display=:7"]
    finally:
        manager.close()


def test_the_window_without_a_service_manager() -> None:
    """The window is started as a process; a shell may have the variable of a unit, too."""
    assert starters(["a"], {"INVOCATION_ID": "1"}, {}) == [["setsid", "--fork", "a"]]
    assert starters(["a"], {}, {"DISPLAY": ":0"}) == [["setsid", "--fork", "a"]]


def test_the_window_gets_the_former_limit_of_open_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Browsers call select(2). A service manager has limits of its own."""
    monkeypatch.setattr(process_setup, "former_limits", [1024])
    limited = ["prlimit", "--nofile=1024:", "setsid", "--fork", "a"]
    assert starters(["a"], {}, {}) == [limited]
    managed, process = starters(["a"], {"INVOCATION_ID": "1"}, {"LANG": "C"})
    assert (managed[0], process) == ("systemd-run", limited)


async def test_files_are_selected_in_the_file_manager(
    bus: Bus, actions: ClickActions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a file manager on the bus, the folder is opened."""
    opener = Program(tmp_path / "bin", "xdg-open")
    monkeypatch.setenv("PATH", f"{opener.path.parent}:{os.environ['PATH']}")
    show = actions.show_files("Zone/a (conflict).txt", "Zone/a.txt")
    manager = FileManager(bus)
    try:
        await show("the token")
        start = f"file://{tmp_path}/Zones/Zone"
        assert manager.selected == [
            ([f"{start}/a%20%28conflict%29.txt", f"{start}/a.txt"], "the token")
        ]
    finally:
        manager.close()
    await show("")
    assert opener.started() == [f"{tmp_path}/Zones/Zone", "token=", "display="]


async def test_a_missing_program_is_logged(
    actions: ClickActions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    """The daemon continues, and the log has a line."""
    monkeypatch.setenv("PATH", str(tmp_path))
    await actions.open_window("logon")("")
    assert "a click on a notification could not start" in caplog.text
