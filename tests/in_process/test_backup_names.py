"""Renames of a file to a local-only name, as editors do with backups.

Other users do not see such a rename: the entry stays unchanged, until a new file takes its place
and becomes its next version, or the file gets another name.
"""

import errno
import time

import pytest

from tests.harness import world
from tests.harness.machine import Mounted
from tests.harness.waiting import eventually

SEEDED = {"big.bin", "docs", "empty", "notes.txt"}

pytestmark = pytest.mark.mount("settle=0", "refresh=0.2")


@pytest.fixture
def before(desk: Mounted) -> str:
    """Return the id of notes.txt, whose content is cached."""
    return desk.zone.entry_id("notes.txt")


def test_the_service_keeps_the_file(desk: Mounted, before: str) -> None:
    """Coworkers see the file neither renamed nor deleted, and no change is pending."""
    content = desk.zone.read("notes.txt")
    backup = desk.root / "notes.txt~"
    (desk.root / "notes.txt").rename(backup)
    desk.sync()
    assert desk.zone.entry_id("notes.txt") == before
    assert set(desk.zone.listing()) == SEEDED
    assert "notes.txt" not in desk.names(desk.root)
    assert backup.read_bytes() == content
    assert desk.xattr(backup, "user.zonedrive.state") == "local"
    assert desk.status()["outbox"]["pending"] == 0


@pytest.mark.parametrize("restarted", [False, True])
def test_a_new_file_in_its_place_is_its_next_version(
    desk: Mounted, before: str, restarted: bool
) -> None:
    """After a pause of any length there is one new version, and the backup keeps the old bytes."""
    content = desk.zone.read("notes.txt")
    (desk.root / "notes.txt").rename(desk.root / "notes.txt~")
    desk.sync()
    if restarted:
        desk.kill()
        desk.mount()
    (desk.root / "notes.txt").write_bytes(b"edited\n")
    desk.sync()
    assert desk.zone.entry_id("notes.txt") == before
    assert desk.zone.read("notes.txt") == b"edited\n"
    assert len(desk.zone.versions("notes.txt")) == 2
    assert set(desk.zone.listing()) == SEEDED
    assert (desk.root / "notes.txt~").read_bytes() == content


def test_saved_again_over_the_last_backup(desk: Mounted, before: str) -> None:
    """Every save replaces the last backup, and makes one version of the same file."""
    for number in range(3):
        (desk.root / "notes.txt").rename(desk.root / "notes.txt~")
        (desk.root / "notes.txt").write_bytes(b"save %d\n" % number)
        desk.sync()
    assert desk.zone.entry_id("notes.txt") == before
    assert len(desk.zone.versions("notes.txt")) == 4
    assert (desk.root / "notes.txt~").read_bytes() == b"save 1\n"
    assert set(desk.zone.listing()) == SEEDED


def test_saved_over_the_backup_of_a_file_that_was_renamed_before(desk: Mounted) -> None:
    """The service does not keep the file under a name that it no longer has."""
    with desk.paused():
        (desk.root / "notes.txt").rename(desk.root / "memo.txt")
        (desk.root / "memo.txt").rename(desk.root / "memo.txt~")
        (desk.root / "draft").write_bytes(b"edited\n")
        (desk.root / "draft").rename(desk.root / "memo.txt~")
    desk.sync()
    assert set(desk.zone.listing()) == SEEDED - {"notes.txt"}
    assert (desk.root / "memo.txt~").read_bytes() == b"edited\n"


def test_taken_back_it_is_as_before(desk: Mounted, before: str) -> None:
    """If an editor failed to save and renames the backup back, nothing has changed."""
    (desk.root / "notes.txt").rename(desk.root / "notes.txt~")
    desk.sync()
    (desk.root / "notes.txt~").rename(desk.root / "notes.txt")
    desk.sync()
    assert desk.zone.entry_id("notes.txt") == before
    assert len(desk.zone.versions("notes.txt")) == 1
    assert set(desk.names(desk.root)) == SEEDED


def test_edited_as_a_backup_and_named_again(desk: Mounted, before: str) -> None:
    """Edits under the local name are sent once the file has an ordinary name."""
    (desk.root / "notes.txt").rename(desk.root / "notes.txt~")
    with (desk.root / "notes.txt~").open("ab") as file:
        file.write(b"more\n")
    desk.sync()
    assert len(desk.zone.versions("notes.txt")) == 1
    (desk.root / "notes.txt~").rename(desk.root / "other.txt")
    desk.sync()
    assert desk.zone.entry_id("other.txt") == before
    assert desk.zone.read("other.txt").endswith(b"more\n")
    assert len(desk.zone.versions("other.txt")) == 2
    assert set(desk.zone.listing()) == SEEDED - {"notes.txt"} | {"other.txt"}


