"""What the service keeps, as values: zones, entries, versions, groups and tokens, free of any wire.

Knows nothing of HTTP, SQL, inodes or the kernel; every other package may import it.
Times are nanoseconds since the epoch, sizes are bytes.
"""

from collections.abc import Mapping
from typing import Any, Literal, NewType

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
    unsure: bool = False  # the service does not really say what it is: only its name is of use


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
    revision: Revision = Revision("")  # that of the entry while this was its present version


Level = Literal["Manage", "Access", "None"]
"""What a member may do in a group; "None" takes a member out."""


class Member(msgspec.Struct, frozen=True):
    """One member of a group: a user, or another group."""

    id: str
    type: str  # User or Group
    name: str = ""
    level: str = ""  # Manage or Access
    authorization: str = ""  # of users; Administrator and Internal occur


class Group(msgspec.Struct, frozen=True):
    """Some users of the organization; `id` has the form `group.<uuid>@<domain>`."""

    id: str
    name: str
    description: str = ""
    members: tuple[Member, ...] = ()
    created_ns: int = 0
    created_by: str = ""
    administrator_managed: bool = False  # no manager of its own: any administrator manages it
    open: bool = False  # every user may see its members
    may_assign_rights: bool = False


class Scope(msgspec.Struct, frozen=True, omit_defaults=True):
    """What limits a token beyond the rights of its user."""

    name: str = ""  # SCIM: users and groups alone
    description: str = ""
    clients: tuple[str, ...] = ()
    permissions: Mapping[str, Mapping[str, bool]] = {}  # by resource: all, create, list, get, …
    limitations: Mapping[str, Any] = {}
    extensions: Mapping[str, Any] = {}


class Token(msgspec.Struct, frozen=True):
    """One token of the list, as much as is known of it; never its secret."""

    id: str  # "" where the service does not say, as in the other fields
    name: str
    expires_ns: int  # 0: the service does not say
    record: Mapping[str, Any]  # everything that the service says of it


class NewToken(msgspec.Struct, frozen=True):
    """A token as it was made.  This is the only time that anybody sees the secret."""

    id: str
    secret: str
    expires_ns: int  # 0: the service does not say

    def __repr__(self) -> str:
        """Without the secret."""
        return f"NewToken(id={self.id!r}, expires_ns={self.expires_ns})"
