"""Actions of the entry in a desktop's menu."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from zonedrive.ui import session_start

SCRIPT = Path(__file__).parents[2] / "packaging" / "desktop" / "open-zones"

# Stands for every program; what each is called with, and a little of what it does, is in files.
PROGRAM = """#!/bin/sh
name=${0##*/}
echo "$name $*" >>"$DESK/calls"
[ ! -e "$DESK/$name.$1.says" ] || cat "$DESK/$name.$1.says"
[ "$name $1" != "zonedrive mount" ] || echo '{"mountpoint": "/home/me/Zones/default"}' \\
    >"$DESK/zonedrive.status.says"
[ ! -e "$DESK/$name.$1.code" ] || exit "$(cat "$DESK/$name.$1.code")"
"""


class Desktop:
    """Desktop whose programs only record their calls."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        programs = ("zonedrive", "xdg-open", "systemctl", "notify-send")
        for name in programs:
            (folder / name).write_text(PROGRAM)
            (folder / name).chmod(0o755)
        for name in ("sh", "cat", "mkdir", "sed"):
            (folder / name).symlink_to(shutil.which(name) or "")
        (folder / "python3").symlink_to(sys.executable)
        self.says("status", '{"mountpoint": null}')
        self.exits("systemctl.--user", 1)

    def says(self, command: str, text: str) -> None:
        """Set the output of a zonedrive command."""
        (self._folder / f"zonedrive.{command}.says").write_text(text)

    def exits(self, call: str, code: int) -> None:
        """Set the exit code of a program."""
        (self._folder / f"{call}.code").write_text(str(code))

    def click(self, *arguments: str) -> list[str]:
        """Start the entry; return the calls that followed, without the status queries."""
        environment = {"PATH": str(self._folder), "HOME": str(self._folder / "home")}
        subprocess.run(
            [SCRIPT, *arguments], env={**environment, "DESK": str(self._folder)}, timeout=60,
            cwd=self._folder,
        )  # fmt: skip
        calls = (self._folder / "calls").read_text().splitlines()
        return [call for call in calls if not call.startswith("zonedrive status")]

    @property
    def home(self) -> str:
        """Return the home folder."""
        return os.fspath(self._folder / "home")


@pytest.fixture
def desktop(tmp_path: Path) -> Desktop:
    """Return a desktop without a mount or a service manager."""
    return Desktop(tmp_path)


def test_zones_that_are_mounted_are_shown(desktop: Desktop) -> None:
    """One click opens the file manager, wherever the mount is."""
    desktop.says("status", '{"mountpoint": "/home/me/My zones"}')
    assert desktop.click() == ["xdg-open /home/me/My zones"]


def test_zones_are_mounted_first(desktop: Desktop) -> None:
    """Without a service manager, the click itself mounts."""
    unit = "systemctl --user start zonedrive@default.service"
    mount = f"zonedrive mount {desktop.home}/Zones/default"
    assert desktop.click() == [unit, mount, "xdg-open /home/me/Zones/default"]


@pytest.mark.parametrize("name", ["Acme & Co", "100% Acme"])
def test_zones_are_mounted_where_each_login_mounts_them(desktop: Desktop, name: str) -> None:
    """The window has written this folder to the autostart folder of the desktop."""
    entry = Path(desktop.home, ".config/autostart/zonedrive-default.desktop")
    entry.parent.mkdir(parents=True)
    folder = Path(desktop.home, "Zones", name)
    entry.write_text(session_start.text("default", folder))
    mounted = next(call for call in desktop.click() if call.startswith("zonedrive mount"))
    assert mounted == f"zonedrive mount {folder}"


def test_without_a_logon_the_window_asks(desktop: Desktop) -> None:
    """The page of the logon opens; nothing is mounted, and no unit fails."""
    desktop.exits("zonedrive.status", 3)
    assert desktop.click() == ["zonedrive ui --page logon"]


def test_a_failed_mount_is_notified(desktop: Desktop) -> None:
    """A notification shows the line that a terminal would show."""
    desktop.says("mount", "/home/me/Zones/default is not empty")
    desktop.exits("zonedrive.mount", 1)
    calls = desktop.click()
    assert calls[-1].startswith("notify-send ")
    assert calls[-1].endswith("is not empty")


def test_a_message_is_text_for_the_desktop(desktop: Desktop) -> None:
    """A message is interpreted neither as an option, nor as markup, nor as a command."""
    desktop.says("mount", "--help <b>$(id)</b> & `id`")
    desktop.exits("zonedrive.mount", 1)
    assert desktop.click()[-1].endswith("-- Zones --help &lt;b&gt;$(id)&lt;/b&gt; &amp; `id`")


def test_a_click_runs_no_code_of_the_working_folder(desktop: Desktop, tmp_path: Path) -> None:
    """A coworker's folder may contain a json.py."""
    (tmp_path / "json.py").write_text(
        "open('ran', 'w')\ndef load(file): return {'mountpoint': '/'}\n"
    )
    desktop.says("status", '{"mountpoint": "/home/me/$(id) `id`"}')
    assert desktop.click() == ["xdg-open /home/me/$(id) `id`"]
    assert not (tmp_path / "ran").exists()
