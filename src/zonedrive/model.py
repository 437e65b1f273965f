"""Data types of the service, such as zones, entries and tokens, independent of the wire format.

This module does not depend on HTTP, SQL, inodes or the kernel. Every other package may import this
module. Times are nanoseconds since the epoch, sizes are bytes.
"""

from collections.abc import Mapping
from typing import Any, Literal, NewType

import msgspec

Revision = NewType("Revision", str)
"""Identifier of one state of a file on the service.

In the published API, an entry does not contain its version number, so the identifier is made of the
fields that change with every new version: time, size and author. Equal identifiers mean the same
version; an identifier has no other meaning.
"""

UNITS_NS = (10**9, 10**6, 10**3)
"""Precisions of a service's times, in nanoseconds."""


def differ_in_precision(one: Revision, other: Revision) -> bool:
    """Return True if only the precision of the time or a missing author makes the revisions differ.

    Such revisions are probably two forms of one revision. However, another machine of the author
    may have saved a version of the same size within the coarser unit of time. If the author is
    missing, any user may have saved that version.
    """
    (time, *rest), (other_time, *others) = one.split("|", 2), other.split("|", 2)
    if not (time.isdecimal() and other_time.isdecimal()):
        return False
    lacks_author = rest != others and rest[:1] == others[:1] and "" in (rest[-1], others[-1])
    if rest != others and not lacks_author:
        return False
    if time == other_time and lacks_author and time != "0":
        return True
    times = int(time), int(other_time)
    return any(
        abs(times[0] - times[1]) < unit and sum(each % unit == 0 for each in times) == 1
        for unit in UNITS_NS
    )


def are_of_equal_size(one: Revision, other: Revision) -> bool:
    """Return True if the versions with these revisions have the same size in bytes."""
    return one.split("|", 2)[1:2] == other.split("|", 2)[1:2]


class Attributes(msgspec.Struct, frozen=True):
    """Flags that the service stores for an entry."""

    executable: bool = False
    hidden: bool = False
    read_protected: bool = False
    synchronize: bool = False
    write_protected: bool = False


class Entry(msgspec.Struct, frozen=True):
    """File or folder as described by the service."""

    id: str
    zone_id: str
    parent_id: str
    name: str  # the service's name: any text; see state.names for the name in the mount
    folder: bool
    size: int = 0
    modified_ns: int = 0
    modified_by: str = ""
    type: str = ""
    sync: str = ""
    attributes: Attributes = Attributes()
    deleted: bool = False
    revision: Revision = Revision("")
    unsure: bool = False  # the service's description lacks the id, name, kind or size


class Zone(msgspec.Struct, frozen=True):
    """Zone of the organization; `root_id` is the id of its root folder."""

    id: str
    name: str
    root_id: str
    description: str = ""
    accessible: bool = True  # reachable through the API; others are listed but not mounted
    size: int | None = None  # None: not stated by the service
    users: int | None = None
    created_ns: int = 0


class LogMessage(msgspec.Struct, frozen=True):
    """Message of a zone's log; the service may leave fields empty."""

    time_ns: int  # 0: not stated
    user: str
    event: str  # name of the event, chosen by the service
    entry_id: str  # file or folder that the message is about; "" if none or not stated
    path: str  # path in the zone at that time, with the service's names; "" if not stated
    message: str


class Version(msgspec.Struct, frozen=True):
    """Immutable version of a file; `id` is the service's id of the version."""

    version: str
    id: str
    size: int
    modified_ns: int
    modified_by: str
    revision: Revision = Revision("")  # revision of the entry while this was the current version


Level = Literal["Manage", "Access", "None"]
"""Access level of a member in a group; setting the level "None" removes the member."""


class Member(msgspec.Struct, frozen=True):
    """User or group that is a member of a group or zone."""

    id: str
    type: str  # User or Group
    name: str = ""
    level: str = ""  # of a group: Manage or Access; of a zone: Add, Modify and others
    authorization: str = ""  # of a user, for example Administrator or Internal


class Group(msgspec.Struct, frozen=True):
    """Group of users of the organization; `id` has the form `group.<uuid>@<domain>`."""

    id: str
    name: str
    description: str = ""
    members: tuple[Member, ...] = ()
    created_ns: int = 0
    created_by: str = ""
    administrator_managed: bool = False  # without managers; any administrator manages the group
    open: bool = False  # every user may see the group's members
    may_assign_rights: bool = False


class Scope(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Restrictions of a token, in addition to the restrictions of the token's user."""

    name: str = ""  # SCIM limits the token to users and groups
    description: str = ""
    clients: tuple[str, ...] = ()
    permissions: Mapping[str, Mapping[str, bool]] = {}  # by resource: all, create, list, get, …
    limitations: Mapping[str, Any] = {}
    extensions: Mapping[str, Any] = {}


class Token(msgspec.Struct, frozen=True):
    """Item of a list of tokens, without the token's secret."""

    id: str  # "": not stated by the service
    name: str  # "": not stated
    expires_ns: int  # 0: not stated
    record: Mapping[str, Any]  # all fields of the service's reply


class NewToken(msgspec.Struct, frozen=True):
    """Newly created token with its secret, which the service does not send again."""

    id: str
    secret: str
    expires_ns: int  # 0: not stated

    def __repr__(self) -> str:
        """Return a string with all fields except the secret."""
        return f"NewToken(id={self.id!r}, expires_ns={self.expires_ns})"
