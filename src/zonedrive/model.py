"""What the service keeps, as values: zones, entries and versions, free of any wire format.

Knows nothing of HTTP, SQL, inodes or the kernel; every other package may import it.
Times are nanoseconds since the epoch, sizes are bytes.
"""

from typing import NewType

import msgspec

Revision = NewType("Revision", str)
"""Tells one state of a file on the service from another.

The published interface names no version in an entry, so the stamp is made of what changes
whenever a version is added (time, size and author).  Equal stamps mean the same version;
nothing else may be read out of one.
"""


class Attributes(msgspec.Struct, frozen=True):
    """The five flags the service keeps on an entry."""

    executable: bool = False
    hidden: bool = False
    read_protected: bool = False
    synchronize: bool = False
    write_protected: bool = False


class Entry(msgspec.Struct, frozen=True):
    """A file or folder as the service describes it."""

    id: str
    zone_id: str
    parent_id: str
    name: str  # as the service has it: any text, see tree.names for what the mount shows
    folder: bool
    size: int = 0
    modified_ns: int = 0
    modified_by: str = ""
    type: str = ""
    sync: str = ""
    attributes: Attributes = Attributes()
    deleted: bool = False
    revision: Revision = Revision("")


class Zone(msgspec.Struct, frozen=True):
    """A compartment of the organization; `root_id` is its root folder."""

    id: str
    name: str
    root_id: str
    description: str = ""
    accessible: bool = True  # reachable through the API; others are listed but not mounted
    size: int | None = None  # None: the service does not say
    users: int | None = None
    created_ns: int = 0


class Version(msgspec.Struct, frozen=True):
    """One immutable version of a file; `id` is what the service calls it by."""

    version: str
    id: str
    size: int
    modified_ns: int
    modified_by: str
