"""Refused moves: entries return to the service's places together, or none of them does."""

import re

import pytest

from tests.unit.sync.account import Account, stale
from zonedrive.errors import ZonedriveError
from zonedrive.state import local_operations
from zonedrive.state.inode import Inode
from zonedrive.state.pending_requests import PendingRequest


def deny(account: Account) -> None:
    """Have the service refuse all moves."""
    account.world.fault(status=403, method="PUT", path="^/api/sandbox/")


async def move(account: Account, inode: Inode) -> None:
    """Send the move of an inode."""
    await account.names.move(account.intent(inode), inode)


def said(account: Account) -> list[str]:
    """Return the beginnings of the messages about changes that were taken back."""
    found = account.state.refusals.unacknowledged()
    return sorted(f"{each.path}: {each.said.partition(': ')[0]}" for each in found)


def tree(account: Account) -> dict[str, str]:
    """Return the remote name of each entry by its local path."""
    inodes = account.state.inodes.below(account.zone.ino)
    return {
        account.state.path(each.ino).removeprefix("Zone/"): each.remote_name or ""
        for each in inodes
        if each is not account.zone
    }


async def test_a_refused_move_to_another_folder(account: Account) -> None:
    """The message tells what happened to the name."""
    account.bob.make_folder("f")
    account.bob.write("a", b"old")
    async with account.running():
        inode = account.at("a")
        account.rename("a", "f/a")
        deny(account)
        await move(account, inode)
        assert said(account) == ["Zone/a: the move of 'a' was undone"]
        assert tree(account) == {"a": "a", "f": "f"}
        assert account.left() == {}


@pytest.mark.parametrize("other", ["waits", "in flight", "asked", "stays"])
async def test_a_place_that_another_entry_has(account: Account, other: str) -> None:
    """The other entry returns as well, unless its own move may be done, or it is there for good."""
    for name in ("a", "c"):
        account.bob.write(name, name.encode())
    async with account.running():
        first, second, state = account.at("a"), account.at("c"), account.state
        account.rename("a", "b")
        if other == "stays":
            account.bob.move("a", "x")
            account.bob.move("c", "a")
            await account.list()
            account.bob.move("a", "y")
            account.bob.move("x", "a")
            with state.transaction():
                state.inodes.update(first, remote_name="a")
        else:
            account.rename("c", "a")
        if other == "in flight":
            state.in_flight[second.ino] = account.intent(second)
        if other == "asked":
            state.record_request(
                PendingRequest(
                    second.ino, second.ino, 0, 0, second.zone, "p", "a", second.remote_id
                )
            )
        deny(account)
        if other == "waits":
            await move(account, first)
            assert said(account) == [
                "Zone/a: the rename to 'b' was undone", "Zone/c: the rename to 'a' was undone"
            ]  # fmt: skip
            assert tree(account) == {"a": "a", "c": "c"}
            assert account.left() == {}
            return
        before = tree(account)
        if other == "stays":
            await move(account, first)
            (shown,) = tree(account).keys() - before.keys()
            assert re.fullmatch("a~[0-9a-f]{8}", shown)
            assert said(account) == [f"Zone/{shown}: the rename to 'b' was undone"]
            return
        with pytest.raises(ZonedriveError):
            await move(account, first)
        assert tree(account) == before
        assert said(account) == []
        assert account.left()["Zone/b"] == "MOVED"


async def test_a_place_in_a_folder_that_is_not_shown(account: Account) -> None:
    """The entry cannot return, so the refusal is an error of its move."""
    account.bob.write("a", b"old")
    async with account.running():
        inode = account.at("a")
        account.rename("a", "b")
        account.bob.make_folder("f")
        account.bob.move("a", "f/a")
        deny(account)
        with pytest.raises(ZonedriveError):
            await move(account, inode)
        assert tree(account) == {"b": "a"}
        assert said(account) == []
        assert account.left() == {"Zone/b": "MOVED"}


async def test_a_rename_during_the_lookup_after_a_refusal(account: Account) -> None:
    """The next step looks up the place again, so the answer from before the rename is ignored."""
    account.bob.write("a", b"old")
    async with account.running():
        inode = account.at("a")
        account.rename("a", "b")
        account.bob.move("a", "x")
        deny(account)
        account.meanwhile(r"GET /api/zones/\w+/files/\w+$", lambda: account.rename("b", "c"))
        with stale():
            await move(account, inode)
        assert tree(account) == {"c": "a"}
        assert account.left() == {"Zone/c": "MOVED"}
        assert said(account) == []


async def test_two_exchanged_names_of_which_one_has_a_temporary_name(account: Account) -> None:
    """The file with the temporary name gets the place that becomes free, and is moved there."""
    for name in ("a", "b"):
        account.bob.write(name, name.encode())
    async with account.running():
        first, second = account.at("a"), account.at("b")
        local_operations.exchange(account.state, first, second)
        await account.names.move(account.intent(first), first, aside=True)
        deny(account)
        with pytest.raises(ZonedriveError):
            await move(account, first)
        await move(account, second)
        assert account.at("a") is first
        assert account.at("b") is second
        assert account.left() == {"Zone/a": "MOVED"}
        assert said(account) == [
            "Zone/a: the rename to 'b' was undone",
            "Zone/b: the rename to 'a' was undone",
        ]


@pytest.mark.parametrize("removed", ["all", "inner", "in flight", "none"])
async def test_the_removed_folders_of_a_refused_move(account: Account, removed: str) -> None:
    """Each folder above the former place is shown again; a running removal is not stopped."""
    for name in ("f", "f/g"):
        account.bob.make_folder(name)
    account.bob.write("f/g/a", b"old")
    async with account.running():
        for path in ("f", "f/g"):
            await account.folders.ensure(account.at(path))
        inode, outer = account.at("f/g/a"), account.at("f")
        account.rename("f/g/a", "b")
        if removed != "none":
            account.remove("f/g")
        if removed in ("all", "in flight"):
            account.remove("f")
        if removed == "in flight":
            account.state.in_flight[outer.ino] = account.intent(outer)
        deny(account)
        if removed == "in flight":
            with pytest.raises(ZonedriveError):
                await move(account, inode)
            assert account.state.path(inode.ino) == "Zone/b"
            return
        await move(account, inode)
        assert account.state.path(inode.ino) == "Zone/f/g/a"
        assert account.left() == {}
        assert len(said(account)) == (1 if removed == "none" else 2)
