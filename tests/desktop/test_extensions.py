"""Emblems and menus of zonedrive in real file managers."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.desktop.extensions import SOURCES, install, pixels, screenshot
from tests.desktop.nautilus import Nautilus
from tests.desktop.session import Session
from tests.desktop.thunar import Thunar
from tests.harness.machine import Machine, Mounted
from tests.harness.waiting import eventually

SYSTEM_PYTHON = "/usr/bin/python3"
ICONS = Path(__file__).with_name("icons.py")
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
    Nautilus(session, mounted.root)
    eventually(lambda: pixels(session, "synced") > 50, what="emblems of synced entries")
    assert pixels(session, "failed") == 0
    mounted.allow("refused", "HTTP 403")
    with mounted.deployment.faulty(status=403, method="POST", path="^/api/zones/"):
        (mounted.root / "notes.txt").write_bytes(b"refused\n")
        eventually(lambda: pixels(session, "failed") > 20, what="the emblem of a failed upload")
        picture(session, "nautilus-emblems")
    mounted.sync()
    eventually(lambda: pixels(session, "failed") == 0, what="the emblem goes after the upload")
    assert pixels(session, "synced") > 50
    mounted.kill()
    eventually(lambda: pixels(session, "synced") == 0, what="no emblems without a daemon")


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
    eventually(lambda: "Zones" not in nautilus.menu(), what="the menu closes")

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


@pytest.mark.mount("settle=600")
def test_a_thousand_icons(mounted: Mounted) -> None:
    """Showing 1,000 icons costs the main thread little, also while the service is frozen.

    The bound is ten times what a calm machine needs.
    """
    folder = mounted.root / "many"
    folder.mkdir()
    for number in range(1000):
        (folder / f"{number}.txt").write_bytes(b"x")
    with mounted.deployment.faulty(stall=600):
        said = subprocess.run(
            [SYSTEM_PYTHON, ICONS, SOURCES / "src" / "zonedrive", folder],
            env=mounted.machine.environment, timeout=120,
            stdout=subprocess.PIPE, text=True, check=True,
        ).stdout  # fmt: skip
    found = json.loads(said)
    print(f"main thread: {found['milliseconds']:.1f} ms", file=sys.stderr)
    assert found["emblems"] == {"emblem-zonedrive-pending": 1000}
    assert found["milliseconds"] < 500
