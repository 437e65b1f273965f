"""Folders that seem to contain each other, because a coworker has moved them in the meantime.

The last known place of an entry on the service may be out of date.
"""

import pytest

from tests.unit.sync.account import Account
from tests.unit.sync.test_taking_back import deny
from zonedrive.errors import Changed, ZonedriveError
from zonedrive.state import remote_operations
from zonedrive.sync.planner import InodeViews

pytestmark = pytest.mark.timeout(60)  # for walks that never end


async def test_walks_over_known_places_end(account: Account) -> None:
    """An earlier version may have stored such places."""
    account.bob.make_folder("a")
    account.bob.make_folder("b")
    account.bob.write("a/file", b"1")
    async with account.running():
        await account.folders.ensure(account.at("a"))
        state, a, b, file = account.state, account.at("a"), account.at("b"), account.at("a/file")
        with state.transaction():
            state.inodes.update(a, remote_parent=b.remote_id)
            state.inodes.update(b, remote_parent=a.remote_id)
        views = [InodeViews(state).describe(each.ino, {}) for each in (a, b, file)]
        inside = [view.inside for view in views if view is not None]
        assert inside == [(b.ino, a.ino), (a.ino, b.ino), (a.ino, b.ino)]
        account.rename("a/file", "file")
        account.remove("a")
        account.remove("b")
        assert [state.path(each.ino) for each in (a, b)] == ["b/a", "a/b"]
        assert list(state.inodes.and_above(a)) == [a, b]
        deny(account)
        with pytest.raises(ZonedriveError):
            await account.names.move(account.intent(file), file)


async def test_a_new_folder_at_the_place_of_one_above_it(account: Account) -> None:
    """The folder between the two was moved by a coworker, and is listed at its new place first."""
    account.bob.make_folder("outer")
    account.bob.make_folder("outer/middle")
    async with account.running():
        await account.folders.ensure(account.at("outer"))
        await account.folders.ensure(account.at("outer/middle"))
        intent, new = account.make("outer/middle/new"), account.at("outer/middle/new")
        outer_id = account.at("outer").remote_id
        account.bob.move("outer/middle", "middle")
        account.bob.move("outer", "middle/new")
        with pytest.raises(Changed):
            await account.names.make(intent, new)
        assert account.state.path(new.ino) == "Zone/middle/new"  # as new listings show
        await account.names.make(intent, new)
        assert account.at("middle/new") is new
        assert new.remote_id == outer_id
        assert account.left() == {}


async def test_an_upload_that_is_answered_with_the_folder_above_it(account: Account) -> None:
    """The folder stays where it is; it cannot be the file that was sent."""
    account.bob.make_folder("outer")
    account.bob.make_folder("outer/inner")
    account.bob.write("outer/inner/file", b"1")
    async with account.running():
        await account.folders.ensure(account.at("outer"))
        await account.folders.ensure(account.at("outer/inner"))
        outer, file = account.at("outer"), account.at("outer/inner/file")
        account.save("outer/inner/file", b"2")
        request = account.ask(file)
        wrong, current = await account.entry(outer), await account.entry(file)
        remote_operations.discard_sent(account.state, file, request, current, sent_to=wrong)
        assert account.state.path(outer.ino) == "Zone/outer"
        assert account.state.path(file.ino) == "Zone/outer/inner/file"
