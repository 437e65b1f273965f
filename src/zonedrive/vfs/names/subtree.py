"""What is in a folder at any depth: whether something is, and letting go of all of it.

Must not know why.
"""

from collections.abc import Iterator
from itertools import islice

import trio

from zonedrive.failpoint import Place, reached
from zonedrive.tree.inode import NOWHERE, ROOT, Inode
from zonedrive.tree.tree import Tree
from zonedrive.vfs.core import Core

STEP = 500  # entries of one transaction: some ten milliseconds


def is_below(tree: Tree, inode: Inode | None, folder: Inode) -> bool:
    """Whether it is the folder itself, or anywhere in it."""
    while inode is not None and inode is not folder:
        inode = None if inode.parent in (NOWHERE, ROOT) else tree.find(inode.parent)
    return inode is folder


def folders_below(tree: Tree, folder: Inode) -> Iterator[Inode]:
    """The folders in a folder, at any depth, that the service has."""
    for child in tree.get_all(tree.folders_in(folder.ino)):
        yield child
        yield from folders_below(tree, child)


def innermost_first(tree: Tree, folder: Inode) -> Iterator[Inode]:
    """Everything in a folder, without itself."""
    for child in tree.get_all(tree.numbers_in(folder.ino)):
        if child.is_folder:
            yield from innermost_first(tree, child)
        yield child


async def let_go(core: Core, folder: Inode) -> None:
    """Forget everything in a folder that the service has deleted with it, a step at a time."""
    while gone := list(islice(innermost_first(core.tree, folder), STEP)):
        with core.transaction():
            for inode in gone:
                core.journal.drop(inode.ino)
                core.doubts.drop(inode.ino)
                core.discard_bytes(inode)
                core.tree.unlink(inode)
        reached(Place.FOLDER_EMPTIED)
        for inode in gone:
            core.reap(inode)
        await trio.lowlevel.checkpoint()
