"""With the profile `published`, unpublished operations fail at once and change nothing."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.harness import world
from tests.harness.machine import Mounted

pytestmark = pytest.mark.mount(profile="published")


def test_operations_without_an_endpoint_are_not_permitted(mounted: Mounted) -> None:
    """mkdir, rmdir, unlink and rename of entries on the service give EPERM and change nothing."""
    root = mounted.root
    for refused in (
        lambda: (root / "new folder").mkdir(),
        lambda: (root / "notes.txt").unlink(),
        lambda: (root / "notes.txt").rename(root / "other.txt"),
        lambda: (root / "docs").rename(root / "papers"),
    ):
        with pytest.raises(PermissionError) as refusal:
            refused()
        assert refusal.value.errno == errno.EPERM
    assert sorted(os.listdir(root)) == ["big.bin", "docs", "empty", "notes.txt"]
    mounted.sync()
    assert mounted.zone.tree() == {**dict.fromkeys(("docs", "docs/2026")), **world.SEED}


def rewrite(path: Path) -> None:
    """Truncate and write."""
    path.write_bytes(b"mended\n")


def rename_over(path: Path) -> None:
    """Replace the file by a temporary file."""
    new = path.with_name("tmp123")
    new.write_bytes(b"mended\n")
    new.replace(path)


@pytest.mark.mount("settle=600", profile="published")
@pytest.mark.parametrize("save", [rewrite, rename_over], ids=lambda way: way.__name__)
def test_editing_works(mounted: Mounted, save: Callable[[Path], None]) -> None:
    """Writing in place, and renaming a new file over an old one, make the next version."""
    before = mounted.zone.entry_id("notes.txt")
    save(mounted.root / "notes.txt")
    mounted.sync()
    assert mounted.zone.entry_id("notes.txt") == before
    assert mounted.zone.read("notes.txt") == b"mended\n"
    assert len(mounted.zone.versions("notes.txt")) == 2
    assert set(mounted.zone.listing()) == {"big.bin", "docs", "empty", "notes.txt"}


@pytest.mark.mount("settle=600", profile="published")
def test_a_file_that_is_not_uploaded_yet_is_free(mounted: Mounted) -> None:
    """A file that is not uploaded yet can be renamed, removed and moved."""
    root = mounted.root
    (root / "draft").write_bytes(b"1")
    (root / "draft").rename(root / "docs/draft 2")
    assert (root / "docs/draft 2").read_bytes() == b"1"
    (root / "docs/draft 2").unlink()
    assert mounted.status()["outbox"]["pending"] == 0
    assert set(mounted.zone.listing()) == {"big.bin", "docs", "empty", "notes.txt"}
