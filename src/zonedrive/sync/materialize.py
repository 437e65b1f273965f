"""Copies of the service's bytes in the spool, which stay whatever happens on the service."""

from zonedrive.errors import Changed, NotFound
from zonedrive.remote.service import Service
from zonedrive.state import local_operations
from zonedrive.state.inode import Inode
from zonedrive.state.local_state import LocalState
from zonedrive.state.merge_types import Local

TRIES = 5  # downloads of one file that each find a newer version than the last


async def materialize(state: LocalState, service: Service, inode: Inode) -> None:
    """Copy the bytes of the service's version into the spool, as a local generation.

    If a program writes in the meantime, its bytes are kept instead.  If the service has a newer
    version, that version is copied.  Raises Changed if the version changes repeatedly, and NotFound
    if the file is gone.
    """
    overtaken = 0
    while not inode.generation:
        state.spool.require_room(inode.size)
        generation, revision = state.next_generation(), inode.revision
        path = state.spool.path(inode.ino, generation)
        source = state.source(inode)
        try:
            file = await state.cache.export(inode.ino, revision, inode.size, source, path)
        except Changed:
            overtaken += 1
            if overtaken == TRIES or not await refresh_version(state, service, inode):
                raise
            continue
        file.close()
        if inode.generation or inode.revision != revision:
            state.spool.delete(inode.ino, generation)
            continue
        local_operations.adopt_copy(state, inode, generation, file)


async def bring_bytes(
    state: LocalState, service: Service, heir: Inode | None, former: Inode | None
) -> None:
    """Copy the cached bytes of a remote file that is about to continue the history of another."""
    if heir is None or former is None or former is heir or former.is_new:
        return
    if heir.is_new or heir.is_folder or heir.generation:
        return
    if state.cache.is_complete(heir.ino, heir.revision):
        await materialize(state, service, heir)


async def refresh_version(state: LocalState, service: Service, inode: Inode) -> bool:
    """Fetch the file's current version number from the service and use it from now on.

    Return False if it has not changed.  Raises NotFound if the file is gone.
    """
    known = inode.revision
    found = await service.entry(inode.zone, inode.entry_id)
    if found.deleted:
        raise NotFound("the file was deleted on the service")
    if inode.revision != known:
        return True
    if found.revision == known or inode.generation or state.local(inode.ino) & Local.CONTENT:
        return False
    with state.transaction():
        state.follow(inode, found)
    state.content_changed(inode)
    return True
