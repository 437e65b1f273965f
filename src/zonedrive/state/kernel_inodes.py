"""Kernel inodes: the inode numbers by which the kernel knows the files of the tree.

The kernel caches pages per inode, shared by all programs that have the file open.  If a program has
read a file and a newer version arrives, the newer version gets its own kernel inode, as after a
rename over the file.  New opens are cached as usual, and the pages of the two versions never mix.
Handles on the former version keep the former number.

The number contains the inode of the tree.  It is never written to disk: after the next mount every
file has its first number again.
"""

import errno

from zonedrive.state.attributes import Attr
from zonedrive.state.inode import Inode
from zonedrive.state.inodes import Inodes
from zonedrive.state.open_file import OpenFile

STEP = 1 << 40  # greater than any inode number of a tree
LIMIT = 1 << 62  # the first number of virtual entries


def ino_of(number: int) -> int:
    """Return the tree's inode of a kernel number."""
    return number % STEP


def _stale() -> OSError:
    return OSError(errno.ESTALE, "removed, or another version by now")


class KernelInodes:
    """Numbers of files that got a newer version while a program had the former one open."""

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}  # by ino, if different from the ino
        self.former: dict[int, OpenFile] = {}  # open former versions, by number
        self.renewals = 0  # numbers given out so far

    def number(self, ino: int) -> int:
        """Return the kernel number of the current content."""
        return self._numbers.get(ino, ino)

    def inode(self, tree: Inodes, number: int) -> Inode:
        """Return the inode whose current content has this number.

        Raises OSError (ESTALE) for other numbers: the kernel then looks the name up again.
        """
        inode = tree.find(ino_of(number))
        if inode is None or self.number(inode.ino) != number:
            raise _stale()
        return inode

    def told(self, number: int) -> Attr:
        """Return the attributes last reported for an open former version.

        Raises OSError (ESTALE) if the version is no longer open.
        """
        former = self.former.get(number)
        if former is None:
            raise _stale()
        return former.told

    def renew(self, opened: OpenFile) -> int:
        """Give the current content a new number; `opened` keeps the former one."""
        self.former[opened.number] = opened
        number = self.number(opened.ino) + STEP
        self._numbers[opened.ino] = number if number < LIMIT else opened.ino
        self.renewals += 1
        return self._numbers[opened.ino]
