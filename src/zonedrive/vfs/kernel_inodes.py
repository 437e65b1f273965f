"""Kernel inodes: the numbers by which the kernel knows the files of the tree.

The kernel keeps pages per inode, for all programs that have it open.  When a newer version comes of
a file that a program has read from, the newer version gets a kernel inode of its own, as a file has
that is renamed over another one: new opens are cached as always, and the pages of the two versions
never meet.  Handles on the former version keep the former number.

A number tells the inode of the tree that it stands for.  It is never written to disk: after the
next mount every file has its first number again.
"""

import errno

from zonedrive.tree.inode import Inode
from zonedrive.tree.tree import Tree
from zonedrive.vfs.attributes import Attr
from zonedrive.vfs.open_file import OpenFile

STEP = 1 << 40  # more than there are inodes in a tree
LIMIT = 1 << 62  # where the numbers of virtual entries begin


def ino_of(number: int) -> int:
    """Return the tree's inode behind a number of the kernel."""
    return number % STEP


def _stale() -> OSError:
    return OSError(errno.ESTALE, "removed, or another version by now")


class KernelInodes:
    """Numbers of files that got a newer version while a program had the former one open."""

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}  # by ino, of those that have another than their own
        self.former: dict[int, OpenFile] = {}  # open former versions, by number
        self.renewals = 0  # numbers given out so far

    def number(self, ino: int) -> int:
        """Return the number of the present content."""
        return self._numbers.get(ino, ino)

    def inode(self, tree: Tree, number: int) -> Inode:
        """Return the inode whose present content has this number.

        Raises OSError (ESTALE) where there is none: the kernel then looks the name up once more.
        """
        inode = tree.find(ino_of(number))
        if inode is None or self.number(inode.ino) != number:
            raise _stale()
        return inode

    def told(self, number: int) -> Attr:
        """Return what was told of a former version.  Raises OSError (ESTALE) where it is closed."""
        former = self.former.get(number)
        if former is None:
            raise _stale()
        return former.told

    def renew(self, opened: OpenFile) -> int:
        """Give the present content another number; `opened` keeps the former one."""
        self.former[opened.number] = opened
        number = self.number(opened.ino) + STEP
        self._numbers[opened.ino] = number if number < LIMIT else opened.ino
        self.renewals += 1
        return self._numbers[opened.ino]