def test_removed_as_a_backup_it_is_removed(desk: Mounted) -> None:
    """Removing the backup without a new file removes the file."""
    (desk.root / "notes.txt").rename(desk.root / "notes.txt~")
    desk.sync()
    (desk.root / "notes.txt~").unlink()
    desk.sync()
    assert set(desk.zone.listing()) == SEEDED - {"notes.txt"}


@pytest.mark.parametrize("renamed", [False, True])
def test_the_new_file_in_its_place_goes_before_it_is_sent(desk: Mounted, renamed: bool) -> None:
    """The name is free on the service as well, and the backup stays on this machine."""
    content = desk.zone.read("notes.txt")
    with desk.paused():
        (desk.root / "notes.txt").rename(desk.root / "notes.txt~")
        (desk.root / "notes.txt").write_bytes(b"edited\n")
        if renamed:
            (desk.root / "notes.txt").rename(desk.root / "memo.txt")
        else:
            (desk.root / "notes.txt").unlink()
    desk.sync()
    assert set(desk.zone.listing()) == (SEEDED - {"notes.txt"}) | (
        {"memo.txt"} if renamed else set()
    )
    assert (desk.root / "notes.txt~").read_bytes() == content


def test_a_coworkers_version_meanwhile_is_not_overwritten(desk: Mounted, before: str) -> None:
    """A coworker's version is kept next to the new file."""
    (desk.root / "notes.txt").read_bytes()
    (desk.root / "notes.txt").rename(desk.root / "notes.txt~")
    desk.zone.write("notes.txt", b"by bob\n")
    desk.allow("a conflict copy")
    (desk.root / "notes.txt").write_bytes(b"by alice\n")
    desk.sync()
    assert desk.zone.entry_id("notes.txt") == before
    assert desk.zone.read("notes.txt") == b"by bob\n"
    (copy,) = (name for name in desk.zone.listing() if "conflict" in name)
    assert desk.zone.read(copy) == b"by alice\n"


def test_a_known_file_in_its_place_is_its_next_version(desk: Mounted, before: str) -> None:
    """If the temporary file was already sent, there is one new version, and no other entry."""
    (desk.root / "notes.new").write_bytes(b"edited\n")
    desk.sync()
    (desk.root / "notes.txt").rename(desk.root / "notes.txt~")
    desk.sync()
    (desk.root / "notes.new").rename(desk.root / "notes.txt")
    desk.sync()
    assert desk.zone.entry_id("notes.txt") == before
    assert desk.zone.read("notes.txt") == b"edited\n"
    assert len(desk.zone.versions("notes.txt")) == 2
    assert set(desk.zone.listing()) == SEEDED


def test_a_folder_in_its_place(desk: Mounted) -> None:
    """The file is deleted on the service, and its bytes stay in the local backup."""
    content = desk.zone.read("notes.txt")
    (desk.root / "notes.txt").rename(desk.root / "notes.txt~")
    desk.sync()
    (desk.root / "notes.txt").mkdir()
    desk.sync()
    assert desk.zone.listing()["notes.txt"]["folder"]
    assert (desk.root / "notes.txt~").read_bytes() == content


def test_an_unread_file_in_its_place(desk: Mounted) -> None:
    """A file that is not cached is moved there with its own history."""
    other = desk.zone.entry_id("big.bin")
    (desk.root / "notes.txt").rename(desk.root / "notes.txt~")
    desk.sync()
    (desk.root / "big.bin").rename(desk.root / "notes.txt")
    desk.sync()
    assert desk.zone.entry_id("notes.txt") == other
    assert (desk.root / "notes.txt~").read_bytes() == world.SEED["notes.txt"]


def test_the_folder_it_was_in_is_removed(desk: Mounted) -> None:
    """A backup that was moved out of a folder does not keep the folder on the service."""
    content = (desk.root / "docs/2026/q1.csv").read_bytes()
    (desk.root / "docs/2026/q1.csv").rename(desk.root / "q1.csv~")
    (desk.root / "docs/2026").rmdir()
    desk.sync()
    assert "2026" not in desk.zone.listing("docs")
    assert (desk.root / "q1.csv~").read_bytes() == content


