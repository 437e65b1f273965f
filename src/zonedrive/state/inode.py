"""Inode: place in the tree, state on the service, and the attributes that programs see."""

from enum import Flag, IntEnum, auto

import msgspec

from zonedrive.errors import Changed
from zonedrive.model import Attributes, Revision

ROOT = 1
NOWHERE = 0
"""Parent of an unlinked inode."""


IDENTITY = (
    *("remote_id", "remote_parent", "remote_name"),
    *("revision", "modified_by", "type", "sync", "attributes"),
)
"""Fields of an inode that describe its entry on the service."""


class Kind(IntEnum):
    """Kind of an inode. The numbers are stored in the database, so they never change."""

    ROOT = 0
    ZONE = 1
    FOLDER = 2
    FILE = 3


class Local(Flag):
    """Local changes of an inode that the service does not have yet."""

    NOTHING = 0
    CONTENT = auto()
    PLACE = auto()
    GONE = auto()
    PARKED = auto()  # with PLACE: the name is local-only, and the entry stays where it is
    OPENING = auto()  # a program is about to write: its session is being prepared


class Inode(msgspec.Struct, eq=False, weakref=True):
    """File or folder; changed only by the methods of `Inodes`, in a transaction.

    `remote_id`, `remote_parent`, `remote_name` and `revision` are the service's last known values.
    Until a local rename or move is sent, `remote_parent` and `remote_name` describe the old place.

    INVARIANT: `ino` is never used for another entry, even after a restart.
    """

    ino: int
    parent: int  # NOWHERE once unlinked
    name: str
    kind: Kind
    zone: str = ""  # id of the zone that contains the inode
    remote_id: str | None = None  # None: the service has no entry for the inode
    remote_parent: str | None = None  # id of the folder on the service
    remote_name: str | None = None
    revision: Revision = Revision("")
    size: int = 0  # bytes, as a program sees it
    mtime_ns: int = 0  # as a program sees it; survives an upload
    ctime_ns: int = 0
    mode: int | None = None  # permission bits set by chmod; None: from the attributes
    generation: int = 0  # generation of the local bytes; 0: the bytes are the service's
    local: bool = False  # never leaves this machine
    listed: bool = False  # a folder: its whole listing is stored
    modified_by: str = ""
    type: str = ""
    sync: str = ""
    attributes: Attributes = Attributes()
    seen: int = 0  # hash (`Sealed.mark`) of the service's reply, if all of it is stored; else 0

    @property
    def is_folder(self) -> bool:
        """True if the inode is a folder, a zone or the root."""
        return self.kind is not Kind.FILE

    @property
    def entry_id(self) -> str:
        """Remote id of the inode's entry. Raises Changed if the service has no such entry."""
        if self.remote_id is None:
            raise Changed("the service has no entry for the local file any more")
        return self.remote_id

    @property
    def identity(self) -> dict[str, object]:
        """Values of the IDENTITY fields by name, for another inode that takes over the entry."""
        return {name: getattr(self, name) for name in IDENTITY}

    @property
    def is_new(self) -> bool:
        """True if the service has no entry for the inode. The root is never new."""
        return self.remote_id is None and self.kind is not Kind.ROOT
