"""Tolerant conversion of the service's JSON into zones, entries and versions.

In `remote`, only this module contains the JSON member names of zones and entries. Unknown members
are ignored. A missing, null or malformed member gets a harmless default. If no default is harmless
(name, kind, size of a file), the entry is marked `unsure`, and the local state keeps its earlier
values. An item that cannot be addressed (an entry without id, a zone without id or name) is dropped
with a warning, and the other items are kept. The listing is then not `complete`: entries that the
listing lacks may exist on the service, and the names of dropped entries count as taken. A non-empty
array that contains no object is an error.
"""

import itertools
import json
import logging
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import msgspec

from zonedrive.errors import BadAnswer
from zonedrive.model import Attributes, Entry, LogMessage, Member, Revision, Version, Zone
from zonedrive.remote.wire.fields import (
    UNREADABLE,
    count,
    identifier,
    known,
    member,
    moment,
    parse,
    require_few_values,
    text,
)
from zonedrive.remote.wire.fields import name as called
from zonedrive.remote.wire.pagination import Item

logger = logging.getLogger(__name__)

ModelT = TypeVar("ModelT", Entry, Zone, Version, Member, tuple[str, str])
WireT = TypeVar("WireT", bound=msgspec.Struct)
Raw = msgspec.Raw | bytes


# Members have the type `object`, so that one malformed value does not make a listing unusable.
class WireEntry(msgspec.Struct, eq=False, rename="camel"):
    """JSON form of a file or folder entry."""

    id: object = None
    zone_id: object = None
    parent_id: object = None
    name: object = None
    folder: object = None
    deleted: object = None
    size: object = None
    type: object = None
    last_modified: object = None
    last_modified_by: object = None
    synchronization_status: object = None
    attributes: object = None


def objects(value: object, doing: str) -> list[dict[str, Any]]:
    """Return the items of a parsed array; replace an item that is not an object by an empty object.

    Raises BadAnswer if `value` is not an array, or none of its items is an object.
    """
    if not isinstance(value, list):
        raise BadAnswer(f"{doing}: the answer is not an array")
    if value and not any(isinstance(item, dict) for item in value):
        raise BadAnswer(f"{doing}: nothing in the answer is an object")
    return [item if isinstance(item, dict) else {} for item in value]


# ---- entries ----


def entry(wire: WireEntry, *, zone_id: str, parent_id: str = "", name: str = "") -> Entry | None:
    """Return the entry in `wire`, or None if `wire` has no id.

    The keyword arguments replace missing members.
    """
    found_id = identifier(wire.id)
    if not found_id:
        return None
    is_folder = wire.folder is True
    modified, author = moment(wire.last_modified), text(wire.last_modified_by)
    size = count(wire.size)
    return Entry(
        id=found_id,
        zone_id=_same(wire.zone_id, zone_id),
        parent_id=_same(wire.parent_id, parent_id),
        name=called(wire.name) or name,
        folder=is_folder,
        size=0 if is_folder else size,
        modified_ns=modified,
        modified_by=author,
        type=text(wire.type),
        sync=text(wire.synchronization_status),
        attributes=_attributes(wire.attributes),
        deleted=wire.deleted is True,
        revision=_revision(modified or text(wire.last_modified), size, author),
        unsure=not is_whole(wire),
    )


def _revision(modified: int | str, size: int, author: str) -> Revision:
    # The parsed time is used, so that two spellings of one time give the same revision.
    return Revision(f"{modified}|{size}|{author}")


def is_whole(wire: WireEntry) -> bool:
    """Return True if `name`, `folder`, `deleted` and, for a file, `size` are valid.

    `deleted` may be missing.
    """
    return (
        isinstance(wire.name, str)
        and isinstance(wire.folder, bool)
        and (wire.folder or known(wire.size) is not None)
        and (wire.deleted is None or isinstance(wire.deleted, bool))
    )


def _same(told: object, expected: str) -> str:
    """Return the id `told`, or `expected` if `told` is not a usable id.

    If both are equal, return `expected`, so that many entries share one string object.
    """
    return expected if told == expected else identifier(told) or expected


def _attributes(value: object) -> Attributes:
    if not isinstance(value, dict):
        return _NO_ATTRIBUTES
    # There are 32 combinations, and a listing has thousands of entries.
    return _ATTRIBUTES[tuple([value.get(name) is True for name in _FLAGS])]


_FLAGS = ("executable", "hidden", "readProtected", "synchronize", "writeProtected")
_ATTRIBUTES = {flags: Attributes(*flags) for flags in itertools.product((False, True), repeat=5)}
_NO_ATTRIBUTES = Attributes()


