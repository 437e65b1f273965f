"""Saves under a name that the service does not know yet: which file's history a new file continues.

All changes wait until `sync`.
"""

import pytest

from tests.harness.machine import Mounted
from tests.in_process.test_entry_states import virtual

pytestmark = pytest.mark.mount("settle=60", "refresh=0.5")


def history(desk: Mounted, name: str) -> tuple[str, int]:
    """Return the id of a file on the service, and the number of its versions."""
    return desk.zone.entry_id(name), len(desk.zone.versions(name))


@pytest.mark.parametrize("backup", ["plan.txt~", "plan.old"])
def test_each_save_replaces_the_last_backup(desk: Mounted, backup: str) -> None:
    """The file with the name of the document keeps the id, and the pin follows it."""
    before = desk.zone.entry_id("notes.txt")
    virtual(desk).command("pin", paths=["Zone 01/notes.txt"])
    path = desk.root / "plan.txt"
    (desk.root / "notes.txt").rename(path)
    for number in range(3):
        path.rename(desk.root / backup)
        path.write_bytes(b"save %d\n" % number)
    desk.sync()
    assert history(desk, "plan.txt") == (before, 2)
    assert desk.zone.read("plan.txt") == b"save 2\n"
    assert (desk.root / backup).read_bytes() == b"save 1\n"
    assert desk.zone.find("notes.txt") is None
    pins = virtual(desk).command("pins")["pins"]
    assert [each["path"] for each in pins] == ["Zone 01/plan.txt"]


@pytest.mark.parametrize("folder", ["docs", "new"])
def test_a_save_after_a_move_to_another_folder(desk: Mounted, folder: str) -> None:
    """The file is moved on the service, and then gets the version."""
    before = desk.zone.entry_id("notes.txt")
    path = desk.root / folder / "plan.txt"
    path.parent.mkdir(exist_ok=True)
    (desk.root / "notes.txt").rename(path)
    path.unlink()
    path.write_bytes(b"edited\n")
    desk.sync()
    assert history(desk, f"{folder}/plan.txt") == (before, 2)
    assert desk.zone.find("notes.txt") is None


def test_an_edit_before_the_save_is_based_on_the_same_version(desk: Mounted) -> None:
    """A coworker's version since then is kept next to the new file."""
    path = desk.root / "plan.txt"
    (desk.root / "notes.txt").read_bytes()
    (desk.root / "notes.txt").rename(path)
    path.write_bytes(b"first\n")
    desk.zone.write("notes.txt", b"by bob\n")
    before = history(desk, "notes.txt")
    path.unlink()
    path.write_bytes(b"second\n")
    desk.allow("a conflict copy")
    desk.sync()
    assert history(desk, "plan.txt") == before
    assert desk.zone.read("plan.txt") == b"by bob\n"
    (copy,) = (name for name in desk.zone.listing() if "conflict" in name)
    assert desk.zone.read(copy) == b"second\n"


def test_a_new_file_under_the_name_on_the_service_has_precedence(desk: Mounted) -> None:
    """The other new file is a new entry."""
    before = desk.zone.entry_id("notes.txt")
    path = desk.root / "plan.txt"
    (desk.root / "notes.txt").rename(path)
    path.unlink()
    for name in ("plan.txt", "notes.txt"):
        (desk.root / name).write_bytes(b"new\n")
    desk.sync()
    assert history(desk, "notes.txt") == (before, 2)
    assert len(desk.zone.versions("plan.txt")) == 1


def test_of_two_files_that_left_the_place_none_is_continued(desk: Mounted) -> None:
    """Both are removed on the service, and the new file is a new entry."""
    before = {desk.zone.entry_id(name) for name in ("notes.txt", "big.bin")}
    for name in ("notes.txt", "big.bin"):
        (desk.root / name).rename(desk.root / "plan.txt")
        (desk.root / "plan.txt").unlink()
    (desk.root / "plan.txt").write_bytes(b"new\n")
    desk.sync()
    found, versions = history(desk, "plan.txt")
    assert found not in before
    assert versions == 1
    assert set(desk.zone.listing()) == {"docs", "empty", "plan.txt"}


def test_a_rename_that_was_sent_leaves_nothing_to_continue(desk: Mounted) -> None:
    """A file that comes later to a place between two names is a new entry."""
    before = desk.zone.entry_id("notes.txt")
    for old, new in (("notes.txt", "between.txt"), ("between.txt", "plan.txt")):
        (desk.root / old).rename(desk.root / new)
    desk.sync()
    (desk.root / "between.txt").write_bytes(b"new\n")
    (desk.root / "plan.txt").rename(desk.root / "last.txt")
    desk.sync()
    assert history(desk, "last.txt") == (before, 1)
    assert desk.zone.entry_id("between.txt") != before


def test_a_folder_at_the_former_name_waits_for_the_move(desk: Mounted) -> None:
    """The place on the service is free only after the new file's entry has moved."""
    before = desk.zone.entry_id("notes.txt")
    path = desk.root / "plan.txt"
    (desk.root / "notes.txt").rename(path)
    path.unlink()
    (desk.root / "notes.txt").mkdir()
    path.write_bytes(b"edited\n")
    desk.sync()
    assert history(desk, "plan.txt") == (before, 2)
    assert desk.zone.listing()["notes.txt"]["folder"]


@pytest.mark.parametrize("is_open", [False, True])
def test_a_folder_at_the_former_name_is_sent_first_during_a_pause(
    desk: Mounted, is_open: bool
) -> None:
    """The saved file that must move away for it is sent as well, unless a program has it open."""
    desk.command("pause")
    before = desk.zone.entry_id("notes.txt")
    path = desk.root / "plan.txt"
    (desk.root / "notes.txt").rename(path)
    path.rename(desk.root / "aside.txt")
    with path.open("wb", buffering=0) as file:
        file.write(b"edited\n")
        if not is_open:
            file.close()
        (desk.root / "notes.txt").mkdir()
        mount = virtual(desk)
        answer = mount.command("send", paths=["Zone 01/notes.txt"], timeout=60)
        assert answer["exit"] == 0
        assert desk.zone.listing()["notes.txt"]["folder"]
    desk.command("resume")
    desk.sync()
    assert (desk.zone.entry_id("plan.txt") == before) == (not is_open)
    assert desk.zone.read("plan.txt") == b"edited\n"
