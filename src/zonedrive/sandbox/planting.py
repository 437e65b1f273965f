"""Creation of entries and changes of attributes without the checks of the API, for tests.

This module does not depend on the control socket. Any name is accepted, even if it is taken.
"""

from typing import Any

import msgspec

from zonedrive.sandbox import entries
from zonedrive.sandbox.database import Row
from zonedrive.sandbox.deployment import Deployment


class Plant(msgspec.Struct, eq=False, forbid_unknown_fields=True):
    """Entry to create in the zone named `zone`.

    `parent` is a path from the zone's root folder; '' is the root folder itself. `by` is a user id;
    '' means the creator of the zone.
    """

    zone: str
    name: str
    parent: str = ""
    folder: bool = False
    content: str = ""
    by: str = ""


class Protection(
    msgspec.Struct, eq=False, forbid_unknown_fields=True, rename="camel", omit_defaults=True
):
    """Attributes to set on the entry at `path` in the zone named `zone`.

    `path` starts at the zone's root folder. None leaves an attribute unchanged.
    """

    zone: str
    path: str
    read_protected: bool | None = None
    write_protected: bool | None = None
    hidden: bool | None = None
    executable: bool | None = None


def plant(deployment: Deployment, order: Plant) -> dict[str, Any]:
    """Create an entry; return the entry as a JSON object.

    Raises LookupError for an unknown zone or parent.
    """
    zone = _zone(deployment, order.zone)
    parent = _walk(deployment, zone, order.parent)
    user = order.by or zone["created_by"]
    store = deployment.entries
    if order.folder:
        entry_id = store.add_folder(zone["id"], parent["id"], order.name, user)
    else:
        source = store.blobs.incoming()
        source.write_bytes(order.content.encode())
        entry_id = store.add_file(zone["id"], parent["id"], order.name, user, source)
    return entries.wire(store.find(zone["id"], entry_id))


def protect(deployment: Deployment, order: Protection) -> dict[str, Any]:
    """Set attributes of an entry; return the entry as a JSON object.

    Raises LookupError for an unknown zone or path.
    """
    zone = _zone(deployment, order.zone)
    row = _walk(deployment, zone, order.path)
    chosen = {
        name: value
        for name, value in msgspec.to_builtins(order).items()
        if name in entries.ATTRIBUTES
    }
    deployment.entries.set_attributes(row, chosen, zone["created_by"])
    return entries.wire(deployment.entries.find(zone["id"], row["id"]))


def _zone(deployment: Deployment, name: str) -> Row:
    zone = deployment.zones.by_name(name)
    if zone is None:
        raise LookupError(f"there is no zone named {name}")
    return zone


def _walk(deployment: Deployment, zone: Row, path: str) -> Row:
    row = deployment.entries.find(zone["id"], zone["root_id"])
    for name in filter(None, path.split("/")):
        child = deployment.entries.child(row["id"], name)
        if child is None:
            raise LookupError(f"there is no {path} in the zone {zone['name']}")
        row = child
    return row