@pytest.mark.parametrize("edited", [False, True])
def test_a_file_in_a_local_folder_that_gets_an_ordinary_name(
    desk: Mounted, before: str, edited: bool
) -> None:
    """The file moves with its folder, with its history and its edits."""
    (desk.root / "work~").mkdir()
    (desk.root / "notes.txt").rename(desk.root / "work~/notes.txt")
    if edited:
        (desk.root / "work~/notes.txt").write_bytes(b"edited\n")
    desk.sync()
    assert set(desk.zone.listing()) == SEEDED
    (desk.root / "work~").rename(desk.root / "work")
    desk.sync()
    assert set(desk.zone.listing()) == SEEDED - {"notes.txt"} | {"work"}
    assert desk.zone.entry_id("work/notes.txt") == before
    assert desk.zone.read("work/notes.txt") == (desk.root / "work/notes.txt").read_bytes()
    assert len(desk.zone.versions("work/notes.txt")) == 1 + edited


@pytest.mark.mount("settle=60")
def test_a_folder_cannot_get_a_local_name(desk: Mounted, before: str) -> None:
    """A rename must not hide a whole folder from other users, also one that is not uploaded yet:
    programs copy and remove it instead."""
    (desk.root / "work").mkdir()
    (desk.root / "notes.txt").rename(desk.root / "work/notes.txt")
    (desk.root / "work/notes.txt").write_bytes(b"edited\n")
    for name in ("work", "docs"):
        with pytest.raises(OSError) as refused:
            (desk.root / name).rename(desk.root / f"{name}~")
        assert refused.value.errno == errno.EXDEV
    desk.sync()
    assert desk.zone.entry_id("work/notes.txt") == before
    assert desk.zone.read("work/notes.txt") == b"edited\n"
    assert set(desk.zone.listing()) == SEEDED - {"notes.txt"} | {"work"}


@pytest.mark.mount("refresh=1")
def test_a_coworker_renames_the_file_behind_a_backup(desk: Mounted) -> None:
    """The entry shows under its new name, and the backup keeps the bytes on this machine."""
    content = world.SEED["notes.txt"]
    (desk.root / "notes.txt").rename(desk.root / "notes.txt~")
    desk.zone.move("notes.txt", "plan.txt")
    eventually(lambda: (desk.root / "plan.txt").exists(), what="the new name shows")
    assert (desk.root / "plan.txt").read_bytes() == content
    assert (desk.root / "notes.txt~").read_bytes() == content
    (desk.root / "notes.txt~").unlink()
    desk.sync()
    assert desk.zone.read("plan.txt") == content


@pytest.mark.mount("refresh=1")
def test_a_rename_behind_a_backup_is_found_after_a_restart(desk: Mounted) -> None:
    """The bytes for the backup could not be fetched before the restart."""
    content = world.SEED["notes.txt"]
    assert desk.names(desk.root)
    (desk.root / "notes.txt").rename(desk.root / "notes.txt~")
    desk.allow("not sent", "content", "offline", "HTTP 503")
    with desk.deployment.faulty(status=503, method="GET", path="/content"):
        desk.zone.move("notes.txt", "plan.txt")
        desk.zone.write("later.txt", b"later\n")
        eventually(lambda: (desk.root / "later.txt").exists(), what="the folder is listed")
        assert not (desk.root / "plan.txt").exists()
        desk.restart()
    eventually(lambda: (desk.root / "plan.txt").exists(), what="the new name shows")
    assert (desk.root / "plan.txt").read_bytes() == content
    assert (desk.root / "notes.txt~").read_bytes() == content


@pytest.mark.mount("settle=600", "refresh=1")
def test_a_coworker_renames_a_file_that_was_saved_beside_a_backup(desk: Mounted) -> None:
    """The save is a version of the renamed file."""
    content, entry = world.SEED["notes.txt"], desk.zone.entry_id("notes.txt")
    (desk.root / "notes.txt").rename(desk.root / "notes.txt~")
    (desk.root / "notes.txt").write_bytes(b"saved\n")
    desk.zone.move("notes.txt", "plan.txt")
    desk.sync()
    eventually(lambda: (desk.root / "plan.txt").exists(), what="the new name shows")
    assert desk.zone.entry_id("plan.txt") == entry
    assert desk.zone.read("plan.txt") == b"saved\n"
    assert len(desk.zone.versions("plan.txt")) == 2
    assert (desk.root / "plan.txt").read_bytes() == b"saved\n"
    assert not (desk.root / "notes.txt").exists()
    assert (desk.root / "notes.txt~").read_bytes() == content


