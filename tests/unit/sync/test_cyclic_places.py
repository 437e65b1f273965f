"""Folders that seem to contain each other, because a coworker has moved them in the meantime.

The last known place of an entry on the service may be out of date.
"""

from pathlib import Path

import pytest

from tests.unit.sync.account import Account
from tests.unit.sync.test_taking_back import deny
from zonedrive.errors import ZonedriveError
from zonedrive.sync.planner import InodeViews

pytestmark = pytest.mark.timeout(60)  # for walks that never end


async def test_walks_over_known_places_end(tmp_path: Path) -> None:
    """An earlier version may have stored such places."""
    account = Account(tmp_path)
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
