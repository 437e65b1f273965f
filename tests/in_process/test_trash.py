"""Entries of the trash that are restored or deleted permanently in the mount."""

import errno
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.harness import world
from tests.harness.machine import Mounted
from tests.harness.virtual_mount import VirtualMount
from tests.harness.waiting import eventually
from tests.in_process.test_entry_states import states, virtual
from tests.in_process.test_refused_edits import set_level
from zonedrive.errors import AlreadyExists, NotFound, ZonedriveError
from zonedrive.remote import profiles
from zonedrive.sandbox.zones import Level
from zonedrive.vfs.namespace import EXCHANGE


def delete(desk: Mounted, *paths: str) -> dict[str, str]:
    """Delete entries in turn as a coworker; return the id of each path."""
    ids = {}
    for path in paths:
        ids[path] = desk.zone.entry_id(path)
        desk.zone.delete(path)
    return ids


def ask(desk: Mounted, command: str, *entries: str) -> Any:
    """Return the answer to a command about the entries."""
    return virtual(desk).command(command, entries=list(entries))


def left(desk: Mounted) -> list[str]:
    """Return the names in the trash."""
    return sorted(each["name"] for each in ask(desk, "trash")["entries"])


def test_a_permanent_deletion_counts_what_was_deleted_before_the_folder(desk: Mounted) -> None:
    """A folder takes along the trash entries inside it, even below a folder that was not deleted
    separately; others stay."""
    desk.zone.make_folder("other")
    desk.zone.write("other/stays.txt", b"x")
    ids = delete(desk, "docs/2026/q1.csv", "docs/report.md", "docs", "other/stays.txt", "notes.txt")
    assert ask(desk, "trash", "notes.txt") == {"inside": 0}
    assert ask(desk, "trash", "docs") == {"inside": 2}
    assert ask(desk, "trash", "docs", ids["docs/report.md"]) == {"inside": 1}
    assert left(desk) == ["docs", "notes.txt", "q1.csv", "report.md", "stays.txt"]
    assert ask(desk, "purge", "docs")["inside"] == 2
    assert left(desk) == ["notes.txt", "stays.txt"]


def test_a_slash_at_the_end_of_a_name_means_a_folder(desk: Mounted) -> None:
    """`zonedrive trash` shows the name of a folder with a slash, and a shell completes it so."""
    place = f"{desk.root.name}/notes.txt/"
    with pytest.raises(NotFound, match=r"'notes\.txt/' is not in the trash"):
        delete(desk, "notes.txt")
        ask(desk, "restore", "notes.txt/")
    desk.zone.make_folder("notes.txt")
    for wanted in ("notes.txt/", place, "notes.txt//"):
        delete(desk, "notes.txt")
        with pytest.raises(ZonedriveError, match=r"2 entries called 'notes\.txt'"):
            ask(desk, "trash", "notes.txt")
        (restored,) = ask(desk, "restore", wanted)["restored"]
        assert f"{restored['path']}/" == place
        assert left(desk) == ["notes.txt"]
    with pytest.raises(NotFound, match="'/' is not in the trash"):
        ask(desk, "restore", "/")


def test_entries_inside_a_folder_are_deleted_permanently_before_it(desk: Mounted) -> None:
    """The order of the names does not matter."""
    paths = ("docs/2026/q1.csv", "docs/2026", "docs/report.md", "docs")
    for order in (1, -1):
        ids = delete(desk, *paths)
        answer = ask(desk, "purge", *[*ids.values()][::order])
        assert len(answer["purged"]) == len(paths)
        assert answer["inside"] == 0
        assert left(desk) == []
        desk.zone.make_folder("docs")
        desk.zone.make_folder("docs/2026")
        desk.zone.write("docs/report.md", b"x")
        desk.zone.write("docs/2026/q1.csv", b"x")


def test_a_folder_is_listed_once_after_several_restores(desk: Mounted) -> None:
    """The restored entries are in the mount at once, also those before a failed one."""
    names = ["a.txt", "b.txt", "c.txt"]
    for name in names:
        desk.zone.write(f"docs/{name}", b"x")
    desk.system.listdir(desk.root / "docs")
    delete(desk, *(f"docs/{name}" for name in names))
    desk.zone.write("docs/c.txt", b"another")
    requests = virtual(desk).deployment.world.requests
    del requests[:]
    with pytest.raises(AlreadyExists):
        ask(desk, "restore", *names)
    folder = desk.zone.entry_id("docs")
    assert len([each for each in requests if each.endswith(f"/folder/{folder}")]) == 1
    with desk.deployment.faulty(latency_ms=60_000):
        assert set(names) <= set(desk.names(desk.root / "docs"))