@pytest.mark.parametrize("is_saved", [False, True], ids=["renamed", "saved"])
def test_a_coworker_gives_the_name_of_a_new_file_to_the_file_behind_a_backup(
    desk: Mounted, before: str, is_saved: bool
) -> None:
    """The new file becomes a conflict copy, and the backup keeps its content."""
    content = desk.zone.read("notes.txt")
    desk.allow("conflict copy", "planned again", "moved by a coworker")
    with desk.paused():
        (desk.root / "notes.txt").rename(desk.root / "notes.txt~")
        if is_saved:
            (desk.root / "notes.txt").write_bytes(b"edited\n")
        (desk.root / "other.txt").write_bytes(b"new\n")
        desk.zone.move("notes.txt", "other.txt")
    desk.sync()
    assert desk.zone.entry_id("other.txt") == before
    versions = [content, b"edited\n"] if is_saved else [content]
    assert len(desk.zone.versions("other.txt")) == len(versions)
    assert desk.zone.read("other.txt") == versions[-1]
    (copy,) = {*desk.zone.listing()} - SEEDED - {"other.txt"}
    assert "conflict" in copy
    assert desk.zone.read(copy) == b"new\n"
    assert (desk.root / "notes.txt~").read_bytes() == content


@pytest.mark.parametrize("name", ["report.md~", ".report.md.swp"])
@pytest.mark.mount("refresh=1")
def test_a_file_that_never_leaves_this_machine_brings_no_folder_back(
    desk: Mounted, name: str
) -> None:
    """A coworker deletes the folder: it is deleted, and the file can still be read here."""
    (desk.root / "docs/2026" / name).write_bytes(b"a backup")
    desk.sync()
    desk.zone.delete("docs")
    eventually(lambda: not (desk.root / "docs/report.md").exists(), what="the folder is gone")
    time.sleep(60)
    desk.sync()
    assert desk.zone.find("docs") is None
    assert (desk.root / "docs/2026" / name).read_bytes() == b"a backup"
    assert desk.names(desk.root / "docs") == ["2026"]
    desk.restart()
    desk.sync()
    assert desk.zone.find("docs") is None
    assert (desk.root / "docs/2026" / name).read_bytes() == b"a backup"
    desk.allow("deleted on the service while edited")
    (desk.root / "docs/2026/new.txt").write_bytes(b"new")  # somebody works in it again
    desk.sync()
    assert desk.zone.read("docs/2026/new.txt") == b"new"


@pytest.mark.parametrize("other", ["new folder", "renamed folder", "file"])
@pytest.mark.mount("refresh=1")
def test_a_name_of_a_deleted_folder_is_used_again(desk: Mounted, other: str) -> None:
    """The folder here holds only a backup; a coworker's entry of its name is shown as it is."""
    desk.allow("deleted on the service")
    desk.zone.make_folder("other")
    (desk.root / "docs/report.md~").write_bytes(b"a backup")
    desk.sync()
    desk.names(desk.root)
    desk.zone.delete("docs")
    eventually(lambda: not (desk.root / "docs/report.md").exists(), what="the folder is gone")
    if other == "file":
        desk.zone.write("docs", b"by Bob")
        eventually(lambda: (desk.root / "docs").is_file(), what="the file shows")
        assert (desk.root / "docs").read_bytes() == b"by Bob"
        (folder,) = (name for name in desk.names(desk.root) if name.startswith("docs ("))
        assert (desk.root / folder / "report.md~").read_bytes() == b"a backup"
        desk.sync()
        assert not desk.conflicts()
        assert not [name for name in desk.zone.listing() if name.startswith("docs (")]
    else:
        if other == "new folder":
            desk.zone.make_folder("docs")
        else:
            desk.zone.move("other", "docs")
        desk.zone.write("docs/q", b"by Bob")
        eventually(lambda: (desk.root / "docs/q").exists(), what="the folder shows")
        assert (desk.root / "docs/report.md~").read_bytes() == b"a backup"
    desk.sync()
    assert not [name for name in desk.names(desk.root) if "~" in name]


@pytest.mark.mount("settle=0", "refresh=600")
@pytest.mark.parametrize("read", [False, True])
def test_a_coworker_gives_a_backups_file_the_name_of_an_upload(desk: Mounted, read: bool) -> None:
    """The new file is the next version of the backup's file, and the backup keeps its content."""
    desk.zone.write("b", b"by Bob\n")
    before = desk.zone.entry_id("b")
    assert "b" in desk.names(desk.root)
    if read:
        assert (desk.root / "b").read_bytes() == b"by Bob\n"
    desk.deployment.fault(latency_ms=1500, method="POST", path="^/api/zones/")
    (desk.root / "b").rename(desk.root / "b~")
    uploads = desk.deployment.uploads()
    (desk.root / "a").write_bytes(b"by Alice\n")
    eventually(lambda: desk.deployment.uploads() > uploads, what="the upload begins")
    desk.zone.move("b", "a")
    desk.sync()
    assert desk.zone.entry_id("a") == before
    assert desk.zone.read("a") == (desk.root / "a").read_bytes() == b"by Alice\n"
    assert (desk.root / "b~").read_bytes() == b"by Bob\n"
    desk.restart()
    assert (desk.root / "b~").read_bytes() == b"by Bob\n"
