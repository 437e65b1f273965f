"""Edited files that a coworker has moved: they appear at the new place if its folder can be
shown."""

from collections.abc import Callable

import pytest

from tests.unit.sync.account import Account
from zonedrive.state import local_operations
from zonedrive.state.open_file import Session

ENTRY = r"GET /api/zones/\w+/files/\w+$"


def renamed(account: Account) -> None:
    account.bob.move("a", "b")


def moved(account: Account) -> None:
    account.bob.move("a", "f/a")


def moved_deep(account: Account) -> None:
    """Move the file into folders that are not known here."""
    for path in ("f/g", "f/g/h"):
        account.bob.make_folder(path)
    account.bob.move("a", "f/g/h/b")


def deleted(account: Account) -> None:
    account.bob.delete("a")


def into_a_removed_folder(account: Account) -> None:
    account.bob.move("a", "f/a")
    account.remove("f")


def while_renamed_here(account: Account) -> None:
    account.bob.move("a", "b")
    account.rename("a", "c")


def renamed_during_the_question(account: Account) -> None:
    account.bob.move("a", "f/a")
    account.meanwhile(ENTRY, lambda: account.rename("a", "c"))


def to_a_taken_name(account: Account) -> None:
    account.save("b", b"mine")
    account.bob.move("a", "b")


def without_an_answer(account: Account) -> None:
    account.bob.move("a", "f/a")
    account.world.fault(status=403, method="GET", path="/files/")


def replaced(account: Account) -> None:
    account.bob.move("a", "b")
    account.bob.write("a", b"another")


@pytest.mark.parametrize("how", ["saved", "open"])
@pytest.mark.parametrize(
    ("happened", "path"),
    [
        (renamed, "b"), (moved, "f/a"), (moved_deep, "f/g/h/b"), (deleted, "a"),
        (into_a_removed_folder, "a"), (while_renamed_here, "c"),
        (renamed_during_the_question, "c"), (without_an_answer, "a"), (replaced, "b"),
    ],
)  # fmt: skip
async def test_an_edited_file_follows(
    account: Account, happened: Callable[[Account], None], path: str, how: str
) -> None:
    """A file with local content is found by its id; a local rename wins."""
    account.bob.make_folder("f")
    account.bob.write("a", b"old")
    async with account.running():
        await account.folders.ensure(account.at("f"))
        inode, state = account.at("a"), account.state
        session = None
        if how == "saved":
            account.save("a", b"edited")
        else:
            generation = state.next_generation()
            file = state.spool.create(inode.ino, generation)
            session = Session(generation, file, inode.revision, 0, inode.revision)
            state.new_open_file(inode).session = session
        happened(account)
        await account.list()
        account.world.heal()
        assert state.path(inode.ino) == f"Zone/{path}"
        if session is not None:
            session.file.close()
        if path not in ("a", "c"):
            entry = await account.entry(inode)
            assert (inode.remote_parent, inode.remote_name) == (entry.parent_id, entry.name)
        if happened is replaced:
            assert account.at("a").remote_id == account.bob.entry_id("a")


async def test_a_name_that_is_taken_is_shown_with_a_mark(account: Account) -> None:
    """The local file of that name keeps it."""
    account.bob.write("a", b"old")
    async with account.running():
        inode = account.at("a")
        account.save("a", b"edited")
        to_a_taken_name(account)
        await account.list()
        assert inode.name.startswith("b~")
        assert inode.remote_name == "b"


async def test_a_file_without_local_content_does_not_ask(account: Account) -> None:
    """The next listing shows its new place; only files that would be lost are looked up."""
    for name in ("a", "b"):
        account.bob.write(name, b"old")
    async with account.running():
        account.save("b", b"edited")
        account.save("c", b"new")
        local = local_operations.create_file(account.state, account.zone, "d~", 0o600)
        account.bob.move("a", "x")
        account.world.requests.clear()
        await account.list()
        assert [each for each in account.world.requests if "/files/" in each] == []
        assert account.names_in() == {"b", "c", "d~", "x"}
        assert local.local


async def test_a_chain_of_folders_has_an_end(account: Account) -> None:
    """A cycle of folders in the service's answers ends the search."""
    account.bob.write("a", b"old")
    async with account.running():
        inode = account.at("a")
        account.save("a", b"edited")
        account.bob.make_folder("f")
        folder = account.bob.node("f")
        assert folder is not None
        account.bob.move("a", "f/a")
        folder.parent_id = folder.id
        account.world.requests.clear()
        await account.list()
        assert inode.name == "a"
        assert len(account.world.requests) < 70


@pytest.mark.parametrize("path", ["a", "b", "f/c"])
@pytest.mark.parametrize("is_known", [True, False])
async def test_no_file_follows_into_a_file(account: Account, path: str, is_known: bool) -> None:
    """An edited file stays in a folder, where programs find it, whatever the service answers."""
    account.bob.make_folder("f")
    for name in ("a", "b", "f/c"):
        account.bob.write(name, b"old")
    async with account.running():
        await account.list("f" if is_known else "")
        inode = account.at("a")
        account.save("a", b"edited")
        moved, target = account.bob.node("a"), account.bob.node(path)
        assert moved is not None and target is not None
        moved.parent_id = target.id
        await account.list()
        assert account.state.path(inode.ino) == "Zone/a"
