"""Folders and names: created, renamed, moved, removed and copied, with any name."""

import errno
import os
import random
import time
from functools import cache
from pathlib import Path

import pytest
import trio

from tests.harness import world
from tests.harness.machine import Mounted
from tests.harness.virtual_mount import VirtualMount
from tests.harness.waiting import eventually
from tests.in_process.test_refused_names import refusing
from zonedrive.state.invalidation import EntryGone, Invalidation


@cache
def large() -> bytes:
    """Return content that is not here as a whole when its beginning is read."""
    return random.Random(0).randbytes(24 << 20)


def test_a_folder_is_made_and_removed(desk: Mounted) -> None:
    """mkdir and rmdir reach the service."""
    (desk.root / "plans").mkdir()
    desk.sync()
    assert desk.zone.listing()["plans"]["folder"] is True
    (desk.root / "plans").rmdir()
    desk.sync()
    assert "plans" not in desk.zone.listing()


def test_refusals_are_those_of_a_local_folder(desk: Mounted) -> None:
    """Operations fail like on a local file system, and change nothing."""
    root = desk.root
    with pytest.raises(OSError, match="not empty") as refused:
        (root / "docs").rmdir()
    assert refused.value.errno == errno.ENOTEMPTY
    with pytest.raises(FileExistsError):
        (root / "docs").mkdir()
    with pytest.raises(IsADirectoryError):
        (root / "notes.txt").rename(root / "docs")
    with pytest.raises(NotADirectoryError):
        (root / "notes.txt").rmdir()
    with pytest.raises(OSError, match="nvalid") as refused:
        (root / "docs").rename(root / "docs/2026/docs")
    assert refused.value.errno == errno.EINVAL
    desk.sync()
    assert desk.zone.tree() == {**dict.fromkeys(("docs", "docs/2026")), **world.SEED}


def test_a_file_is_renamed_and_moved(desk: Mounted) -> None:
    """mv keeps the file and its history, under its new name and in its new folder."""
    before = desk.zone.entry_id("notes.txt")
    (desk.root / "notes.txt").rename(desk.root / "docs/2026/memo.txt")
    desk.sync()
    assert desk.zone.entry_id("docs/2026/memo.txt") == before
    assert len(desk.zone.versions("docs/2026/memo.txt")) == 1
    assert "notes.txt" not in desk.zone.listing()
    assert (desk.root / "docs/2026/memo.txt").read_bytes() == world.SEED["notes.txt"]


def test_a_folder_is_renamed_with_its_content(desk: Mounted) -> None:
    """mv of a folder moves everything below it."""
    (desk.root / "docs").rename(desk.root / "papers")
    desk.sync()
    assert desk.zone.read("papers/2026/q1.csv") == world.SEED["docs/2026/q1.csv"]
    assert (desk.root / "papers/report.md").read_bytes() == world.SEED["docs/report.md"]
    assert not (desk.root / "docs").exists()


def test_a_renamed_folder_counts_for_its_files(desk: Mounted) -> None:
    """`sync FILE` waits until the service has the file at that path."""
    (desk.root / "docs").rename(desk.root / "papers")
    paths = [f"{desk.root.name}/papers/report.md"]
    with desk.deployment.faulty(status=503, method="PUT"):
        assert desk.command("sync", paths=paths, timeout=3)["exit"] == 1
        assert desk.command("sync", paths=[f"{desk.root.name}/notes.txt"], timeout=3)["exit"] == 0
    desk.command("pause")
    assert desk.command("send", paths=paths, timeout=60)["exit"] == 0
    assert "papers/report.md" in desk.zone.tree()


@pytest.mark.parametrize("what", ["papers", "papers/report.md"])
def test_a_refused_rename_of_a_folder_is_reported_for_its_files(desk: Mounted, what: str) -> None:
    """The service does not have the file at the path that was given to `sync`."""
    desk.allow("refused")
    folder = desk.zone.entry_id("docs")
    (desk.root / "docs").rename(desk.root / "papers")
    with refusing(desk, 403, "PUT", folder):
        answer = desk.command("sync", paths=[f"{desk.root.name}/{what}"], timeout=20)
    assert answer["exit"] == 1 and len(answer["taken_back"]) == 1


def test_a_new_folder_that_has_become_a_folder_above_on_the_service(desk: Mounted) -> None:
    """Its file is sent, although no program lists the folders in between."""
    desk.allow("planned again")
    desk.zone.make_folder("outer")
    desk.zone.make_folder("outer/middle")
    eventually(lambda: (desk.root / "outer/middle").exists(), what="the folders show")
    desk.command("pause")
    (desk.root / "outer/middle/new").mkdir()
    (desk.root / "outer/middle/new/file").write_bytes(b"x")
    desk.zone.move("outer/middle", "middle")
    desk.zone.move("outer", "middle/new")
    desk.command("resume")
    desk.sync()
    assert desk.zone.read("middle/new/file") == b"x"


