"""One save by a real program makes one version; see also tests/in_process/test_saving.py."""

import shutil
import subprocess

import pytest

from tests.harness import world
from tests.harness.machine import Mounted

SLOWLY = pytest.mark.mount("settle=600")
"""Mark for a mount that sends nothing between a program's steps, however long they take."""


@SLOWLY
def test_vim_makes_one_version(mounted: Mounted) -> None:
    """A save in vim, with its swap, probe and backup files, makes one version of the same file."""
    vim = shutil.which("vim") or shutil.which("vim.tiny") or shutil.which("vi")
    assert vim, "the tests need vim.tiny, which every Debian has"
    path = mounted.root / "docs/report.md"
    before = mounted.zone.entry_id("docs/report.md")
    subprocess.run(
        [vim, "-u", "NONE", "-es", "-c", "set backup|%s/well/very well/|wq", path],
        check=True, timeout=60, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    mounted.sync()
    assert mounted.zone.entry_id("docs/report.md") == before
    assert mounted.zone.read("docs/report.md") == b"# Report\n\nAll is very well.\n"
    assert len(mounted.zone.versions("docs/report.md")) == 2
    assert set(mounted.zone.listing("docs")) == {"2026", "Grüße aus Köln.txt", "report.md"}


@pytest.mark.mount("close=wait")
def test_a_shell_redirection_that_waits_makes_one_version(mounted: Mounted) -> None:
    """With close=wait the file is never visible as empty, and the version exists at the end."""
    subprocess.run(["sh", "-c", "echo redirected > notes.txt"], cwd=mounted.root, check=True)
    assert mounted.zone.read("notes.txt") == b"redirected\n"
    assert [version["size"] for version in mounted.zone.versions("notes.txt")] == [
        len(b"redirected\n"),
        len(world.SEED["notes.txt"]),
    ]
