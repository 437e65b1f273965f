"""Statements of SEMANTICS.md about the desktop trash."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.behaviour.semantics import descriptor, expected, outcome, table
from tests.conftest import short_folder
from tests.harness import world
from tests.harness.deployment import Deployment
from tests.harness.machine import Mounted
from tests.harness.ordinary import OrdinaryMachine, Worker, working
from tests.posix.calls import NOREPLACE, renameat2


class Desk:
    """Zone, and the trash folder above it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.folder = root.parent / f".Trash-{os.getuid()}"

    def trash(self, path: Path) -> Path:
        """Trash a file as file managers do; return its new path."""
        return path.rename(self.folder / "files" / path.name)

    def new(self, name: str) -> Path:
        """Return the path of a new file."""
        (self.root / name).write_bytes(b"made here\n")
        return self.root / name


def _while_written(desk: Desk) -> None:
    with descriptor(desk.root / "big.bin", os.O_WRONLY):
        desk.trash(desk.root / "big.bin")


def _out_of_the_way(desk: Desk) -> None:
    there = desk.trash(desk.new("f.txt"))
    there.rename(desk.new("f.txt").with_name("g.txt"))


def _out_of_a_folder(desk: Desk) -> None:
    there = desk.trash(desk.root / "docs/2026/q1.csv")
    desk.trash(desk.root / "docs/2026")
    there.rename(desk.root / "q1.csv")


ROWS: Mapping[str, Callable[[Desk], object]] = {
    "look for the trash folder": lambda desk: desk.folder.stat(),
    "make a trash folder": lambda desk: desk.folder.mkdir(),
    "move a file into the trash": lambda desk: desk.trash(desk.new("a.txt")),
    "move it out while its former folder is in the trash, too": _out_of_a_folder,
    "move a folder into the trash": lambda desk: desk.trash(desk.root / "docs"),
    "move it out again": lambda desk: desk.trash(desk.new("b.txt")).rename(desk.root / "b.txt"),
    "move it out to a name that is taken": lambda desk: renameat2(
        desk.trash(desk.new("c.txt")), desk.root / "empty", NOREPLACE
    ),
    "move it out while its former name is in use": _out_of_the_way,
    "read what is in the trash": lambda desk: desk.trash(desk.new("d.txt")).read_bytes(),
    "remove what is in the trash": lambda desk: desk.trash(desk.new("e.txt")).unlink(),
    "move a file into the trash while it is being written": _while_written,
    "move a file into the trash that stays on this machine": lambda desk: desk.trash(
        desk.new("notes.txt~")
    ),
    "move a zone into the trash": lambda desk: desk.trash(desk.root),
}
"""Operation of each row."""


def perform_all(root: Path) -> dict[str, str]:
    """Return the outcome of each row."""
    desk = Desk(root)
    return {
        name: outcome(lambda root, do=do: do(desk), root)  # type: ignore[misc]
        for name, do in ROWS.items()
    }


@pytest.mark.parametrize(
    "profile",
    [
        pytest.param("published", marks=pytest.mark.mount(profile="published")),
        pytest.param("sandbox", marks=pytest.mark.mount()),
    ],
)
def test_the_page_is_true(mounted: Mounted, profile: str) -> None:
    """Each row of the page is true; the service keeps what the local trash loses."""
    require_the_page(mounted, profile, Worker(None))


@pytest.mark.parametrize("profile", ["published", "sandbox"])
def test_the_page_is_true_for_ordinary_users(
    deployment: Deployment, zone: str, profile: str
) -> None:
    """The rows are true for ordinary users, too."""
    with short_folder() as folder, working(__name__) as worker:
        machine = OrdinaryMachine(folder)
        machine.log_on(deployment, profile=profile)
        with Mounted(machine, deployment, zone, ["settle=0.2"]).mounting() as mounted:
            require_the_page(mounted, profile, worker)
        assert not mounted.complaints()


def require_the_page(mounted: Mounted, profile: str, worker: Worker) -> None:
    """Perform the operation of every row, and compare it with the page."""
    ended = worker.do(perform_all, mounted.root)
    said = list(table("The trash of desktops"))
    column = 2 if profile == "published" else 3
    assert ended == {cells[0]: expected(cells[column], root=worker.is_root) for cells in said}
    assert list(ended) == [cells[0] for cells in said]
    if profile == "sandbox":
        mounted.sync()
        names = mounted.machine.done("trash", "--zone", mounted.root.name)
        assert all(name in names for name in ("a.txt", "docs/", "c.txt", "d.txt", "e.txt"))
        assert "b.txt" not in names
        assert mounted.zone.read("b.txt") == b"made here\n"


def test_nothing_can_be_written_in_a_trashed_folder(mounted: Mounted) -> None:
    """A shell that is still in a trashed folder gets an error when it writes, so that no data
    are lost."""
    inner = os.open(mounted.root / "docs/2026", os.O_RDONLY)
    known = os.open("q1.csv", os.O_RDONLY, dir_fd=inner)
    try:
        with mounted.deployment.faulty(status=503, error="NOT_AVAILABLE", method="DELETE"):
            Desk(mounted.root).trash(mounted.root / "docs")
            for call in (
                lambda: os.open("new", os.O_CREAT | os.O_WRONLY, dir_fd=inner),
                lambda: os.open("q1.csv", os.O_WRONLY, dir_fd=inner),
                lambda: os.mkdir("new", dir_fd=inner),
                lambda: os.rename(mounted.root / "notes.txt", "notes.txt", dst_dir_fd=inner),
                lambda: os.truncate(f"/proc/self/fd/{known}", 0),
            ):
                with pytest.raises(FileNotFoundError):
                    call()
            assert os.read(known, 100) == world.SEED["docs/2026/q1.csv"]
        mounted.sync()
    finally:
        os.close(known)
        os.close(inner)
    assert (mounted.root / "notes.txt").read_bytes() == world.SEED["notes.txt"]
    assert not {path for path in mounted.zone.tree() if path.startswith("docs")}
