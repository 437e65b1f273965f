"""A file of the service that gets a name of this machine only, as editors name their backups.

Nobody else sees such a rename: the entry stays what it was, until a new file takes its place and
becomes its next version, or the file gets another name.
"""

import errno
import os
import subprocess

import pytest

from tests.harness import world
from tests.harness.machine import Mounted

SEEDED = {"big.bin", "docs", "empty", "notes.txt"}

pytestmark = pytest.mark.mount("settle=0", "refresh=0.2")


@pytest.fixture
def before(mounted: Mounted) -> str:
    """The id of notes.txt; the test's content of it is at hand."""
    return mounted.zone.entry_id("notes.txt")


def test_the_service_keeps_what_it_has(mounted: Mounted, before: str) -> None:
    """Renamed to a backup name: not renamed and not deleted for others, and nothing waits."""
    content = mounted.zone.read("notes.txt")
    backup = mounted.root / "notes.txt~"
    (mounted.root / "notes.txt").rename(backup)
    mounted.sync()
    assert mounted.zone.entry_id("notes.txt") == before
    assert set(mounted.zone.listing()) == SEEDED
    assert "notes.txt" not in os.listdir(mounted.root)
    assert backup.read_bytes() == content
    assert os.getxattr(backup, "user.zonedrive.state") == b"local"
    assert mounted.status()["outbox"]["pending"] == 0


@pytest.mark.parametrize("restarted", [False, True])
def test_a_new_file_in_its_place_is_its_next_version(
    mounted: Mounted, before: str, restarted: bool
) -> None:
    """However long the editor takes: one new version, the backup stays here with the old bytes."""
    content = mounted.zone.read("notes.txt")
    (mounted.root / "notes.txt").rename(mounted.root / "notes.txt~")
    mounted.sync()
    if restarted:
        mounted.kill()
        mounted.mount()
    (mounted.root / "notes.txt").write_bytes(b"edited\n")
    mounted.sync()
    assert mounted.zone.entry_id("notes.txt") == before
    assert mounted.zone.read("notes.txt") == b"edited\n"
    assert len(mounted.zone.versions("notes.txt")) == 2
    assert set(mounted.zone.listing()) == SEEDED
    assert (mounted.root / "notes.txt~").read_bytes() == content


def test_saved_again_over_the_last_backup(mounted: Mounted, before: str) -> None:
    """Every save replaces the backup of the one before: each is one version of the same file."""
    for number in range(3):
        (mounted.root / "notes.txt").rename(mounted.root / "notes.txt~")
        (mounted.root / "notes.txt").write_bytes(b"save %d\n" % number)
        mounted.sync()
    assert mounted.zone.entry_id("notes.txt") == before
    assert len(mounted.zone.versions("notes.txt")) == 4
    assert (mounted.root / "notes.txt~").read_bytes() == b"save 1\n"
    assert set(mounted.zone.listing()) == SEEDED


def test_taken_back_it_is_as_before(mounted: Mounted, before: str) -> None:
    """An editor that failed to save renames the backup back: nothing happened."""
    (mounted.root / "notes.txt").rename(mounted.root / "notes.txt~")
    mounted.sync()
    (mounted.root / "notes.txt~").rename(mounted.root / "notes.txt")
    mounted.sync()
    assert mounted.zone.entry_id("notes.txt") == before
    assert len(mounted.zone.versions("notes.txt")) == 1
    assert set(os.listdir(mounted.root)) == SEEDED


def test_edited_as_a_backup_and_named_again(mounted: Mounted, before: str) -> None:
    """Edits under the local name are sent once the file has a name for everybody."""
    (mounted.root / "notes.txt").rename(mounted.root / "notes.txt~")
    with (mounted.root / "notes.txt~").open("ab") as file:
        file.write(b"more\n")
    mounted.sync()
    assert len(mounted.zone.versions("notes.txt")) == 1
    (mounted.root / "notes.txt~").rename(mounted.root / "other.txt")
    mounted.sync()
    assert mounted.zone.entry_id("other.txt") == before
    assert mounted.zone.read("other.txt").endswith(b"more\n")
    assert len(mounted.zone.versions("other.txt")) == 2
    assert set(mounted.zone.listing()) == SEEDED - {"notes.txt"} | {"other.txt"}


def test_removed_as_a_backup_it_is_removed(mounted: Mounted) -> None:
    """Who removes the backup, and wrote nothing in its place, removes the file."""
    (mounted.root / "notes.txt").rename(mounted.root / "notes.txt~")
    mounted.sync()
    (mounted.root / "notes.txt~").unlink()
    mounted.sync()
    assert set(mounted.zone.listing()) == SEEDED - {"notes.txt"}


def test_a_coworkers_version_meanwhile_is_not_overwritten(mounted: Mounted, before: str) -> None:
    """What somebody else saves while only the backup is here stays, beside the new file."""
    (mounted.root / "notes.txt").read_bytes()
    (mounted.root / "notes.txt").rename(mounted.root / "notes.txt~")
    mounted.zone.write("notes.txt", b"by bob\n")
    mounted.allow("came in between")
    (mounted.root / "notes.txt").write_bytes(b"by alice\n")
    mounted.sync()
    assert mounted.zone.entry_id("notes.txt") == before
    assert mounted.zone.read("notes.txt") == b"by bob\n"
    (copy,) = (name for name in mounted.zone.listing() if "conflict" in name)
    assert mounted.zone.read(copy) == b"by alice\n"


