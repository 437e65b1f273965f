"""Removals and renames that the service refuses are reverted, and reported once."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.harness import world
from tests.harness.machine import Mounted
from tests.harness.waiting import eventually

NOTES = world.SEED["notes.txt"]
ENTRIES = "/api/sandbox/zones/[^/]+/entries/"

# Nothing is sent before all operations are done: the test then triggers the sending.
pytestmark = pytest.mark.mount("settle=600")


@contextmanager
def refusing(desk: Mounted, status: int, method: str, entry: str = "") -> Iterator[None]:
    """Let the service refuse removals (DELETE) or renames (PUT), of one entry or all."""
    desk.allow("refused")
    with desk.deployment.faulty(status=status, method=method, path=ENTRIES + entry):
        yield


def tell_removals(desk: Mounted) -> None:
    """Send pending removals now, without a report of the results."""
    desk.command("trash", zone=desk.root.name)


def told_once(desk: Mounted, *words: str) -> None:
    """Check that `status` reports the refusal until `sync` does with exit code 1, and not
    afterwards."""
    eventually(lambda: "notice" in desk.status(), what="the refusal came")
    said = desk.status()["notice"]
    answer = desk.command("sync", timeout=20)
    (taken_back,) = answer["taken_back"]
    assert answer["exit"] == 1
    for word in words:
        assert word in said
        assert word in f"{taken_back['path']}: {taken_back['error']}"
    assert desk.try_sync(seconds=20) == 0
    found = desk.status()
    assert "notice" not in found
    assert (found["uploads"], found["outbox"]["failed"]) == ([], 0)


@pytest.mark.also_mounted(status=403)
@pytest.mark.parametrize("status", [400, 403, 404])
def test_a_file_whose_removal_is_refused_is_here_again(desk: Mounted, status: int) -> None:
    """The file is back with its bytes and its history; a later allowed removal succeeds."""
    path, entry = desk.root / "notes.txt", desk.zone.entry_id("notes.txt")
    with refusing(desk, status, "DELETE"):
        path.unlink()
        assert not path.exists()
        tell_removals(desk)
        told_once(desk, "notes.txt: the removal was undone", f"HTTP {status}")
    assert path.read_bytes() == NOTES
    assert desk.xattr(path, "user.zonedrive.id") == entry
    path.unlink()
    desk.sync()
    assert desk.zone.find("notes.txt") is None


def test_a_removal_and_its_lookup_are_refused(desk: Mounted) -> None:
    """A refused lookup does not mean that the file is deleted: the file is back."""
    path = desk.root / "notes.txt"
    desk.allow("refused")
    with desk.deployment.faulty(status=403, path="^/api/.*/(entries|files)/"):
        path.unlink()
        tell_removals(desk)
        told_once(desk, "notes.txt: the removal was undone", "HTTP 403")
    assert path.read_bytes() == NOTES


def test_a_refused_removal_of_a_file_that_is_gone_is_done(desk: Mounted) -> None:
    """A coworker deleted the file, too: it does not come back, and no refusal is reported."""
    path = desk.root / "notes.txt"
    with refusing(desk, 403, "DELETE"):
        path.unlink()
        desk.zone.delete("notes.txt")
        tell_removals(desk)
        assert desk.try_sync(seconds=20) == 0
    assert "notice" not in desk.status()
    assert not path.exists()


def test_a_tree_whose_removal_is_refused_is_here_again(desk: Mounted) -> None:
    """A shell removes entry by entry: every file and folder is back."""
    before = desk.zone.tree("docs")
    folder = desk.root / "docs"
    desk.allow("has new entries on the service")
    with refusing(desk, 403, "DELETE"):
        for path in sorted(folder.rglob("*"), reverse=True):
            (path.rmdir if path.is_dir() else path.unlink)()
        folder.rmdir()
        assert not folder.exists()
        tell_removals(desk)
        eventually(lambda: not desk.status()["uploads"], what="all is taken back")
        assert desk.try_sync(desk.root / "empty") == 0
        answer = desk.command("sync", paths=[str(desk.root / "docs/2026")], timeout=30)
        assert answer["exit"] == 1
        (file,) = (one for one in answer["taken_back"] if one["path"].endswith("q1.csv"))
        assert file["path"] == f"{desk.root.name}/docs/2026/q1.csv"
        assert desk.try_sync(desk.root) == 1
        eventually(lambda: desk.try_sync() == 0, what="it was said once")
    assert {
        f"docs/{path.relative_to(folder)}": None if path.is_dir() else path.read_bytes()
        for path in folder.rglob("*")
    } == before
    assert desk.zone.tree("docs") == before


@pytest.mark.parametrize("is_trashed", [False, True], ids=["rm -r", "trash"])
def test_a_refused_move_out_of_a_removed_folder(desk: Mounted, is_trashed: bool) -> None:
    """The folder cannot be removed while its entry cannot leave it: both are back, with one
    report."""
    before = desk.zone.tree()
    desk.allow("refused", "has new entries on the service")
    folder = desk.root / "docs"
    with desk.deployment.faulty(status=403, path="^/api/.*/(entries|files)/"):
        (folder / "2026/q1.csv").rename(desk.root / "q1.csv")
        if is_trashed:
            folder.rename(desk.path / f".Trash-{os.getuid()}/files/docs")
        else:
            desk.remove_tree(folder)
        assert desk.try_sync(seconds=30) == 1
        eventually(lambda: desk.try_sync() == 0, what="it was said once")
    found = desk.status()
    assert (found["uploads"], found["outbox"]["failed"]) == ([], 0)
    assert not (desk.root / "q1.csv").exists()
    assert {
        str(path.relative_to(desk.root)): None if path.is_dir() else path.read_bytes()
        for path in desk.root.rglob("*")
    } == before
    assert desk.zone.tree() == before


def test_a_new_file_in_the_place_of_a_refused_removal(desk: Mounted) -> None:
    """The old file was trashed with its identity, so that no new file takes over its history."""
    path = desk.root / "notes.txt"
    with refusing(desk, 403, "DELETE"):
        path.rename(desk.path / f".Trash-{os.getuid()}/files/notes.txt")
        path.write_bytes(b"another\n")
        desk.allow("a conflict copy")
        tell_removals(desk)
        told_once(desk, "notes.txt: the removal was undone")
    assert path.read_bytes() == NOTES
    assert desk.zone.read("notes.txt") == NOTES
    (copy,) = (each for each in desk.root.iterdir() if "conflict" in each.name)
    assert copy.read_bytes() == b"another\n"
    desk.sync()
    assert desk.zone.read(copy.name) == b"another\n"


@pytest.mark.parametrize("is_folder", [False, True], ids=["file", "folder"])
@pytest.mark.parametrize("place", ["new", "docs/new"])
def test_a_rename_over_an_entry_whose_removal_is_refused(
    desk: Mounted, place: str, is_folder: bool
) -> None:
    """Both entries are as before, without a conflict copy."""
    for path in ("old", place):
        if is_folder:
            desk.zone.make_folder(path)
        else:
            desk.zone.write(path, path.encode())
    if is_folder:
        desk.zone.write(f"{place}/in", b"in")
    before = desk.zone.tree()
    eventually(lambda: (desk.root / "old").exists(), what="the entries show")
    with refusing(desk, 403, "DELETE", desk.zone.entry_id("old")):
        (desk.root / place).rename(desk.root / "old")
        tell_removals(desk)
        answer = desk.command("sync", timeout=20)
    assert {each["path"] for each in answer["taken_back"]} == {
        f"{desk.root.name}/{path}" for path in ("old", place)
    }
    desk.sync()
    assert desk.zone.tree() == before
    assert not desk.conflicts()
    assert (desk.root / place).exists()
    eventually(lambda: (desk.root / "old").exists(), what="the entry is back")


@pytest.mark.also_mounted(status=403)
@pytest.mark.mount("settle=0.2")
@pytest.mark.parametrize("status", [403, 404])
def test_a_refused_rename_goes_back(desk: Mounted, status: int) -> None:
    """An edit of the renamed file becomes a version under its former name; no data are lost.

    A 404 about an existing entry is a refusal, too: the profile may have a wrong path.
    """
    path, new = desk.root / "notes.txt", desk.root / "renamed.txt"
    entry = desk.zone.entry_id("notes.txt")
    with refusing(desk, status, "PUT"):
        with path.open("ab") as file:
            path.rename(new)
            file.write(b"more\n")
        told_once(desk, "notes.txt: the rename to 'renamed.txt' was undone", f"HTTP {status}")
        assert not new.exists()
        assert path.read_bytes() == NOTES + b"more\n"
    assert desk.zone.read("notes.txt") == NOTES + b"more\n"
    assert desk.zone.entry_id("notes.txt") == entry


def test_names_whose_exchange_is_refused_are_as_they_were(desk: Mounted) -> None:
    """The same holds for a chain of renames, of which the last had to wait for the first."""
    first, second = desk.root / "notes.txt", desk.root / "docs/report.md"
    with refusing(desk, 403, "PUT"):
        second.rename(desk.root / "third")
        first.rename(second)
        assert desk.try_sync(seconds=30) == 1
        eventually(lambda: desk.try_sync() == 0, what="it was said once")
    assert first.read_bytes() == NOTES
    assert second.read_bytes() == world.SEED["docs/report.md"]
    assert not (desk.root / "third").exists()


@pytest.mark.parametrize("refused", ["notes.txt", "docs/report.md"])
def test_a_partly_refused_exchange_leaves_no_temporary_name(desk: Mounted, refused: str) -> None:
    """The temporary name is removed, whichever of the two files had it on the service."""
    first, second = desk.root / "notes.txt", desk.root / "docs/report.md"
    before = desk.zone.tree()
    with refusing(desk, 403, "PUT", desk.zone.entry_id(refused)):
        first.rename(desk.root / "third")
        second.rename(first)
        (desk.root / "third").rename(second)
        assert desk.try_sync(seconds=30) == 1
    desk.sync()
    assert desk.zone.tree() == before
    assert first.read_bytes() == NOTES
    assert second.read_bytes() == world.SEED["docs/report.md"]
    assert not (desk.root / "third").exists()


def test_a_removal_above_a_folder_that_stays_is_not_undone(desk: Mounted) -> None:
    """Only the folders that are removed here between a refused move and its former place return."""
    root = desk.root
    desk.allow("refused", "has new entries")
    for path in ("a", "a/b", "a/b/c"):
        (root / path).mkdir()
    (root / "a/b/c/f").write_bytes(b"f")
    desk.sync()
    file = desk.zone.entry_id("a/b/c/f")
    desk.deployment.fault(status=403, method="PUT", path=f"/{file}$")
    desk.deployment.fault(status=503, method="PUT", path=f"/{desk.zone.entry_id('a/b')}$")
    (root / "a/b/c/f").rename(root / "f")
    (root / "a/b/c").rmdir()
    (root / "a/b").rename(root / "b")
    (root / "a").rmdir()
    desk.try_sync(seconds=30)
    desk.deployment.heal()
    desk.try_sync(seconds=30)
    desk.sync()
    assert desk.zone.tree("b") == {"b/c": None, "b/c/f": b"f"}
    assert desk.zone.find("a") is None


@pytest.mark.mount("settle=0")
@pytest.mark.parametrize("is_new", [False, True], ids=["rename", "new folder"])
def test_a_name_that_the_service_refuses_and_does_not_list(desk: Mounted, is_new: bool) -> None:
    """The user is told after some attempts, and the change is sent once the name is free."""
    desk.allow("refused", "already exists")
    with desk.deployment.faulty(status=409, method="POST" if is_new else "PUT", path="^/api/"):
        if is_new:
            (desk.root / "new").mkdir()
        else:
            (desk.root / "notes.txt").rename(desk.root / "new")
        eventually(lambda: desk.status()["outbox"]["failed"], what="the refusal is shown")
        (upload,) = desk.status()["uploads"]
        assert "409" in upload["error"]
    desk.sync()
    assert desk.zone.find("new") is not None


def test_folders_that_would_go_back_into_each_other_stay_in_reach(desk: Mounted) -> None:
    """After the refusal they stay at their new places, and are moved once it is allowed."""
    root = desk.root
    for path in ("far", "far/deep", "far/deep/x", "near", "near/y", "top"):
        (root / path).mkdir()
    desk.sync()
    with refusing(desk, 403, "PUT"):
        (root / "far/deep/x").rename(root / "top/x")
        (root / "near/y").rename(root / "far/deep/x")
        (root / "far/deep").rename(root / "near/y")
        (root / "far").rename(root / "top/x/far")
        assert desk.try_sync(seconds=20) == 1
        assert (root / "near/y/x").is_dir()
        assert (root / "top/x/far").is_dir()
    desk.sync()
    assert {path for path in desk.zone.tree() if path.startswith(("top", "near", "far"))} == {
        "top", "top/x", "top/x/far", "near", "near/y", "near/y/x"
    }  # fmt: skip


def test_where_the_former_name_is_in_use_a_refused_rename_waits(desk: Mounted) -> None:
    """The failure is reported, and the rename succeeds once it is allowed."""
    path, new = desk.root / "big.bin", desk.root / "renamed.bin"
    with refusing(desk, 403, "PUT"):
        path.rename(new)
        path.mkdir()
        answer = desk.command("sync", timeout=20)
        assert answer["exit"] == 1
        assert any(one["path"].endswith("renamed.bin") for one in answer["failed"])
        assert path.is_dir()
        with pytest.raises(OSError, match=os.strerror(errno.EISDIR)):
            path.read_bytes()
        assert new.read_bytes() == world.SEED["big.bin"]
    desk.sync()
    assert desk.zone.read("renamed.bin") == world.SEED["big.bin"]


@pytest.mark.mount("settle=0", "refresh=1")
@pytest.mark.parametrize("kind", ["long", "second"])
def test_a_refused_rename_goes_back_to_a_name_with_a_mark(desk: Mounted, kind: str) -> None:
    """The entry is shown as before, although its name on the service cannot be used here."""
    name = {"long": "x" * 300 + ".txt", "second": "a\tb.txt"}[kind]
    if kind == "second":
        desk.zone.write("a\u2409b.txt", b"other")
        eventually(lambda: "a\u2409b.txt" in desk.names(desk.root), what="the first one shows")
    before = {*desk.names(desk.root)}
    desk.zone.write(name, b"by Bob")
    eventually(lambda: {*desk.names(desk.root)} - before, what="the entry shows")
    (shown,) = {*desk.names(desk.root)} - before
    with refusing(desk, 403, "PUT"):
        (desk.root / shown).rename(desk.root / "new.txt")
        eventually(lambda: shown in desk.names(desk.root), what="the rename is undone")
        assert (desk.root / shown).read_bytes() == b"by Bob"
        told_once(desk, "new.txt")