def test_a_file_is_deleted(desk: Mounted) -> None:
    """rm puts the file into the service's trash."""
    (desk.root / "notes.txt").unlink()
    desk.sync()
    assert "notes.txt" not in desk.zone.listing()
    with pytest.raises(FileNotFoundError):
        (desk.root / "notes.txt").stat()


def test_rm_rf_leaves_nothing(desk: Mounted) -> None:
    """rm -rf of a folder removes it on the service."""
    desk.remove_tree(desk.root / "docs")
    desk.sync()
    assert set(desk.zone.listing()) == {"big.bin", "empty", "notes.txt"}


NAMES = [
    "a b  c", "Grüße", "日本語.txt", "-rf", "'\"quotes\"'", "ends.",
    " lead", "trail ", "semi;colon&pipe|", "%2e%2e", "#frag?query=1", "x" * 255, "é", "🗂️",
]  # fmt: skip


PLANTED = ["a/b", "..", ".", "bell\x07", "nul\x00", "x" * 300, "notes.txt", "notes.txt", "\n"]


@pytest.mark.also_mounted
def test_names_survive_the_round_trip(desk: Mounted) -> None:
    """A name that Linux allows is the same here and on another machine."""
    for name in NAMES:
        (desk.root / name).write_bytes(name.encode())
    desk.sync()
    desk.unmount()
    desk.forget_cache()
    desk.mount()
    assert set(desk.names(desk.root)) == {*NAMES, "big.bin", "docs", "empty", "notes.txt"}
    for name in NAMES:
        assert (desk.root / name).read_bytes() == name.encode()
    sent = desk.zone.tree().values()
    assert all(name.encode() in sent for name in NAMES)


def test_a_name_that_is_too_long_is_refused(desk: Mounted) -> None:
    """More than 255 bytes give ENAMETOOLONG, as on other file systems."""
    with pytest.raises(OSError, match="too long") as refused:
        (desk.root / ("ü" * 128)).write_bytes(b"")
    assert refused.value.errno == errno.ENAMETOOLONG


@pytest.mark.also_mounted
@pytest.mark.mount("refresh=0.3")
def test_names_that_linux_cannot_have_become_safe_ones(desk: Mounted) -> None:
    """Any entry, even with the name of another one, has one local name and can be read."""
    others = set(desk.names(desk.root)) - {"notes.txt"}
    for number, name in enumerate(PLANTED):
        desk.deployment.plant(desk.root.name, name, f"planted {number}\n")
    eventually(lambda: len(desk.names(desk.root)) == len(others) + 1 + len(PLANTED))
    shown = set(desk.names(desk.root)) - others
    for name in shown:
        assert "/" not in name
        assert name not in (".", "..")
        assert len(name.encode()) <= 255
        assert name.isprintable()
    read = {(desk.root / name).read_bytes() for name in shown}
    wanted = {f"planted {number}\n".encode() for number in range(len(PLANTED))}
    assert read == wanted | {world.SEED["notes.txt"]}
    assert (desk.root / "notes.txt").read_bytes() == world.SEED["notes.txt"]
    desk.restart()
    assert set(desk.names(desk.root)) - others == shown


@pytest.mark.parametrize("settle", ["settle=0", "close=wait"])
def test_a_folder_at_the_place_of_one_with_a_file_in_use(tmp_path: Path, settle: str) -> None:
    """A save in the new folder is sent while a program reads a file of the removed one."""
    mount = VirtualMount(tmp_path, settle)
    mount.mount()
    try:
        content = (mount.root / "docs/report.md").read_bytes()
        with (mount.root / "docs/report.md").open("rb") as reader:
            below = sorted((mount.root / "docs").rglob("*"), key=str, reverse=True)
            for path in [*below, mount.root / "docs"]:
                (path.rmdir if path.is_dir() else path.unlink)()
            (mount.root / "docs").mkdir()
            (mount.root / "docs/new.txt").write_bytes(b"new")
            mount.sync()
            assert mount.zone.read("docs/new.txt") == b"new"
            assert mount.zone.find("docs/report.md") is None
            assert reader.read() == content
    finally:
        mount.close()


