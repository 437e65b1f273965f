"""Listing of a folder; each entry is parsed on first access.

A listing of many thousand entries therefore needs little more memory and time than the answer
itself. Knows nothing about the tree.
"""

import json
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import msgspec

from zonedrive.errors import BadAnswer
from zonedrive.model import Entry
from zonedrive.remote.wire.entries import (
    WireEntry,
    entry,
    is_whole,
    parse,
    require_few_values,
    require_objects,
)
from zonedrive.remote.wire.fields import identifier
from zonedrive.remote.wire.fields import name as called

logger = logging.getLogger(__name__)

OBJECT = ord("{")  # what one begins with


class RawEntry(msgspec.Struct, eq=False, gc=False):
    """JSON of a file or folder entry, unparsed except for its id; see `Listed`."""

    id: object = None
    raw: msgspec.Raw | bytes = b"null"


def raw_items(body: bytes, doing: str) -> list[RawEntry]:
    """Return the entries of the array in `body`, unparsed except for their ids.

    The entries refer to `body`, which stays in memory until all of them are released. Raises
    BadAnswer if the answer is not an array of objects.
    """
    require_few_values(body, doing)
    raws: Sequence[msgspec.Raw | bytes]
    try:
        raws = msgspec.json.decode(body, type=list[msgspec.Raw])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        value = parse(body, doing)
        if not isinstance(value, list):
            raise BadAnswer(f"{doing}: the answer is not an array") from None
        raws = [json.dumps(item).encode() for item in value]
    require_objects((memoryview(raw)[0] == OBJECT for raw in raws), doing)
    return [RawEntry(_read(raw, _Id, doing).id, raw) for raw in raws]


class Listed:
    """Present entries of a folder, unparsed: numbered, each id once."""

    def __init__(
        self, items: Iterable[RawEntry], doing: str, *, zone_id: str, parent_id: str
    ) -> None:
        found: dict[str, msgspec.Raw | bytes] = {}
        nameless: list[msgspec.Raw | bytes] = []
        for item in items:
            if entry_id := identifier(item.id):
                found[entry_id] = item.raw
            else:
                nameless.append(item.raw)
        self.complete = not nameless
        if nameless:
            logger.warning("%s: items have no id", doing)
        wires = [_read(raw, WireEntry, doing) for raw in nameless]
        self.strangers = [
            Entry(id="", zone_id=zone_id, parent_id=parent_id, name=called(wire.name), folder=False,
                  unsure=True)
            for wire in wires
            if wire.deleted is not True
        ]  # fmt: skip
        """Entries without an id; nothing but the name, if present, is usable."""
        self.ids = list(found)
        self._raws = list(found.values())
        self._doing = doing
        self._zone_id = zone_id
        self._parent_id = parent_id
        self._read: tuple[int, WireEntry] | None = None  # the last one

    def said(self, number: int) -> bytes:
        """Return the complete JSON of an entry."""
        return bytes(self._raws[number])

    def entry(self, number: int) -> Entry | None:
        """Return an entry, or None if it is deleted."""
        found = entry(self._wire(number), zone_id=self._zone_id, parent_id=self._parent_id)
        return None if found is None or found.deleted else found

    def unsure(self, number: int) -> bool:
        """Return True if the service left out essential facts about an entry."""
        return not is_whole(self._wire(number))

    def _wire(self, number: int) -> WireEntry:
        if self._read is None or self._read[0] != number:
            self._read = number, _read(self._raws[number], WireEntry, self._doing)
        return self._read[1]

    def entries(self) -> list[Entry]:
        """Return all entries, parsed, except `strangers`."""
        found = (self.entry(number) for number in range(len(self.ids)))
        return [each for each in found if each is not None]


class _Id(msgspec.Struct, eq=False, gc=False):
    id: object = None


_ReadT = TypeVar("_ReadT", _Id, WireEntry)


def _read(raw: msgspec.Raw | bytes, kind: type[_ReadT], doing: str) -> _ReadT:
    """Return `raw` parsed as `kind`; anything but an object gives an empty `kind`."""
    try:
        return _DECODERS[kind](raw)  # type: ignore[no-any-return]
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        value = parse(bytes(raw), doing)
        return msgspec.convert(value, kind) if isinstance(value, dict) else kind()


_DECODERS: dict[type, Callable[[msgspec.Raw | bytes], Any]] = {
    kind: msgspec.json.Decoder(kind).decode for kind in (_Id, WireEntry)
}
