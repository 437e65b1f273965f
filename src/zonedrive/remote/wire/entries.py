"""Tolerant parsing of the service's JSON into zones, entries and versions.

The only module that knows the JSON member names. Knows nothing about requests or the origin of an
answer. Unknown members are ignored. A missing, null or malformed member gets a harmless default. If
there is no harmless default (name, kind, size of a file), the item is marked `unsure`, and the tree
keeps its previous state of it. An item that cannot be addressed (an entry without id, a zone
without id or name) is dropped with a warning, so that the other items survive. The listing is then
not `complete`: unnamed items may exist all the same, and their names count as taken. An array that
contains no object at all is an error.

INVARIANT: every integer returned fits SQLite (64 bits, signed), every text has a UTF-8 form.
"""

import itertools
import json
import logging
import math
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import msgspec

from zonedrive.errors import BadAnswer
from zonedrive.formatting import plain
from zonedrive.model import Attributes, Entry, Revision, Version, Zone
from zonedrive.remote.wire.fields import count as count
from zonedrive.remote.wire.fields import identifier, is_count, known, plain_value
from zonedrive.remote.wire.fields import moment as moment
from zonedrive.remote.wire.fields import name as called
from zonedrive.remote.wire.fields import text as text

logger = logging.getLogger(__name__)

MOST_VALUES = 4_000_000
"""Maximum number of values in one answer: the members of about 200,000 entries."""


# Members are `object`: an odd value in one of them must not cost the whole listing.
class WireEntry(msgspec.Struct, eq=False):
    """JSON form of a file or folder entry."""

    id: object = None
    zoneId: object = None  # noqa: N815
    parentId: object = None  # noqa: N815
    name: object = None
    folder: object = None
    deleted: object = None
    size: object = None
    type: object = None
    lastModified: object = None  # noqa: N815
    lastModifiedBy: object = None  # noqa: N815
    synchronizationStatus: object = None  # noqa: N815
    attributes: object = None


class WireZone(msgspec.Struct, eq=False):
    """JSON form of a zone."""

    id: object = None
    name: object = None
    rootId: object = None  # noqa: N815
    description: object = None
    ssiAccessible: object = None  # noqa: N815
    currentSize: object = None  # noqa: N815
    numberOfUsers: object = None  # noqa: N815
    createdAt: object = None  # noqa: N815


class WireVersion(msgspec.Struct, eq=False):
    """JSON form of a file version."""

    id: object = None
    version: object = None
    size: object = None
    lastModified: object = None  # noqa: N815
    lastModifiedBy: object = None  # noqa: N815


class WireMessage(msgspec.Struct, eq=False):
    """JSON form of a zone log message; its members are not published."""

    id: object
    said: dict[str, object]


WireT = TypeVar("WireT", WireEntry, WireZone, WireVersion)


def require_few_values(body: bytes, doing: str) -> None:
    """Raise BadAnswer if `body` has too many values.

    Parsed values can take a hundred times the memory of `body`, so this check runs before parsing.
    """
    if len(body) > MOST_VALUES and sum(map(body.count, (b",", b"[", b"{"))) > MOST_VALUES:
        raise BadAnswer(f"{doing}: the answer has more than {MOST_VALUES} values")