@pytest.mark.parametrize("place", ["new folder", "moved file", "folder above", "folder removed"])
def test_a_removed_file_is_read_to_its_end(tmp_path: Path, place: str) -> None:
    """Another entry gets its name, or the name of its folder, while only its beginning is here.

    The bytes are kept until the close.
    """
    mount = VirtualMount(tmp_path, "settle=0")
    mount.mount()
    try:
        content = large()
        mount.zone.make_folder("folder")
        mount.zone.write("folder/large.bin", content)
        mount.loop.run(trio.sleep, 15)
        path = mount.root / "folder/large.bin"
        with path.open("rb", buffering=0) as reader:
            assert reader.read(1000) == content[:1000]
            path.unlink()
            if place == "new folder":
                path.mkdir()
            elif place == "moved file":
                (mount.root / "notes.txt").rename(path)
            elif place == "folder above":
                path.parent.rename(mount.root / "former")
                path.parent.mkdir()
            else:
                path.parent.rmdir()
                path.parent.mkdir()
            mount.loop.run(trio.sleep, 20)
            found = mount.zone.find("former" if place == "folder above" else "folder")
            assert found is not None
            assert (mount.zone.find("former/large.bin") is not None) == (place == "folder above")
            assert len(mount.zone.trash()) == {"folder above": 0, "folder removed": 2}.get(place, 1)
            reader.seek(20 << 20)
            assert reader.read(1000) == content[20 << 20 :][:1000]
        mount.sync()
        assert mount.zone.find("former/large.bin") is None
        eventually(lambda: not mount.outgoing(), what="no bytes are left")
        assert mount.complaints() == []
    finally:
        mount.close()


@pytest.mark.parametrize("status", [500, 503])
def test_a_removed_file_that_cannot_be_read_makes_room(desk: Mounted, status: int) -> None:
    """A folder has its name, and the service always refuses the content of the file."""
    desk.zone.write("large.bin", large())
    path = desk.root / "large.bin"
    eventually(path.exists, what="the file shows")
    with path.open("rb", buffering=0) as reader:
        assert len(reader.read(1000)) == 1000
        time.sleep(5)
        desk.deployment.fault(path="/content$", status=status)
        path.unlink()
        path.mkdir()
        (path / "in").write_bytes(b"x")
        assert desk.command("sync", timeout=600)["exit"] == 0
    assert desk.zone.read("large.bin/in") == b"x"


def test_a_file_in_a_trashed_folder_is_read_to_its_end(tmp_path: Path) -> None:
    """Only its beginning is here when the folder is moved into the desktop's trash."""
    mount = VirtualMount(tmp_path)
    mount.mount()
    try:
        content = large()
        mount.zone.make_folder("folder")
        mount.zone.make_folder("folder/inner")
        mount.zone.write("folder/inner/large.bin", content)
        mount.loop.run(trio.sleep, 20)
        with (mount.root / "folder/inner/large.bin").open("rb", buffering=0) as reader:
            assert reader.read(1000) == content[:1000]
            (mount.root / "folder").rename(mount.path / f".Trash-{os.getuid()}/files/folder")
            mount.sync()
            assert mount.zone.find("folder") is None
            reader.seek(20 << 20)
            assert reader.read(1000) == content[20 << 20 :][:1000]
        eventually(lambda: not mount.outgoing(), what="no bytes are left")
        assert mount.complaints() == []
    finally:
        mount.close()


@pytest.mark.parametrize("removed", [False, True])
def test_a_folder_moved_into_one_that_was_moved_out_of_it(tmp_path: Path, removed: bool) -> None:
    """A coworker makes the same move first, and the second listing is read before the first one."""
    mount = VirtualMount(tmp_path)
    mount.mount()
    try:
        inner, root = mount.root / "inner", mount.root
        mount.zone.make_folder("outer")
        mount.zone.make_folder("outer/inner")
        mount.loop.run(trio.sleep, 20)  # in virtual time, as below
        assert mount.names(root / "outer/inner") == []
        mount.loop.run(trio.sleep, 20)
        assert "outer" in mount.names(root)
        (root / "outer/inner").rename(inner)
        mount.zone.move("outer/inner", "inner")
        mount.zone.move("outer", "inner/outer")
        assert mount.names(inner) == ["outer"]
        if removed:
            mount.remove_tree(inner)
        mount.sync()
        found = {path for path in mount.zone.tree() if "inner" in path or "outer" in path}
        assert found == (set() if removed else {"inner", "inner/outer"})
        assert mount.complaints() == []
    finally:
        mount.close()


@pytest.mark.mount("settle=60", "refresh=60")
@pytest.mark.parametrize("taken", [False, True])
def test_a_folder_moved_into_one_that_a_coworker_has_moved_into_it(
    desk: Mounted, taken: bool
) -> None:
    """Both folders were renamed here: the outer one gets its new place first.

    The service rejects the move of a folder into itself, and no listing shows the coworker's move.
    """
    for name in ("one", "two"):
        desk.zone.make_folder(name)
    assert {"one", "two"} <= {each.name for each in desk.root.iterdir()}
    one, two = desk.zone.entry_id("one"), desk.zone.entry_id("two")
    desk.exchange(desk.root / "one", desk.root / "two")
    (desk.root / "two").rename(desk.root / "one/inner")
    if taken:
        (desk.root / "two").mkdir()
    desk.zone.move("two", "one/there")
    desk.sync()
    assert desk.zone.entry_id("one") == two
    assert desk.zone.entry_id("one/inner") == one
    assert ("two" in desk.zone.listing()) is taken


