"""Folders that a coworker has deleted, and that stay here for a file that is never sent."""

import errno
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import cast

import msgspec
import pytest

from tests.harness import world
from tests.harness.fake_service import FakeService
from tests.harness.in_process import ALICE
from tests.harness.machine import Mounted
from tests.harness.partial_profile import COMBINED, profile_without
from tests.harness.virtual_mount import VirtualMount
from tests.harness.waiting import eventually
from tests.in_process.test_entry_states import state, virtual
from zonedrive.model import Entry
from zonedrive.remote import profiles
from zonedrive.sandbox.zones import Level

pytestmark = pytest.mark.mount("settle=0", "refresh=1")


@pytest.fixture
def lost(desk: Mounted) -> str:
    """Return the path of `docs`, which a coworker has deleted, and which holds only a backup."""
    (desk.root / "docs/2026/report.md~").write_bytes(b"a backup")
    desk.sync()
    desk.names(desk.root)
    desk.zone.delete("docs")
    eventually(lambda: not (desk.root / "docs/report.md").exists(), what="the folder is gone")
    desk.allow("deleted on the service")
    return "docs"


@pytest.fixture
def without_folders(tmp_path: Path) -> Iterator[VirtualMount]:
    """Yield a mount whose profile can move entries, but cannot create folders."""
    profile = tmp_path / "profile.toml"
    sandbox = (resources.files(profiles) / "sandbox.toml").read_text()
    profile.write_text(re.sub(r"\[make_folder\].*?(?=\n\[)", "", sandbox, flags=re.DOTALL))
    mount = VirtualMount(tmp_path, "settle=0", "refresh=1", profile=str(profile))
    mount.mount()
    try:
        yield mount
    finally:
        mount.close()


def list_again(desk: Mounted) -> None:
    """Let the listings expire, and list the zone."""
    time.sleep(5)
    desk.names(desk.root)
    time.sleep(5)


@pytest.mark.parametrize("is_edited", [False, True], ids=["unchanged", "edited"])
def test_a_folder_that_is_moved_into_a_lost_folder_stays_whole(
    desk: Mounted, lost: str, is_edited: bool
) -> None:
    """The zone is listed before the move is sent; the folder keeps its content and identity."""
    desk.zone.make_folder("e")
    desk.zone.make_folder("e/other")
    desk.zone.make_folder("e/other/in")
    desk.zone.write("e/other/f", b"f")
    desk.zone.write("e/other/in/g", b"g")
    former = desk.zone.entry_id("e/other")
    eventually(lambda: (desk.root / "e/other/in/g").exists(), what="the folder shows")
    other = desk.root / lost / "other"
    desk.command("pause")
    if is_edited:
        (desk.root / "e/other/f").write_bytes(b"edited")
    (desk.root / "e/other").rename(other)
    list_again(desk)
    assert ({*desk.names(other)}, desk.names(other / "in")) == ({"f", "in"}, ["g"])
    desk.command("resume")
    desk.sync()
    list_again(desk)
    assert ({*desk.names(other)}, desk.names(other / "in")) == ({"f", "in"}, ["g"])
    assert desk.zone.entry_id("docs/other") == former
    assert desk.zone.read("docs/other/f") == (b"edited" if is_edited else b"f")
    assert desk.zone.find("e/other") is None
    assert not desk.conflicts()


def test_a_moved_folder_that_a_coworker_deletes_before_the_move_is_sent(
    desk: Mounted, lost: str
) -> None:
    """The edit in the folder is sent, and creates both folders again."""
    desk.zone.make_folder("other")
    desk.zone.write("other/f", b"f")
    desk.zone.write("other/g", b"g")
    eventually(lambda: (desk.root / "other/f").exists(), what="the folder shows")
    desk.command("pause")
    (desk.root / "other").rename(desk.root / lost / "other")
    (desk.root / lost / "other/f").write_bytes(b"edited")
    desk.zone.delete("other")
    desk.command("resume")
    desk.sync()
    assert desk.zone.read("docs/other/f") == b"edited"
    assert [*desk.zone.listing("docs/other")] == desk.names(desk.root / lost / "other") == ["f"]