def one_entry(
    value: object,
    doing: str,
    *,
    zone_id: str,
    parent_id: str = "",
    name: str = "",
    is_file: bool = False,
) -> Entry:
    """Return the entry in a parsed response; the keyword arguments replace missing members.

    `is_file` means that the entry is a file if the response does not state its kind. Raises
    BadAnswer if the response is not an entry with an id, or if name, kind or size are still
    missing.
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


# ---- the listing of a folder ----


def raw_items(body: bytes, doing: str) -> list[Item[Raw]]:
    """Return the entries of the array in `body`, unparsed except for their ids.

    The entries refer to `body`, which stays in memory until all of them are released. Raises
    BadAnswer as `objects` does.
    """
    require_few_values(body, doing)
    raws: list[Any]
    try:
        raws = msgspec.json.decode(body, type=list[msgspec.Raw])
    except UNREADABLE:
        raws = [json.dumps(item).encode() for item in objects(parse(body, doing), doing)]
    if raws and not any(memoryview(raw)[0] == ord("{") for raw in raws):
        raise BadAnswer(f"{doing}: nothing in the answer is an object")
    return [Item(_decoded(raw, Item, doing).id, raw) for raw in raws]


def _decoded(raw: Raw, kind: type[WireT], doing: str) -> WireT:
    """Parse `raw` as `kind`; return a default instance of `kind` if `raw` is not a JSON object."""
    try:
        return _DECODERS[kind].decode(raw)  # type: ignore[no-any-return]
    except UNREADABLE:
        value = parse(bytes(raw), doing)
        return msgspec.convert(value, kind) if isinstance(value, dict) else kind()


_DECODERS: dict[type, msgspec.json.Decoder[Any]] = {
    kind: msgspec.json.Decoder(kind) for kind in (Item, WireEntry)
}


class Listed:
    """Sequence of the entries of a folder listing, without duplicate ids.

    An entry is parsed when it is accessed. A listing of many thousand entries therefore needs
    little more memory and time than the response itself.
    """

    def __init__(
        self, items: Iterable[Item[Raw]], doing: str, *, zone_id: str, parent_id: str
    ) -> None:
        found: dict[str, Raw] = {}
        nameless: list[Raw] = []
        for item in items:
            if entry_id := identifier(item.id):
                found[entry_id] = item.value
            else:
                nameless.append(item.value)
        self.complete = not nameless
        if nameless:
            logger.warning("%s: %d items have no id", doing, len(nameless))
        wires = [_decoded(raw, WireEntry, doing) for raw in nameless]
        self.strangers = [
            Entry("", zone_id, parent_id, called(wire.name), folder=False, unsure=True)
            for wire in wires
            if wire.deleted is not True
        ]
        """Entries without an id; only the name of such an entry is usable, if present."""
        self.ids = list(found)
        self._raws = list(found.values())
        self._doing = doing
        self._zone_id = zone_id
        self._parent_id = parent_id
        self._last: tuple[int, WireEntry] | None = None  # the entry that was parsed last

    def said(self, number: int) -> bytes:
        """Return the JSON text of the entry with index `number`."""
        return bytes(self._raws[number])

    def entry(self, number: int) -> Entry | None:
        """Return the entry with index `number`, or None if the entry is deleted."""
        found = entry(self._wire(number), zone_id=self._zone_id, parent_id=self._parent_id)
        return None if found is None or found.deleted else found

    def unsure(self, number: int) -> bool:
        """Return True if the entry with index `number` is incomplete; see `is_whole`."""
        return not is_whole(self._wire(number))

    def entries(self) -> list[Entry]:
        """Return all entries that have an id and are not deleted."""
        found = (self.entry(number) for number in range(len(self.ids)))
        return [each for each in found if each is not None]

    def _wire(self, number: int) -> WireEntry:
        if self._last is None or self._last[0] != number:
            self._last = number, _decoded(self._raws[number], WireEntry, self._doing)
        return self._last[1]


# ---- other lists, from parsed arrays ----


class ListedZones:
    """Zones of a user, with the ids of zones that the service described incompletely."""

    def __init__(self, items: list[dict[str, Any]], doing: str) -> None:
        self.zones = _kept([_zone(item) for item in items], "id or name", doing)
        ids = {identifier(item.get("id")) for item in items}
        self.complete = "" not in ids
        self.unsure = frozenset(ids - {zone.id for zone in self.zones if zone.root_id} - {""})
        """Ids of the zones without a name or a root folder."""


def _zone(item: dict[str, Any]) -> Zone | None:
    zone_id, name = identifier(item.get("id")), called(item.get("name"))
    if not (zone_id and name):
        return None
    root = identifier(item.get("rootId"))
    return Zone(
        id=zone_id,
        name=name,
        root_id=root,
        description=text(item.get("description")),
        accessible=bool(root) and item.get("ssiAccessible") is not False,
        size=known(item.get("currentSize")),
        users=known(item.get("numberOfUsers")),
        created_ns=moment(item.get("createdAt")),
    )


def versions(items: list[dict[str, Any]], fields: Mapping[str, str], doing: str) -> list[Version]:
    """Return all versions with an id, newest first; `fields` maps each field to its dotted path."""
    found: list[Version | None] = []
    for item in items:
        told = {field: member(item, path) for field, path in fields.items()}
        number, version_id = identifier(told["version"]), identifier(told["id"])
        size, author, modified = count(told["size"]), text(told["modified_by"]), told["modified"]
        when = moment(modified)
        stamp = _revision(when or text(modified), size, author)
        version = Version(number or version_id, version_id or number, size, when, author, stamp)
        found.append(version if version.id else None)
    kept = _kept(found, "id", doing)
    if kept and _rank(kept[0]) < _rank(kept[-1]):
        kept.reverse()  # the oldest comes first; the sort keeps the order of equal times
    return sorted(kept, key=lambda version: version.modified_ns, reverse=True)


def _rank(version: Version) -> tuple[int, int]:
    """Return a sort key: the time, then the version number (0 if the version has no number)."""
    return version.modified_ns, known(version.version) or 0


def deletions(
    items: list[dict[str, Any]], path: str, doing: str, zone_id: str
) -> list[tuple[Entry, int]]:
    """Return deleted entries, each with its deletion time in ns since the epoch (0: unknown).

    `path` is the dotted path of the field with the deletion time, or "" if the profile does not
    name this field. Raises BadAnswer if there are items, but none has an id.
    """
    found = [entry(msgspec.convert(item, WireEntry), zone_id=zone_id) for item in items]
    times = {identifier(item.get("id")): moment(member(item, path)) for item in items}
    return [(each, times[each.id]) for each in _some(found, "id", doing)]


def levels(items: list[dict[str, Any]], fields: Mapping[str, str], doing: str) -> dict[str, str]:
    """Return the access level of each zone by zone id.

    `fields` contains the dotted paths of the fields `zone` and `level` of an item. Raises BadAnswer
    if there are items, but none has both fields.
    """
    pairs = [
        (identifier(member(item, fields["zone"])), text(member(item, fields["level"])))
        for item in items
    ]
    return dict(_some([pair if all(pair) else None for pair in pairs], "zone and level", doing))


def members(items: list[dict[str, Any]], fields: Mapping[str, str], doing: str) -> list[Member]:
    """Return the zone members with an id; `fields` maps each field to its dotted path.

    Raises BadAnswer if there are items, but none has an id.
    """
    found: list[Member | None] = []
    for item in items:
        told = {field: member(item, path) for field, path in fields.items()}
        member_id = identifier(told["id"])
        name, kind, level = (text(told[field]) for field in ("name", "type", "level"))
        found.append(Member(member_id, kind, name, level) if member_id else None)
    return _some(found, "id", doing)


def log_messages(items: list[dict[str, Any]], fields: Mapping[str, str]) -> list[LogMessage]:
    """Return zone log messages, newest first if the service sorts them by time.

    `fields` maps the fields in the profile to their dotted paths.
    """
    found = []
    for item in items:
        told = dict.fromkeys(("time", "user", "event", "entry", "path", "message"))
        told |= {field: member(item, path) for field, path in fields.items()}
        user, event, message = (text(told[field]) for field in ("user", "event", "message"))
        when, entry_id, path = moment(told["time"]), identifier(told["entry"]), told["path"]
        found.append(LogMessage(when, user, event, entry_id, called(path), message))
    if found and found[0].time_ns < found[-1].time_ns:
        found.reverse()  # several messages may have the same time, so a sort by time is not enough
    return found


def _kept(found: list[ModelT | None], lacking: str, doing: str) -> list[ModelT]:
    kept = [item for item in found if item is not None]
    if len(kept) < len(found):
        logger.warning(
            "%s: %d of %d items have no %s", doing, len(found) - len(kept), len(found), lacking
        )
    return kept


def _some(found: list[ModelT | None], lacking: str, doing: str) -> list[ModelT]:
    """Return the usable items; raise BadAnswer if there are items, but none is usable.

    Without the error, a response whose members have other names would look like an empty list.
    """
    kept = _kept(found, lacking, doing)
    if found and not kept:
        raise BadAnswer(f"{doing}: nothing in the answer has the expected members")
    return kept
