"""Answers about a path for user commands: its pending changes, and why it is not uploaded.

Knows nothing about the commands.

INVARIANT: a file that is never uploaded is always reported as such.
"""

from collections.abc import Container, Iterable
from fnmatch import fnmatchcase
from pathlib import PurePosixPath

import msgspec

from zonedrive.state.inode import ROOT, Inode
from zonedrive.state.local_state import LocalState
from zonedrive.state.names import typed
from zonedrive.state.status import LOST_FOUND, staying
from zonedrive.sync.directory_cache import DirectoryCache
from zonedrive.views.virtual import Folder, Node, VirtualLayer

NOT_YET = "it is not there yet"


class Place(msgspec.Struct, frozen=True):
    """Entry at a path."""

    path: str  # relative to the mount point
    inos: tuple[int, ...]  # inodes whose changes, with those below them, count for the path
    inode: Inode | None = None  # None for a virtual entry
    file: Inode | None = None  # the file whose versions are meant
    what: str = ""  # description of a virtual entry
    stays: str = ""  # why it is never uploaded, and what to do; "" for an uploaded file

    @property
    def unknown(self) -> str:
        """Reason why the service has no version of the file, or ""."""
        if self.file is None or self.file.remote_id is not None:
            return ""
        return self.stays or NOT_YET


class PathLookup:
    """Lookup of the entries at paths."""

    def __init__(self, state: LocalState, folders: DirectoryCache, virtual: VirtualLayer) -> None:
        self._state = state
        self._folders = folders
        self._virtual = virtual

    async def find(self, path: str) -> Place:
        """Return the entry at a path relative to the mount point.

        Raises FileNotFoundError, NotADirectoryError, or the error of a listing.
        """
        found: Inode | Node = self._state.inodes.get(ROOT)
        for part in PurePosixPath(path).parts:
            child = await self._child(found, typed(part))
            if child is None:
                raise FileNotFoundError(path)
            found = child
        if isinstance(found, Node):
            return self._virtual_place(path, found)
        return Place(
            path=self._state.inodes.path(found.ino),
            inos=(found.ino,),
            inode=found,
            file=None if found.is_folder else found,
            stays=self.stays(found),
        )

    async def _child(self, above: Inode | Node, name: str) -> Inode | Node | None:
        if isinstance(above, Node):
            if not isinstance(above, Folder):
                raise NotADirectoryError(name)
            return await above.child(name)
        if not above.is_folder:
            raise NotADirectoryError(name)
        await self._folders.ensure(above)
        return self._state.inodes.child(above.ino, name) or self._virtual.root(
            above.ino, name.encode()
        )

    def _virtual_place(self, path: str, node: Node) -> Place:
        state = node.sync_state()
        return Place(
            path=path,
            inos=state.inos,
            file=self._state.inodes.find(state.file) if state.file else None,
            what=state.words,
            stays=state.words if state.here_only else "",
        )

    def stays(self, inode: Inode) -> str:
        """Return the reason why the inode is never uploaded; "" if it is or will be uploaded."""
        if not inode.local:
            return ""
        tree, top = self._state.inodes, inode
        while (above := tree.get(top.parent)).local:
            top = above
        if top.parent == ROOT and top.name == LOST_FOUND:
            return "recovered from a damaged database, and only here; copy it to where it belongs"
        globs = self._state.settings.local_only
        glob = next((one for one in globs if fnmatchcase(top.name, one)), None)
        whose = "its name" if top is inode else f"the name of {top.name!r}"
        why = f"{whose} matches {glob!r}, of local_only" if glob else f"{whose} was in local_only"
        if inode.remote_id is None:
            known = "to send it, rename it" if top is inode else "to send it, move it elsewhere"
        else:
            before = ", as it was before" if inode.generation else ""
            known = f"the service keeps it as {self._there(inode)}{before}"
        return f"stays on this machine: {why}; {known}"

    def _there(self, inode: Inode) -> str:
        """Return the path of the inode on the service."""
        tree = self._state.inodes
        folder = tree.by_remote(inode.zone, inode.remote_parent or "")
        above = f"{tree.path(folder.ino)}/" if folder is not None else ""
        return f"{above}{inode.remote_name or inode.name}"

    def local(
        self, under: Iterable[int] | None = None, but: Container[int] = ()
    ) -> dict[str, int | str]:
        return staying(self._state, under, but)
