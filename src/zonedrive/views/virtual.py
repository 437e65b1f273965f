"""Virtual files and folders, which the mount has in addition to the tree of database inodes.

A folder of the mount may have a `VirtualRoot`: a virtual folder or file that no listing shows, but
that programs can open by name. To add a kind of virtual entry, write a VirtualRoot and its nodes,
and add the root where `stack` creates its `VirtualLayer`.

Virtual entries store no data that must survive the daemon. Entries with such data, for example the
files in lost+found, have database rows instead.

INVARIANT: a virtual inode number is derived from the identity of the entry. The number is therefore
the same after a restart, without a database row, and never identifies another entry.
INVARIANT: a virtual folder contains only virtual entries.
"""

import errno
import hashlib
import itertools
import os
import stat
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NoReturn, Protocol
from weakref import WeakValueDictionary

import msgspec

from zonedrive.state.attributes import FOLDER_SIZE, Attr
from zonedrive.state.inode import NOWHERE
from zonedrive.state.local_state import LocalState
from zonedrive.state.open_file import VIRTUAL, Opened
from zonedrive.vfs.xattrs import PREFIX

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_TRUNC | os.O_CREAT


def number(*what: str) -> int:
    """Return the inode number of the virtual entry that the strings in `what` identify.

    The first string is the `Database.identity`.
    """
    digest = hashlib.blake2b(digest_size=8)
    for word in what:
        data = word.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(4) + data)
    return VIRTUAL | int.from_bytes(digest.digest()) >> 2


def refuse() -> NoReturn:
    """Raise OSError (EROFS), the error of every change to a read-only entry."""
    raise OSError(errno.EROFS, "read-only")


def refuse_writing(flags: int) -> None:
    """Raise OSError (EROFS) if the flags of open(2) ask for more than reading."""
    if flags & _WRITING:
        refuse()


class SyncState(msgspec.Struct, frozen=True):
    """Sync state of a virtual entry: whether and where the entry's data is on the service."""

    words: str  # text for the user
    here_only: bool = False  # the entry never leaves this machine
    inos: tuple[int, ...] = ()  # inodes of the tree whose sync state applies to this entry
    file: int = 0  # inode in the tree whose versions this entry shows


class Content:
    """Content of an open virtual file; read-only unless a subclass overrides `write`."""

    async def read(self, offset: int, size: int) -> bytes:
        """Return `size` bytes at `offset`, or fewer at the end of the file."""
        raise NotImplementedError

    async def write(self, offset: int, data: bytes) -> int:
        refuse()

    def close(self) -> None:
        """Release the resources of the open file after the last close."""


class Node:
    """Virtual file or folder, depending on `mode`; read-only unless a subclass overrides a method.

    A subclass for files must define `open`, and a subclass for folders `children`. The attributes
    may be properties. Each lookup of an entry may create another node object, so two nodes with the
    same inode number must have the same attributes.
    """

    mode: int  # type and permission bits
    size: int = 0
    mtime_ns: int = 0
    is_constant: bool = True  # True if no program can write to the file
    timeout: float = 0.0  # seconds that the kernel may cache the name and the attributes

    def __init__(self, ino: int) -> None:
        """Create the node with inode number `ino`, as returned by `number`."""
        self.ino = ino

    @property
    def is_folder(self) -> bool:
        return stat.S_ISDIR(self.mode)

    def xattrs(self) -> dict[str, str]:
        """Return the extended attributes by name, without the prefix `user.zonedrive.`.

        A subclass whose entries belong to an entry on the service must override this method.
        """
        return {"id": "", "zone": "", "state": "local", "modified_by": "", "type": "", "sync": ""}

    def sync_state(self) -> SyncState:
        raise NotImplementedError

    async def change(self, *, size: int | None, mode: int | None, mtime_ns: int | None) -> None:
        """Change size, mode or modification time; None leaves a value unchanged."""
        refuse()

    # ---- files ----

    async def open(self, flags: int, pid: int) -> Content:
        """Open the file for the process `pid`, with the flags of open(2), and return its content.

        The bytes of an inode number change only when a program writes to the file.
        """
        raise NotImplementedError

    # ---- folders; entries are moved as by rename(2), with its flags ----

    async def child(self, name: str) -> "Node | None":
        return (await self.children()).get(name)

    async def children(self) -> Mapping[str, "Node"]:
        """Return all entries by name, in the order of the listing."""
        raise NotImplementedError

    async def create(self, name: str) -> "Node":
        """Create a file under an unused name; return its node, which the caller then opens."""
        refuse()

    async def remove(self, name: str, *, folder: bool) -> None:
        """Remove an entry as unlink(2) does or, with `folder`, as rmdir(2) does."""
        refuse()

    async def move_in(self, parent: int, old_name: str, name: str, flags: int) -> None:
        """Move the entry `old_name` of a non-virtual folder into this folder, as `name`.

        `parent` is the inode number of the non-virtual folder.
        """
        refuse()

    async def move_out(self, name: str, parent: int, new_name: str, flags: int) -> None:
        """Move the entry `name` of this folder into a non-virtual folder, as `new_name`.

        `parent` is the inode number of the non-virtual folder.
        """
        refuse()

    async def move(self, name: str, into: "Node", new_name: str, flags: int) -> None:
        """Move the entry `name` into the virtual folder `into`, which may be this folder."""
        refuse()


