"""Trash folder of file managers. Moving an entry into it deletes the entry on the service.

File managers keep a folder `.Trash-UID` at the top of each file system. Its folder `files` holds
the trashed entries, and its folder `info` holds a note for each entry with the original path and
the deletion time. If the service can delete and restore, the mount has this folder. Moving a remote
entry into `files` then deletes the entry on the service. The deleted entry is in the service's
trash (see `zonedrive trash`).

`files` shows the entries that were moved into it since the mount started, without their bytes.
Programs can list and restore these entries: an entry that is moved out of `files` is restored on
the service. Removing an entry from `files`, as programs do to empty the trash, only hides the
entry.

This module is not specific to any file manager, and does not read the notes.

INVARIANT: nothing in this module deletes anything permanently.
"""

import errno
import os
import stat
import time
from collections.abc import Mapping

from zonedrive.state.inode import ROOT
from zonedrive.state.invalidation import EntryChanged
from zonedrive.state.local_state import LocalState
from zonedrive.vfs.namespace import NOREPLACE
from zonedrive.vfs.xattrs import own_state
from zonedrive.views.trash import TrashedEntry, TrashOperations
from zonedrive.views.virtual import Content, Node, SyncState, number

SHOWN = 10_000  # maximum number of entries and of notes; the oldest are hidden first
NOTE_BYTES = 64 << 10
NOTE = "stays on this computer: a file manager's note, kept until the mount ends"
PRIVATE = 0o700  # the mode that file managers require for this folder


class DesktopTrash:
    """Virtual folder `.Trash-UID` at the top of the mount."""

    def __init__(self, state: LocalState, operations: TrashOperations) -> None:
        self.name = f".Trash-{state.owner.uid}"
        self._operations = operations
        self._top = _Fixed(state, "top")
        self._top.entries = {
            "files": _Files(state, operations),
            "info": _Notes(state),
            # Programs move entries here before they remove them.
            "expunged": _Movable(state, "expunged"),
        }

    def open(self, folder: int) -> Node | None:
        return self._top if folder == ROOT and self._operations.is_undoable() else None


class _Fixed(Node):
    """Virtual folder that exists as long as the mount, and keeps its entries in memory."""

    mode = stat.S_IFDIR | PRIVATE

    def __init__(self, state: LocalState, word: str) -> None:
        super().__init__(number(state.database.identity, "wastebasket", word))
        self.entries: dict[str, Node] = {}
        self.mtime_ns = time.time_ns()

    async def children(self) -> Mapping[str, Node]:
        return self.entries

    def sync_state(self) -> SyncState:
        inos = [ino for node in self.entries.values() for ino in node.sync_state().inos]
        return SyncState(
            "the trash of this mount; for all deleted entries, run: zonedrive trash",
            inos=tuple(inos),
        )

    async def change(self, *, size: int | None, mode: int | None, mtime_ns: int | None) -> None:
        """Change nothing; accept the current mode and any timestamp, because programs set them.

        Raises PermissionError (EPERM) for any other mode.
        """
        if mode not in (None, PRIVATE):
            raise PermissionError(errno.EPERM, "only its owner may enter the trash")


class _Movable(_Fixed):
    def put(self, name: str, node: Node) -> None:
        self.entries[name] = node
        self.mtime_ns = time.time_ns()
        while len(self.entries) > SHOWN:
            del self.entries[next(iter(self.entries))]

    def named(self, name: str) -> Node:
        """Return the node of the entry `name`; raise FileNotFoundError if there is none."""
        if name not in self.entries:
            raise FileNotFoundError(errno.ENOENT, "no such entry")
        return self.entries[name]

    def drop(self, name: str) -> None:
        del self.entries[name]
        self.mtime_ns = time.time_ns()

    async def remove(self, name: str, *, folder: bool) -> None:
        """Remove an entry from this virtual folder.

        The service's trash does not change. Raises FileNotFoundError if there is no such entry, and
        OSError (ENOTDIR, EISDIR) if `folder` does not match the kind of the entry.
        """
        if self.named(name).is_folder is not folder:
            raise OSError(errno.ENOTDIR if folder else errno.EISDIR, "of another kind")
        self.drop(name)

    async def move(self, name: str, into: Node, new_name: str, flags: int) -> None:
        node = self.named(name)
        notes = isinstance(self, _Notes)
        _check(flags)
        if not isinstance(into, _Movable) or isinstance(into, _Notes) is not notes:
            raise OSError(errno.EXDEV, "notes and trashed entries have separate folders")
        if into.entries.get(new_name, node) is not node and (flags & NOREPLACE or not notes):
            raise FileExistsError(errno.EEXIST, "the name is taken")
        self.drop(name)
        into.put(new_name, node)


