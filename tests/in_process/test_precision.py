"""Answers in which the time has another precision than in other answers."""

from itertools import product

import pytest
import trio

from tests.harness.machine import Mounted
from tests.in_process.test_entry_states import virtual
from zonedrive.sync.compare import COMPARED

pytestmark = pytest.mark.mount("settle=0", "refresh=600")


UNITS_US = {"s": 1_000_000, "us": 1}
MIXED = [each for each in product(UNITS_US, repeat=3) if len({*each}) > 1]


@pytest.fixture(params=MIXED, ids="-".join)
def mixed(desk: Mounted, request: pytest.FixtureRequest) -> Mounted:
    """Return a mount of a service with one precision in listings, one for an entry, and one in
    answers to changes.
    """
    world = virtual(desk).deployment.world
    units = (UNITS_US[name] for name in request.param)
    world.listing_unit_us, world.entry_unit_us, world.answer_unit_us = units
    world.step_us = 1_234_567
    desk.zone.make_folder("folder")
    for name in ("old.txt", "large.bin", "folder/old.txt"):
        desk.zone.write(name, b"old" if name.endswith(".txt") else bytes(COMPARED + 1))
    desk.names(desk.root)
    desk.names(desk.root / "folder")
    return desk


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


REFRESHED = pytest.mark.parametrize(
    "is_listed", [False, pytest.param(True, marks=pytest.mark.mount("settle=0", "refresh=0"))]
)


@REFRESHED
@pytest.mark.parametrize(
    ("name", "way"), [("old.txt", "rename"), ("new.txt", "write"), ("old.txt", "append")]
)
def test_saves_with_mixed_precisions(mixed: Mounted, name: str, way: str, is_listed: bool) -> None:
    """Each save is a version, whether the folder is listed between the saves or not."""
    if name == "new.txt":
        (mixed.root / name).write_text("old")
        mixed.sync()
    texts = ["old"]
    for number in range(3):
        texts.append(texts[-1] + "+" if way == "append" else f"{number}")
        if way == "rename":
            (mixed.root / "draft").write_text(texts[-1])
            (mixed.root / "draft").rename(mixed.root / name)
        elif way == "append":
            with (mixed.root / name).open("a") as file:
                file.write("+")
        else:
            (mixed.root / name).write_text(texts[-1])
        mixed.sync()
        assert is_listed in (False, name in mixed.names(mixed.root))
    assert contents(mixed, name) == texts
    assert not mixed.conflicts()


@REFRESHED
def test_a_large_file_with_mixed_precisions(mixed: Mounted, is_listed: bool) -> None:
    """Its bytes are not compared."""
    for _ in range(2):
        with (mixed.root / "large.bin").open("a") as file:
            file.write("+")
        mixed.sync()
        assert is_listed in (False, "large.bin" in mixed.names(mixed.root))
    assert [len(text) - COMPARED for text in contents(mixed, "large.bin")] == [1, 2, 3]
    assert not mixed.conflicts()


@REFRESHED
@pytest.mark.parametrize("way", ["file", "saved folder", "read folder"])
def test_removals_with_mixed_precisions(mixed: Mounted, way: str, is_listed: bool) -> None:
    """Entries whose state was known are removed, also after a save."""
    file = mixed.root / "folder" / "old.txt"
    if "saved" in way:
        file.write_text("saved")
        mixed.sync()
    if "read" in way:
        file.read_text()
    assert is_listed in (False, "old.txt" in mixed.names(mixed.root / "folder"))
    file.unlink()
    if "folder" in way:
        (mixed.root / "folder").rmdir()
    mixed.sync()
    gone = "folder" if "folder" in way else "folder/old.txt"
    assert mixed.zone.find(gone) is None


@pytest.mark.parametrize("change", ["save", "remove"])
def test_the_version_cannot_be_read_to_compare_it(desk: Mounted, change: str) -> None:
    """After several attempts, the save becomes a conflict copy, and a removed file is kept."""
    mount, path = virtual(desk), desk.root / "notes.txt"
    mount.allow("a conflict copy", "kept")
    mount.deployment.world.entry_unit_us = 1_000_000
    mount.names(mount.root)
    before = path.read_bytes()
    mount.deployment.fault(status=500, method="GET", path="/content$")
    if change == "save":
        path.write_bytes(b"saved")
    else:
        path.unlink()
    mount.loop.run(trio.sleep, 600)
    assert mount.status()["outbox"]["pending"] == 0
    mount.deployment.heal()
    mount.sync()
    assert mount.zone.read("notes.txt") == path.read_bytes() == before
    assert (b"saved" in mount.zone.tree().values()) == (change == "save")


def test_former_versions_of_one_second_and_size(desk: Mounted) -> None:
    """Each version has its own content, although their times, sizes and authors are equal."""
    world = virtual(desk).deployment.world
    world.answer_unit_us = world.listing_unit_us = world.entry_unit_us = 1_000_000
    path = desk.root / "new.txt"
    for text in ("one", "two", "ten"):
        path.write_text(text)
        desk.sync()
    assert path.read_text() == "ten"
    found = sorted((desk.root / ".versions/new.txt").iterdir())
    assert [version.read_text() for version in found] == ["one", "two", "ten"]
