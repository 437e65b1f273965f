"""POSIX operations on virtual entries (see `nodes`), parallel to those of `filesystem`.

Knows nothing about the purpose of the virtual entries.

A name is looked up among the virtual roots only if it is not in the tree, so entries of the tree
have no extra cost.  A virtual entry is only in memory, while the kernel, a listing or an open file
uses it.
"""

import errno
import stat
from collections.abc import Collection, Iterator, Sequence
from weakref import WeakValueDictionary

from zonedrive.state.attributes import FOLDER_SIZE, Attr
from zonedrive.state.inode import NOWHERE
from zonedrive.state.local_state import LocalState
from zonedrive.state.open_file import Opened
from zonedrive.vfs.xattrs import PREFIX
from zonedrive.views.nodes import VIRTUAL, Content, File, Folder, Node, VirtualRoot, refuse

DOTS = (".", "..")


class _Listing:
    """Open directory handle of a virtual folder; its entries stay known until it is closed."""

    def __init__(self, entries: list[tuple[str, Node]]) -> None:
        self.entries = entries


class VirtualVerbs:
    """Virtual entries of a mount."""

    def __init__(self, state: LocalState, doors: Sequence[VirtualRoot]) -> None:
        self._state = state
        self._doors = {door.name.encode(): door for door in doors}
        self._known: WeakValueDictionary[int, Node] = WeakValueDictionary()
        self._held: dict[int, tuple[Node, int]] = {}  # each node with its kernel lookup count
        self._listings: dict[int, _Listing] = {}  # by handle, like `_open`
        self._open: dict[int, tuple[File, Content]] = {}
        self._next_handle = VIRTUAL

    # ---- finding ----

    def door(self, parent: int, name: bytes) -> Folder | None:
        """Return the virtual folder of that name, or None; entries of the tree have precedence."""
        door = self._doors.get(name)
        if door is None:
            return None
        folder = self._state.inodes.find(parent)
        if folder is None or not folder.is_folder or folder.parent == NOWHERE:
            return None
        if self._state.inodes.has_name(parent, door.name):
            return None
        return door.open(parent)

    def concerns(self, parent: int, name: bytes) -> bool:
        """Return True if the entry with that name is virtual, or would be virtual."""
        return parent >= VIRTUAL or (name in self._doors and self.door(parent, name) is not None)

    def enter(self, parent: int, name: bytes) -> Attr | None:
        """Look up a name that the tree does not have, and increment the kernel's lookup count."""
        node = self.door(parent, name)
        return None if node is None else self._hold(node)

    async def lookup(self, parent: int, name: bytes) -> Attr:
        """Look up a name in a virtual folder and increment the kernel's lookup count.

        Raises FileNotFoundError.
        """
        node = await self._folder(parent).child(self._state.checked_name(name))
        if node is None:
            raise FileNotFoundError(errno.ENOENT, "no such entry")
        return self._hold(node)

    def forget(self, ino: int, count: int) -> None:
        """Decrement the kernel's lookup count of a virtual entry by `count`."""
        node, held = self._held.pop(ino, (None, 0))
        if node is not None and held > count:
            self._held[ino] = node, held - count

    def remember(self, inos: Collection[int]) -> None:
        """Increment the lookup counts of entries that the kernel received in a listing."""
        for ino in inos:
            self._hold(self._get(ino))

    def getattr(self, ino: int) -> Attr:
        """Return the stat fields."""
        return self._attr(self._get(ino))

    def xattrs(self, ino: int) -> dict[str, str]:
        """Return the extended attributes by their full names."""
        return {PREFIX + name: value for name, value in self._get(ino).xattrs().items()}

    def permits(self, ino: int, mode: int) -> bool:
        """Return True if access(2) with `mode` succeeds for the user of the daemon."""
        return not mode & ~(self._get(ino).mode >> 6) & 7

    # ---- listing ----

    async def opendir(self, ino: int) -> int:
        """Return a handle for reading the names of a virtual folder."""
        folder = self._folder(ino)
        entries: list[tuple[str, Node]] = [(dot, folder) for dot in DOTS]
        entries += [(name, self._same(node)) for name, node in (await folder.children()).items()]
        handle = self._new_handle()
        self._listings[handle] = _Listing(entries)
        return handle

    def readdir(self, handle: int, start: int) -> Iterator[tuple[bytes, Attr, int]]:
        """Yield (name, stat fields, next position) from entry number `start` on."""
        entries = self._listings[handle].entries
        for number in range(start, len(entries)):
            name, node = entries[number]
            yield name.encode(), self._attr(node), number + 1

    def releasedir(self, handle: int) -> None:
        """Close the directory handle."""
        self._listings.pop(handle, None)

    # ---- changing ----

    async def setattr(
        self, ino: int, *, size: int | None, mode: int | None, mtime_ns: int | None
    ) -> Attr:
        """Change size, mode or modification time, and return the stat fields."""
        node = self._get(ino)
        await node.change(size=size, mode=mode, mtime_ns=mtime_ns)
        return self._attr(node)

    async def create(self, parent: int, name: bytes, mode: int, flags: int) -> tuple[Opened, Attr]:
        """Create and open a file."""
        folder, wanted = self._free_place(parent, name)
        node = await folder.create(wanted, mode)
        opened = await self._opened(node, flags, 0)
        return opened, self._hold(node)

    async def mkdir(self, parent: int, name: bytes, mode: int) -> Attr:
        """Create a folder."""
        folder, wanted = self._free_place(parent, name)
        return self._hold(await folder.make_folder(wanted, mode))

    async def remove(self, parent: int, name: bytes, *, folder: bool) -> None:
        """Remove an entry as unlink(2) and rmdir(2) do; a `VirtualRoot` cannot be removed."""
        if parent < VIRTUAL:
            refuse()
        await self._folder(parent).remove(self._state.checked_name(name), folder=folder)

    async def rename(
        self, old_parent: int, old_name: bytes, new_parent: int, new_name: bytes, flags: int
    ) -> None:
        """Rename an entry where the source or the target is virtual."""
        state = self._state
        if self.door(old_parent, old_name) or self.door(new_parent, new_name):
            refuse()
        source, wanted = state.checked_name(old_name), state.checked_name(new_name)
        if old_parent < VIRTUAL:
            await self._folder(new_parent).move_in(old_parent, source, wanted, flags)
        elif new_parent < VIRTUAL:
            await self._folder(old_parent).move_out(source, new_parent, wanted, flags)
        else:
            into = self._folder(new_parent)
            await self._folder(old_parent).move(source, into, wanted, flags)

    # ---- open files ----

    async def open(self, ino: int, flags: int, pid: int) -> Opened:
        """Open a file and return its handle."""
        return await self._opened(self._get(ino), flags, pid)

    async def read(self, handle: int, offset: int, size: int) -> bytes:
        """Return the bytes at `offset`."""
        return await self._open[handle][1].read(offset, size)

    async def write(self, handle: int, offset: int, data: bytes) -> int:
        """Write `data` at `offset` and return the number of bytes."""
        return await self._open[handle][1].write(offset, data)

    async def flush(self, handle: int) -> None:
        """Store written bytes, on close(2) or fsync(2)."""
        await self._open[handle][1].flush()

    def release(self, handle: int) -> None:
        """Close the handle after its last descriptor."""
        self._open.pop(handle)[1].close()

    def close_all(self) -> None:
        """Close all files at the end of the mount."""
        for handle in list(self._open):
            self.release(handle)

    # ---- inside ----

    def _get(self, ino: int) -> Node:
        held = self._held.get(ino)
        node = self._known.get(ino) if held is None else held[0]
        if node is None:
            raise FileNotFoundError(errno.ENOENT, "no such entry")
        return node

    def _folder(self, ino: int) -> Folder:
        node = self._get(ino)
        if not isinstance(node, Folder):
            raise NotADirectoryError(errno.ENOTDIR, "not a folder")
        return node

    def _free_place(self, parent: int, name: bytes) -> tuple[Folder, str]:
        """Return virtual folder and checked name.  Raises FileExistsError in a tree folder."""
        if parent < VIRTUAL:
            raise FileExistsError(errno.EEXIST, "the name is taken")
        return self._folder(parent), self._state.checked_name(name)

    def _same(self, node: Node) -> Node:
        """Return the node object that is in use for this entry, or `node` if none is in use."""
        return self._known.setdefault(node.ino, node)

    def _hold(self, node: Node) -> Attr:
        node = self._same(node)
        self._held[node.ino] = node, self._held.get(node.ino, (node, 0))[1] + 1
        return self._attr(node)

    def _attr(self, node: Node) -> Attr:
        owner, size, mtime_ns = self._state.owner, node.size, node.mtime_ns
        return Attr(
            ino=node.ino,
            mode=node.mode,
            nlink=1,
            size=FOLDER_SIZE if stat.S_ISDIR(node.mode) else size,
            mtime_ns=mtime_ns,
            ctime_ns=mtime_ns,
            atime_ns=mtime_ns,
            uid=owner.uid,
            gid=owner.gid,
            entry_timeout=node.timeout,
            attr_timeout=node.timeout,
        )

    async def _opened(self, node: Node, flags: int, pid: int) -> Opened:
        if not isinstance(node, File):
            raise IsADirectoryError(errno.EISDIR, "is a folder")
        content = await node.open(flags, pid)
        handle = self._new_handle()
        self._open[handle] = node, content
        return Opened(handle, keep_cache=not node.mode & stat.S_IWUSR)

    def _new_handle(self) -> int:
        handle, self._next_handle = self._next_handle, self._next_handle + 1
        return handle
