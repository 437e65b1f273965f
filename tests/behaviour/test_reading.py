"""Ordinary tools can read the service's files below the mount."""

import os
import subprocess
from pathlib import Path

from tests.harness import world
from tests.harness.machine import Mounted


def tree(root: Path) -> dict[str, bytes]:
    """Return the content of the files below a local folder."""
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def test_zones_are_folders(mounted: Mounted) -> None:
    """Every accessible zone is a folder; an inaccessible one is missing."""
    names = set(os.listdir(mounted.path))
    assert mounted.root.name in names
    assert "Closed" not in names
    assert len(names) == world.ZONES


def test_a_zone_has_its_files(mounted: Mounted) -> None:
    """A zone's folder has all files, with the bytes, sizes and times of the service."""
    assert tree(mounted.root) == dict(world.SEED)
    entry = mounted.zone.find("docs/report.md")
    found = (mounted.root / "docs/report.md").stat()
    assert entry is not None
    assert found.st_size == entry["size"] == len(world.SEED["docs/report.md"])
    shown = subprocess.check_output(
        ["date", "-u", "-r", mounted.root / "docs/report.md", "+%Y-%m-%dT%H:%M"], text=True
    ).strip()
    assert entry["lastModified"].startswith(shown)
