"""Answers to uploads and moves in which the time has another precision than elsewhere.

Nothing is listed between the changes.
"""

import pytest

from tests.harness.machine import Mounted
from tests.in_process.test_entry_states import virtual

pytestmark = pytest.mark.mount("settle=0", "refresh=600")


@pytest.fixture
def coarse(desk: Mounted) -> Mounted:
    """Return a mount of a service that answers with whole seconds."""
    virtual(desk).deployment.world.answer_unit_us = 1_000_000
    desk.names(desk.root)
    return desk


def contents(desk: Mounted, name: str) -> list[str]:
    """Return the versions of a file, the oldest first."""
    node = desk.zone.node(name)  # type: ignore[attr-defined]  # of a service in memory
    return [version.data.decode() for version in node.versions]


@pytest.mark.parametrize("texts", [["one", "two", "three"], ["1", "22", "333"], ["", "2", ""]])
@pytest.mark.parametrize("name", ["new.txt", "notes.txt"])
def test_each_save_is_a_version(coarse: Mounted, name: str, texts: list[str]) -> None:
    """The user's own version is not taken for a coworker's."""
    before = contents(coarse, name) if name == "notes.txt" else []
    for text in texts:
        (coarse.root / name).write_text(text)
        coarse.sync()
    assert contents(coarse, name) == before + texts
    assert not coarse.conflicts()


def test_each_save_by_rename_is_a_version(coarse: Mounted) -> None:
    """Also a save of an earlier content."""
    for text in ("one", "two", "one"):
        (coarse.root / "draft").write_text(text)
        (coarse.root / "draft").rename(coarse.root / "new.txt")
        coarse.sync()
    assert contents(coarse, "new.txt") == ["one", "two", "one"]
    assert not coarse.conflicts()


@pytest.mark.parametrize("text", ["", "saved"])
def test_a_saved_file_is_removed(coarse: Mounted, text: str) -> None:
    """Its version is known, so it is not kept for its author."""
    (coarse.root / "new.txt").write_text(text)
    coarse.sync()
    (coarse.root / "new.txt").unlink()
    coarse.sync()
    assert coarse.zone.find("new.txt") is None


def test_a_renamed_file_is_saved(coarse: Mounted) -> None:
    """The file was not read before, so its bytes cannot be compared."""
    before = contents(coarse, "notes.txt")
    (coarse.root / "notes.txt").rename(coarse.root / "renamed.txt")
    coarse.sync()
    (coarse.root / "renamed.txt").write_text("saved")
    coarse.sync()
    assert contents(coarse, "renamed.txt") == [*before, "saved"]
    assert not coarse.conflicts()


@pytest.mark.parametrize("change", ["save", "remove"])
def test_another_machine_of_the_user_saves_in_the_same_second(coarse: Mounted, change: str) -> None:
    """Its version has the same size, so that only the bytes differ from the known version."""
    coarse.allow("a coworker saved a version", "has a newer version")
    (coarse.root / "new.txt").write_text("known")
    coarse.sync()
    deployment = virtual(coarse).deployment
    deployment.person("alice").zone(coarse.root.name).write("new.txt", b"other")
    if change == "save":
        (coarse.root / "new.txt").write_text("saved")
        coarse.sync()
        (conflict,) = coarse.conflicts()
        assert (coarse.path / conflict["path"]).read_text() == "saved"
    else:
        (coarse.root / "new.txt").unlink()
        coarse.sync()
    assert coarse.zone.read("new.txt") == b"other"