@pytest.mark.parametrize("is_folder", [False, True], ids=["file", "folder"])
def test_a_new_entry_that_is_moved_into_a_lost_folder_while_it_is_sent(
    desk: Mounted, lost: str, is_folder: bool
) -> None:
    """The move is sent afterwards, and the folder is created again."""
    new = desk.root / "new"
    with desk.deployment.faulty(stall=5, times=1, method="POST"):
        if is_folder:
            new.mkdir()
        else:
            new.write_bytes(b"new")
        time.sleep(1)
        (sending,) = desk.status()["uploads"]
        assert sending["state"] == "uploading"
        new.rename(desk.root / lost / "new")
        time.sleep(10)
    desk.sync()
    list_again(desk)
    assert "new" in desk.names(desk.root / lost)
    assert desk.zone.find("docs/new") is not None
    assert desk.zone.find("new") is None


def test_a_lost_folder_whose_name_a_file_gets_is_listed_once_the_service_has_it(
    desk: Mounted, lost: str
) -> None:
    """As long as it holds only files of this machine, the user has no conflict to decide."""
    desk.zone.write(lost, b"a file")
    list_again(desk)
    desk.allow("created again")
    (copy,) = [name for name in desk.names(desk.root) if "(conflict" in name]
    assert (desk.root / lost).read_bytes() == b"a file"
    assert not desk.conflicts()
    (desk.root / copy / "new.md").write_bytes(b"new")
    desk.sync()
    assert set(desk.zone.listing(copy)) == {"new.md"}
    (told,) = desk.conflicts()
    assert told["path"] == f"{desk.root.name}/{copy}"
    assert told["original"] == f"{desk.root.name}/{lost}"
    assert told["by"] == "bob@acme.example"


@pytest.mark.parametrize("is_lost", [False, True], ids=["above", "lost"])
def test_a_lost_folder_without_content_is_moved_to_the_trash(desk: Mounted, is_lost: bool) -> None:
    """The folder above it moves to the trash at once; the lost folder is only on this machine."""
    desk.zone.make_folder("docs/2026/x")
    desk.zone.write("docs/2026/x/f", b"f")
    backup = desk.root / "docs/2026/x/f~"
    backup.write_bytes(b"a backup")
    desk.sync()
    desk.zone.delete("docs/2026/x")
    eventually(lambda: not (desk.root / "docs/2026/x/f").exists(), what="the folder is gone")
    backup.unlink()
    trash = desk.path / f".Trash-{os.getuid()}/files"
    if is_lost:
        with pytest.raises(OSError) as caught:
            (desk.root / "docs/2026/x").rename(trash / "x")
        assert caught.value.errno == errno.EXDEV
        return
    (desk.root / "docs").rename(trash / "docs")
    desk.sync()
    assert desk.zone.find("docs") is None
    assert "docs" in [each["name"] for each in desk.zone.trash()]
    assert "docs" not in desk.names(desk.root)


def test_a_swap_file_that_is_in_both_folders_that_become_one(desk: Mounted, lost: str) -> None:
    """Both files stay on this machine, and the user has no conflict to decide."""
    desk.allow("taken in the united folder")
    (desk.root / lost / ".f.swp").write_bytes(b"first")
    desk.zone.make_folder("x")
    eventually(lambda: "x" in desk.names(desk.root), what="the folder shows")
    (desk.root / "x/.f.swp").write_bytes(b"second")
    desk.zone.move("x", "docs")
    eventually(lambda: "x" not in desk.names(desk.root), what="the folder is renamed")
    desk.sync()
    folder = desk.root / "docs"
    swaps = [name for name in desk.names(folder) if name.endswith(".swp")]
    assert {(folder / name).read_bytes() for name in swaps} == {b"first", b"second"}
    assert not desk.conflicts()
    assert not desk.zone.listing("docs")


