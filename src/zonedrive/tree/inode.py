"""What one inode is: its place, what the service knows of it, and what a program sees of it."""

from enum import IntEnum

import msgspec

from zonedrive.errors import Changed
from zonedrive.model import Attributes, Revision

ROOT = 1
NOWHERE = 0
"""The parent of an inode that has been unlinked."""


class Kind(IntEnum):
    """Stored: never renumber."""

    ROOT = 0
    ZONE = 1
    FOLDER = 2
    FILE = 3


class Inode(msgspec.Struct, eq=False, weakref=True):
    """One file or folder.  Changed only through `Tree`, inside a transaction.

    `remote_id`, `remote_parent`, `remote_name` and `revision` are the service's, as last heard;
    they differ from `parent` and `name` while a local change waits in the outbox.
    INVARIANT: `ino` is never used for another entry, also after a restart.
    """

    ino: int
    parent: int  # NOWHERE once unlinked
    name: str
    kind: Kind
    zone: str = ""  # id of the zone it is in
    remote_id: str | None = None  # None: the service does not have it
    remote_parent: str | None = None  # id of the folder the service has it in
    remote_name: str | None = None
    revision: Revision = Revision("")
    size: int = 0  # bytes, as a program sees it
    mtime_ns: int = 0  # as a program sees it; survives an upload
    ctime_ns: int = 0
    mode: int | None = None  # permission bits given by chmod; None: from the attributes
    generation: int = 0  # of the local bytes; 0: the bytes are the service's
    local: bool = False  # never leaves this machine
    listed: bool = False  # a folder whose listing is known
    modified_by: str = ""
    type: str = ""
    sync: str = ""
    attributes: Attributes = Attributes()
    seen: int = 0  # mark of what the service said, where all of it stands here; 0: not all

    @property
    def is_folder(self) -> bool:
        """Whether it can hold others."""
        return self.kind is not Kind.FILE

    @property
    def entry_id(self) -> str:
        """The service's id of it.  Raises Changed where it stands for nothing there any more."""
        if self.remote_id is None:
            raise Changed("the file here stands for nothing on the service any more")
        return self.remote_id

    @property
    def is_new(self) -> bool:
        """Whether the service has never seen it."""
        return self.remote_id is None and self.kind is not Kind.ROOT
