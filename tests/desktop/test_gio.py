"""GIO, the library of file managers, on a mount."""

import subprocess
from functools import partial
from pathlib import Path

import pytest

from tests.desktop.session import Session
from tests.harness import world
from tests.harness.machine import Mounted, has_ended
from tests.harness.waiting import eventually


class Gio:
    """Command of the library."""

    def __init__(self, session: Session) -> None:
        self._environment = session.environment

    def run(self, *arguments: str | Path) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            ["gio", *arguments], env=self._environment, timeout=60,
            capture_output=True, encoding="utf-8", check=False,
        )  # fmt: skip

    def done(self, *arguments: str | Path) -> str:
        ended = self.run(*arguments)
        assert ended.returncode == 0, (arguments, ended.stderr)
        return ended.stdout

    def info(self, path: Path, *options: str) -> dict[str, str]:
        """Return attributes by name."""
        lines = (line.strip() for line in self.done("info", *options, path).splitlines())
        return dict(line.split(": ", 1) for line in lines if "::" in line and ": " in line)


def test_copies_trash_and_room(mounted: Mounted, session: Session) -> None:
    """GIO reports the free space, copies in both directions, trashes, lists the trash and
    restores."""
    gio = Gio(session)
    room = gio.info(mounted.root, "-f")
    assert 0 < int(room["filesystem::free"]) <= int(room["filesystem::size"])
    notes, out = mounted.root / "notes.txt", mounted.machine.folder / "out.txt"
    about = gio.info(notes)
    assert about["standard::content-type"] == "text/plain"
    assert {about[f"access::can-{each}"] for each in ("read", "write", "rename", "trash")} == {
        "TRUE"
    }
    gio.done("copy", notes, out)
    assert out.read_bytes() == world.SEED["notes.txt"]
    gio.done("copy", out, mounted.root / "docs")
    gio.done("trash", notes)
    mounted.sync()
    assert mounted.zone.find("notes.txt") is None
    assert mounted.zone.read("docs/out.txt") == world.SEED["notes.txt"]

    def trashed() -> str:
        lines = gio.done("trash", "--list").splitlines()
        where: dict[str, str] = dict(line.split("\t")[::-1] for line in lines)
        return where.get(str(notes), "")

    gio.done("trash", "--restore", eventually(trashed, what="it lists what was trashed"))
    assert notes.read_bytes() == world.SEED["notes.txt"]
    assert mounted.zone.read("notes.txt") == world.SEED["notes.txt"]
    gio.done("rename", notes, "protocol.txt")
    gio.done("remove", mounted.root / "protocol.txt")  # deletes permanently, if asked
    mounted.sync()
    assert not {"notes.txt", "protocol.txt"} & set(mounted.zone.listing())


@pytest.mark.mount(profile="published")
def test_without_a_trash(mounted: Mounted, session: Session) -> None:
    """Without deletion in the profile GIO reports at once that there is no trash."""
    refused = Gio(session).run("trash", mounted.root / "notes.txt")
    assert refused.returncode != 0
    assert "rash" in refused.stderr and len(refused.stderr.splitlines()) == 1
    assert (mounted.root / "notes.txt").read_bytes() == world.SEED["notes.txt"]


def test_ejecting_loses_nothing(mounted: Mounted, session: Session) -> None:
    """The eject button in the side bar unmounts; saved files are sent at the next mount."""
    pid = mounted.pid
    (mounted.root / "notes.txt").write_bytes(b"saved a moment ago\n")
    eject = partial(Gio(session).run, "mount", "--unmount", mounted.path)
    # Busy while a file manager of another test looks for a trash in each new mount.
    eventually(lambda: eject().returncode == 0, what="it is unmounted")
    eventually(lambda: not mounted.is_mounted() and has_ended(pid), what="it has ended")
    mounted.mount()
    mounted.sync()
    assert mounted.zone.read("notes.txt") == b"saved a moment ago\n"
    assert len(mounted.zone.versions("notes.txt")) == 2