def parse(body: bytes, doing: str) -> Any:
    """Return the JSON value in `body`. Raises BadAnswer if `body` is not JSON."""
    require_few_values(body, doing)
    try:
        return msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as wrong:
        # Escapes of half a character (a name cut in the middle of an emoji) are not JSON to
        # msgspec, though services write them.  NaN and the like have no form in JSON: nothing.
        try:
            return json.loads(
                body,
                parse_constant=lambda _name: None,
                parse_float=_finite,
                object_pairs_hook=_members,
            )
        except (ValueError, RecursionError):
            raise BadAnswer(f"{doing}: the answer is not JSON ({wrong})") from wrong


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object as a dict; member names become valid UTF-8."""
    return {plain(key): value for key, value in pairs}


def _finite(digits: str) -> float | None:
    number = float(digits)
    return number if math.isfinite(number) else None


def items(body: bytes, kind: type[WireT], doing: str) -> list[WireT]:
    """Return the objects of the array in `body`, converted to `kind`.

    An item that is not an object becomes an empty `kind`, so that the length of the array is kept.
    Raises BadAnswer if the answer is not an array.
    """
    require_few_values(body, doing)
    try:
        return msgspec.json.decode(body, type=list[kind])  # type: ignore[valid-type]
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return items_of(parse(body, doing), kind, doing)


def items_of(value: object, kind: type[WireT], doing: str) -> list[WireT]:
    """Return the objects of an already parsed array, converted as in `items`."""
    if not isinstance(value, list):
        raise BadAnswer(f"{doing}: the answer is not an array")
    require_objects((isinstance(item, dict) for item in value), doing)
    return [msgspec.convert(item, kind) if isinstance(item, dict) else kind() for item in value]


def require_objects(objects: Iterable[bool], doing: str) -> None:
    """Raise BadAnswer if there are items but none of them is an object."""
    none_is = False
    for is_object in objects:
        if is_object:
            return
        none_is = True
    if none_is:
        raise BadAnswer(f"{doing}: nothing in the answer is an object")


def version_items(value: object, fields: Mapping[str, str], doing: str) -> list[WireVersion]:
    """Return the versions in a parsed array; `fields` maps each Version field to a dotted path.

    Raises BadAnswer if `value` is not an array.
    """
    if not isinstance(value, list):
        raise BadAnswer(f"{doing}: the answer is not an array")
    return [
        WireVersion(**{_VERSION[name]: member(item, path) for name, path in fields.items()})
        for item in value
    ]


def message_items(value: object, doing: str) -> list[WireMessage]:
    """Return the zone log messages in a parsed array; items that are not objects are skipped.

    Raises BadAnswer if `value` is not an array.
    """
    if not isinstance(value, list):
        raise BadAnswer(f"{doing}: the answer is not an array")
    return [
        WireMessage(item.get("id"), plain_value(item, doing))
        for item in value
        if isinstance(item, dict)
    ]


def levels(value: object, fields: Mapping[str, str], doing: str) -> dict[str, str]:
    """Return the access level per zone id; `fields` gives the dotted path of both members.

    Raises BadAnswer if `value` is not an array.
    """
    if not isinstance(value, list):
        raise BadAnswer(f"{doing}: the answer is not an array")
    pairs = (
        (identifier(member(item, fields["zone"])), text(member(item, fields["level"])))
        for item in value
    )
    return {zone: level for zone, level in pairs if zone and level}


_VERSION = {
    "version": "version",
    "id": "id",
    "size": "size",
    "modified": "lastModified",
    "modified_by": "lastModifiedBy",
}


def member(value: object, path: str) -> object:
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value


def entry(wire: WireEntry, *, zone_id: str, parent_id: str = "", name: str = "") -> Entry | None:
    """Return the entry, or None if it has no id; the keywords fill in missing members."""
    found_id = identifier(wire.id)
    if not found_id:
        return None
    size, modified, author = count(wire.size), moment(wire.lastModified), text(wire.lastModifiedBy)
    return Entry(
        id=found_id,
        zone_id=_same(wire.zoneId, zone_id),
        parent_id=_same(wire.parentId, parent_id),
        name=called(wire.name) or name,
        folder=wire.folder is True,
        size=0 if wire.folder is True else size,
        modified_ns=modified,
        modified_by=author,
        type=text(wire.type),
        sync=text(wire.synchronizationStatus),
        attributes=_attributes(wire.attributes),
        deleted=wire.deleted is True,
        revision=_revision(modified or text(wire.lastModified), size, author),
        unsure=not is_whole(wire),
    )


def _revision(modified: int | str, size: int, author: str) -> Revision:
    # The parsed time is used, so that two spellings of one time give the same stamp.
    return Revision(f"{modified}|{size}|{author}")


def is_whole(wire: WireEntry) -> bool:
    """Return True if an entry has all facts the tree needs: name, kind, size and deleted flag."""
    return (
        isinstance(wire.name, str)
        and isinstance(wire.folder, bool)
        and (wire.folder or is_count(wire.size))
        and (wire.deleted is None or isinstance(wire.deleted, bool))
    )


def _same(told: object, known: str) -> str:
    """Return the id in `told`, or `known` if they are equal, to share one string object."""
    return known if told == known else identifier(told) or known


def one_entry(
    value: object,
    doing: str,
    *,
    zone_id: str,
    parent_id: str = "",
    name: str = "",
    is_file: bool = False,
) -> Entry:
    """Return the entry in a parsed answer; the keywords fill in missing members.

    Raises BadAnswer if the answer is not an entry, or lacks name, kind or size.
    """
    wire = msgspec.convert(value, WireEntry) if isinstance(value, dict) else WireEntry()
    if name and not isinstance(wire.name, str):
        wire.name = name
    if is_file and not isinstance(wire.folder, bool):
        wire.folder = False
    found = entry(wire, zone_id=zone_id, parent_id=parent_id, name=name)
    if found is None:
        raise BadAnswer(f"{doing}: the answer is not an entry with an id")
    if found.unsure:
        raise BadAnswer(f"{doing}: the answer lacks an entry's name, kind or size")
    return found


def entries(
    wires: list[WireEntry], doing: str, *, zone_id: str, parent_id: str = ""
) -> list[Entry]:
    """Return all entries that have an id, in the order of `wires`."""
    found = [entry(wire, zone_id=zone_id, parent_id=parent_id) for wire in wires]
    return _kept(found, "id", doing)


class ListedZones:
    """Zones of a user, and which facts the service left out."""

    def __init__(self, wires: list[WireZone], doing: str) -> None:
        self.zones = zones(wires, doing)
        ids = [identifier(wire.id) for wire in wires]
        named = {zone.id for zone in self.zones if zone.root_id}
        self.complete = "" not in ids
        self.unsure = frozenset(ids) - named - {""}
        """Ids of the zones without a name or a root folder."""


def zones(wires: list[WireZone], doing: str) -> list[Zone]:
    """Return all zones with id and name; a zone without a root folder is not accessible."""
    found: list[Zone | None] = []
    for wire in wires:
        zone_id, root = identifier(wire.id), identifier(wire.rootId)
        name = called(wire.name)
        found.append(
            Zone(
                id=zone_id,
                name=name,
                root_id=root,
                description=text(wire.description),
                accessible=bool(root) and wire.ssiAccessible is not False,
                size=known(wire.currentSize),
                users=known(wire.numberOfUsers),
                created_ns=moment(wire.createdAt),
            )
            if zone_id and name
            else None
        )
    return _kept(found, "id or name", doing)


def versions(wires: list[WireVersion], doing: str) -> list[Version]:
    """Return all versions that have an id, newest first."""
    found: list[Version | None] = []
    for wire in wires:
        version, version_id = identifier(wire.version), identifier(wire.id)
        size, author = count(wire.size), text(wire.lastModifiedBy)
        name, version_id = version or version_id, version_id or version
        modified = moment(wire.lastModified)
        stamp = _revision(modified or text(wire.lastModified), size, author)
        kept = Version(name, version_id, size, modified, author, stamp)
        found.append(kept if name else None)
    return sorted(_kept(found, "id", doing), key=lambda version: version.modified_ns, reverse=True)


def _attributes(value: object) -> Attributes:
    if not isinstance(value, dict):
        return _NO_ATTRIBUTES
    told = value.get
    # There are 32 of them, and a listing has thousands.
    return _ATTRIBUTES[
        told("executable") is True,
        told("hidden") is True,
        told("readProtected") is True,
        told("synchronize") is True,
        told("writeProtected") is True,
    ]


_ATTRIBUTES = {flags: Attributes(*flags) for flags in itertools.product((False, True), repeat=5)}
_NO_ATTRIBUTES = Attributes()
ModelT = TypeVar("ModelT", Entry, Zone, Version)


def _kept(found: list[ModelT | None], lacking: str, doing: str) -> list[ModelT]:
    kept = [item for item in found if item is not None]
    if len(kept) < len(found):
        logger.warning("%s: %d of %d items have no %s", doing, len(found) - len(kept),
                       len(found), lacking)  # fmt: skip
    return kept
