"""Content of a folder at any depth: checks, iteration and removal.

Knows nothing about the reasons.
"""

from collections.abc import Iterator
from itertools import islice

import trio

from zonedrive.failpoint import Place, reached
from zonedrive.state.inode import NOWHERE, ROOT, Inode
from zonedrive.state.inodes import Inodes
from zonedrive.state.local_state import LocalState

STEP = 500  # entries of one transaction: about ten milliseconds


def is_below(tree: Inodes, inode: Inode | None, folder: Inode) -> bool:
    """Return True if the inode is the folder itself or below it."""
    while inode is not None and inode is not folder:
        inode = None if inode.parent in (NOWHERE, ROOT) else tree.find(inode.parent)
    return inode is folder


def folders_below(tree: Inodes, folder: Inode) -> Iterator[Inode]:
    """Yield the subfolders, at any depth, that are on the service."""
    for child in tree.get_all(tree.folders_in(folder.ino)):
        yield child
        yield from folders_below(tree, child)


def innermost_first(tree: Inodes, folder: Inode) -> Iterator[Inode]:
    """Yield everything below a folder, innermost entries first."""
    for child in tree.get_all(tree.numbers_in(folder.ino)):
        if child.is_folder:
            yield from innermost_first(tree, child)
        yield child


async def let_go(state: LocalState, folder: Inode) -> None:
    """Remove everything below a folder that the service has deleted, in several transactions."""
    while gone := list(islice(innermost_first(state.inodes, folder), STEP)):
        with state.transaction():
            for inode in gone:
                state.intents.drop(inode.ino)
                state.requests.drop(inode.ino)
                state.discard_bytes(inode)
                state.inodes.unlink(inode)
        reached(Place.FOLDER_EMPTIED)
        for inode in gone:
            state.release_if_unreferenced(inode)
        await trio.lowlevel.checkpoint()
