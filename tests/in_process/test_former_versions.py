"""Former versions of a file: programs that have one open, and the folder `.versions`."""

import os
import stat
import time

import pytest

from tests.harness.machine import Mounted

pytestmark = pytest.mark.mount("settle=0", "refresh=1")


@pytest.mark.parametrize("own", [b"short", b"longer than the former version\n" * 9])
@pytest.mark.parametrize("name", ["notes.txt", "new.txt"])
def test_a_version_of_another_program_stays_readable(desk: Mounted, own: bytes, name: str) -> None:
    """A program has the file open while another one saves it, and then a coworker."""
    path, theirs = desk.root / name, b"their version"
    if name == "new.txt":
        path.write_bytes(b"the first of two versions here")
    with path.open("rb", buffering=0) as reader:
        reader.read(1)
        path.write_bytes(own)
        desk.sync()
        desk.zone.write(name, theirs)
        time.sleep(5)
        assert path.read_bytes() == theirs
        reader.seek(0)
        assert reader.read(1000) == own


def test_virtual_entries_belong_to_the_user_alone(desk: Mounted) -> None:
    """Their modes give nothing to group and others, and a copy of a version can be changed.

    cp(1) gives a copy the mode of the original.
    """
    (desk.root / "notes.txt").write_bytes(b"the second version\n")
    desk.sync()
    top = desk.root.parent
    histories = desk.root / ".versions"
    history = histories / "notes.txt"
    trash = top / f".Trash-{os.getuid()}"
    (desk.root / "docs/report.md").rename(trash / "files/report.md")
    (trash / "info/report.md.trashinfo").write_bytes(b"[Trash Info]\n")
    found = {
        path: stat.S_IMODE(path.stat().st_mode)
        for path in (
            histories, history, *history.iterdir(),
            trash, *trash.rglob("*"),
            top / ".xdg-volume-info",
        )
    }  # fmt: skip
    assert {"report.md", "report.md.trashinfo"} <= {path.name for path in found}
    assert {path: oct(mode) for path, mode in found.items() if mode & 0o077} == {}
    assert {found[version] for version in history.iterdir()} == {0o600}
