"""Mapping of remote entries to inodes: binding, releasing, and merging of duplicates.

A listing may be faster than the answer to this client's request, or a coworker may create the same
folder that this client is about to create.  The entry then has two inodes.

INVARIANT: local changes stay reachable, whichever of the two inodes is dropped.
"""

import logging

from zonedrive.errors import StoreError
from zonedrive.state.inode import NOWHERE, Inode, Kind
from zonedrive.state.invalidation import EntryGone
from zonedrive.state.local_state import Core
from zonedrive.state.names import local_name, with_mark

log = logging.getLogger(__name__)


def claim(core: Core, inode: Inode, remote_id: str) -> None:
    """Drop any other inode of an entry that belongs to this inode.  In a transaction.

    Raises StoreError if the other inode is in use.
    """
    other = core.tree.by_remote(inode.zone, remote_id)
    if other is None or other is inode:
        return
    if core.in_use(other) or inode.is_folder != other.is_folder:
        raise StoreError("another file here stands for the same entry of the service")
    if other.is_folder:
        _unite(core, inode, other)
    _drop(core, other)


def give_up(core: Core, inode: Inode, due_ns: int) -> None:
    """Detach the inode as a new file, and schedule the deletion of its former entry.

    In a transaction.
    """
    identity = {
        name: getattr(inode, name)
        for name in ("zone", "remote_id", "remote_parent", "remote_name", "revision", "size")
    }
    core.tree.update(inode, remote_id=None, remote_parent=None, remote_name=None)
    core.journal.drop(inode.ino)
    ghost = core.tree.add(NOWHERE, inode.name, Kind.FILE, **identity)
    core.doubts.pass_on(inode.ino, ghost.ino)
    core.journal.gone(ghost.ino, due_ns)


def disown(core: Core, inode: Inode) -> None:
    """Detach the inode from its pending request, whose result is deleted on the service.

    In a transaction.  A ghost, an inode without a name, takes over the pending request.
    """
    if core.doubts.get(inode.ino) is not None:
        ghost = core.tree.add(NOWHERE, inode.name, inode.kind, zone=inode.zone)
        core.doubts.pass_on(inode.ino, ghost.ino)
        core.journal.gone(ghost.ino, core.due())


def _unite(core: Core, folder: Inode, other: Inode) -> None:
    """Move the content of `other` to `folder`."""
    tree = core.tree
    for child in tree.inodes_in(other.ino):
        twin = tree.child(folder.ino, child.name)
        core.invalidations.put(EntryGone(other.ino, child.name.encode(), child.ino))
        if twin is None:
            tree.move(child, folder.ino, child.name)
        elif not _holds_ours(core, child):
            _drop(core, child)  # the listing adds it again once the name is free
        elif twin.is_folder and child.is_folder and not core.in_use(child):
            _unite(core, twin, child)
            _drop(core, child)
        else:
            log.warning("two files of one name met in a folder: both are kept")
            tree.move(child, folder.ino, _beside(core, child, folder))


def _beside(core: Core, child: Inode, folder: Inode) -> str:
    """Return a free name for `child` that differs from another entry of its name."""
    taken = core.tree.children(folder.ino)
    if child.remote_id is not None and child.remote_name is not None:
        return local_name(child.remote_name, child.remote_id, taken)
    name, number = with_mark(child.name, f"~{child.ino}"), 0
    while name in taken:
        number += 1
        name = with_mark(child.name, f"~{child.ino}-{number}")
    return name


def _holds_ours(core: Core, inode: Inode) -> bool:
    """Return True if the inode or its content has local changes."""
    return any(core.in_use(each) for each in core.tree.below(inode.ino))


def _drop(core: Core, inode: Inode) -> None:
    """Remove an inode without local changes, with everything in it."""
    for child in core.tree.inodes_in(inode.ino) if inode.is_folder else ():
        _drop(core, child)
    core.invalidations.put(EntryGone(inode.parent, inode.name.encode(), inode.ino))
    core.tree.unlink(inode)
