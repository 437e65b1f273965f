"""Edits that the service refuses, and that the user gives up by removing the file."""

import errno
import time
from typing import cast

import pytest

from tests.harness import world
from tests.harness.in_process import ALICE
from tests.harness.machine import Mounted
from tests.harness.virtual_mount import VirtualMount
from tests.harness.waiting import eventually
from zonedrive.sandbox.zones import Level

NOTES = world.SEED["notes.txt"]
EDIT = b"an edit that the service refuses\n"


def set_level(desk: Mounted, level: Level) -> None:
    """Set the access level of the user in the zone, and let the client ask for it."""
    for zone in cast(VirtualMount, desk).deployment.world.zones.values():
        zone.levels[ALICE] = level
    time.sleep(5)
    desk.names(desk.path)


def is_failed(desk: Mounted) -> bool:
    """Return True if the upload of the file has failed."""
    return [each["state"] for each in desk.status()["uploads"]] == ["failed"]


def refused_edit(desk: Mounted) -> None:
    """Edit a file while uploads are paused; the user loses the right before the end of the
    pause."""
    desk.allow("refused")
    desk.command("pause")
    (desk.root / "notes.txt").write_bytes(EDIT)
    set_level(desk, Level.ADD)
    desk.command("resume")
    eventually(lambda: is_failed(desk), what="the edit is refused")


def given_up(desk: Mounted) -> None:
    """Remove the file, and check that it has the service's version, and nothing is pending."""
    path, entry = desk.root / "notes.txt", desk.zone.entry_id("notes.txt")
    path.unlink()
    eventually(path.exists, what="the file shows again")
    assert path.read_bytes() == desk.zone.read("notes.txt") == NOTES
    assert desk.xattr(path, "user.zonedrive.id") == entry
    assert desk.try_sync() == 1  # reports once that the removal was undone
    assert desk.try_sync() == 0
    assert desk.status()["outbox"]["failed"] == 0
    assert len(desk.zone.versions("notes.txt")) == 1


@pytest.mark.mount("settle=0", "refresh=0.2")
def test_an_edit_is_given_up_without_the_right_to_change_the_file(desk: Mounted) -> None:
    """A removal drops the edit; another change of the file stays refused."""
    refused_edit(desk)
    path = desk.root / "notes.txt"
    (desk.root / "other").write_bytes(b"other")
    for change in (
        lambda: path.rename(desk.root / "mine"),
        lambda: (desk.root / "other").rename(path),
        lambda: path.write_bytes(b"other"),
    ):
        with pytest.raises(PermissionError):
            change()
    assert path.read_bytes() == EDIT
    (desk.root / "other").unlink()
    given_up(desk)
    with pytest.raises(PermissionError):
        path.unlink()


@pytest.mark.mount("settle=0", "refresh=0.2", profile="published")
def test_an_edit_is_given_up_with_a_profile_that_cannot_delete(desk: Mounted) -> None:
    """Before and after, the file cannot be removed."""
    path = desk.root / "notes.txt"
    with pytest.raises(PermissionError) as refused:
        path.unlink()
    assert refused.value.errno == errno.EPERM
    refused_edit(desk)
    given_up(desk)
    with pytest.raises(PermissionError):
        path.unlink()


@pytest.mark.mount("settle=0", "refresh=0.2")
def test_the_content_of_a_folder_that_cannot_be_created_is_given_up(desk: Mounted) -> None:
    """A file that was moved into the folder is in its former place again, as the service has it."""
    desk.allow("refused", "has no endpoint")
    desk.command("pause")
    folder, names = desk.root / "new", ["notes.txt", "big.bin"]
    entries = [desk.zone.entry_id(name) for name in names]
    folder.mkdir()
    for name in names:
        (desk.root / name).rename(folder / name)
    (folder / "notes.txt").write_bytes(EDIT)
    (folder / "own").write_bytes(EDIT)
    desk.restart("profile=published")
    desk.command("resume")
    eventually(lambda: desk.status()["outbox"]["failed"] == 1, what="the folder is refused")
    with pytest.raises(PermissionError):
        (desk.root / "empty").unlink()
    for name in [*names, "own"]:
        (folder / name).unlink()
    folder.rmdir()
    assert desk.try_sync() == 1  # reports once that the removals were undone
    assert desk.try_sync() == 0
    assert desk.status()["outbox"] | {"pending": 0, "failed": 0} == desk.status()["outbox"]
    for name, entry in zip(names, entries, strict=True):
        assert (desk.root / name).read_bytes() == world.SEED[name]
        assert desk.zone.entry_id(name) == entry
    assert not folder.exists()


@pytest.mark.parametrize(
    "_profile",
    [
        pytest.param(name, marks=pytest.mark.mount("settle=0", "refresh=0.2", profile=name))
        for name in ("sandbox", "published")
    ],
)
def test_a_program_saves_by_removing_a_file_with_a_refused_edit(
    desk: Mounted, _profile: str
) -> None:
    """The new content waits as the edit did, and becomes the next version with the right."""
    refused_edit(desk)
    path, entry = desk.root / "notes.txt", desk.zone.entry_id("notes.txt")
    path.unlink()
    path.write_bytes(b"another edit\n")
    time.sleep(30)
    eventually(lambda: is_failed(desk), what="the other edit is refused")
    assert desk.zone.read("notes.txt") == NOTES
    assert path.read_bytes() == b"another edit\n"
    set_level(desk, Level.MANAGE)
    desk.sync()
    assert desk.zone.read("notes.txt") == b"another edit\n"
    assert desk.zone.entry_id("notes.txt") == entry
    assert len(desk.zone.versions("notes.txt")) == 2