def test_a_folder_cannot_have_such_a_name(mounted: Mounted) -> None:
    """Whole folders are not hidden from others by a rename: programs copy and remove instead."""
    with pytest.raises(OSError) as refused:
        (mounted.root / "docs").rename(mounted.root / "docs~")
    assert refused.value.errno == errno.EXDEV
    subprocess.run(["mv", mounted.root / "docs", mounted.root / "docs~"], check=True)
    mounted.sync()
    assert (mounted.root / "docs~/report.md").read_bytes() == world.SEED["docs/report.md"]
    assert set(mounted.zone.listing()) == SEEDED - {"docs"}


def test_a_known_file_in_its_place_is_its_next_version(mounted: Mounted, before: str) -> None:
    """The temporary file of a save was sent already: still one new version, and nothing else."""
    (mounted.root / "notes.new").write_bytes(b"edited\n")
    mounted.sync()
    (mounted.root / "notes.txt").rename(mounted.root / "notes.txt~")
    mounted.sync()
    (mounted.root / "notes.new").rename(mounted.root / "notes.txt")
    mounted.sync()
    assert mounted.zone.entry_id("notes.txt") == before
    assert mounted.zone.read("notes.txt") == b"edited\n"
    assert len(mounted.zone.versions("notes.txt")) == 2
    assert set(mounted.zone.listing()) == SEEDED


def test_a_folder_in_its_place(mounted: Mounted) -> None:
    """A folder wants the name: the file leaves the service, its bytes stay here as the backup."""
    content = mounted.zone.read("notes.txt")
    (mounted.root / "notes.txt").rename(mounted.root / "notes.txt~")
    mounted.sync()
    (mounted.root / "notes.txt").mkdir()
    mounted.sync()
    assert mounted.zone.listing()["notes.txt"]["folder"]
    assert (mounted.root / "notes.txt~").read_bytes() == content


def test_an_unread_file_in_its_place(mounted: Mounted) -> None:
    """A file whose bytes are not here is moved there with its own history."""
    other = mounted.zone.entry_id("big.bin")
    (mounted.root / "notes.txt").rename(mounted.root / "notes.txt~")
    mounted.sync()
    (mounted.root / "big.bin").rename(mounted.root / "notes.txt")
    mounted.sync()
    assert mounted.zone.entry_id("notes.txt") == other
    assert (mounted.root / "notes.txt~").read_bytes() == world.SEED["notes.txt"]


def test_the_folder_it_was_in_is_removed(mounted: Mounted) -> None:
    """A backup that was moved out of a folder does not keep the folder alive on the service."""
    content = (mounted.root / "docs/2026/q1.csv").read_bytes()
    (mounted.root / "docs/2026/q1.csv").rename(mounted.root / "q1.csv~")
    (mounted.root / "docs/2026").rmdir()
    mounted.sync()
    assert "2026" not in mounted.zone.listing("docs")
    assert (mounted.root / "q1.csv~").read_bytes() == content


@pytest.mark.parametrize("edited", [False, True])
def test_moved_into_a_local_folder_that_gets_a_name_for_everybody(
    mounted: Mounted, before: str, edited: bool
) -> None:
    """The file goes with its folder, with its history and with what was written to it there."""
    (mounted.root / "work~").mkdir()
    (mounted.root / "notes.txt").rename(mounted.root / "work~/notes.txt")
    if edited:
        (mounted.root / "work~/notes.txt").write_bytes(b"edited\n")
    mounted.sync()
    assert set(mounted.zone.listing()) == SEEDED
    (mounted.root / "work~").rename(mounted.root / "work")
    mounted.sync()
    assert set(mounted.zone.listing()) == SEEDED - {"notes.txt"} | {"work"}
    assert mounted.zone.entry_id("work/notes.txt") == before
    assert mounted.zone.read("work/notes.txt") == (mounted.root / "work/notes.txt").read_bytes()
    assert len(mounted.zone.versions("work/notes.txt")) == 1 + edited


@pytest.mark.mount("settle=60")
def test_a_new_folder_cannot_hide_what_was_moved_into_it(mounted: Mounted, before: str) -> None:
    """A folder that was just made is refused such a name, too, and what is in it arrives."""
    (mounted.root / "work").mkdir()
    (mounted.root / "notes.txt").rename(mounted.root / "work/notes.txt")
    (mounted.root / "work/notes.txt").write_bytes(b"edited\n")
    with pytest.raises(OSError) as refused:
        (mounted.root / "work").rename(mounted.root / "work~")
    assert refused.value.errno == errno.EXDEV
    mounted.sync()
    assert mounted.zone.entry_id("work/notes.txt") == before
    assert mounted.zone.read("work/notes.txt") == b"edited\n"
    assert set(mounted.zone.listing()) == SEEDED - {"notes.txt"} | {"work"}
