"""Emblems and menus of zonedrive in real file managers."""

import json
import os
import signal
import subprocess
from pathlib import Path

import msgspec
import pytest

from tests.desktop.dolphin import Dolphin
from tests.desktop.extensions import SOURCES, install, install_service_menu, pixels, screenshot
from tests.desktop.nautilus import Nautilus
from tests.desktop.session import Session
from tests.desktop.thunar import Thunar
from tests.harness.deployment import COMMAND
from tests.harness.machine import Machine, Mounted
from tests.harness.waiting import eventually

SYSTEM_PYTHON = "/usr/bin/python3"
ICONS = Path(__file__).with_name("icons.py")
CHANGES = Path(__file__).with_name("changes.py")
PICTURES = os.environ.get("ZONEDRIVE_PICTURES")
"""Folder for pictures of the screen; None: no pictures."""


def picture(session: Session, name: str) -> None:
    if PICTURES:
        screenshot(session, Path(PICTURES, f"{name}.png"))


def pins(machine: Machine) -> list[str]:
    return [each["path"] for each in json.loads(machine.done("pin", "--json"))]


def test_emblems_in_nautilus(mounted: Mounted, session: Session) -> None:
    """Emblems follow the states without a reload, and go with the daemon."""
    install(mounted.machine, "nautilus")
    nautilus = Nautilus(session, mounted.root)
    eventually(lambda: pixels(session, "synced") > 50, what="emblems of synced entries")
    assert pixels(session, "failed") == 0
    mounted.allow("refused", "HTTP 403")
    with mounted.deployment.faulty(status=403, method="POST", path="^/api/zones/"):
        (mounted.root / "notes.txt").write_bytes(b"refused\n")
        eventually(lambda: pixels(session, "failed") > 20, what="the emblem of a failed upload")
        picture(session, "nautilus-emblems")
    mounted.sync()
    eventually(lambda: pixels(session, "failed") == 0, what="the emblem goes after the upload")
    eventually(lambda: pixels(session, "synced") > 50, what="it is drawn as synced again")
    mounted.kill()
    eventually(lambda: pixels(session, "synced") == 0, what="no emblems without a daemon")
    assert list(nautilus.screen.inside("label")), "the window answers"


@pytest.mark.parametrize(
    "command", [("nemo",), ("caja", "--no-desktop", "--browser")], ids=lambda words: words[0]
)
def test_emblems_in_others(mounted: Mounted, session: Session, command: tuple[str, ...]) -> None:
    """Nemo and Caja show the same emblems."""
    install(mounted.machine, command[0])
    session.run(*command, mounted.root)
    eventually(lambda: pixels(session, "synced") > 50, what="emblems of synced entries")
    mounted.allow("refused", "HTTP 403")
    with mounted.deployment.faulty(status=403, method="POST", path="^/api/zones/"):
        (mounted.root / "notes.txt").write_bytes(b"refused\n")
        eventually(lambda: pixels(session, "failed") > 20, what="the emblem of a failed upload")
        picture(session, f"{command[0]}-emblems")


def test_menu_in_nautilus(mounted: Mounted, session: Session) -> None:
    """The menu offers what the state and the profile allow, and its items work."""
    install(mounted.machine, "nautilus")
    nautilus = Nautilus(session, mounted.root)
    nautilus.open_menu("notes.txt")
    picture(session, "nautilus-menu")
    assert "Zones" in nautilus.menu()
    assert {"Keep on this computer", "Versions…", "Who changed this…"} <= set(nautilus.menu())
    assert "Send now" not in nautilus.menu()
    nautilus.choose("Zones", "Keep on this computer")
    path = f"{mounted.root.name}/notes.txt"
    eventually(lambda: pins(mounted.machine) == [path], what="the file is kept")

    def offers_the_opposite() -> bool:
        nautilus.open_menu("notes.txt")
        return "Stop keeping on this computer" in nautilus.menu()

    eventually(offers_the_opposite, what="the menu knows")
    nautilus.choose("Zones", "Stop keeping on this computer")
    eventually(lambda: not pins(mounted.machine), what="the file is kept no more")


def test_menu_in_thunar(mounted: Mounted, session: Session) -> None:
    """Thunar has the same menu."""
    install(mounted.machine, "thunar")
    thunar = Thunar(session, mounted.root)
    thunar.select("notes.txt")
    thunar.key("shift+F10")
    thunar.screen.find("menu", "Zones").do()
    item = thunar.screen.find("menu item", "Keep on this computer")
    picture(session, "thunar-menu")
    item.do()
    path = f"{mounted.root.name}/notes.txt"
    eventually(lambda: pins(mounted.machine) == [path], what="the file is kept")


