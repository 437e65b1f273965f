"""Folders that a coworker has moved, of which the listing of the former place comes first."""

import re
from pathlib import Path
from typing import Any

import pytest

from tests.unit.sync.account import Account, stale
from zonedrive.causes import Cause
from zonedrive.errors import Rejected
from zonedrive.state import local_operations
from zonedrive.sync import moved_entries

ENTRY = re.compile(r"GET /api/zones/\w+/files/\w+$")


def with_two_folders(tmp_path: Path) -> Account:
    account = Account(tmp_path)
    account.bob.make_folder("a")
    account.bob.make_folder("b")
    return account


async def test_a_moved_folder_keeps_its_inode_and_its_entries(tmp_path: Path) -> None:
    """A program may be in it, or have a file in it open."""
    account = with_two_folders(tmp_path)
    account.bob.write("a/f", b"old")
    async with account.running():
        await account.folders.ensure(account.at("a"))
        folder, file = account.at("a"), account.at("a/f")
        account.bob.move("a", "b/c")
        await account.list()
        assert account.at("b/c") is folder
        assert account.at("b/c/f") is file
        assert account.names_in() == {"b"}
        await account.list("b")
        await account.list("b/c")
        assert account.at("b/c/f") is file
        account.bob.delete("b/c")
        await account.list("b")
        assert account.names_in("b") == set()


async def test_an_edit_in_a_moved_folder_follows(tmp_path: Path) -> None:
    """The folder is not created again at its former place."""
    account = with_two_folders(tmp_path)
    account.bob.write("a/f", b"old")
    async with account.running():
        await account.folders.ensure(account.at("a"))
        intent = account.save("a/f", b"edited")
        account.bob.move("a", "b/c")
        await account.list()
        await account.uploads.upload(intent, account.at("b/c/f"))
        assert account.bob.read("b/c/f") == b"edited"
        assert set(account.bob.listing()) == {"b"}


async def test_folders_that_have_changed_places(account: Account) -> None:
    """The inner folder becomes the outer one; nothing is below itself."""
    account.bob.make_folder("a")
    account.bob.make_folder("a/b")
    async with account.running():
        await account.folders.ensure(account.at("a"))
        account.bob.move("a/b", "b")
        account.bob.move("a", "b/a")
        await account.list()
        await account.list("b")
        assert account.names_in() == {"b"}
        assert account.names_in("b") == {"a"}


async def test_a_renamed_folder_stays_where_it_is_here(tmp_path: Path) -> None:
    """A local rename that is not sent yet wins."""
    account = with_two_folders(tmp_path)
    async with account.running():
        account.rename("a", "c")
        account.bob.move("a", "b/d")
        await account.list()
        assert account.names_in() == {"b", "c"}


@pytest.mark.parametrize(("count", "asked"), [(8, 8), (9, 0)])
async def test_many_missing_folders_are_taken_for_deleted(
    account: Account, count: int, asked: int
) -> None:
    """A listing does not wait for many requests."""
    assert moved_entries.FOLDERS == 8
    for number in range(count):
        account.bob.make_folder(f"{number}")
    async with account.running():
        for number in range(count):
            account.bob.delete(f"{number}")
        account.world.requests.clear()
        await account.list()
        assert account.names_in() == set()
        assert sum(map(bool, map(ENTRY.match, account.world.requests))) == asked


@pytest.mark.parametrize("is_moved", [True, False])
async def test_own_folders_do_not_count_as_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_moved: bool
) -> None:
    """Many folders that were moved here and not sent yet, or created since the listing."""
    account = with_two_folders(tmp_path)
    names = [f"{number}" for number in range(moved_entries.FOLDERS)]
    account.bob.make_folder("a/c")
    for name in names:
        account.bob.make_folder(name)
    async with account.running():
        await account.folders.ensure(account.at("a"))
        folder, listed, top = account.at("a/c"), account.service.listed, account.at("a").remote_id

        async def late(zone: str, folder_id: str) -> Any:
            answer = await listed(zone, folder_id)
            for name in () if is_moved or folder_id != top else names:
                await account.names.make(account.make(f"a/{name}"), account.at(f"a/{name}"))
            return answer

        monkeypatch.setattr(account.service, "listed", late)
        for name in names if is_moved else ():
            account.rename(name, f"a/{name}")
        account.bob.move("a/c", "b/c")
        account.world.requests.clear()
        await account.list("a")
        assert account.at("b/c") is folder
        assert account.names_in("a") == {*names}
        assert sum(map(bool, map(ENTRY.match, account.world.requests))) == 1


