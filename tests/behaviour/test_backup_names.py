"""Folders that a program renames to a local-only name."""

import errno
import subprocess

import pytest

from tests.harness import world
from tests.harness.machine import Mounted

SEEDED = {"big.bin", "docs", "empty", "notes.txt"}

pytestmark = pytest.mark.mount("settle=0", "refresh=0.2")


def test_a_folder_cannot_have_such_a_name(mounted: Mounted) -> None:
    """A rename must not hide a whole folder from other users: programs copy and remove it
    instead."""
    with pytest.raises(OSError) as refused:
        (mounted.root / "docs").rename(mounted.root / "docs~")
    assert refused.value.errno == errno.EXDEV
    subprocess.run(["mv", mounted.root / "docs", mounted.root / "docs~"], check=True)
    mounted.sync()
    assert (mounted.root / "docs~/report.md").read_bytes() == world.SEED["docs/report.md"]
    assert set(mounted.zone.listing()) == SEEDED - {"docs"}