@pytest.mark.parametrize(
    ("missing", "is_shown"), [("purge", True), ("delete", False), ("restore", False)]
)
def test_the_trash_folder_needs_a_profile_that_deletes_and_restores(
    tmp_path: Path, missing: str, is_shown: bool
) -> None:
    """Otherwise a file manager would offer to undo a deletion, and fail."""
    profile = tmp_path / "profile.toml"
    sandbox = (resources.files(profiles) / "sandbox.toml").read_text()
    profile.write_text(re.sub(rf"\[{missing}\].*?(?=\n\[)", "", sandbox, flags=re.DOTALL))
    mount = VirtualMount(tmp_path, profile=str(profile))
    mount.mount()
    try:
        assert (mount.path / f".Trash-{os.getuid()}").exists() is is_shown
    finally:
        mount.close()


@pytest.mark.mount("refresh=5")
def test_a_file_is_not_saved_while_it_moves_into_the_trash(desk: Mounted) -> None:
    """The move waits for the upload of a save, for longer than the folder's listing is valid.

    A save between the upload and the move would be lost. The kernel knows the file's name, so the
    save does not have to wait for a listing.
    """
    mount, path = virtual(desk), desk.root / "notes.txt"
    ino = path.stat().st_ino

    async def move_and_save() -> int:
        """Return the errno of the save."""
        async with trio.open_nursery() as nursery:
            trash = f".Trash-{os.getuid()}/files/notes.txt"
            nursery.start_soon(mount.client.kernel.rename, str(path), trash)
            await trio.sleep(8)
            try:
                await mount.client.files.setattr(ino, size=1)
            except OSError as wrong:
                return wrong.errno or -1
        return 0

    path.write_bytes(b"saved")
    with desk.deployment.faulty(latency_ms=7000, method="POST", path="^/api/zones/"):
        desk.deployment.fault(latency_ms=2000, method="GET", path="/folder/")
        assert mount.loop.run(move_and_save) == errno.ESTALE
    desk.sync()
    assert left(desk) == ["notes.txt"]


@pytest.mark.mount("settle=30", "refresh=0.2")
def test_a_new_file_that_the_user_may_not_remove_once_it_is_uploaded(desk: Mounted) -> None:
    set_level(desk, Level.ADD)
    path = desk.root / "new.txt"
    path.write_bytes(b"content")
    with pytest.raises(PermissionError):
        path.rename(desk.path / f".Trash-{os.getuid()}/files/new.txt")
    assert path.read_bytes() == desk.zone.read("new.txt") == b"content"
    desk.sync()


@contextmanager
def trashed_later(desk: Mounted, name: str) -> Iterator[None]:
    """Move a folder into the trash; the service deletes it after the `with` block."""
    desk.allow("has new entries on the service")
    desk.command("pause")
    (desk.root / name).rename(desk.path / f".Trash-{os.getuid()}/files/{name}")
    yield
    desk.command("resume")
    desk.sync()


Look = Callable[[Mounted, int], None]


def look_at_attributes(desk: Mounted, fd: int) -> None:
    assert desk.system.fstat(fd).st_size == len(world.SEED["docs/2026/q1.csv"])


def look_into_the_trash(desk: Mounted, fd: int) -> None:
    desk.zone.write("docs/2026/other.txt", b"x")
    delete(desk, "docs/2026/other.txt")
    ask(desk, "restore", "other.txt")


@pytest.mark.parametrize("is_zone_lost", [False, True])
def test_a_folder_whose_deletion_is_refused_leaves_the_other_folders_listed(
    desk: Mounted, is_zone_lost: bool
) -> None:
    """Otherwise, after a restart without a network, no folder of any zone could be opened."""
    desk.allow("refused|not allowed|not accessible|member")
    desk.zone.make_folder("docs/2026/march")
    desk.zone.write("docs/2026/march/days.csv", b"1")
    assert desk.names(desk.root / "docs/2026/march") == ["days.csv"]
    desk.command("pause")
    (desk.root / "docs/2026").rename(desk.path / f".Trash-{os.getuid()}/files/2026")
    if is_zone_lost:
        set_level(desk, Level.NONE)
    with desk.deployment.faulty(status=403, error="NOT_ALLOWED", method="DELETE"):
        desk.command("resume")
        time.sleep(3600)
    names = desk.names(desk.path)
    with desk.deployment.faulty(down=True):
        virtual(desk).kill()
        virtual(desk).mount()
        assert desk.names(desk.path) == names
        assert (desk.root.name in names) is not is_zone_lost
        if not is_zone_lost:
            assert desk.names(desk.root / "docs/2026/march") == ["days.csv"]