async def test_an_edit_follows_beside_a_folder_whose_place_is_unknown(tmp_path: Path) -> None:
    """The edited file has its new name at once."""
    account = with_two_folders(tmp_path)
    account.bob.write("f", b"old")
    async with account.running():
        account.save("f", b"edited")
        account.bob.move("a", "b/a")
        account.bob.move("f", "b/f")
        path = f"/files/{account.at('a').remote_id}"
        account.world.fault(status=403, method="GET", path=path)
        await account.list()
        assert account.names_in() == {"b"}
        assert account.names_in("b") == {"f"}


async def test_an_older_listing_of_the_new_place_arrives_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The listing does not have the folder yet, and does not remove it."""
    account = with_two_folders(tmp_path)
    async with account.running():
        await account.folders.ensure(account.at("b"))
        folder, listed = account.at("a"), account.service.listed

        async def late(zone: str, folder_id: str) -> Any:
            answer = await listed(zone, folder_id)
            if folder_id == account.at("b").remote_id:
                account.bob.move("a", "b/c")
                await account.list()
            return answer

        monkeypatch.setattr(account.service, "listed", late)
        await account.list("b")
        assert account.at("b/c") is folder


@pytest.mark.parametrize("path", ["f", "b/f"])
async def test_a_moved_folder_repeats_what_failed_beside_it(tmp_path: Path, path: str) -> None:
    """The folder may have been the reason, at the former or at the new place."""
    account, far = with_two_folders(tmp_path), 1 << 62
    async with account.running():
        await account.folders.ensure(account.at("b"))
        account.state.intents.postpone(account.save(path, b"new"), far, "no", Cause.REFUSED)
        account.bob.move("a", "b/a")
        await account.list()
        await account.list("b")
        assert account.intent(account.at(path)).due_ns < far


@pytest.mark.parametrize("place", ["b/c/a", "b/c/new/a"])
async def test_a_folder_is_not_moved_into_the_trash(tmp_path: Path, place: str) -> None:
    """A folder that was removed here, with all it contains, is then kept on the service."""
    account = with_two_folders(tmp_path)
    account.bob.make_folder("b/c")
    account.bob.write("a/f", b"work")
    async with account.running():
        for path in ("a", "b", "b/c"):
            await account.list(path)
        removed = account.at("b")
        local_operations.remove_whole(account.state, removed)
        if "new" in place:
            account.bob.make_folder("b/c/new")
        account.bob.move("a", place)
        await account.list()
        await account.names.delete(account.intent(removed), removed)
        assert f"{place}/f" in account.bob.tree()


async def test_an_undone_cycle_leaves_a_rename_within_a_folder(tmp_path: Path) -> None:
    """Only the moves to other folders could put a folder below itself."""
    account = Account(tmp_path)
    for each in ("f", "f/a", "f/a/q", "t"):
        account.bob.make_folder(each)
    async with account.running():
        await account.list("f")
        await account.list("f/a")
        outer, inner, renamed = account.at("f"), account.at("f/a"), account.at("f/a/q")
        account.rename("f/a/q", "f/a/p")
        intent = account.rename("f/a", "t/a")
        account.rename("f", "t/a/p/f")
        account.bob.move("t", "f/a/t")
        assert intent is not None
        await account.names.move(intent, inner)
        assert [account.at("f"), account.at("f/a"), account.at("f/a/p")] == [outer, inner, renamed]
        assert account.left() == {"Zone/f/a/p": "MOVED"}


async def test_a_folder_with_a_temporary_name_keeps_its_name_when_a_cycle_is_undone(
    tmp_path: Path,
) -> None:
    """The folder does not get the name of the one whose move is undone."""
    account = Account(tmp_path)
    for each in ("f", "f/a", "t"):
        account.bob.make_folder(each)
    async with account.running():
        await account.list("f")
        outer, inner = account.at("f"), account.at("f/a")
        intent = account.rename("f/a", "t/a")
        aside = account.rename("f", "t/a/f")
        assert intent is not None
        assert aside is not None
        await account.names.move(aside, outer, aside=True)
        account.bob.move("t", f"{outer.remote_name}/a/t")
        await account.names.move(intent, inner)
        assert [account.at("f"), account.at("f/a")] == [outer, inner]
        assert account.left() == {"Zone/f": "MOVED"}


@pytest.mark.parametrize("kind", ["file", "folder"])
async def test_a_removal_during_a_move_that_the_service_rejects(tmp_path: Path, kind: str) -> None:
    """The outdated move ends, and is not a failure of zonedrive."""
    account = Account(tmp_path)
    (account.bob.make_folder if kind == "folder" else lambda at: account.bob.write(at, b"x"))("a")
    account.bob.make_folder("b")
    async with account.running():
        inode = account.at("a")
        intent = account.rename("a", "b/a")
        assert intent is not None

        async def refuse(*_: object, **__: object) -> None:
            account.remove("b/a")
            raise Rejected("no")

        account.service.move = refuse  # type: ignore[method-assign, assignment]
        with stale():
            await account.names.move(intent, inode)
        assert account.left() == {"-Zone/a": "REMOVED"}
