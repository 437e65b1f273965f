"""Which inode stands for an entry of the service: taken, given up, where two could be it.

A listing may be faster than the answer to our own request, or a coworker may make the very folder
that is about to be made for one that was lost: then the same entry has two inodes here.

INVARIANT: what is only here stays in reach, whichever of the two goes.
"""

import logging

from zonedrive.errors import StoreError
from zonedrive.tree.inode import NOWHERE, Inode, Kind
from zonedrive.tree.names import local_name, with_mark
from zonedrive.vfs.core import Core
from zonedrive.vfs.invalidation import EntryGone

log = logging.getLogger(__name__)


def claim(core: Core, inode: Inode, remote_id: str) -> None:
    """Let no other inode stand for an entry that is this one's.  In a transaction.

    Raises StoreError where somebody works with the other one.
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
    """The entry the inode stood for is to be deleted; the inode is a new file.

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
    """The inode becomes something else: what may have arrived for it is removed again.

    In a transaction.  A ghost, an inode without a name, sees to that.
    """
    if core.doubts.get(inode.ino) is not None:
        ghost = core.tree.add(NOWHERE, inode.name, inode.kind, zone=inode.zone)
        core.doubts.pass_on(inode.ino, ghost.ino)
        core.journal.gone(ghost.ino, core.due())


def _unite(core: Core, folder: Inode, other: Inode) -> None:
    """What is in `other` is in `folder` from now on."""
    tree = core.tree
    for child in tree.inodes_in(other.ino):
        twin = tree.child(folder.ino, child.name)
        core.invalidations.put(EntryGone(other.ino, child.name.encode(), child.ino))
        if twin is None:
            tree.move(child, folder.ino, child.name)
        elif not _holds_ours(core, child):
            _drop(core, child)  # the listing tells of it again, once the name is free
        elif twin.is_folder and child.is_folder and not core.in_use(child):
            _unite(core, twin, child)
            _drop(core, child)
        else:
            log.warning("two files of one name met in a folder: both are kept")
            tree.move(child, folder.ino, _beside(core, child, folder))


def _beside(core: Core, child: Inode, folder: Inode) -> str:
    """A free name that tells the child from another one of its name."""
    taken = core.tree.children(folder.ino)
    if child.remote_id is not None and child.remote_name is not None:
        return local_name(child.remote_name, child.remote_id, taken)
    name, number = with_mark(child.name, f"~{child.ino}"), 0
    while name in taken:
        number += 1
        name = with_mark(child.name, f"~{child.ino}-{number}")
    return name


def _holds_ours(core: Core, inode: Inode) -> bool:
    """Whether something of it, or in it, is only here."""
    return any(core.in_use(each) for each in core.tree.below(inode.ino))


def _drop(core: Core, inode: Inode) -> None:
    """Forget an inode of which nothing is only here, with all in it."""
    for child in core.tree.inodes_in(inode.ino) if inode.is_folder else ():
        _drop(core, child)
    core.invalidations.put(EntryGone(inode.parent, inode.name.encode(), inode.ino))
    core.tree.unlink(inode)