def test_menu_in_dolphin(mounted: Mounted, session: Session) -> None:
    """The service menu has an item for each action, and they work."""
    entries = install_service_menu(mounted.machine)
    opened = mounted.machine.folder / "opened"
    browser = mounted.machine.folder / "browser"
    browser.write_text(f'#!/bin/sh\necho "$@" >{opened}.new\nmv {opened}.new {opened}\n')
    browser.chmod(0o700)
    session.environment |= {"BROWSER": str(browser), "ZONEDRIVE_COMMAND": str(COMMAND)}
    dolphin = Dolphin(session, mounted.root / "notes.txt")
    dolphin.open_menu()
    picture(session, "dolphin-menu")
    dolphin.choose(entries.index("keep"))
    path = f"{mounted.root.name}/notes.txt"
    eventually(lambda: pins(mounted.machine) == [path], what="the file is kept")
    dolphin.open_menu()
    dolphin.choose(entries.index("stop-keeping"))
    eventually(lambda: not pins(mounted.machine), what="the file is kept no more")
    dolphin.open_menu()
    dolphin.choose(entries.index("pause"))
    eventually(lambda: mounted.status()["paused"], what="the uploads are paused")
    dolphin.open_menu()
    dolphin.choose(entries.index("resume"))
    eventually(lambda: not mounted.status()["paused"], what="the uploads go on")
    dolphin.open_menu()
    dolphin.choose(entries.index("versions"))
    eventually(opened.exists, what="the window opens")


@pytest.mark.parametrize("kind", [Nautilus, Thunar], ids=lambda kind: kind.__name__.lower())
def test_uploads_are_paused_from_the_folder_of_the_mount(
    mounted: Mounted, session: Session, kind: type[Nautilus] | type[Thunar]
) -> None:
    """The menu of the mount's own folder pauses the uploads, and then resumes them."""
    name = kind.__name__.lower()
    install(mounted.machine, name)
    files = kind(session, mounted.machine.folder)
    folder = mounted.path.name
    files.choose_for(folder, "Zones", "Pause uploads")
    eventually(lambda: mounted.status()["paused"], what="the uploads are paused")
    files.choose_for(folder, "Zones", "Resume uploads")
    eventually(lambda: not mounted.status()["paused"], what="the uploads go on")


class Icons(msgspec.Struct):
    """Result of `icons.py`."""

    emblems: dict[str, int]
    milliseconds: float  # of the processor, in the main thread
    waits: int


def show_icons(mounted: Mounted, folder: Path, seconds: float) -> Icons:
    """Show 1,000 entries of a folder."""
    said = subprocess.run(
        [SYSTEM_PYTHON, ICONS, SOURCES / "src" / "zonedrive", folder, str(seconds)],
        env=mounted.machine.environment, timeout=120, stdout=subprocess.PIPE, check=True,
    ).stdout  # fmt: skip
    found = msgspec.json.decode(said, type=Icons)
    print(f"main thread: {found.milliseconds:.1f} ms, {found.waits} waits")
    return found


FEW = 10


@pytest.mark.mount("settle=600")
def test_a_thousand_icons(mounted: Mounted) -> None:
    """1,000 icons cost the file manager at most 50 ms of the processor, and it never waits for an
    answer, also while service or daemon do not answer.

    On a busy machine, it may wait a few times for a page of memory or for Python's lock.
    """
    folder = mounted.root / "many"
    folder.mkdir()
    for number in range(1000):
        (folder / f"{number}.txt").write_bytes(b"x")
    with mounted.deployment.faulty(stall=600):
        found = show_icons(mounted, folder, 60)
        assert found.emblems == {"emblem-zonedrive-pending": 1000}
        assert found.milliseconds < 50
        assert found.waits < FEW
        os.kill(mounted.pid, signal.SIGSTOP)
        try:
            frozen = show_icons(mounted, folder, 7)
        finally:
            os.kill(mounted.pid, signal.SIGCONT)
        mounted.kill()
        dead = show_icons(mounted, folder, 2)
    for found in (frozen, dead):
        assert found.emblems == {}
        assert found.milliseconds < 50
        assert found.waits < FEW


def seconds_until_reported(mounted: Mounted, name: str) -> float:
    """Save a file; return the seconds from its close until the change is reported."""
    found = subprocess.run(
        [SYSTEM_PYTHON, CHANGES, SOURCES / "src" / "zonedrive", mounted.root / name],
        env=mounted.machine.environment, timeout=120, stdout=subprocess.PIPE, check=True,
    ).stdout  # fmt: skip
    lines = [json.loads(line) for line in found.splitlines()]
    print(lines)
    states = [line["state"] for line in lines]
    assert states[0] in ("pending", "uploading")
    assert states[-1] == "synced"
    return float(lines[0]["seconds"])


def test_a_change_shows_at_once(mounted: Mounted) -> None:
    """A save is reported within a second of the close, and its upload soon after the answer.

    The usual time is 5 ms; a busy machine may stand still during a save, but not during each.
    `in_process/test_entry_states.py` has the delays of the daemon.
    """
    names = ("notes.txt", "empty", "docs/report.md")
    assert any(seconds_until_reported(mounted, name) < 1 for name in names)