def test_a_lost_folder_has_the_state_of_a_file_of_this_machine(desk: Mounted, lost: str) -> None:
    """Once a file in it is to be sent, the folder has the state of any other folder."""
    folder, path = desk.root / lost, f"{desk.root.name}/{lost}"
    assert desk.xattr(folder, "user.zonedrive.state") == "local"
    assert state(desk, path) == state(desk, f"{path}/2026") == "local"
    desk.command("pause")
    (folder / "new").write_bytes(b"new")
    assert state(desk, path) == "pending"
    desk.command("resume")
    desk.sync()
    assert desk.xattr(folder, "user.zonedrive.state") == "cached"
    assert state(desk, path) == "synced"


@pytest.mark.parametrize("name", ["a\tb", "ä" * 140], ids=["replaced", "long"])
def test_a_restored_folder_whose_shown_name_differs(desk: Mounted, name: str) -> None:
    """The folder that stayed here represents the restored entry."""
    before = set(desk.names(desk.root))
    desk.zone.make_folder(name)
    desk.zone.write(f"{name}/f", b"f")
    eventually(lambda: set(desk.names(desk.root)) - before, what="the folder shows")
    (shown,) = set(desk.names(desk.root)) - before
    (desk.root / shown / ".f.swp").write_bytes(b"swap")
    entry = desk.zone.entry_id(name)
    desk.zone.delete(name)
    eventually(lambda: desk.names(desk.root / shown) == [".f.swp"], what="the file is gone")
    desk.zone.restore(entry)
    list_again(desk)
    assert set(desk.names(desk.root)) - before == {shown}
    assert set(desk.names(desk.root / shown)) == {"f", ".f.swp"}


def test_a_lost_folder_is_renamed_only_here(desk: Mounted, lost: str) -> None:
    """Nothing in it is sent, so the service gets no folder."""
    (desk.root / lost).rename(desk.root / "renamed")
    desk.sync()
    assert desk.names(desk.root / "renamed/2026") == ["report.md~"]
    assert desk.zone.find("renamed") is None
    (desk.root / "renamed/2026/report.md").write_bytes(b"written again")
    desk.sync()
    assert desk.zone.read("renamed/2026/report.md") == b"written again"


def test_a_file_that_is_moved_into_a_lost_folder_and_out_again(desk: Mounted, lost: str) -> None:
    """The file leaves the folder while its first move is about to be sent."""
    with desk.deployment.faulty(stall=5, times=1, method="GET", path="/entries|/files"):
        (desk.root / "notes.txt").rename(desk.root / lost / "notes.txt")
        time.sleep(3)
        (desk.root / lost / "notes.txt").rename(desk.root / "notes.txt")
        time.sleep(10)
    desk.sync()
    assert desk.zone.find("docs") is None
    assert desk.zone.find("notes.txt")


@pytest.mark.parametrize(
    ("name", "numbered"),
    [("f~", "f-2~"), (".~lock.f#", ".~lock.f-2#"), (".swap.swp", ".swap-2.swp")],
)
def test_a_local_only_file_that_is_in_both_folders_keeps_a_local_only_name(
    desk: Mounted, lost: str, name: str, numbered: str
) -> None:
    """So an editor's later change of it is not sent, either."""
    desk.allow("taken in the united folder")
    (desk.root / lost / name).write_bytes(b"first")
    desk.zone.make_folder("x")
    eventually(lambda: "x" in desk.names(desk.root), what="the folder shows")
    (desk.root / "x" / name).write_bytes(b"second")
    desk.zone.move("x", "docs")
    eventually(lambda: "x" not in desk.names(desk.root), what="the folder is renamed")
    desk.sync()
    folder = desk.root / "docs"
    (other,) = set(desk.names(folder)) - {name, "2026"}
    assert other == numbered
    assert {(folder / each).read_bytes() for each in (name, other)} == {b"first", b"second"}
    (folder / other).unlink()
    (folder / other).write_bytes(b"a new backup")
    desk.sync()
    assert not desk.zone.listing("docs")