@pytest.mark.mount("settle=60", "refresh=60")
def test_two_moves_that_form_a_cycle_with_a_move_of_a_coworker_are_undone(desk: Mounted) -> None:
    """The undone move of the inner folder needs the place of the outer one, which is undone, too.

    What is saved there is sent.
    """
    desk.allow("refused and rolled back", "INFO")
    for name in ("one", "one/inner", "two"):
        desk.zone.make_folder(name)
    assert len([*desk.root.rglob("*")]) > 3
    (desk.root / "one/inner").rename(desk.root / "two/inner")
    (desk.root / "one").rename(desk.root / "two/inner/one")
    desk.zone.move("two", "one/inner/two")
    (desk.root / "two/inner/one/new").mkdir()
    (desk.root / "two/inner/one/new/plan.txt").write_bytes(b"plan")
    desk.try_sync()
    desk.sync()
    assert desk.zone.read("one/new/plan.txt") == b"plan"
    assert "one/inner/two" in desk.zone.tree()


@pytest.mark.mount("settle=60", "refresh=60")
def test_a_new_folder_at_the_place_of_a_move_that_forms_a_cycle(desk: Mounted) -> None:
    """The move is undone, and the new folder becomes the former one."""
    desk.allow("refused and rolled back", "INFO")
    for name in ("one", "one/inner", "two"):
        desk.zone.make_folder(name)
    desk.zone.write("one/inner/old.txt", b"old")
    assert len([*desk.root.rglob("*")]) > 3
    (desk.root / "one/inner").rename(desk.root / "two/inner")
    (desk.root / "one/inner").mkdir()
    (desk.root / "one/inner/plan.txt").write_bytes(b"plan")
    desk.zone.move("two", "one/inner/two")
    desk.try_sync()
    desk.sync()
    assert desk.zone.read("one/inner/plan.txt") == b"plan"
    assert desk.zone.read("one/inner/old.txt") == b"old"
    assert "one/inner/two" in desk.zone.tree()


@pytest.mark.mount("settle=60", "refresh=60")
def test_a_refused_move_of_a_folder_that_is_in_a_folder_never_listed(desk: Mounted) -> None:
    """Coworkers have moved both folders: the move is undone, to the folder's present place."""
    desk.allow("refused and rolled back", "INFO")
    for name in ("one", "two"):
        desk.zone.make_folder(name)
    assert {"one", "two"} <= {each.name for each in desk.root.iterdir()}
    desk.zone.move("two", "one/two")
    desk.zone.make_folder("two")
    desk.zone.move("one", "two/one")
    (desk.root / "one").rename(desk.root / "two/other")
    desk.try_sync()
    desk.sync()
    assert "two/one/two" in desk.zone.tree()


@pytest.mark.mount("settle=0", "refresh=10")
def test_a_file_in_a_new_folder_that_a_coworker_has_made_first(desk: Mounted) -> None:
    """The service takes the creation for the existing folder, which is not empty."""
    assert isinstance(desk, VirtualMount)
    desk.allow("a coworker uses the name")
    desk.deployment.world.takes_folders = True
    desk.command("pause")
    (desk.root / "new").mkdir()
    (desk.root / "new/plan.txt").write_bytes(b"Alice's plan\n")
    desk.zone.make_folder("new")
    desk.zone.write("new/plan.txt", b"Bob's own plan\n")
    desk.command("resume")
    desk.sync()
    assert desk.zone.read("new/plan.txt") == b"Bob's own plan\n"
    assert len(desk.conflicts()) == 1


@pytest.mark.mount("settle=0", "refresh=0.2")
def test_a_folder_that_gets_its_plain_name_is_not_announced_as_removed(
    desk: Mounted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel would show it empty to a program that works in it.

    A new file has the name that a coworker gives to the folder, until the file becomes a conflict
    copy.
    """
    assert isinstance(desk, VirtualMount)
    desk.allow("a coworker uses the name")
    folder, gone = (desk.root / "docs").stat().st_ino, set[int]()

    def see(change: Invalidation) -> None:
        gone.update([change.ino] if isinstance(change, EntryGone) else [])

    monkeypatch.setattr(desk.client.kernel, "invalidated", see)
    desk.command("pause")
    (desk.root / "plan").write_bytes(b"a file")
    desk.zone.move("docs", "plan")
    eventually(lambda: not (desk.root / "docs").exists(), what="the folder has a mark")
    desk.command("resume")
    desk.sync()
    assert (desk.root / "plan").stat().st_ino == folder
    assert folder not in gone