@pytest.mark.mount("refresh=0.2")
@pytest.mark.parametrize("look", [look_at_attributes, look_into_the_trash])
def test_an_entry_added_below_a_folder_in_the_trash_is_kept(desk: Mounted, look: Look) -> None:
    """The deletion does not take it for a removed entry, because it stays unknown until then."""
    path = desk.root / "docs/2026/q1.csv"
    with path.open("rb") as file, trashed_later(desk, "docs"):
        desk.zone.write("docs/2026/new.txt", b"new")
        time.sleep(5)  # the listing expires
        look(desk, file.fileno())
    assert desk.zone.read("docs/2026/new.txt") == b"new"
    eventually(lambda: (desk.root / "docs/2026/new.txt").exists(), what="the folder is back")


@pytest.mark.parametrize("is_folder", [False, True], ids=["file", "folder"])
def test_a_folder_goes_into_the_trash_without_what_was_moved_out_of_it(
    desk: Mounted, is_folder: bool
) -> None:
    """The service gets the move before the deletion, from a subfolder, too."""
    moved = "docs/2026/plans" if is_folder else "docs/2026/q1.csv"
    if is_folder:
        (desk.root / moved).mkdir()
        desk.sync()
    with desk.deployment.faulty(latency_ms=2000, method="PUT", path="^/api/zones/"):
        (desk.root / moved).rename(desk.root / "here")
        (desk.root / "docs").rename(desk.path / f".Trash-{os.getuid()}/files/docs")
        desk.sync()
    assert set(desk.zone.tree()) == {"here", "notes.txt", "big.bin", "empty"}
    assert left(desk) == ["docs"]


@pytest.mark.parametrize("is_target", [False, True], ids=["source", "target"])
@pytest.mark.parametrize("flags", [0, EXCHANGE], ids=["move", "exchange"])
def test_no_entry_moves_into_or_out_of_a_folder_in_the_trash(
    desk: Mounted, flags: int, is_target: bool
) -> None:
    """A moved entry would be deleted with the folder."""
    mount = virtual(desk)
    numbers = [desk.root.stat().st_ino, (desk.root / "docs/2026").stat().st_ino]
    names = [b"notes.txt", b"q1.csv"]
    here, there = (0, 1) if is_target else (1, 0)
    with trashed_later(desk, "docs"):
        wanted = names[there] if flags else b"new"
        arguments = numbers[here], names[here], numbers[there], wanted, flags
        with pytest.raises(FileNotFoundError):
            mount.call(partial(mount.client.files.rename, *arguments))
    assert set(desk.zone.tree()) == {"notes.txt", "big.bin", "empty"}
    assert desk.zone.read("notes.txt") == world.SEED["notes.txt"]


def test_a_file_is_not_moved_into_a_folder_that_goes_into_the_trash(desk: Mounted) -> None:
    """The folder goes while the rename copies the content of the file that it replaces."""
    mount, trash = virtual(desk), f".Trash-{os.getuid()}/files/docs"
    folder, path, errors = desk.root / "docs", desk.root / "notes.txt", list[int]()
    desk.zone.write("docs/2026/large", bytes(5 << 20))

    async def move(path: str, target: str) -> None:
        try:
            await mount.client.kernel.rename(path, target)
        except OSError as wrong:
            errors.append(wrong.errno or 0)

    async def move_both() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(move, str(path), str(folder / "2026/large"))
            await trio.sleep(1)
            await mount.client.kernel.rename(str(folder), trash)

    with (folder / "2026/large").open("rb") as file:
        assert file.read(1)
        with desk.deployment.faulty(latency_ms=3000, method="GET", path="/content$"):
            mount.loop.run(move_both)
    assert errors == [errno.EBUSY]
    desk.sync()
    assert desk.zone.read("notes.txt") == path.read_bytes() == world.SEED["notes.txt"]
    assert left(desk) == ["docs"]


def test_a_restore_into_a_folder_that_is_in_the_trash_is_refused(desk: Mounted) -> None:
    """The restored entry would be deleted with the folder."""
    trash = desk.path / f".Trash-{os.getuid()}/files"
    (desk.root / "docs/2026/q1.csv").rename(trash / "q1.csv")
    desk.sync()
    with trashed_later(desk, "docs"), pytest.raises(FileNotFoundError):
        (trash / "q1.csv").rename(desk.root / "q1.csv")
    assert left(desk) == ["docs", "q1.csv"]


