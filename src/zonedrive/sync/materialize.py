"""Copying of remote content into the spool, where changes on the service do not affect the copy."""

from contextlib import suppress

from zonedrive.content.source import Source
from zonedrive.errors import Changed, Forbidden, NotFound, NotSupported, Rejected
from zonedrive.remote.service import Service
from zonedrive.snapshot import Snapshot
from zonedrive.state import local_operations, remote_operations
from zonedrive.state.inode import Inode, Local
from zonedrive.state.local_state import LocalState
from zonedrive.state.open_file import content_of
from zonedrive.sync.remote_source import VersionSource

TRIES = 5  # default number of downloads of one file that each find a newer version


async def materialize(
    state: LocalState, service: Service, inode: Inode, tries: int = TRIES
) -> None:
    """Copy the service's version of a file into the spool, as the file's local content.

    Does nothing if the file already has local content, or has no remote entry. If a program writes
    to the file or removes it meanwhile, the copy is discarded. If the service has a newer version,
    the newer version is copied. Raises Changed if `tries` downloads each find a newer version, and
    NotFound if the file is gone.
    """
    changes = 0
    while not inode.generation and not inode.is_new:
        try:
            await _copy(state, inode, state.source(inode))
        except Changed:
            changes += 1
            if changes == tries or not await refresh_version(state, service, inode):
                raise


async def _copy(state: LocalState, inode: Inode, source: Source) -> None:
    """Copy the version that a file shows from the cache, or from `source`, into the spool."""
    state.spool.require_room(inode.size)
    generation, content = state.next_generation(), Snapshot(lambda: content_of(inode))
    path = state.spool.path(inode.ino, generation)
    file = await state.cache.export(inode.ino, inode.revision, inode.size, source, path)
    file.close()
    if content.is_current and state.inodes.find(inode.ino) is inode:  # not removed meanwhile
        local_operations.adopt_copy(state, inode, generation, file)
    else:
        state.spool.delete(inode.ino, generation)


async def keep_former_version(state: LocalState, service: Service, inode: Inode) -> None:
    """Copy the version that a file shows into the spool, although the service has a newer one.

    Does nothing if the file already has local content. Also does nothing if the version can be read
    neither from the cache nor from the service. Raises the service's other errors.
    """
    if inode.generation or inode.is_new:
        return
    source = state.source(inode)
    with suppress(Changed, NotFound, Forbidden, Rejected, NotSupported):
        if not state.cache.is_complete(inode.ino, inode.revision):
            versions = await service.versions(inode.zone, inode.entry_id)
            known = (each for each in versions if each.revision == inode.revision)
            if (former := next(known, None)) is None:
                return
            source = VersionSource(service, inode.zone, inode.entry_id, former.version)
        await _copy(state, inode, source)


async def keep_readable(state: LocalState, service: Service, removed: Inode) -> None:
    """Copy into the spool the content of open files that are about to be deleted.

    The files are `removed` itself, or all open files below the folder `removed`. Does nothing for a
    file whose content is complete in the cache. Also does nothing if the service does not have the
    content or rejects the request: reads then fail in any case. Raises the other errors of
    `materialize`.
    """
    for inode in list(state.inodes.get_all(list(state.opened))):
        opened = state.opened.get(inode.ino)
        if opened is None or opened.session or not state.inodes.is_below(inode, removed):
            continue
        if opened.reader is None or not opened.reader[1].kept:
            with suppress(Changed, NotFound, Forbidden, Rejected, NotSupported):
                await materialize(state, service, inode, tries=1)


async def bring_bytes(
    state: LocalState, service: Service, successor: Inode | None, former: Inode | None
) -> None:
    """Copy the cached content of `successor` into the spool before `successor` replaces `former`.

    Only a file with local bytes can take over the entry of `former` on the service. Does nothing if
    the cache does not have the whole content, or if `former` has no entry. Raises the errors of
    `materialize`.
    """
    if successor is None or former is None or former is successor or former.is_new:
        return
    if successor.is_new or successor.is_folder or successor.generation:
        return
    if state.cache.is_complete(successor.ino, successor.revision):
        await materialize(state, service, successor)


async def refresh_version(state: LocalState, service: Service, inode: Inode) -> bool:
    """Query a file's current version on the service, show that version locally, and return True.

    Also return True if the inode's entry or version has changed locally during the query. Return
    False if the service has no other version, or if the file has local content. Raises NotFound if
    the file is gone.
    """
    known = Snapshot(lambda: (inode.remote_id, inode.revision))
    found = await service.entry(inode.zone, inode.entry_id)
    if found.deleted:
        raise NotFound("the file was deleted on the service")
    if not known.is_current:
        return True
    if found.revision == inode.revision or inode.generation:
        return False
    if state.local(inode.ino) & Local.CONTENT:
        return False
    remote_operations.accept_version(state, inode, found)
    return True
