"""Virtual entries: entries of the mount that are not on the service and in no listing.

A folder of the mount may have a `VirtualRoot`: a virtual folder that no listing shows, but that can
be opened by name.  `verbs` has the operations on virtual entries.  To add a kind of virtual entry,
write a VirtualRoot and its nodes, and add it where `stack` creates its `VirtualVerbs`.

Knows nothing about the tree, the service or the kernel.

Data that must survive the daemon is not a virtual entry: it has a database row, as the files in
lost+found do.

INVARIANT: a virtual inode number is derived from the identity of the entry, so it is permanent
without a row, also across restarts, and never identifies another entry.
INVARIANT: a virtual folder contains only virtual entries.
"""

import errno
import hashlib
import os
import stat
from collections.abc import Mapping
from typing import NoReturn, Protocol

import msgspec

VIRTUAL = 1 << 62
"""First virtual inode number and handle.

The tree counts from 1, and SQLite, in which the cache stores the numbers, ends at 1 << 63.
"""

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_TRUNC | os.O_CREAT


def number(*what: str) -> int:
    """Return an inode number derived from the words `what`; the first is `Database.identity`."""
    digest = hashlib.blake2b(digest_size=8)
    for word in what:
        data = word.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(4) + data)
    return VIRTUAL | int.from_bytes(digest.digest()) >> 2


def refuse() -> NoReturn:
    """Raise OSError (EROFS), the error of every change to a read-only entry."""
    raise OSError(errno.EROFS, "read-only")


class SyncState(msgspec.Struct, frozen=True):
    """Sync state of a virtual entry: if and where its data is on the service."""

    words: str  # text for the user
    here_only: bool = False  # the entry never leaves this machine
    inos: tuple[int, ...] = ()  # inodes of the tree whose sync state applies to this entry
    file: int = 0  # inode in the tree whose versions this entry shows


class Node:
    """Virtual entry; subclasses may implement the attributes as properties.

    A node may be created again for each access: two nodes with the same number must have the same
    values.
    """

    mode: int  # type and permission bits
    size: int = 0
    mtime_ns: int = 0
    timeout: float = 0.0  # seconds that the kernel may cache the name and the attributes

    def __init__(self, ino: int) -> None:
        """Create the node; `ino` is a result of `number`."""
        self.ino = ino

    def xattrs(self) -> dict[str, str]:
        """Return the extended attributes as a dict; the keys are short names."""
        return {}

    def standing(self) -> SyncState:
        """Return the sync state of the entry."""
        raise NotImplementedError

    async def change(self, *, size: int | None, mode: int | None, mtime_ns: int | None) -> None:
        """Change size, mode or modification time; None leaves a value as it is."""
        refuse()


class Content(Protocol):
    """Open virtual file."""

    async def read(self, offset: int, size: int) -> bytes:
        """Return the bytes at `offset`, fewer at the end of the file."""

    async def write(self, offset: int, data: bytes) -> int:
        """Write all of `data` at `offset` and return the number of bytes."""

    async def flush(self) -> None:
        """Store written bytes, on close(2) or fsync(2)."""

    def close(self) -> None:
        """Release the content after the last close."""


class File(Node):
    """Virtual file."""

    mode = stat.S_IFREG | 0o444

    async def open(self, flags: int, pid: int) -> Content:
        """Open the file for process `pid`.

        The bytes of an inode number change only when a program writes to the file.
        """
        raise NotImplementedError


class Folder(Node):
    """Virtual folder; a subclass that only overrides `child` and `children` is read-only."""

    mode = stat.S_IFDIR | 0o500

    async def child(self, name: str) -> Node | None:
        """Return the entry with that name, or None."""
        return (await self.children()).get(name)

    async def children(self) -> Mapping[str, Node]:
        """Return all entries, in the order of the listing."""
        raise NotImplementedError

    async def create(self, name: str, mode: int) -> File:
        """Create a file under a free name; the caller opens it next."""
        refuse()

    async def make_folder(self, name: str, mode: int) -> "Folder":
        """Create a folder under a free name."""
        refuse()

    async def remove(self, name: str, *, folder: bool) -> None:
        """Remove an entry as unlink(2) does or, with `folder`, as rmdir(2) does."""
        refuse()

    async def move_in(self, parent: int, old_name: str, name: str, flags: int) -> None:
        """Move an entry of the tree into this folder, as rename(2)."""
        refuse()

    async def move_out(self, name: str, parent: int, new_name: str, flags: int) -> None:
        """Move an entry of this folder into a folder of the tree, as rename(2)."""
        refuse()

    async def move(self, name: str, into: "Folder", new_name: str, flags: int) -> None:
        """Move an entry between virtual folders, as rename(2); `into` may be this folder."""
        refuse()


class ReadOnly:
    """Mixin that implements the write methods of `Content` for read-only content."""

    async def write(self, offset: int, data: bytes) -> int:
        """Refuse the write: the content is not open for writing."""
        refuse()

    async def flush(self) -> None:
        """Do nothing: the content has no written data."""


def refuse_writing(flags: int) -> None:
    """Raise OSError (EROFS) if the flags of open(2) ask for more than reading."""
    if flags & _WRITING:
        refuse()


class VirtualRoot(Protocol):
    """Virtual folder that can be opened by name in folders of the tree, but is not listed there."""

    @property
    def name(self) -> str:
        """Name of the virtual folder; an entry of the tree with the same name has precedence."""

    def open(self, folder: int) -> Folder | None:
        """Return the virtual folder for the tree folder `folder`, or None."""