class _Notes(_Movable):
    """Folder `info` with the file managers' notes about trashed entries, kept in memory."""

    def __init__(self, state: LocalState) -> None:
        super().__init__(state, "info")
        self._state = state

    def sync_state(self) -> SyncState:
        return SyncState(NOTE, here_only=True)

    async def create(self, name: str) -> Node:
        if name in self.entries:
            raise FileExistsError(errno.EEXIST, "the name is taken")
        note = _Note(_new_number(self._state))
        self.put(name, note)
        return note


class _Note(Node, Content):
    """File with a file manager's note: at most NOTE_BYTES bytes, kept in memory."""

    mode = stat.S_IFREG | 0o600
    is_constant = False

    def __init__(self, ino: int) -> None:
        super().__init__(ino)
        self._data = bytearray()
        self.mtime_ns = time.time_ns()

    def sync_state(self) -> SyncState:
        return SyncState(NOTE, here_only=True)

    async def change(self, *, size: int | None, mode: int | None, mtime_ns: int | None) -> None:
        """Change size or modification time; the permissions stay unchanged."""
        if size is not None:
            self._resize(size)
        if mtime_ns is not None:
            self.mtime_ns = mtime_ns

    async def open(self, flags: int, pid: int) -> Content:
        if flags & os.O_TRUNC:
            self._resize(0)
        return self

    async def read(self, offset: int, size: int) -> bytes:
        return bytes(self._data[offset : offset + size])

    async def write(self, offset: int, data: bytes) -> int:
        end = offset + len(data)
        self._resize(max(end, self.size))
        self._data[offset:end] = data
        return len(data)

    def _resize(self, size: int) -> None:
        if size > NOTE_BYTES:
            raise OSError(errno.EFBIG, "too long for a note")
        self._data[size:] = bytes(max(0, size - len(self._data)))
        self.size = size
        self.mtime_ns = time.time_ns()


class _Deleted(Node):
    """Trashed file or folder, without its bytes or entries."""

    def __init__(self, state: LocalState, gone: TrashedEntry) -> None:
        super().__init__(_new_number(state))
        self._state = state
        self.gone = gone
        # A folder without write permission cannot be moved.
        self.mode = stat.S_IFDIR | PRIVATE if gone.entry.folder else stat.S_IFREG | 0o400
        self.size, self.mtime_ns = gone.entry.size, gone.entry.modified_ns

    def xattrs(self) -> dict[str, str]:
        entry, inode = self.gone.entry, self._state.inodes.find(self.gone.ino)
        deletion = own_state(self._state, inode, ()) if inode is not None else None
        return {
            "id": entry.id,
            "zone": entry.zone_id,
            "state": deletion or "remote",
            "modified_by": entry.modified_by,
            "type": entry.type,
            "sync": entry.sync,
        }

    def sync_state(self) -> SyncState:
        what = "folder" if self.is_folder else "file"
        words = f"a deleted {what}; for all of them, run: zonedrive trash"
        return SyncState(words, inos=(self.gone.ino,))

    async def open(self, flags: int, pid: int) -> Content:
        raise PermissionError(errno.EACCES, "deleted: restore it to read it")

    async def children(self) -> Mapping[str, Node]:
        return {}


class _Files(_Movable):
    """Folder `files` with the trashed entries; an entry that is moved out is restored."""

    def __init__(self, state: LocalState, operations: TrashOperations) -> None:
        super().__init__(state, "files")
        self._state = state
        self._operations = operations

    async def children(self) -> Mapping[str, Node]:
        """Return the trashed entries by name, except entries that were restored by other means."""
        for name, node in list(self.entries.items()):
            if isinstance(node, _Deleted) and self._operations.is_back(node.gone):
                self.drop(name)
        return self.entries

    async def child(self, name: str) -> Node | None:
        return self.entries.get(name)

    async def move_in(self, parent: int, old_name: str, name: str, flags: int) -> None:
        _check(flags)
        if name in self.entries:
            raise FileExistsError(errno.EEXIST, "the name is taken")
        gone = await self._operations.delete(parent, old_name)
        self.put(name, _Deleted(self._state, gone))
        # The kernel has moved the dentry of the deleted entry here.
        self._state.invalidations.put(EntryChanged(self.ino, name.encode()))

    async def move_out(self, name: str, parent: int, new_name: str, flags: int) -> None:
        _check(flags)
        node = self.named(name)
        assert isinstance(node, _Deleted)
        await self._operations.bring_back(node.gone, parent, new_name)
        if self.entries.get(name) is node:
            self.drop(name)
        self._state.invalidations.put(EntryChanged(parent, new_name.encode()))


def _check(flags: int) -> None:
    if flags & ~NOREPLACE:
        raise OSError(errno.EINVAL, "flags that are not supported")


def _new_number(state: LocalState) -> int:
    return number(state.database.identity, "wastebasket", "entry", str(state.next_generation()))