@pytest.mark.mount("settle=0", "refresh=0.2")
@pytest.mark.parametrize("kind", ["file", "empty folder", "folder in the trash"])
def test_a_restored_entry_is_not_deleted_by_a_removal_that_waits(desk: Mounted, kind: str) -> None:
    """A coworker has deleted the entry, too; `zonedrive restore` brings it back for good."""
    desk.zone.make_folder("void")
    eventually(lambda: "void" in desk.names(desk.root), what="the folder is listed")
    assert (desk.root / "docs/2026/q1.csv").read_bytes() == world.SEED["docs/2026/q1.csv"]
    name = {"file": "notes.txt", "empty folder": "void"}.get(kind, "docs")
    before = {path: data for path, data in desk.zone.tree().items() if path.startswith(name)}
    desk.command("pause")
    if kind == "file":
        (desk.root / name).unlink()
    elif kind == "empty folder":
        (desk.root / name).rmdir()
    else:
        (desk.root / name).rename(desk.path / f".Trash-{os.getuid()}/files/{name}")
    desk.zone.delete(name)
    (restored,) = ask(desk, "restore", name)["restored"]
    assert restored["path"] == f"{desk.root.name}/{name}"
    desk.command("resume")
    desk.sync()
    tree = desk.zone.tree()
    assert {path: data for path, data in tree.items() if path.startswith(name)} == before
    assert name in desk.names(desk.root)
    for path, data in before.items():
        if data is not None:
            assert (desk.root / path).read_bytes() == data
    assert states(desk, f"{desk.root.name}/{name}")[0]["state"] == "synced"


@pytest.mark.mount("settle=0", "refresh=0.2")
def test_a_pinned_file_is_pinned_again_after_a_restore_of_its_folder(desk: Mounted) -> None:
    """The removal of the folder has not been sent when the folder is restored."""
    path = f"{desk.root.name}/docs/2026/q1.csv"
    desk.command("pin", paths=[path])
    desk.command("pause")
    (desk.root / "docs").rename(desk.path / f".Trash-{os.getuid()}/files/docs")
    desk.zone.delete("docs")
    ask(desk, "restore", "docs")
    desk.command("resume")
    desk.sync()
    time.sleep(1800)  # the pinned entries are looked up once in a while
    (pin,) = desk.command("pins")["pins"]
    assert pin["path"] == path


@pytest.mark.mount("settle=0", "refresh=0.2")
def test_a_restored_entry_is_not_deleted_by_a_removal_whose_reply_was_lost(desk: Mounted) -> None:
    """The removal is sent again after a lost reply, but not after the user has restored the
    file."""
    desk.allow("lost", "reach", "offline")
    desk.names(desk.root)
    with desk.deployment.faulty(drop_reply=True, method="DELETE"):
        (desk.root / "notes.txt").unlink()
        time.sleep(3)
        assert left(desk) == ["notes.txt"]
        ask(desk, "restore", "notes.txt")
        time.sleep(30)
    desk.sync()
    assert desk.zone.read("notes.txt") == world.SEED["notes.txt"]
    assert "notes.txt" in desk.names(desk.root)


@pytest.mark.mount("settle=0")
def test_a_restore_during_the_request_for_the_removal_reports_what_was_restored(
    desk: Mounted,
) -> None:
    """The service has deleted the file but does not reply, so only the other file is restored."""
    desk.names(desk.root / "docs")
    delete(desk, "docs/report.md")
    with desk.deployment.faulty(stall=50, method="DELETE"):
        (desk.root / "notes.txt").unlink()
        time.sleep(3)
        with pytest.raises(ZonedriveError) as raised:
            ask(desk, "restore", "report.md", "notes.txt")
    assert "report.md" in raised.value.message
    assert left(desk) == ["notes.txt"]
    desk.sync()
    ask(desk, "restore", "notes.txt")
    assert desk.zone.read("notes.txt") == world.SEED["notes.txt"]


def test_a_restore_whose_reply_was_lost_succeeds(desk: Mounted) -> None:
    """The service has restored the file, so the command reports no error, and the file shows."""
    desk.allow("lost", "reach", "offline")
    desk.names(desk.root)
    delete(desk, "notes.txt")
    with desk.deployment.faulty(drop_reply=True, times=1, method="POST", path="/restore"):
        (restored,) = ask(desk, "restore", "notes.txt")["restored"]
    assert restored["path"] == f"{desk.root.name}/notes.txt"
    assert "notes.txt" in desk.names(desk.root)


