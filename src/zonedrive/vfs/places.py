"""What a path means to a person who asks about it: whose changes count, and what never leaves.

Must not know which command asks.

INVARIANT: of what stays on this machine it is never left open that it does.
"""

from collections.abc import Container, Iterable
from fnmatch import fnmatchcase
from pathlib import PurePosixPath

import msgspec

from zonedrive.tree.inode import ROOT, Inode
from zonedrive.tree.names import typed
from zonedrive.vfs.core import Core
from zonedrive.vfs.listings.folders import Folders
from zonedrive.vfs.status import LOST_FOUND, staying
from zonedrive.vfs.virtual.nodes import Folder, Node
from zonedrive.vfs.virtual.verbs import Virtual

NOT_YET = "it is not there yet"


class Place(msgspec.Struct, frozen=True):
    """What stands at a path."""

    path: str  # below the mount
    inos: tuple[int, ...]  # of the tree: what is told of these, and of what is in them, counts
    inode: Inode | None = None  # None: a virtual entry
    file: Inode | None = None  # whose versions are meant
    what: str = ""  # of a virtual entry, in words
    stays: str = ""  # why it is on this machine only, and what to do; "": it is not to stay

    @property
    def unknown(self) -> str:
        """Why the service has no version of the file, "" where it has."""
        if self.file is None or self.file.remote_id is not None:
            return ""
        return self.stays or NOT_YET


class Places:
    """Finds them."""

    def __init__(self, core: Core, folders: Folders, virtual: Virtual) -> None:
        self._core = core
        self._folders = folders
        self._virtual = virtual

    async def find(self, path: str) -> Place:
        """At a path below the mount point.

        Raises FileNotFoundError, NotADirectoryError, or what keeps a folder from being listed.
        """
        found: Inode | Node = self._core.tree.get(ROOT)
        for part in PurePosixPath(path).parts:
            child = await self._child(found, typed(part))
            if child is None:
                raise FileNotFoundError(path)
            found = child
        if isinstance(found, Node):
            return self._virtual_place(path, found)
        return Place(
            path=self._core.tree.path(found.ino),
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
        return self._core.tree.child(above.ino, name) or self._virtual.door(
            above.ino, name.encode()
        )

    def _virtual_place(self, path: str, node: Node) -> Place:
        standing = node.standing()
        return Place(
            path=path,
            inos=standing.inos,
            file=self._core.tree.find(standing.file) if standing.file else None,
            what=standing.words,
            stays=standing.words if standing.here_only else "",
        )

    # ---- what never leaves ----

    def stays(self, inode: Inode) -> str:
        """Why it is on this machine only; "" for what the service has, or is to have."""
        if not inode.local:
            return ""
        tree, top = self._core.tree, inode
        while (above := tree.get(top.parent)).local:
            top = above
        if top.parent == ROOT and top.name == LOST_FOUND:
            return "stays on this machine, saved from damage; copy it to where it belongs"
        globs = self._core.settings.local_only
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
        """The path by which the service has it."""
        tree = self._core.tree
        folder = tree.by_remote(inode.zone, inode.remote_parent or "")
        above = f"{tree.path(folder.ino)}/" if folder is not None else ""
        return f"{above}{inode.remote_name or inode.name}"

    def local(
        self, under: Iterable[int] | None = None, but: Container[int] = ()
    ) -> dict[str, int | str]:
        """See `status.staying`."""
        return staying(self._core, under, but)
