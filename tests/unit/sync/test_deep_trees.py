"""Trees that are deeper than Python's limit of nested calls."""

import sys
import time
from collections.abc import Iterator

import pytest

from tests.harness.in_process import ALICE
from tests.unit.sync.account import Account
from zonedrive.state import local_operations
from zonedrive.state.inode import Inode
from zonedrive.sync.planner import InodeViews

CALLS = 500  # Python's usual limit is 1000
DEPTH = CALLS + 100


@pytest.fixture(autouse=True)
def _few_calls() -> Iterator[None]:
    """Limit nested calls, because the trees take time."""
    usual = sys.getrecursionlimit()
    sys.setrecursionlimit(CALLS)
    yield
    sys.setrecursionlimit(usual)


async def known(account: Account) -> list[Inode]:
    """Make a folder in a folder and so on; list all of them, and return them, topmost first."""
    node = account.world.zones[account.bob.id].root_id
    for _ in range(DEPTH):
        node = account.world.make_folder(account.bob.id, node, "d", ALICE).id
    await account.list()
    found = [account.zone]
    for _ in range(DEPTH):
        await account.folders.ensure(found[-1])
        child = account.state.inodes.child(found[-1].ino, "d")
        assert child is not None
        found.append(child)
    return found[1:]


@pytest.mark.parametrize("has_edit", [False, True])
async def test_a_deep_tree_is_deleted_by_a_coworker(account: Account, has_edit: bool) -> None:
    """All folders go, or those without local changes; the lowest one asks for those above it."""
    async with account.running():
        folders = await known(account)
        if has_edit:
            local_operations.make_folder(account.state, folders[-1], "new", 0o755)
        account.bob.delete("d")
        await account.folders.refresh(folders[-1], time.monotonic_ns())
        left = account.state.inodes.children(account.zone.ino)
        assert set(left) == ({"d"} if has_edit else set())
        assert all(folder.is_new for folder in folders if has_edit)


async def test_a_deep_tree_is_removed_by_a_program(account: Account) -> None:
    """The folder is deleted on the service as a whole."""
    async with account.running():
        (top, *_) = await known(account)
        local_operations.remove_whole(account.state, top)
        await account.names.delete(account.intent(top), top)
        assert set(account.bob.tree()) == set()
        assert account.state.inodes.children(account.zone.ino) == {}


async def test_the_outbox_plans_in_a_deep_tree(account: Account) -> None:
    """The plan knows all folders above a changed entry."""
    async with account.running():
        folders = [account.zone, *await known(account)]
        view = InodeViews(account.state).describe(folders[-1].ino, {})
        assert view is not None
        assert view.inside == tuple(folder.ino for folder in folders[-2::-1])
