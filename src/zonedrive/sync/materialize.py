"""Copies of the service's bytes in the spool, which stay whatever happens on the service."""

from zonedrive.errors import Changed, NotFound
from zonedrive.remote.service import Service
from zonedrive.state.inode import Inode
from zonedrive.state.local_state import Core
from zonedrive.state.merge_types import Local

TRIES = 5  # downloads of one file that each find a newer version than the last


async def materialize(core: Core, service: Service, inode: Inode) -> None:
    """Copy the bytes of the service's version into the spool, as a local generation.

    If a program writes in the meantime, its bytes are kept instead.  If the service has a newer
    version, that version is copied.  Raises Changed if the version changes repeatedly, and NotFound
    if the file is gone.
    """
    overtaken = 0
    while not inode.generation:
        core.spool.require_room(inode.size)
        generation, revision = core.next_generation(), inode.revision
        path = core.spool.path(inode.ino, generation)
        source = core.source(inode)
        try:
            file = await core.cache.export(inode.ino, revision, inode.size, source, path)
        except Changed:
            overtaken += 1
            if overtaken == TRIES or not await look_anew(core, service, inode):
                raise
            continue
        file.close()
        if inode.generation or inode.revision != revision:
            core.spool.delete(inode.ino, generation)
            continue
        core.same_bytes(inode, generation)
        core.copies[inode.ino, generation] = (inode.remote_id, revision)
        with core.transaction():
            core.spool.record(inode.ino, generation, file)
            core.tree.update(inode, generation=generation)


async def look_anew(core: Core, service: Service, inode: Inode) -> bool:
    """Fetch the file's current version number from the service and use it from now on.

    Return False if it has not changed.  Raises NotFound if the file is gone.
    """
    known = inode.revision
    found = await service.entry(inode.zone, inode.entry_id)
    if found.deleted:
        raise NotFound("the file was deleted on the service")
    if inode.revision != known:
        return True
    if found.revision == known or inode.generation or core.local(inode.ino) & Local.CONTENT:
        return False
    with core.transaction():
        core.follow(inode, found)
    core.content_changed(inode)
    return True
