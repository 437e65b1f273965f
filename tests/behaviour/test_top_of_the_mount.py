"""No zone's name can replace a file that programs trust at the top of a mount."""

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import short_folder
from tests.desktop.session import Session
from tests.harness import world
from tests.harness.deployment import Deployment
from tests.harness.machine import Machine, Mounted

TRASH = f".Trash-{os.getuid()}"
SPECIAL = {
    TRASH: f"．Trash-{os.getuid()}",
    ".Trash": "．Trash",
    ".git": "．git",
    ".hidden": "．hidden",
    "autorun.inf": "ａutorun.inf",
    "lost+found": "ｌost+found",
    "node_modules": "ｎode_modules",
}
DIRECTION = "invoice\u202efdp.exe"


@pytest.fixture
def hostile(tmp_path: Path) -> Iterator[Deployment]:
    """Yield a service whose manager gave zones such names."""
    file = world.write(tmp_path, zones=1)
    names = [*SPECIAL, DIRECTION]
    zones = "".join(
        f'[[zones]]\nname = "{name}"\nmanager = "bob@{world.DOMAIN}"\ncontent = "seed"\n'
        f'members = [{{ id = "alice@{world.DOMAIN}", access = "Modify" }}]\n'
        for name in names
    )
    file.write_text(file.read_text("utf-8") + zones, "utf-8")
    folder = Path(tempfile.mkdtemp(prefix="zdsb"))
    found = Deployment(folder, world_file=file)
    yield found
    found.close()
    shutil.rmtree(folder)


@pytest.fixture
def mount(hostile: Deployment) -> Iterator[Mounted]:
    """Yield Alice's mount of the service."""
    with short_folder() as folder:
        machine = Machine(folder)
        machine.log_on(hostile, profile="sandbox")
        with Mounted(machine, hostile, "Zone 01", ["settle=0.2"]).mounting() as mounted:
            yield mounted


def test_special_names_of_zones(mount: Mounted) -> None:
    """Special zone names have no effect on programs.

    The desktop moves files into the trash of its user; git finds no repository above a zone; a
    zone's name cannot change the direction of writing.
    """
    top = mount.path
    shown = {*SPECIAL.values(), "invoice‹RLO›fdp.exe", "Zone 01"}
    assert set(os.listdir(top)) == shown
    for name in SPECIAL.keys() - {TRASH}:
        assert not (top / name).exists(), name
    said = json.loads(mount.machine.done("zones", "--json"))
    assert {one["path"] for one in said if one["accessible"]} == shown
    notes = mount.root / "notes.txt"
    with Session(mount.machine.environment) as session:
        subprocess.run(["gio", "trash", notes], env=session.environment, check=True, timeout=60)
    assert not notes.exists()
    mount.sync()
    assert mount.zone.find("notes.txt") is None
    bob = mount.deployment.person("bob").zone(TRASH)
    assert set(bob.tree()) & {"files", "info", "files/notes.txt"} == set()
    assert (top / TRASH / "files" / "notes.txt").exists()