def test_a_renamed_folder_into_which_the_former_one_was_moved(desk: Mounted) -> None:
    """A coworker deletes the renamed folder before the two moves are sent."""
    desk.zone.make_folder("site")
    desk.zone.write("site/index", b"old")
    desk.zone.make_folder("site.new")
    desk.zone.write("site.new/index", b"new")
    eventually(lambda: (desk.root / "site.new/index").exists(), what="the folder shows")
    desk.names(desk.root / "site")
    desk.command("pause")
    (desk.root / "site").rename(desk.root / "site.new/old")
    (desk.root / "site.new").rename(desk.root / "site")
    (desk.root / "site/report").write_bytes(b"by Alice")
    desk.zone.delete("site.new")
    desk.allow("deleted on the service")
    desk.command("resume")
    desk.sync()
    assert desk.zone.read("site/report") == b"by Alice"
    assert desk.zone.read("site/old/index") == b"old"
    assert set(desk.names(desk.root / "site")) == {"report", "old"}


def test_an_exchange_with_a_file_of_a_deleted_folder(without_folders: VirtualMount) -> None:
    """The file that cannot be sent to the folder keeps no temporary name on the service."""
    desk = without_folders
    desk.allow("deleted on the service")
    desk.zone.make_folder("b")
    desk.zone.write("b/g", b"g")
    eventually(lambda: (desk.root / "b/g").exists(), what="the file shows")
    desk.names(desk.root / "docs")
    desk.command("pause")
    desk.exchange(desk.root / "docs/report.md", desk.root / "b/g")
    desk.zone.delete("docs")
    desk.command("resume")
    for _ in range(10):
        time.sleep(5)
        desk.names(desk.root)
    assert desk.zone.read("b/report.md") == b"g"
    assert desk.names(desk.root / "docs") == ["report.md"]
    assert not [name for name in desk.zone.tree() if ".zonedrive-" in name]
    (desk.root / "docs/report.md").rename(desk.root / "b/g")
    desk.sync()
    assert [*desk.zone.listing("b")] == desk.names(desk.root / "b") == ["g"]


def test_an_exchange_in_a_folder_that_is_moved_meanwhile(tmp_path: Path) -> None:
    """No file keeps a temporary name, though the profile can neither move it nor make a folder."""
    profile = tmp_path / "profile.toml"
    profile.write_text(profile_without([COMBINED, "move", "make_folder"]))
    desk = VirtualMount(tmp_path, "settle=0", "refresh=1", profile=str(profile))
    desk.mount()
    try:
        desk.allow("deleted on the service", "has no endpoint for move")
        desk.zone.make_folder("other")
        for folder in ("", "docs", "other"):
            desk.names(desk.root / folder)
        one, other = "docs/report.md", "docs/Grüße aus Köln.txt"
        with desk.deployment.faulty(status=503, method="PUT", path=desk.zone.entry_id(one)):
            desk.exchange(desk.root / one, desk.root / other)
            eventually(lambda: other not in desk.zone.tree(), what="it has a temporary name")
            desk.zone.move("docs", "other/moved")
            for _ in range(4):
                time.sleep(3)
                desk.names(desk.root)
        for _ in range(10):
            time.sleep(5)
            desk.names(desk.root)
        assert not [name for name in desk.zone.tree() if ".zonedrive-" in name]
    finally:
        desk.close()


