"""Copies of the service's bytes in the spool, which stay here whatever becomes of them there."""

from zonedrive.errors import Changed, NotFound
from zonedrive.remote.service import Service
from zonedrive.tree.answer import Local
from zonedrive.tree.inode import Inode
from zonedrive.vfs.core import Core

TRIES = 5  # downloads of one file that each find another version than the last


async def materialize(core: Core, service: Service, inode: Inode) -> None:
    """Bring the bytes of the service's version into the spool, as a generation of ours.

    Not where a program has written others meanwhile: those are the file's.  Where the service
    has another version by now, that one; raises Changed where that changes again and again,
    NotFound where the file is gone.
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
    """Ask the service for the file's present version, and go by that from now on.

    False where it is the one that was known.  Raises NotFound where the file is gone.
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
