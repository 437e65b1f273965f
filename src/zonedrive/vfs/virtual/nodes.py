"""Virtual entries: what stands beside the entries of the service, and is found but never listed.

A folder of the mount may have a door: a name that is in no listing of it, and leads to virtual
folders and files all the same.  `virtual` has the verbs on them; to add a kind of them, write a
Door and the nodes behind it, and name the door where `filesystem` makes its `Virtual`.

Must not know the tree, the service or the kernel.

What must outlive the daemon is no virtual entry: it has a row, as the files in lost+found have.

INVARIANT: a virtual number is made of what the entry is, so it is permanent without a row, over
restarts too, and never another entry's.
INVARIANT: a virtual folder holds virtual entries only.
"""

import errno
import hashlib
import os
import stat
from collections.abc import Mapping
from typing import NoReturn, Protocol

import msgspec

VIRTUAL = 1 << 62
"""Inode numbers and handles from here on are virtual.  The tree counts from 1, and SQLite, where
the cache notes its numbers, ends at 1 << 63."""

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_TRUNC | os.O_CREAT


def number(*what: str) -> int:
    """The inode number of what these words say; the first one is `Database.identity`."""
    digest = hashlib.blake2b(digest_size=8)
    for word in what:
        data = word.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(4) + data)
    return VIRTUAL | int.from_bytes(digest.digest()) >> 2


def refuse() -> NoReturn:
    """Raises OSError (EROFS), as everything does that would change what cannot be changed."""
    raise OSError(errno.EROFS, "read-only")


class Standing(msgspec.Struct, frozen=True):
    """What a person hears who asks whether a virtual entry is on the service."""

    words: str  # what it is
    here_only: bool = False  # it never leaves this machine
    inos: tuple[int, ...] = ()  # of the tree: what is told of these is told of it
    file: int = 0  # of the tree: whose versions it is about


class Node:
    """One virtual entry; the attributes may be properties.

    It may be made anew whenever it is asked for: two of one number must tell the same.
    """

    mode: int  # type and permission bits
    size: int = 0
    mtime_ns: int = 0
    timeout: float = 0.0  # seconds the kernel may keep the name and the rest of this

    def __init__(self, ino: int) -> None:
        """`ino` comes from `number`."""
        self.ino = ino

    def xattrs(self) -> dict[str, str]:
        """Extended attributes by their short names."""
        return {}

    def standing(self) -> Standing:
        """What it is, and where."""
        raise NotImplementedError

    async def change(self, *, size: int | None, mode: int | None, mtime_ns: int | None) -> None:
        """truncate, chmod and utimensat; None stays as it is."""
        refuse()


class Content(Protocol):
    """A virtual file that is open."""

    async def read(self, offset: int, size: int) -> bytes:
        """Bytes at `offset`; fewer at the end."""

    async def write(self, offset: int, data: bytes) -> int:
        """Put all of `data` at `offset`."""

    async def flush(self) -> None:
        """close(2) or fsync(2): what was written is kept."""

    def close(self) -> None:
        """Nobody has it open any more."""


class File(Node):
    """A virtual file."""

    mode = stat.S_IFREG | 0o444

    async def open(self, flags: int, pid: int) -> Content:
        """For the process `pid`.  The bytes under a number never change, unless it is written."""
        raise NotImplementedError


class Folder(Node):
    """A virtual folder; one that only overrides the first two cannot be changed."""

    mode = stat.S_IFDIR | 0o500

    async def child(self, name: str) -> Node | None:
        """The entry of that name."""
        return (await self.children()).get(name)

    async def children(self) -> Mapping[str, Node]:
        """All entries, in the order they are listed in."""
        raise NotImplementedError

    async def create(self, name: str, mode: int) -> File:
        """A new file under a free name, which is opened next."""
        refuse()

    async def make_folder(self, name: str, mode: int) -> "Folder":
        """A new folder under a free name."""
        refuse()

    async def remove(self, name: str, *, folder: bool) -> None:
        """unlink(2), or rmdir(2) for a `folder`."""
        refuse()

    async def take_in(self, parent: int, old_name: str, name: str, flags: int) -> None:
        """rename(2) of an entry of the tree into here."""
        refuse()

    async def hand_out(self, name: str, parent: int, new_name: str, flags: int) -> None:
        """rename(2) out of here, into a folder of the tree."""
        refuse()

    async def move(self, name: str, into: "Folder", new_name: str, flags: int) -> None:
        """rename(2) within virtual folders; `into` may be this one."""
        refuse()


class ReadOnly:
    """What content that is only read has of `Content` besides `read` and `close`."""

    async def write(self, offset: int, data: bytes) -> int:
        """Never: it was not opened for that."""
        refuse()

    async def flush(self) -> None:
        """There is nothing to keep."""


def refuse_writing(flags: int) -> None:
    """Raises OSError (EROFS) for an open(2) that is for more than reading."""
    if flags & _WRITING:
        refuse()


class Door(Protocol):
    """What makes a name of a folder of the tree lead to virtual entries."""

    @property
    def name(self) -> str:
        """The name; an entry of the tree that has it comes first."""

    def open(self, folder: int) -> Folder | None:
        """What stands behind it in the folder of that number, None where there is no door."""