@pytest.mark.parametrize(
    ("status", "names", "is_advised"),
    [
        (403, ["report.md"], True),
        (403, ["docs", "report.md"], False),
        (401, ["report.md"], False),
        (503, ["report.md"], False),
    ],
)
def test_a_failed_restore_advises_to_restore_the_folder_only_if_this_helps(
    desk: Mounted, status: int, names: list[str], is_advised: bool
) -> None:
    """The folder may be restored already, and a missing logon or an overload has another remedy."""
    desk.allow("reach", "offline", "unavailable", "log on", "logon")
    ids = delete(desk, "docs/report.md", "docs")
    path = f"/{ids['docs/report.md']}/restore"
    fault = desk.deployment.faulty(status=status, method="POST", path=path)
    with fault, pytest.raises(ZonedriveError) as raised:
        ask(desk, "restore", *names)
    assert (ids["docs"] in raised.value.message) is is_advised


@pytest.mark.parametrize("name", ["notes.txt", "Zone 01/notes.txt"])
def test_a_restore_of_an_entry_whose_removal_waits(desk: Mounted, name: str) -> None:
    """In a pause the entry is not in the trash yet; the remedy leads to the waiting removal."""
    desk.names(desk.root)
    desk.command("pause")
    (desk.root / "notes.txt").unlink()
    with pytest.raises(NotFound) as raised:
        ask(desk, "restore", name)
    assert "zonedrive status" in raised.value.remedy
    desk.command("resume")
    desk.sync()
    ask(desk, "restore", name)
    assert desk.zone.read("notes.txt") == world.SEED["notes.txt"]


@pytest.mark.parametrize("is_path", [False, True], ids=["name", "path"])
@pytest.mark.parametrize("name", ["Q1/Q2.txt", "a\tb.txt"])
def test_an_entry_is_restored_by_the_name_in_the_mount(
    desk: Mounted, name: str, is_path: bool
) -> None:
    """The mount shows some characters of a name differently, and users type or paste that name."""
    before = set(desk.names(desk.root))
    desk.deployment.plant(desk.root.name, name, "x")
    eventually(lambda: set(desk.names(desk.root)) != before, what="the file is listed")
    (shown,) = set(desk.names(desk.root)) - before
    assert shown != name
    (desk.root / shown).unlink()
    desk.sync()
    assert left(desk) == [name]
    ask(desk, "restore", f"{desk.root.name}/{shown}" if is_path else shown)
    assert left(desk) == []
    assert shown in desk.names(desk.root)


def test_an_entry_leaves_the_trash_after_its_folder(desk: Mounted) -> None:
    """As long as the folder is deleted, the entry cannot leave, as a file manager then says."""
    trash = desk.path / f".Trash-{os.getuid()}/files"
    desk.names(desk.root / "docs")
    (desk.root / "docs/report.md").rename(trash / "report.md")
    (desk.root / "docs").rename(trash / "docs")
    desk.sync()
    with pytest.raises(FileNotFoundError):
        (trash / "report.md").rename(desk.root / "report.md")
    assert left(desk) == ["docs", "report.md"]
    (trash / "docs").rename(desk.root / "docs")
    (trash / "report.md").rename(desk.root / "docs/report.md")
    assert desk.zone.read("docs/report.md") == world.SEED["docs/report.md"]
    assert left(desk) == []


@pytest.mark.mount("settle=0", "refresh=1")
@pytest.mark.parametrize("why", ["backup", "edit"])
def test_a_folder_that_is_kept_for_local_files_is_restored(desk: Mounted, why: str) -> None:
    """The restored folder and the kept one become one."""
    desk.allow("deleted on the service")
    folder = desk.root / "docs"
    desk.names(folder)
    if why == "edit":
        desk.command("pause")
    name = "report.md" if why == "edit" else "report.md~"
    (folder / name).write_bytes(b"mine")
    (former,) = delete(desk, "docs").values()
    eventually(lambda: "2026" not in desk.names(folder), what="the folder is deleted here, too")
    desk.command("restore", entries=["docs"], zone=desk.root.name)
    desk.command("resume")
    desk.sync()
    eventually(lambda: "2026" in desk.names(folder), what="the content is back")
    assert desk.zone.entry_id("docs") == former
    assert (folder / name).read_bytes() == b"mine"
