"""Name and icon of a mount in file managers, with GVfs and udisks as on a person's desktop."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.desktop.extensions import SOURCES, pixels, screenshot
from tests.desktop.nautilus import Nautilus
from tests.desktop.session import Session
from tests.desktop.thunar import Thunar
from tests.harness.bus import Bus
from tests.harness.machine import Mounted
from tests.harness.waiting import eventually

UDISKS = "/usr/libexec/udisks2/udisksd"
PICTURES = os.environ.get("ZONEDRIVE_PICTURES")
"""Folder for pictures of the screen; None: no pictures."""


@pytest.fixture
def system(tmp_path: Path) -> Iterator[Bus]:
    """Yield a system bus with the service for disks; without it, GVfs leaves volumes to GLib."""
    bus = Bus(tmp_path, name="system-bus")
    address = {"DBUS_SYSTEM_BUS_ADDRESS": bus.address}
    with subprocess.Popen(
        [UDISKS], env={**os.environ, **address}, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT
    ) as disks:
        try:
            eventually(lambda: bus.has("org.freedesktop.UDisks2"), what="the service for disks")
            yield bus
        finally:
            disks.terminate()
    bus.close()


@pytest.fixture
def session(mounted: Mounted, system: Bus) -> Iterator[Session]:
    """Yield Alice's desktop session, where the icon of zonedrive is installed."""
    icons = mounted.machine.folders["DATA_HOME"] / "icons/hicolor/scalable/apps"
    icons.mkdir(parents=True)
    (icons / "zonedrive.svg").symlink_to(SOURCES / "packaging/desktop/zonedrive.svg")
    mounted.restart()
    environment = {**mounted.machine.environment, "DBUS_SYSTEM_BUS_ADDRESS": system.address}
    with Session(environment) as session:
        yield session


def picture(session: Session, name: str) -> None:
    if PICTURES:
        screenshot(session, Path(PICTURES, f"{name}.png"))


def test_thunar_shows_the_icon_of_zonedrive(
    mounted: Mounted, session: Session, thunar: Thunar
) -> None:
    """The side bar has the icon; Thunar always takes the name of the folder."""
    name = mounted.path.name
    eventually(lambda: name in thunar.side_bar(), what=f"{name}, in {thunar.side_bar()}")
    eventually(lambda: pixels(session, "icon") > 5, what="the icon")
    picture(session, "thunar-volume")


def test_nautilus_shows_the_organization(mounted: Mounted, session: Session) -> None:
    """The side bar has the organization's name; its icons are those of the kind of volume."""
    nautilus = Nautilus(session, mounted.root)
    eventually(
        lambda: "Acme" in [each.name for each in nautilus.screen.inside("label")], what="Acme"
    )
    picture(session, "nautilus-volume")
    command = ["gio", "mount", "--list", "--detail"]
    said = subprocess.run(command, env=session.environment, capture_output=True, text=True)
    assert f"Acme -> file://{mounted.path}" in said.stdout