@pytest.mark.mount("settle=0", "refresh=600")
def test_the_user_is_told_that_the_service_is_full(desk: Mounted) -> None:
    """The upload counts as failed, and is retried until the service has space again."""
    desk.allow("refused by the service: .*HTTP 507")
    with desk.deployment.faulty(status=507, method="POST"):
        (desk.root / "new.txt").write_bytes(EDIT)
        eventually(lambda: is_failed(desk), what="the upload is refused")
        (upload,) = desk.status()["uploads"]
        assert "the service is full: delete something there" in str(upload)
        time.sleep(600)
        assert is_failed(desk)
    eventually(lambda: not desk.status()["uploads"], what="the upload is retried")
    assert desk.zone.read("new.txt") == EDIT


@pytest.mark.mount("settle=0", "refresh=600")
def test_the_user_makes_room_on_a_full_service(desk: Mounted) -> None:
    """After the removal of a file, the upload does not wait for its next attempt."""
    desk.allow("refused by the service: .*HTTP 507")
    with desk.deployment.faulty(status=507, method="POST"):
        (desk.root / "new.txt").write_bytes(EDIT)
        time.sleep(900)
        assert is_failed(desk)
    (desk.root / "notes.txt").unlink()
    time.sleep(10)
    assert not desk.status()["uploads"]
    assert desk.zone.read("new.txt") == EDIT


def protect(desk: Mounted, path: str, *, is_on: bool = True) -> None:
    """Set or end the write protection of an entry as a coworker, and let the client list it."""
    deployment = cast(VirtualMount, desk).deployment.world
    deployment.protect(desk.zone.id, desk.zone.entry_id(path), writeProtected=is_on)
    time.sleep(5)
    desk.names((desk.root / path).parent)
    time.sleep(5)


def edit_while_protected(desk: Mounted) -> None:
    """Write to a file that a coworker protects while it is open."""
    desk.allow("refused")
    with (desk.root / "notes.txt").open("r+b", buffering=0) as file:
        file.read(1)
        protect(desk, "notes.txt")
        file.write(EDIT)


@pytest.mark.mount("settle=0", "refresh=1")
def test_an_edit_of_a_file_that_a_coworker_has_protected_is_given_up(desk: Mounted) -> None:
    """The file can be removed here, and has the service's version again."""
    edit_while_protected(desk)
    assert desk.try_sync(seconds=20) == 1
    (desk.root / "notes.txt").unlink()
    eventually(lambda: (desk.root / "notes.txt").exists(), what="the file is here again")
    assert (desk.root / "notes.txt").read_bytes() == NOTES


@pytest.mark.mount("settle=0", "refresh=1")
def test_the_end_of_a_protection_shows_on_an_edited_file(desk: Mounted) -> None:
    """The file can be edited further, and the edit is sent."""
    edit_while_protected(desk)
    desk.command("pause")
    protect(desk, "notes.txt", is_on=False)
    (desk.root / "notes.txt").write_bytes(b"edited again\n")
    desk.command("resume")
    desk.sync()
    assert desk.zone.read("notes.txt") == b"edited again\n"


@pytest.mark.mount("settle=0", "refresh=1")
@pytest.mark.parametrize("way", ["remove", "move", "remove the folder", "local"])
def test_new_entries_can_leave_a_folder_that_a_coworker_has_protected(
    desk: Mounted, way: str
) -> None:
    """The service refuses them, so that they would stay for ever."""
    desk.allow("refused")
    folder = desk.root / "docs"
    desk.names(folder)
    desk.command("pause")
    (folder / "new.txt").write_bytes(EDIT)
    (folder / "made").mkdir()
    (folder / "local~").write_bytes(EDIT)
    protect(desk, "docs")
    desk.command("resume")
    assert desk.try_sync(seconds=20) == 1
    match way:
        case "remove":
            (folder / "new.txt").unlink()
        case "move":
            (folder / "new.txt").rename(desk.root / "new.txt")
        case "remove the folder":
            (folder / "made").rmdir()
        case "local":
            (folder / "local~").unlink()
    with pytest.raises(PermissionError):
        (folder / "report.md").unlink()
    desk.try_sync(seconds=20)
    assert ("new.txt" in desk.zone.listing()) == (way == "move")


@pytest.mark.mount("settle=0", "refresh=1")
def test_no_entry_gets_into_a_protected_folder_by_an_exchange(desk: Mounted) -> None:
    """An exchange with a new file there is refused at once, and both files stay."""
    desk.allow("refused")
    new, notes = desk.root / "docs/new.txt", desk.root / "notes.txt"
    desk.command("pause")
    new.write_bytes(EDIT)
    protect(desk, "docs")
    with pytest.raises(PermissionError):
        desk.exchange(new, notes)
    assert (new.read_bytes(), notes.read_bytes()) == (EDIT, NOTES)


@pytest.mark.mount("settle=0", "refresh=1", profile="published")
def test_a_file_whose_removal_is_undone_is_shown_without_a_connection(desk: Mounted) -> None:
    """Otherwise, a program would make a new file, which later becomes a conflict copy."""
    desk.allow("refused", "offline", "reach")
    refused_edit(desk)
    path = desk.root / "notes.txt"
    path.unlink()
    assert desk.try_sync() == 1  # reports that the removal was undone; nobody lists the folder
    desk.deployment.fault(down=True)
    assert desk.names(desk.root).count("notes.txt") == 1
    assert path.stat().st_size == len(NOTES)
    desk.deployment.heal()
