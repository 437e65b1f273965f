"""A name looks the same on every machine, before and after an upload."""

import errno
import os
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import short_folder
from tests.harness.deployment import Deployment
from tests.harness.machine import Machine, Mounted

SPELLED = {
    "tab\there.txt": "tab␉here.txt",
    "two\nlines": "two␊lines",
    "escape\x1b]0;x\x07": "escape␛]0;x␇",
    "delete\x7f": "delete␡",
    "next\x85line": "next␛Eline",
    "in\u202efdp.exe": "in‹RLO›fdp.exe",
    "a\u2066b\u2069": "a‹LRI›b‹PDI›",
}
AS_THEY_ARE = ["می\u200cخواهم", "👩\u200d👧", "a\u200eb\u200f", "❤\ufe0f", "e\u0301", "a\u2028b"]
"""Characters that scripts need or that have no control effect."""


@pytest.fixture
def elsewhere(deployment: Deployment, zone: str) -> Iterator[Mounted]:
    """Yield the same zone on a coworker's machine."""
    with short_folder() as folder:
        machine = Machine(folder)
        machine.log_on(deployment, name="bob", profile="sandbox")
        with Mounted(machine, deployment, zone, ["settle=0.2", "refresh=0.3"]).mounting() as mount:
            yield mount


def names(folder: Path) -> set[str]:
    """Return the names in a folder's listing."""
    return set(os.listdir(folder))


@pytest.mark.mount("settle=0.2", "refresh=0.3")
def test_a_name_looks_the_same_everywhere(mounted: Mounted, elsewhere: Mounted) -> None:
    """A name with a control character or direction override has one replacement everywhere.

    It is the same before and after the upload and a remount; programs also find the file by its
    real name.
    """
    here = mounted.root / "named"
    here.mkdir()
    shown = {*SPELLED.values(), *AS_THEY_ARE}
    for name in [*SPELLED, *AS_THEY_ARE]:
        (here / name).write_text(name)
        assert (here / name).read_text() == name
        with pytest.raises(FileExistsError):
            os.close(os.open(here / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
    assert names(here) == shown
    mounted.sync()
    assert names(here) == shown
    there = elsewhere.root / "named"
    assert names(there) == shown
    assert set(mounted.zone.listing("named")) == shown
    mounted.restart()
    assert names(here) == shown
    for spelled, look in SPELLED.items():
        for name in (spelled, look):
            assert (here / name).read_text() == (there / name).read_text() == spelled


@pytest.mark.mount("settle=0.2", "refresh=300")
def test_both_spellings_are_one_file(mounted: Mounted) -> None:
    """A change through one spelling is visible through the other at once, despite the kernel's
    cache."""
    root, spelled, look = mounted.root, mounted.root / "a\tb", mounted.root / "a␉b"
    spelled.write_text("one")
    assert look.read_text() == "one"
    assert spelled.samefile(look)
    look.write_text("two")
    assert spelled.read_text() == "two"
    assert "a␉b" in names(root)
    spelled.unlink()
    assert not look.exists()
    assert not spelled.exists()
    look.write_text("three")
    os.listdir(root)
    spelled.rename(root / "c\td")
    assert not look.exists()
    assert (root / "c␉d").read_text() == "three"
    (root / "c\td").rename(root / "c␉d")
    assert (root / "c\td").read_text() == "three"
    (root / "other").write_text("other")
    (root / "other").rename(root / "c\td")
    assert (root / "c␉d").read_text() == "other"
    folder, same = root / "f\n", root / "f␊"
    folder.mkdir()
    (folder / "inside").write_text("x")
    assert (same / "inside").read_text() == "x"
    with pytest.raises(FileExistsError):
        same.mkdir()
    (same / "inside").unlink()
    same.rmdir()
    assert not folder.exists()
    folder.mkdir()
    folder.rmdir()
    assert not same.exists()
    with pytest.raises(OSError, match="too long") as refused:
        (root / ("\t" * 86)).touch()
    assert refused.value.errno == errno.ENAMETOOLONG
    mounted.sync()
    assert mounted.zone.read("c␉d") == b"other"
    mounted.machine.done("pin", root / "c\td")
    mounted.machine.done("unpin", root / "c␉d")


def test_programs_unpack_and_check_out_such_names(mounted: Mounted, tmp_path: Path) -> None:
    """tar, cp, diff, find and rm work with such names as with any name."""
    made = tmp_path / "made"
    made.mkdir()
    for name in SPELLED:
        (made / name).write_text(name)
    archive = tmp_path / "archive.tar"
    with tarfile.open(archive, "w") as tar:
        tar.add(made, "made")
    subprocess.run(["tar", "xf", archive, "-C", mounted.root], check=True)
    subprocess.run(["cp", "-a", made, mounted.root / "copied"], check=True)
    for folder in ("made", "copied"):
        assert names(mounted.root / folder) == set(SPELLED.values())
        for name in SPELLED:
            subprocess.run(["diff", made / name, mounted.root / folder / name], check=True)
    found = subprocess.run(
        ["find", mounted.root / "made", "-type", "f", "-print0"], stdout=subprocess.PIPE, check=True
    ).stdout
    subprocess.run(["xargs", "-0", "rm"], input=found, check=True)
    assert names(mounted.root / "made") == set()
    shutil.rmtree(mounted.root / "copied")
    assert not (mounted.root / "copied").exists()
