"""The extensions of zonedrive for file managers, installed for one user from the sources."""

import shutil
import subprocess
from array import array
from pathlib import Path

from tests.desktop.session import Session
from tests.harness.machine import Machine

SOURCES = Path(__file__).parents[2]
INSTALLED = "/usr/share/zonedrive-desktop"
COLOURS = {"synced": "2a8a4a", "failed": "c4252f", "conflict": "b35c00", "icon": "1b4f80"}


def install(machine: Machine, *file_managers: str) -> None:
    """Install the package, the emblems and the extensions of these file managers."""
    data = machine.folders["DATA_HOME"]
    package = data / "zonedrive"
    package.mkdir()
    (package / "zonedrive_desktop").symlink_to(SOURCES / "src" / "zonedrive" / "desktop")
    emblems = data / "icons" / "hicolor" / "scalable" / "emblems"
    shutil.copytree(SOURCES / "packaging" / "desktop" / "emblems", emblems)
    for name in file_managers:
        binding = "thunarx-python" if name == "thunar" else f"{name}-python"
        folder = data / binding / "extensions"
        folder.mkdir(parents=True)
        text = (
            SOURCES / "packaging" / "desktop" / "extensions" / name / "zonedrive.py"
        ).read_text()
        assert INSTALLED in text
        (folder / "zonedrive.py").write_text(text.replace(INSTALLED, str(package)))


def install_service_menu(machine: Machine) -> list[str]:
    """Install the menu of Dolphin; return its entries in Dolphin's order, by name."""
    data = machine.folders["DATA_HOME"]
    package = data / "zonedrive"
    package.mkdir()
    (package / "zonedrive_desktop").symlink_to(SOURCES / "src" / "zonedrive" / "desktop")
    menu = data / "kio" / "servicemenus" / "zonedrive.desktop"
    menu.parent.mkdir(parents=True)
    text = (SOURCES / "packaging" / "desktop" / "servicemenus" / menu.name).read_text()
    assert INSTALLED in text
    menu.write_text(text.replace(INSTALLED, str(package)))
    menu.chmod(0o755)  # Dolphin runs no other one from a home
    (actions,) = [line for line in text.splitlines() if line.startswith("Actions=")]
    return sorted(actions.removeprefix("Actions=").rstrip(";").split(";"))


def screenshot(session: Session, path: Path) -> None:
    """Write a picture of the screen."""
    subprocess.run(["import", "-window", "root", path], env=session.environment, check=True)


def pixels(session: Session, state: str) -> int:
    """Return how many pixels on the screen have the colour of a state's emblem, or the icon."""
    command = ["import", "-window", "root", "-depth", "8", "rgba:-"]
    data = subprocess.run(command, env=session.environment, check=True, capture_output=True).stdout
    (colour,) = array("I", bytes.fromhex(COLOURS[state] + "ff"))
    return array("I", data).count(colour)


def install_side_bar(machine: Machine) -> dict[str, str]:
    """Install the exporter of accounts; return the environment for a session."""
    data = machine.folders["DATA_HOME"]
    package = data / "zonedrive"
    package.mkdir()
    (package / "zonedrive_desktop").symlink_to(SOURCES / "src" / "zonedrive" / "desktop")
    places = {"ini": data / "cloud-providers", "service": data / "dbus-1" / "services"}
    for suffix, folder in places.items():
        folder.mkdir(parents=True)
        name = f"org.zonedrive.Desktop.{suffix}"
        text = (SOURCES / "packaging" / "desktop" / "cloud-providers" / name).read_text()
        (folder / name).write_text(text.replace(INSTALLED, str(package)))
    usual = machine.environment.get("XDG_DATA_DIRS") or "/usr/local/share:/usr/share"
    return {**machine.environment, "XDG_DATA_DIRS": f"{data}:{usual}"}