@pytest.mark.parametrize("how", ["replaced", "renamed"])
def test_another_folder_with_the_name_of_a_kept_one(
    without_folders: VirtualMount, how: str
) -> None:
    """There is one folder, though the service cannot create the other."""
    desk = without_folders
    (desk.root / "docs/.report.swp").write_bytes(b"swap")
    desk.names(desk.root)
    desk.zone.make_folder("x")
    desk.zone.write("x/new.md", b"new")
    eventually(lambda: (desk.root / "x/new.md").exists(), what="the folder shows")
    desk.zone.delete("docs")
    if how == "replaced":
        desk.zone.make_folder("docs")
        desk.zone.write("docs/new.md", b"new")
        desk.zone.delete("x")
    else:
        eventually(lambda: not (desk.root / "docs/report.md").exists(), what="the folder is gone")
        (desk.root / "x/.report.swp").write_bytes(b"another")
        desk.allow("taken in the united folder")
        desk.zone.move("x", "docs")
    for _ in range(3):
        time.sleep(5)
        desk.names(desk.root)
    assert [name for name in desk.names(desk.root) if name.startswith(("docs", "x"))] == ["docs"]
    swaps = {name for name in desk.names(desk.root / "docs") if name.endswith(".swp")}
    assert len(swaps) == (1 if how == "replaced" else 2)
    assert set(desk.names(desk.root / "docs")) == {"new.md", *swaps}
    (desk.root / "docs/new.md").write_bytes(b"newer")
    desk.sync()
    assert desk.zone.read("docs/new.md") == b"newer"


@contextmanager
def _slow_upload_beside_another_folder(desk: Mounted) -> Iterator[None]:
    """Let the next upload take ten seconds; `docs` and the new folder `other` are listed before."""
    desk.zone.make_folder("other")
    for folder in ("", "docs", "other"):
        desk.names(desk.root / folder)
    with desk.deployment.faulty(stall=10, times=1, method="POST"):
        yield


@pytest.mark.mount("settle=0", "refresh=1", profile="published")
@pytest.mark.parametrize("is_listed", [False, True], ids=["unlisted", "listed"])
def test_a_new_file_whose_folder_a_coworker_moves_while_it_is_sent(
    desk: Mounted, is_listed: bool
) -> None:
    """The file is shown in the moved folder, and is not failed, though nothing can be moved."""
    with _slow_upload_beside_another_folder(desk):
        (desk.root / "docs/new").write_bytes(b"new")
        time.sleep(1)
        (sending,) = desk.status()["uploads"]
        assert sending["state"] == "uploading"
        desk.zone.move("docs", "other/moved")
        time.sleep(2)
        desk.names(desk.root)  # without the folder, except for the new file
        if is_listed:
            desk.names(desk.root / "other/moved")
        time.sleep(10)
    desk.sync()
    time.sleep(5)
    assert "docs" not in desk.names(desk.root)
    assert "new" in desk.names(desk.root / "other/moved")


def test_a_new_file_that_is_renamed_while_it_is_sent_and_its_folder_moved(desk: Mounted) -> None:
    """The file gets its new name in the moved folder."""
    with _slow_upload_beside_another_folder(desk):
        (desk.root / "docs/new.part").write_bytes(b"new")
        time.sleep(1)
        (desk.root / "docs/new.part").rename(desk.root / "docs/new")
        desk.zone.move("docs", "other/moved")
        time.sleep(2)
        desk.names(desk.root)  # without the folder, except for the new file
        time.sleep(10)
    desk.sync()
    assert desk.zone.read("other/moved/new") == b"new"
    assert "new.part" not in desk.zone.listing("other/moved")
    assert "docs" not in desk.zone.listing()