class VirtualRoot(Protocol):
    """Virtual entry that can be opened by name in folders of the tree, but is not listed there."""

    @property
    def name(self) -> str:
        """Name of the virtual entry; an entry of the tree with the same name has precedence."""

    def open(self, folder: int) -> Node | None:
        """Return the virtual entry in the folder with the inode number `folder`, or None."""


class VirtualLayer:
    """POSIX operations on the virtual entries of a mount, as `fuse/operations.py` calls them.

    A name is looked up among the virtual roots only if the name is not in the tree, so operations
    on the tree have no extra cost. A virtual entry exists only in memory, and only while the
    kernel, a listing or an open file uses the entry.
    """

    def __init__(self, state: LocalState, roots: Sequence[VirtualRoot]) -> None:
        self._state = state
        self._roots = {root.name.encode(): root for root in roots}
        self._known: WeakValueDictionary[int, Node] = WeakValueDictionary()
        self._held: dict[int, tuple[Node, int]] = {}  # each node with its kernel lookup count
        self._listings: dict[int, list[tuple[str, Node]]] = {}  # by handle, like `_open`
        self._open: dict[int, tuple[Node, Content]] = {}  # the reference keeps the node in `_known`
        self._handles = itertools.count(VIRTUAL)

    # ---- lookup ----

    def root(self, parent: int, name: bytes) -> Node | None:
        """Return the virtual root `name` of the non-virtual folder `parent`, or None."""
        root = self._roots.get(name)
        if root is None:
            return None
        folder = self._state.inodes.find(parent)
        if folder is None or not folder.is_folder or folder.parent == NOWHERE:
            return None
        if self._state.inodes.has_name(parent, root.name):
            return None
        return root.open(parent)

    def has(self, parent: int, name: bytes) -> bool:
        """Return True if the folder is virtual or contains the virtual root `name`."""
        return parent >= VIRTUAL or (name in self._roots and self.root(parent, name) is not None)

    async def lookup(self, parent: int, name: bytes) -> Attr:
        """Return the attributes of the entry `name`, and increment its kernel lookup count.

        Raises FileNotFoundError if the virtual entry does not exist.
        """
        if parent < VIRTUAL:
            node: Node | None = self.root(parent, name)
        else:
            node = await self._folder(parent).child(self._state.existing_name(name))
        if node is None:
            raise FileNotFoundError(errno.ENOENT, "no such entry")
        return self._hold(node)

    def forget(self, ino: int, count: int) -> None:
        node, held = self._held.pop(ino, (None, 0))
        if node is not None and held > count:
            self._held[ino] = node, held - count

    def remember(self, inos: Collection[int]) -> None:
        for ino in inos:
            self._hold(self._get(ino))

    def getattr(self, ino: int) -> Attr:
        return self._attr(self._get(ino))

    def xattrs(self, ino: int) -> dict[str, str]:
        """Return the extended attributes of an entry by their full names."""
        return {PREFIX + name: value for name, value in self._get(ino).xattrs().items()}

    # ---- listing ----

    async def opendir(self, ino: int) -> int:
        folder = self._folder(ino)
        entries: list[tuple[str, Node]] = [(".", folder), ("..", folder)]
        entries += [(name, self._same(node)) for name, node in (await folder.children()).items()]
        handle = next(self._handles)
        self._listings[handle] = entries
        return handle

    def readdir(self, handle: int, start: int) -> Iterator[tuple[bytes, Attr, int]]:
        """Yield name, attributes and next position of each entry, from position `start` on."""
        entries = self._listings[handle]
        for position in range(start, len(entries)):
            name, node = entries[position]
            yield name.encode(), self._attr(node), position + 1

    def releasedir(self, handle: int) -> None:
        self._listings.pop(handle, None)

    # ---- changes ----

    async def setattr(
        self, ino: int, *, size: int | None, mode: int | None, mtime_ns: int | None
    ) -> Attr:
        node = self._get(ino)
        await node.change(size=size, mode=mode, mtime_ns=mtime_ns)
        return self._attr(node)

    async def create(self, parent: int, name: bytes, mode: int, flags: int) -> tuple[Opened, Attr]:
        _require_free(parent)
        node = await self._folder(parent).create(self._state.checked_name(name))
        opened = await self._opened(node, flags, 0)
        return opened, self._hold(node)

    async def mkdir(self, parent: int, name: bytes, mode: int) -> NoReturn:
        _require_free(parent)
        refuse()

    async def rmdir(self, parent: int, name: bytes) -> None:
        await self._remove(parent, name, folder=True)

    async def unlink(self, parent: int, name: bytes) -> None:
        await self._remove(parent, name, folder=False)

    async def _remove(self, parent: int, name: bytes, *, folder: bool) -> None:
        if parent < VIRTUAL:  # a `VirtualRoot`
            refuse()
        await self._folder(parent).remove(self._state.existing_name(name), folder=folder)

    async def rename(
        self, old_parent: int, old_name: bytes, new_parent: int, new_name: bytes, flags: int
    ) -> None:
        """Rename or move an entry within, into or out of virtual folders.

        Raises OSError (EROFS) if the source or the target is a virtual root.
        """
        state = self._state
        if self.root(old_parent, old_name) or self.root(new_parent, new_name):
            refuse()
        source, wanted = state.existing_name(old_name), state.checked_name(new_name)
        if old_parent < VIRTUAL:
            await self._folder(new_parent).move_in(old_parent, source, wanted, flags)
        elif new_parent < VIRTUAL:
            await self._folder(old_parent).move_out(source, new_parent, wanted, flags)
        else:
            into = self._folder(new_parent)
            await self._folder(old_parent).move(source, into, wanted, flags)

    # ---- open files ----

    async def open(self, ino: int, flags: int, pid: int) -> Opened:
        return await self._opened(self._get(ino), flags, pid)

    async def read(self, handle: int, offset: int, size: int) -> bytes:
        return await self._open[handle][1].read(offset, size)

    async def write(self, handle: int, offset: int, data: bytes) -> int:
        return await self._open[handle][1].write(offset, data)

    async def flush(self, handle: int) -> None:
        """Do nothing, because virtual files keep written bytes only in memory."""

    fsync = flush

    async def release(self, handle: int) -> None:
        self._open.pop(handle)[1].close()

    def close_all(self) -> None:
        for _, content in self._open.values():
            content.close()
        self._open.clear()

    # ---- nodes ----

    def _get(self, ino: int) -> Node:
        held = self._held.get(ino)
        node = self._known.get(ino) if held is None else held[0]
        if node is None:
            raise FileNotFoundError(errno.ENOENT, "no such entry")
        return node

    def _folder(self, ino: int) -> Node:
        node = self._get(ino)
        if not node.is_folder:
            raise NotADirectoryError(errno.ENOTDIR, "not a folder")
        return node

    def _same(self, node: Node) -> Node:
        """Return the node object in use for the inode number of `node`, or else `node` itself."""
        return self._known.setdefault(node.ino, node)

    def _hold(self, node: Node) -> Attr:
        """Increment the kernel's lookup count of a node, and return the node's attributes."""
        node = self._same(node)
        self._held[node.ino] = node, self._held.get(node.ino, (node, 0))[1] + 1
        return self._attr(node)

    def _attr(self, node: Node) -> Attr:
        owner, mtime_ns = self._state.owner, node.mtime_ns
        return Attr(
            ino=node.ino,
            mode=node.mode,
            nlink=1,
            size=FOLDER_SIZE if node.is_folder else node.size,
            mtime_ns=mtime_ns,
            ctime_ns=mtime_ns,
            atime_ns=mtime_ns,
            uid=owner.uid,
            gid=owner.gid,
            entry_timeout=node.timeout,
            attr_timeout=node.timeout,
        )

    async def _opened(self, node: Node, flags: int, pid: int) -> Opened:
        if node.is_folder:
            raise IsADirectoryError(errno.EISDIR, "is a folder")
        content = await node.open(flags, pid)
        handle = next(self._handles)
        self._open[handle] = node, content
        return Opened(handle, keep_cache=node.is_constant)


def _require_free(parent: int) -> None:
    """Raise FileExistsError for a new entry in a folder of the tree.

    `VirtualLayer` is called for such a folder only if a `VirtualRoot` has the name of the entry.
    """
    if parent < VIRTUAL:
        raise FileExistsError(errno.EEXIST, "the name is taken")
