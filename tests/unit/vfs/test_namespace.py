"""Names that change while an operation on them waits for the service."""

from typing import cast

import pytest

from tests.unit.state.disk import SILENT, zone_of
from zonedrive.state.inode import Inode, Kind
from zonedrive.state.local_state import LocalState
from zonedrive.sync.directory_cache import DirectoryCache
from zonedrive.sync.dispatcher import Dispatcher
from zonedrive.vfs.caller_policy import CallerPolicy
from zonedrive.vfs.files import Files
from zonedrive.vfs.namespace import Namespace


@pytest.mark.parametrize("kind", [Kind.FOLDER, Kind.FILE])
async def test_an_entry_that_was_renamed_meanwhile_is_not_removed(
    state: LocalState, kind: Kind
) -> None:
    """A coworker's rename may arrive while a removal waits for the service."""
    zone = zone_of(state)
    with state.transaction():
        entry = state.inodes.add(
            zone.ino, "plans", kind, zone="z", remote_id="1", remote_parent="root", listed=True
        )

    def rename(inode: Inode) -> None:
        if inode is entry:
            with state.transaction():
                state.inodes.move(entry, zone.ino, "kept", remote_name="kept")

    class Folders(DirectoryCache):
        async def ensure(self, folder: Inode) -> None:
            rename(folder)

    class Names(Namespace):
        async def cancel_upload(self, inode: Inode, operation: str) -> None:
            rename(inode)

    folders, dispatcher = Folders(state, SILENT), cast(Dispatcher, None)
    files = Files(state, SILENT, folders, dispatcher, CallerPolicy(()))
    names = Names(state, SILENT, folders, files, dispatcher)
    remove = names.rmdir if kind is Kind.FOLDER else names.unlink
    with pytest.raises(FileNotFoundError):
        await remove(zone.ino, b"plans")
    assert state.inodes.child(zone.ino, "kept") is entry
    assert state.intents.get(entry.ino) is None