@pytest.mark.parametrize("marks_content", [True, False])
def test_an_edit_in_a_folder_that_a_coworker_deletes(desk: Mounted, marks_content: bool) -> None:
    """The edit is uploaded in a new folder, also if only the folder itself counts as deleted."""
    cast(VirtualMount, desk).deployment.world.marks_content = marks_content
    desk.allow("deleted on the service while edited")
    desk.names(desk.root / "docs")
    before = desk.zone.entry_id("docs")
    with (desk.root / "docs/report.md").open("ab") as file:
        file.write(b"and more\n")
        file.flush()
        desk.zone.delete("docs")
    desk.sync()
    assert desk.zone.read("docs/report.md") == world.SEED["docs/report.md"] + b"and more\n"
    assert desk.zone.entry_id("docs") != before
    assert [each["path"] for each in desk.conflicts()] == [f"{desk.root.name}/docs/report.md"]
    assert desk.names(desk.root / "docs") == ["report.md"]


@pytest.mark.parametrize("marks_content", [True, False])
@pytest.mark.parametrize("folder", ["other", "other/inner"])
def test_an_edit_of_a_file_that_a_coworker_moves_into_a_folder_and_deletes_with_it(
    desk: Mounted, folder: str, marks_content: bool
) -> None:
    """The edit is uploaded as a new file, also if only the folder itself counts as deleted."""
    cast(VirtualMount, desk).deployment.world.marks_content = marks_content
    desk.allow("deleted on the service while edited")
    desk.names(desk.root / "docs")
    with desk.deployment.faulty(down=True):
        (desk.root / "docs/report.md").write_bytes(b"edited")
    desk.zone.make_folder("other")
    if folder != "other":
        desk.zone.make_folder(folder)
    desk.zone.move("docs/report.md", f"{folder}/report.md")
    desk.zone.delete("other")
    desk.sync()
    assert b"edited" in desk.zone.tree().values()


@pytest.mark.parametrize("tells_parent", [True, False])
def test_an_edit_of_a_file_that_a_coworker_moves_out_of_a_deleted_folder(
    desk: Mounted, tells_parent: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The edit becomes a version of the moved file, also if its new folder is not known at once."""
    look = FakeService.entry

    async def entry(service: FakeService, zone_id: str, file_id: str) -> Entry:
        found = await look(service, zone_id, file_id)
        return found if tells_parent else msgspec.structs.replace(found, parent_id="")

    monkeypatch.setattr(FakeService, "entry", entry)
    desk.names(desk.root / "docs")
    with (desk.root / "docs/report.md").open("ab") as file:
        file.write(b"and more\n")
        file.flush()
        desk.zone.move("docs/report.md", "moved.md")
        desk.zone.delete("docs")
    desk.sync()
    expected = world.SEED["docs/report.md"] + b"and more\n"
    assert {each for each in desk.zone.tree() if each.endswith(".md")} == {"moved.md"}
    assert desk.zone.read("moved.md") == expected
    assert not desk.conflicts()


@pytest.mark.parametrize("is_member", [False, True], ids=["left", "deleted"])
@pytest.mark.parametrize("folder", ["", "docs"])
def test_a_lost_zone_shows_only_the_files_of_this_machine(
    desk: Mounted, folder: str, is_member: bool
) -> None:
    """The entries of the service, which cannot be read any more, return only with the zone."""
    service, backup = virtual(desk).deployment.world, desk.root / folder / "notes.txt~"
    zone = service.zones[desk.zone.id]
    desk.names(desk.root / "docs")
    backup.write_bytes(b"a backup")
    if is_member:
        del service.zones[zone.id]
    else:
        service.set_level(zone.id, ALICE, Level.NONE)
    for _ in range(2):
        desk.names(desk.path)
        time.sleep(2)
    assert desk.names(desk.root) == [folder or backup.name]
    assert desk.names(desk.root / folder) == [backup.name]
    assert backup.read_bytes() == b"a backup"
    service.zones[zone.id] = zone
    service.set_level(zone.id, ALICE, Level.MODIFY)
    list_again(desk)
    for each in ("", "docs"):
        assert {*desk.names(desk.root / each)} - {backup.name} == {*desk.zone.listing(each)}
    assert backup.read_bytes() == b"a backup"
